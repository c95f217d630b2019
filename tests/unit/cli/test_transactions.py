"""How transactions look on a line, and what is taken for locks and ids."""

import argparse
import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.cli import transactions
from waltz.cli.main import parser
from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record


def record(data: bytes) -> Record:
    return Record(41, ReqId.of(1, 1, 3, 1), 5, data, 0)


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"an order", " an order"), (b"", ""), (b"two\nlines", ' "two\\nlines"'), (b"\xff\x00", " 0xff00")],
)
def test_a_transaction_on_a_line(data: bytes, shown: str) -> None:
    assert transactions.line_of(3, record(data), None) == f"3/41 header=5 size={len(data)}{shown}"


@given(st.binary(max_size=60), st.integers(1, 100))
def test_a_line_is_one_line_that_fits(data: bytes, width: int) -> None:
    line = transactions.line_of(3, record(data), width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
    assert transactions.line_of(3, record(data), None).startswith(line.removesuffix("…"))


def test_locks() -> None:
    assert transactions._lock("a:b:-7") == PartitionLocalLock("a:b", -7)
    for wrong in ("account", "account:", "account:x", f"account:{1 << 63}"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a lock like account:17"):
            transactions._lock(wrong)


def test_ids() -> None:
    assert transactions._ids("7") == (7, 7)
    assert transactions._ids("7-12") == (7, 12)
    for wrong in ("", "x", "7-", "-7", "7-x"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a transaction id"):
            transactions._ids(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match="the first id is above the last one"):
        transactions._ids("12-7")


@pytest.mark.parametrize("data", [b"", b"something"])
@pytest.mark.parametrize("from_file", [False, True])
def test_nothing_is_appended_only_where_nothing_is_asked_for(
    data: bytes, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data"
    file.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    options = parser().parse_args(["append", "-p", "0", *(["--file", str(file)] if from_file else [])])
    name = file if from_file else "standard input"
    if data:
        assert transactions._data(options) == data
    else:
        with pytest.raises(WaltzError, match=f'^{name} is empty, .* give "" in its'):
            transactions._data(options)
    assert transactions._data(parser().parse_args(["append", "-p", "0", ""])) == b""
