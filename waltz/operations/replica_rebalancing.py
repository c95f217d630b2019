"""Moves replicas, one by one, until partitions are spread over zones and storages are evenly filled.

The plan depends on the present assignment alone, so a further run continues an interrupted run. Moves that have begun
are finished first. Every move follows the rules of ``replica_moving`` (L7), and begins and ends with all replicas of
the partition in their store session.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.placement import Move, PlacementError, plan_moves
from waltz.common.errors import WaltzError
from waltz.common.partition_ids import id_ranges, named_partitions
from waltz.common.polling import poll_until
from waltz.common.zk.storage_labels import read_rings
from waltz.common.zk.store_admin import read_groups, read_replica_assignments, sync_cluster
from waltz.operations.filling import Progress
from waltz.operations.placing import read_sites
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.replica_moving import MoveOptions, ReplicaMover, read_moves

LOOK_AGAIN_S = 0.25


class RebalancePlan(NamedTuple):
    """The moves of a plan, in order."""

    begun: Sequence[Move]
    """Moves that have begun already."""
    moves: Sequence[Move]

    def lines(self) -> list[str]:
        """The plan as text: a line for each pair of storages."""
        lines = [
            f"{named_partitions([partition_id])}: a replica arrives that is on its way from {source} to {destination}"
            for partition_id, source, destination in self.begun
        ]
        together: dict[tuple[str, str], list[int]] = {}
        for partition_id, source, destination in self.moves:
            together.setdefault((source, destination), []).append(partition_id)
        return lines + [
            f"{named_partitions(partition_ids)}: a replica moves from {source} to {destination}"
            for (source, destination), partition_ids in together.items()
        ]


async def plan_replicas(
    cluster: ClusterHandle, spread: Sequence[str] | None, leaving: Collection[str] = ()
) -> RebalancePlan:
    """Plan from the assignment in ZooKeeper.

    Args:
        cluster: The cluster.
        spread: Keys of the labels whose values make a zone, the widest first. None: datacenter and rack, if any
            storage has such a label.
        leaving: The connect strings of the storages to be emptied.

    Raises:
        WaltzError: A label is missing, a storage is unknown, or there is no place for a replica of a storage to be
            emptied.
    """
    zookeeper, root, _ = cluster
    await sync_cluster(zookeeper, root)
    groups = (await read_groups(zookeeper, root)).groups
    for storage in leaving:
        if storage not in groups:
            raise WaltzError(
                f"there is no storage node {storage} in the cluster; there are: {', '.join(sorted(groups))}"
            )
    assigned = (await read_replica_assignments(zookeeper, root)).storages_by_partition()
    moves, foreign = await read_moves(cluster)
    if foreign:
        raise WaltzError("; ".join(foreign))
    begun = []
    for partition_id, (source, destination) in moves.items():
        begun.append(Move(partition_id, source, destination))
        assigned[partition_id] = (assigned.get(partition_id, frozenset()) - {source}) | {destination}
    rings = (await read_rings(zookeeper, root)).values()
    sites = await read_sites(cluster, groups, spread, rings, leaving)
    single = {partition_id: held for partition_id, held in assigned.items() if len(held) == 1}
    if stuck := [partition_id for partition_id, held in single.items() if held.intersection(leaving)]:
        raise PlacementError(
            f"{named_partitions(stuck)} would have to leave with a single replica, which cannot be moved: assign a "
            "second storage node first (waltz zookeeper assign-partition)"
        )
    several = {partition_id: held for partition_id, held in assigned.items() if len(held) > 1}
    loads = Counter(storage for held in single.values() for storage in held)
    return RebalancePlan(begun, plan_moves(sites, several, loads))


async def rebalance_replicas(
    cluster: ClusterHandle,
    plan: RebalancePlan,
    *,
    copy_bytes_per_s: int,
    timeout_s: float,
    report: Callable[[str], None],
    progress: Progress,
) -> dict[str, list[int]]:
    """Carry out a plan. After an error, a further plan continues.

    Args:
        cluster: The cluster from :func:`waltz.operations.replica_moving.locked_moves`.
        plan: See :func:`plan_replicas`.
        copy_bytes_per_s: The largest rate of the copy.
        timeout_s: Time limit for the cluster to follow each change.
        report: Called with lines for the operator.
        progress: Shows the progress of a copy.

    Returns:
        The partitions whose files are left on storages that do not answer, by storage.

    Raises:
        WaltzError: A move is refused, or the cluster does not follow in time.
    """
    options = MoveOptions(False, copy_bytes_per_s, timeout_s)
    files_left: dict[str, list[int]] = {}
    moves = [*plan.begun, *plan.moves]
    for number, (partition_id, source, destination) in enumerate(moves, 1):
        mover = ReplicaMover(cluster, ReplicaMove(source, destination), options, report, progress)
        if number > len(plan.begun):
            await _until_current(mover, partition_id, {source}, timeout_s)
        steps = await mover.plan([partition_id])
        if await mover.carry_out(steps):
            files_left.setdefault(source, []).append(partition_id)
        await _until_current(mover, partition_id, set(), timeout_s)
        report(f"partition {partition_id} has moved from {source} to {destination}: {number} of {len(moves)}")
    return files_left


async def _until_current(mover: ReplicaMover, partition_id: int, but: Collection[str], timeout_s: float) -> None:
    """Return when all replicas, except the replicas on ``but``, are members of the store session that answer."""

    async def look() -> list[str]:
        view = await mover.look(partition_id)
        return sorted(view.assigned - view.current - set(but))

    behind = await poll_until(
        look,
        lambda found: not found,
        deadline_s=asyncio.get_running_loop().time() + timeout_s,
        next_delay_s=lambda: LOOK_AGAIN_S,
    )
    if behind:
        raise WaltzError(
            f"partition {partition_id}: for {timeout_s:g} s the replicas on {', '.join(behind)} have not been current; "
            "no further replica is moved; see waltz status, and run it again"
        )


def outcome(files_left: dict[str, list[int]]) -> list[str]:
    """The remaining work of the operator."""
    return [
        f"{storage} does not answer: when it is back, delete its files of partitions {id_ranges(partition_ids)} (waltz "
        "storage remove-partition -d)"
        for storage, partition_ids in files_left.items()
    ]
