"""Which answers a connection owes, and which of them are late: rules L1 and L3. Pure; time and bytes are told.

A line may be slow, and a large transaction may keep it busy for half a minute. So a request is not late by the clock
alone, but when nothing has moved for it during its limit. What moves for a request: bytes that leave, up to its own
last one; answers to what was sent before it; and bytes of an answer that is on its way in.

Something in between (a relay, the kernels) may hold megabytes that have left here and have not arrived there. Nothing
can be seen to move while it hands them on, so every limit is longer by the time that takes, at the rate that the
connection has lately shown, or a rate below which nobody runs a cluster. It is longer by two answer times as well: on a
line around the world a lost packet takes a second to be sent again.

A connection on which something is owed and *nothing at all* moves is silent. That is judged without regard to the
limits at which single callers give up; in the middle of that time a question that any working peer answers at once
tells a peer that works on something long from one that is gone.
"""

from typing import NamedTuple

HIDDEN_BYTES = 8 << 20
"""The most that is taken to be between the kernel on this side and the process on the other."""

MIN_BYTES_PER_S = 512 << 10
"""The slowest line on which hidden bytes are waited for."""

RATE_MEMORY_S = 10.0
"""A connection's rate that has not been shown again for so long counts for about a third of what it was."""

MAX_ANSWER_TIMES_S = 2.0
"""Two answer times count for no more than this."""

MAX_WAIT_S = 600.0
"""No request is waited for longer than this, whatever moves."""


class Verdict(NamedTuple):
    """What a look has found."""

    late: list[int]
    """Sequence numbers of requests whose limits have passed; they are owed no more, but still missed."""
    probe: bool
    """The connection has been silent for half of the time: ask something."""
    silent: bool
    """The connection is to be given up."""
    next_look_s: float
    """The earliest time at which another request could be late."""


class Transfer(NamedTuple):
    """How far a connection has come with what was sent on it up to some position."""

    moved_bytes: int
    """Rises with every byte that leaves, and with every answer; meaningful as a difference."""
    allowance_s: float
    """How much longer than usual an answer may take, because of bytes that may be on their way."""


class _Request(NamedTuple):
    size_bytes: int
    position: int
    """Where it ends in the stream."""
    timeout_s: float
    sent_s: float


class OwedAnswers:
    """The unanswered requests of one connection, in the order in which they were sent."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._requests: dict[int, tuple[int, int, float, float]] = {}
        """Made as plain tuples, which takes a fraction of the time; looked at as :class:`_Request`."""
        self._seen: dict[int, tuple[int, float]] = {}
        """How far requests had come when they were last looked at, and since when they have been there."""
        self._missed: set[int] = set()
        self._bytes_per_s = 0.0
        self._answer_s = 0.0
        """How long the fastest of the last answers took."""
        self._looked_s = 0.0
        self._left_bytes = 0
        self._last_position = 0
        self._backlog = False
        self._received_bytes = 0
        self._moved_s = 0.0
        self._probed_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self._requests or self._missed)

    def __len__(self) -> int:
        return len(self._requests)

    def sent(self, seq_num: int, size_bytes: int, position: int, timeout_s: float, now_s: float) -> None:
        """A request of so many bytes was given to the connection; ``position`` is where it ends in the stream."""
        if not self._requests and not self._missed:
            self._moved_s = self._looked_s = now_s
            self._probed_s = None
        self._last_position = position
        self._requests[seq_num] = (size_bytes, position, timeout_s, now_s)

    def answered(self, seq_num: int, now_s: float) -> None:
        """The answer to a request, or to one that nobody waits for any more, has come."""
        request = self._requests.pop(seq_num, None)
        if request is None:
            self._missed.discard(seq_num)
            return
        if self._seen:
            self._seen.pop(seq_num, None)
        # Its bytes have passed in this time, so the line is at least that fast.
        size_bytes, _, _, sent_s = request
        took_s = now_s - sent_s
        if size_bytes > took_s * self._bytes_per_s and took_s > 0:
            self._bytes_per_s = size_bytes / took_s
        if took_s < self._answer_s or not self._answer_s:
            self._answer_s = took_s

    def look(self, now_s: float, left_bytes: int, received_bytes: int, *, receiving: bool) -> Verdict:
        """What is late now.

        ``left_bytes`` of the stream have left, ``received_bytes`` have come; ``receiving``: an answer has come in part.
        """
        self._bytes_per_s *= max(1 - (now_s - self._looked_s) / RATE_MEMORY_S, 0.0)
        self._answer_s *= 1 + (now_s - self._looked_s) / RATE_MEMORY_S
        self._looked_s = now_s
        arriving = receiving and received_bytes > self._received_bytes
        # That a new request leaves proves nothing: kernels and relays take it. What had to wait at the last look does.
        if received_bytes != self._received_bytes or (self._backlog and left_bytes != self._left_bytes):
            self._moved_s = now_s
            self._probed_s = None
        self._left_bytes, self._received_bytes = left_bytes, received_bytes
        self._backlog = left_bytes < self._last_position
        late: list[int] = []
        next_look_s = now_s + MAX_WAIT_S
        owed_bytes = 0
        seen, self._seen = self._seen, {}
        for seq_num, fields in self._requests.items():
            request = _Request(*fields)
            owed_bytes += request.size_bytes
            moved_bytes = min(left_bytes, request.position) - owed_bytes
            seen_bytes, progress_s = seen.get(seq_num, (moved_bytes, request.sent_s))
            if arriving or moved_bytes != seen_bytes:
                progress_s = now_s
            self._seen[seq_num] = (moved_bytes, progress_s)
            due_s = progress_s + request.timeout_s + self._allowance_s(owed_bytes)
            due_s = min(due_s, request.sent_s + MAX_WAIT_S)
            if now_s >= due_s:
                late.append(seq_num)
            else:
                next_look_s = min(next_look_s, due_s)
        for seq_num in late:
            del self._requests[seq_num], self._seen[seq_num]
            self._missed.add(seq_num)
        silence_s = now_s - self._moved_s - self._allowance_s(owed_bytes)
        probe = bool(self) and self._probed_s is None and silence_s >= self._silent_after_s / 2
        if probe:
            self._probed_s = now_s
        # Looks may come late: what was asked gets its half of the time in any case.
        silent = self._probed_s is not None and now_s - self._probed_s >= self._silent_after_s / 2
        return Verdict(late, probe, bool(self) and silent, next_look_s)

    def transfer(self, position: int, left_bytes: int) -> Transfer:
        """How far the connection has come up to ``position``, when ``left_bytes`` have left."""
        owed_bytes = 0
        for size_bytes, end, _, _ in self._requests.values():
            if end > position:
                break
            owed_bytes += size_bytes
        return Transfer(min(left_bytes, position) - owed_bytes, self._allowance_s(owed_bytes))

    def _allowance_s(self, owed_bytes: int) -> float:
        hidden_s = min(owed_bytes, HIDDEN_BYTES) / max(self._bytes_per_s, MIN_BYTES_PER_S)
        return hidden_s + min(2 * self._answer_s, MAX_ANSWER_TIMES_S)
