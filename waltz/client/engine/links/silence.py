"""Whether a server is silent: judged by bytes that move, and not by answers that are complete. Pure."""

from waltz.common.net.guard import MIN_PROGRESS_BYTES


class Silence:
    """Looked at now and then with how far the connection has come. Times in seconds, by one clock.

    While anything comes, the line is slow and not dead. What leaves proves less, for kernels and relays take it from
    questions that are repeated to a peer that is gone. It counts up to the end of the oldest request that is
    unanswered, whose clock so starts when its last byte has left. Behind that it counts while the line is busy: while
    much is still here that was here at the look before. Questions that are repeated are small, and wait for no longer
    than an acknowledgement takes, or for good.
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
        """A request was handed to the connection, which ends at ``taken_bytes`` of all that it was ever handed."""
        if self._expected_from_bytes is None:
            self._expected_from_bytes = taken_bytes
            self._moved_at_s = now_s

    def answered(self) -> None:
        """A whole message came."""
        self._expected_from_bytes = None

    def look(self, taken_bytes: int, left_bytes: int, received_bytes: int, now_s: float) -> bool:
        """Take note of how much was handed over, has left and has been received so far.

        Returns whether anything has come since the last look.
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
        """It is this side that does not read."""
        self._moved_at_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """For how long nothing has moved."""
        return now_s - self._moved_at_s
