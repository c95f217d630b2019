"""The stages of a replica on one connection, from the first question to the last acknowledgement. Pure.

The recovery machine has the steps of the recovery; these stages are for the session and the window of batches. A
replica is *live* while its vote can be expected.
"""

import enum

from waltz.common.machine import Machine, Row


class Stage(enum.Enum):
    """Stages of a replica. The values are texts for people."""

    AWAY = "away"
    """Not connected, or the storage has not answered the session's first request."""
    RECOVERING = "recovering"
    """Joining the session: being inspected, brought up to date and recorded in the metadata."""
    MEMBER = "member"
    """In the session, but without writes so far: the other replicas first have to commit its records."""
    SERVING = "serving"
    """The replica gets batches directly from the ring, within its window."""
    LAGGING = "lagging"
    """The next needed batch has left the ring; the replica copies from the other replicas (rule S8)."""
    GIVEN_UP = "given up"
    """The replica has failed, and has to join again from the beginning."""


LIVE_STAGES = (Stage.SERVING, Stage.LAGGING, Stage.MEMBER)
"""The replica has joined and not failed since, so its vote can be expected."""
WRITTEN_STAGES = (Stage.SERVING, Stage.LAGGING)
"""Records are sent to the replica."""


class StageEvent(enum.Enum):
    """Events of a replica."""

    CONNECTED = "connected"
    """The storage has answered the session's first request."""
    JOINED = "joined"
    """The metadata say that the replica is a member of the session."""
    FOLLOWING = "following"
    """All records of the replica are committed."""
    FELL_BEHIND = "fell behind"
    """The next needed batch is not in the ring any more."""
    CAUGHT_UP = "caught up"
    """The next needed batch is in the ring."""
    FAILED = "failed"
    """A request or the connection has failed, or nothing has moved for too long."""
    ENDED = "ended"
    """The connection is not used any more, and the machine has forgotten its answers."""


REPLICA = Machine[Stage, StageEvent, None](
    "a replica",
    (
        Row(StageEvent.CONNECTED, (Stage.AWAY,), Stage.RECOVERING),
        Row(StageEvent.JOINED, (Stage.RECOVERING,), Stage.MEMBER),
        Row(StageEvent.FOLLOWING, (Stage.MEMBER,), Stage.SERVING),
        Row(StageEvent.FELL_BEHIND, (Stage.SERVING,), Stage.LAGGING),
        Row(StageEvent.CAUGHT_UP, (Stage.LAGGING,), Stage.SERVING),
        Row(StageEvent.FAILED, (Stage.RECOVERING, *LIVE_STAGES), Stage.GIVEN_UP),
        Row(StageEvent.ENDED, tuple(Stage), Stage.AWAY),
    ),
    ignored=(
        (StageEvent.FAILED, (Stage.AWAY, Stage.GIVEN_UP)),
        # After a failure, work may still end before the task of the replica notices the failure.
        (StageEvent.JOINED, (Stage.GIVEN_UP,)),
        (StageEvent.FOLLOWING, (Stage.GIVEN_UP,)),
        (StageEvent.CAUGHT_UP, (Stage.GIVEN_UP,)),
    ),
)
"""The stages of a replica, and the events that lead from one to another."""
