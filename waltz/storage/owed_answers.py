"""Which answers a connection owes, and which of them are late: rules L1 and L3. Pure; time and bytes are told.

A line may be slow, and a large transaction may keep it busy for half a minute. So a request is not late by the clock
alone, but when nothing has moved for it during its limit. What moves for a request: bytes that leave, up to its own
last one; answers to what was sent before it; and bytes of an answer that is on its way in.

Something in between (a relay, the kernels) may hold megabytes that have left here and have not arrived there. Nothing
can be seen to move while it hands them on, so every limit is longer by the time that takes, at the rate that the
connection has lately shown, or a rate below which nobody runs a cluster.

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


class _Request:
    __slots__ = ("moved_bytes", "position", "progress_s", "sent_s", "size_bytes", "timeout_s")

    def __init__(self, size_bytes: int, position: int, timeout_s: float, now_s: float) -> None:
        self.size_bytes = size_bytes
        self.position = position
        self.timeout_s = timeout_s
        self.sent_s = now_s
        self.progress_s = now_s
        self.moved_bytes: int | None = None


class OwedAnswers:
    """The unanswered requests of one connection, in the order in which they were sent."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._requests: dict[int, _Request] = {}
        self._missed: set[int] = set()
        self._bytes_per_s = 0.0
        self._looked_s = 0.0
        self._left_bytes = 0
        self._last_position = 0
        self._backlog = False
        self._received_bytes = 0
        self._moved_s = 0.0
        self._probed = False

    def __bool__(self) -> bool:
        return bool(self._requests or self._missed)

    def __len__(self) -> int:
        return len(self._requests)

    def sent(self, seq_num: int, size_bytes: int, position: int, timeout_s: float, now_s: float) -> None:
        """A request of so many bytes was given to the connection; ``position`` is where it ends in the stream."""
        if not self._requests and not self._missed:
            self._moved_s = self._looked_s = now_s
            self._probed = False
        self._last_position = position
        self._requests[seq_num] = _Request(size_bytes, position, timeout_s, now_s)

    def answered(self, seq_num: int, now_s: float) -> None:
        """The answer to a request, or to one that nobody waits for any more, has come."""
        request = self._requests.pop(seq_num, None)
        if request is None:
            self._missed.discard(seq_num)
            return
        # Its bytes have passed in this time, so the line is at least that fast.
        took_s = now_s - request.sent_s
        if request.size_bytes > took_s * self._bytes_per_s and took_s > 0:
            self._bytes_per_s = request.size_bytes / took_s

    def look(self, now_s: float, left_bytes: int, received_bytes: int, *, receiving: bool) -> Verdict:
        """What is late now.

        ``left_bytes`` of the stream have left, ``received_bytes`` have come; ``receiving``: an answer has come in part.
        """
        self._bytes_per_s *= max(1 - (now_s - self._looked_s) / RATE_MEMORY_S, 0.0)
        self._looked_s = now_s
        arriving = receiving and received_bytes > self._received_bytes
        # That a new request leaves proves nothing: kernels and relays take it. What had to wait at the last look does.
        if received_bytes != self._received_bytes or (self._backlog and left_bytes != self._left_bytes):
            self._moved_s = now_s
            self._probed = False
        self._left_bytes, self._received_bytes = left_bytes, received_bytes
        self._backlog = left_bytes < self._last_position
        late: list[int] = []
        next_look_s = now_s + MAX_WAIT_S
        owed_bytes = 0
        for seq_num, request in self._requests.items():
            owed_bytes += request.size_bytes
            moved_bytes = min(left_bytes, request.position) - owed_bytes
            if arriving or (request.moved_bytes is not None and moved_bytes != request.moved_bytes):
                request.progress_s = now_s
            request.moved_bytes = moved_bytes
            due_s = request.progress_s + request.timeout_s + self._allowance_s(owed_bytes)
            due_s = min(due_s, request.sent_s + MAX_WAIT_S)
            if now_s >= due_s:
                late.append(seq_num)
            else:
                next_look_s = min(next_look_s, due_s)
        for seq_num in late:
            del self._requests[seq_num]
            self._missed.add(seq_num)
        silence_s = now_s - self._moved_s - self._allowance_s(owed_bytes)
        probe = bool(self) and not self._probed and silence_s >= self._silent_after_s / 2
        self._probed = self._probed or probe
        return Verdict(late, probe, bool(self) and silence_s >= self._silent_after_s, next_look_s)

    def transfer(self, position: int, left_bytes: int) -> Transfer:
        """How far the connection has come up to ``position``, when ``left_bytes`` have left."""
        owed_bytes = 0
        for request in self._requests.values():
            if request.position > position:
                break
            owed_bytes += request.size_bytes
        return Transfer(min(left_bytes, position) - owed_bytes, self._allowance_s(owed_bytes))

    def _allowance_s(self, owed_bytes: int) -> float:
        return min(owed_bytes, HIDDEN_BYTES) / max(self._bytes_per_s, MIN_BYTES_PER_S)
