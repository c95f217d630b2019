"""What a client may do with a write session, step by step and against a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.partition.write_session import SESSION, ClientWriteSession, SessionEvent, SessionState
from waltz.client.errors import SessionFencedError, SessionNotSupportedError
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    HeartbeatOption,
    HeartbeatResponse,
    HeartbeatState,
    SessionFlag,
)

GET, EXCLUSIVE = HeartbeatOption.GET_SESSION, HeartbeatOption.EXCLUSIVE


def new(*, exclusive: bool = False, may_go_without: bool = False) -> ClientWriteSession:
    return ClientWriteSession(1, enabled=True, exclusive=exclusive, may_go_without=may_go_without)


def answer(number: int, state: HeartbeatState = HeartbeatState.OK) -> HeartbeatResponse:
    return HeartbeatResponse(bytes(16), state, -1, number, SessionFlag(0))


def test_without_sessions_nothing_is_asked_and_everything_goes() -> None:
    session = ClientWriteSession(1, enabled=False, exclusive=True, may_go_without=False)
    assert session.mounted(5) is None
    assert session.mounted(4) is None
    assert session.sends
    assert session.carried == NO_WRITE_SESSION
    assert session.refusal is None


def test_appends_wait_for_the_first_number_and_carry_it() -> None:
    session = new()
    assert (session.sends, session.refusal) == (False, None)
    assert session.mounted(5) == GET
    assert (session.sends, session.carried) == (False, NO_WRITE_SESSION)
    assert session.answered(answer(6))
    assert (session.sends, session.carried) == (True, 6)


def test_a_server_with_an_older_number_is_not_believed() -> None:
    session = new()
    session.mounted(5)
    session.answered(answer(6))
    session.mounted(5)
    assert not session.answered(answer(5))
    assert session.state is SessionState.ASKING
    assert not session.fenced(5)
    assert session.state is SessionState.ASKING
    session.renew(exclusive=False)
    assert not session.answered(answer(5))
    assert session.answered(answer(6))
    assert session.carried == 6


def test_what_a_renewal_has_brought_is_known_whatever_comes_then() -> None:
    session = new()
    session.mounted(5)
    session.answered(answer(6))
    session.renew(exclusive=False)
    assert session.renewed == NO_WRITE_SESSION
    session.answered(answer(7))
    session.mounted(5)
    assert (session.renewing, session.renewed) == (False, 7)
    session.renew(exclusive=False)
    session.answered(answer(-1, HeartbeatState.HELD_BY_ANOTHER))
    assert (session.renewing, session.renewed) == (False, NO_WRITE_SESSION)


def test_a_renewal_that_nobody_waits_for_takes_no_number() -> None:
    session = new()
    session.mounted(5)
    session.answered(answer(6))
    session.renew(exclusive=False)
    session.end_renewal()
    session.answered(answer(7))
    assert session.state is SessionState.FENCED


def test_the_same_number_after_another_mount_goes_on_and_another_one_does_not() -> None:
    session = new()
    session.mounted(5)
    session.answered(answer(6))
    session.mounted(5)
    assert not session.sends
    session.answered(answer(6))
    assert session.carried == 6
    session.mounted(5)
    session.answered(answer(7))
    assert isinstance(session.refusal, SessionFencedError)
    session.mounted(5)
    session.answered(answer(6))
    assert isinstance(session.refusal, SessionFencedError)


def test_a_refused_append_ends_it_until_the_application_acts() -> None:
    session = new()
    session.mounted(5)
    session.answered(answer(6))
    session.fenced(7)
    assert isinstance(session.refusal, SessionFencedError)
    session.answered(answer(7))
    assert not session.sends
    session.renew(exclusive=False)
    assert session.question == GET
    session.answered(answer(7))
    assert session.carried == 7
    session.fenced(7)
    assert session.carried == 7, "an append of the number before was refused"
    session.fenced(8)
    session.adopt(9)
    assert session.carried == 9


def test_exclusiveness_is_asked_for_once() -> None:
    session = new(exclusive=True)
    assert session.mounted(5) == GET | EXCLUSIVE
    session.answered(answer(6))
    assert session.mounted(5) == GET
    session.answered(answer(-1, HeartbeatState.HELD_BY_ANOTHER))
    assert isinstance(session.refusal, SessionFencedError)
    session.renew(exclusive=True)
    assert session.question == GET | EXCLUSIVE


def test_a_renewal_that_nobody_waits_for_asks_for_no_exclusiveness() -> None:
    session = new(exclusive=True)
    session.mounted(5)
    session.answered(answer(6))
    session.mounted(5)
    session.answered(answer(7))
    session.renew(exclusive=True)
    session.end_renewal()
    assert session.mounted(5) == GET


def test_the_first_session_is_exclusive_whatever_was_given_up_meanwhile() -> None:
    session = new(exclusive=True)
    session.renew(exclusive=True)
    session.end_renewal()
    assert session.mounted(5) == GET | EXCLUSIVE


def test_a_server_that_is_not_ready_is_asked_again() -> None:
    session = new()
    session.mounted(5)
    assert not session.answered(answer(-1, HeartbeatState.NOT_READY))
    assert session.state is SessionState.ASKING


@pytest.mark.parametrize("version", range(5))
def test_a_server_without_sessions_is_refused_or_served_as_configured(version: int) -> None:
    strict, lenient = new(), new(may_go_without=True)
    for session in (strict, lenient):
        session.mounted(5)
        session.answered(answer(6))
        assert session.mounted(version) is None
        assert session.carried == (NO_WRITE_SESSION if session.state is not SessionState.HELD else 6)
    assert isinstance(strict.refusal, SessionNotSupportedError)
    assert lenient.sends
    for session in (strict, lenient):
        assert session.mounted(5) == GET
        session.answered(answer(9))
        assert isinstance(session.refusal, SessionFencedError)


@given(st.lists(st.tuples(st.sampled_from(["mount", "old", "answer", "fenced"]), st.integers(1, 3)), max_size=20))
def test_no_number_is_ever_taken_after_the_first_unless_the_application_asks(steps: list[tuple[str, int]]) -> None:
    session = new()
    first = None
    for step, number in steps:
        if step == "mount":
            session.mounted(5)
        elif step == "old":
            session.mounted(4)
        elif step == "answer":
            session.answered(answer(number))
        else:
            session.fenced(number)
        if session.carried != NO_WRITE_SESSION:
            first = first or session.carried
            assert session.carried == first


def test_every_pair_of_a_state_and_an_event_is_decided() -> None:
    """Without sessions only appends can be refused: nothing is asked, and nothing told."""
    decided = SESSION.steps.keys() | SESSION.ignored
    assert decided == {
        (state, event)
        for state in SessionState
        for event in SessionEvent
        if state is not SessionState.OFF or event is SessionEvent.REFUSED
    }


def test_only_the_application_leads_out_of_a_fenced_session() -> None:
    leading = {event for (state, event) in SESSION.steps if state is SessionState.FENCED}
    assert leading == {SessionEvent.TAKEN, SessionEvent.RENEWED_WITHOUT, SessionEvent.RENEWED_PLAIN}
