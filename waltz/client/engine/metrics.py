"""The metrics of a client: those of the original, under its names.

An append uses neither the registry nor a meter. The code of an append has cheap counters, which are carried over
regularly and when metrics are read.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from waltz.client.engine.partition.partition import StreamPartition
from waltz.common.mark_ages import MarkAges
from waltz.common.metrics.registry import Meter, Registry

GROUP = "waltz-client"

_RATE_OVER_S = 1.0


class ClientMetrics:
    """The registry of one client. May be read in any thread."""

    def __init__(self, clock: Callable[[], float], lags: Callable[[], Mapping[int, int]]) -> None:
        self.registry = Registry(clock)
        self.registry.refresh = self.refresh
        self._read_lags = lags
        self._lags: Mapping[int, int] = {}
        self._ages: dict[int, MarkAges] = {}
        self._lags_s: dict[int, float] = {}
        self._partitions: Sequence[StreamPartition] = ()
        self._refreshed: dict[int, Callable[[], None]] = {}
        self._mutex = threading.Lock()

    def joined(
        self,
        cluster_name: str,
        client_id: int,
        partitions: Sequence[StreamPartition],
        active: Callable[[], Sequence[int]],
    ) -> None:
        """Register the metrics that need the id of the client."""
        registry = self.registry
        registry.labels["client"] = str(client_id)
        registry.gauge(GROUP, "cluster-name", lambda: cluster_name)
        registry.gauge(GROUP, "client-id", lambda: client_id)
        registry.gauge(GROUP, "num-active-partitions", lambda: len(active()))
        registry.gauge(GROUP, "active-partition-ids", active)
        self._partitions = partitions
        self._group = f"{GROUP}-{client_id}"

    def refresh(self) -> None:
        """Carry over the counts since the last call. A partition has metrics from the time at which the client joins
        it."""
        with self._mutex:
            self._lags = self._read_lags()
            for partition in self._partitions:
                refresh = self._refreshed.get(partition.partition_id)
                if refresh is None and partition.active:
                    refresh = self._refreshed[partition.partition_id] = self._register(partition)
                if refresh is not None:
                    refresh()
                    self._note_age(partition)

    def _note_age(self, partition: StreamPartition) -> None:
        """Note when the known mark was seen, which tells later for how long a transaction has been known."""
        partition_id, feed, now_s = partition.partition_id, partition.feed, self.registry.clock()
        mark, lag = max(feed.received, feed.applied), self._lags.get(partition_id, 0)
        ages = self._ages.setdefault(partition_id, MarkAges())
        ages.note(mark, now_s)
        self._lags_s[partition_id] = ages.age_s(mark - lag, now_s) if lag > 0 else 0.0

    def _register(self, partition: StreamPartition) -> Callable[[], None]:
        registry, partition_id = self.registry, partition.partition_id
        group = f"{self._group}.partition-{partition_id}"
        appends, feed, mount, probe = partition.appends, partition.feed, partition.mount, partition.probe
        registry.gauge(group, "is-mounted", lambda: mount.channel is not None)
        registry.gauge(group, "is-partition-active", lambda: partition.active)
        registry.gauge(group, "high-water-mark", lambda: feed.applied)
        registry.gauge(group, "num-registered-transactions", lambda: appends.monitor.pending)
        registry.gauge(group, "lag", lambda: self._lags.get(partition_id, 0))
        registry.gauge(group, "lag-seconds", lambda: self._lags_s.get(partition_id, 0.0))
        lock_failures = registry.meter(group, "lock-failure")
        late = registry.meter(group, "transaction-monitor-timeout")
        acknowledged = registry.meter(group, "early-acknowledgement")
        retracted = registry.meter(group, "retracted-acknowledgement")
        sent = registry.meter(group, "send-throughput")
        received = registry.meter(group, "received-throughput")
        completion = registry.timer(group, "on-completion-latency")
        application = registry.timer(group, "on-application-latency")
        looked_at_s, sent_then = registry.clock(), appends.count_sent()

        def refresh() -> None:
            nonlocal looked_at_s, sent_then
            elapsed_s, sent_now = registry.clock() - looked_at_s, appends.count_sent()
            if elapsed_s >= _RATE_OVER_S:
                probe.adapt((sent_now - sent_then) / elapsed_s)
                looked_at_s, sent_then = looked_at_s + elapsed_s, sent_now
            _raise(lock_failures, appends.counts.lock_failures)
            _raise(late, appends.counts.late)
            _raise(acknowledged, appends.counts.acknowledged)
            _raise(retracted, appends.counts.retracted)
            _raise(sent, sent_now)
            _raise(received, feed.received_count)
            for timer, durations_s in ((completion, probe.completions_s), (application, probe.applications_s)):
                while durations_s:
                    timer.update(durations_s.popleft())

        return refresh


def _raise(meter: Meter, count: int) -> None:
    if count > meter.count:
        meter.mark(count - meter.count)
