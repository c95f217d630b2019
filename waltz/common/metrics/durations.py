"""Counts durations by size; percentiles, buckets of histograms and statistics share the counts. Pure functions."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


def _bounds_s() -> tuple[float, ...]:
    bounds = [
        float(f"{low}e{power}") * (high / low) ** (step / steps)
        for power in range(-4, 2)
        for low, high, steps in ((1.0, 2.5, 10), (2.5, 5.0, 8), (5.0, 10.0, 8))
        for step in range(steps)
    ]
    return (*bounds, 100.0)


BOUNDS_S = _bounds_s()
"""Upper bounds of all steps but the last, from 0.1 ms to 100 s. Neighbours differ by less than 10 %, so a percentile is
off by less than 10 %; the bounds of histograms are among them, so buckets are exact."""

_ALPHA = 0.015
_RESCALE_S = 3600.0
_NEGLIGIBLE = 1e-6
"""Share of the weight below which a step is left out: a rare long duration is forgotten after minutes of load."""


class Snapshot(NamedTuple):
    """Statistics of durations; values in seconds, sorted."""

    values: list[float]
    """The mean of each step that has samples."""
    cumulated: list[float]
    """The weight below each value; weights add up to 1."""
    mean: float
    deviation: float

    @property
    def minimum(self) -> float:
        """The smallest value, 0 without samples."""
        return self.values[0] if self.values else 0.0

    @property
    def maximum(self) -> float:
        """The largest value, 0 without samples."""
        return self.values[-1] if self.values else 0.0

    def quantile(self, part: float) -> float:
        """The value below which ``part`` (0 to 1) of the weight lies."""
        if not self.values:
            return 0.0
        low, high = 0, len(self.values)
        while low < high:  # find the last value whose cumulated weight does not exceed the part
            middle = (low + high) // 2
            if self.cumulated[middle] > part:
                high = middle
            else:
                low = middle + 1
        return self.values[max(low - 1, 0)]


class _Step:
    """The durations of one step."""

    __slots__ = ("count", "total_s", "weight", "weighted_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.weight = 0.0
        self.weighted_s = 0.0


class DurationCounts:
    """Counts since the beginning, and weighted counts in which the last five minutes prevail."""

    __slots__ = ("_landmark_s", "_steps")

    def __init__(self, now_s: float) -> None:
        self._steps: dict[int, _Step] = {}
        self._landmark_s = now_s

    def add(self, duration_s: float, count: int, now_s: float) -> None:
        """Count ``count`` events that ended at ``now_s`` and took ``duration_s`` each."""
        if now_s - self._landmark_s >= _RESCALE_S:
            self._rescale(now_s)
        place = bisect_left(BOUNDS_S, duration_s)
        step = self._steps.get(place)
        if step is None:
            step = self._steps[place] = _Step()
        weight = count * math.exp(_ALPHA * (now_s - self._landmark_s))
        step.count += count
        step.total_s += count * duration_s
        step.weight += weight
        step.weighted_s += weight * duration_s

    @property
    def total_s(self) -> float:
        """The sum of all durations."""
        return sum(step.total_s for step in list(self._steps.values()))

    def counts(self) -> dict[int, int]:
        """Events since the beginning, by the index of their step in :data:`BOUNDS_S`; without empty steps."""
        return {place: step.count for place, step in list(self._steps.items())}

    def snapshot(self, now_s: float) -> Snapshot:
        """Statistics of the last few minutes."""
        if now_s - self._landmark_s >= _RESCALE_S:
            self._rescale(now_s)
        steps = [step for _, step in sorted(self._steps.items())]
        total = sum(step.weight for step in steps)
        kept = [step for step in steps if step.weight > total * _NEGLIGIBLE]
        total = sum(step.weight for step in kept)
        values = [step.weighted_s / step.weight for step in kept]
        weights = [step.weight / total for step in kept]
        mean = sum(value * weight for value, weight in zip(values, weights, strict=True))
        variance = sum(weight * (value - mean) ** 2 for value, weight in zip(values, weights, strict=True))
        cumulated = list(accumulate(weights, initial=0.0))[:-1]
        return Snapshot(values, cumulated, mean, math.sqrt(variance))

    def _rescale(self, now_s: float) -> None:
        """Move the landmark, so that weights stay representable; steps without weight are dropped."""
        factor = math.exp(-_ALPHA * (now_s - self._landmark_s))
        for step in list(self._steps.values()):
            kept = factor if step.weight * factor > 1e-200 else 0.0
            step.weight *= kept
            step.weighted_s *= kept
        self._landmark_s = now_s


def percentiles_s(counts: Mapping[int, int], parts: Sequence[float]) -> list[float] | None:
    """The durations below which each of the ascending ``parts`` (0 to 1) of :meth:`DurationCounts.counts` lie.

    None if nothing was counted.
    """
    total = sum(counts.values())
    if not total:
        return None
    found: list[float] = []
    below = 0
    for place, count in sorted(counts.items()):
        below += count
        while count and len(found) < len(parts) and below >= parts[len(found)] * total:
            found.append(_middle_s(place))
    return found


def _middle_s(place: int) -> float:
    if place == 0:
        return BOUNDS_S[0]
    if place == len(BOUNDS_S):
        return BOUNDS_S[-1]
    return math.sqrt(BOUNDS_S[place - 1] * BOUNDS_S[place])
