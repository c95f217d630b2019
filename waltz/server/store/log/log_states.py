"""What a replicated log is doing for its user, and what leads from one state to another. Pure.

Two things come and go, and not together: the *session* that writes, and the promise to the user that the log is *open*,
which means that the provisional ids given so far stand. A session that is renewed in order leaves the log open: what is
appended meanwhile is kept for the next session, which writes it under the same ids if it goes on exactly where the last
one ended. Only when it does not, or takes too long, are the ids void, and the user is told.
"""

import enum


class LogState(enum.Enum):
    """What the log is doing; ``open``: appends are taken, ``failing``: the last attempt to open a session failed."""

    SEEKING = "seeking"
    """No session runs, and the user knows: the first attempts to open one are under way, or the log is closed."""
    FAILING = "failing"
    """The same, and an attempt has failed."""
    SETTLING = "settling"
    """A session has opened, and the user is being told what became of the appends that were undecided (rule S5)."""
    SERVING = "serving"
    """A session runs, and writes what is appended."""
    DRAINING = "draining"
    """A session runs that is to be followed by another: what it has been given is committed, the rest is kept."""
    BRIDGING = "bridging"
    """Between two sessions, and the user need not know: appends are kept."""
    STRANDED = "stranded"
    """The same, and an attempt to open the next session has failed."""

    open: bool
    failing: bool

    def __init__(self, text: str) -> None:
        self.open = text in ("serving", "draining", "bridging", "stranded")
        self.failing = text in ("failing", "stranded")


class LogEvent(enum.Enum):
    """What happens to a log."""

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


_TRANSITIONS = {
    (LogState.SEEKING, LogEvent.RECOVERED): LogState.SETTLING,
    (LogState.SEEKING, LogEvent.FAILED): LogState.FAILING,
    (LogState.FAILING, LogEvent.RECOVERED): LogState.SETTLING,
    (LogState.FAILING, LogEvent.FAILED): LogState.FAILING,
    (LogState.SETTLING, LogEvent.SETTLED): LogState.SERVING,
    (LogState.SETTLING, LogEvent.LOST): LogState.SEEKING,
    (LogState.SERVING, LogEvent.RENEWED): LogState.DRAINING,
    (LogState.SERVING, LogEvent.LOST): LogState.BRIDGING,
    (LogState.DRAINING, LogEvent.RENEWED): LogState.DRAINING,
    (LogState.DRAINING, LogEvent.LOST): LogState.BRIDGING,
    (LogState.BRIDGING, LogEvent.CONTINUED): LogState.SERVING,
    (LogState.BRIDGING, LogEvent.FAILED): LogState.STRANDED,
    (LogState.BRIDGING, LogEvent.VOIDED): LogState.SEEKING,
    (LogState.STRANDED, LogEvent.CONTINUED): LogState.SERVING,
    (LogState.STRANDED, LogEvent.FAILED): LogState.STRANDED,
    (LogState.STRANDED, LogEvent.VOIDED): LogState.FAILING,
}


def next_state(state: LogState, event: LogEvent) -> LogState:
    """The state after an event. Raises ``AssertionError`` for an event that is impossible in that state."""
    after = _TRANSITIONS.get((state, event))
    assert after is not None, f"a log that is {state.value} cannot be {event.value}"
    return after
