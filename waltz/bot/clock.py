"""Timestamps of what a bot writes: of two writes that follow each other the second one's is never the smaller."""

import time
from collections.abc import Callable


class Clock:
    """The clock of the machine, which may step back, and a way to know in which bounds it was meanwhile."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, at least those that were given before."""
        self._last_ms = max(self._last_ms, self._wall_ns() // 1_000_000)
        return self._last_ms

    def pass_by(self, timestamp_ms: int) -> None:
        """Give only later times from now on."""
        self._last_ms = max(self._last_ms, timestamp_ms + 1)

    def watch(self) -> Callable[[], tuple[int, int]]:
        """To be called later: what the clock, or the row that was replaced, may have said in between; both are in.

        True also if the clock has stepped once meanwhile. What is written from then on is not earlier.
        """
        wall_ms, monotonic_ns = self._wall_ns() // 1_000_000, self._monotonic_ns()

        def bounds() -> tuple[int, int]:
            elapsed_ms = -(-(self._monotonic_ns() - monotonic_ns) // 1_000_000)
            now_ms = self._wall_ns() // 1_000_000
            low_ms = min(wall_ms, now_ms - elapsed_ms)
            self._last_ms = max(self._last_ms, wall_ms + elapsed_ms, now_ms)
            return low_ms, self._last_ms

        return bounds
