"""How many appends took how long, counted so that it costs next to nothing, for percentiles of short spans. Pure."""

import math
from collections.abc import Sequence

SHORTEST_S = 2.0**-14
"""About 61 microseconds; what is shorter counts as that."""
PER_DOUBLING = 4
"""Steps in which durations double: a percentile is off by a tenth at most."""
COUNT = PER_DOUBLING * 21
"""The last one also takes all that is longer: beyond two minutes."""

_SHIFT = 14 * PER_DOUBLING


class LatencyCounts:
    """Counts since somebody has taken them."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * COUNT

    def add(self, duration_s: float, count: int) -> None:
        """``count`` appends took ``duration_s``."""
        if duration_s <= SHORTEST_S:
            self._counts[0] += count
        else:
            self._counts[min(int(math.log2(duration_s) * PER_DOUBLING + _SHIFT), COUNT - 1)] += count

    def take(self) -> Sequence[int]:
        """What was counted since the last call."""
        taken, self._counts = self._counts, [0] * COUNT
        return taken


def percentiles_s(counts: Sequence[int], parts: Sequence[float]) -> list[float] | None:
    """The durations below which each of the ascending ``parts`` (0 to 1) lie; None if nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    found: list[float] = []
    below = 0
    for step, count in enumerate(counts):
        below += count
        while count and len(found) < len(parts) and below >= parts[len(found)] * total:
            found.append(SHORTEST_S * 2 ** ((step + 0.5) / PER_DOUBLING))
    return found
