"""The history of an hour, beside one that keeps everything in a dictionary."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.console.history import MAX_SERIES, STEPS, History

KEPT = 7

VALUES = st.none() | st.floats(0, 1e6, width=32)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 3) | st.integers(1, 3 * KEPT), st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)
    ),
    max_size=40,
)


class Naive:
    """Forgets nothing."""

    def __init__(self) -> None:
        self.values: dict[str, dict[int, float]] = {}
        self.last_step = -1

    def record(self, step: int, values: dict[str, float | None]) -> None:
        self.last_step = step
        for name, value in values.items():
            if value is not None:
                self.values.setdefault(name, {})[step] = value

    def series(self, step: int) -> dict[str, list[float | None]]:
        """All that have had a value among those that were kept when something was recorded last."""
        first = self.last_step - KEPT + 1
        return {
            name: [found.get(each) if each >= first else None for each in range(step - KEPT + 1, step + 1)]
            for name, found in self.values.items()
            if max(found) >= first
        }


@given(RECORDS, st.integers(0, 2 * KEPT))
def test_it_tells_what_was_recorded(records: list[tuple[int, dict[str, float | None]]], later: int) -> None:
    history, naive, step = History(KEPT), Naive(), -1
    for ahead, values in records:
        step += ahead
        history.record(step, values)
        naive.record(step, values)
        assert history.series(step) == naive.series(step)
        assert history.series(step + later) == naive.series(step + later)
        assert history.last_step == step


def test_time_only_goes_on() -> None:
    history = History(KEPT)
    history.record(3, {"a": 1.0})
    with pytest.raises(ValueError, match="step 3 is not behind step 3"):
        history.record(3, {"a": 2.0})


def test_memory_is_bounded_however_many_names_come() -> None:
    history = History()
    for step in range(3 * STEPS):
        history.record(step, {f"lag:{step}": 1.0, "commits": 2.0})
        assert len(history.series(step)) <= MAX_SERIES
    assert history.series(step)["commits"] == [2.0] * STEPS
    assert len(array("f", [math.nan] * STEPS)) * array("f").itemsize == 1440
