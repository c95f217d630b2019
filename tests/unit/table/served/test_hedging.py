"""The delay is the 95th of a hundred recent answers, and second requests are a tenth of all."""

import math

from hypothesis import given
from hypothesis import strategies as st

from waltz.table.served.hedging import ENOUGH, MAX_DELAY_S, MIN_DELAY_S, MOST_SAVED, SHARE, WINDOW, Hedging


@given(st.lists(st.floats(0, 3), max_size=3 * WINDOW))
def test_the_delay_is_that_of_recent_answers(durations_s: list[float]) -> None:
    hedging = Hedging()
    for duration_s in durations_s:
        hedging.answered(duration_s)
    if len(durations_s) < ENOUGH:
        assert hedging.delay_s == MAX_DELAY_S
        return
    known = durations_s[: len(durations_s) - len(durations_s) % (ENOUGH // 2)][-WINDOW:]
    within = sum(each <= hedging.delay_s for each in known)
    assert MIN_DELAY_S <= hedging.delay_s <= MAX_DELAY_S
    assert within >= math.floor(0.95 * len(known)) or hedging.delay_s == MAX_DELAY_S
    assert hedging.delay_s in (*known, MIN_DELAY_S, MAX_DELAY_S)


@given(st.lists(st.booleans(), max_size=500))
def test_second_requests_are_a_share_of_all_reads(late: list[bool]) -> None:
    hedging, sent = Hedging(), 0
    for number, each in enumerate(late, 1):
        hedging.began()
        sent += each and hedging.may()
        assert sent <= 1 + SHARE * number + 1e-6
    for _ in range(1000):
        hedging.began()
    assert sum(hedging.may() for _ in range(100)) == MOST_SAVED
