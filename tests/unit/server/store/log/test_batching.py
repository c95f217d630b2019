"""Appends become batches in order, as large as they may be."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.server.store.interface import Append, encode_appends, record_bytes_of
from waltz.server.store.log.batching import MAX_BATCH_SIZE_BYTES, PendingAppends


def an_append(data_size: int) -> Append:
    append = Append(bytes(16), 0, Append.encode_body(0, bytes(data_size), 0))
    append.transaction_id = 0
    return append


@given(st.lists(st.one_of(st.integers(0, 100), st.integers(300_000, 1_500_000)), max_size=30), st.integers(1, 10))
def test_batches_hold_everything_in_order_and_are_full_but_the_last(sizes: list[int], max_batch_size: int) -> None:
    appends = [an_append(size) for size in sizes]
    pending = PendingAppends(max_batch_size)
    pending.add(appends)
    batches: list[list[Append]] = []
    while pending:
        assert pending.size_bytes == record_bytes_of(appends[sum(len(batch) for batch in batches) :])
        batches.append(pending.take_batch())
        assert batches[-1]
    assert pending.size_bytes == 0
    assert [append for batch in batches for append in batch] == appends
    for batch in batches:
        assert len(batch) <= max_batch_size
        assert len(batch) == 1 or record_bytes_of(batch[:-1]) < MAX_BATCH_SIZE_BYTES
    for batch in batches[:-1]:
        assert len(batch) == max_batch_size or record_bytes_of(batch) >= MAX_BATCH_SIZE_BYTES


@given(st.lists(st.integers(0, 100), max_size=10))
def test_the_size_is_that_of_the_records(sizes: list[int]) -> None:
    appends = [an_append(size) for size in sizes]
    assert record_bytes_of(appends) == len(encode_appends(appends))


def test_what_is_taken_back_is_gone() -> None:
    pending = PendingAppends(2)
    appends = [an_append(10) for _ in range(3)]
    pending.add(appends)
    assert pending.take_all() == appends
    assert not pending
    assert pending.size_bytes == 0
