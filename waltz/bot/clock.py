"""Timestamps of a bot's writes: a later write never has a smaller timestamp."""

import time
from collections.abc import Callable


class Clock:
    """The clock of the machine, which may step back; and bounds of its times during an operation."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch. Never falls."""
        self._last_ms = max(self._last_ms, self._wall_ns() // 1_000_000)
        return self._last_ms

    def pass_by(self, timestamp_ms: int) -> None:
        """Return only later times from now on."""
        self._last_ms = max(self._last_ms, timestamp_ms + 1)

    def watch(self) -> Callable[[], tuple[int, int]]:
        """Begin an operation. Returns a function for its end, which returns the bounds (inclusive) of the timestamp.

        The bounds hold even if the clock has stepped once meanwhile. Later writes never have earlier timestamps.
        """
        wall_ms, monotonic_ns = self._wall_ns() // 1_000_000, self._monotonic_ns()

        def bounds() -> tuple[int, int]:
            elapsed_ms = -(-(self._monotonic_ns() - monotonic_ns) // 1_000_000)
            now_ms = self._wall_ns() // 1_000_000
            low_ms = min(wall_ms, now_ms - elapsed_ms)
            self._last_ms = max(self._last_ms, wall_ms + elapsed_ms, now_ms)
            return low_ms, self._last_ms

        return bounds
