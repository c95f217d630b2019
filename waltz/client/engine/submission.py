"""A transaction on its way into the log, and the queue of those that need another attempt."""

import asyncio
import inspect
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from waltz.client.context import TransactionContext
from waltz.client.engine.tasks import STOPS_THE_LOOP, is_being_cancelled
from waltz.client.options import ClientOptions
from waltz.client.retry_policy import RetryPolicy
from waltz.common.tasks import owned

logger = logging.getLogger(__name__)


class Submission:
    """Something to be appended, over all its attempts."""

    __slots__ = ("data", "failures", "first_failed_at_s", "in_flight")

    @property
    def waits_until_s(self) -> float | None:
        """Until when, by the loop's clock, it waits for its partition; ``None``: ``mount_wait_s`` at each attempt."""
        return None

    def __init__(self) -> None:
        self.data = b""
        """What the present attempt appends."""
        self.failures = 0
        """Attempts that were sent and failed."""
        self.first_failed_at_s = 0.0
        self.in_flight = False
        """Whether an attempt was sent whose outcome is not known."""

    @property
    def context(self) -> TransactionContext:
        """What is told how it goes."""
        raise NotImplementedError


class ContextSubmission(Submission):
    """A context of the application that was submitted."""

    __slots__ = ("context",)

    context: TransactionContext

    def __init__(self, context: TransactionContext) -> None:
        self.data = b""
        self.failures = 0
        self.first_failed_at_s = 0.0
        self.in_flight = False
        self.context = context


async def tell_exception(context: TransactionContext, error: Exception) -> None:
    """Tell a context that it ended with an error; that it fails itself then is only logged."""
    try:
        result = context.on_exception(error)
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

    How soon is up to the :class:`~waltz.client.retry_policy.RetryPolicy` of the context, or else of the client. All of
    them wait for the partition at the same time: each attempt is told since when.
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

        Raises what the context raises when it is asked for its policy, and ``TypeError`` when that is none.
        """
        policy = submission.context.retry_policy or self._options.retry_policy
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
        self._task = owned(self._run(), "the queue of appends to be attempted again", self._died)

    def _died(self, error: Exception) -> None:
        """Those behind the one that failed are attempted all the same."""
        if self._ready and not self._closed:
            self._start()

    async def _run(self) -> None:
        try:
            while self._ready:
                await self._attempt(*self._ready.popleft())
        finally:
            self._task = None
