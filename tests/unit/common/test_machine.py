"""A table of states and events: steps, ignored events, and impossible ones."""

import enum

import pytest

from waltz.common.machine import ImpossibleEventError, Machine, Row, Step


class Door(enum.Enum):
    OPEN = "open"
    SHUT = "shut"
    LOCKED = "locked"


class Event(enum.Enum):
    PUSH = "it is pushed"
    TURN = "the key is turned"


ROWS = (
    Row(Event.PUSH, (Door.OPEN,), Door.SHUT, "creak"),
    Row(Event.PUSH, (Door.SHUT,), Door.OPEN, "creak"),
    Row(Event.TURN, (Door.SHUT,), Door.LOCKED),
    Row(Event.PUSH, (Door.LOCKED,), None, "knock"),
)
DOOR = Machine[Door, Event, str]("a door", ROWS, ignored=((Event.TURN, (Door.LOCKED,)),))


def test_a_step_is_the_next_state_and_an_action() -> None:
    assert DOOR.step(Door.OPEN, Event.PUSH) == Step(Door.SHUT, "creak")
    assert DOOR.step(Door.SHUT, Event.TURN) == Step(Door.LOCKED, None)
    assert DOOR.after(Door.SHUT, Event.PUSH) is Door.OPEN


def test_a_row_without_a_state_keeps_the_state() -> None:
    assert DOOR.step(Door.LOCKED, Event.PUSH) == Step(Door.LOCKED, "knock")


def test_an_ignored_event_changes_nothing() -> None:
    assert DOOR.step(Door.LOCKED, Event.TURN) == Step(Door.LOCKED, None)
    assert DOOR.ignored == {(Door.LOCKED, Event.TURN)}


def test_every_other_event_is_a_defect_of_the_caller() -> None:
    with pytest.raises(ImpossibleEventError, match="^a door that is OPEN cannot meet TURN$"):
        DOOR.step(Door.OPEN, Event.TURN)
    with pytest.raises(ImpossibleEventError):
        DOOR.after(Door.OPEN, Event.TURN)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        DOOR.steps[Door.OPEN, Event.TURN] = Step(Door.LOCKED, None)  # type: ignore[index]  # the point of the test


def test_no_pair_of_state_and_event_stands_twice() -> None:
    twice = (*ROWS, Row(Event.PUSH, (Door.LOCKED, Door.OPEN), Door.OPEN))
    with pytest.raises(ValueError, match="a door that is LOCKED has two steps for PUSH"):
        Machine[Door, Event, str]("a door", twice)
    with pytest.raises(ValueError, match="a door that is SHUT cannot ignore TURN, which is listed"):
        Machine[Door, Event, str]("a door", ROWS, ignored=((Event.TURN, (Door.SHUT,)),))
    with pytest.raises(ValueError, match="cannot ignore TURN"):
        Machine[Door, Event, str]("a door", ROWS, ignored=((Event.TURN, (Door.OPEN,)), (Event.TURN, (Door.OPEN,))))
