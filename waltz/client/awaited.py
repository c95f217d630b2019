"""Submissions whose outcome is awaited until a deadline, as a result or an error that tells what is known of it."""

import asyncio
from typing import Generic, TypeVar

from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.submission import Submission
from waltz.client.errors import (
    AppendError,
    ClientTimeoutError,
    NotAppendedError,
    OutcomeUnknownError,
    TransactionTooLargeError,
)
from waltz.client.retry_policy import RetryPolicy
from waltz.common.errors import WaltzError

T = TypeVar("T")

_ONCE = RetryPolicy(max_attempts=1)
_UNTIL_THE_DEADLINE = RetryPolicy()


class AwaitedSubmission(Submission, Generic[T]):
    """It ends when ``future`` is done. Whether the deadline is met is up to who awaits it; see :meth:`expire`."""

    __slots__ = ("appends", "deadline_s", "future", "timeout_s")

    def __init__(
        self, appends: PartitionAppends, future: "asyncio.Future[T]", *, now_s: float, timeout_s: float
    ) -> None:
        self.sent = None  # the deadline may come before it is handed to the engine
        self.appends = appends
        self.future = future
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s

    @property
    def waits_until_s(self) -> float:
        return self.deadline_s

    @property
    def given_up(self) -> bool:
        """Whether there is no use in another attempt."""
        return self.future.done()

    @property
    def retry_policy(self) -> RetryPolicy:
        return _ONCE if self.given_up else _UNTIL_THE_DEADLINE  # what the client's options say is for contexts

    def failed(self, error: Exception) -> None:
        if isinstance(error, ClientTimeoutError):
            self.expire()
        elif not self.future.done():
            self.future.set_exception(self.outcome(error))

    def expire(self) -> None:
        """The deadline has come."""
        if not self.future.done():
            self.future.set_exception(self.late())

    def late(self) -> Exception:
        """What to raise at the deadline."""
        text = f"no outcome within {self.timeout_s:g} s"
        obstacle = self.obstacle
        cause = TimeoutError(text if obstacle is None else f"{text}: {obstacle}")
        cause.__cause__ = obstacle
        return self.outcome(cause)

    @property
    def obstacle(self) -> WaltzError | None:
        """What keeps it from being decided, as far as that is known."""
        return self.appends.obstacle

    def outcome(self, cause: Exception) -> Exception:
        """``cause`` with a word on the outcome, unless it says that itself."""
        if isinstance(cause, AppendError):
            return cause
        if self.sent is not None:
            error: Exception = OutcomeUnknownError(f"{cause}; the transaction was sent and may be committed")
        elif isinstance(cause, WaltzError | TimeoutError) and not isinstance(cause, TransactionTooLargeError):
            error = NotAppendedError(f"{cause}; the transaction is not in the log")
        else:
            return cause  # nothing is in the log, and the cause is the plainest way to say why
        error.__cause__ = cause
        return error

    def lost(self) -> NotAppendedError:
        """What to raise when it got lost, and nothing is attempted again."""
        return NotAppendedError(
            "it got lost, and client.numTransactionRetryThreads is 0: nothing is attempted again; the transaction is "
            "not in the log"
        )

    def note_outcome(self, cancelled: asyncio.CancelledError) -> None:
        """Nobody waits any more: add to ``cancelled`` what is known."""
        cancelled.add_note(
            "The transaction was not sent; it is not in the log."
            if self.sent is None
            else "The transaction was sent; whether it is committed is not known."
        )

    def abandon(self) -> None:
        """Nobody looks at the outcome any more, and there is no other attempt."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()
