import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.common.net.backoff import Backoff


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0, random.Random(0), jitter=0)
    assert [backoff.next_delay_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next_delay_s() == 0.1


def test_the_maximum_limits_the_first_delay_as_well() -> None:
    backoff = Backoff(5, 2, random.Random(0), jitter=0)
    assert [backoff.next_delay_s(), backoff.next_delay_s()] == [2, 2]
    backoff.reset()
    assert backoff.next_delay_s() == 2


@settings(deadline=None)
@given(st.floats(0.001, 10), st.floats(0.001, 100), st.floats(0, 1), st.integers())
def test_jitter_only_shortens(initial_s: float, maximum_s: float, jitter: float, seed: int) -> None:
    exact = Backoff(initial_s, maximum_s, random.Random(seed), jitter=0)
    jittered = Backoff(initial_s, maximum_s, random.Random(seed), jitter=jitter)
    for _ in range(20):
        full_s = exact.next_delay_s()
        assert full_s * (1 - jitter) <= jittered.next_delay_s() <= full_s <= maximum_s


def test_the_same_seed_gives_the_same_delays() -> None:
    first, second = Backoff(1, 60, random.Random(7)), Backoff(1, 60, random.Random(7))
    delays = [first.next_delay_s() for _ in range(10)]
    assert delays == [second.next_delay_s() for _ in range(10)]
    assert delays != [Backoff(1, 60, random.Random(8)).next_delay_s() for _ in range(10)]


@pytest.mark.parametrize(("initial_s", "maximum_s", "jitter"), [(0, 1, 0.5), (1, 0, 0.5), (1, 1, 1.5), (1, 1, -0.1)])
def test_impossible_values(initial_s: float, maximum_s: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="impossible back-off"):
        Backoff(initial_s, maximum_s, random.Random(0), jitter=jitter)
