"""The owed answers of a connection, and the late ones among them: rules L1 and L3. Pure; time and bytes are parameters.

A line may be slow, and a large transaction may keep the line busy for half a minute. So a request is late only after
its limit without progress. Progress of a request is: bytes that leave, up to the last byte of the request; answers to
earlier requests; bytes that arrive of an answer to this or an earlier request. Because partitions work in parallel,
answers to later requests may come first. These count as progress for a few times the limit only, because the peer may
have lost the request.

A relay or the kernels may hold megabytes that have left this side and have not arrived at the peer. No progress is
visible while these move on, so every limit is longer by the time for them, at the recent rate of the connection, or at
a rate below that of any sensible cluster. It is also longer by two answer times: on a line around the world the repeat
of a lost packet takes a second. Only the last answers count for that, since a line may become a longer one.

A connection with an unanswered request and *no progress at all* is silent. This judgement is independent of the limits
of single callers. After half of the time, a question is sent that every working peer answers immediately: the answer
distinguishes a peer with long work from a lost peer.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

HIDDEN_BYTES = 8 << 20
"""Assumed largest number of bytes between the kernel on this side and the process on the other side."""

MIN_BYTES_PER_S = 512 << 10
"""Assumed lowest rate of a line for these hidden bytes."""

RATE_MEMORY_S = 10.0
"""The time after which the weight of an old rate is about a third."""

MAX_ANSWER_TIMES_S = 2.0
"""The largest extension by two answer times."""

MAX_WAIT_S = 600.0
"""The longest wait for the answer to a request, even with progress."""

MAX_OVERTAKEN_LIMITS = 4
"""The largest number of limits for which answers to later requests extend the wait."""

_BLOCK_BITS = 6
"""Binary logarithm of the size of a block: the number of sequence numbers with a common sum of owed bytes."""

_NOWHERE = 1 << 63

Waiter = TypeVar("Waiter")
"""The waiter for an answer. This module only stores it."""


class Verdict(NamedTuple):
    """Result of a check."""

    late: list[int]
    """Sequence numbers of late requests. They are not owed any more, but their answers are still missing."""
    probe: bool
    """Whether a question has to be sent, because the connection has been silent for half of the time."""
    silent: bool
    """Whether the connection has to be closed."""
    next_look_s: float
    """The earliest time at which another request could be late."""


class Transfer(NamedTuple):
    """The progress of a connection up to some position."""

    moved_bytes: int
    """Rises with every byte that leaves, and with every answer. Only differences have a meaning."""
    allowance_s: float
    """Extra time for an answer, because of bytes that may be on the way."""


class OwedAnswers(Generic[Waiter]):
    """The unanswered requests of one connection, in the order of sending. Their numbers rise.

    There may be tens of thousands of unanswered requests on a dead line, with many checks, so no check walks through
    all of them. Progress counts for all requests from some position on. Extensions and times of sending rise with the
    position, too. So among the requests with the same limit, the first is late first.

    Most requests are answered before any check. So only the first check of a request adds it to the sums and queues:
    until then a request and its answer cost one entry in a dictionary.
    """

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._requests: dict[int, tuple[int, int, float, float, Waiter | None]] = {}
        """Size, position (the end in the stream), limit, time of sending. Plain tuples are created faster."""
        self._entered = -_NOWHERE
        """Requests up to this sequence number are in the sums and queues below."""
        self._by_timeout: dict[float, deque[int]] = {}
        """Numbers of requests by their limits. Numbers of answered requests stay until a check meets them."""
        self._blocks: dict[int, list[int]] = {}
        """For each block of sequence numbers: the position of the first request, and the owed bytes."""
        self._totals: tuple[list[int], list[int], list[int]] | None = None
        """The positions of the blocks, the owed bytes before them, and their numbers; valid until the next change."""
        self._steps: list[tuple[int, float]] = []
        """Steps with rising positions: behind the position of a step, up to the next step, the last progress was at
        this time."""
        self._answered_position = _NOWHERE
        """The lowest position of the requests answered since the last check."""
        self._other_arrived_s = 0.0
        """The time when bytes of any answer last arrived."""
        self._missed: dict[int, Waiter | None] = {}
        self._bytes_per_s = 0.0
        self._answer_s = 0.0
        """Time of the fastest of the last answers: those since the last look, and the last ones before it."""
        self._fastest_s = math.inf
        """The same for the answers since the last look only."""
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

    def sent(
        self,
        seq_num: int,
        size_bytes: int,
        position: int,
        timeout_s: float,
        now_s: float,
        waiter: Waiter | None = None,
    ) -> None:
        """Note that a request of ``size_bytes`` was given to the connection; ``position`` is its end in the stream."""
        if not self._requests and not self._missed:
            self._moved_s = self._looked_s = now_s
            self._probed_s = None
        self._last_position = position
        self._requests[seq_num] = (size_bytes, position, timeout_s, now_s, waiter)

    def answered(self, seq_num: int, now_s: float) -> Waiter | None:
        """Note that the answer to a request, possibly an abandoned one, has arrived. Returns the waiter."""
        request = self._requests.pop(seq_num, None)
        if request is None:
            return self._missed.pop(seq_num, None)
        size_bytes, position, _, sent_s, waiter = request
        if seq_num <= self._entered:
            self._release(seq_num, size_bytes)
        if position < self._answered_position:
            self._answered_position = position
        # The request's bytes have passed in this time, so the line is at least that fast.
        took_s = now_s - sent_s
        if took_s * self._bytes_per_s < size_bytes and took_s > 0:
            self._bytes_per_s = size_bytes / took_s
        if took_s < self._fastest_s:
            self._fastest_s = took_s
            if took_s < self._answer_s or not self._answer_s:
                self._answer_s = took_s
        return waiter

    def set_back(self, now_s: float) -> None:
        """Note that the caller has set its clock back to this time."""
        self._moved_s, self._looked_s = min(self._moved_s, now_s), min(self._looked_s, now_s)
        for seq_num in reversed(self._requests):
            size_bytes, position, timeout_s, sent_s, waiter = self._requests[seq_num]
            if sent_s <= now_s:
                break
            self._requests[seq_num] = size_bytes, position, timeout_s, now_s, waiter

    def give_up(self, seq_num: int) -> Waiter | None:
        """Remove and return the waiter of a late request. The answer is still missing."""
        waiter = self._missed[seq_num]
        self._missed[seq_num] = None
        return waiter

    def take_waiters(self) -> list[Waiter]:
        """Remove and return the waiters of all requests, in order. No answer is owed any more."""
        requests, self._requests = self._requests, {}
        return [request[4] for request in requests.values() if request[4] is not None]

    def _enter(self) -> None:
        """Add the unanswered requests since the last call to the sums and queues."""
        new: list[int] = []
        for seq_num in reversed(self._requests):
            if seq_num <= self._entered:
                break
            new.append(seq_num)
        if not new:
            return
        self._entered = new[0]
        self._totals = None
        for seq_num in reversed(new):
            size_bytes, position, timeout_s, _, _ = self._requests[seq_num]
            block = self._blocks.setdefault(seq_num >> _BLOCK_BITS, [position, 0])
            block[1] += size_bytes
            self._by_timeout.setdefault(timeout_s, deque()).append(seq_num)

    def _release(self, seq_num: int, size_bytes: int) -> None:
        self._totals = None
        block = self._blocks[seq_num >> _BLOCK_BITS]
        block[1] -= size_bytes
        if not block[1]:
            del self._blocks[seq_num >> _BLOCK_BITS]

    def look(
        self, now_s: float, left_bytes: int, received_bytes: int, *, receiving: bool, arriving: int | None = None
    ) -> Verdict:
        """Check for late requests.

        ``left_bytes`` of the stream have left, ``received_bytes`` have arrived. ``receiving``: a part of an answer has
        arrived, to the request ``arriving`` if that is known.
        """
        self._enter()
        self._bytes_per_s *= max(1 - (now_s - self._looked_s) / RATE_MEMORY_S, 0.0)
        if self._fastest_s != math.inf:
            self._answer_s, self._fastest_s = self._fastest_s, math.inf
        self._looked_s = now_s
        came = received_bytes != self._received_bytes
        moved_behind, self._answered_position = self._answered_position, _NOWHERE
        if left_bytes != self._left_bytes:
            moved_behind = min(moved_behind, self._left_bytes)
        if receiving and came:
            self._other_arrived_s = now_s
            request = None if arriving is None else self._requests.get(arriving)
            if request is not None:
                moved_behind = min(moved_behind, request[1] - 1)
        self._step(moved_behind, now_s)
        # A new request that leaves proves nothing: kernels and relays take it. Progress is of older waiting bytes only.
        if came or (self._backlog and left_bytes != self._left_bytes):
            self._moved_s = now_s
            self._probed_s = None
        self._left_bytes, self._received_bytes = left_bytes, received_bytes
        self._backlog = left_bytes < self._last_position
        silence_s = now_s - self._moved_s - self._allowance_s(self._owed_up_to(self._last_position))
        late, next_look_s = self._take_late(now_s)
        probe = bool(self) and self._probed_s is None and silence_s >= self._silent_after_s / 2
        if probe:
            self._probed_s = now_s
        # Checks may be late: the question gets half of the time in any case.
        silent = self._probed_s is not None and now_s - self._probed_s >= self._silent_after_s / 2
        return Verdict(late, probe, bool(self) and silent, next_look_s)

    def _step(self, position: int, now_s: float) -> None:
        """Note progress for all requests that end after this position."""
        steps = self._steps
        if not self._requests:
            steps.clear()
            return
        if position != _NOWHERE:
            while steps and steps[-1][0] >= position:
                steps.pop()
            steps.append((position, now_s))
        first_position = next(iter(self._requests.values()))[1]
        del steps[: max(bisect_left(steps, (first_position,)) - 1, 0)]

    def _take_late(self, now_s: float) -> tuple[list[int], float]:
        """Remove and return late requests; also return the time at which the next request may be late."""
        requests, late = self._requests, []
        next_look_s = now_s + MAX_WAIT_S
        for timeout_s, queue in list(self._by_timeout.items()):
            while queue:
                request = requests.get(queue[0])
                if request is not None:
                    due_s = self._due_s(request[1], timeout_s, request[3])
                    if now_s < due_s:
                        next_look_s = min(next_look_s, due_s)
                        break
                    late.append(queue[0])
                queue.popleft()
            if not queue:
                del self._by_timeout[timeout_s]
            elif len(queue) > 2 * len(requests):
                # Most of the queue was answered, behind a request without an answer.
                self._by_timeout[timeout_s] = deque(seq_num for seq_num in queue if seq_num in requests)
        late.sort()
        for seq_num in late:
            request = requests.pop(seq_num)
            self._release(seq_num, request[0])
            self._missed[seq_num] = request[4]
        return late, next_look_s

    def _due_s(self, position: int, timeout_s: float, sent_s: float) -> float:
        index = bisect_left(self._steps, (position,)) - 1
        moved_s = self._steps[index][1] if index >= 0 else sent_s
        overtaken_s = min(self._other_arrived_s, sent_s + (MAX_OVERTAKEN_LIMITS - 1) * timeout_s)
        progress_s = max(moved_s, overtaken_s, sent_s)
        due_s = progress_s + timeout_s + self._allowance_s(self._owed_up_to(position))
        return min(due_s, sent_s + MAX_WAIT_S)

    def transfer(self, position: int, left_bytes: int) -> Transfer:
        """The progress of the connection up to ``position``, when ``left_bytes`` have left."""
        self._enter()
        owed_bytes = self._owed_up_to(position)
        return Transfer(min(left_bytes, position) - owed_bytes, self._allowance_s(owed_bytes))

    def _owed_up_to(self, position: int) -> int:
        """Bytes of the unanswered requests that end at or before ``position``."""
        if self._totals is None:
            blocks = self._blocks.values()
            before = [0, *accumulate(block[1] for block in blocks)]
            self._totals = [block[0] for block in blocks], before, list(self._blocks)
        positions, before, numbers = self._totals
        index = bisect_right(positions, position) - 1
        if index < 0:
            return 0
        owed_bytes = before[index]
        first = numbers[index] << _BLOCK_BITS
        for seq_num in range(first, first + (1 << _BLOCK_BITS)):
            request = self._requests.get(seq_num)
            if request is not None:
                if request[1] > position:
                    break
                owed_bytes += request[0]
        return owed_bytes

    def _allowance_s(self, owed_bytes: int) -> float:
        hidden_s = min(owed_bytes, HIDDEN_BYTES) / max(self._bytes_per_s, MIN_BYTES_PER_S)
        return hidden_s + min(2 * self._answer_s, MAX_ANSWER_TIMES_S)
