"""Requests of a partition that cannot be answered yet."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from waltz.common.wire.client_server import FeedRequest, FlushRequest, HighWaterMarkRequest, MountRequest
from waltz.server.appends import AppendCall
from waltz.server.link import ClientLink

WaitingRequest = AppendCall | FeedRequest | FlushRequest | HighWaterMarkRequest | MountRequest

_ENTRY_SIZE_BYTES = 200

_COMPACT_FROM = 1000
"""Entries of a waiting room above which those that nobody waits for any more are looked for."""


class Pending:
    """One request and where its answer goes.

    ``order`` is that of arrival, and then that in which requests were looked at. ``next_id`` is the first id that was
    given after the request was looked at.
    """

    __slots__ = ("answered", "deadline_s", "link", "next_id", "order", "request")

    def __init__(self, link: ClientLink, request: WaitingRequest, order: int) -> None:
        self.link = link
        self.request = request
        self.order = order
        self.next_id = 0
        self.deadline_s = 0.0
        self.answered = False

    def __lt__(self, other: "Pending") -> bool:
        return self.order < other.order

    @property
    def size_bytes(self) -> int:
        """Approximate memory."""
        request = self.request
        return _ENTRY_SIZE_BYTES + (request.size_bytes if type(request) is AppendCall else 0)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the answer. An append is executed all the same."""
        return self.answered or (self.link.channel.closed and type(self.request) is not AppendCall)


class WaitingRoom:
    """Requests that arrived while none could be looked at, in order of arrival. Who adds to it sees to the limits."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._entries: deque[Pending] = deque()
        self._compact_at = _COMPACT_FROM

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, pending: Pending) -> None:
        """Put a request at the end."""
        self._entries.append(pending)
        self.size_bytes += pending.size_bytes
        if len(self._entries) >= self._compact_at:
            self._compact()

    def put_back(self, pendings: Iterable[Pending]) -> None:
        """Put requests that were taken up earlier, in order of arrival, before all others."""
        returned = list(pendings)
        self._entries.extendleft(reversed(returned))
        self.size_bytes += sum(pending.size_bytes for pending in returned)

    def first(self) -> Pending:
        """The oldest request, which stays; ``IndexError`` when there is none."""
        return self._entries[0]

    def pop(self) -> Pending:
        """Take the oldest request; ``IndexError`` when there is none."""
        pending = self._entries.popleft()
        self.size_bytes -= pending.size_bytes
        return pending

    def clear(self) -> list[Pending]:
        """Take all requests."""
        entries, self._entries = list(self._entries), deque()
        self.size_bytes = 0
        return entries

    def _compact(self) -> None:
        """Mounts that were answered "not ready" meanwhile, and what connections left behind, must not pile up."""
        self._entries = deque(pending for pending in self._entries if not pending.abandoned)
        self.size_bytes = sum(pending.size_bytes for pending in self._entries)
        self._compact_at = max(2 * len(self._entries), _COMPACT_FROM)


class AwaitedCommits:
    """Requests whose answers wait for the commit of a transaction id."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._heap: list[tuple[int, Pending]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, transaction_id: int, pending: Pending) -> None:
        """Keep a request until ``transaction_id`` is committed."""
        heappush(self._heap, (transaction_id, pending))
        self.size_bytes += pending.size_bytes

    def take(self, high_water_mark: int) -> list[tuple[int, Pending]]:
        """All requests whose ids are not above the mark, with those ids: by id, and then by arrival."""
        heap = self._heap
        taken: list[tuple[int, Pending]] = []
        while heap and heap[0][0] <= high_water_mark:
            taken.append(heappop(heap))
            self.size_bytes -= taken[-1][1].size_bytes
        return taken

    def clear(self) -> list[Pending]:
        """Take all requests: their ids are void."""
        heap, self._heap = self._heap, []
        self.size_bytes = 0
        return [pending for _, pending in heap]


class Deadlines:
    """Requests that are to be answered one way or another within a time that is the same for all of them."""

    def __init__(self, timeout_s: float, on_expired: Callable[[Pending], None]) -> None:
        self._timeout_s = timeout_s
        self._on_expired = on_expired
        self._entries: deque[Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pending: Pending) -> None:
        """Watch a request until somebody sets ``answered``."""
        loop = asyncio.get_running_loop()
        while self._entries and self._entries[0].answered:
            self._entries.popleft()
        pending.deadline_s = loop.time() + self._timeout_s
        self._entries.append(pending)
        if self._timer is None:
            self._timer = loop.call_at(pending.deadline_s, self._expire)

    def __len__(self) -> int:
        return len(self._entries)

    def waiting(self) -> list[Pending]:
        """All that are not answered; they stay."""
        return [entry for entry in self._entries if not entry.answered]

    def take(self) -> list[Pending]:
        """All that are not answered; they are watched no longer."""
        entries, self._entries = [entry for entry in self._entries if not entry.answered], deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return entries

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        entries = self._entries
        while entries and (entries[0].answered or entries[0].deadline_s <= loop.time()):
            pending = entries.popleft()
            if not pending.answered:
                pending.answered = True
                self._on_expired(pending)
        if entries:
            self._timer = loop.call_at(entries[0].deadline_s, self._expire)
