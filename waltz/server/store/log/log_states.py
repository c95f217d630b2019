"""The states of a replicated log, and the events that lead from one state to another. Pure.

Two facts change independently: whether a *session* is writing, and whether the log is *open* for the user, which means
that all provisional ids so far are valid. During an orderly renewal of the session the log stays open: appends are
kept, and the next session writes them under the same ids, if it continues exactly at the end of the last session.
Otherwise, or after too long a time, the ids become void, and the user is told.
"""

import enum

from waltz.common.machine import Machine, Row


class LogState(enum.Enum):
    """States of a log. The values are texts for people."""

    SEEKING = "seeking"
    """No session runs, and the user knows that: the first attempts to open a session are under way, or the log is
    closed."""
    FAILING = "failing"
    """No session runs, and an attempt to open one has failed."""
    SETTLING = "settling"
    """A session has opened, and the user is being told the outcome of the undecided appends (rule S5)."""
    SERVING = "serving"
    """A session runs and writes the appends."""
    DRAINING = "draining"
    """A session runs that will be followed by another: its appends are being committed, further appends are kept."""
    BRIDGING = "bridging"
    """Between two sessions, without a notice to the user: appends are kept."""
    STRANDED = "stranded"
    """Between two sessions; appends are kept, but an attempt to open the next session has failed."""


OPEN_STATES = (LogState.SERVING, LogState.DRAINING, LogState.BRIDGING, LogState.STRANDED)
"""States in which appends are accepted."""
FAILING_STATES = (LogState.FAILING, LogState.STRANDED)
"""The last attempt to open a session failed."""


class LogEvent(enum.Enum):
    """Events of a log."""

    RECOVERED = "recovered"
    """A session has opened, and all earlier provisional ids are void."""
    CONTINUED = "continued"
    """A session has opened that continues exactly at the end of the last session."""
    SETTLED = "settled"
    """The user has been told the outcome of all appends that an earlier session left undecided."""
    RENEWED = "renewed"
    """The session gets no further appends, so that another session can follow, or the log can be closed."""
    LOST = "lost"
    """The session has ended, or was given up."""
    FAILED = "failed"
    """No session could be opened, or a defect has ended one."""
    VOIDED = "voided"
    """Ids without a commit are void, and the user is told."""


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
