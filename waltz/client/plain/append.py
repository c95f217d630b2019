"""Appends of the plain face: each is one fixed transaction with a deadline."""

import asyncio
from typing import Final

from waltz.client.awaited import AwaitedSubmission
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.submission import AppendFields
from waltz.client.errors import LockConflict
from waltz.client.plain.acknowledgement import Acknowledgement
from waltz.common.consistency import Consistency

_AT_THE_COMMIT: Final = Consistency.LEADER_QUORUM


class PlainSubmission(AwaitedSubmission[int]):
    """The submission of one fixed transaction. A lost append is sent again until the deadline; a conflict ends the
    submission."""

    __slots__ = ("_conflict", "_fields", "_partition_id", "level")

    def __init__(
        self,
        partition_id: int,
        appends: PartitionAppends,
        fields: AppendFields,
        future: "asyncio.Future[int]",
        now_s: float,
        timeout_s: float,
        level: Consistency | None = None,
    ) -> None:
        self.sent = None  # the base class's code up to the deadline, without the call, which would cost every append
        self.committed_id = None
        self.appends = appends
        self.future = future
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s
        self._partition_id = partition_id
        self._fields = fields
        self._conflict: int | None = None
        self.level = level

    @property
    def given_up(self) -> bool:
        return self._conflict is not None or self.future.done()

    def build(self, high_water_mark: int) -> AppendFields | None:
        return None if self.future.done() else self._fields

    def committed(self, transaction_id: int) -> None:
        if self.sent_level is not _AT_THE_COMMIT:
            self.decided(transaction_id)
        elif not self.future.done():
            self.future.set_result(transaction_id)

    def withdrawn(self) -> None:
        if self.future.done():
            return
        if self._conflict is None:
            self.future.set_exception(self.lost())
        else:
            mark = self._fields.client_high_water_mark
            self.future.set_exception(LockConflict(self._partition_id, self._conflict, mark))

    def refused(self, transaction_id: int) -> None:
        self._conflict = transaction_id

    def result(self, transaction_id: int) -> int:
        """What the call returns."""
        return transaction_id


class EarlySubmission(PlainSubmission):
    """A submission at a level below the quorum: the call ends at the acknowledgement, the submission at the commit."""

    __slots__ = ("acknowledged_id", "end")

    def __init__(
        self,
        partition_id: int,
        appends: PartitionAppends,
        fields: AppendFields,
        future: "asyncio.Future[int]",
        now_s: float,
        timeout_s: float,
        level: Consistency | None = None,
    ) -> None:
        super().__init__(partition_id, appends, fields, future, now_s, timeout_s, level)
        self.acknowledged_id: int | None = None
        self.end: asyncio.Future[int] = future.get_loop().create_future()
        self.end.add_done_callback(_retrieved)

    def acknowledged(self, transaction_id: int, storage_count: int) -> None:
        self.acknowledged_id = transaction_id
        if not self.future.done():
            self.future.set_result(transaction_id)

    def committed(self, transaction_id: int) -> None:
        self.end.set_result(transaction_id)
        super().committed(transaction_id)

    def failed(self, error: Exception) -> None:
        if self.acknowledged_id is not None:
            self.end.set_exception(self.outcome(error))
        super().failed(error)

    def result(self, transaction_id: int) -> Acknowledgement:
        return Acknowledgement(transaction_id, self._partition_id, self.end)


def _retrieved(end: "asyncio.Future[int]") -> None:
    """Nobody has to ask for the end of an acknowledged append."""
    if not end.cancelled():
        end.exception()


class Deadlines:
    """The deadlines of appends. All of them share one timer, which costs nearly nothing while the deadlines are met.

    The caller adds an append to ``pending``, calls :meth:`arm` if its deadline is the first one, and removes the append
    at its end. ``append.expire`` is called for an append that is still in ``pending`` at its deadline.
    """

    def __init__(self) -> None:
        self.pending: dict[PlainSubmission, None] = {}
        self.due_s = float("inf")
        """The time of the timer: the earliest deadline, or before."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Stop the timer."""
        self.pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    def arm(self, due_s: float) -> None:
        """Set the timer to the first deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self.due_s = due_s
        self._timer = self._loop.call_at(due_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.due_s = float("inf")
        now_s = self._loop.time()
        for append in list(self.pending):
            if append.deadline_s <= now_s:
                del self.pending[append]
                append.expire()
        if self.pending:
            self.arm(min(append.deadline_s for append in self.pending))
