"""How far ahead transaction data is fetched."""

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.reads.data_lists import PendingList
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.reads.prefetch import AHEAD_PER_READ, Prefetcher
from waltz.client.errors import BulkReadsNotSupportedError, RpcError
from waltz.common.checksum import checksum
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.records import Record


class Fetched:
    """Data that is there."""

    def __init__(self, transaction_id: int) -> None:
        self.transaction_id = transaction_id

    async def wait(self) -> bytes:
        return str(self.transaction_id).encode()


class Fetcher:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.requested: list[int] = []
        self.listed: list[Record] | WaltzError = []
        self.request_limit = 256

    def request(self, transaction_id: int) -> Fetched:
        self.requested.append(transaction_id)
        return Fetched(transaction_id)

    def request_list(self, first_id: int, max_count: int, max_bytes: int) -> PendingList:
        request = PendingList(first_id, max_count, max_bytes, 0.0)
        if isinstance(self.listed, WaltzError):
            request.finish(self.listed)
        else:
            request.records = self.listed
            request.finish()
        return request

    async def read(self, transaction_id: int, timeout_s: float, first: Fetched | None = None) -> bytes:
        return await (first or self.request(transaction_id)).wait()


def queue(prefetcher: Prefetcher, *transaction_ids: int) -> None:
    for transaction_id in transaction_ids:
        prefetcher.queued(transaction_id, own=False)


async def test_nothing_is_fetched_for_who_does_not_read() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, *range(10))
    for transaction_id in range(10):
        prefetcher.applied(transaction_id)
    assert fetcher.requested == []


async def test_each_read_pays_for_a_few_more_until_there_are_enough() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, *range(100))
    asked_for = []
    for transaction_id in range(6):
        assert await prefetcher.read(transaction_id, 1.0) == str(transaction_id).encode()
        asked_for.append(len(fetcher.requested))
        prefetcher.applied(transaction_id)
    assert asked_for == [5, 9, 13, 17, 21, 22], "more and more ahead, and then the maximum"
    assert fetcher.requested == list(range(22)), "each once, in order"
    for transaction_id in range(6, 30):
        prefetcher.applied(transaction_id)
    assert len(fetcher.requested) == 22, "nothing more for who has stopped reading"


async def test_what_was_paid_for_is_fetched_when_it_comes() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    await prefetcher.read(0, 1.0)
    queue(prefetcher, *range(1, 10))
    assert fetcher.requested == list(range(1 + AHEAD_PER_READ))
    prefetcher.applied(0)
    await prefetcher.read(1, 1.0)
    assert fetcher.requested == list(range(1 + 2 * AHEAD_PER_READ))


@pytest.mark.parametrize("read_one_of", [1, 2, 3, 4])
async def test_who_reads_one_of_four_or_more_finds_it_fetched(read_one_of: int) -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, *range(1_000))
    asked_for_late = 0
    for transaction_id in range(1_000):
        if transaction_id % read_one_of == 0:
            asked_for_late += transaction_id not in fetcher.requested
            await prefetcher.read(transaction_id, 1.0)
        prefetcher.applied(transaction_id)
    assert asked_for_late == 1, "the first"


@given(reads=st.lists(st.booleans(), max_size=200), maximum=st.integers(0, 20), ahead=st.integers(1, 50))
def test_there_are_bounds_to_what_is_fetched_ahead_and_to_what_is_fetched_in_vain(
    reads: list[bool], maximum: int, ahead: int
) -> None:
    """``ahead`` transactions have come before the first of them is applied."""

    async def apply_all() -> None:
        fetcher = Fetcher()
        prefetcher = Prefetcher(cast("RpcPartition", fetcher), maximum)
        queue(prefetcher, *range(min(ahead, len(reads))))
        for transaction_id, is_read in enumerate(reads):
            if is_read:
                assert await prefetcher.read(transaction_id, 1.0) == b"%d" % transaction_id
            prefetcher.applied(transaction_id)
            if transaction_id + ahead < len(reads):
                queue(prefetcher, transaction_id + ahead)
            assert len([each for each in fetcher.requested if each > transaction_id]) <= maximum
        assert len(fetcher.requested) == len(set(fetcher.requested)) <= (1 + AHEAD_PER_READ) * sum(reads)

    asyncio.run(apply_all())


async def test_of_large_data_less_is_fetched_ahead() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, *range(100))
    fetcher.request_limit = 2
    for transaction_id in range(10):
        await prefetcher.read(transaction_id, 1.0)
        assert len(fetcher.requested) == transaction_id + 3
        prefetcher.applied(transaction_id)
    assert len(fetcher.requested) == 12
    fetcher.request_limit = 256
    prefetcher.applied(10)
    assert len(fetcher.requested) == 11 + 15, "the maximum, less the one that was not read"


async def test_own_transactions_are_left_out() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    await prefetcher.read(0, 1.0)
    prefetcher.queued(1, own=True)
    prefetcher.queued(2, own=False)
    assert fetcher.requested == [0, 2]


async def test_what_was_skipped_is_not_fetched_afterwards() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, 1, 2, 3)
    for transaction_id in range(2):
        prefetcher.applied(transaction_id)
    await prefetcher.read(2, 1.0)
    assert fetcher.requested == [2, 3]
    prefetcher.clear()
    assert await prefetcher.read(3, 1.0) == b"3"
    assert fetcher.requested == [2, 3, 3]


def listed(*transaction_ids: int) -> list[Record]:
    return [Record(each, b"", 0, b"%d" % each, checksum(b"%d" % each)) for each in transaction_ids]


async def test_many_come_in_one_read_as_far_as_they_are_good() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    fetcher.listed = listed(5, 6, 7, 8)
    assert await prefetcher.read_many(5, 3, 1.0) == [b"5", b"6", b"7"]
    fetcher.listed = [*listed(5, 6), listed(7)[0]._replace(data=b"damaged"), *listed(8)]
    assert await prefetcher.read_many(5, 4, 1.0) == [b"5", b"6"]
    fetcher.listed = listed(5, 7)
    assert await prefetcher.read_many(5, 3, 1.0) == [b"5"]
    assert fetcher.requested == []


@pytest.mark.parametrize("answer", [[], listed(6, 7), RpcError("no"), DeadlineExceededError("late")])
async def test_where_none_come_together_the_first_is_asked_for_alone(answer: list[Record] | WaltzError) -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    fetcher.listed = answer
    assert await prefetcher.read_many(5, 3, 1.0) == [b"5"]
    assert fetcher.requested == [5]


async def test_without_bulk_reads_each_is_asked_for_before_the_first_is_waited_for() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 4)
    fetcher.listed = BulkReadsNotSupportedError("version 4")
    assert await prefetcher.read_many(5, 10, 1.0) == [b"5", b"6", b"7", b"8"]
    assert fetcher.requested == [5, 6, 7, 8]
