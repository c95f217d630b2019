"""Chooses the replica for a read: the replica with the smallest accumulated expected latency. Pure."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

RouteT = TypeVar("RouteT")

INITIAL_LATENCY_MS = 10
MIN_LATENCY_MS = 1
MAX_LATENCY_MS = 3000


class LatencyWeightedRouter(Generic[RouteT]):
    """Gives every route a share of the picks that is inversely proportional to its latency.

    Each pick takes the route of the smallest weight and adds the route's expected latency to it; a measured latency
    moves the expectation half-way. Equal routes are used in turn.
    """

    __slots__ = ("_heap", "_latencies_ms", "_turn")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RouteT]] = []
        self._latencies_ms: dict[RouteT, int] = {}
        self._turn = 0

    def add(self, route: RouteT) -> None:
        """Add a route with the smallest present weight, so that it is not flooded as if it had missed earlier picks."""
        if route in self._latencies_ms:
            return
        self._latencies_ms[route] = INITIAL_LATENCY_MS
        self._push(self._heap[0][0] if self._heap else 0, route)

    def pick(self, usable: Callable[[RouteT], bool]) -> RouteT | None:
        """The usable route whose turn it is, or ``None``.

        The weight of skipped routes rises to that of the picked route, so that they are not flooded when they become
        usable.
        """
        passed_over: list[tuple[int, int, RouteT]] = []
        picked: RouteT | None = None
        level = 0
        while self._heap:
            entry = heappop(self._heap)
            if usable(entry[2]):
                picked = entry[2]
                level = entry[0]
                self._push(level + self._latencies_ms[picked], picked)
                break
            passed_over.append(entry)
        for weight, turn, route in passed_over:
            heappush(self._heap, (max(weight, level), turn, route))
        return picked

    def update(self, route: RouteT, latency_ms: float) -> None:
        """Learn the latency of ``route``, clipped to 1 to 3000 ms. A failure counts as the maximum."""
        expected_ms = self._latencies_ms.get(route)
        if expected_ms is not None:
            measured_ms = int(min(max(latency_ms, MIN_LATENCY_MS), MAX_LATENCY_MS))
            self._latencies_ms[route] = (expected_ms + measured_ms) // 2

    def _push(self, weight: int, route: RouteT) -> None:
        self._turn += 1
        heappush(self._heap, (weight, self._turn, route))
