"""Appends of the plain face: one transaction each, fixed in advance, with a deadline."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from waltz.client.builder import TransactionBuilder
from waltz.client.context import TransactionContext
from waltz.client.engine.submission import Submission
from waltz.client.errors import (
    AppendError,
    LockConflict,
    NotAppendedError,
    OutcomeUnknownError,
    TransactionTooLargeError,
)
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain.joined import JoinedPartition
from waltz.client.retry_policy import RetryPolicy
from waltz.common.errors import WaltzError

_ONCE = RetryPolicy(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Append:
    """One transaction for ``append_many`` that is more than its data."""

    data: bytes | bytearray | memoryview
    header: int = 0
    write_locks: Iterable[PartitionLocalLock] = ()
    read_locks: Iterable[PartitionLocalLock] = ()
    append_locks: Iterable[PartitionLocalLock] = ()


AppendArguments = tuple[bytes, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Data, header, client high-water mark, write, read and append locks."""


class PlainAppend(Submission, TransactionContext):
    """A submission that is its own context. It ends when ``future`` is done: with the transaction id, or an error."""

    __slots__ = ("_partition", "_partition_id", "conflict", "deadline_s", "future", "request", "timeout_s")

    def __init__(
        self,
        partition_id: int,
        partition: JoinedPartition,
        request: AppendArguments,
        future: "asyncio.Future[int]",
        now_s: float,
        timeout_s: float,
    ) -> None:
        self.failures = 0
        self.in_flight = False
        self.request = request
        self.future = future
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s
        self.conflict: int | None = None
        self._partition_id = partition_id
        self._partition = partition

    @property
    def context(self) -> TransactionContext:
        """Itself."""
        return self

    @property
    def waits_until_s(self) -> float:
        """Its deadline."""
        return self.deadline_s

    @property
    def retry_policy(self) -> RetryPolicy | None:  # type: ignore[override]  # a constant of the class elsewhere
        """What got lost is sent again until the deadline; a conflict is the application's business."""
        return _ONCE if self.conflict is not None or self.future.done() else None

    def partition_id(self, partition_count: int) -> int:
        """The partition it was made for."""
        return self._partition_id

    def execute(self, builder: TransactionBuilder) -> bool:
        """The same every time."""
        if self.future.done():
            return False
        (
            builder.data,
            builder.header,
            builder.client_high_water_mark,
            builder.write_locks,
            builder.read_locks,
            builder.append_locks,
        ) = self.request
        return True

    def on_application(self) -> None:
        """Committed."""
        self.in_flight = False
        if not self.future.done():
            self.future.set_result(self._partition.high_water_mark)

    def on_completion(self, committed: bool) -> None:
        """Given up, for a conflict or because nobody waits any more."""
        if not committed and not self.future.done():
            if self.conflict is None:
                self.future.set_exception(NotAppendedError("it failed too often"))
            else:
                self.future.set_exception(LockConflict(self._partition_id, self.conflict, self.request[2]))

    def on_lock_conflict(self, transaction_id: int) -> None:
        """Refused; it ends when the conflicting transaction was fed."""
        self.conflict = transaction_id

    def on_exception(self, error: Exception) -> None:
        """It cannot be sent, or the client is closed."""
        if not self.future.done():
            self.future.set_exception(self.error(error))

    def error(self, cause: Exception) -> Exception:
        """What to raise for ``cause``."""
        return told_outcome(cause, in_flight=self.in_flight)

    def expire(self) -> None:
        """The deadline has come."""
        if self.future.done():
            return
        text = f"no outcome within {round(self.timeout_s, 3):g} s"
        obstacle = self._partition.obstacle
        cause = TimeoutError(text if obstacle is None else f"{text}: {obstacle}")
        cause.__cause__ = obstacle
        self.future.set_exception(self.error(cause))


def told_outcome(cause: Exception, *, in_flight: bool) -> Exception:
    """``cause`` with a word on the outcome of an append, unless it says that itself."""
    if isinstance(cause, AppendError):
        return cause
    if in_flight:
        error: Exception = OutcomeUnknownError(f"{cause}; the transaction was sent and may be committed")
    elif isinstance(cause, WaltzError | TimeoutError) and not isinstance(cause, TransactionTooLargeError):
        error = NotAppendedError(f"{cause}; the transaction is not in the log")
    else:
        return cause  # nothing is in the log, and the cause is the plainest way to say why
    error.__cause__ = cause
    return error


class Deadlines:
    """The deadlines of appends: one timer for all of them, which costs next to nothing while they are met."""

    def __init__(self) -> None:
        self._pending: dict[PlainAppend, None] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = float("inf")

    def add(self, append: PlainAppend) -> None:
        """``append.expire`` is called at its deadline, unless it is removed before."""
        self._pending[append] = None
        if append.deadline_s < self._due_s:
            self._arm(append.deadline_s)

    def remove(self, append: PlainAppend) -> None:
        """It has ended."""
        self._pending.pop(append, None)

    def close(self) -> None:
        """Nothing expires any more."""
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._loop.call_at(due_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._due_s = float("inf")
        now_s = self._loop.time()
        for append in list(self._pending):
            if append.deadline_s <= now_s:
                del self._pending[append]
                append.expire()
        if self._pending:
            self._arm(min(append.deadline_s for append in self._pending))
