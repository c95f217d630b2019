"""Curves, and whether they are flat."""

import pytest

from benchmarks.cluster.curves import Curve, curves_of
from benchmarks.cluster.scenarios import Scenario, idle_clients, log_lengths
from benchmarks.cluster.summary import P50, RATE, Rounds


def flat(median: float, spread: float = 0.0) -> Rounds:
    return Rounds(median, median - spread, median + spread, 3)


def curve(metric: str, *points: Rounds) -> Curve:
    return Curve(Scenario(), "readers", metric, tuple(enumerate(points)))


def test_scenarios_that_differ_in_one_field_are_a_curve() -> None:
    measured = {each: {P50: flat(each.idle_clients)} for each in reversed(idle_clients())}
    (found,) = curves_of(measured)
    assert (found.axis, found.metric) == ("idle_clients", P50)
    assert [x for x, _ in found.points] == [0, 10, 100, 300, 1000]
    assert [each.median for _, each in found.points] == [0, 10, 100, 300, 1000]
    assert found.scenario == idle_clients()[0]


def test_the_rate_of_an_open_loop_is_no_curve() -> None:
    assert curves_of({each: {RATE: flat(1)} for each in idle_clients()}) == []
    assert [each.metric for each in curves_of({each: {RATE: flat(1)} for each in log_lengths(100)})] == [RATE]


def test_two_points_are_no_curve() -> None:
    assert curves_of({Scenario(readers=1): {P50: flat(1)}, Scenario(readers=2): {P50: flat(1)}}) == []


def test_scenarios_that_differ_otherwise_are_different_curves() -> None:
    measured = {Scenario(readers=count, tls=tls): {P50: flat(1)} for count in (1, 2, 3) for tls in (False, True)}
    assert len(curves_of(measured)) == 2


@pytest.mark.parametrize(
    ("last", "is_flat"),
    [(flat(1.0), True), (flat(0.2), True), (flat(1.09), True), (flat(1.5), False), (flat(1.5, 0.5), True)],
)
def test_a_cost_may_grow_within_tolerance_and_spread(last: Rounds, is_flat: bool) -> None:
    assert curve(P50, flat(1.0), flat(9.0), last).flat is is_flat


@pytest.mark.parametrize(
    ("last", "is_flat"), [(flat(2.0), True), (flat(0.91), True), (flat(0.5), False), (flat(0.5, 0.5), True)]
)
def test_a_rate_may_not_fall(last: Rounds, is_flat: bool) -> None:
    assert curve(RATE, flat(1.0), flat(1.0), last).flat is is_flat


def test_growth_is_last_by_first() -> None:
    assert curve(P50, flat(2), flat(9), flat(3)).growth == 1.5
    assert curve(P50, flat(0), flat(9), flat(3)).growth == 1.0
