"""Submissions whose outcome is awaited until a deadline: a result, or an error with what is known of it."""

import asyncio
from typing import Final, Generic, TypeVar, cast

from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.submission import Submission
from waltz.client.errors import (
    AppendError,
    ClientTimeoutError,
    NotAppendedError,
    NotAuthorizedError,
    NotGuaranteedError,
    OutcomeUnknownError,
    TransactionTooLargeError,
)
from waltz.client.retry_policy import RetryPolicy
from waltz.common.consistency import Consistency, waits_for_all
from waltz.common.errors import WaltzError

T = TypeVar("T")

_AT_THE_COMMIT: Final = Consistency.LEADER_QUORUM
_ONCE = RetryPolicy(max_attempts=1)
_UNTIL_THE_DEADLINE = RetryPolicy()


class AwaitedSubmission(Submission, Generic[T]):
    """Ends when ``future`` is done. The caller that awaits it keeps the deadline; see :meth:`expire`."""

    __slots__ = ("appends", "committed_id", "deadline_s", "future", "timeout_s")

    def __init__(
        self, appends: PartitionAppends, future: "asyncio.Future[T]", *, now_s: float, timeout_s: float
    ) -> None:
        self.sent = None  # the deadline may come before the engine gets it
        self.committed_id: int | None = None
        self.appends = appends
        self.future = future
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s

    @property
    def waits_until_s(self) -> float:
        return self.deadline_s

    @property
    def given_up(self) -> bool:
        """Whether another attempt is useless."""
        return self.future.done()

    @property
    def retry_policy(self) -> RetryPolicy:
        return _ONCE if self.given_up else _UNTIL_THE_DEADLINE  # the client's options are for contexts

    def decided(self, transaction_id: int) -> None:
        """The transaction is in the log: the end, unless its level asks for more."""
        if self.future.done():
            return
        if self.sent_level is not _AT_THE_COMMIT and waits_for_all(self.sent_level):
            self.committed_id = transaction_id
            self.appends.guarantees.wait(transaction_id, self._guaranteed)
        else:
            self.future.set_result(cast("T", transaction_id))

    def _guaranteed(self, error: NotGuaranteedError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(cast("T", self.committed_id))
        else:
            self.future.set_exception(error)

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
        """The error at the deadline."""
        if self.committed_id is not None:
            partition_id = self.appends.partition_id
            return NotGuaranteedError(partition_id, self.committed_id, f"{self.timeout_s:g} s have passed")
        text = f"no outcome within {self.timeout_s:g} s"
        obstacle = self.obstacle
        cause = TimeoutError(text if obstacle is None else f"{text}: {obstacle}")
        cause.__cause__ = obstacle
        return self.outcome(cause)

    @property
    def obstacle(self) -> WaltzError | None:
        """The known obstacle to a decision."""
        return self.appends.obstacle

    def outcome(self, cause: Exception) -> Exception:
        """``cause`` completed by the outcome, unless it has the outcome itself."""
        if isinstance(cause, AppendError):
            return cause
        if self.sent is not None:
            error: Exception = OutcomeUnknownError(f"{cause}; the transaction was sent and may be committed")
        elif isinstance(cause, WaltzError | TimeoutError) and not isinstance(
            cause, NotAuthorizedError | TransactionTooLargeError
        ):
            error = NotAppendedError(f"{cause}; the transaction is not in the log")
        else:
            return cause  # nothing is in the log, and the cause says why
        error.__cause__ = cause
        return error

    def lost(self) -> NotAppendedError:
        """The error for a lost append without another attempt."""
        return NotAppendedError(
            "it got lost, and client.numTransactionRetryThreads is 0: nothing is attempted again; the transaction is "
            "not in the log"
        )

    def note_outcome(self, cancelled: asyncio.CancelledError) -> None:
        """The caller was cancelled: note on ``cancelled`` what is known of the outcome."""
        if self.committed_id is not None:
            cancelled.add_note(f"The transaction is committed: {self.committed_id}.")
            return
        cancelled.add_note(
            "The transaction was not sent; it is not in the log."
            if self.sent is None
            else "The transaction was sent; whether it is committed is not known."
        )

    def abandon(self) -> None:
        """Drop the outcome, and make no other attempt."""
        if self.committed_id is not None:
            self.appends.guarantees.forget(self.committed_id)
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()
