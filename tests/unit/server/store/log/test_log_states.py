"""The states of a log: every event in every state, and what holds along every course of events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.machine import ImpossibleEventError
from waltz.server.store.log.log_states import FAILING_STATES, LOG, OPEN_STATES, LogEvent, LogState

OF_A_SESSION = {LogState.SETTLING, LogState.SERVING, LogState.DRAINING}


def possible(state: LogState) -> dict[LogEvent, LogState]:
    """The events that can happen in a state, and where they lead."""
    found = {}
    for event in LogEvent:
        try:
            found[event] = LOG.after(state, event)
        except ImpossibleEventError:
            continue
    return found


@pytest.mark.parametrize(("state", "event"), list(itertools.product(LogState, LogEvent)))
def test_every_event_is_possible_where_its_rule_says_so_and_changes_what_it_says(
    state: LogState, event: LogEvent
) -> None:
    runs = state in OF_A_SESSION
    expected = {
        LogEvent.RECOVERED: not runs and state not in OPEN_STATES,
        LogEvent.CONTINUED: not runs and state in OPEN_STATES,
        LogEvent.SETTLED: runs and state not in OPEN_STATES,
        LogEvent.RENEWED: runs and state in OPEN_STATES,
        LogEvent.LOST: runs,
        LogEvent.FAILED: not runs,
        LogEvent.VOIDED: not runs and state in OPEN_STATES,
    }
    after = possible(state).get(event)
    assert (after is not None) == expected[event]
    if after is None:
        return
    opened, shut = event is LogEvent.SETTLED, event is LogEvent.VOIDED
    assert (after in OPEN_STATES) == (opened or (state in OPEN_STATES and not shut))
    begun, ended = event in (LogEvent.RECOVERED, LogEvent.CONTINUED), event is LogEvent.LOST
    assert (after in OF_A_SESSION) == (begun or (runs and not ended))
    assert (after in FAILING_STATES) == (event is LogEvent.FAILED or (state in FAILING_STATES and not begun))


def test_only_a_session_that_serves_is_given_appends_and_only_a_renewal_stops_it() -> None:
    leads_to_draining = {
        (state, event)
        for state in LogState
        for event, after in possible(state).items()
        if after is LogState.DRAINING and state is not after
    }
    assert leads_to_draining == {(LogState.SERVING, LogEvent.RENEWED)}


def test_every_state_is_reached_and_left() -> None:
    reached, new = {LogState.SEEKING}, {LogState.SEEKING}
    while new:
        new = {after for state in new for after in possible(state).values()} - reached
        reached |= new
    assert reached == set(LogState)
    assert all(set(possible(state).values()) - {state} for state in LogState)


@given(st.data())
def test_ids_stand_from_the_end_of_a_recovery_until_they_are_voided(data: st.DataObject) -> None:
    state, stand = LogState.SEEKING, False
    for _ in range(data.draw(st.integers(0, 30))):
        event, state = data.draw(st.sampled_from(sorted(possible(state).items(), key=lambda item: item[0].value)))
        stand = event is LogEvent.SETTLED or (stand and event is not LogEvent.VOIDED)
        assert (state in OPEN_STATES) == stand
