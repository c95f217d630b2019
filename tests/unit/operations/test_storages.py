"""Assignments of many partitions."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import ConnectFailedError
from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import (
    UNRESOLVED,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
)
from waltz.operations import storages as operations
from waltz.operations.storages import ASSIGNED_AT_ONCE, listed_replicas, sync_partitions

ROOT = "/waltz"


class Node:
    """The admin port of a node, as far as it is asked here."""

    def __init__(self, online: Iterable[int], offline: Iterable[int]) -> None:
        self.status = dict.fromkeys(online, True) | dict.fromkeys(offline, False)
        self.requests: list[tuple[list[int], bool]] = []

    async def assigned_partition_status(self) -> dict[int, bool]:
        return dict(self.status)

    async def set_assigned(self, partition_ids: list[int], assigned: bool) -> None:
        self.requests.append((partition_ids, assigned))
        for partition_id in partition_ids:
            if assigned:
                self.status[partition_id] = True
            else:
                del self.status[partition_id]


@pytest.mark.parametrize("count", [1, ASSIGNED_AT_ONCE, ASSIGNED_AT_ONCE + 1, 1001])
async def test_no_request_is_for_more_than_can_be_opened_in_time(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    await ensure_cluster(zookeeper, ROOT, "test", count, [StorageAddress("storage", 1, 2)])
    node = Node(online={0, *range(count, 2 * count)}, offline={count // 2} - {0})

    @asynccontextmanager
    async def connection(_kind: object, _cluster: object, endpoint: Endpoint) -> AsyncIterator[Node]:
        assert endpoint == Endpoint("storage", 2)
        yield node

    monkeypatch.setattr(operations, "connection", connection)
    await sync_partitions(ClusterHandle(zookeeper, ROOT, None))
    assert node.status == dict.fromkeys(range(count), True)
    assert all(0 < len(partition_ids) <= ASSIGNED_AT_ONCE for partition_ids, _ in node.requests)
    assert sorted(each for partition_ids, _ in node.requests for each in partition_ids) == list(range(1, 2 * count))
    node.requests.clear()
    await sync_partitions(ClusterHandle(zookeeper, ROOT, None))
    assert not node.requests


async def test_a_node_that_does_not_answer_keeps_no_other_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    storages = [StorageAddress(name, 1, 2) for name in ("a", "b", "c")]
    await ensure_cluster(zookeeper, ROOT, "test", 3, storages)
    nodes = {name: Node(online=(), offline=()) for name in ("b", "c")}

    @asynccontextmanager
    async def connection(_kind: object, _cluster: object, endpoint: Endpoint) -> AsyncIterator[Node]:
        if endpoint.host == "a":
            raise ConnectFailedError("a:2: is it running?")
        yield nodes[endpoint.host]

    monkeypatch.setattr(operations, "connection", connection)
    with pytest.raises(ConnectFailedError, match="a:2: is it running"):
        await sync_partitions(ClusterHandle(zookeeper, ROOT, None))
    assert [node.status for node in nodes.values()] == [dict.fromkeys(range(3), True)] * 2


async def test_replicas_that_the_cluster_lists() -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    addresses = [StorageAddress(f"storage-{number}", 1, 2) for number in (1, 2)]
    await ensure_cluster(zookeeper, ROOT, "test", 4, addresses)
    cluster, one = ClusterHandle(zookeeper, ROOT, None), Endpoint("storage-1", 2)
    assert await listed_replicas(cluster, one, [0, 1, 3]) == {0: 1, 1: 1, 3: 1}
    assert await listed_replicas(cluster, Endpoint("storage-1", 3), [0]) is None
    assert await listed_replicas(cluster, Endpoint("elsewhere", 2), [0]) is None
    one_name, two_name = "storage-1:1", "storage-2:1"
    await assign(zookeeper, {one_name: (0, 1, 3), two_name: (2, 3)})
    assert await listed_replicas(cluster, one, [0, 1, 2, 3]) == {0: 0, 1: 0, 3: 1}
    replica = ReplicaId(2, one_name)
    metadata = PartitionMetadata(1, 1, {replica: ReplicaState(replica, 1, UNRESOLVED)})
    await zookeeper.create(ClusterPaths.of(ROOT).partition(2), metadata.encode(), make_path=True)
    assert await listed_replicas(cluster, one, [1, 2]) == {1: 0, 2: 1}, "the metadata change with the next session"


async def assign(zookeeper: ZooKeeper, partitions: dict[str, tuple[int, ...]]) -> None:
    path = ClusterPaths.of(ROOT).assignment
    _, stat = await zookeeper.get(path)
    await zookeeper.set(path, ReplicaAssignments(partitions).encode(), stat.version)
