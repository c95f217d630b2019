"""How far ahead transaction data is fetched."""

from typing import cast

from waltz.client.engine.data_requests import RpcPartition
from waltz.client.engine.prefetch import Prefetcher


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

    def request(self, transaction_id: int) -> Fetched:
        self.requested.append(transaction_id)
        return Fetched(transaction_id)

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
