"""Fetches transaction data ahead of an application that reads it.

One request after the other would cost a round trip for each transaction. So with each transaction whose data the
application reads, the data of a few waiting transactions behind it in the feed may be fetched, too. An application that
reads all data soon has the maximum under way. An application that reads more than a fourth finds most of its data
fetched. An application that reads no data causes no reads. At most a few reads for each used one are in vain. Large
data is fetched ahead in smaller numbers, because it stays in memory until its turn.
"""

import asyncio
from collections import deque

from waltz.client.engine.reads.data_requests import PendingData, RpcPartition
from waltz.client.errors import BulkReadsNotSupportedError, RpcError
from waltz.common.checksum import crc32
from waltz.common.errors import DeadlineExceededError

AHEAD_PER_READ = 4
"""The number of transactions that may be fetched ahead for each transaction that is read."""

_MAX_BATCH_BYTES = 1 << 20


class Prefetcher:
    """The data source of the transactions of one partition."""

    __slots__ = ("_ahead", "_fetcher", "_maximum", "_paid", "_waiting")

    def __init__(self, fetcher: RpcPartition, maximum: int) -> None:
        """``maximum`` limits the number of transactions that are fetched ahead."""
        self._fetcher = fetcher
        self._maximum = maximum
        self._paid = 0  # transactions that may still be fetched ahead; with _ahead at most the maximum
        self._waiting: deque[int] = deque()
        self._ahead: dict[int, PendingData] = {}

    def queued(self, transaction_id: int, *, own: bool) -> None:
        """A transaction has arrived and has to wait. The data of a transaction of this client is in memory already."""
        if not own:
            self._waiting.append(transaction_id)
            self._fetch()

    def applied(self, transaction_id: int) -> None:
        """A transaction was applied, with or without a read of its data."""
        self._ahead.pop(transaction_id, None)
        self._drop(transaction_id)
        self._fetch()

    async def read(self, transaction_id: int, timeout_s: float) -> bytes:
        """The data of a transaction, fetched ahead or requested now."""
        request = self._ahead.pop(transaction_id, None) or self._fetcher.request(transaction_id)
        self._paid = min(self._paid + AHEAD_PER_READ, self._maximum - len(self._ahead))
        self._drop(transaction_id)
        self._fetch()
        return await self._fetcher.read(transaction_id, timeout_s, request)

    async def read_many(self, first_id: int, count: int, timeout_s: float) -> list[bytes]:
        """The data of ``count`` transactions from an id on, or of fewer (at least one) if one read returns fewer.

        A server without bulk reads gets one request for each transaction, up to the maximum. Raises like :meth:`read`.
        """
        request = self._fetcher.request_list(first_id, count, _MAX_BATCH_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                records = await request.wait()
        except (RpcError, DeadlineExceededError, TimeoutError):
            return [await self.read(first_id, timeout_s)]  # this repeats failed requests
        except BulkReadsNotSupportedError:
            ids = range(first_id, first_id + min(count, self._maximum))
            requests = [self._fetcher.request(each) for each in ids]
            return [await self._fetcher.read(each.transaction_id, timeout_s, each) for each in requests]
        good: list[bytes] = []
        for expected_id, (transaction_id, _, _, data, expected) in enumerate(records[:count], first_id):
            if transaction_id != expected_id or crc32(data) != expected & 0xFFFF_FFFF:
                break
            good.append(data)
        return good or [await self.read(first_id, timeout_s)]

    def clear(self) -> None:
        """Drop the data fetched ahead."""
        self._waiting.clear()
        self._ahead.clear()

    def _drop(self, last_id: int) -> None:
        """Cancel the reads ahead of these transactions."""
        waiting = self._waiting
        while waiting and waiting[0] <= last_id:
            waiting.popleft()

    def _fetch(self) -> None:
        waiting = self._waiting
        while waiting and self._paid and len(self._ahead) < self._fetcher.request_limit:
            transaction_id = waiting.popleft()
            self._ahead[transaction_id] = self._fetcher.request(transaction_id)
            self._paid -= 1
