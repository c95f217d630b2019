"""Fetching transaction data ahead of an application that reads it.

Asking for the data of one transaction after the other costs a round trip each. So each transaction whose data the
application reads pays for the data of a few that wait behind it in the feed, asked for together with its own. Who reads
all of them soon has as many on their way as are allowed, who reads more than one of four finds most of it fetched, and
who reads nothing costs nothing; of what is fetched in vain there is never more than a few for each that is read. Where
data is large, less of it is fetched ahead: it is kept until its turn comes.
"""

import asyncio
from collections import deque

from waltz.client.engine.reads.data_requests import PendingData, RpcPartition
from waltz.client.errors import BulkReadsNotSupportedError, RpcError
from waltz.common.checksum import crc32
from waltz.common.errors import DeadlineExceededError

AHEAD_PER_READ = 4
"""For each transaction that is read so many more may be fetched."""

_MAX_BATCH_BYTES = 1 << 20


class Prefetcher:
    """The data source of the transactions of one partition."""

    __slots__ = ("_ahead", "_fetcher", "_maximum", "_paid", "_waiting")

    def __init__(self, fetcher: RpcPartition, maximum: int) -> None:
        """No more than ``maximum`` are fetched ahead."""
        self._fetcher = fetcher
        self._maximum = maximum
        self._paid = 0  # how many more may be fetched ahead; with those in _ahead no more than the maximum
        self._waiting: deque[int] = deque()
        self._ahead: dict[int, PendingData] = {}

    def queued(self, transaction_id: int, *, own: bool) -> None:
        """A transaction came and has to wait. The data of our own ones is here already."""
        if not own:
            self._waiting.append(transaction_id)
            self._fetch()

    def applied(self, transaction_id: int) -> None:
        """A transaction was applied, with its data read or without."""
        self._ahead.pop(transaction_id, None)
        self._drop(transaction_id)
        self._fetch()

    async def read(self, transaction_id: int, timeout_s: float) -> bytes:
        """The data of a transaction, asked for ahead or now."""
        request = self._ahead.pop(transaction_id, None) or self._fetcher.request(transaction_id)
        self._paid = min(self._paid + AHEAD_PER_READ, self._maximum - len(self._ahead))
        self._drop(transaction_id)
        self._fetch()
        return await self._fetcher.read(transaction_id, timeout_s, request)

    async def read_many(self, first_id: int, count: int, timeout_s: float) -> list[bytes]:
        """The data of ``count`` transactions from an id on, of the first at least: as many as come in one read.

        Servers without bulk reads are asked for each, up to the most that is fetched ahead. Raises as :meth:`read`.
        """
        request = self._fetcher.request_list(first_id, count, _MAX_BATCH_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                records = await request.wait()
        except (RpcError, DeadlineExceededError, TimeoutError):
            return [await self.read(first_id, timeout_s)]  # which knows how to try again
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
        """Forget what was fetched ahead."""
        self._waiting.clear()
        self._ahead.clear()

    def _drop(self, last_id: int) -> None:
        """These need not be fetched ahead any more."""
        waiting = self._waiting
        while waiting and waiting[0] <= last_id:
            waiting.popleft()

    def _fetch(self) -> None:
        waiting = self._waiting
        while waiting and self._paid and len(self._ahead) < self._fetcher.request_limit:
            transaction_id = waiting.popleft()
            self._ahead[transaction_id] = self._fetcher.request(transaction_id)
            self._paid -= 1
