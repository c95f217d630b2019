"""Statistics of latencies and of rounds. Pure."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Metrics = dict[str, float]
"""What one round measured, by name; the unit ends the name, or what it is counted per."""

RATE = "rate_per_s"
P50, P99, P999 = "p50_ms", "p99_ms", "p999_ms"
SHARE = "share_of_lean"
"""The rate as a part of that of the lean pipeline in the same round."""
P50_RATIO = "p50_by_lean"
"""The median latency as a multiple of that of the lean pipeline in the same round."""

_MORE_IS_BETTER = (RATE, SHARE, "fed_per_s")


class Rounds(NamedTuple):
    """A metric over all rounds."""

    median: float
    low: float
    high: float
    rounds: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all are not above; ``ordered`` ascends and is not empty."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_metrics(latencies_s: Iterable[float], prefix: str = "") -> Metrics:
    """Percentiles in milliseconds; nothing of nothing."""
    ordered = sorted(latencies_s)
    if not ordered:
        return {}
    shares = {P50: 0.5, P99: 0.99, P999: 0.999}
    return {prefix + name: percentile(ordered, share) * 1e3 for name, share in shares.items()}


def more_is_better(metric: str) -> bool:
    """Whether a larger number is the better one; of most metrics the smaller one is."""
    return metric in _MORE_IS_BETTER


def over_rounds(rounds: Sequence[Metrics]) -> dict[str, Rounds]:
    """Median and extremes of each metric, of the rounds that have it."""
    values: dict[str, list[float]] = {}
    for measured in rounds:
        for name, value in measured.items():
            values.setdefault(name, []).append(value)
    return {name: Rounds(statistics.median(each), min(each), max(each), len(each)) for name, each in values.items()}


def with_shares(measured: Metrics, lean: Metrics) -> Metrics:
    """The round together with what it is beside the lean pipeline's in the same round.

    The rate of an open loop is given, so there is no share of it.
    """
    shares = {}
    if lean.get(RATE) and RATE in measured and "offered_per_s" not in measured:
        shares[SHARE] = measured[RATE] / lean[RATE]
    if lean.get(P50) and P50 in measured:
        shares[P50_RATIO] = measured[P50] / lean[P50]
    return measured | shares


def turns(contestants: Sequence[str], round_number: int) -> list[str]:
    """The order of a round: forwards and backwards in turn, so that whatever drifts meets all of them alike."""
    return list(contestants) if round_number % 2 == 0 else list(reversed(contestants))
