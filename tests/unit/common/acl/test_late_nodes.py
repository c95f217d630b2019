"""Who may still judge by older rules: nodes that say so, that say nothing, and servers that cannot say anything."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.acl import changes
from waltz.common.acl.late_nodes import LateNodes, has_no_other_owner, read_silent
from waltz.common.acl.store import Place, read_applied, read_stored, write_rules
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import add_storage_node, create_cluster
from waltz.common.zk.znodes import (
    EMPTY_PARTITION_METADATA,
    UNRESOLVED,
    PartitionAssignment,
    PartitionGeneration,
    PartitionMetadata,
    ReplicaId,
    ReplicaState,
    ServerDescriptor,
)

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)
STORAGE = "storage:1"


def metadata(generation: int, session_id: int, *replica_sessions: int) -> PartitionMetadata:
    states = [
        ReplicaState(ReplicaId(0, f"storage:{number}"), session, UNRESOLVED)
        for number, session in enumerate(replica_sessions)
    ]
    return PartitionMetadata(generation, session_id, {state.replica_id: state for state in states})


def test_a_former_owner_is_out_when_the_present_one_has_opened_a_session() -> None:
    assert has_no_other_owner(None, 3)
    assert has_no_other_owner(EMPTY_PARTITION_METADATA, 3)
    assert has_no_other_owner(metadata(2, 5), 3)  # nobody has ever opened a session
    for generation, replicas in itertools.product(range(6), itertools.product((3, 4, 5), repeat=2)):
        found = metadata(generation, 5, *replicas)
        assert has_no_other_owner(found, 3) is (generation >= 3 and 5 in replicas)


class Cluster:
    """The znodes that the servers and storages of a cluster write."""

    def __init__(self, server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper) -> None:
        self.server = server
        self.zookeeper = zookeeper
        self.nodes: dict[str, MemoryZooKeeper] = {}

    async def join(self, server_id: int) -> None:
        client = self.nodes[f"server-host:{server_id}"] = await self.server.connect()
        descriptor = ServerDescriptor(server_id, Endpoint("host", server_id))
        await client.create(f"{PATHS.server_descriptors}/s_", descriptor.encode(), ephemeral=True, sequential=True)

    async def apply(self, name: str, place: Place) -> None:
        client = self.nodes.setdefault(name, self.zookeeper)
        if await client.exists(PATHS.applied_rules_of(name)) is not None:
            await client.delete(PATHS.applied_rules_of(name))
        await client.create(PATHS.applied_rules_of(name), place.encode(), ephemeral=True, make_path=True)

    async def expire(self, name: str) -> None:
        await self.nodes.pop(name).close()

    async def assign(self, owners: dict[int, list[tuple[int, int]]]) -> None:
        servers = {
            server_id: tuple(PartitionGeneration(*each) for each in owned) for server_id, owned in owners.items()
        }
        await self.zookeeper.set(PATHS.server_descriptors, PartitionAssignment(1, 4, servers).encode())

    async def open(self, partition_id: int, found: PartitionMetadata) -> None:
        if await self.zookeeper.exists(PATHS.partition(partition_id)) is None:
            await self.zookeeper.create(PATHS.partition(partition_id), None)
        await self.zookeeper.set(PATHS.partition(partition_id), found.encode())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = MemoryZooKeeperServer()
    zookeeper = await server.connect()
    await create_cluster(zookeeper, ROOT, "name", 4)
    await add_storage_node(zookeeper, ROOT, STORAGE, 1, 2)
    made = Cluster(server, zookeeper)
    yield made
    for client in {zookeeper, *made.nodes.values()}:
        await client.close()


async def test_each_kind_of_late_node_is_named(cluster: Cluster) -> None:
    zookeeper = cluster.zookeeper
    old = await write_rules(zookeeper, ROOT, changes.initial([], []), None, 4)
    new = await write_rules(zookeeper, ROOT, changes.initial([], ["ops"]), await read_stored(zookeeper, ROOT), 4)
    late = LateNodes(zookeeper, ROOT, new)
    await cluster.join(1)
    await cluster.join(2)
    await cluster.assign({1: [(0, 5), (1, 5)], 2: [(2, 5), (3, 5)]})
    for partition_id in range(4):
        await cluster.open(partition_id, metadata(5, 9, 9, 8, 9))
    silent = "does not answer (down, or acl.enabled is not set)"
    assert await late.find() == [f"{name} {silent}" for name in ("server host:1", "server host:2", "storage storage:1")]
    assert await read_silent(zookeeper, ROOT, {}) == ["server host:1", "server host:2", "storage storage:1"]
    await cluster.apply("server-host:1", old)
    await cluster.apply("server-host:2", new)
    await cluster.apply("storage-storage:1", new)
    assert await late.find() == ["server host:1 applies version 0"]

    await cluster.expire("server-host:1")
    cut_off = "a server without a ZooKeeper session (down, or cut off from ZooKeeper), id 1, owns partitions 0-1"
    assert await late.find() == [cut_off]
    assert await read_silent(zookeeper, ROOT, await read_applied(zookeeper, ROOT)) == []

    await cluster.assign({2: [(0, 6), (1, 6), (2, 5), (3, 5)]})
    not_yet = "server host:2 has no store session yet at {}, where another server may go on"
    assert await late.find() == [not_yet.format("partitions 0-1")]
    await cluster.open(0, metadata(6, 10, 9, 8, 9))  # begun
    await cluster.open(1, metadata(6, 11, 11, 8, 11))
    assert await late.find() == [not_yet.format("partition 0")]
    await cluster.open(0, metadata(6, 10, 10, 8, 10))
    assert await late.find() == []

    await cluster.open(0, metadata(6, 11, 10, 8, 10))  # a later session of the same owner: the former one stays out
    assert await late.find() == []
    await cluster.join(1)
    await cluster.apply("server-host:1", new)
    await cluster.assign({1: [(0, 7)], 2: [(1, 6), (2, 5), (3, 5)]})
    assert await late.find() == [
        "server host:1 has no store session yet at partition 0, where another server may go on"
    ]


async def test_a_server_that_comes_back_with_the_new_rules_is_not_late(cluster: Cluster) -> None:
    place = await write_rules(cluster.zookeeper, ROOT, changes.initial([], []), None, 4)
    late = LateNodes(cluster.zookeeper, ROOT, place)
    await cluster.assign({1: [(0, 0)]})
    await cluster.apply("storage-storage:1", place)
    (found,) = await late.find()
    assert "id 1, owns partition 0" in found
    await cluster.join(1)
    await cluster.apply("server-host:1", place)
    assert await late.find() == []
    await cluster.assign({1: [], 7: []})
    await cluster.expire("server-host:1")
    assert await late.find() == []  # without partitions there is nothing to judge
