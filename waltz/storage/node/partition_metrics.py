"""Metrics of one partition of a storage node, under the original's names."""

from collections.abc import Callable, Iterable

from waltz.common.metrics.registry import Description, GaugeForm, Registry
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.node.session_rule import StorageRequest

GROUP = "waltz-storage"

_APPEND = Description(
    "waltz_storage_append_seconds",
    "histogram",
    (),
    "Time from the start of an append request until it is durable. One observation a request.",
)
_SYNC = Description(
    "waltz_storage_sync_seconds",
    "histogram",
    (),
    "Duration of a sync (fdatasync) of a group of append requests. One observation a group.",
)
HISTOGRAMS = (_APPEND, _SYNC)

_COUNTERS: dict[type, str] = {
    wire.LastSessionInfoRequest: "last-session-info-request",
    wire.SetLowWaterMarkRequest: "set-low-water-mark-request",
    wire.TruncateRequest: "truncate-request",
    wire.RecordHeaderRequest: "record-header-request",
    wire.RecordRequest: "record-request",
    wire.MaxTransactionIdRequest: "max-transaction-request",
    wire.RecordHeaderListRequest: "record-header-list-request",
    wire.RecordListRequest: "record-list-request",
}


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


class PartitionMetrics:
    """Registered from construction to :meth:`close`; counts requests that passed the permission checks.

    Every assigned partition has the gauges of the persisted state, even if it could not be opened: the ``list`` tool of
    the original requires them for each of its ids.
    """

    def __init__(self, registry: Registry, partition_id: int, control_file: ControlFile) -> None:
        self._registry = registry
        self.clock = registry.clock
        """The clock for the latencies of appends."""
        self._group = f"{GROUP}.partition-{partition_id}"
        self._appends = registry.meter(self._group, "append")
        self._append_latency = registry.timer(self._group, "append-latency")
        self._append_duration = registry.histogram(_APPEND).of()
        self._append_duration.include(self._append_latency.durations)
        self._sync_duration = registry.histogram(_SYNC).of()
        self._counters = {kind: registry.counter(self._group, name) for kind, name in _COUNTERS.items()}
        registry.gauge(self._group, "session-id", lambda: control_file.partition(partition_id).session_id)
        registry.gauge(self._group, "low-water-mark", lambda: control_file.partition(partition_id).low_water_mark)
        registry.gauge(
            self._group, "local-low-water-mark", lambda: control_file.partition(partition_id).local_low_water_mark
        )
        registry.gauge(self._group, "flags", lambda: control_file.partition(partition_id).flags)
        registry.gauge(self._group, "sequence-number", lambda: control_file.partition(partition_id).sequence_number)

    def watch_partition(self, queue_size: Callable[[], int], max_transaction_id: Callable[[], int]) -> None:
        """Register the metrics of an open partition."""
        self._registry.gauge(self._group, "process-queue-size", queue_size)
        self._registry.gauge(self._group, "max-transaction-id", max_transaction_id)

    def watch_log(self, log: PartitionLog) -> None:
        """Register the metrics of the state of the files; they have no counterpart in the original."""
        self._registry.gauge(self._group, "damaged-transactions", lambda: _count(log.damage.ranges))
        self._registry.gauge(self._group, "mended-index-entries", lambda: log.damage.mended_index_entries)
        self._registry.gauge(self._group, "commit-time-seconds", lambda: _seconds(log.times.last_time_ms))
        form = GaugeForm(name="torn-cut-bytes")
        self._registry.gauge(self._group, "torn-bytes-cut", lambda: log.damage.cut_bytes, form)

    def appended(self, count: int, started_s: float, sync_s: float | None) -> None:
        """Count ``count`` answered append requests. They were taken up together at ``started_s``, by :attr:`clock`;
        ``sync_s`` is the duration of the sync, if there was one."""
        now_s = self.clock()
        self._appends.mark(count, now_s)
        self._append_latency.update(now_s - started_s, count, now_s)
        if sync_s is not None:
            self._sync_duration.observe(sync_s)

    def count(self, message: StorageRequest) -> None:
        """Count an executed request that is not an append."""
        counter = self._counters.get(type(message))
        if counter is not None:
            counter.add()

    def close(self) -> None:
        """Forget the partition's metrics."""
        self._append_duration.exclude(self._append_latency.durations)
        self._registry.remove_group(self._group)
