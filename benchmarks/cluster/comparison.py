"""Two runs, or two contestants of one, side by side. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.cluster.report import Report
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import Rounds, more_is_better

BEYOND_BETTER, BEYOND_WORSE, WITHIN = "better", "worse", ""


class Difference(NamedTuple):
    """A metric before and after."""

    scenario: Scenario
    metric: str
    before: Rounds
    after: Rounds

    @property
    def percent(self) -> float | None:
        """How much the median grew; ``None`` when it was 0."""
        return (self.after.median / self.before.median - 1) * 100 if self.before.median else None

    @property
    def verdict(self) -> str:
        """Whether it is better or worse beyond the spread: every round of one lies beyond every round of the other.

        Of single rounds nothing is known that could be called a spread.
        """
        if min(self.before.rounds, self.after.rounds) < 2:
            return WITHIN
        if self.after.low > self.before.high:
            return BEYOND_BETTER if more_is_better(self.metric) else BEYOND_WORSE
        if self.after.high < self.before.low:
            return BEYOND_WORSE if more_is_better(self.metric) else BEYOND_BETTER
        return WITHIN


Measured = Mapping[Scenario, Mapping[str, Rounds]]


def measured_by(report: Report, contestant: str) -> Measured:
    """What a contestant did in each scenario."""
    return {result.scenario: metrics for result in report.results if (metrics := result.of(contestant))}


def differences(before: Measured, after: Measured, metrics: Sequence[str]) -> list[Difference]:
    """Of every scenario that both have, the metrics (those that begin with one of ``metrics``) that both have."""
    return [
        Difference(scenario, name, old[name], new[name])
        for scenario, old in before.items()
        if (new := after.get(scenario)) is not None
        for name in old
        if name in new and name.startswith(tuple(metrics))
    ]


def missing(before: Measured, after: Measured) -> list[Scenario]:
    """Scenarios that only one of them has."""
    return [*(each for each in before if each not in after), *(each for each in after if each not in before)]


def rows(compared: Iterable[Difference]) -> list[list[str]]:
    """Cells of a table: scenario, metric, before, after, difference, verdict."""
    return [
        [
            each.scenario.label,
            each.metric,
            _spread(each.before),
            _spread(each.after),
            "" if each.percent is None else f"{each.percent:+.1f} %",
            each.verdict,
        ]
        for each in compared
    ]


def _spread(rounds: Rounds) -> str:
    return f"{number(rounds.median)} ({number(rounds.low)} to {number(rounds.high)})"


def number(value: float) -> str:
    """Three significant digits, or all of the integer part."""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
