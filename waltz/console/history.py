"""The last values of named series, one for each step of time, in bounded memory. Pure.

A series takes ``STEPS`` numbers of four bytes: 1,440 bytes, and about 150 for its name and places. A partition has
three and one for each of its replicas: below 10 kB with three replicas, so that 1,000 partitions take below 10 MB.
"""

import math
from array import array
from collections.abc import Mapping

STEP_S = 10.0
STEPS = 360
"""One hour."""
MAX_SERIES = 16
"""Limit of series; further ones, such as those of a partition whose replicas move all the time, are not kept."""

_GAP = math.nan


class History:
    """Series of one thing. Values are kept with seven digits."""

    def __init__(self, steps: int = STEPS) -> None:
        self.last_step = -1
        """The last one recorded."""
        self.steps = steps
        """Number of steps that are kept."""
        self._values: dict[str, array[float]] = {}
        self._written: dict[str, int] = {}

    def record(self, step: int, values: Mapping[str, float | None]) -> None:
        """Record the values of a step, which is later than all before; a missing value, or None, is a gap."""
        if step <= self.last_step:
            raise ValueError(f"step {step} is not behind step {self.last_step}")
        self._forget(step)
        first_missed = max(self.last_step + 1, step - self.steps + 1)
        for name in values.keys() - self._values.keys():
            if values[name] is not None and len(self._values) < MAX_SERIES:
                self._values[name] = array("f", [_GAP] * self.steps)
        for name, kept in self._values.items():
            for missed in range(first_missed, step):
                kept[missed % self.steps] = _GAP
            value = values.get(name)
            kept[step % self.steps] = _GAP if value is None else value
            if value is not None:
                self._written[name] = step
        self.last_step = step

    def _forget(self, step: int) -> None:
        """Drop the series whose values are all older than the history."""
        for name in [name for name, written in self._written.items() if step - written >= self.steps]:
            del self._values[name], self._written[name]

    def series(self, step: int) -> dict[str, list[float | None]]:
        """Every series up to ``step``, which is not before the last recorded step; the oldest value comes first."""
        first = step - self.steps + 1
        known = range(max(first, 0), min(self.last_step, step) + 1)
        found = {}
        for name, kept in self._values.items():
            values: list[float | None] = [None] * self.steps
            for each in known:
                value = kept[each % self.steps]
                if each > self.last_step - self.steps and not math.isnan(value):
                    values[each - first] = value
            found[name] = values
        return found
