"""Decisions that wait for the client's high-water mark.

Lock failures and flush answers may arrive before the feed. Each names the transaction id that has to be applied first.
Pure.
"""

import heapq
from collections import deque

_NEVER = 1 << 63


class DeferredDecisions:
    """Lock failures, by transaction id; and flush points, first in, first out."""

    __slots__ = ("_flush_points", "_lock_failures", "due_at")

    def __init__(self) -> None:
        self._lock_failures: list[tuple[int, bytes]] = []
        self._flush_points: deque[tuple[int, bytes]] = deque()
        self.due_at = _NEVER
        """The high-water mark at which the next decision is due."""

    def add_lock_failure(self, transaction_id: int, req_id: bytes) -> None:
        """Add the failure of an append. It is reported when ``transaction_id`` is applied."""
        heapq.heappush(self._lock_failures, (transaction_id, req_id))
        self._update()

    def add_flush_point(self, transaction_id: int, req_id: bytes) -> None:
        """Add a flush point: all appends up to this one are decided when ``transaction_id`` is applied. One point per
        append is kept."""
        if all(req_id != other for _, other in self._flush_points):
            self._flush_points.append((transaction_id, req_id))
            self._update()

    def take_lock_failures(self, high_water_mark: int) -> list[bytes]:
        """Take the request ids of the due lock failures, by transaction id."""
        due: list[bytes] = []
        while self._lock_failures and self._lock_failures[0][0] <= high_water_mark:
            due.append(heapq.heappop(self._lock_failures)[1])
        self._update()
        return due

    def take_flush_points(self, high_water_mark: int) -> list[bytes]:
        """Take the request ids of the due flush points, in the order of their arrival."""
        due: list[bytes] = []
        while self._flush_points and self._flush_points[0][0] <= high_water_mark:
            due.append(self._flush_points.popleft()[1])
        self._update()
        return due

    def clear(self) -> None:
        """Forget all decisions."""
        self._lock_failures.clear()
        self._flush_points.clear()
        self._update()

    def _update(self) -> None:
        failure = self._lock_failures[0][0] if self._lock_failures else _NEVER
        flush = self._flush_points[0][0] if self._flush_points else _NEVER
        self.due_at = min(failure, flush)
