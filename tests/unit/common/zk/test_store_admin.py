"""Administrative operations: preconditions and what is written."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from uuid import UUID

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.errors import ConfigError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk import store_admin as admin
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import StoreAdminError
from waltz.common.zk.znodes import (
    EMPTY_PARTITION_METADATA,
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    ReplicaAssignments,
    ServerDescriptor,
    StoreParams,
)

ROOT = "/a/waltz"
PATHS = ClusterPaths.of(ROOT)
KEY = UUID("339476fd-c80f-4ace-a26a-66dcbe6af680")


@pytest.fixture
def server() -> MemoryZooKeeperServer:
    return MemoryZooKeeperServer()


@pytest.fixture
async def zk(server: MemoryZooKeeperServer) -> MemoryZooKeeper:
    client = await server.connect()
    await admin.create_cluster(client, ROOT, "demo", 4, KEY)
    return client


async def refused(server: MemoryZooKeeperServer, call: Coroutine[object, object, object], text: str) -> None:
    """The call raises and nothing was written."""
    before = server.dump()
    with pytest.raises(StoreAdminError, match=text):
        await call
    assert server.dump() == before


async def test_create_is_the_tree_of_the_original(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    empty = b"\x01\0\0\0\0"
    assert server.dump() == {
        "/a": None,
        PATHS.root: ClusterParams("demo", 4).encode(),
        PATHS.server_descriptors: PartitionAssignment(-1, 0, {}).encode(),
        PATHS.ids: None,
        PATHS.client_ids: b"\0\0\0\0",
        PATHS.server_ids: b"\0\0\0\0",
        PATHS.store: StoreParams(KEY, 4).encode(),
        PATHS.group: empty,
        PATHS.assignment: empty,
        PATHS.connection: empty,
        PATHS.partitions: None,
    }
    versions = {path: (await zk.get(path))[1][:2] for path in server.dump()}
    lock_changes = 2  # its creation and its deletion
    assert versions == {
        "/a": (0, 1),
        PATHS.root: (1, 3),
        PATHS.server_descriptors: (0, 0),
        PATHS.ids: (0, 2),
        PATHS.client_ids: (0, 0),
        PATHS.server_ids: (0, 0),
        PATHS.store: (1, 4 + lock_changes),
        PATHS.group: (1, 0),
        PATHS.assignment: (1, 0),
        PATHS.connection: (1, 0),
        PATHS.partitions: (0, 0),
    }


async def test_create_refusals(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await refused(server, admin.create_cluster(zk, ROOT, "demo", 4), "a cluster already exists at /a/waltz")
    await refused(server, admin.create_cluster(zk, "/b", "demo", -1), "must not be negative")
    await refused(server, admin.create_cluster(zk, "/b", "x" * 70000, 1), "cluster name")
    with pytest.raises(ConfigError):
        await admin.create_cluster(zk, "/b/", "demo", 1)


async def test_create_draws_a_key_and_completes_what_broke_off(server: MemoryZooKeeperServer) -> None:
    zk = await server.connect()
    zk.lose_request("set", 3)
    for _ in range(3):
        with pytest.raises(WaltzError):
            await admin.create_cluster(zk, "/w", "demo", 0)
    with pytest.raises(ProtocolError, match="no value"):
        await admin.read_cluster_params(zk, "/w")
    key = await admin.create_cluster(zk, "/w", "demo", 0)
    assert key.version == 4
    assert await admin.read_store_params(zk, "/w") == StoreParams(key, 0)
    assert await admin.read_cluster_params(zk, "/w") == ClusterParams("demo", 0)
    assert await admin.read_groups(zk, "/w") == GroupDescriptor({})


async def test_delete(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await refused(server, admin.delete_cluster(zk, ROOT, "other"), "is named 'demo', not 'other'")
    await refused(server, admin.delete_cluster(zk, "/no", "demo"), "there is no cluster at /no")
    await zk.create(PATHS.server_descriptor("s_"), b"", ephemeral=True, sequential=True)
    await admin.delete_cluster(zk, ROOT, "demo")
    assert server.dump() == {"/a": None}


async def test_delete_by_force(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await zk.set(PATHS.root, b"broken")
    await refused(server, admin.delete_cluster(zk, ROOT, "demo"), "named None")
    await admin.delete_cluster(zk, ROOT, "other", force=True)
    assert server.dump() == {"/a": None}


async def test_storage_nodes_come_and_go(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await admin.add_storage_node(zk, ROOT, "s1:6000", 1, 6100)
    await admin.add_storage_node(zk, ROOT, "s2:6000", 2, 6200)
    assert await admin.read_groups(zk, ROOT) == GroupDescriptor({"s1:6000": 1, "s2:6000": 2})
    assert await admin.read_connections(zk, ROOT) == ConnectionMetadata({"s1:6000": 6100, "s2:6000": 6200})
    assert await admin.read_replica_assignments(zk, ROOT) == ReplicaAssignments({"s1:6000": (), "s2:6000": ()})
    await refused(server, admin.add_storage_node(zk, ROOT, "s1:6000", 1, 6100), "s1:6000 already exists")
    await refused(server, admin.add_storage_node(zk, ROOT, "s3", 1, 6100), "host:port")
    await refused(server, admin.add_storage_node(zk, ROOT, "s3:1", 1, 70000), "admin port")
    await refused(server, admin.remove_storage_node(zk, ROOT, "s3:6000"), "s3:6000 does not exist")
    await admin.assign_partitions(zk, ROOT, "s1:6000", [1])
    await refused(server, admin.remove_storage_node(zk, ROOT, "s1:6000"), "still has partitions 1")
    await admin.remove_storage_node(zk, ROOT, "s2:6000")
    assert await admin.read_groups(zk, ROOT) == GroupDescriptor({"s1:6000": 1})
    assert await admin.read_connections(zk, ROOT) == ConnectionMetadata({"s1:6000": 6100})


async def test_partial_entry_can_be_removed(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await zk.set(PATHS.connection, ConnectionMetadata({"s1:6000": 1}).encode())
    await refused(server, admin.add_storage_node(zk, ROOT, "s1:6000", 1, 6100), "already exists")
    await admin.remove_storage_node(zk, ROOT, "s1:6000")
    await admin.add_storage_node(zk, ROOT, "s1:6000", 1, 6100)


async def test_partial_entry_is_completed(zk: MemoryZooKeeper) -> None:
    await zk.set(PATHS.group, GroupDescriptor({"s1:6000": 3}).encode())
    await zk.set(PATHS.assignment, ReplicaAssignments({"s1:6000": ()}).encode())
    await admin.add_storage_node(zk, ROOT, "s1:6000", 1, 6100)
    assert await admin.read_groups(zk, ROOT) == GroupDescriptor({"s1:6000": 1})
    assert await admin.read_connections(zk, ROOT) == ConnectionMetadata({"s1:6000": 6100})


async def test_all_partitions_are_given_at_once_and_once(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    for storage in ("s1:1", "s2:1"):
        await admin.add_storage_node(zk, ROOT, storage, 1, 6100)
    await refused(server, admin.assign_all_partitions(zk, ROOT, ["s1:1", "s3:1"]), "s3:1 does not exist")
    await admin.assign_all_partitions(zk, ROOT, ["s2:1"])
    held = {"s1:1": (), "s2:1": (0, 1, 2, 3)}
    assert (await admin.read_replica_assignments(zk, ROOT)).partitions == held
    await refused(server, admin.assign_all_partitions(zk, ROOT, ["s1:1"]), "already have partitions: s2:1")


async def test_an_exchange_is_one_write(zk: MemoryZooKeeper) -> None:
    for storage, group in (("s1:1", 1), ("s2:1", 1), ("s3:1", 2)):
        await admin.add_storage_node(zk, ROOT, storage, group, 100)
    await admin.assign_partitions(zk, ROOT, "s1:1", [0, 1])
    await admin.assign_partitions(zk, ROOT, "s2:1", [2])
    version = (await zk.get(f"{ROOT}/store/assignment"))[1].version
    await admin.exchange_replica(zk, ROOT, 1, "s1:1", "s2:1")
    assert (await zk.get(f"{ROOT}/store/assignment"))[1].version == version + 1
    assignments = await admin.read_replica_assignments(zk, ROOT)
    assert assignments.partitions == {"s1:1": (0,), "s2:1": (1, 2), "s3:1": ()}
    for leaving, joining, text in (
        ("s1:1", "s2:1", "partition 1 is not assigned to s1:1"),
        ("s2:1", "s2:1", "partition 1 is already assigned to s2:1"),
        ("s2:1", "s3:1", "storage nodes s2:1 and s3:1 are not in the same group"),
        ("s2:1", "s4:1", "storage node s4:1 does not exist"),
    ):
        with pytest.raises(admin.StoreAdminError, match=text):
            await admin.exchange_replica(zk, ROOT, 1, leaving, joining)


async def test_lost_replicas_are_given_up_whoever_else_of_their_group_holds_them(zk: MemoryZooKeeper) -> None:
    for group, storage in enumerate(("s1:1", "s2:1", "s3:1")):
        await admin.add_storage_node(zk, ROOT, storage, group, 100)
        await admin.assign_partitions(zk, ROOT, storage, [0, 1])
    version = (await zk.get(f"{ROOT}/store/assignment"))[1].version
    await admin.give_up_replicas(zk, ROOT, 1, ["s1:1", "s2:1", "s4:1"])
    assert (await zk.get(f"{ROOT}/store/assignment"))[1].version == version + 1
    assignments = await admin.read_replica_assignments(zk, ROOT)
    assert assignments.partitions == {"s1:1": (0,), "s2:1": (0,), "s3:1": (0, 1)}


async def test_assign_and_unassign(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    for storage, group in (("s1:1", 1), ("s2:1", 1), ("s3:1", 2)):
        await admin.add_storage_node(zk, ROOT, storage, group, 6100)
    await admin.assign_partitions(zk, ROOT, "s1:1", [3, 0])
    await admin.assign_partitions(zk, ROOT, "s1:1", [2, 2])
    await admin.assign_partitions(zk, ROOT, "s3:1", range(4))
    assert (await admin.read_replica_assignments(zk, ROOT)).partitions["s1:1"] == (0, 2, 3)
    for call, text in (
        (admin.assign_partitions(zk, ROOT, "s1:1", []), "no partitions given"),
        (admin.assign_partitions(zk, ROOT, "s1:1", [1, 4]), "the cluster has 4 partitions; not among them: 4"),
        (admin.assign_partitions(zk, ROOT, "s1:1", [-1]), "not among them: -1"),
        (admin.assign_partitions(zk, ROOT, "s4:1", [1]), "s4:1 does not exist"),
        (admin.assign_partitions(zk, ROOT, "s1:1", [1, 2]), "partitions 2 are already assigned to s1:1"),
        (admin.unassign_partitions(zk, ROOT, "s1:1", []), "no partitions given"),
        (admin.unassign_partitions(zk, ROOT, "s4:1", [1]), "s4:1 does not exist"),
        (admin.unassign_partitions(zk, ROOT, "s1:1", [0, 1]), "partitions 1 are not assigned to s1:1"),
        (admin.unassign_partitions(zk, ROOT, "s1:1", [0]), "no other storage node of group 1 holds partitions 0"),
    ):
        await refused(server, call, text)
    await admin.assign_partitions(zk, ROOT, "s2:1", [0, 3])
    await admin.unassign_partitions(zk, ROOT, "s1:1", [0, 3])
    assert (await admin.read_replica_assignments(zk, ROOT)).partitions == {
        "s1:1": (2,),
        "s2:1": (0, 3),
        "s3:1": (0, 1, 2, 3),
    }


async def test_auto_assign(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    await refused(server, admin.auto_assign(zk, ROOT, 1), "group 1 has no storage node")
    for storage, group in (("s3:1", 1), ("s1:1", 1), ("s2:1", 1), ("other:1", 2)):
        await admin.add_storage_node(zk, ROOT, storage, group, 6100)
    await admin.auto_assign(zk, ROOT, 1)
    assert (await admin.read_replica_assignments(zk, ROOT)).partitions == {
        "s1:1": (0, 3),
        "s2:1": (1,),
        "s3:1": (2,),
        "other:1": (),
    }
    await refused(server, admin.auto_assign(zk, ROOT, 1), "already have partitions: s1:1, s2:1, s3:1")


async def test_lock_is_released_and_waited_for(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    other = await server.connect()
    await other.create(PATHS.admin_lock, None, ephemeral=True)
    blocked = asyncio.create_task(admin.add_storage_node(zk, ROOT, "s1:1", 1, 6100))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not blocked.done()
    server.expire(other)
    await blocked
    assert PATHS.admin_lock not in server.dump()


async def test_write_beside_the_lock_is_noticed(zk: MemoryZooKeeper, server: MemoryZooKeeperServer) -> None:
    real_get = zk.get
    other = await server.connect()

    async def get_and_interfere(path: str, watch: object = None) -> object:
        result = await real_get(path)
        if path == PATHS.assignment:
            await other.set(path, ReplicaAssignments({"x:1": ()}).encode())
        return result

    await admin.add_storage_node(zk, ROOT, "s1:1", 1, 6100)
    zk.get = get_and_interfere  # type: ignore[method-assign, assignment]  # the very moment between read and write
    with pytest.raises(StoreAdminError, match="was changed by someone else meanwhile"):
        await admin.assign_partitions(zk, ROOT, "s1:1", [0])


async def test_reading(zk: MemoryZooKeeper) -> None:
    assert await admin.read_partition_metadata(zk, ROOT, 3) is None
    await zk.create(PATHS.partition(3), EMPTY_PARTITION_METADATA.encode())
    assert await admin.read_partition_metadata(zk, ROOT, 3) == EMPTY_PARTITION_METADATA
    assert await admin.read_partition_assignment(zk, ROOT) == PartitionAssignment(-1, 0, {})
    descriptors = [ServerDescriptor(i, Endpoint("h", i), (i,)) for i in (2, 1)]
    for descriptor in descriptors:
        await zk.create(PATHS.server_descriptor("s_"), descriptor.encode(), ephemeral=True, sequential=True)
    assert await admin.read_server_descriptors(zk, ROOT) == descriptors[::-1]
    await zk.set(PATHS.assignment, None)
    assert await admin.read_replica_assignments(zk, ROOT) == ReplicaAssignments({})
    for call in (
        admin.read_cluster_params(zk, "/no"),
        admin.read_store_params(zk, "/no"),
        admin.read_partition_assignment(zk, "/no"),
        admin.read_server_descriptors(zk, "/no"),
        admin.read_groups(zk, "/no"),
    ):
        with pytest.raises(StoreAdminError, match="^there is no cluster at /no;"):
            await call


@pytest.mark.parametrize(
    ("path", "read"),
    [
        (PATHS.assignment, admin.read_replica_assignments),
        (PATHS.connection, admin.read_connections),
        (PATHS.group, admin.read_groups),
        (PATHS.store, admin.read_store_params),
        (PATHS.server_descriptors, admin.read_server_descriptors),
        (PATHS.server_descriptors, admin.read_partition_assignment),
    ],
)
async def test_a_damaged_tree_is_no_missing_cluster(
    server: MemoryZooKeeperServer, path: str, read: Callable[[ZooKeeper, str], Awaitable[object]]
) -> None:
    zk = await server.connect()
    await admin.create_cluster(zk, ROOT, "demo", 4)
    await admin._delete_tree(zk, path)
    with pytest.raises(StoreAdminError, match=f"is damaged: {path} is missing in ZooKeeper.*#restore-zookeeper"):
        await read(zk, ROOT)
    await zk.set(ROOT, None)
    with pytest.raises(StoreAdminError, match="^there is no cluster at"):
        await read(zk, ROOT)
