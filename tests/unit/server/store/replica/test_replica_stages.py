"""The stages of a replica: every event at every stage, and what holds along every course of events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.machine import ImpossibleEventError
from waltz.server.store.replica.replica_stages import LIVE_STAGES, REPLICA, WRITTEN_STAGES, Stage, StageEvent


def possible(stage: Stage) -> dict[StageEvent, Stage]:
    """The events that can happen at a stage, and where they lead."""
    found = {}
    for event in StageEvent:
        try:
            found[event] = REPLICA.after(stage, event)
        except ImpossibleEventError:
            continue
    return found


ON_THE_WAY = [Stage.AWAY, Stage.RECOVERING, Stage.MEMBER, Stage.SERVING, Stage.LAGGING]
FORWARD = {
    (Stage.AWAY, StageEvent.CONNECTED): Stage.RECOVERING,
    (Stage.RECOVERING, StageEvent.JOINED): Stage.MEMBER,
    (Stage.MEMBER, StageEvent.FOLLOWING): Stage.SERVING,
    (Stage.SERVING, StageEvent.FELL_BEHIND): Stage.LAGGING,
    (Stage.LAGGING, StageEvent.CAUGHT_UP): Stage.SERVING,
}


@pytest.mark.parametrize(("stage", "event"), list(itertools.product(ON_THE_WAY, StageEvent)))
def test_a_replica_goes_its_way_one_stage_after_the_other_unless_something_fails(
    stage: Stage, event: StageEvent
) -> None:
    expected = FORWARD.get((stage, event))
    if event is StageEvent.FAILED:
        expected = Stage.AWAY if stage is Stage.AWAY else Stage.GIVEN_UP
    elif event is StageEvent.ENDED:
        expected = Stage.AWAY
    assert possible(stage).get(event) is expected


@pytest.mark.parametrize("event", StageEvent)
def test_one_that_was_given_up_begins_anew_whatever_comes_late(event: StageEvent) -> None:
    after = possible(Stage.GIVEN_UP).get(event)
    assert after is (Stage.AWAY if event is StageEvent.ENDED else after and Stage.GIVEN_UP)
    assert (after is None) == (event in (StageEvent.CONNECTED, StageEvent.FELL_BEHIND))


def test_who_is_written_to_is_live() -> None:
    assert set(WRITTEN_STAGES) <= set(LIVE_STAGES)


@given(st.data())
def test_a_vote_is_expected_from_the_join_until_a_failure_or_the_end(data: st.DataObject) -> None:
    stage, live, failed = Stage.AWAY, False, False
    for _ in range(data.draw(st.integers(0, 30))):
        event, stage = data.draw(st.sampled_from(sorted(possible(stage).items(), key=lambda item: item[0].value)))
        if event in (StageEvent.FAILED, StageEvent.ENDED):
            live, failed = False, event is StageEvent.FAILED
        elif event is StageEvent.CONNECTED:
            failed = False
        elif event is StageEvent.JOINED:
            live = not failed
        assert (stage in LIVE_STAGES) == live
