"""The event loop of all blocking clients of a process, on its own thread, and calls of other threads to it."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from waltz.client.errors import ClientClosedError, InvalidOperationError
from waltz.client.plain.feed import ACTING_FOR
from waltz.common.loops import new_event_loop

T = TypeVar("T")

_END_TIMEOUT_S = 5.0


class BackgroundLoop:
    """The loop and its thread, which run while a client uses them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        """On which the loop runs."""

    def enter(self) -> asyncio.AbstractEventLoop:
        """Start the loop if it does not run."""
        with self._mutex:
            if self._loop is None:
                self._loop = new_event_loop()
                self.thread = threading.Thread(target=self._run, args=(self._loop,), name="waltz", daemon=True)
                self.thread.start()
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """End the loop if no other client uses it."""
        with self._mutex:
            self._users -= 1
            if self._users:
                return
            loop, thread = self._loop, self.thread
            self._loop = self.thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_end_calls())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _end_calls() -> None:
    """Wait for the ends of closed clients' calls."""
    calls = asyncio.all_tasks() - {asyncio.current_task()}
    if calls:
        await asyncio.wait(calls, timeout=_END_TIMEOUT_S)
    for call in calls:
        call.cancel()
    if calls:
        await asyncio.wait(calls)


_background = BackgroundLoop()


def _forget_parent() -> None:
    """In a forked child the thread does not exist; clients of the parent cannot be used there."""
    global _background
    _background = BackgroundLoop()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_parent)


class Calls:
    """The calls of one client to the background loop, from its opening to its end."""

    def __init__(self) -> None:
        self._background = _background
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._process_id = os.getpid()
        self._mutex = threading.RLock()  # a garbage collection inside may finalise the loop over a feed

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _begin(self) -> None:
        self._check_caller()
        with self._mutex:
            if self._loop is not None:
                raise InvalidOperationError("a client is opened once")
            self._loop = self._background.enter()

    def _finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Refuse further calls and run ``work`` as the last one; does nothing the second time and after a fork."""
        if self._process_id != os.getpid():
            return
        self._check_caller()
        with self._mutex:
            if self._loop is None or self._closed:
                return
            self._closed = True
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            future.result()
        finally:
            self._background.leave()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the asynchronous client on the background loop; an interruption cancels it."""
        future: Future[T] | None = None
        acting = ACTING_FOR.set(threading.get_ident())
        try:
            self._check_caller()
            with self._mutex:  # not after the loop was told to stop: it would never run the call
                future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
            return future.result()
        except BaseException:
            if future is None:
                work.close()
            else:
                future.cancel()
            raise
        finally:
            ACTING_FOR.reset(acting)

    def on_loop(self, call: Callable[[], object]) -> None:
        """Call a function on the background loop, if it runs."""
        if self._process_id != os.getpid():
            return
        with self._mutex:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(call)

    def _check_caller(self) -> None:
        """Check the calling thread before it takes the mutex, which a thread of the parent may have held at a fork."""
        if self._process_id != os.getpid():
            raise InvalidOperationError("the client was made before a fork; open another one in this process")
        if threading.current_thread() is self._background.thread:
            raise InvalidOperationError("a blocking call on the loop that has to do the work would never end")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise InvalidOperationError(
                "the client is not open; use it in `with waltz.blocking.connect(...) as client:`, or call client.open()"
            )
        if self._closed:
            raise ClientClosedError
        return self._loop
