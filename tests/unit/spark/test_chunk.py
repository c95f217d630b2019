import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.fakes import damaged, decode, make_chunk, make_log, make_record
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.spark.chunk import Chunk, decode_chunk
from waltz.storage.client import DataCorruptionError


def decode_bytes(encoded: bytes) -> Chunk | None:
    return decode_chunk(encoded, 0, len(encoded), partition_id=3, source="storage a:1")


def assert_is(chunk: Chunk, records: list[Record]) -> None:
    assert (chunk.first, chunk.count) == (records[0].transaction_id, len(records))
    assert chunk.transaction_ids().to_pylist() == [record.transaction_id for record in records]
    assert chunk.payloads.to_pylist() == [record.data for record in records]
    assert list(chunk.checksums()) == [record.checksum for record in records]
    heads = chunk.heads()
    assert list(heads.column("header")) == [record.header for record in records]
    for name in ("client_id", "generation", "seq_num"):
        assert list(heads.column(name)) == [getattr(ReqId(record.req_id), name) for record in records]
    assert chunk.size_bytes == sum(len(record.data) for record in records)


def test_fields_become_columns() -> None:
    records = make_log(2, 6)[3:]
    assert_is(make_chunk(records), records)


@given(st.integers(0, 2**62), st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_any_records(first: int, payloads: list[bytes]) -> None:
    records = [make_record(0, index, payload) for index, payload in enumerate(payloads)]
    records = [record._replace(transaction_id=first + record.transaction_id) for record in records]
    assert_is(make_chunk(records), records)


def test_no_records() -> None:
    assert decode([]) is None


def test_payloads_are_not_shown() -> None:
    assert repr(make_chunk(make_log(0, 6)[2:])) == "<Chunk 2 to 5>"


def test_gaps_are_noticed() -> None:
    log = make_log(0, 6)
    with pytest.raises(ProtocolError, match="storage a:1 sent transaction 4 in the place of 3"):
        decode([*log[1:3], *log[4:]])


def test_ids_do_not_wrap() -> None:
    records = [
        make_record(0, index)._replace(transaction_id=number) for index, number in ((0, 2**63 - 1), (1, -(2**63)))
    ]
    with pytest.raises(ProtocolError, match="in the place of 9223372036854775808"):
        decode(records)


def test_damage_is_noticed() -> None:
    encoded = (6).to_bytes(4, "big") + encode_records(damaged(make_log(3, 6), 4))
    with pytest.raises(
        DataCorruptionError,
        match="a:1 delivered a damaged transaction: partition 3, transaction 4: the payload does not match",
    ):
        decode_bytes(encoded)


def test_lists_that_are_cut_or_too_long() -> None:
    whole = (3).to_bytes(4, "big") + encode_records(make_log(0, 3))
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_bytes(whole[:size])
    with pytest.raises(ProtocolError, match="1 bytes left over"):
        decode_bytes(whole + b"x")
    with pytest.raises(ProtocolError, match="left over"):
        decode_bytes(bytes(5))


@pytest.mark.parametrize("count", [-1, 4, 2**31 - 1])
def test_wrong_counts(count: int) -> None:
    with pytest.raises(ProtocolError):
        decode_bytes(struct.pack(">i", count) + encode_records(make_log(0, 3)))


@pytest.mark.parametrize("size", [-1, -40, 2**31 - 1])
def test_wrong_sizes(size: int) -> None:
    encoded = bytearray((3).to_bytes(4, "big") + encode_records(make_log(0, 3)))
    encoded[32:36] = struct.pack(">i", size)
    with pytest.raises(ProtocolError):
        decode_bytes(bytes(encoded))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), st.integers(1, 20))
def test_cuts_keep_every_record_and_the_bound(sizes: list[int], max_bytes: int) -> None:
    records = [make_record(0, 5 + index, bytes(size)) for index, size in enumerate(sizes)]
    pieces = list(make_chunk(records).cut(max_bytes))
    assert all(piece.size_bytes <= max_bytes or piece.count == 1 for piece in pieces)
    for before, after in itertools.pairwise(pieces):
        assert before.first + before.count == after.first
    for piece in pieces:
        start = piece.first - 5
        assert_is(piece, records[start : start + piece.count])
    assert sum(piece.count for piece in pieces) == len(records)
