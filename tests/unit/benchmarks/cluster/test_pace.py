"""When transactions are due."""

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster.pace import Pace, Ticker


@given(st.integers(1, 100_000), st.lists(st.floats(0, 0.01), max_size=20))
def test_everything_is_due_once_and_in_time(rate: int, pauses_s: list[float]) -> None:
    pace, now_s, given_out = Pace(rate, start_s=0.0), 0.0, []
    for pause_s in pauses_s:
        now_s += pause_s
        given_out += pace.due(now_s)
        assert len(given_out) == int(now_s * rate) + 1
    assert given_out == pytest.approx([float(Fraction(number, rate)) for number in range(len(given_out))])


def test_a_clock_that_stands_makes_nothing_due() -> None:
    pace = Pace(10, start_s=5.0)
    assert pace.due(5.0) == [5.0]
    assert pace.due(5.0) == []
    assert pace.due(5.25) == [pytest.approx(5.1), pytest.approx(5.2)]


async def test_a_ticker_ticks_until_it_is_closed() -> None:
    ticks = 0
    third = asyncio.Event()

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            third.set()
            ticker.close()

    ticker = Ticker(0.0002, tick)
    await third.wait()
    assert ticks == 3
