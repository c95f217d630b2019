"""Threads for blocking calls, with as little overhead as possible.

For a call of 0.1 ms an executor, two futures and a shield cost as much as the call itself. Here a call is one entry in
a queue, and the end of the call is one wake-up of the event loop.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DiskThreads:
    """A limited number of threads, each started when it is needed. Calls begin in the order of their requests."""

    def __init__(self, max_threads: int, name: str) -> None:
        self.running = 0
        """The number of calls that have begun and not ended."""
        self._max_threads = max_threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._too_few = False
        self._calls: SimpleQueue[_Call[object] | None] = SimpleQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """Call ``function`` in a thread. Returns only after the call has ended, even when cancelled.

        Raises the exceptions of ``function``; ``RuntimeError`` after :meth:`close`, and when not even one thread can be
        started.
        """
        call = _Call(function, asyncio.get_running_loop(), self._call_ended)
        self._begin(call)
        cancellation = None
        while not call.ended:
            try:
                await call.waiter
            except asyncio.CancelledError as error:  # a thread cannot be abandoned half way through a write
                cancellation = error
                call.waiter = call.loop.create_future()
        try:
            if cancellation is not None:
                if call.error is not None:
                    logger.warning("a cancelled file operation had failed: %s", call.error)
                raise cancellation
            if call.error is not None:
                raise call.error
            return call.value[0]
        finally:
            call.error = None  # the traceback refers to frames that refer to the call
            del call, cancellation

    def close(self) -> None:
        """Wait for running calls and end the threads."""
        threads, self._threads, self._max_threads = self._threads, [], 0
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join()

    def _begin(self, call: "_Call[T]") -> None:
        if not self._max_threads:
            raise RuntimeError("the threads have ended")
        if self.running >= len(self._threads) < self._max_threads:
            self._add_thread()
        self.running += 1
        self._calls.put(call)  # type: ignore[arg-type]  # a queue of calls with whatever result

    def _add_thread(self) -> None:
        """Start a thread. If the system refuses, calls wait for the present threads."""
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise
            if not self._too_few:
                self._too_few = True
                logger.warning("thread %s could not be started, there are %d: %s", name, len(self._threads), error)
            return
        self._too_few = False
        self._threads.append(thread)

    def _call_ended(self) -> None:
        self.running -= 1


class _Call(Generic[T]):
    """One call, on its way from the loop to a thread and back."""

    __slots__ = ("_function", "_on_end", "ended", "error", "loop", "value", "waiter")

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self.loop = loop
        self.waiter = loop.create_future()
        self.ended = False
        self.error: BaseException | None = None
        self._function = function
        self._on_end = on_end
        self.value: list[T] = []
        """The result of the function, after it has returned."""

    def execute(self) -> None:
        """Execute the function and wake the event loop; called by the thread."""
        try:
            self.value.append(self._function())
        except BaseException as error:
            self.error = error
        try:
            self.loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the event loop was closed: nothing waits for the result
            logger.debug("a file operation has ended after its loop")

    def _end(self) -> None:
        self.ended = True
        self._on_end()
        if not self.waiter.done():
            self.waiter.set_result(None)


def _work(calls: "SimpleQueue[_Call[object] | None]") -> None:
    while (call := calls.get()) is not None:
        call.execute()
        del call  # free its memory now: the next call may come much later
