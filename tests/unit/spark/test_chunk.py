import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.cluster.fakes import as_on_disk, damaged, encode_range, make_log, make_record
from tests.unit.spark.chunks import decode, make_chunk
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.spark.chunk import Chunk, decode_chunk, decode_range
from waltz.storage.disk.segment.segment_format import encode_record
from waltz.storage.remote.errors import DataCorruptionError


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


def decode_stored(encoded: bytes) -> Chunk | None:
    return decode_range(b"behind" + encoded + b"ahead", 6, 6 + len(encoded), partition_id=3, source="storage a:1")


def stored_chunk(records: list[Record]) -> Chunk:
    chunk = decode_stored(encode_range(records))
    assert chunk is not None
    return chunk


def test_fields_become_columns() -> None:
    records = make_log(2, 6)[3:]
    assert_is(make_chunk(records), records)
    assert_is(stored_chunk(records), records)


@given(st.integers(0, 2**62), st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_any_records(first: int, payloads: list[bytes]) -> None:
    records = [make_record(0, index, payload) for index, payload in enumerate(payloads)]
    records = [record._replace(transaction_id=first + record.transaction_id) for record in records]
    assert_is(make_chunk(records), records)
    assert_is(stored_chunk(records), records)


def test_no_records() -> None:
    assert decode([]) is None
    assert decode_stored(bytes(8)) is None


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
    for ours, theirs in zip(stored_chunk(records).cut(max_bytes), pieces, strict=True):
        assert_is(ours, records[theirs.first - 5 : theirs.first - 5 + theirs.count])


class TestRangesAsOnDisk:
    def test_gaps_are_noticed(self) -> None:
        log = make_log(0, 6)
        with pytest.raises(ProtocolError, match="storage a:1 sent transaction 4 in the place of 3"):
            decode_stored(encode_range([*log[1:3], *log[4:]]))

    def test_damage_is_noticed(self) -> None:
        with pytest.raises(
            DataCorruptionError,
            match="a:1 delivered a damaged transaction: partition 3, transaction 4: the payload does not match",
        ):
            decode_stored(encode_range(damaged(make_log(3, 6), 4)))

    def test_what_is_cut_or_too_long(self) -> None:
        whole = encode_range(make_log(0, 3))
        for size in range(len(whole)):
            with pytest.raises(ProtocolError):
                decode_stored(whole[:size])
        with pytest.raises(ProtocolError, match="bytes of records and sent"):
            decode_stored(whole + b"x")
        with pytest.raises(ProtocolError, match="without their sizes"):
            decode_stored(bytes(4) + struct.pack(">i", 1) + b"x")

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param((1, -1), id="limits moved"),
            pytest.param((1, 0), id="longer than all"),
            pytest.param((-100, 100), id="negative"),
            pytest.param((2**31 - 1, 2**31 - 1), id="beyond 32 bits"),
        ],
    )
    def test_wrong_sizes(self, changes: tuple[int, int]) -> None:
        sizes, stored = as_on_disk(make_log(0, 3))
        first, second, third = struct.unpack(">3i", sizes)
        wrong = [min(first + changes[0], 2**31 - 1), min(second + changes[1], 2**31 - 1), third]
        with pytest.raises(ProtocolError):
            decode_stored(b"".join((struct.pack(">i3i", 12, *wrong), struct.pack(">i", len(stored)), stored)))

    def test_sizes_of_two_records_in_one(self) -> None:
        """The bytes of one record within the payload of another are not taken for a record."""
        inner = encode_record(make_record(0, 8))
        outer = encode_record(make_record(0, 7, bytes(4) + inner))
        place = outer.index(inner)
        sizes = struct.pack(">3i", place, len(inner), len(outer) - place - len(inner))
        encoded = b"".join((struct.pack(">i", 12), sizes, struct.pack(">i", len(outer)), outer))
        with pytest.raises((ProtocolError, DataCorruptionError)):
            decode_stored(encoded)

    @given(st.data())
    def test_whatever_comes_is_refused_or_whole(self, data: st.DataObject) -> None:
        encoded = bytearray(encode_range(make_log(0, data.draw(st.integers(1, 4)))))
        for _ in range(data.draw(st.integers(1, 4))):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
        try:
            chunk = decode_stored(bytes(encoded))
        except (ProtocolError, DataCorruptionError):
            return
        if chunk is not None:
            assert len(chunk.payloads.to_pylist()) == chunk.count == len(chunk.heads().column("header"))
