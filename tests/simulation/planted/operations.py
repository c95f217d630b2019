"""Planted bugs of the tools with which operators change replicas."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.zk import store_admin
from waltz.common.zk.client import ZooKeeper
from waltz.operations import replica_moves, replica_moving
from waltz.operations.filling import ReplicaFilling
from waltz.operations.replica_moves import PartitionView, ReplicaMove, ReplicaStep
from waltz.operations.replica_moving import ReplicaMover


def join_beside(view: PartitionView, leaving: str) -> ReplicaStep:
    """L7: a new replica joins beside the others, also where one more changes the majority."""
    return ReplicaStep.FILL


@contextlib.contextmanager
def exchange_in_two_writes() -> Iterator[None]:
    """L7: the old replica is unassigned, and then the new one is assigned."""

    async def exchange(zookeeper: ZooKeeper, root: str, partition_id: int, leaving: str, joining: str) -> None:
        await store_admin.unassign_partitions(zookeeper, root, leaving, [partition_id])
        await store_admin.assign_partitions(zookeeper, root, joining, [partition_id])

    with mock.patch.object(store_admin, "exchange_replica", exchange):
        yield


@contextlib.contextmanager
def copy_back_what_is_there() -> Iterator[None]:
    """L7: a move is taken back by a copy, although the log of its source counts still."""
    back = replica_moves.next_step_back

    def next_step_back(view: PartitionView, move: ReplicaMove) -> ReplicaStep | None:
        step = back(view, move)
        return ReplicaStep.EXCHANGE if step is ReplicaStep.REVERT else step

    with (
        mock.patch.object(replica_moving, "next_step_back", next_step_back),
        mock.patch.object(replica_moves, "next_step_back", next_step_back),
    ):
        yield


@contextlib.contextmanager
def move_without_a_record() -> Iterator[None]:
    """L7: nothing is written down before a replica is exchanged, so that nobody can take it back."""
    fill = ReplicaFilling.run
    begun = ReplicaMover._fill

    async def filled(mover: ReplicaMover, partition_id: int, step: ReplicaStep) -> None:
        path = mover._paths.replica_move(partition_id)

        async def run(filling: ReplicaFilling) -> None:
            await mover._cluster.zookeeper.delete(path)
            await fill(filling)

        with mock.patch.object(ReplicaFilling, "run", run):
            await begun(mover, partition_id, step)

    with mock.patch.object(ReplicaMover, "_fill", filled):
        yield


@contextlib.contextmanager
def clear_at_once() -> Iterator[None]:
    """L7: files are deleted as soon as their storage is not assigned, while the session counts them; nobody looks again
    before that."""
    real = replica_moves.next_step

    async def no_reason(cluster: ClusterHandle, partition_id: int, storage: str) -> None:
        return None

    def next_step(view: PartitionView, move: ReplicaMove) -> ReplicaStep | None:
        if move.source in view.assigned or move.destination not in view.assigned:
            return real(view, move)
        return ReplicaStep.CLEAR if view.holding[move.source] or view.move is not None else None

    with (
        mock.patch.object(replica_moving, "reason_to_keep", no_reason),
        mock.patch.object(replica_moving, "next_step", next_step),
        mock.patch.object(replica_moves, "next_step", next_step),
    ):
        yield
