"""Two runs side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster.comparison import Difference, differences, measured_by, missing, number, rows
from benchmarks.cluster.report import OTHER, WALTZ, Report, Result
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import P50, RATE, Rounds, over_rounds

ROUNDS = st.lists(st.floats(1, 1e6), min_size=2, max_size=5)


def rounds_of(values: list[float]) -> Rounds:
    return over_rounds([{"x": value} for value in values])["x"]


@given(ROUNDS, ROUNDS, st.sampled_from([RATE, P50]))
def test_beyond_the_spread_every_round_lies_beyond_every_other(
    before: list[float], after: list[float], metric: str
) -> None:
    verdict = Difference(Scenario(), metric, rounds_of(before), rounds_of(after)).verdict
    more = all(new > old for new in after for old in before)
    less = all(new < old for new in after for old in before)
    better, worse = (more, less) if metric == RATE else (less, more)
    assert verdict == ("better" if better else "worse" if worse else "")


def test_single_rounds_have_no_spread() -> None:
    assert Difference(Scenario(), RATE, rounds_of([1]), rounds_of([9])).verdict == ""


def test_a_difference_in_percent() -> None:
    assert Difference(Scenario(), RATE, rounds_of([100]), rounds_of([125])).percent == pytest.approx(25)
    assert Difference(Scenario(), RATE, rounds_of([0]), rounds_of([5])).percent is None


def test_only_what_both_have_is_compared() -> None:
    one, two = rounds_of([1]), rounds_of([2])
    first, second, third = Scenario(), Scenario(tls=True), Scenario(partitions=2)
    before = {first: {RATE: one, P50: one, "cpu_us.server": one}, second: {RATE: one}}
    after = {first: {RATE: two, "cpu_us.server": two}, third: {RATE: two}}
    assert differences(before, after, ["cpu_us.", P50]) == [Difference(first, "cpu_us.server", one, two)]
    assert missing(before, after) == [second, third]


def test_a_report_has_the_scenarios_of_each_contestant() -> None:
    results = [Result(Scenario(), {WALTZ: [{RATE: 1}], OTHER: []})]
    report = Report({}, {}, {}, results)
    assert measured_by(report, WALTZ) == {Scenario(): {RATE: Rounds(1, 1, 1, 1)}}
    assert measured_by(report, OTHER) == {}


def test_rows_show_medians_and_spread() -> None:
    difference = Difference(Scenario(), RATE, Rounds(1000, 900, 1100, 3), Rounds(2000, 1900, 2100, 3))
    ((label, *cells),) = rows([difference])
    assert label == Scenario().label
    assert cells == [RATE, "1,000 (900 to 1,100)", "2,000 (1,900 to 2,100)", "+100.0 %", "better"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0.00"), (12345.6, "12,346"), (12.34, "12.3"), (1.234, "1.23"), (-0.5, "-0.50"), (1e-5, "1.0e-05")],
)
def test_numbers_have_about_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown
