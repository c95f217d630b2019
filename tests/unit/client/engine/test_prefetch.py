"""How far ahead transaction data is fetched."""

from typing import cast

import pytest

from waltz.client.engine.data_lists import PendingList
from waltz.client.engine.data_requests import RpcPartition
from waltz.client.engine.prefetch import Prefetcher
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
        prefetcher.applied(transaction_id, was_read=False)
    assert fetcher.requested == []


async def test_the_window_opens_with_reading_and_closes_without() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, *range(100))
    windows = []
    for transaction_id in range(5):
        assert await prefetcher.read(transaction_id, 1.0) == str(transaction_id).encode()
        prefetcher.applied(transaction_id, was_read=True)
        windows.append(prefetcher.window)
        assert fetcher.requested[-1] <= transaction_id + prefetcher.window
    assert windows == [4, 8, 16, 16, 16]
    assert fetcher.requested == list(range(21)), "each once, in order"
    for transaction_id in range(5, 10):
        prefetcher.applied(transaction_id, was_read=False)
    assert prefetcher.window == 0


async def test_own_transactions_are_left_out() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    prefetcher.applied(0, was_read=True)
    prefetcher.queued(1, own=True)
    prefetcher.queued(2, own=False)
    assert fetcher.requested == [2]


async def test_what_was_skipped_is_not_fetched_afterwards() -> None:
    fetcher = Fetcher()
    prefetcher = Prefetcher(cast("RpcPartition", fetcher), 16)
    queue(prefetcher, 1, 2, 3)
    prefetcher.applied(0, was_read=False)
    prefetcher.applied(1, was_read=False)
    prefetcher.applied(2, was_read=True)
    assert fetcher.requested == [3]
    prefetcher.clear()
    assert await prefetcher.read(3, 1.0) == b"3"
    assert fetcher.requested == [3, 3]


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
