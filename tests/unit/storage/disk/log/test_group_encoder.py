"""Groups of appends divided among segments."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_testing import record, records
from waltz.common.records import Record
from waltz.storage.disk.log.group_encoder import LogEnd, encode_group
from waltz.storage.disk.segment.segment_format import encode_record

START = LogEnd(0, 0, 128)


def test_out_of_order_keeps_what_came_before() -> None:
    refused = [records(1, 3), records(3, 1), [record(2), record(2)], [record(3), record(5)]]
    (write,), end, errors = encode_group(START, 1000, [records(0, 2), *refused, [], records(4, 1)])
    assert [None if each is None else str(each) for each in errors] == [
        None,
        *["transaction out of order"] * 4,
        None,
        None,
    ]
    assert b"".join(write.chunks) == b"".join(encode_record(r) for r in records(0, 5))
    assert end.next_transaction_id == 5


def test_nothing_accepted() -> None:
    writes, end, (error,) = encode_group(START, 1000, [records(1, 1)])
    assert error is not None
    assert writes == []
    assert end == START


def test_segment_exceeds_the_threshold_by_at_most_one_record() -> None:
    """Threshold 400, 21 records of 41 and 42 bytes: three segments of 7, no fourth."""
    items = [record(i, b"x" * (1 + i % 2)) for i in range(21)]
    writes, end, errors = encode_group(START, 400, [items])
    assert errors == [None]
    assert [(w.first_transaction_id, w.starts_segment, len(w.record_offsets)) for w in writes] == [
        (0, False, 7),
        (7, True, 7),
        (14, True, 7),
    ]
    assert end == LogEnd(21, 14, writes[-1].end_offset)
    assert writes[-1].end_offset > 400


def test_exactly_the_threshold_is_not_more_than_it() -> None:
    for threshold, segments in ((128 + 50, 1), (128 + 49, 2)):
        writes, _, _ = encode_group(START, threshold, [[record(0, b"x" * 10), record(1, b"")]])
        assert len(writes) == segments


def test_first_record_may_begin_a_segment() -> None:
    (write,), end, _ = encode_group(LogEnd(7, 0, 401), 400, [records(7, 1)])
    assert (write.first_transaction_id, write.starts_segment, write.offset) == (7, True, 128)
    assert end.segment_first_id == 7


def test_every_segment_takes_a_record_however_low_the_threshold() -> None:
    writes, _, _ = encode_group(START, 0, [records(0, 3)])
    assert [len(write.record_offsets) for write in writes] == [1, 1, 1]


def test_a_small_write_is_one_piece_and_a_large_one_is_not_copied() -> None:
    (small,), _, _ = encode_group(START, 1 << 30, [[record(0, b"x" * 10_000), record(1, b"y")]])
    assert len(small.chunks) == 1
    large = record(0, b"x" * (256 << 10))
    (write,), _, _ = encode_group(START, 1 << 30, [[large]])
    assert any(chunk is large.data for chunk in write.chunks)


def test_checkpoints_where_a_multiple_of_a_thousand_is_reached() -> None:
    for first, count, checkpoint in ((0, 1, False), (999, 1, True), (1000, 1, False), (990, 9, False), (5, 2000, True)):
        (write,), _, _ = encode_group(LogEnd(first, 0, 128), 1 << 30, [records(first, count)])
        assert write.checkpoint is checkpoint


@given(st.lists(st.lists(st.sampled_from([0, 1, 50, 4095, 4096, 5000]), max_size=5), max_size=5), st.integers(0, 3000))
def test_writes_are_the_records_one_behind_the_other(batches: list[list[int]], threshold: int) -> None:
    items: list[Record] = []
    encoded: list[list[Record]] = []
    for sizes in batches:
        encoded.append([record(len(items) + i, b"d" * size) for i, size in enumerate(sizes)])
        items += encoded[-1]
    writes, _, errors = encode_group(START, threshold, encoded)
    assert errors == [None] * len(batches)
    assert b"".join(chunk for write in writes for chunk in write.chunks) == b"".join(map(encode_record, items))
    position = 0
    for write in writes:
        assert write.offset == 128
        offset = write.offset
        assert write.first_transaction_id == position
        for record_offset in write.record_offsets:
            assert record_offset == offset
            offset += 40 + len(items[position].data)
            position += 1
        assert write.end_offset == offset
