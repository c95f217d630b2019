"""Bytes of segment files."""

import os
import struct
from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_testing import KEY, record, records
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    WIRE_PIECES,
    SegmentHeader,
    add_record_offsets,
    data_file_name,
    decode_index,
    decode_record,
    decode_span,
    encode_index,
    encode_record,
    encode_span,
    find_later_record,
    index_path,
    intact_sizes,
    scan_records,
    valid_record_size,
)

GOLDEN_R0 = "0000000000000000 0000000100000002 0000000300000004 00000007 00000003 352441c2 616263 cc272862"
GOLDEN_R1 = "0000000000000001 0000000100000002 0000000300000004 00000007 00000000 00000000 bfbca659"
R0 = Record(0, ReqId.of(1, 2, 3, 4), 7, b"abc", 0x352441C2)
R1 = Record(1, ReqId.of(1, 2, 3, 4), 7, b"", 0)


class Bytes:
    """A reader over bytes, a segment file without its header's contents."""

    def __init__(self, body: bytes) -> None:
        self.content = bytes(HEADER_SIZE_BYTES) + body
        self.bytes_read = 0

    def read(self, offset: int, size: int) -> bytes:
        data = self.content[offset : offset + size]
        self.bytes_read += len(data)
        return data

    def scan(self, first: int = 0) -> Sequence[int]:
        return scan_records(self, HEADER_SIZE_BYTES, len(self.content), first)


def encoded(items: Sequence[Record]) -> bytes:
    return b"".join(encode_record(item) for item in items)


def test_golden_records() -> None:
    assert encode_record(R0) == bytes.fromhex(GOLDEN_R0)
    assert encode_record(R1) == bytes.fromhex(GOLDEN_R1)
    both = encode_record(R0) + encode_record(R1)
    assert decode_record(both, 0, 43, 0) == R0
    assert decode_record(both, 43, 83, 1) == R1


@pytest.mark.parametrize(
    ("start", "end", "transaction_id"), [(0, 43, 1), (0, 42, 0), (0, 44, 0), (1, 43, 0), (0, 83, 0)]
)
def test_only_exact_records_decode(start: int, end: int, transaction_id: int) -> None:
    assert decode_record(encode_record(R0) + encode_record(R1), start, end, transaction_id) is None


