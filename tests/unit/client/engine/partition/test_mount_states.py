"""The table of the states of a mount: complete, consistent, and as the documentation shows it."""

import itertools

import pytest

from tests.unit.client.engine import mount_page
from waltz.client.engine.partition.mount_states import (
    CONNECTED_STATES,
    IGNORED,
    SESSION_STATES,
    STEPS,
    Action,
    Event,
    State,
    Step,
    next_step,
)

OF_A_SESSION = {
    Event.ANSWER_READY,
    Event.ANSWER_NOT_READY,
    Event.ANSWER_AHEAD,
    Event.CLOSED,
    Event.MARK,
    Event.NO_MARK,
    Event.CAUGHT_UP,
    Event.FEED_ENDED,
}
"""What a server says, rightly or not; listened to if it bears the id of the mount request that counts."""

IMPOSSIBLE = {
    Event.ASSIGN: set(State) - {State.UNASSIGNED},  # the server before is left first
    Event.CONNECT: set(State) - {State.UNCONNECTED},  # a link has one connection after the other
    Event.LOSE: {State.UNASSIGNED},
    Event.APPLIED: set(State) - {State.READY},  # waited for once in each session
    Event.APPLIED_PART: set(State) - {State.READY},
    Event.TIME: set(State) - {State.PAUSED, State.AHEAD},  # elsewhere no pause is under way
    Event.STALL: set(State) - {State.REQUESTED, State.REQUESTED_AHEAD},  # elsewhere nothing is watched
    **{event: set(State) - set(SESSION_STATES) for event in OF_A_SESSION},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_event_has_one_outcome_in_every_state(state: State, event: Event) -> None:
    if state in IMPOSSIBLE.get(event, ()):
        assert (state, event) not in STEPS
        assert (state, event) not in IGNORED
        with pytest.raises(RuntimeError, match=f"a mount that is {state.name} cannot meet {event.name}"):
            next_step(state, event)
    elif (state, event) in IGNORED:
        assert (state, event) not in STEPS
        assert next_step(state, event) == Step(state, None)
    else:
        assert next_step(state, event) == STEPS[state, event]


def test_no_server_can_bring_about_what_cannot_happen() -> None:
    for state, event in itertools.product(SESSION_STATES, OF_A_SESSION):
        next_step(state, event)


def test_every_state_is_reached_and_left_and_everything_is_used() -> None:
    found = {State.UNASSIGNED}
    while True:
        more = {step.state for (state, _), step in STEPS.items() if state in found} - found
        if not more:
            break
        found |= more
    assert found == set(State)
    assert all(
        any(state is before and step.state is not state for (before, _), step in STEPS.items()) for state in State
    )
    assert {event for _, event in STEPS} == set(Event)
    assert {step.action for step in STEPS.values()} - {None} == set(Action)


def test_without_a_connection_nothing_is_done() -> None:
    for step in STEPS.values():
        if step.state not in CONNECTED_STATES:
            assert step.action is None


def test_a_session_begins_with_a_request_and_a_pause_has_its_end() -> None:
    for (before, _), (after, action) in STEPS.items():
        begins = after in SESSION_STATES and before not in SESSION_STATES
        assert begins == (action is Action.REQUEST)
        waits = after in {State.PAUSED, State.AHEAD}
        assert waits == (action in {Action.PAUSE, Action.REPORT_AHEAD})


def test_a_partition_is_mounted_once_all_that_was_committed_before_is_applied() -> None:
    ways = {event for (before, event), step in STEPS.items() if step.state is State.MOUNTED is not before}
    assert ways == {Event.APPLIED, Event.CAUGHT_UP}
    for (before, event), step in STEPS.items():
        if step.state is State.CATCHING_UP is not before:
            assert (before, event) == (State.MARK_REQUESTED, Event.MARK)


def test_the_documentation_shows_this_table() -> None:
    page = mount_page.PAGE.read_text()
    assert mount_page.rewritten(page) == page, "python -m tests.unit.client.engine.mount_page"
