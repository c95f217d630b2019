"""How often a session is renewed for the sake of a replica that the present one must leave out. Pure.

A storage that regularly takes too long is barred, let in by the next session, and barred again. Each renewal costs the
appends of the partition a pause, so the storage is let in less and less often while that does not last (rule S8).
"""

MAX_INTERVAL_S = 600.0

_LASTED = 4
"""A readmission has lasted when the storage was not barred again for so many intervals."""


class ReadmissionPacer:
    """The pace for one storage; outlives sessions."""

    __slots__ = ("_first_interval_s", "_interval_s", "_last_s")

    def __init__(self, interval_s: float) -> None:
        self._first_interval_s = interval_s
        self._interval_s = interval_s
        self._last_s: float | None = None

    def admit(self, now_s: float) -> bool:
        """Whether a session may be begun for the storage now; if so, this is remembered."""
        if self._last_s is not None:
            since_s = now_s - self._last_s
            if since_s < self._interval_s:
                return False
            if since_s >= _LASTED * self._interval_s:
                self._interval_s = self._first_interval_s
            else:
                self._interval_s = min(self._interval_s * 2, MAX_INTERVAL_S)
        self._last_s = now_s
        return True
