"""A server over a real port, with logs of the test's own behind its partitions."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.unit.server.fakes import FakeLog
from waltz.common.access import ALLOW_ALL
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Registry
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.server.feeding.caches import FeedCache, TransactionCache
from waltz.server.partition.partition import PartitionOptions, ServerPartition
from waltz.server.partition.partition_metrics import PartitionMetrics
from waltz.server.process.property_setting import PropertiesSet
from waltz.server.process.service import ServerService, SetProperties
from waltz.server.requests.appends import AppendLimits
from waltz.server.store.interface import Append, LogListener
from waltz.server.store.memory import MemoryBudget

GENERATION = 1
MAX_TRANSACTION_BYTES = 1 << 20


class BatchingLog(FakeLog):
    """Commits by itself, in batches of odd sizes."""

    def append(self, appends: Sequence[Append]) -> None:
        if not self.undecided:
            asyncio.get_running_loop().call_soon(self.commit_next)
        super().append(appends)

    def commit_next(self) -> None:
        if self.open and self.undecided:
            self.commit(min(97, len(self.undecided)))
            asyncio.get_running_loop().call_soon(self.commit_next)


async def no_properties(partition_id: int, change: int, properties: str) -> PropertiesSet:
    raise WaltzError("there is no ZooKeeper")


@asynccontextmanager
async def serving(
    logs: Mapping[int, type[FakeLog]],
    *,
    version: int = 5,
    memory: MemoryBudget | None = None,
    set_properties: SetProperties = no_properties,
) -> AsyncIterator[tuple[Endpoint, dict[int, FakeLog]]]:
    """A server that speaks no newer version, and the logs of its partitions, with open sessions."""
    registry, budget = Registry(), memory or MemoryBudget()
    made: dict[int, FakeLog] = {}
    feed_cache, transaction_cache = FeedCache(1 << 20), TransactionCache(1 << 20)

    def make_partition(partition_id: int, generation: int) -> ServerPartition:
        def make_log(listener: LogListener) -> FakeLog:
            made[partition_id] = logs[partition_id](listener)
            made[partition_id].generation = generation
            return made[partition_id]

        return ServerPartition(
            partition_id,
            generation,
            PartitionOptions(),
            feed_cache=feed_cache,
            transaction_cache=transaction_cache,
            metrics=PartitionMetrics(registry, partition_id),
            random_source=random.Random(1),
            memory=budget,
            log_factory=make_log,
        )

    async def check_storages() -> dict[str, bool]:
        return {}

    async def set_preferred(partition_ids: Sequence[int]) -> None: ...

    service = ServerService(
        make_partition,
        partition_count=len(logs),
        append_limits=AppendLimits(MAX_TRANSACTION_BYTES, 10_000),
        question_timeout_s=10,
        check_storages=check_storages,
        set_preferred=set_preferred,
        set_properties=set_properties,
        access=ALLOW_ALL,
    )
    family = CLIENT_SERVER._replace(versions=tuple(range(version + 1)))
    limits = ListenerLimits(max_payload_bytes=2 * MAX_TRANSACTION_BYTES, abridged_type=APPEND_REQUEST_TYPE)
    listener = await Listener.open("127.0.0.1", 0, family, "Waltz Server", service.connection, tls=None, limits=limits)
    service.set_partitions(dict.fromkeys(logs, GENERATION))
    for log in made.values():
        log.open_session()
    try:
        yield Endpoint("127.0.0.1", listener.port), made
    finally:
        await service.close()
        await listener.close()
