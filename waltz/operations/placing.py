"""Places the replicas of new partitions on storage nodes, by zones and rings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.placement import PlacementError, Site, Sites, place, zone_of
from waltz.common.partition_ids import check_partition, named_partitions
from waltz.common.zk.storage_labels import (
    LabelsError,
    Ring,
    add_to_ring,
    default_spread,
    read_labels,
    read_rings,
)
from waltz.common.zk.store_admin import (
    assign_by,
    group_members,
    read_groups,
    read_replica_assignments,
    read_store_params,
)
from waltz.common.zk.znodes import GroupDescriptor, ReplicaAssignments, StoreParams
from waltz.operations.survey.evidence import ask_storages

FREE_SPACE_TIMEOUT_S = 5.0
"""Time limit for the answer of a storage with its free space. Without an answer the storage counts as full."""


class NewReplicas(NamedTuple):
    """The replicas to be placed, and the rules for them."""

    group: int
    """The group of storage nodes that gets the replicas."""
    size: int
    """The number of replicas of each partition."""
    spread: Sequence[str]
    """The keys of the labels whose values define a zone, the widest first."""
    ring: str | None
    """The ring whose storages get the replicas. The partitions become partitions of the ring."""
    partition_ids: Sequence[int] | None
    """None: all partitions of the cluster."""
    force: bool
    """Whether two replicas of a partition may be in one zone."""


async def place_replicas(cluster: ClusterHandle, wanted: NewReplicas) -> None:
    """Choose and assign storages for partitions without replicas in the group. The storages are not informed by this.

    Raises:
        WaltzError: There is no such group, ring or partition; a partition has replicas in the group or belongs to
            another ring; a label is missing; or there are too few storages or zones. Nothing was assigned.
    """
    zookeeper, root, _ = cluster
    rings = await read_rings(zookeeper, root)
    count = (await read_store_params(zookeeper, root)).partition_count
    partition_ids = range(count) if wanted.partition_ids is None else wanted.partition_ids
    for partition_id in partition_ids:
        check_partition(partition_id, count)
    if wanted.ring is not None:
        if wanted.ring not in rings:
            raise LabelsError(f"there is no ring {wanted.ring!r}: waltz storage ring {wanted.ring} HOST:PORT...")
        rings[wanted.ring] = _joined(rings, wanted.ring, partition_ids)
    storages = _in_ring(group_members(await read_groups(zookeeper, root), wanted.group), wanted.ring, rings)
    sites = await read_sites(cluster, dict.fromkeys(storages, wanted.group), wanted.spread, rings.values())

    def decide(_: StoreParams, groups: GroupDescriptor, assignments: ReplicaAssignments) -> dict[str, list[int]]:
        members = group_members(groups, wanted.group)
        held = {each for storage in members for each in assignments.partitions.get(storage, ())}
        if taken := held.intersection(partition_ids):
            raise PlacementError(
                f"{named_partitions(taken)} already {'has' if len(taken) == 1 else 'have'} replicas in group "
                f"{wanted.group}: name the others by -p, or move replicas by waltz cluster rebalance --replicas"
            )
        loads = {storage: len(assignments.partitions.get(storage, ())) for storage in members}
        placed = place(sites, partition_ids, wanted.size, wanted.group, loads, force=wanted.force)
        chosen: dict[str, list[int]] = {}
        for partition_id, places in placed.items():
            for storage in sorted(places):
                chosen.setdefault(storage, []).append(partition_id)
        return chosen

    if wanted.ring is not None:
        # Checked before the ring is written: replicas of partitions without a ring might be moved out of the ring.
        params, groups = await read_store_params(zookeeper, root), await read_groups(zookeeper, root)
        decide(params, groups, await read_replica_assignments(zookeeper, root))
        await add_to_ring(zookeeper, root, wanted.ring, partition_ids)
    await assign_by(zookeeper, root, decide)


def _joined(rings: Mapping[str, Ring], name: str, partition_ids: Collection[int]) -> Ring:
    for other, ring in rings.items():
        if other != name and (taken := set(partition_ids).intersection(ring.partition_ids)):
            raise PlacementError(
                f"{named_partitions(taken)} {'is' if len(taken) == 1 else 'are'} already in ring {other}"
            )
    ring = rings[name]
    return ring._replace(partition_ids=tuple(sorted({*ring.partition_ids, *partition_ids})))


def _in_ring(storages: Iterable[str], name: str | None, rings: Mapping[str, Ring]) -> list[str]:
    return [storage for storage in storages if name is None or storage in rings[name].storages]


async def read_sites(
    cluster: ClusterHandle,
    groups: Mapping[str, int],
    spread: Sequence[str] | None,
    rings: Iterable[Ring],
    leaving: Collection[str] = (),
) -> Sites:
    """The storages that may hold replicas, with zones and free space.

    Args:
        cluster: The cluster.
        groups: The storages, with their groups.
        spread: The keys of the labels whose values define a zone, the widest first. None: datacenter and rack, if a
            storage has such a label.
        rings: All rings.
        leaving: The storages to be emptied; they need no labels.

    Raises:
        WaltzError: A label is missing, or cannot be read.
    """
    stored = await read_labels(cluster.zookeeper, cluster.root)
    if stored.unreadable and spread != ():
        raise LabelsError("; ".join(stored.unreadable))
    if spread is None:
        spread = default_spread(stored.labels.values())
    facts = await ask_storages(cluster, sorted(groups), FREE_SPACE_TIMEOUT_S)
    free_bytes = {storage: told.free_bytes or 0 for storage, told in facts.items() if not isinstance(told, str)}
    sites = {}
    for storage, group in groups.items():
        labels = stored.labels.get(storage, {})
        zone = tuple(labels.get(key, "") for key in spread) if storage in leaving else zone_of(storage, labels, spread)
        sites[storage] = Site(zone, group, free_bytes.get(storage, 0))
    return Sites(sites, [(ring.storages, ring.partition_ids) for ring in rings], leaving)
