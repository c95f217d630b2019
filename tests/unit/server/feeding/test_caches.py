"""The feed cache and the transaction cache: never another's data, newer before older, bounded."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.fakes import record
from waltz.common.records import Record, encode_records
from waltz.common.wire.client_server import encode_feed_data
from waltz.server.feeding.caches import FEED_BLOCK_COUNT, FeedCache, TransactionCache
from waltz.server.feeding.feed_frames import FEED_FRAME_SIZE_BYTES, FEED_VERSION, with_version


def frames(first: int, count: int, salt: int = 0) -> bytes:
    items = [(number.to_bytes(16, "big"), number, salt) for number in range(first, first + count)]
    return encode_feed_data(FEED_VERSION, items)


def test_frames_change_version_as_the_codec_would() -> None:
    items = [(number.to_bytes(16, "big"), number, -number) for number in range(5)]
    for version in range(FEED_VERSION + 1):
        assert with_version(encode_feed_data(FEED_VERSION, items), version) == encode_feed_data(version, items)


def steps(work: Callable[[], None]) -> int:
    """The instructions of Python in what ``work`` calls; a collection of garbage would add those of its finalizers."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return count


class Garbage:
    """Only a collection finds it, and its end takes instructions."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        del self.itself


def test_the_collection_of_garbage_is_not_counted() -> None:
    def leave_garbage() -> None:
        for _ in range(2 * gc.get_threshold()[0]):
            Garbage()

    collecting = gc.isenabled()
    gc.disable()
    try:
        alone = steps(leave_garbage)
        gc.enable()
        assert steps(leave_garbage) == alone
        assert gc.isenabled()
    finally:
        gc.collect()
        if not collecting:
            gc.disable()


def test_a_run_is_found_from_every_position_to_the_end_of_its_block() -> None:
    cache = FeedCache(1 << 20)
    first, count = FEED_BLOCK_COUNT - 10, 20
    cache.add(7, first, frames(first, count))
    assert cache.get(7, first, 100) == frames(first, 10)
    assert cache.get(7, first + 3, 2) == frames(first + 3, 2)
    assert cache.get(7, FEED_BLOCK_COUNT, 100) == frames(FEED_BLOCK_COUNT, 10)
    assert cache.get(7, first - 1, 100) == b""
    assert cache.get(7, first + count, 100) == b""
    assert cache.get(8, first, 100) == b""


def test_forget_drops_one_partition() -> None:
    cache = FeedCache(1 << 20)
    cache.add(1, 0, frames(0, 3))
    size = cache.size_bytes
    cache.add(2, 0, frames(0, 3))
    cache.forget(1)
    assert cache.get(1, 0, 1) == b""
    assert cache.get(2, 0, 1) == frames(0, 1)
    assert cache.size_bytes == size


def test_forgetting_a_partition_costs_the_same_whatever_the_others_have_in_the_cache() -> None:
    """All partitions of a server may leave at once."""

    def cost(others: int) -> int:
        feed, transactions = FeedCache(1 << 30), TransactionCache(1 << 30)
        for partition_id in range(1 + others):
            feed.add(partition_id, 0, frames(0, 1))
            add(transactions, partition_id, 0, [record(0)])
        return steps(lambda: feed.forget(0)) + steps(lambda: transactions.forget(0))

    assert 0 < cost(0) == cost(1000)


def test_a_forgotten_partition_costs_the_same_however_much_it_has_of_transactions() -> None:
    def cost(count: int) -> int:
        cache = TransactionCache(1 << 30)
        for transaction_id in range(count):
            add(cache, 0, transaction_id, [record(transaction_id)])
        return steps(lambda: cache.forget(0))

    assert 0 < cost(1) == cost(1000)


def test_the_oldest_blocks_go_and_the_newest_stays() -> None:
    limit = 3 * FEED_BLOCK_COUNT * FEED_FRAME_SIZE_BYTES
    cache = FeedCache(limit)
    for block in range(6):
        first = block * FEED_BLOCK_COUNT
        cache.add(0, first, frames(first, FEED_BLOCK_COUNT))
        assert cache.get(0, first, 1) == frames(first, 1)
    assert cache.size_bytes <= limit
    assert cache.get(0, 0, 1) == b""
    assert cache.get(0, 4 * FEED_BLOCK_COUNT, 1) != b""
    tiny = FeedCache(0)
    tiny.add(0, 5, frames(5, 2))
    assert tiny.get(0, 5, 9) == frames(5, 2)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=25))
def test_whatever_is_added_lookups_return_the_right_ids(runs: list[tuple[int, int]]) -> None:
    cache = FeedCache(1 << 20)
    last: tuple[int, int] | None = None
    for first, count in runs:
        cache.add(0, first, frames(first, count))
        last = (first, count)
    for position in range(60):
        found = cache.get(0, position, 7)
        assert found == frames(position, len(found) // FEED_FRAME_SIZE_BYTES)
    if last is not None and all(first <= last[0] for first, _ in runs):
        assert cache.get(0, *last) == frames(*last), "what continues the log is always there"
    assert cache.size_bytes >= 0


def add(cache: TransactionCache, partition_id: int, first: int, records: list[Record]) -> None:
    cache.add(partition_id, first, len(records), encode_records(records))


def test_transaction_data_is_found_by_partition_and_id() -> None:
    cache = TransactionCache(1 << 20)
    records = [record(number) for number in range(10)]
    add(cache, 3, 0, records)
    assert cache.get(3, 4) == records[4]
    assert cache.get(3, 10) is None
    assert cache.get(4, 4) is None


def test_older_chunks_are_evicted_first_and_the_newest_stay() -> None:
    cache = TransactionCache(10_000)
    for first in range(0, 200, 4):
        add(cache, 0, first, [record(number, bytes(50)) for number in range(first, first + 4)])
        assert cache.get(0, first + 3) is not None
        assert cache.size_bytes <= 10_000
    assert cache.get(0, 0) is None
    assert cache.get(0, 195) is not None


def test_an_item_above_a_quarter_is_not_kept_and_its_neighbours_are() -> None:
    cache = TransactionCache(10_000)
    add(cache, 0, 0, [record(0, bytes(10)), record(1, bytes(3_000)), record(2, bytes(10))])
    assert cache.get(0, 0) is not None
    assert cache.get(0, 1) is None
    assert cache.get(0, 2) is not None


def test_a_batch_larger_than_the_cache_leaves_its_newest() -> None:
    cache = TransactionCache(10_000)
    add(cache, 0, 0, [record(number, bytes(1_000)) for number in range(30)])
    assert cache.size_bytes <= 10_000
    assert cache.get(0, 29) is not None
    assert cache.get(0, 0) is None


def test_what_was_forgotten_is_not_found_and_its_room_is_used_again() -> None:
    cache = TransactionCache(10_000)
    add(cache, 0, 0, [record(0)])
    add(cache, 1, 0, [record(0)])
    cache.forget(1)
    assert cache.get(1, 0) is None
    assert cache.get(0, 0) is not None
    add(cache, 1, 0, [record(0, b"after")])
    for first in range(1, 200):
        add(cache, 1, first, [record(first)])
        assert cache.size_bytes <= 10_000
    assert cache.get(0, 0) is None
    assert cache.get(1, 0) is None
    assert cache.get(1, 199) is not None


class NaiveCache:
    """The transaction cache, only slower: pieces in order of their coming, of which those forgotten are not found."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[tuple[int | None, list[Record], int]] = []

    def add(self, partition_id: int, records: list[Record]) -> None:
        first_id, size_bytes = records[0].transaction_id, len(encode_records(records)) + 200
        if any(at == partition_id and piece[0].transaction_id == first_id for at, piece, _ in self._pieces):
            return
        self._pieces.append((partition_id, records, size_bytes))
        while self.size_bytes > self._limit_bytes:
            del self._pieces[0]

    def forget(self, partition_id: int) -> None:
        self._pieces = [(None if at == partition_id else at, piece, size) for at, piece, size in self._pieces]

    def get(self, partition_id: int, transaction_id: int) -> Record | None:
        starts = [piece for at, piece, _ in self._pieces if at == partition_id]
        before = [piece for piece in starts if piece[0].transaction_id <= transaction_id]
        last = max(before, key=lambda piece: piece[0].transaction_id, default=[])
        return next((found for found in last if found.transaction_id == transaction_id), None)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, _, size in self._pieces)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 2),
            st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 5), st.integers(0, 100)),
        ),
        max_size=60,
    )
)
def test_whatever_is_added_and_forgotten_the_cache_is_as_a_naive_one(
    actions: list[int | tuple[int, int, int, int]],
) -> None:
    cache, naive = TransactionCache(4_000), NaiveCache(4_000)
    for action in actions:
        if isinstance(action, int):
            cache.forget(action)
            naive.forget(action)
        else:
            partition_id, first, count, size = action
            records = [record(number, bytes(size)) for number in range(first, first + count)]
            add(cache, partition_id, first, records)
            naive.add(partition_id, records)
        assert cache.size_bytes == naive.size_bytes <= 4_000
    for partition_id in range(3):
        for transaction_id in range(30):
            assert cache.get(partition_id, transaction_id) == naive.get(partition_id, transaction_id)


