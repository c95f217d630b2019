"""Decisions on what to append, made again when they were overtaken: for clients with callbacks, and what is common."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waltz.client.builder import TransactionBuilder
from waltz.client.context import TransactionContext
from waltz.client.engine.appends import PartitionAppends
from waltz.client.engine.submission import Submission
from waltz.client.errors import LockConflict
from waltz.client.plain.append import Append, told_outcome
from waltz.client.retry_policy import RetryPolicy

Choice = Append | bytes | bytearray | memoryview | None
"""What to append: a transaction, or its data alone; ``None``: nothing."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision has to rest on: everything in the partition up to ``high_water_mark``, and it may be more."""

    partition_id: int
    high_water_mark: int
    """Id of a transaction, -1 for none. The locks of what is decided are checked against it."""
    attempt: int
    """1, 2, ... : the decisions before were overtaken."""


Decide = Callable[[Basis], Choice | Awaitable[Choice]]

_ONCE = RetryPolicy(max_attempts=1)


def chosen_append(choice: object) -> Append | None:
    """``choice`` as one type; raises ``TypeError`` for what is none."""
    if choice is None or isinstance(choice, Append):
        return choice
    if isinstance(choice, bytes | bytearray | memoryview):
        return Append(choice)
    if inspect.iscoroutine(choice):
        choice.close()  # of a decision that is async where it cannot be
    raise TypeError(f"decide must return an Append, bytes or None, not {choice!r}")


def check_attempts(max_attempts: int | None) -> None:
    """Raises ``ValueError`` below 1."""
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts must be at least 1, not {max_attempts}")


class DecidedSubmission(Submission, TransactionContext):
    """The submission of a client with callbacks: each attempt decides again, on what has been applied."""

    __slots__ = (
        "_attempt",
        "_conflict",
        "_decide",
        "_max_attempts",
        "_partition_id",
        "_raised",
        "appends",
        "deadline_s",
        "future",
        "timeout_s",
    )

    def __init__(
        self,
        partition_id: int,
        appends: PartitionAppends,
        decide: Decide,
        *,
        now_s: float,
        timeout_s: float,
        max_attempts: int | None,
    ) -> None:
        super().__init__()
        self.appends = appends
        self.future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s
        self._partition_id = partition_id
        self._decide = decide
        self._max_attempts = max_attempts
        self._attempt = 0
        self._conflict: LockConflict | None = None
        self._raised: Exception | None = None

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
        """What got lost is decided again until the deadline, and so are conflicts, up to their limit."""
        given_up = self._conflict is not None and self._attempt == self._max_attempts
        return _ONCE if given_up or self.future.done() else None

    def partition_id(self, partition_count: int) -> int:
        """The partition it was made for."""
        return self._partition_id

    def execute(self, builder: TransactionBuilder) -> bool | Awaitable[bool]:
        """Decide."""
        if self.future.done():
            return False
        if self._conflict is not None or not self._attempt:
            self._attempt += 1  # one that got lost was not overtaken
        self._conflict = None
        try:
            choice = self._decide(Basis(self._partition_id, builder.client_high_water_mark, self._attempt))
            if not inspect.isawaitable(choice):
                return self._fill(builder, choice)
        except Exception as error:
            self._raised = error
            raise
        return self._fill_later(builder, choice)

    async def _fill_later(self, builder: TransactionBuilder, choice: Awaitable[Choice]) -> bool:
        try:
            return self._fill(builder, await choice)
        except Exception as error:
            self._raised = error
            raise

    def _fill(self, builder: TransactionBuilder, choice: Choice) -> bool:
        chosen = chosen_append(choice)
        if chosen is None or self.future.done():
            return False
        builder.set_data(chosen.data)
        builder.set_header(chosen.header)
        builder.set_write_locks(chosen.write_locks)
        builder.set_read_locks(chosen.read_locks)
        builder.set_append_locks(chosen.append_locks)
        return True

    def on_application(self) -> None:
        """Committed, and applied."""
        self.in_flight = False
        if not self.future.done():
            self.future.set_result(self.appends.high_water_mark)

    def on_completion(self, committed: bool) -> None:
        """There is nothing to append, or it was overtaken too often."""
        if committed or self.future.done():
            return
        if self._conflict is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(self._conflict)

    def on_lock_conflict(self, transaction_id: int) -> None:
        """Overtaken; the next attempt comes when that has been applied."""
        self._conflict = LockConflict(self._partition_id, transaction_id)

    def on_exception(self, error: Exception) -> None:
        """It cannot be sent, the decision failed, or the client is closed."""
        if not self.future.done():
            self.future.set_exception(self.error(error))

    def error(self, cause: Exception) -> Exception:
        """What to raise for ``cause``."""
        return cause if cause is self._raised else told_outcome(cause, in_flight=self.in_flight)

    def expired(self) -> Exception:
        """What to raise at the deadline."""
        text = f"no outcome within {self.timeout_s:g} s"
        obstacle = self.appends.obstacle or self._conflict
        return self.error(TimeoutError(text if obstacle is None else f"{text}: {obstacle}"))

    def abandon(self) -> None:
        """Nobody waits any more: there is no other attempt."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()


async def transact_applied(submission: DecidedSubmission) -> int | None:
    """Bring ``submission`` to its end; errors as ``WaltzClient.transact``."""
    try:
        async with asyncio.timeout_at(submission.deadline_s) as limit:
            await submission.appends.submit_attempt(submission)
            return await submission.future
    except asyncio.CancelledError as cancelled:
        cancelled.add_note(
            "The transaction was sent; whether it is committed is not known."
            if submission.in_flight
            else "The transaction was not sent; it is not in the log."
        )
        raise
    except TimeoutError as error:
        raise (submission.expired() if limit.expired() else error) from None
    except Exception as error:
        told = submission.error(error)
        if told is error:
            raise
        raise told from error
    finally:
        submission.abandon()
