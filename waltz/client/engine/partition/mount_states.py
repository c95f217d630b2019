"""The states, events and actions of the mount of one partition: a table. Pure.

All changes of the state of a mount are in this table. :class:`~waltz.client.engine.partition.mount.Mount` reports
events, keeps the time, and acts.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class State(Enum):
    """States of a mount. The values are texts for people."""

    UNASSIGNED = "no server is known to own the partition, or the client takes no part in it"
    UNCONNECTED = "there is no connection to the server"
    WAITING = "the mount is requested as soon as little of what was received waits to be applied"
    REQUESTED = "the mount is requested, and the connection is watched for progress"
    PAUSED = "the mount is requested again after a pause"
    AHEAD = "the client has applied more than the server has; it is asked again after a pause that grows"
    REQUESTED_AHEAD = "the mount is requested again; until the answer comes the client still counts as ahead"
    READY = "the server is ready, and what it has fed before it said so is being applied"
    MARK_REQUESTED = "that is applied, there may be more, and the server is asked how far its log goes"
    CATCHING_UP = "the server's mark is known, and transactions up to it are being applied"
    MOUNTED = "everything that was committed before the mount is applied: appends may be sent"


class Event(Enum):
    """Events of a mount. The values are texts for people."""

    ASSIGN = "a server is assigned"
    LEAVE = "the server is left"
    CONNECT = "a connection is made"
    LOSE = "the connection is lost"
    RESTART = "the generation of the partition changes"
    BREAK_OFF = "the feed breaks off"
    ROOM = "little waits to be applied"
    ANSWER_READY = "the server answers READY"
    ANSWER_NOT_READY = "the server answers NOT_READY"
    ANSWER_AHEAD = "the server answers CLIENT_AHEAD"
    CLOSED = "the server gives the partition up"
    APPLIED = "what came before READY is applied, and that was all"
    APPLIED_PART = "what came before READY is applied, and there may be more"
    MARK = "the server tells its mark"
    NO_MARK = "the server does not know its mark"
    CAUGHT_UP = "the mark is applied"
    FEED_ENDED = "the server has fed what it was asked for"
    TIME = "the pause is over"
    STALL = "nothing moves for the mount request"


class Action(Enum):
    """Actions of a step. The values are texts for people."""

    LOOK_FOR_ROOM = "go on at once if there is room"
    REQUEST = "send a mount request"
    PAUSE = "start the pause"
    REPORT_AHEAD = "report it, and start the pause"
    AWAIT_FED = "wait until what was fed is applied"
    REQUEST_MARK = "ask for the mark and for more of the feed"
    AWAIT_MARK = "wait until the mark is applied"
    BEGIN_WITH_FEED = "flush, let appends go, and ask for the feed"
    BEGIN = "flush, and let appends go"
    REQUEST_FEED = "ask for more of the feed, when there is room"
    RESUME_FEED = "ask for more of the feed, if that had to wait for room"
    RECONNECT = "replace the connection"


class Step(NamedTuple):
    """The consequence of an event."""

    state: State
    action: Action | None


class _Row(NamedTuple):
    event: Event
    before: tuple[State, ...]
    after: State | None
    """``None``: the state stays."""
    action: Action | None = None


_REQUESTED = (State.REQUESTED, State.REQUESTED_AHEAD)
_FED = (State.MARK_REQUESTED, State.CATCHING_UP, State.MOUNTED)
SESSION_STATES = (*_REQUESTED, State.READY, *_FED)
"""The states with a present mount request. Answers to other requests are ignored."""
CONNECTED_STATES = (State.WAITING, State.PAUSED, State.AHEAD, *SESSION_STATES)
"""The states with a connection."""

_ROWS = (
    _Row(Event.ASSIGN, (State.UNASSIGNED,), State.UNCONNECTED),
    _Row(Event.LEAVE, tuple(State), State.UNASSIGNED),
    _Row(Event.CONNECT, (State.UNCONNECTED,), State.WAITING, Action.LOOK_FOR_ROOM),
    _Row(Event.LOSE, (State.UNCONNECTED, *CONNECTED_STATES), State.UNCONNECTED),
    _Row(Event.RESTART, CONNECTED_STATES, State.WAITING, Action.LOOK_FOR_ROOM),
    _Row(Event.BREAK_OFF, CONNECTED_STATES, State.PAUSED, Action.PAUSE),
    _Row(Event.ROOM, (State.WAITING,), State.REQUESTED, Action.REQUEST),
    _Row(Event.ROOM, _FED, None, Action.RESUME_FEED),
    _Row(Event.ANSWER_READY, _REQUESTED, State.READY, Action.AWAIT_FED),
    _Row(Event.ANSWER_NOT_READY, _REQUESTED, State.PAUSED, Action.PAUSE),
    _Row(Event.ANSWER_AHEAD, _REQUESTED, State.AHEAD, Action.REPORT_AHEAD),
    _Row(Event.CLOSED, SESSION_STATES, State.PAUSED, Action.PAUSE),
    _Row(Event.APPLIED, (State.READY,), State.MOUNTED, Action.BEGIN_WITH_FEED),
    _Row(Event.APPLIED_PART, (State.READY,), State.MARK_REQUESTED, Action.REQUEST_MARK),
    _Row(Event.MARK, (State.MARK_REQUESTED,), State.CATCHING_UP, Action.AWAIT_MARK),
    _Row(Event.NO_MARK, (State.MARK_REQUESTED,), State.PAUSED, Action.PAUSE),
    _Row(Event.CAUGHT_UP, (State.CATCHING_UP,), State.MOUNTED, Action.BEGIN),
    _Row(Event.FEED_ENDED, _FED, None, Action.REQUEST_FEED),
    _Row(Event.TIME, (State.PAUSED,), State.WAITING, Action.LOOK_FOR_ROOM),
    # A client that is ahead gets no feed, so it need not wait for room.
    _Row(Event.TIME, (State.AHEAD,), State.REQUESTED_AHEAD, Action.REQUEST),
    _Row(Event.STALL, _REQUESTED, None, Action.RECONNECT),
)

_IGNORED_ROWS = (
    (Event.RESTART, (State.UNASSIGNED, State.UNCONNECTED)),
    (Event.BREAK_OFF, (State.UNASSIGNED, State.UNCONNECTED)),
    (Event.ROOM, (*_REQUESTED, State.UNASSIGNED, State.UNCONNECTED, State.PAUSED, State.AHEAD, State.READY)),
    # A request has one answer. Further or early answers change nothing.
    (Event.ANSWER_READY, (State.READY, *_FED)),
    (Event.ANSWER_NOT_READY, (State.READY, *_FED)),
    (Event.ANSWER_AHEAD, (State.READY, *_FED)),
    (Event.MARK, (*_REQUESTED, State.READY, State.CATCHING_UP, State.MOUNTED)),
    (Event.NO_MARK, (*_REQUESTED, State.READY, State.CATCHING_UP, State.MOUNTED)),
    (Event.CAUGHT_UP, (*_REQUESTED, State.READY, State.MARK_REQUESTED, State.MOUNTED)),
    (Event.FEED_ENDED, (*_REQUESTED, State.READY)),
)


def _expand(rows: Iterable[_Row]) -> dict[tuple[State, Event], Step]:
    return {
        (before, event): Step(before if after is None else after, action)
        for event, states, after, action in rows
        for before in states
    }


STEPS: Mapping[tuple[State, Event], Step] = MappingProxyType(_expand(_ROWS))
"""The step for each event in each state."""

IGNORED = frozenset((state, event) for event, states in _IGNORED_ROWS for state in states)
"""Events that may happen in these states and change nothing. All other combinations are impossible."""


def next_step(state: State, event: Event) -> Step:
    """The step for ``event``. Raises ``RuntimeError`` if it is impossible in this state: a defect of the caller."""
    step = STEPS.get((state, event))
    if step is not None:
        return step
    if (state, event) in IGNORED:
        return Step(state, None)
    raise RuntimeError(f"a mount that is {state.name} cannot meet {event.name}")
