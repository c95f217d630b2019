"""What a replicated log is doing for its user, and what leads from one state to another. Pure.

Two things come and go, and not together: the *session* that writes, and the promise to the user that the log is *open*,
which means that the provisional ids given so far stand. A session that is renewed in order leaves the log open: what is
appended meanwhile is kept for the next session, which writes it under the same ids if it goes on exactly where the last
one ended. Only when it does not, or takes too long, are the ids void, and the user is told.
"""

import enum

from waltz.common.machine import Machine, Row


class LogState(enum.Enum):
    """States of a log. The values are meant for people."""

    SEEKING = "seeking"
    """No session runs, and the user knows: the first attempts to open one are under way, or the log is closed."""
    FAILING = "failing"
    """No session runs, and an attempt to open one has failed."""
    SETTLING = "settling"
    """A session has opened, and the user is being told what became of the appends that were undecided (rule S5)."""
    SERVING = "serving"
    """A session runs, and writes what is appended."""
    DRAINING = "draining"
    """A session runs that is to be followed by another: what it has been given is committed, the rest is kept."""
    BRIDGING = "bridging"
    """Between two sessions, and the user need not know: appends are kept."""
    STRANDED = "stranded"
    """Between two sessions; appends are kept, but an attempt to open the next session has failed."""


OPEN_STATES = (LogState.SERVING, LogState.DRAINING, LogState.BRIDGING, LogState.STRANDED)
"""States in which appends are accepted."""
FAILING_STATES = (LogState.FAILING, LogState.STRANDED)
"""The last attempt to open a session failed."""


class LogEvent(enum.Enum):
    """Events of a log."""

    RECOVERED = "recovered"
    """A session has opened, and no id stands that was given before it."""
    CONTINUED = "continued"
    """A session has opened that goes on exactly where the last one ended."""
    SETTLED = "settled"
    """The user has been told everything that an earlier session left undecided."""
    RENEWED = "renewed"
    """The session is given nothing more, so that another can take over, or the log can be closed."""
    LOST = "lost"
    """The session is over, or has been given up."""
    FAILED = "failed"
    """No session could be opened, or a defect has ended one."""
    VOIDED = "voided"
    """The ids that are not committed are void, and the user is told."""


LOG = Machine[LogState, LogEvent, None](
    "a log",
    (
        Row(LogEvent.RECOVERED, (LogState.SEEKING, LogState.FAILING), LogState.SETTLING),
        Row(LogEvent.CONTINUED, (LogState.BRIDGING, LogState.STRANDED), LogState.SERVING),
        Row(LogEvent.SETTLED, (LogState.SETTLING,), LogState.SERVING),
        Row(LogEvent.RENEWED, (LogState.SERVING,), LogState.DRAINING),
        Row(LogEvent.LOST, (LogState.SETTLING,), LogState.SEEKING),
        Row(LogEvent.LOST, (LogState.SERVING, LogState.DRAINING), LogState.BRIDGING),
        Row(LogEvent.FAILED, (LogState.SEEKING,), LogState.FAILING),
        Row(LogEvent.FAILED, (LogState.BRIDGING,), LogState.STRANDED),
        Row(LogEvent.VOIDED, (LogState.BRIDGING,), LogState.SEEKING),
        Row(LogEvent.VOIDED, (LogState.STRANDED,), LogState.FAILING),
    ),
    ignored=((LogEvent.RENEWED, (LogState.DRAINING,)), (LogEvent.FAILED, FAILING_STATES)),
)
"""The states of a log, and the events that lead from one to another."""
