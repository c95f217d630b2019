"""Decides by a clock when a session may have ended. Pure.

The ensemble ends a session that was silent for the session time-out, and reports the end only on the next connection. A
client without a connection has to use a clock. The time at which an answered question was *sent* counts: the ensemble
has heard of the session then or later.
"""


class SessionClock:
    """All times are those of one clock that continues while the process stands still."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_s = now_s
        self._asked_s = now_s

    def asked(self, now_s: float) -> None:
        """A question of the clock is sent."""
        self._asked_s = now_s

    def answered(self, sent_s: float) -> None:
        """A question sent at that time has been answered in the session."""
        self._heard_s = max(self._heard_s, sent_s)

    def is_over(self, now_s: float) -> bool:
        """Whether the ensemble may have ended the session."""
        return now_s - self._heard_s >= self._timeout_s

    def is_to_ask(self, now_s: float) -> bool:
        """Whether another question is due."""
        return now_s - max(self._heard_s, self._asked_s) >= self._timeout_s / 6

    def next_look_s(self, now_s: float) -> float:
        """Time of the next check: the end of the session, or an earlier question."""
        left_s = self._heard_s + self._timeout_s - now_s
        pause_s = self._timeout_s / 6
        return min(left_s, pause_s) if left_s > 0 else pause_s
