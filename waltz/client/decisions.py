"""Decisions on appends, repeated after conflicts: for clients with callbacks, and the common part for all clients."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from waltz.client.awaited import AwaitedSubmission
from waltz.client.builder import Append, fields_of, serialized
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.submission import AppendFields
from waltz.client.errors import LockConflict
from waltz.common.errors import WaltzError
from waltz.common.serializers import Serializer

T = TypeVar("T")

Choice = Append | bytes | bytearray | memoryview | None
"""A decision: a transaction, or its data alone; ``None``: no append."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The state that a decision rests on: the partition up to ``high_water_mark`` at least.

    Examples:
        ```python
        def decide(basis: waltz.Basis) -> waltz.Append | None:
            if basis.attempt > 10:
                return None  # nothing is appended
            return waltz.Append(b"rests on %d" % basis.high_water_mark, write_locks=[lock])


        transaction_id = await client.transact(0, decide, reads_log=True)
        ```
    """

    partition_id: int
    high_water_mark: int
    """Id of a transaction, -1 for none. The locks of the append are checked against it."""
    attempt: int
    """Number of the attempt, from 1: the former decisions met conflicts."""


Decide = Callable[[Basis], Choice | Awaitable[Choice]]


def chosen_append(choice: object) -> Append | None:
    """``choice`` as one type; raises ``TypeError`` for anything else."""
    if choice is None or isinstance(choice, Append):
        return choice
    if isinstance(choice, bytes | bytearray | memoryview):
        return Append(choice)
    if inspect.iscoroutine(choice):
        choice.close()  # of an async decision where it must be plain
    raise TypeError(f"decide must return an Append, bytes or None, not {choice!r}")


def serialized_choice(choice: T | Append[T] | None, serializer: Serializer[T]) -> Append | None:
    """A choice with a value, turned into one with bytes; raises the errors of the serializer."""
    return None if choice is None else serialized(choice, serializer)


def serialized_decide(
    decide: Callable[[Basis], T | Append[T] | Awaitable[T | Append[T] | None] | None], serializer: Serializer[T]
) -> Decide:
    """Turns a decision on values into one on bytes."""

    def decide_bytes(basis: Basis) -> Append | Awaitable[Append | None] | None:
        choice = decide(basis)
        return made_later(choice) if inspect.isawaitable(choice) else serialized_choice(choice, serializer)

    async def made_later(choice: Awaitable[T | Append[T] | None]) -> Append | None:
        return serialized_choice(await choice, serializer)

    return decide_bytes


def check_attempts(max_attempts: int | None) -> None:
    """Raise ``ValueError`` below 1."""
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts must be at least 1, not {max_attempts}")


class DecidedSubmission(AwaitedSubmission[int | None]):
    """The submission of a client with callbacks: each attempt decides anew, on the applied state.

    Lost appends are decided again until the deadline, and conflicts up to their limit.
    """

    __slots__ = (
        "_attempt",
        "_conflict",
        "_decide",
        "_deciding",
        "_max_attempts",
        "_nothing",
        "_partition_id",
        "_raised",
    )

    def __init__(
        self,
        partition_id: int,
        appends: PartitionAppends,
        decide: Callable[[Basis], object],
        *,
        now_s: float,
        timeout_s: float,
        max_attempts: int | None,
    ) -> None:
        super().__init__(appends, asyncio.get_running_loop().create_future(), now_s=now_s, timeout_s=timeout_s)
        self._partition_id = partition_id
        self._decide = decide
        self._deciding: asyncio.Timeout | None = None
        self._max_attempts = max_attempts
        self._attempt = 0
        self._conflict: LockConflict | None = None
        self._nothing = False
        self._raised: Exception | None = None

    @property
    def given_up(self) -> bool:
        return self.future.done() or (self._conflict is not None and self._attempt == self._max_attempts)

    def build(self, high_water_mark: int) -> AppendFields | Awaitable[AppendFields | None] | None:
        if self.future.done():
            return None
        if self._conflict is not None or not self._attempt:
            self._attempt += 1  # a lost append met no conflict
        self._conflict = None
        try:
            choice = self._decide(Basis(self._partition_id, high_water_mark, self._attempt))
            if not inspect.isawaitable(choice):
                return self._fields(high_water_mark, choice)
        except Exception as error:
            self._raised = error
            raise
        return self._build_later(high_water_mark, choice)

    async def _build_later(self, high_water_mark: int, choice: Awaitable[object]) -> AppendFields | None:
        """Build a later attempt in a task of its own, which :meth:`abandon` can end."""
        self._deciding = deciding = asyncio.timeout(None)
        try:
            async with deciding:
                return self._fields(high_water_mark, await choice)
        except Exception as error:
            if deciding.expired():
                return None
            self._raised = error
            raise
        finally:
            self._deciding = None

    def _fields(self, high_water_mark: int, choice: object) -> AppendFields | None:
        chosen = chosen_append(choice)
        self._nothing = chosen is None
        return None if chosen is None or self.future.done() else fields_of(chosen, high_water_mark)

    def applied(self, transaction_id: int) -> None:
        self.decided(transaction_id)

    def withdrawn(self) -> None:
        if self.future.done():
            return
        if self._nothing:
            self.future.set_result(None)
        else:
            self.future.set_exception(self._conflict or self.lost())

    def refused(self, transaction_id: int) -> None:
        self._conflict = LockConflict(self._partition_id, transaction_id)

    def failed(self, error: Exception) -> None:
        if error is self._raised:
            if not self.future.done():
                self.future.set_exception(error)
        else:
            super().failed(error)

    def abandon(self) -> None:
        super().abandon()
        if self._deciding is not None:
            self._deciding.reschedule(0.0)

    @property
    def obstacle(self) -> WaltzError | None:
        return super().obstacle or self._conflict


async def transact_applied(submission: DecidedSubmission) -> int | None:
    """Bring ``submission`` to its end; raises like ``WaltzClient.transact``."""
    try:
        async with asyncio.timeout_at(submission.deadline_s) as limit:
            rest = submission.appends.submit(submission)
            if rest is not None:
                with contextlib.suppress(Exception):  # which the submission got, too
                    await rest
            return await submission.future
    except asyncio.CancelledError as cancelled:
        submission.note_outcome(cancelled)
        raise
    except TimeoutError:
        if not limit.expired():
            raise
        late = submission.late()
        raise late from late.__cause__
    finally:
        submission.abandon()
