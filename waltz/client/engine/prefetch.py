"""Fetching transaction data ahead of an application that reads it.

Asking for the data of one transaction after the other costs a round trip each. So while an application reads what it
applies, the data of the transactions that wait in the feed is asked for ahead of time. The window opens quickly (it
doubles with every transaction whose data is read) and closes as quickly (it halves with every one whose data is not):
an application that reads nothing costs nothing.
"""

from collections import deque

from waltz.client.engine.data_requests import PendingData, RpcPartition

_FIRST_WINDOW = 4


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

    def clear(self) -> None:
        """Forget what was fetched ahead."""
        self._waiting.clear()
        self._ahead.clear()

    def _fill(self) -> None:
        while self._waiting and len(self._ahead) < self.window:
            transaction_id = self._waiting.popleft()
            self._ahead[transaction_id] = self._fetcher.request(transaction_id)
