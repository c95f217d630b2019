"""What the recovery of a segment costs when much of it is damaged."""

from typing import NamedTuple

import pytest

from tests.unit.storage.log_testing import PARTITION, record
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, encode_index, encode_record
from waltz.storage.disk.segment.segment_recovery import Known, SegmentContents, recover
from waltz.storage.errors import CorruptionError

COUNT = 4000


class CountingReader:
    """Bytes of a file, and how many of them were read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.bytes_read = 0

    def read(self, offset: int, size: int) -> bytes:
        data = self.content[offset : offset + size]
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("entry", [0, HEADER_SIZE_BYTES, 60_000])
def test_many_damaged_places_under_an_index_that_leads_nowhere(entry: int) -> None:
    """Neither the index nor the rest of the segment is read again for each of them."""
    encoded = [bytearray(encode_record(record(number, b"x" * 60))) for number in range(COUNT)]
    damaged = range(10, COUNT, 10)
    for number in damaged:
        encoded[number][40] ^= 1
    data = CountingReader(bytes(HEADER_SIZE_BYTES) + b"".join(encoded))
    index = CountingReader(bytes(HEADER_SIZE_BYTES) + encode_index([entry] * COUNT))
    contents = SegmentContents(PARTITION, "/0.seg", 0, data, len(data.content), index, HEADER_SIZE_BYTES + 8 * COUNT)
    found = recover(contents, Known(COUNT - 1))
    assert found.damaged == tuple((number, number) for number in damaged)
    assert found.next_transaction_id == COUNT
    assert index.bytes_read < 3 * len(index.content)
    assert data.bytes_read < 30 * len(data.content)


@pytest.mark.parametrize("low_water_mark", [15, 30])
def test_entries_that_a_crash_has_lost_before_others_are_made_again(low_water_mark: int) -> None:
    """A log that was cut below its mark gets entries again there, and its sectors persist in any order."""
    encoded = [encode_record(record(number, b"x" * 60)) for number in range(20)]
    offsets = [HEADER_SIZE_BYTES + sum(map(len, encoded[:number])) for number in range(20)]
    data = CountingReader(bytes(HEADER_SIZE_BYTES) + b"".join(encoded))
    left = [*offsets[:10], 0, 0, 0, *offsets[13:]]
    index = CountingReader(bytes(HEADER_SIZE_BYTES) + encode_index(left))
    contents = SegmentContents(PARTITION, "/0.seg", 0, data, len(data.content), index, len(index.content))
    found = recover(contents, Known(low_water_mark))
    assert (found.next_transaction_id, found.damaged) == (20, ())
    assert [*left[: found.start_transaction_id], *found.entries] == offsets


class Cut(NamedTuple):
    """A log that was cut below its mark and went on, and where its intact records end."""

    contents: SegmentContents
    whole: int


def cut_log(index: bytes, tail: bytes) -> Cut:
    """Twelve records, and behind them what an interrupted write has left."""
    encoded = [encode_record(record(number, b"x" * 600)) for number in range(12)]
    whole = HEADER_SIZE_BYTES + sum(map(len, encoded))
    data = CountingReader(bytes(HEADER_SIZE_BYTES) + b"".join(encoded) + tail)
    reader = CountingReader(index)
    return Cut(SegmentContents(PARTITION, "/0.seg", 0, data, len(data.content), reader, len(index)), whole)


def index_of(count: int) -> bytes:
    """The index of so many of the records of :func:`cut_log`."""
    size = len(encode_record(record(0, b"x" * 600)))
    return bytes(HEADER_SIZE_BYTES) + encode_index([HEADER_SIZE_BYTES + size * number for number in range(count)])


TORN = encode_record(record(12, b"y" * 600))[:300]


@pytest.mark.parametrize("indexed", [10, 12])
def test_an_interrupted_write_where_the_log_was_cut_below_its_mark_is_cut_away(indexed: int) -> None:
    """The index reached the mark when it was set, so what is not in it was written after the cut."""
    contents, whole = cut_log(index_of(indexed), TORN)
    found = recover(contents, Known(20))
    assert (found.next_transaction_id, found.end_offset, found.damaged) == (12, whole, ())


def test_a_lost_tail_below_the_mark_that_the_index_knows_is_refused() -> None:
    contents, _ = cut_log(index_of(13), TORN)
    with pytest.raises(CorruptionError, match="the local low-water mark is 20"):
        recover(contents, Known(20))


def test_an_index_without_its_header_tells_nothing_of_a_cut() -> None:
    contents, _ = cut_log(b"", TORN)
    with pytest.raises(CorruptionError, match="the local low-water mark is 20"):
        recover(contents, Known(20))


def test_damage_below_the_mark_is_no_interrupted_write_because_the_log_was_cut_once() -> None:
    flipped = bytearray(encode_record(record(12, b"y" * 600)))
    flipped[100] ^= 1
    contents, _ = cut_log(index_of(12), bytes(flipped))
    with pytest.raises(CorruptionError, match="the local low-water mark is 20"):
        recover(contents, Known(20))
