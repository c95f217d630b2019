"""What a view node shows of its work: descriptions and values of its metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from waltz.common.metrics.registry import Description, Readings, Registry

_APPLIED = Description(
    "waltz_view_applied_transaction", "gauge", ("partition",), "The last transaction that the view has applied."
)
_ROWS = Description(
    "waltz_view_rows", "gauge", ("partition",), "Rows of the view, with expired ones, and without tombstones."
)
_STOPPED = Description(
    "waltz_view_stopped", "gauge", ("partition",), "1 while the view of the partition is not served."
)
_REQUESTS = Description(
    "waltz_view_requests_total", "counter", ("operation", "status"), "Answered requests, by the status of the answer."
)
_SECONDS = Description(
    "waltz_view_request_seconds_total",
    "counter",
    ("operation",),
    "Time that the answered requests took, watches excepted.",
)
_UNDER_WAY = Description("waltz_view_requests_under_way", "gauge", (), "Requests under way, watches excepted.")
_WATCHES = Description("waltz_view_watches", "gauge", (), "Open watches.")
_CUT = Description(
    "waltz_view_watches_ended_total", "counter", ("reason",), "Watches that the view node has ended, by the reason."
)
_CONNECTIONS = Description("waltz_view_connections", "gauge", (), "Open connections to `view.port`.")

DESCRIPTIONS = (_APPLIED, _ROWS, _STOPPED, _REQUESTS, _SECONDS, _UNDER_WAY, _WATCHES, _CUT, _CONNECTIONS)


class PartitionState(NamedTuple):
    """What is shown of a partition."""

    partition_id: int
    applied: int
    rows: int
    served: bool


class ViewMetrics:
    """The values, which requests count."""

    def __init__(self, registry: Registry, partitions: Callable[[], Iterable[PartitionState]]) -> None:
        self.under_way = 0
        self.watches = 0
        self.connections: Callable[[], int] = int
        self.answers: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._ended: Counter[str] = Counter()
        registry.reading(_APPLIED, lambda: (((str(each.partition_id),), each.applied) for each in _served(partitions)))
        registry.reading(_ROWS, lambda: (((str(each.partition_id),), each.rows) for each in _served(partitions)))
        registry.reading(_STOPPED, lambda: (((str(each.partition_id),), int(not each.served)) for each in partitions()))
        registry.reading(_REQUESTS, self._counted)
        registry.reading(_SECONDS, lambda: [((name,), seconds) for name, seconds in self._seconds.items()])
        registry.reading(_UNDER_WAY, lambda: [((), self.under_way)])
        registry.reading(_WATCHES, lambda: [((), self.watches)])
        registry.reading(_CUT, lambda: [((reason,), count) for reason, count in self._ended.items()])
        registry.reading(_CONNECTIONS, lambda: [((), self.connections())])

    def answered(self, operation: str, status: int, seconds: float | None) -> None:
        """Count an answer."""
        self.answers[operation, status] += 1
        if seconds is not None:
            self._seconds[operation] += seconds

    def ended(self, reason: str) -> None:
        """Count a watch that this side has ended."""
        self._ended[reason] += 1

    def _counted(self) -> Readings:
        for (operation, status), count in self.answers.items():
            yield (operation, str(status)), count


def _served(partitions: Callable[[], Iterable[PartitionState]]) -> Iterable[PartitionState]:
    return (each for each in partitions() if each.served)
