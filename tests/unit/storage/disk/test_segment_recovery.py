"""What the recovery of a segment costs when much of it is damaged."""

import pytest

from tests.unit.storage.log_testing import PARTITION, record
from waltz.storage.disk.segment_format import HEADER_SIZE_BYTES, encode_index, encode_record
from waltz.storage.disk.segment_recovery import Known, SegmentContents, recover

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
