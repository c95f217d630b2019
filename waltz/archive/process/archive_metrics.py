"""The metrics of an archiver: descriptions and values."""

from collections.abc import Callable, Mapping

from waltz.archive.process.due import Backlog
from waltz.common.metrics.registry import Description, Readings, Registry

_LAG_TRANSACTIONS = Description(
    "waltz_archive_lag_transactions", "gauge", ("partition",), "Committed transactions that are not archived."
)
_LAG_BYTES = Description(
    "waltz_archive_lag_bytes", "gauge", ("partition",), "Estimated size of the transactions that are not archived."
)
_LAG_SECONDS = Description(
    "waltz_archive_lag_seconds", "gauge", ("partition",), "Age of the first transaction that is not archived."
)
_OBJECTS = Description("waltz_archive_objects_total", "counter", (), "Objects that this archiver has added.")
_BYTES = Description("waltz_archive_bytes_total", "counter", (), "Bytes of the objects that this archiver has added.")
_STORE_FAILURES = Description(
    "waltz_archive_store_failures_total", "counter", (), "Failed requests to the object store."
)
_STORE_AVAILABLE = Description(
    "waltz_archive_store_available", "gauge", (), "1 if the last request to the object store succeeded, else 0."
)
_REPLICAS_AVAILABLE = Description(
    "waltz_archive_cluster_available", "gauge", (), "1 if the last requests to the cluster succeeded, else 0."
)

DESCRIPTIONS = (
    _LAG_TRANSACTIONS,
    _LAG_BYTES,
    _LAG_SECONDS,
    _OBJECTS,
    _BYTES,
    _STORE_FAILURES,
    _STORE_AVAILABLE,
    _REPLICAS_AVAILABLE,
)


class ArchiveMetrics:
    """The values of the metrics; the archiver sets them."""

    def __init__(self, registry: Registry) -> None:
        self.backlogs: Mapping[int, Backlog] = {}
        """By partition."""
        self.objects = 0
        self.bytes = 0
        self.store_failures = 0
        self.is_store_available = True
        self.is_cluster_available = True
        values: dict[Description, Callable[[], float]] = {
            _OBJECTS: lambda: self.objects,
            _BYTES: lambda: self.bytes,
            _STORE_FAILURES: lambda: self.store_failures,
            _STORE_AVAILABLE: lambda: int(self.is_store_available),
            _REPLICAS_AVAILABLE: lambda: int(self.is_cluster_available),
        }
        for description, value in values.items():
            registry.reading(description, _reading(value))
        registry.reading(_LAG_TRANSACTIONS, lambda: self._lags(lambda backlog: backlog.transactions))
        registry.reading(_LAG_BYTES, lambda: self._lags(lambda backlog: backlog.size_bytes))
        registry.reading(_LAG_SECONDS, lambda: self._lags(lambda backlog: backlog.age_ms / 1000))

    def _lags(self, value: Callable[[Backlog], float]) -> Readings:
        for partition_id, backlog in self.backlogs.items():
            yield (str(partition_id),), value(backlog)


def _reading(value: Callable[[], float]) -> Callable[[], Readings]:
    return lambda: [((), value())]
