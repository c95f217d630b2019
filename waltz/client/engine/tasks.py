"""Helpers of the client for asyncio: tasks with an owner, a signal to wait for, and the work of a close."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from waltz.common.tasks import restarting

logger = logging.getLogger(__name__)

STOPS_THE_LOOP = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions that end the process, which asyncio lets out of the loop, or that end the coroutine of a closed loop. No
callback is called then. Any other exception of a callback is a failure of that callback."""


def is_being_cancelled() -> bool:
    """Whether this task was cancelled. Otherwise a ``CancelledError`` comes from a callback."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TaskOwner:
    """Owns the tasks that it starts until their end. :meth:`close` ends them."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None], what: str) -> asyncio.Task[None]:
        """Run ``work``. An exception is logged as a failure of ``what``."""
        task = asyncio.get_running_loop().create_task(self._guard(work, what))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if inspect.iscoroutine(work):
                work.close()  # a task that is cancelled before its begin never awaits the coroutine

        task.add_done_callback(done)
        return task

    def keep(self, work: Callable[[], Coroutine[None, None, None]], what: str) -> None:
        """Run ``work`` for ever. After an exception, which is logged, it begins again."""
        self.spawn(restarting(work, what), what)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    async def _guard(self, work: Awaitable[None], what: str) -> None:
        try:
            await work
        except Exception:
            logger.exception("%s failed", what)

    async def close(self, grace_s: float = 0.0, caller: asyncio.Task[Any] | None = None) -> None:
        """Wait up to ``grace_s`` for the end of the tasks, then cancel and await them, except ``caller`` and the task
        of this call."""
        tasks = self._tasks - {asyncio.current_task(), caller}
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Signal:
    """Wakes all waiting calls at a change. Each call checks its own condition."""

    __slots__ = ("waited_for",)

    def __init__(self) -> None:
        self.waited_for: dict[asyncio.Future[None], None] = {}  # in the order of the calls
        """The waiting calls; when empty, no call of :meth:`notify` is needed."""

    def notify(self) -> None:
        """Wake all waiters."""
        if self.waited_for:
            waiters, self.waited_for = self.waited_for, {}
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return at the next :meth:`notify`; ``False`` after ``timeout_s`` without one."""
        waiter = asyncio.get_running_loop().create_future()
        self.waited_for[waiter] = None
        try:
            done, _ = await asyncio.wait((waiter,), timeout=timeout_s)
            return bool(done)
        finally:
            self.waited_for.pop(waiter, None)


class Closing:
    """The work of a ``close``. The first call begins it. It is done to its end even if all calls are cancelled."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether the work is done."""
        return self._task is not None and self._task.done()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin ``work`` unless it was begun, and return at its end. Every waiting call raises its error."""
        if self.over:
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(work(), name="closing")
        await asyncio.shield(self._task)


async def take_all(*steps: Callable[[], Awaitable[object]]) -> None:
    """Take the steps one by one, even after errors. Raises the first exception."""
    failure: BaseException | None = None
    for step in steps:
        try:
            await step()
        except STOPS_THE_LOOP:
            raise
        except BaseException as error:
            if failure is None:
                failure = error
            else:
                logger.warning("closing failed once more: %r", error)
    if failure is not None:
        raise failure
