"""The last values of named series, one for each step of time, in bounded memory. Pure.

A series takes ``STEPS`` numbers of four bytes: 1,440 bytes, and about 150 for its name and places. A partition has
three series, and one for each replica: less than 10 kB with three replicas. So 1,000 partitions take less than 10 MB.
"""

import math
from array import array
from collections.abc import Mapping

STEP_S = 10.0
STEPS = 360
"""Number of steps in one hour."""
MAX_SERIES = 16
"""Maximum number of series. More series, such as those of a partition whose replicas move often, are not kept."""

_GAP = math.nan


class History:
    """The series of one partition or of the server. Values have seven digits."""

    def __init__(self, steps: int = STEPS) -> None:
        self.last_step = -1
        """The last recorded step; -1 before the first."""
        self.steps = steps
        """Number of kept steps."""
        self._values: dict[str, array[float]] = {}
        self._written: dict[str, int] = {}

    def record(self, step: int, values: Mapping[str, float | None]) -> None:
        """Record the values of a step. A missing value, or ``None``, is a gap.

        Raises:
            ValueError: The step is not later than the last recorded one.
        """
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
        """Drop series whose values are all older than the history."""
        for name in [name for name, written in self._written.items() if step - written >= self.steps]:
            del self._values[name], self._written[name]

    def series(self, step: int) -> dict[str, list[float | None]]:
        """All series up to ``step``, the oldest value first. ``step`` must not be before the last recorded one."""
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
