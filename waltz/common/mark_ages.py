"""How old what somebody lacks of a partition is: the marks of the last time, with their times. Pure."""

from bisect import bisect_right

MAX_NOTED = 64
"""Marks that are remembered; the older ones lie farther apart."""


class MarkAges:
    """High-water marks that were noted about once a second, and when."""

    __slots__ = ("_marks", "_times_s")

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._times_s: list[float] = []

    def note(self, mark: int, now_s: float) -> None:
        """The high-water mark is this one now. Marks above it were lost."""
        known = bisect_right(self._marks, mark)
        if known and self._marks[known - 1] == mark and known == len(self._marks):
            return
        del self._marks[known:], self._times_s[known:]
        if not known or self._marks[-1] < mark:
            self._marks.append(mark)
            self._times_s.append(now_s)
        if len(self._marks) > MAX_NOTED:
            # Without an older mark its transactions count as those of the next one: younger than they are.
            del self._marks[0 : MAX_NOTED // 2 : 2], self._times_s[0 : MAX_NOTED // 2 : 2]

    def age_s(self, position: int, now_s: float) -> float:
        """For how long at least the oldest transaction behind a position has been committed; 0: there is none, or none
        that is older than the last mark."""
        found = bisect_right(self._marks, position)
        return now_s - self._times_s[found] if found < len(self._marks) else 0.0
