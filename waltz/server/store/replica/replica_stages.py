"""Where a replica is on its way through one connection, from the first question to the last acknowledgement. Pure.

The recovery machine knows which step of the recovery is under way; this is what the session and the window of batches
need to know. A replica is *live* while its vote can be expected.
"""

import enum


class Stage(enum.Enum):
    """What a replica is doing; ``live``: it has joined and not failed since, so its vote can be expected."""

    AWAY = "away"
    """Not connected, or the storage has not answered the session's first request."""
    RECOVERING = "recovering"
    """On its way into the session: inspected, brought up to date and recorded in the metadata."""
    MEMBER = "member"
    """In the session, and not written to yet: what it holds has to be committed by the others first."""
    SERVING = "serving"
    """Batches go to it straight from the ring, within its window."""
    LAGGING = "lagging"
    """It needs a batch that is not in the ring any more, and copies from the others (rule S8)."""
    GIVEN_UP = "given up"
    """Something has failed: it has to join again from the beginning."""

    live: bool
    writes: bool
    """Whether records are sent to it."""

    def __init__(self, text: str) -> None:
        self.live = text in ("member", "serving", "lagging")
        self.writes = text in ("serving", "lagging")


class StageEvent(enum.Enum):
    """What happens to a replica."""

    CONNECTED = "connected"
    """The storage has answered the session's first request."""
    JOINED = "joined"
    """The metadata say that the replica is a member of the session."""
    FOLLOWING = "following"
    """What it holds is committed."""
    FELL_BEHIND = "fell behind"
    """The next batch it needs is not in the ring any more."""
    CAUGHT_UP = "caught up"
    """The next batch it needs is in the ring."""
    FAILED = "failed"
    """A request or the connection has failed, or nothing has moved for too long."""
    ENDED = "ended"
    """The connection is not used any more; the machine has forgotten what it told."""


_TRANSITIONS: dict[tuple[Stage, StageEvent], Stage] = {
    (Stage.AWAY, StageEvent.CONNECTED): Stage.RECOVERING,
    (Stage.AWAY, StageEvent.FAILED): Stage.AWAY,
    (Stage.RECOVERING, StageEvent.JOINED): Stage.MEMBER,
    (Stage.MEMBER, StageEvent.FOLLOWING): Stage.SERVING,
    (Stage.SERVING, StageEvent.FELL_BEHIND): Stage.LAGGING,
    (Stage.LAGGING, StageEvent.CAUGHT_UP): Stage.SERVING,
    **{(stage, StageEvent.FAILED): Stage.GIVEN_UP for stage in Stage if stage is not Stage.AWAY},
    **{(stage, StageEvent.ENDED): Stage.AWAY for stage in Stage},
    # Between a failure and its notice by the replica's task, what was under way may still come to its end.
    **{
        (Stage.GIVEN_UP, event): Stage.GIVEN_UP
        for event in (StageEvent.JOINED, StageEvent.FOLLOWING, StageEvent.CAUGHT_UP)
    },
}


def next_stage(stage: Stage, event: StageEvent) -> Stage:
    """The stage after an event. Raises ``AssertionError`` for an event that is impossible at that stage."""
    after = _TRANSITIONS.get((stage, event))
    assert after is not None, f"a replica that is {stage.value} cannot be {event.value}"
    return after
