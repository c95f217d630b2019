"""The bank's input: good rows, bad rows with their line numbers, and hostile files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import WaltzError
from waltz.demo.transfers import (
    DAY_S,
    MAX_AMOUNT_CENTS,
    BankTransfer,
    Rejected,
    Transfers,
    decode,
    encode,
    random_transfers,
)


def read(tmp_path: Path, content: str | bytes) -> tuple[list[BankTransfer], list[Rejected]]:
    path = tmp_path / "transfers.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rejected: list[Rejected] = []
    return list(Transfers(path, rejected.append)), rejected


def test_columns_come_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    got, rejected = read(tmp_path, "note,Amount,TO,from\nx,1.50,b,a\n")
    assert got == [BankTransfer("a", "b", 150)]
    assert rejected == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,b", "2 columns where 3 are needed"),
        (",b,1", "empty account in column from"),
        ("a,  ,1", "empty account in column to"),
        ("a,b,", "amount '' is not a number"),
        ("a,b,ten", "amount 'ten' is not a number"),
        ("a,b,nan", "amount 'nan' is not a number"),
        ("a,b,inf", "amount 'inf' is not a number"),
        ('a,b,"1,000"', "amount '1,000' is not a number"),
        ("a,b,0.00", "zero amount"),
        ("a,b,-3", "negative amount"),
        ("a,b,1.005", "amount has more than two decimals"),
        ("a,b,1e30", f"amount is larger than {MAX_AMOUNT_CENTS // 100}"),
        ("a,b,1e999999", f"amount is larger than {MAX_AMOUNT_CENTS // 100}"),
        ("x" * 201 + ",b,1", "account name in column from is longer than 200 characters"),
    ],
)
def test_a_bad_row_is_rejected_with_its_line_and_reason(tmp_path: Path, row: str, reason: str) -> None:
    got, rejected = read(tmp_path, f"from,to,amount\na,b,1\n{row}\nb,a,2\n")
    assert got == [BankTransfer("a", "b", 100), BankTransfer("b", "a", 200)]
    assert rejected == [Rejected(3, reason)]


def test_bytes_that_are_not_utf8_reject_their_row_only(tmp_path: Path) -> None:
    got, rejected = read(tmp_path, b"from,to,amount\n\xff,b,1\na,b,1\n")
    assert got == [BankTransfer("a", "b", 100)]
    assert rejected == [Rejected(2, "column from is not UTF-8")]


def test_quotes_newlines_unicode_and_byte_order_mark(tmp_path: Path) -> None:
    got, rejected = read(
        tmp_path, '\ufefffrom,to,amount\r\n"Müller, ""J""","口座\n2",1e2\r\n\r\nx,y,bad\r\ne\u0301,y,1\r\n'
    )
    assert got == [BankTransfer('Müller, "J"', "口座\n2", 10_000), BankTransfer("é", "y", 100)]
    assert rejected == [Rejected(5, "amount 'bad' is not a number")]


def test_a_field_beyond_the_limit_is_one_rejected_row(tmp_path: Path) -> None:
    got, rejected = read(tmp_path, "from,to,amount\n" + "x" * 200_000 + ",b,1\na,b,1\n")
    assert got == [BankTransfer("a", "b", 100)]
    assert len(rejected) == 1


def test_times_are_optional(tmp_path: Path) -> None:
    got, rejected = read(
        tmp_path,
        "time,from,to,amount\n1970-01-01T01:00:01+01:00,a,b,1\n1970-01-02,a,b,1\n,a,b,1\n1:00,a,b,1\n0001-01-01,a,b,1\n",
    )
    assert [transfer.time_s for transfer in got] == [1, 86_400, None, -62_135_596_800]
    assert rejected == [Rejected(5, "time '1:00' is not ISO 8601")]
    assert [decode(encode(transfer)) for transfer in got] == got


@pytest.mark.parametrize("content", ["", "a,b,c\n1,2,3\n", "from,to\n"])
def test_a_file_without_the_header_says_what_is_missing(tmp_path: Path, content: str) -> None:
    with pytest.raises(WaltzError, match="header line lacks .*amount"):
        read(tmp_path, content)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WaltzError, match="cannot read the transfers: .*No such file"):
        list(Transfers(tmp_path / "none.csv"))


@given(st.binary(max_size=300))
def test_any_bytes_give_transfers_or_rejections(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"from,to,amount\n" + content)
    for transfer in Transfers(path):
        assert transfer.source
        assert transfer.target
        assert 0 < transfer.amount_cents <= MAX_AMOUNT_CENTS
        assert decode(encode(transfer)) == transfer


def test_generated_transfers_are_the_same_for_the_same_seed() -> None:
    first = list(random_transfers(500, 10, seed=3))
    assert first == list(random_transfers(500, 10, seed=3))
    assert first != list(random_transfers(500, 10, seed=4))
    assert all(transfer.source != transfer.target for transfer in first)
    times = [transfer.time_s for transfer in first if transfer.time_s is not None]
    assert times == sorted(times)
    assert len(times) == 500
    assert times[-1] - times[0] < DAY_S
