"""The server's own part of its console: its identity, its partitions, and their last hour."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import ServerConfig
from waltz.common.metrics.durations import percentiles_s
from waltz.common.metrics.registry import Json
from waltz.common.net.http import Page
from waltz.common.net.tls import client_context
from waltz.common.tasks import owned, restarting
from waltz.common.version import installed_version
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_store_params
from waltz.console.document import PartitionFacts, ReplicaFacts, rounded
from waltz.console.history import STEP_S, STEPS, History
from waltz.console.pages import Here, make_pages
from waltz.console.surveyor import Surveyor
from waltz.operations.survey.cluster_state import ClusterState, read_state
from waltz.server.partition.partition import ServerPartition
from waltz.server.process.replica_journal import under_replicated

ANSWER_TIMEOUT_S = 5.0
"""Time limit for each node in a survey of the cluster."""

MAX_METRICS_PARTITIONS = 16
"""Metrics of storages with more partitions are seldom read, since an answer delays appends by a few ms."""

PARTITIONS_AT_ONCE = 16
"""Number of partitions sampled before other work of the loop may run."""

Partitions = Callable[[], Mapping[int, ServerPartition]]


class _Sampled(NamedTuple):
    """The values of a partition at the last sample."""

    partition: ServerPartition
    at_s: float
    committed_count: int
    latency_counts: Mapping[int, int]


class Sampler:
    """Samples all partitions of the server once per step of the history."""

    def __init__(self, partitions: Partitions) -> None:
        self.total = History()
        """History of all partitions together."""
        self._partitions = partitions
        self._histories: dict[int, History] = {}
        self._sampled: dict[int, _Sampled] = {}
        self._p99_ms: dict[int, float | None] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            step = int(loop.time() / STEP_S) + 1
            await asyncio.sleep(step * STEP_S - loop.time())
            await self.sample(step)

    async def sample(self, step: int) -> None:
        """Sample every partition; let other work of the loop run in between.

        Health is not sampled: that would send requests to the storages of idle partitions, even if nobody watches.
        """
        commits_per_s, worst_lag, degraded = 0.0, 0, 0
        worst_lag_s = worst_feed_lag_s = 0.0
        all_counts: Counter[int] = Counter()
        for place, (partition_id, partition) in enumerate(list(self._partitions().items())):
            if place % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
            views = partition.replica_views
            rate, counts = self._progress(partition_id, partition)
            p50_ms, p99_ms = _percentiles_ms(counts)
            values: dict[str, float | None] = {"commits": rate, "p50_ms": p50_ms, "p99_ms": p99_ms}
            values.update({f"lag:{view.storage}": view.lag_transactions for view in views})
            self._histories.setdefault(partition_id, History()).record(step, values)
            self._p99_ms[partition_id] = p99_ms
            commits_per_s += rate or 0.0
            worst_lag = max(worst_lag, *(view.lag_transactions or 0 for view in views), 0)
            worst_lag_s = max(worst_lag_s, *(age_s or 0.0 for age_s in partition.replica_lags_s().values()), 0.0)
            worst_feed_lag_s = max(worst_feed_lag_s, partition.feed_lag_s)
            degraded += under_replicated(views)
            all_counts.update(counts)
        p50_ms, p99_ms = _percentiles_ms(all_counts)
        together = {"commits": commits_per_s, "p50_ms": p50_ms, "p99_ms": p99_ms, "lag": worst_lag}
        late = {"lag_s": worst_lag_s, "feed_lag_s": worst_feed_lag_s}
        self.total.record(step, {**together, **late, "degraded": degraded})
        self._forget(step)

    def _progress(self, partition_id: int, partition: ServerPartition) -> tuple[float | None, Mapping[int, int]]:
        """Commits per second since the last sample, and the number of their appends by latency."""
        now_s = asyncio.get_running_loop().time()
        before = self._sampled.get(partition_id)
        count = partition.committed_count
        latencies = partition.latency_counts()
        self._sampled[partition_id] = _Sampled(partition, now_s, count, latencies)
        if before is None or before.partition is not partition:
            return None, latencies
        since = {place: total - before.latency_counts.get(place, 0) for place, total in latencies.items()}
        rate = (count - before.committed_count) / (now_s - before.at_s) if now_s > before.at_s else None
        return rate, since

    def _forget(self, step: int) -> None:
        """Forget partitions that moved to other servers, and later their history."""
        there = self._partitions()
        self._sampled = {each: sampled for each, sampled in self._sampled.items() if each in there}
        self._p99_ms = {each: p99_ms for each, p99_ms in self._p99_ms.items() if each in there}
        self._histories = {
            each: history for each, history in self._histories.items() if step - history.last_step < STEPS
        }

    def facts(self, partition_id: int) -> PartitionFacts | None:
        """The present state of a partition."""
        partition = self._partitions().get(partition_id)
        if partition is None:
            return None
        p99_ms = self._p99_ms.get(partition_id)
        lags_s = partition.replica_lags_s()
        return PartitionFacts(
            None if p99_ms is None else rounded(p99_ms),
            [
                ReplicaFacts(view.storage, view.status, view.lag_transactions, lags_s.get(view.storage))
                for view in partition.replica_views
            ],
            partition.feed_lag_transactions,
            partition.feed_lag_s,
        )

    def history_of(self, partition_id: int) -> Mapping[str, Sequence[float | None]] | None:
        """The series of a partition, up to the same step as the total."""
        history = self._histories.get(partition_id)
        return None if history is None else history.series(max(self.total.last_step, history.last_step))


def _percentiles_ms(counts: Mapping[int, int]) -> tuple[float | None, float | None]:
    found = percentiles_s(counts, (0.5, 0.99))
    return (None, None) if found is None else (1000 * found[0], 1000 * found[1])


class ServerConsole:
    """The console of one server, from construction to :meth:`close`."""

    def __init__(
        self,
        partitions: Partitions,
        about: Callable[[], dict[str, Json]],
        zookeeper: ZooKeeper,
        config: ServerConfig,
    ) -> None:
        self._cluster = ClusterHandle(zookeeper, config.cluster_root, client_context(config.tls))
        self._sampler = Sampler(partitions)
        self._surveyor = Surveyor(self._look, self._sampler.facts)
        total = self._sampler.total
        version = installed_version()
        here = Here(
            lambda: {**about(), "version": version},
            self._sampler.facts,
            lambda: total.series(total.last_step),
            self._sampler.history_of,
        )
        self.pages: Mapping[str, Page] = make_pages(here, self._surveyor)
        """The pages by method and path."""
        what = "the sampling for the console"
        self._sampling = owned(restarting(self._sampler.run, what), what)

    async def close(self) -> None:
        """End the background tasks."""
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)
        await self._surveyor.close()

    async def _look(self, before: ClusterState | None) -> ClusterState:
        count = (await read_store_params(self._cluster.zookeeper, self._cluster.root)).partition_count
        return await read_state(
            self._cluster,
            range(count),
            timeout_s=ANSWER_TIMEOUT_S,
            before=before,
            max_metrics_partitions=MAX_METRICS_PARTITIONS,
        )
