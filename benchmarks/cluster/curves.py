"""Costs over something that should not matter: the length of the log, what is idle, how many read. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import P50, P99, RATE, Rounds, more_is_better

AXES = {
    "log_length": "transactions in the log",
    "idle_partitions": "idle partitions",
    "idle_clients": "idle clients",
    "readers": "readers at the tip",
}
"""Fields of a scenario over which there are curves."""

METRICS = (RATE, P50, P99, "tip_p50_ms", "cpu_us.client", "cpu_us.server", "cpu_us.storage", "resident_mib.server")
TOLERANCE = 0.1
"""What differs less than this is flat, however small the spread is."""

MIN_POINTS = 3


class Curve(NamedTuple):
    """A metric over an axis; points ascend."""

    scenario: Scenario
    """That of the first point; the others differ from it in the axis."""
    axis: str
    metric: str
    points: tuple[tuple[int, Rounds], ...]

    @property
    def growth(self) -> float:
        """The last median as a multiple of the first; 1 where the first is 0."""
        first, last = self.points[0][1].median, self.points[-1][1].median
        return last / first if first else 1.0

    @property
    def flat(self) -> bool:
        """Whether the last point is no worse than the first, beyond tolerance and beyond the spread of the rounds."""
        first, last = self.points[0][1], self.points[-1][1]
        if more_is_better(self.metric):
            return last.median >= first.median * (1 - TOLERANCE) or last.high >= first.low
        return last.median <= first.median * (1 + TOLERANCE) or last.low <= first.high


def _without(scenario: Scenario, axis: str) -> Scenario:
    return Scenario(**(scenario._asdict() | {axis: 0}))


def curves_of(measured: Mapping[Scenario, Mapping[str, Rounds]]) -> list[Curve]:
    """A curve for each metric and each group of scenarios that differ in an axis only."""
    curves = []
    for axis in AXES:
        groups: dict[Scenario, list[Scenario]] = {}
        for scenario in sorted(measured, key=lambda each: int(getattr(each, axis))):
            groups.setdefault(_without(scenario, axis), []).append(scenario)
        for common, scenarios in groups.items():
            for metric in METRICS:
                if metric == RATE and common.rate:  # it is given
                    continue
                points = [
                    (getattr(each, axis), measured[each][metric]) for each in scenarios if metric in measured[each]
                ]
                if len(points) >= MIN_POINTS:
                    curves.append(Curve(scenarios[0], axis, metric, tuple(points)))
    return curves