@given(position=st.integers(0, 42), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(position: int, bit: int) -> None:
    data = bytearray(encode_record(R0))
    data[position] ^= 1 << bit
    assert decode_record(bytes(data), 0, 43, 0) is None
    assert list(Bytes(bytes(data)).scan()) == [128]


def test_header() -> None:
    header = SegmentHeader(0, 5, KEY, 3, 1000)
    assert header.encode().hex() == (
        "00000000" + "0000000000000005" + KEY.hex + "00000003" + "00000000000003e8" + "00" * 88
    )
    assert SegmentHeader.decode(header.encode()) == header


def test_names_and_index() -> None:
    assert data_file_name(46) == "0000000000000000046.seg"
    assert index_path("/d/0000000000000000046.seg") == "/d/0000000000000000046.idx"
    assert encode_index([128, 171]).hex() == "000000000000008000000000000000ab"
    assert list(decode_index(encode_index([128, 171]) + b"partial")) == [128, 171]


@given(st.lists(st.integers(0, 200), max_size=20), st.integers(0, 1000), st.integers(0, 400))
def test_scan_finds_whole_records_only(sizes: list[int], first: int, cut: int) -> None:
    items = [record(first + i, os.urandom(size)) for i, size in enumerate(sizes)]
    ends = [HEADER_SIZE_BYTES]
    for item in items:
        ends.append(ends[-1] + 40 + len(item.data))
    body = encoded(items)
    body = body[: max(0, len(body) - cut)]
    expected = [end for end in ends if end <= HEADER_SIZE_BYTES + len(body)]
    assert list(Bytes(body).scan(first)) == expected


def test_scan_across_blocks_and_records_larger_than_a_block() -> None:
    sizes = [600_000, 3_000_000, 0, 500_000, 600_000, 1_048_576, 7]
    items = [record(i, bytes([i]) * size) for i, size in enumerate(sizes)]
    reader = Bytes(encoded(items))
    offsets = reader.scan()
    assert len(offsets) == 8
    assert offsets[-1] == len(reader.content)


@pytest.mark.parametrize("length", [-1, -41, -(1 << 31), (1 << 31) - 1])
def test_impossible_lengths_are_not_records(length: int) -> None:
    """Even with a matching checksum, and without reading what is not there."""
    body = struct.pack(">q16siii", 0, bytes(16), 0, length, 0)
    reader = Bytes(body + struct.pack(">I", crc32(body)) + bytes(100))
    assert list(reader.scan()) == [128]
    assert valid_record_size(reader, 128, len(reader.content), 0) is None


@pytest.mark.parametrize("offset", [-5, 0, 127, 10_000])
def test_no_record_at_impossible_offsets(offset: int) -> None:
    reader = Bytes(encode_record(R0))
    assert valid_record_size(reader, offset, len(reader.content), 0) is None
    assert valid_record_size(reader, 128, len(reader.content), 0) == 43


@pytest.mark.parametrize("first", [0, 250, 255, 65_530, (1 << 40) - 3])
@pytest.mark.parametrize("lost", [1, 2, 9])
def test_later_record_is_found(first: int, lost: int) -> None:
    items = [record(first + i, bytes([i]) * 30) for i in range(12)]
    body = bytearray(encoded(items))
    for i in range(lost):
        body[70 * i + 50] ^= 1
    found = find_later_record(Bytes(bytes(body)), 128, 128 + len(body), first)
    assert found == (first + lost, 128 + 70 * lost)


def test_later_record_behind_lost_blocks_of_zeros() -> None:
    items = records(0, 3000)
    body = encoded(items)
    start = len(encoded(items[:10]))
    reader = Bytes(body[:start] + bytes(2_000_000) + encode_record(items[2999]))
    assert find_later_record(reader, 128 + start, len(reader.content), 10) == (2999, 128 + start + 2_000_000)


@pytest.mark.parametrize("id_offset", [-1, 0, 100])
def test_implausible_ids_are_not_later_records(id_offset: int) -> None:
    """The same id, a smaller one, and one for which there is no room."""
    reader = Bytes(bytes(50) + encode_record(record(5 + id_offset)) + bytes(10_000))
    assert find_later_record(reader, 128, len(reader.content), 5) is None


@given(st.binary(max_size=300))
def test_noise_is_not_a_later_record(noise: bytes) -> None:
    assert find_later_record(Bytes(noise), 128, 128 + len(noise), 0) is None


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=8),
    st.integers(0, 1 << 40),
    st.none() | st.tuples(st.integers(0, 10_000), st.integers(0, 7)),
)
def test_encoding_for_the_wire_equals_decoding_and_encoding(
    payloads: list[bytes], first: int, flip: tuple[int, int] | None
) -> None:
    items = [record(first + i, data) for i, data in enumerate(payloads)]
    buffer = bytearray(b"".join(encode_record(item) for item in items))
    bounds = [128]
    for item in items:
        bounds.append(bounds[-1] + len(encode_record(item)))
    intact = len(items)
    if flip is not None:
        position = flip[0] % len(buffer)
        buffer[position] ^= 1 << flip[1]
        intact = sum(1 for bound in bounds[1:] if bound - 128 <= position)
    assert decode_span(bytes(buffer), bounds, first) == items[:intact]
    pieces = encode_span(bytes(buffer), bounds, first)
    assert len(pieces) == WIRE_PIECES * intact
    assert b"".join(pieces) == encode_records(items[:intact])
    assert intact_sizes(bytes(buffer), bounds, first) == [len(encode_record(item)) for item in items[:intact]]


@pytest.mark.parametrize("missing", [1, 4, 5, 40, 41])
def test_spans_that_end_too_early(missing: int) -> None:
    whole = encode_record(record(5, b"x" * 10))
    end = 128 + len(whole)
    assert decode_span(whole[:-missing], [128, end], 5) == []
    assert encode_span(whole[:-missing], [128, end], 5) == []
    assert intact_sizes(whole[:-missing], [128, end], 5) == []
    assert decode_span(whole, [128, end - missing], 5) == []
    assert encode_span(whole, [128, end - missing], 5) == []
    assert intact_sizes(whole, [128, end - missing], 5) == []


def test_offsets_of_records_follow_their_lengths() -> None:
    data = b"".join(map(encode_record, records(5, 4)))
    offsets = [7]
    add_record_offsets(offsets, b"xy" + data, 2, 2 + len(data), 4, 1000)
    sizes = [len(encode_record(each)) for each in records(5, 4)]
    assert offsets == [7, 1000, 1000 + sizes[0], 1000 + sum(sizes[:2]), 1000 + sum(sizes[:3])]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (encode_record(record(5)), 2),
        (encode_record(record(5)) * 2, 1),
        (encode_record(record(5))[:-1], 1),
        (b"\xff" * 40, 1),
        (b"", 1),
        (b"x", 0),
    ],
)
def test_bytes_that_are_not_so_many_records_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(ValueError, match=f"{len(data)} bytes are not {count} records"):
        add_record_offsets([], data, 0, len(data), count, 128)
