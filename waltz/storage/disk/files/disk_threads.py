"""Threads for calls that block, with as little between the event loop and them as possible.

For a call of a tenth of a millisecond an executor, two futures and a shield cost as much as the call itself. Here a
call is one entry in a queue, and its end one wake-up of the loop.
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
    """A limited number of threads, begun as they are needed. Calls are taken up in order."""

    def __init__(self, max_threads: int, name: str) -> None:
        self.running = 0
        """Calls that were begun and have not ended."""
        self._max_threads = max_threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._too_few = False
        self._calls: SimpleQueue[_Call[object] | None] = SimpleQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """Call ``function`` in a thread. Ends only when it has ended, also when cancelled.

        Raises what it raises; ``RuntimeError`` after :meth:`close`, and when not even the first thread can be begun.
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
            call.error = None  # it knows frames that know the call
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
        """One more, unless the system has none left: then calls wait for those that there are."""
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise
            if not self._too_few:
                self._too_few = True
                logger.warning("%s could not be begun, there are %d: %s", name, len(self._threads), error)
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
        """What the function has returned, if it has."""

    def execute(self) -> None:
        """For the thread."""
        try:
            self.value.append(self._function())
        except BaseException as error:
            self.error = error
        try:
            self.loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop was closed: nobody waits
            logger.debug("a file operation has ended after its loop")

    def _end(self) -> None:
        self.ended = True
        self._on_end()
        if not self.waiter.done():
            self.waiter.set_result(None)


def _work(calls: "SimpleQueue[_Call[object] | None]") -> None:
    while (call := calls.get()) is not None:
        call.execute()
        del call  # what it holds may be large, and the next one may be long in coming