@given(st.lists(st.one_of(st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(0, 9))), max_size=60))
def test_the_feed_cache_counts_what_it_has(actions: list[int | tuple[int, int]]) -> None:
    cache = FeedCache(2_000)
    for action in actions:
        if isinstance(action, int):
            cache.forget(action)
            assert all(cache.get(action, block * FEED_BLOCK_COUNT, 1) == b"" for block in range(10))
        else:
            partition_id, first = action[0], action[1] * FEED_BLOCK_COUNT
            cache.add(partition_id, first, frames(first, 5))
            assert cache.get(partition_id, first, 5) == frames(first, 5)
        assert cache.size_bytes <= 2_000
    for partition_id in range(3):
        cache.forget(partition_id)
    assert cache.size_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 10), st.integers(0, 400)), max_size=40))
def test_the_bytes_never_exceed_the_limit(adds: list[tuple[int, int, int, int]]) -> None:
    cache = TransactionCache(4_000)
    for partition_id, first, count, size in adds:
        add(cache, partition_id, first, [record(number, bytes(size)) for number in range(first, first + count)])
        assert 0 <= cache.size_bytes <= 4_000
        for transaction_id in range(45):
            found = cache.get(partition_id, transaction_id)
            assert found is None or found.checksum == record(transaction_id, found.data).checksum


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12),
    st.integers(0, 45),
    st.integers(1, 30),
    st.integers(1, 1200),
)
def test_a_slice_is_a_run_of_the_right_records_within_its_limits(
    runs: list[tuple[int, int]], first: int, max_count: int, max_bytes: int
) -> None:
    cache = TransactionCache(1 << 20)
    for start, count in runs:
        add(cache, 0, start, [record(number) for number in range(start, start + count)])
    count, pieces = cache.slice(0, first, max_count, max_bytes)
    records = b"".join(pieces)
    assert records == encode_records([record(number) for number in range(first, first + count)])
    assert count <= max_count
    assert count <= 1 or len(records) <= max_bytes
    assert (count > 0) == (cache.get(0, first) is not None)


def test_a_slice_spans_the_batches_in_which_the_records_came() -> None:
    cache = TransactionCache(1 << 20)
    for first in range(0, 100, 10):
        add(cache, 0, first, [record(number) for number in range(first, first + 10)])
    count, pieces = cache.slice(0, 5, 50, 1 << 20)
    assert (count, len(pieces)) == (50, 6)
    assert b"".join(pieces) == encode_records([record(number) for number in range(5, 55)])


def test_many_batches_that_come_and_go_leave_nothing_behind() -> None:
    cache = TransactionCache(50_000)
    sizes = []
    for first in range(20_000):
        add(cache, first % 3, first, [record(first, bytes(100))])
        sizes.append(sum(len(chunks) for chunks in cache.chunks.values()))
    assert max(sizes) < 1_000
    assert cache.get(19_999 % 3, 19_999) == record(19_999, bytes(100))
