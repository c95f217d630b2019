"""A transaction on its way into the log, and the queue of those that need another attempt."""

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
from waltz.common.tasks import owned

logger = logging.getLogger(__name__)

NO_LOCKS_BYTES = 3 * len(NO_LOCKS)
"""What the three arrays of a transaction without locks take."""


class AppendFields(NamedTuple):
    """What an append says."""

    data: bytes
    header: int
    client_high_water_mark: int
    """Id of the transaction that the locks are checked against; -1 for none."""
    write_locks: bytes = NO_LOCKS
    """Locks as they travel: see :func:`~waltz.client.locks.lock_array`."""
    read_locks: bytes = NO_LOCKS
    append_locks: bytes = NO_LOCKS


class Limits(NamedTuple):
    """How large a transaction may be."""

    max_size_bytes: int
    max_locks: int

    def check(self, fields: AppendFields) -> None:
        """Raises :class:`TransactionTooLargeError`."""
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
    """Something to be appended, over all its attempts. A face of the client says what, and is told how it goes.

    What a method may return as an awaitable is awaited; whatever it raises does no harm to other submissions. The end
    is told by exactly one of :meth:`applied` (:meth:`committed`, where nothing is applied), :meth:`withdrawn` and
    :meth:`failed`.
    """

    __slots__ = ("failures", "first_failed_at_s", "sent")

    failures: int
    """Attempts that were sent and failed. The engine's, like those below: set when the submission is handed to it."""
    first_failed_at_s: float
    sent: bytes | None
    """The data of what was sent, unless that is known to have failed."""

    @property
    def waits_until_s(self) -> float | None:
        """Until when, by the loop's clock, it waits for its partition; ``None``: ``mount_wait_s`` at each attempt."""
        return None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """How often and how soon it is attempted again; ``None`` is the policy of the client's options."""
        return None

    @abstractmethod
    def build(self, high_water_mark: int) -> AppendFields | Awaitable[AppendFields | None] | None:
        """What an attempt appends; ``None`` withdraws it. ``high_water_mark`` is that of the client at present."""

    def committed(self, transaction_id: int) -> Awaitable[None] | None:
        """The append is in the log, and about to be applied if anything is."""
        return None

    def applied(self, transaction_id: int) -> Awaitable[None] | None:
        """The transaction was applied."""
        return None

    @abstractmethod
    def withdrawn(self) -> Awaitable[None] | None:
        """It is not in the log, and there is no other attempt: :meth:`build` or the retry policy gave up."""

    @abstractmethod
    def refused(self, transaction_id: int) -> Awaitable[None] | None:
        """A lock had changed, at the latest by this transaction (-1: unknown). Another attempt may come."""

    @abstractmethod
    def failed(self, error: Exception) -> Awaitable[None] | None:
        """It ended with an error. What is :attr:`sent` may be in the log, and is after :meth:`committed`."""


async def tell_failure(submission: Submission, error: Exception) -> None:
    """Tell a submission that it ended with an error; that it fails itself then is only logged."""
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
    """Attempts failed submissions of one partition again, in the order they come, one at a time.

    How soon is up to the :class:`~waltz.client.retry_policy.RetryPolicy` of each, or else of the client. All of them
    wait for the partition at the same time: each attempt is told since when.
    """

    def __init__(
        self,
        attempt: Callable[[Submission, float], Awaitable[None]],
        options: ClientOptions,
        random_source: random.Random,
    ) -> None:
        """``attempt`` gets a submission and the time since when it waits; it raises no ``Exception``."""
        self._attempt = attempt
        self._options = options
        self._random = random_source
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Submission, float]] = deque()
        self._delayed: dict[Submission, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, submission: Submission) -> bool:
        """Attempt ``submission`` again, which has failed once more; ``False`` if its policy allows no other attempt.

        Raises what the submission raises when it is asked for its policy, and ``TypeError`` when that is none.
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
        """Stop, and return what was waiting, in order. ``caller`` is not waited for: it may be what is attempted."""
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
        """Those behind one that failed, or has cancelled the task, are attempted all the same."""
        self._task = None
        stops_the_loop = not task.cancelled() and isinstance(task.exception(), STOPS_THE_LOOP)
        if self._ready and not self._closed and not stops_the_loop:
            self._start()

    async def _run(self) -> None:
        while self._ready:
            await self._attempt(*self._ready.popleft())
