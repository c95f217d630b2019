"""An event loop whose clock jumps to the next timer when there is nothing to do: hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")


class _JumpingSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        self.now_s += max(timeout, 0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s. Real file descriptors are never looked at."""

    def __init__(self) -> None:
        self._jumping_selector = _JumpingSelector()
        super().__init__(self._jumping_selector)

    connect: Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[None]] | None = None
    """Opens connections, when a test has lines."""

    async def create_connection(  # type: ignore[override]  # what channels use of it
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        assert self.connect is not None, "a test without lines opens no connections"
        await self.connect(protocol_factory, host, port)

    def time(self) -> float:
        return self._jumping_selector.now_s

    def stand_still(self, time_s: float) -> None:
        """Time passes in which this process does nothing."""
        self._jumping_selector.now_s += time_s


def run(main: Coroutine[object, object, ResultT]) -> ResultT:
    """Run a scenario in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
