"""A transaction on its way into the log, and the queue of submissions that need another attempt."""

import asyncio
import inspect
import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from waltz.client.engine.tasks import STOPS_THE_LOOP, is_being_cancelled
from waltz.client.errors import TransactionTooLargeError
from waltz.client.locks import HASH_BYTES, NO_LOCKS
from waltz.client.options import ClientOptions
from waltz.client.retry_policy import RetryPolicy
from waltz.common.consistency import Consistency
from waltz.common.tasks import owned

logger = logging.getLogger(__name__)

NO_LOCKS_BYTES = 3 * len(NO_LOCKS)
"""The size of the three lock arrays of a transaction without locks."""


class AppendFields(NamedTuple):
    """The fields of an append."""

    data: bytes
    header: int
    client_high_water_mark: int
    """The id of the transaction against which the locks are checked; -1 for none."""
    write_locks: bytes = NO_LOCKS
    """The locks in the encoding of the protocol: see :func:`~waltz.client.locks.lock_array`."""
    read_locks: bytes = NO_LOCKS
    append_locks: bytes = NO_LOCKS


class Limits(NamedTuple):
    """Limits of a transaction."""

    max_size_bytes: int
    max_locks: int

    def check(self, fields: AppendFields) -> None:
        """Raise :class:`TransactionTooLargeError` if a limit is exceeded."""
        data, _, _, write_locks, read_locks, append_locks = fields
        size_bytes = len(data)
        lock_count = (len(write_locks) + len(read_locks) + len(append_locks) - NO_LOCKS_BYTES) // HASH_BYTES
        if size_bytes > self.max_size_bytes:
            raise TransactionTooLargeError(
                f"the transaction data has {size_bytes} bytes; client.maxTransactionSize is {self.max_size_bytes}"
            )
        if lock_count > self.max_locks:
            raise TransactionTooLargeError(
                f"the transaction names {lock_count} locks; client.maxLocksPerTransaction is {self.max_locks}"
            )


class Submission(ABC):
    """A transaction to be appended, over all its attempts. A face of the client builds the submission, and gets the
    outcome.

    An awaitable result of a method is awaited. Errors of the methods do not affect other submissions. The end is
    reported by exactly one of :meth:`applied` (without an applier: :meth:`committed`), :meth:`withdrawn` and
    :meth:`failed`.
    """

    __slots__ = ("failures", "first_failed_at_s", "sent", "sent_level")

    failures: int
    """The number of sent attempts that have failed. The engine sets this and the following fields."""
    first_failed_at_s: float
    sent: bytes | None
    """The data of the sent attempt, unless it is known to have failed."""
    sent_level: Consistency
    """The level of that attempt."""
    level: Consistency | None = None
    """The level of consistency of the append; ``None``: what the partition demands, and at least the commit."""

    @property
    def waits_until_s(self) -> float | None:
        """The end of the wait for the partition, by the loop's clock; ``None``: ``mount_wait_s`` for each attempt."""
        return None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """The number and the delays of retries; ``None``: the policy in the client's options."""
        return None

    @abstractmethod
    def build(self, high_water_mark: int) -> AppendFields | Awaitable[AppendFields | None] | None:
        """The append of an attempt; ``None`` withdraws the submission. ``high_water_mark`` is the present mark of the
        client."""

    acknowledged_id: int | None = None
    """The id at which the append was acknowledged before its commit. Such an append is never sent again."""

    def acknowledged(self, transaction_id: int, storage_count: int) -> Awaitable[None] | None:
        """Storages below the quorum have the append, as its level asks. It is not committed: :meth:`committed`, or
        :meth:`failed` with :class:`~waltz.client.errors.AckRetracted`, will follow. Takes over ``acknowledged_id``."""
        return None

    def committed(self, transaction_id: int) -> Awaitable[None] | None:
        """The append is in the log, and about to be applied if there is an applier."""
        return None

    def applied(self, transaction_id: int) -> Awaitable[None] | None:
        """The transaction was applied."""
        return None

    @abstractmethod
    def withdrawn(self) -> Awaitable[None] | None:
        """The append is not in the log, and there is no further attempt: :meth:`build` or the retry policy has given
        up."""

    @abstractmethod
    def refused(self, transaction_id: int) -> Awaitable[None] | None:
        """A lock was changed, at the latest by this transaction (-1: unknown). Another attempt may follow."""

    @abstractmethod
    def failed(self, error: Exception) -> Awaitable[None] | None:
        """The submission has ended with an error. A :attr:`sent` attempt may be in the log; after :meth:`committed` it
        certainly is."""


async def tell_failure(submission: Submission, error: Exception) -> None:
    """Tell a submission that it has ended with an error. An error of this call is only logged."""
    try:
        result = submission.failed(error)
        if result is not None and inspect.isawaitable(result):
            await result
    except STOPS_THE_LOOP:
        raise
    except BaseException as failure:
        if isinstance(failure, asyncio.CancelledError) and is_being_cancelled():
            raise
        logger.exception("on_exception of a transaction context failed")


class RetryQueue:
    """Repeats failed submissions of one partition, in order, one at a time.

    The :class:`~waltz.client.retry_policy.RetryPolicy` of the submission, or otherwise of the client, decides the
    delay. All submissions wait for the partition at the same time: each attempt gets the begin of its wait.
    """

    def __init__(
        self,
        attempt: Callable[[Submission, float], Awaitable[None]],
        options: ClientOptions,
        random_source: random.Random,
    ) -> None:
        """``attempt`` gets a submission and the begin of its wait. It raises no ``Exception``."""
        self._attempt = attempt
        self._options = options
        self._random = random_source
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Submission, float]] = deque()
        self._delayed: dict[Submission, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, submission: Submission) -> bool:
        """Repeat ``submission``, which has failed again. ``False`` if its policy allows no further attempt.

        Raises the errors of the submission's policy, and ``TypeError`` for a wrong policy.
        """
        policy = submission.retry_policy or self._options.retry_policy
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"the retry_policy of a transaction context must be a RetryPolicy, not {policy!r}")
        now_s = self._loop.time()
        if submission.failures <= 1:
            submission.first_failed_at_s = now_s
        if not policy.allows_another(submission.failures, now_s - submission.first_failed_at_s):
            return False
        delay_s = policy.delay_s(submission.failures, self._random.random())
        if delay_s > 0:
            self._delayed[submission] = self._loop.call_later(delay_s, self._delay_is_over, submission)
        else:
            self._put(submission)
        return True

    async def close(self, caller: asyncio.Task[Any] | None) -> list[Submission]:
        """Stop, and return the waiting submissions, in order. Does not wait for ``caller``, even if it is an
        attempt."""
        self._closed = True
        waiting = [*(submission for submission, _ in self._ready), *self._delayed]
        self._ready.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        task = self._task
        if task is not None and task is not caller:
            task.cancel()
            await asyncio.wait((task,))
        return waiting

    def _delay_is_over(self, submission: Submission) -> None:
        del self._delayed[submission]
        self._put(submission)

    def _put(self, submission: Submission) -> None:
        self._ready.append((submission, self._loop.time()))
        if self._task is None and not self._closed:
            self._start()

    def _start(self) -> None:
        self._task = owned(self._run(), "the queue of appends to be attempted again")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Continue with the next submissions, after a submission that has failed or has cancelled the task."""
        self._task = None
        stops_the_loop = not task.cancelled() and isinstance(task.exception(), STOPS_THE_LOOP)
        if self._ready and not self._closed and not stops_the_loop:
            self._start()

    async def _run(self) -> None:
        while self._ready:
            await self._attempt(*self._ready.popleft())
