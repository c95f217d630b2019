"""Admission: the limit of transactions under way in one partition."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Places:
    """A bounded number of places, assigned in the order of the calls.

    A submission takes a place before its first attempt, and keeps it over all attempts. So the limit is for appends in
    flight and appends that wait for another attempt together, and an attempt never waits for a place.

    As a context manager: gives back a taken place if the block raises.
    """

    __slots__ = ("limit", "taken", "waiters")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    def try_take(self) -> bool:
        """Take a place if one is free and no call waits for it."""
        if self.taken >= self.limit or self.waiters:
            return False
        self.taken += 1
        return True

    async def take(self, timeout_s: float) -> bool:
        """Take a place in turn. ``False`` if there was none within ``timeout_s``. Raises the error of :meth:`fail`."""
        if self.try_take():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
            if not waiter.done():
                return False
            waiter.result()
            return True
        except asyncio.CancelledError:
            if waiter.done() and waiter.exception() is None:
                self.release()  # the place was handed over, but the call was cancelled
            raise
        finally:
            if not waiter.done():
                self.waiters.remove(waiter)
                self.hand_over()

    def release(self) -> None:
        """Give back a place. The call with the longest wait gets it."""
        self.taken -= 1
        if self.waiters:
            self.hand_over()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.release()

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """Fail all waiting calls."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(make_error())

    def hand_over(self) -> None:
        """Give the free places to waiting calls."""
        while self.waiters and self.taken < self.limit:
            waiter = self.waiters.popleft()
            if not waiter.done():
                self.taken += 1
                waiter.set_result(None)
