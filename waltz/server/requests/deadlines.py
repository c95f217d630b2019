"""Requests that are answered within a time limit in any case."""

import asyncio
from collections import deque
from collections.abc import Callable

from waltz.server.requests.pending import Pending


class Deadlines:
    """Requests with the same time limit."""

    def __init__(self, timeout_s: float, on_expired: Callable[[Pending], None]) -> None:
        self._timeout_s = timeout_s
        self._on_expired = on_expired
        self._entries: deque[Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pending: Pending) -> None:
        """Watch a request until it is answered."""
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
        """All unanswered requests, which stay."""
        return [entry for entry in self._entries if not entry.answered]

    def take(self) -> list[Pending]:
        """Take all unanswered requests."""
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
                pending.end()
                self._on_expired(pending)
        if entries:
            self._timer = loop.call_at(entries[0].deadline_s, self._expire)
