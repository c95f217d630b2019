"""What is read of moves that have begun. The moves themselves run in integration/test_storage_move.py."""

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import ProtocolError
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.replica_moving import MoveOptions, ReplicaMover, partitions_of_move, read_moves

ROOT = "/waltz"
MOVE = ReplicaMove("s1:1", "s2:1")


async def cluster_of_two() -> tuple[MemoryZooKeeper, ClusterHandle]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await store_admin.create_cluster(zookeeper, ROOT, "moving", 20)
    for storage in MOVE:
        await store_admin.add_storage_node(zookeeper, ROOT, storage, 1, 2)
    await store_admin.assign_partitions(zookeeper, ROOT, MOVE.source, [4])
    return zookeeper, ClusterHandle(zookeeper, ROOT, None)


async def test_moves_are_read_and_what_is_no_move_is_named() -> None:
    zookeeper, cluster = await cluster_of_two()
    assert await read_moves(cluster) == ({}, [])
    moves = ClusterPaths.of(ROOT).replica_moves
    foreign = {"notes": b"{}", "007": MOVE.encode(), "-1": b"", "\u0663": b"", "9" * 5000: b"", "3": b"[" * 200_000}
    for name, data in {"11": MOVE.encode(), "2": MOVE.encode(), **foreign}.items():
        await zookeeper.create(f"{moves}/{name}", data, make_path=True)
    found = await read_moves(cluster)
    assert list(found.moves.items()) == [(2, MOVE), (11, MOVE)]
    assert len(found.foreign) == len(foreign)
    assert f"{moves}/notes is not named for a partition: it is ignored" in found.foreign
    assert f"{moves}/3 does not say which replica is being moved: delete it if it is not needed" in found.foreign
    lines: list[str] = []
    assert await partitions_of_move(cluster, MOVE, None, lines.append, back=False) == [2, 4, 11]
    assert await partitions_of_move(cluster, MOVE, None, lines.append, back=True) == [2, 11]
    assert lines == 2 * [f"Warning: {warning}" for warning in found.foreign]


async def test_a_partition_whose_own_move_cannot_be_read_is_not_moved() -> None:
    zookeeper, cluster = await cluster_of_two()
    await zookeeper.create(ClusterPaths.of(ROOT).replica_move(4), b"[]", make_path=True)
    mover = ReplicaMover(cluster, MOVE, MoveOptions(False, 1, 1), print, lambda *_: pytest.fail("nothing is copied"))
    with pytest.raises(ProtocolError, match="/ext/move/4 does not say which replica is being moved"):
        await mover.plan([4])
