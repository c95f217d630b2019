"""When a session counts as ended without a word of the ensemble."""

import pytest

from waltz.common.zk.session_clock import SessionClock


def test_a_session_ends_a_time_out_after_the_last_question_that_was_answered_was_sent() -> None:
    clock = SessionClock(30, now_s=100)
    assert not clock.is_over(129.9)
    assert clock.is_over(130)
    clock.answered(110)
    assert not clock.is_over(139.9)
    clock.answered(105)
    assert not clock.is_over(139.9), "an answer that overtakes another one takes nothing back"
    assert clock.is_over(140)
    clock.answered(139)
    assert not clock.is_over(140), "it was alive all the time"


def test_questions_are_asked_often_enough() -> None:
    clock = SessionClock(30, now_s=100)
    assert not clock.is_to_ask(104)
    assert clock.is_to_ask(105)
    clock.asked(105)
    assert not clock.is_to_ask(109)
    assert clock.is_to_ask(110), "whether or not it was answered"


@pytest.mark.parametrize(("now_s", "pause_s"), [(100, 5), (127, 3), (129.5, 0.5), (130, 5), (200, 5)])
def test_nobody_is_told_late(now_s: float, pause_s: float) -> None:
    assert SessionClock(30, now_s=100).next_look_s(now_s) == pause_s
