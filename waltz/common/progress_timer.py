"""The timer of a watch over a peer's progress, which notices when this process itself stood still.

A process that was stopped, swapped out or busy for long has not read its peers' messages meanwhile. A late timer shows
that, and the watch then does not judge by the clock. ``waltz.common.net.guard`` does not need it: it counts ticks
instead of seconds.
"""

import asyncio
from collections.abc import Callable

TOLERANCE_S = 1.0
"""A timer that is later than this is evidence about this process, not about its peers."""


class ProgressTimer:
    """Calls ``look`` once for each :meth:`start`, with the time in seconds that the process stood still: usually 0."""

    __slots__ = ("_due_s", "_handle", "_look", "_loop", "_tolerance_s", "running")

    def __init__(self, look: Callable[[float], None], tolerance_s: float | None = None) -> None:
        """``tolerance_s`` is :data:`TOLERANCE_S` unless given. The timer belongs to the running loop."""
        self._look = look
        self._tolerance_s = TOLERANCE_S if tolerance_s is None else tolerance_s
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self.running = False
        """Whether a call of ``look`` is to come."""

    def start(self, delay_s: float) -> None:
        """Call ``look`` after ``delay_s``, or before if an earlier call is due."""
        due_s = self._loop.time() + delay_s
        if self._handle is not None:
            if self._due_s <= due_s:
                return
            self._handle.cancel()
        self.running = True
        self._due_s = due_s
        self._handle = self._loop.call_at(due_s, self._fire)

    def stop(self) -> None:
        """Cancel a call of ``look``."""
        self.running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self.running = False
        self._handle = None
        late_s = self._loop.time() - self._due_s
        self._look(late_s if late_s > self._tolerance_s else 0.0)
