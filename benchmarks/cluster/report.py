"""The results of a run, and their form as JSON. Pure."""

import json
from typing import Any, NamedTuple

from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import Metrics, Rounds, over_rounds, with_shares

FORMAT = 1
WALTZ, OTHER, LEAN = "waltz", "other", "lean"
"""Contestants: the checkout that the benchmark belongs to, another checkout, and the lean pipeline."""


class ReportError(Exception):
    """A file holds no results that can be read."""


class Result(NamedTuple):
    """What the contestants did in one scenario: the metrics of each round. Rounds of the same index are neighbours."""

    scenario: Scenario
    rounds: dict[str, list[Metrics]]

    def of(self, contestant: str) -> dict[str, Rounds]:
        """A contestant's metrics over all rounds, with shares of the lean pipeline if that took part."""
        measured = self.rounds.get(contestant, [])
        lean = self.rounds.get(LEAN, [])
        if contestant != LEAN and len(lean) == len(measured):
            measured = [with_shares(*pair) for pair in zip(measured, lean, strict=True)]
        return over_rounds(measured)


def with_rounds(result: Result | None, scenario: Scenario, more: dict[str, list[Metrics]]) -> Result:
    """The result (``None``: there is none yet) with the rounds of another start behind its own."""
    before = {} if result is None else result.rounds
    return Result(scenario, {name: [*before.get(name, []), *rounds] for name, rounds in more.items()})


class Report(NamedTuple):
    """A run."""

    machine: dict[str, str]
    """Where, when, and of what."""
    settings: dict[str, float]
    contestants: dict[str, str]
    """What stands behind each name: commit and path."""
    results: list[Result]


def to_json(report: Report) -> str:
    """Text that :func:`from_json` reads."""
    results = [{"scenario": each.scenario._asdict(), "rounds": each.rounds} for each in report.results]
    return json.dumps({"format": FORMAT, **report._asdict(), "results": results}, indent=1) + "\n"


def from_json(text: str) -> Report:
    """The report that was written. Raises :class:`ReportError`."""
    try:
        content: dict[str, Any] = json.loads(text)
        if content.pop("format") != FORMAT:
            raise ReportError(f"its format is not {FORMAT}")
        content["results"] = [Result(Scenario(**result["scenario"]), result["rounds"]) for result in content["results"]]
        return Report(**content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReportError(f"these are no results of a benchmark: {error!r}") from error
