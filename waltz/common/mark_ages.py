"""The age of the transactions that a reader or replica lacks, computed from recent marks and their times. Pure."""

from bisect import bisect_right

MAX_NOTED = 64
"""The number of remembered marks. Older marks have larger distances."""


class MarkAges:
    """High-water marks, noted about once a second, with their times."""

    __slots__ = ("_marks", "_times_s")

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._times_s: list[float] = []

    def note(self, mark: int, now_s: float) -> None:
        """Note the present high-water mark. Remembered marks above it were lost."""
        known = bisect_right(self._marks, mark)
        if known and self._marks[known - 1] == mark and known == len(self._marks):
            return
        del self._marks[known:], self._times_s[known:]
        if not known or self._marks[-1] < mark:
            self._marks.append(mark)
            self._times_s.append(now_s)
        if len(self._marks) > MAX_NOTED:
            # Without an older mark, its transactions count as those of the next mark: younger than they are.
            del self._marks[0 : MAX_NOTED // 2 : 2], self._times_s[0 : MAX_NOTED // 2 : 2]

    def age_s(self, position: int, now_s: float) -> float:
        """The time since the commit of the oldest transaction behind a position, at least; 0 without a transaction that
        is older than the last mark."""
        found = bisect_right(self._marks, position)
        return now_s - self._times_s[found] if found < len(self._marks) else 0.0
