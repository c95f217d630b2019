"""When a read that has no answer yet is sent to a second view node, too. Pure."""

from collections import deque
from typing import Final

WINDOW: Final = 128
"""So many recent answers tell when one is late."""
ENOUGH: Final = 20
"""With fewer answers a read waits for the longest delay."""
MIN_DELAY_S, MAX_DELAY_S = 0.01, 1.0
SHARE: Final = 0.1
"""Most reads that are sent twice, as a part of all: where everything is slow, more would make it slower."""
MOST_SAVED: Final = 10.0
"""Second requests that can be saved up."""


class Hedging:
    """The delay before the second request of a read, and how many there may be."""

    def __init__(self) -> None:
        self.delay_s = MAX_DELAY_S
        """19 of 20 recent answers came within this time, within bounds."""
        self._recent_s: deque[float] = deque(maxlen=WINDOW)
        self._new = 0
        self._saved = 1.0

    def answered(self, duration_s: float) -> None:
        """Take the time from a read's first request to its answer."""
        self._recent_s.append(duration_s)
        self._new += 1
        if len(self._recent_s) >= ENOUGH and self._new >= ENOUGH // 2:
            self._new = 0
            late_s = sorted(self._recent_s)[len(self._recent_s) * 95 // 100]
            self.delay_s = min(max(late_s, MIN_DELAY_S), MAX_DELAY_S)

    def began(self) -> None:
        """A read has begun."""
        self._saved = min(self._saved + SHARE, MOST_SAVED)

    def may(self) -> bool:
        """Whether a second request is allowed; it counts then."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
