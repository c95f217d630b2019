"""The client in a cluster that is described in a ZooKeeper, in memory."""

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.client.application import QUICK, Callbacks, Context, World, config, open_client
from tests.unit.client.fake_server import FakeServer, until
from waltz.client.callbacks import WaltzClient
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.tls import server_context
from waltz.common.zk.store_admin import create_cluster
from waltz.common.zk.znodes import PartitionGeneration

pytestmark = pytest.mark.timeout(60)


class Managed:
    """A server for the cluster manager; the fake server does the work."""

    def __init__(self, endpoint: Endpoint, owned: set[int]) -> None:
        self.endpoint = endpoint
        self._owned = owned

    def cluster_joined(self, cluster_name: str, server_id: int) -> None:
        pass

    def set_partitions(self, partitions: list[PartitionGeneration]) -> None:
        self._owned.clear()
        self._owned.update(partition.partition_id for partition in partitions)


async def test_a_client_follows_the_cluster(wide_world: World) -> None:
    tree = MemoryZooKeeperServer()
    zookeeper = await tree.connect()
    await create_cluster(zookeeper, "/waltz", "bank", 3)
    first = await wide_world.server([])
    cluster = await ClusterManager.open(zookeeper, "/waltz")
    try:
        managed = Managed(first.endpoint, first.owned)
        await cluster.manage_server(managed)
        callbacks = Callbacks()
        client_zookeeper = await tree.connect()
        async with await WaltzClient.open(callbacks, config(), zookeeper=client_zookeeper, options=QUICK) as client:
            assert (client.cluster_name, client.partition_count, client.client_id) == ("bank", 3, 1)
            contexts = [Context(partition_id=partition_id) for partition_id in range(3)]
            for context in contexts:
                await client.submit(context)
            await until(lambda: all(context.done for context in contexts))
            assert first.owned == {0, 1, 2}

            second = await wide_world.server([])
            await cluster.manage_server(Managed(second.endpoint, second.owned))
            await cluster.unmanage_server(managed)
            await until(lambda: second.owned == {0, 1, 2})
            await first.close()
            contexts = [Context(partition_id=partition_id) for partition_id in range(3)]
            for context in contexts:
                await client.submit(context)
            await until(lambda: all(context.done for context in contexts))
            assert callbacks.applied == {partition_id: [0, 1] for partition_id in range(3)}
        other = await WaltzClient.open(Callbacks(), config(autoMount=False), zookeeper=client_zookeeper, options=QUICK)
        assert other.client_id == 2
        assert other.partitions == set()
        await other.close()
        await client_zookeeper.close()
    finally:
        await cluster.close()
        await zookeeper.close()


async def test_with_tls(world: World) -> None:
    server = await FakeServer.open(world.logs, tls=server_context(TlsConfig()))
    world.servers.append(server)
    endpoints = {server.endpoint: [PartitionGeneration(0, 1)]}
    client = await open_client(Callbacks(), endpoints, 1, config(**{"ssl.plaintext": False}))
    world.clients.append(client)
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert await client.high_water_mark(0) == 0


async def test_opening_fails_cleanly() -> None:
    tree = MemoryZooKeeperServer()
    zookeeper = await tree.connect()
    with pytest.raises(WaltzError):
        await WaltzClient.open(Callbacks(), config(), zookeeper=zookeeper)

    class Failing(Callbacks):
        def client_high_water_mark(self, partition_id: int) -> int:
            raise OSError("no database")

    await create_cluster(zookeeper, "/waltz", "bank", 1)
    with pytest.raises(OSError, match="no database"):
        await WaltzClient.open(Failing(), config(), zookeeper=zookeeper)
    await zookeeper.close()


def test_public_names() -> None:
    assert isinstance(waltz.__version__, str)
    for name in set(waltz.__all__) - {"__version__"}:
        assert getattr(waltz, name).__name__.rpartition(".")[2] == name
    assert set(waltz.__all__) <= set(dir(waltz))
    with pytest.raises(AttributeError):
        _ = waltz.nothing
