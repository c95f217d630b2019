"""Whether the disk is so fast at present that waiting for it costs less than having a thread wait for it."""

BRIEF_S = 0.005
"""The event loop waits for a disk whose syncs take less than this on average."""

HANG_S = 0.2
"""A sync that takes this long has held up everything else in the process, if the event loop waited for it."""

DISTRUST_S = 60.0
"""Least time for which threads wait for the disk after a hang."""

MAX_DISTRUST_S = 86_400.0
"""The longest time for which a disk that hangs now and then is left to threads after a hang."""

_WEIGHT = 1 / 16
"""Of the last sync in the average."""


class DiskPace:
    """The average duration of the last syncs, and the times between those that hung.

    A disk of which nothing is known is slow. A disk that has hung is left to threads for a while, and from its second
    hang on for twice the longest time between two hangs: so one that hangs now and then holds up the event loop twice,
    and again only when it was well for longer than ever.
    """

    def __init__(self) -> None:
        self._mean_s = 2 * BRIEF_S
        self._hung_s: float | None = None
        self._distrust_s = DISTRUST_S
        self._trusted_from_s = float("-inf")

    def brief(self, now_s: float) -> bool:
        """Whether the next sync is likely to be a short one."""
        return self._mean_s < BRIEF_S and now_s >= self._trusted_from_s

    def took(self, duration_s: float, now_s: float) -> None:
        """A small write and its sync have ended."""
        self._mean_s += (min(duration_s, HANG_S) - self._mean_s) * _WEIGHT
        if duration_s >= HANG_S:
            if self._hung_s is not None:
                self._distrust_s = min(max(self._distrust_s, 2 * (now_s - self._hung_s)), MAX_DISTRUST_S)
            self._hung_s = now_s
            self._trusted_from_s = now_s + self._distrust_s
