"""Fetching transaction data ahead of an application that reads it.

Asking for the data of one transaction after the other costs a round trip each. So while an application reads what it
applies, the data of the transactions that wait in the feed is asked for ahead of time. The window opens quickly (it
doubles with every transaction whose data is read) and closes as quickly (it halves with every one whose data is not):
an application that reads nothing costs nothing.
"""

import asyncio
from collections import deque

from waltz.client.engine.data_requests import PendingData, RpcPartition
from waltz.client.errors import BulkReadsNotSupportedError, RpcError
from waltz.common.checksum import crc32
from waltz.common.errors import DeadlineExceededError

_FIRST_WINDOW = 4
_MAX_BATCH_BYTES = 1 << 20


class Prefetcher:
    """The data source of the transactions of one partition."""

    __slots__ = ("_ahead", "_fetcher", "_maximum", "_waiting", "window")

    def __init__(self, fetcher: RpcPartition, maximum: int) -> None:
        self.window = 0
        """How many transactions are fetched ahead; 0 when the application does not read."""
        self._fetcher = fetcher
        self._maximum = maximum
        self._waiting: deque[int] = deque()
        self._ahead: dict[int, PendingData] = {}

    def queued(self, transaction_id: int, *, own: bool) -> None:
        """A transaction came and has to wait. The data of our own ones is here already."""
        if not own:
            self._waiting.append(transaction_id)
            self._fill()

    def applied(self, transaction_id: int, *, was_read: bool) -> None:
        """A transaction was applied, with its data read or without."""
        self.window = min(2 * self.window or _FIRST_WINDOW, self._maximum) if was_read else self.window // 2
        while self._waiting and self._waiting[0] <= transaction_id:
            self._waiting.popleft()
        self._ahead.pop(transaction_id, None)
        self._fill()

    async def read(self, transaction_id: int, timeout_s: float) -> bytes:
        """The data of a transaction, asked for ahead or now."""
        request = self._ahead.pop(transaction_id, None)
        if request is not None:
            self._fill()
        return await self._fetcher.read(transaction_id, timeout_s, request)

    async def read_many(self, first_id: int, count: int, timeout_s: float) -> list[bytes]:
        """The data of ``count`` transactions from an id on, of the first at least: as many as come in one read.

        Servers without bulk reads are asked for each, up to the largest window. Raises as :meth:`read`.
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

    def _fill(self) -> None:
        while self._waiting and len(self._ahead) < self.window:
            transaction_id = self._waiting.popleft()
            self._ahead[transaction_id] = self._fetcher.request(transaction_id)
