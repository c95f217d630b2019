"""When a session has ended for all that its holder can know: pure.

The ensemble ends a session when it has heard nothing of it for the session time-out, and tells that only on the next
connection. Whoever cannot reach it has to find out by a clock. What counts is when an answered question was *sent*: the
ensemble has heard of the session then or later.
"""


class SessionClock:
    """All times are of one clock that goes on while the process stands still."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_s = now_s
        self._asked_s = now_s

    def asked(self, now_s: float) -> None:
        """A question is sent for the sake of the clock."""
        self._asked_s = now_s

    def answered(self, sent_s: float) -> None:
        """A question that was sent then has been answered in the session."""
        self._heard_s = max(self._heard_s, sent_s)

    def is_over(self, now_s: float) -> bool:
        """Whether the ensemble may have ended the session."""
        return now_s - self._heard_s >= self._timeout_s

    def is_to_ask(self, now_s: float) -> bool:
        """Whether it is time for another question."""
        return now_s - max(self._heard_s, self._asked_s) >= self._timeout_s / 6

    def next_look_s(self, now_s: float) -> float:
        """When to look at the clock again, from ``now_s``: at the end of the session, or sooner to ask a question."""
        left_s = self._heard_s + self._timeout_s - now_s
        pause_s = self._timeout_s / 6
        return min(left_s, pause_s) if left_s > 0 else pause_s
