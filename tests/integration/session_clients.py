"""Clients with write sessions, and what tests look at behind their backs."""

import asyncio
from collections.abc import Awaitable, Callable

import waltz
from waltz.client.engine.environment import Environment, ZooKeeperCluster
from waltz.client.engine.links.links import Connector
from waltz.client.options import ClientOptions
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.net.channel import connect as connect_directly
from waltz.common.zk.store_admin import read_partition_metadata
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

LIVELY = ClientOptions(reconnect_initial_s=0.02, reconnect_maximum_s=0.2, not_ready_retry_s=0.05)
POLL_INTERVAL_S = 0.02
TIMEOUT_S = 60.0


def client_of(
    cluster: LocalCluster,
    *,
    sessions: bool = True,
    connector: Connector = connect_directly,
    options: ClientOptions = LIVELY,
    **settings: object,
) -> waltz.Client:
    """A client whose appends belong to write sessions, unless ``sessions`` is false; ``settings`` are fields of its
    configuration."""
    config = load(cluster.layout.client_config_path, ClientConfig)
    config = config.model_copy(
        update={"enable_session_write": sessions, "max_concurrent_transactions": 2048, **settings}
    )
    return waltz.Client(Environment(config, ZooKeeperCluster(config), connector, options))


async def log_of(client: waltz.Client, partition_id: int, after: int = -1) -> list[bytes]:
    """The data of everything that is committed behind a transaction."""
    mark = await client.high_water_mark(partition_id)
    if mark <= after:
        return []
    return [each.data async for each in client.feed(partition_id, after=after, until=mark)]


async def store_session(cluster: LocalCluster, partition_id: int) -> int:
    """The present one, as it is in ZooKeeper."""
    zookeeper = await cluster.zookeeper()
    try:
        metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
        assert metadata is not None
        return metadata.session_id
    finally:
        await zookeeper.close()


async def append_until(error: type[waltz.NotAppendedError], client: waltz.Client, partition_id: int) -> None:
    """Return when an append ends with this error; until then all have to get lost, or be refused for other reasons."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                transaction_id = await client.append(partition_id, b"refused")
                raise AssertionError(f"{transaction_id} of partition {partition_id} should not be there")
            except error:
                return
            except waltz.NotAppendedError:
                await asyncio.sleep(POLL_INTERVAL_S)


async def eventually(call: Callable[[], Awaitable[object]], timeout_s: float = TIMEOUT_S) -> None:
    """Return when it has gone well for once: what is known not to be done may be tried again."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                await call()
                return
            except waltz.SessionFencedError:
                raise
            except waltz.NotAppendedError:
                await asyncio.sleep(POLL_INTERVAL_S)
