"""Decides whether a server is silent, by the movement of bytes, not by complete answers. Pure."""

from waltz.common.net.guard import MIN_PROGRESS_BYTES


class Silence:
    """The silence of one server. Checked regularly with the progress of the connection. Times are in seconds, by one
    clock.

    While bytes arrive, the line is slow, not dead. Bytes that leave prove less, because kernels and relays accept
    repeated questions to a dead peer. They count up to the end of the oldest unanswered request; so the clock of that
    request starts when its last byte has left. Later bytes count while the line is busy: while many of the bytes that
    waited at the previous check still wait. Repeated questions are small, and wait either for the time of an
    acknowledgement or for ever.
    """

    __slots__ = ("_busy", "_expected_from_bytes", "_left_bytes", "_moved_at_s", "_received_bytes", "_taken_bytes")

    def __init__(self, now_s: float) -> None:
        self._moved_at_s = now_s
        self._expected_from_bytes: int | None = None
        self._taken_bytes = 0
        self._left_bytes = 0
        self._received_bytes = 0
        self._busy = False

    @property
    def expecting(self) -> bool:
        """Whether an answer is awaited."""
        return self._expected_from_bytes is not None

    def expect(self, taken_bytes: int, now_s: float) -> None:
        """Note that a request was handed to the connection; it ends at ``taken_bytes`` of all bytes ever handed to the
        connection."""
        if self._expected_from_bytes is None:
            self._expected_from_bytes = taken_bytes
            self._moved_at_s = now_s

    def answered(self) -> None:
        """Note that a whole message has arrived."""
        self._expected_from_bytes = None

    def look(self, taken_bytes: int, left_bytes: int, received_bytes: int, now_s: float) -> bool:
        """Note the numbers of bytes handed over, sent and received so far.

        Returns whether any byte has arrived since the last check.
        """
        leaving = self._expected_from_bytes is not None and self._left_bytes < self._expected_from_bytes
        was_busy, self._busy = self._busy, self._taken_bytes - left_bytes >= MIN_PROGRESS_BYTES
        came = received_bytes != self._received_bytes
        if came or (left_bytes > self._left_bytes and (leaving or was_busy or self._busy)):
            self._moved_at_s = now_s
        self._taken_bytes = taken_bytes
        self._left_bytes = left_bytes
        self._received_bytes = received_bytes
        return came

    def excuse(self, now_s: float) -> None:
        """Note that this side does not read, so the silence of the peer does not count."""
        self._moved_at_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """The time without progress."""
        return now_s - self._moved_at_s
