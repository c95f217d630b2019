"""Committed appends of one partition that wait for more than the commit: until all storages have them.

The server answers by a mark, so one question stands for all that wait. The next owner of the partition is asked again.
"""

import asyncio
from collections.abc import Callable

from waltz.client.errors import NotGuaranteedError
from waltz.common.consistency import Consistency, level_without_choice
from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire.consistency import AppendAck, PartitionConsistency

Told = Callable[[NotGuaranteedError | None], None]
"""Called once: ``None`` when all storages have the transaction, or why nobody will know that."""


class Guarantees:
    """Who waits, and what the server has said about levels."""

    def __init__(self, partition_id: int, ask: Callable[[int], bool]) -> None:
        """``ask`` asks the server for a transaction; ``False``: there is none to ask now, or it is too old."""
        self.default = Consistency.LEADER_QUORUM
        """The level of appends that name none."""
        self.question: bytes | None = None
        """The last request to the present server for what all storages have."""
        self._partition_id = partition_id
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._property: PartitionConsistency | None = None
        self._waiting: dict[int, Told] = {}
        self._mark = NO_TRANSACTION
        self._asked_id = NO_TRANSACTION
        self._asking: asyncio.Handle | None = None

    @property
    def waiting_count(self) -> int:
        """Committed appends that wait."""
        return len(self._waiting)

    def property_told(self, message: PartitionConsistency) -> None:
        """The server tells what the partition demands, for the mount of this request id."""
        self._property = message
        self.default = level_without_choice(message.level)

    def mounted(self, session_id: bytes | None) -> None:
        """The partition is mounted, perhaps by another server: what the last one said does not hold any more."""
        if self._property is None or self._property.req_id != session_id:
            self._property = None
            self.default = Consistency.LEADER_QUORUM
        self._mark = self._asked_id = NO_TRANSACTION
        self.question = None
        if self._waiting:
            self._ask_soon()

    def wait(self, transaction_id: int, told: Told) -> None:
        """Have ``told`` called, later, when all storages have a committed transaction."""
        if transaction_id <= self._mark:
            self._loop.call_soon(told, None)
            return
        self._waiting[transaction_id] = told
        if transaction_id > self._asked_id:
            self._ask_soon()

    def forget(self, transaction_id: int) -> None:
        """Nobody waits for a transaction any more."""
        self._waiting.pop(transaction_id, None)

    def acknowledged(self, message: AppendAck) -> None:
        """All storages have everything up to a transaction."""
        self._mark = max(self._mark, message.transaction_id)
        for transaction_id in [waiting for waiting in self._waiting if waiting <= self._mark]:
            self._waiting.pop(transaction_id)(None)

    def end(self, reason: str) -> None:
        """There will be no answer any more."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        waiting, self._waiting = self._waiting, {}
        for transaction_id, told in waiting.items():
            told(NotGuaranteedError(self._partition_id, transaction_id, reason))

    def _ask_soon(self) -> None:
        """Ask once for all that are committed in this turn of the loop."""
        if self._asking is None:
            self._asking = self._loop.call_soon(self._ask_now)

    def _ask_now(self) -> None:
        self._asking = None
        last_id = max(self._waiting, default=NO_TRANSACTION)
        if last_id > self._asked_id and self._ask(last_id):
            self._asked_id = last_id
