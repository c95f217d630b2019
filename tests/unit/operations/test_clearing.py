"""When the files of a replica that has left may be deleted."""

from typing import cast

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
from waltz.operations.clearing import delete_files, reason_to_keep
from waltz.storage.remote.admin_client import StorageAdminClient

ROOT = "/waltz"
LEAVING, STAYING = "d:1", "s1:1"


async def cluster(metadata: PartitionMetadata | None, assigned: str = STAYING) -> ClusterHandle:
    zookeeper: MemoryZooKeeper = await MemoryZooKeeperServer().connect()
    await store_admin.create_cluster(zookeeper, ROOT, "clearing", 1)
    for storage in (LEAVING, STAYING):
        await store_admin.add_storage_node(zookeeper, ROOT, storage, 1, 2)
    await store_admin.assign_partitions(zookeeper, ROOT, assigned, [0])
    if metadata is not None:
        await zookeeper.create(ClusterPaths.of(ROOT).partition(0), metadata.encode(), make_path=True)
    return ClusterHandle(zookeeper, ROOT, None)


def metadata(session_id: int, **sessions: tuple[int, int]) -> PartitionMetadata:
    """Sessions and closing marks of the replicas on hosts."""
    states = {}
    for host, (own_session_id, mark) in sessions.items():
        replica_id = ReplicaId(0, f"{host}:1")
        states[replica_id] = ReplicaState(replica_id, own_session_id, mark)
    return PartitionMetadata(1, session_id, states)


async def reason(metadata: PartitionMetadata | None, assigned: str = STAYING) -> str | None:
    return await reason_to_keep(await cluster(metadata, assigned), 0, LEAVING)


async def test_files_are_needed_where_a_session_counts_them_or_may_come_to() -> None:
    opened = metadata(7, s1=(7, UNRESOLVED))
    assert await reason(opened) is None
    assert await reason(None) is None, "there was never a session"
    assert await reason(opened, LEAVING) == "d:1 is assigned to it"
    assert await reason(metadata(7, s1=(7, UNRESOLVED), d=(7, UNRESOLVED))) == "a store session has begun with d:1"
    assert await reason(metadata(7, s1=(7, UNRESOLVED), d=(-1, 5))) == "a store session has begun with d:1"
    taken = "store session 8 is not open yet, and may take d:1 in"
    assert await reason(metadata(8, s1=(7, UNRESOLVED))) == taken
    assert await reason(metadata(8, s1=(8, 5))) == taken, "closed at a mark: no member"


class Admin:
    def __init__(self) -> None:
        self.done: list[object] = []

    async def set_available(self, partition_ids: list[int], available: bool) -> None:
        self.done.append((partition_ids, "on" if available else "off"))

    async def set_assigned(self, partition_ids: list[int], assigned: bool, *, delete_files: bool) -> None:
        assert (assigned, delete_files) == (False, True)
        self.done.append((partition_ids, "deleted"))


async def test_files_are_deleted_after_a_look_at_what_is_known_while_the_replica_is_off() -> None:
    admin = Admin()

    async def look() -> str | None:
        admin.done.append(found)
        return found

    found: str | None = "it counts"
    client = cast("StorageAdminClient", admin)
    assert await delete_files(client, 3, look) == "it counts"
    assert admin.done == [([3], "off"), "it counts", ([3], "on")]
    admin.done.clear()
    found = None
    assert await delete_files(client, 3, look) is None
    assert admin.done == [([3], "off"), None, ([3], "deleted")]


async def test_a_replica_is_on_again_when_nothing_could_be_found_out() -> None:
    admin = Admin()

    async def look() -> str | None:
        raise WaltzError("ZooKeeper is away")

    with pytest.raises(WaltzError, match="ZooKeeper is away"):
        await delete_files(cast("StorageAdminClient", admin), 3, look)
    assert admin.done == [([3], "off"), ([3], "on")]
