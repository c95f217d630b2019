"""The metrics of one partition of a server: first those of the original, under its names, then those of this project.

Histograms cover all partitions of a server together: the buckets of a thousand partitions would be too much for a
scrape.
"""

from collections.abc import Callable, Mapping, Sequence

from waltz.common.metrics.registry import Description, Gauge, GaugeForm, MetricId, Registry
from waltz.common.replica_states import ReplicaStatus
from waltz.server.feeding.feed import Feed
from waltz.server.store.replica.replica_view import ReplicaView

SERVER_GROUP = "waltz-server"

_APPEND = Description(
    "waltz_server_append_seconds",
    "histogram",
    (),
    "Time from the acceptance of an append to its commit. One observation an append.",
)
_FEED_LAG = Description(
    "waltz_server_feed_lag_transactions",
    "histogram",
    (),
    "Committed transactions not yet sent to a connection. One observation for each batch sent.",
)
_FEED_LAG_BOUNDS = (0, 10, 100, 1000, 10_000, 100_000, 1_000_000)
HISTOGRAMS = (_APPEND, _FEED_LAG)


class PartitionMetrics:
    """Registered while the partition is open, or waits for the close of its predecessor. The hot path marks once per
    batch, never per record."""

    def __init__(self, registry: Registry, partition_id: int) -> None:
        self._registry = registry
        self.clock = registry.clock
        """The clock for response latencies."""
        self._group = f"{SERVER_GROUP}.partition-{partition_id}"
        registry.remove_group(self._group)
        self.transaction = registry.meter(self._group, "transaction")
        """The number of received append requests."""
        self.successful_append = registry.meter(self._group, "successful-append")
        """The number of committed appends."""
        self.rejected_append = registry.meter(self._group, "rejected-append")
        """The number of sent lock failures."""
        self.response_latency = registry.timer(self._group, "response-latency")
        """Time from acceptance to commit, with one sample for appends that were accepted together. The console and the
        histogram of all partitions read its counts."""
        self._append = registry.histogram(_APPEND).of()
        self._append.include(self.response_latency.durations)
        self.feed_lag = registry.histogram(_FEED_LAG, _FEED_LAG_BOUNDS).of()
        self.failed_append = registry.meter(self._group, "failed-append")
        """The number of appends that a later session has not found in the log."""
        self.other_generation_append = registry.meter(self._group, "other-generation-append")
        """The number of appends dropped because their client knows another generation."""
        self.stale_append = registry.meter(self._group, "stale-append")
        """The number of appends dropped because their connection has no valid mount."""
        self.refused_append = registry.meter(self._group, "refused-append")
        """Appends dropped because too many waited for a store session for too long."""
        self.level_refused = registry.meter(self._group, "level-refused-append")
        """Appends refused because of their level of consistency."""
        self.out_of_order_append = registry.meter(self._group, "out-of-order-append")
        """Appends refused because their client has foreseen another id."""
        self.session_append = registry.meter(self._group, "session-append")
        """The number of appends admitted by their write session. Appends without a write session are not counted."""
        self.session_fenced = registry.meter(self._group, "session-fenced")
        """The number of appends refused because of their write session."""
        self.dropped_exclusive = registry.meter(self._group, "dropped-exclusive")
        """The number of appends from versions before write sessions that were dropped because another client holds an
        exclusive session."""
        self.fences = registry.meter(self._group, "fences")
        """The number of raises of the write session on request."""
        self.fence_latency = registry.timer(self._group, "fence-latency")
        """Time from the decision of all earlier appends to the answer."""
        self.feed_cache_miss = registry.meter(SERVER_GROUP, "feed-cache-miss")
        self.transaction_cache_miss = registry.meter(SERVER_GROUP, "transaction-cache-miss")

    def add_gauges(self, gauges: Mapping[str, Gauge]) -> None:
        """Register gauges by name."""
        for name, gauge in gauges.items():
            self._registry.gauge(self._group, name, gauge)

    def add_feed(self, feed: Feed) -> None:
        """Register the counts of the feed, as gauges like in the original."""
        counts: dict[str, Gauge] = {
            "total-real-time-feed-context-added": lambda: feed.contexts_added,
            "total-real-time-feed-context-removed": lambda: feed.contexts_removed,
            "total-catchup-feed-context-added": lambda: feed.catch_up_added,
            "total-catchup-feed-context-removed": lambda: feed.catch_up_removed,
        }
        for name, count in counts.items():
            self._registry.gauge(self._group, name, count, GaugeForm(counts=True))

    def add_replicas(
        self, read: Callable[[], Sequence[ReplicaView]], lags_s: Callable[[], Mapping[str, float | None]]
    ) -> None:
        """Register the metrics of the partition's replicas, which ``read`` returns, and their ages by storage."""
        form = GaugeForm(label="storage")
        gauges: dict[str, Gauge] = {
            "replica-lag-transactions": lambda: {view.storage: view.lag_transactions for view in read()},
            "replica-lag-seconds": lambda: {**lags_s()},
            "replica-state": lambda: {view.storage: view.status.value for view in read()},
        }
        for name, gauge in gauges.items():
            self._registry.gauge(self._group, name, gauge, form)
        self.add_gauges(
            {
                "replicas": lambda: len(read()),
                "current-replicas": lambda: sum(view.status is ReplicaStatus.CURRENT for view in read()),
            }
        )

    def remove(self) -> None:
        """Forget the metrics of the partition, unless a successor has registered its own."""
        self._append.exclude(self.response_latency.durations)
        if self._registry.meters.get(MetricId(self._group, "transaction")) is self.transaction:
            self._registry.remove_group(self._group)
