"""What partitions cost that nobody uses: no timer, no wake-up, and a few tasks that wait."""

import asyncio
import random

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.server.store.fakes import FakeNetwork, FakePartition
from tests.unit.server.store.virtual_time import VirtualTimeLoop, run
from tests.unit.server.store.world import NAMES, ROOT
from waltz.common.metrics.registry import Registry
from waltz.common.zk.paths import ClusterPaths
from waltz.server.feeding.caches import FeedCache, TransactionCache
from waltz.server.partition.partition import PartitionOptions, ServerPartition
from waltz.server.partition.partition_metrics import PartitionMetrics
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import LogListener, StoreOptions
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.memory import MemoryBudget

PARTITIONS = 256

TASKS_PER_PARTITION = 6
"""The log, its session's writer of metadata, three replicas, and the reader of the feed: all wait for something."""


async def open_partitions(count: int) -> tuple[list[ServerPartition], FakeNetwork, StorageConnections]:
    network = FakeNetwork(NAMES)
    for storage in network.storages.values():
        storage.partitions = {number: FakePartition() for number in range(count)}
    tree = MemoryZooKeeperServer()
    zookeeper = await tree.connect()
    await zookeeper.create(ClusterPaths(ROOT).partitions, None, make_path=True)
    connections = StorageConnections(network.connector(), NAMES)
    registry, randomness = Registry(), random.Random(0)

    def make(partition_id: int) -> ServerPartition:
        def make_log(listener: LogListener) -> ReplicatedLog:
            options = StoreOptions(random_source=randomness)
            return ReplicatedLog(partition_id, 1, frozenset(NAMES), connections, zookeeper, ROOT, listener, options)

        return ServerPartition(
            partition_id,
            1,
            PartitionOptions(lock_table_size=10),
            feed_cache=FeedCache(1 << 20),
            transaction_cache=TransactionCache(1 << 20),
            metrics=PartitionMetrics(registry, partition_id),
            memory=MemoryBudget(),
            random_source=randomness,
            log_factory=make_log,
        )

    partitions = [make(number) for number in range(count)]
    for partition in partitions:
        partition.start()
    async with asyncio.timeout(60):
        while any(partition.high_water_mark is None for partition in partitions):
            await asyncio.sleep(0.01)
    await asyncio.sleep(60)  # late replicas join, deadlines of what was done pass
    return partitions, network, connections


def test_idle_partitions_have_no_timers_and_never_wake_up() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        tasks_before = len(asyncio.all_tasks())
        partitions, network, connections = await open_partitions(PARTITIONS)
        timers = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]  # asyncio's heap
        assert timers == []
        assert len(asyncio.all_tasks()) - tasks_before <= TASKS_PER_PARTITION * PARTITIONS + len(NAMES), (
            "connections too"
        )
        turns = 0
        run_once = loop._run_once  # type: ignore[attr-defined]  # one turn of asyncio's loop

        def counted() -> None:
            nonlocal turns
            turns += 1
            run_once()

        loop._run_once = counted  # type: ignore[attr-defined]  # as above
        await asyncio.sleep(3600)
        assert turns <= 2, "an hour passes in one sleep"
        for partition in partitions:
            await partition.close()
        await connections.close()
        await network.close()

    run(scenario())
