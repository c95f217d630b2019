"""Statistics against naive models."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster.summary import (
    P50,
    P50_RATIO,
    P99,
    P999,
    RATE,
    SHARE,
    Rounds,
    latency_metrics,
    over_rounds,
    percentile,
    turns,
    with_shares,
)

VALUES = st.lists(st.floats(0, 1e6), min_size=1)


@given(VALUES, st.sampled_from([0.01, 0.5, 0.99, 0.999, 1.0]))
def test_percentile_is_the_smallest_value_that_enough_are_not_above(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    enough = [value for value in values if sum(each <= value for each in values) >= share * len(values)]
    assert found == min(enough)


@given(VALUES)
def test_latencies_are_told_in_milliseconds(latencies_s: list[float]) -> None:
    metrics = latency_metrics(latencies_s, "tip_")
    assert set(metrics) == {f"tip_{name}" for name in (P50, P99, P999)}
    assert metrics[f"tip_{P50}"] <= metrics[f"tip_{P99}"] <= metrics[f"tip_{P999}"] == max(latencies_s) * 1e3 or (
        len(latencies_s) > 1000
    )


def test_of_no_latencies_nothing_is_told() -> None:
    assert latency_metrics([]) == {}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(-1e6, 1e6)), max_size=7))
def test_rounds_that_lack_a_metric_do_not_count_for_it(rounds: list[dict[str, float]]) -> None:
    found = over_rounds(rounds)
    assert set(found) == {name for each in rounds for name in each}
    for name, metric in found.items():
        values = [each[name] for each in rounds if name in each]
        assert metric == Rounds(statistics.median(values), min(values), max(values), len(values))


def test_shares_are_of_the_lean_pipeline_in_the_same_round() -> None:
    measured = with_shares({RATE: 50, P50: 3, "lag": 1}, {RATE: 200, P50: 2})
    assert measured == {RATE: 50, P50: 3, "lag": 1, SHARE: 0.25, P50_RATIO: 1.5}


def test_there_is_no_share_of_a_rate_that_was_given() -> None:
    assert SHARE not in with_shares({RATE: 50, "offered_per_s": 50}, {RATE: 50})


@pytest.mark.parametrize("lean", [{}, {RATE: 0.0, P50: 0.0}])
def test_there_is_no_share_of_nothing(lean: dict[str, float]) -> None:
    assert with_shares({RATE: 50, P50: 3}, lean) == {RATE: 50, P50: 3}


def test_contestants_take_turns_forwards_and_backwards() -> None:
    assert [turns("ab", number) for number in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
