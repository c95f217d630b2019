"""Percentiles of what was counted, beside those of the durations themselves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.server.partition.latency_counts import COUNT, SHORTEST_S, LatencyCounts, percentiles_s

PARTS = (0.0, 0.5, 0.9, 0.99, 1.0)


@given(st.lists(st.tuples(st.floats(2e-4, 100), st.integers(1, 50)), min_size=1, max_size=50))
def test_percentiles_are_off_by_a_tenth_at_most(durations: list[tuple[float, int]]) -> None:
    counts = LatencyCounts()
    for duration_s, count in durations:
        counts.add(duration_s, count)
    taken = counts.take()
    every = sorted(duration_s for duration_s, count in durations for _ in range(count))
    assert sum(taken) == len(every)
    found = percentiles_s(taken, PARTS)
    assert found is not None
    for part, value in zip(PARTS, found, strict=True):
        true = next(each for place, each in enumerate(every, 1) if place >= part * len(every))
        assert value == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 1e-9, SHORTEST_S, 1e6])
def test_durations_beyond_both_ends_are_counted(duration_s: float) -> None:
    counts = LatencyCounts()
    counts.add(duration_s, 3)
    taken = counts.take()
    assert taken[COUNT - 1 if duration_s > 1 else 0] == 3


def test_what_was_taken_is_gone() -> None:
    counts = LatencyCounts()
    counts.add(0.01, 1)
    assert sum(counts.take()) == 1
    assert percentiles_s(counts.take(), PARTS) is None


def test_steps_ascend() -> None:
    found = [percentiles_s([0] * place + [1] + [0] * (COUNT - place - 1), [0.5]) for place in range(COUNT)]
    values = [each[0] for each in found if each is not None]
    assert len(values) == COUNT
    assert all(left < right for left, right in pairwise(values))
