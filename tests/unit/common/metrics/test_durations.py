"""Percentiles and buckets of what was counted, beside those of the durations themselves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.metrics.durations import BOUNDS_S, DurationCounts, percentiles_s
from waltz.common.metrics.registry import DURATION_BOUNDS_S, Histogram

PARTS = (0.0, 0.5, 0.9, 0.99, 1.0)
DURATIONS = st.lists(st.tuples(st.floats(1e-4, 100), st.integers(1, 50)), min_size=1, max_size=50)


def counted(durations: list[tuple[float, int]]) -> DurationCounts:
    counts = DurationCounts(0.0)
    for duration_s, count in durations:
        counts.add(duration_s, count, 0.0)
    return counts


@given(DURATIONS)
def test_percentiles_are_off_by_a_tenth_at_most(durations: list[tuple[float, int]]) -> None:
    counts = counted(durations)
    every = sorted(duration_s for duration_s, count in durations for _ in range(count))
    assert sum(counts.counts().values()) == len(every)
    found = percentiles_s(counts.counts(), PARTS)
    assert found is not None
    for part, value in zip(PARTS, found, strict=True):
        true = next(each for place, each in enumerate(every, 1) if place >= part * len(every))
        assert value == pytest.approx(true, rel=0.1)


@given(DURATIONS)
def test_statistics_are_off_by_a_tenth_at_most_and_the_mean_is_exact(durations: list[tuple[float, int]]) -> None:
    snapshot = counted(durations).snapshot(60.0)
    every = sorted(duration_s for duration_s, count in durations for _ in range(count))
    assert snapshot.mean == pytest.approx(sum(every) / len(every))
    assert snapshot.minimum == pytest.approx(every[0], rel=0.1)
    assert snapshot.maximum == pytest.approx(every[-1], rel=0.1)
    assert snapshot.deviation <= every[-1] - every[0] + 1e-9


@given(st.lists(st.tuples(st.one_of(st.floats(0, 200), st.sampled_from(BOUNDS_S)), st.integers(1, 50))))
def test_a_histogram_that_includes_them_is_exact(durations: list[tuple[float, int]]) -> None:
    including, observing, counts = Histogram(DURATION_BOUNDS_S), Histogram(DURATION_BOUNDS_S), counted(durations)
    for duration_s, count in durations:
        observing.observe(duration_s, count)
    including.include(counts)
    included = including.read()
    including.exclude(counts)
    including.exclude(counts)
    counts.add(1.0, 1, 0.0)
    assert included == including.read()
    by_bucket, total = included
    assert by_bucket == observing.counts
    assert total == pytest.approx(observing.total)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 1e-9, BOUNDS_S[0], 1e6])
def test_durations_beyond_both_ends_are_counted(duration_s: float) -> None:
    counts = counted([(duration_s, 3)]).counts()
    assert counts == {len(BOUNDS_S) if duration_s > 1 else 0: 3}


def test_nothing_was_counted() -> None:
    assert percentiles_s({}, PARTS) is None
    assert percentiles_s({7: 0}, PARTS) is None
    assert DurationCounts(0.0).snapshot(1.0).values == []


def test_steps_ascend_by_less_than_a_tenth() -> None:
    assert all(low < high < 1.1 * low for low, high in pairwise(BOUNDS_S))
    assert set(DURATION_BOUNDS_S) <= set(BOUNDS_S)
    found = [percentiles_s({place: 1}, [0.5]) for place in range(len(BOUNDS_S) + 1)]
    values = [each[0] for each in found if each is not None]
    assert len(values) == len(BOUNDS_S) + 1
    assert all(left <= right for left, right in pairwise(values))
