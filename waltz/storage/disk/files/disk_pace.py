"""Decides whether the event loop itself waits for the disk: on a fast disk, a thread for the wait costs more than the
wait."""

BRIEF_S = 0.005
"""The event loop waits for the disk while syncs take less than this on average."""

HANG_S = 0.2
"""A sync of this duration counts as a hang: if the event loop waited for it, everything else in the process stood
still."""

DISTRUST_S = 60.0
"""The shortest time after a hang for which threads wait for the disk."""

MAX_DISTRUST_S = 86_400.0
"""The longest time after a hang for which threads wait for the disk."""

_WEIGHT = 1 / 16
"""The weight of the last sync in the average."""


class DiskPace:
    """The average duration of the last syncs, and the times between those that hung.

    An unknown disk counts as slow. After a hang, threads wait for the disk for a while; from the second hang on, for
    twice the longest time between two hangs. So a disk with occasional hangs holds up the event loop twice, and again
    only after a longer time without a hang than ever before.
    """

    def __init__(self) -> None:
        self._mean_s = 2 * BRIEF_S
        self._hung_s: float | None = None
        self._distrust_s = DISTRUST_S
        self._trusted_from_s = float("-inf")

    def brief(self, now_s: float) -> bool:
        """Whether the next sync will probably be short."""
        return self._mean_s < BRIEF_S and now_s >= self._trusted_from_s

    def took(self, duration_s: float, now_s: float) -> None:
        """Take the duration of a small write and its sync into account."""
        self._mean_s += (min(duration_s, HANG_S) - self._mean_s) * _WEIGHT
        if duration_s >= HANG_S:
            if self._hung_s is not None:
                self._distrust_s = min(max(self._distrust_s, 2 * (now_s - self._hung_s)), MAX_DISTRUST_S)
            self._hung_s = now_s
            self._trusted_from_s = now_s + self._distrust_s
