"""Whether the disk is so fast at present that waiting for it costs less than having a thread wait for it."""

BRIEF_S = 0.005
"""The event loop waits for a disk whose syncs take less than this on average."""

_WEIGHT = 1 / 16
"""Of the last sync in the average."""


class DiskPace:
    """The average duration of the last syncs. A disk of which nothing is known is slow.

    One sync that hangs weighs as much as it lasts: after ten seconds the disk is trusted again when about a hundred
    more, which threads wait for, were fast.
    """

    def __init__(self) -> None:
        self._mean_s = 2 * BRIEF_S

    @property
    def brief(self) -> bool:
        """Whether the next sync is likely to be a short one."""
        return self._mean_s < BRIEF_S

    def took(self, duration_s: float) -> None:
        """A small write and its sync have ended."""
        self._mean_s += (duration_s - self._mean_s) * _WEIGHT
