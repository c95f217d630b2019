"""Creates, changes and reads a cluster's nodes in ZooKeeper: the operations of ``waltz zookeeper``.

Every change is made under the admin mutex, and every node is written by compare-and-set, so that the original's tools
can be used at the same time. Several nodes are not written atomically: after a crash between the writes of
:func:`add_storage_node` a partial entry is left, which the same call completes and :func:`remove_storage_node` removes.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Protocol, Self, TypeVar
from uuid import UUID, uuid4

from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.replica_states import RUNBOOK
from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError, Watch, ZooKeeper
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ServerDescriptor,
    StoreParams,
    encode_counter,
)

_DELETE_ATTEMPTS = 10
_EMPTY_MAP = b"\x01\0\0\0\0"


class StoreAdminError(WaltzError):
    """An administrative operation was refused; nothing was written.

    Examples:
        ```python
        try:
            client = await waltz.connect(config, cluster_root="/nowhere", zookeeper=zookeeper)
        except waltz.StoreAdminError as error:
            print(error)  # there is no cluster at /nowhere
        ```
    """


class _Value(Protocol):
    def encode(self) -> bytes: ...

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> Self: ...


_V = TypeVar("_V", bound=_Value)


async def create_cluster(
    zookeeper: ZooKeeper, root: str, name: str, partition_count: int, key: UUID | None = None
) -> UUID:
    """Create the tree of a new cluster and return its key (a random one by default).

    The root gets its value last: a root without a value is an unfinished creation, and is completed.

    Raises ``StoreAdminError`` when there is a cluster at ``root`` already, or a parameter is impossible.
    """
    paths = ClusterPaths.of(root)
    if partition_count < 0:
        raise StoreAdminError(f"the number of partitions must not be negative: {partition_count}")
    try:
        params = ClusterParams(name, partition_count).encode()
    except ValueError as error:
        raise StoreAdminError(f"cluster name: {error}") from None
    await _create_missing(zookeeper, paths.root, None)
    data, stat = await zookeeper.get(paths.root)
    if data is not None:
        raise StoreAdminError(f"a cluster already exists at {root}; delete it first or choose another cluster.root")
    await _create_missing(zookeeper, paths.server_descriptors, PartitionAssignment(-1, 0, {}).encode())
    await _create_missing(zookeeper, paths.ids, None)
    await _create_missing(zookeeper, paths.client_ids, encode_counter(0))
    await _create_missing(zookeeper, paths.server_ids, encode_counter(0))
    await _create_missing(zookeeper, paths.store, None)
    async with mutex(zookeeper, paths.admin_lock) as session:
        await _create_with_value(session, paths.store, StoreParams(key or uuid4(), partition_count))
        await _create_with_value(session, paths.group, GroupDescriptor({}))
        await _create_with_value(session, paths.assignment, ReplicaAssignments({}))
        await _create_with_value(session, paths.connection, ConnectionMetadata({}))
        await _create_missing(session, paths.partitions, None)
        store_params = await read_store_params(session, root)
        await _compare_and_set(session, paths.root, params, stat.version)
    return store_params.key


async def delete_cluster(zookeeper: ZooKeeper, root: str, name: str, *, force: bool = False) -> None:
    """Delete everything below and including ``root``, depth first, not atomically.

    With ``force`` a different or unreadable name does not matter. Raises ``StoreAdminError`` when there is no
    cluster, when it has another name, and when processes kept creating nodes meanwhile.
    """
    paths = ClusterPaths.of(root)
    try:
        found = (await read_cluster_params(zookeeper, root)).name
    except ProtocolError:
        found = None
    if found != name and not force:
        raise StoreAdminError(f"the cluster at {root} is named {found!r}, not {name!r}; nothing was deleted")
    for _ in range(_DELETE_ATTEMPTS):
        with contextlib.suppress(NotEmptyError):
            await _delete_tree(zookeeper, paths.root)
            return
    raise StoreAdminError(f"{root} could not be deleted: servers are still running there; stop them and try again")


async def add_storage_node(zookeeper: ZooKeeper, root: str, storage: str, group_id: int, admin_port: int) -> None:
    """Register a storage node, without partitions.

    ``storage`` is ``host:port`` of its data port; every later use must spell it the same way. Raises
    ``StoreAdminError`` when it is not of that form, or registered already.
    """
    try:
        Endpoint.parse(storage)
    except ValueError as error:
        raise StoreAdminError(f"storage node: {error}") from None
    if not 0 < admin_port <= 65535:
        raise StoreAdminError(f"the admin port must be between 1 and 65535: {admin_port}")
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        groups, group_version = await _read(session, paths.group, GroupDescriptor)
        assignments, assignment_version = await _read(session, paths.assignment, ReplicaAssignments)
        connections, connection_version = await _read(session, paths.connection, ConnectionMetadata)
        if storage in connections.admin_ports or assignments.partitions.get(storage):
            raise StoreAdminError(f"storage node {storage} already exists")
        groups.groups[storage] = group_id
        assignments.partitions[storage] = ()
        connections.admin_ports[storage] = admin_port
        await _compare_and_set(session, paths.group, groups.encode(), group_version)
        await _compare_and_set(session, paths.assignment, assignments.encode(), assignment_version)
        await _compare_and_set(session, paths.connection, connections.encode(), connection_version)


async def remove_storage_node(zookeeper: ZooKeeper, root: str, storage: str) -> None:
    """Remove a storage node without partitions, and its labels.

    Raises ``StoreAdminError`` when it is unknown or still has partitions.
    """
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        groups, group_version = await _read(session, paths.group, GroupDescriptor)
        assignments, assignment_version = await _read(session, paths.assignment, ReplicaAssignments)
        connections, connection_version = await _read(session, paths.connection, ConnectionMetadata)
        found = storage in groups.groups or storage in assignments.partitions or storage in connections.admin_ports
        if not found:
            raise StoreAdminError(f"storage node {storage} does not exist")
        if partitions := assignments.partitions.pop(storage, ()):
            raise StoreAdminError(
                f"storage node {storage} still has partitions {_listed(partitions)}; unassign them first"
            )
        groups.groups.pop(storage, None)
        connections.admin_ports.pop(storage, None)
        await _compare_and_set(session, paths.assignment, assignments.encode(), assignment_version)
        await _compare_and_set(session, paths.group, groups.encode(), group_version)
        await _compare_and_set(session, paths.connection, connections.encode(), connection_version)
        with contextlib.suppress(NoNodeError):
            await session.delete(paths.storage_labels(storage))


async def assign_partitions(zookeeper: ZooKeeper, root: str, storage: str, partitions: Iterable[int]) -> None:
    """Assign partitions to a storage node. The storage must be told, too, through its admin port.

    Raises ``StoreAdminError`` when none is given, one is out of range or already assigned to it, and when the storage
    is unknown.
    """
    wanted = set(partitions)
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        params = await read_store_params(session, root)
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        held = _held(assignments, storage, wanted)
        if impossible := [p for p in wanted if not 0 <= p < params.partition_count]:
            raise StoreAdminError(
                f"the cluster has {params.partition_count} partitions; not among them: {_listed(impossible)}"
            )
        if twice := wanted.intersection(held):
            raise StoreAdminError(f"partitions {_listed(twice)} are already assigned to {storage}")
        assignments.partitions[storage] = tuple(sorted(wanted.union(held)))
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


async def assign_all_partitions(zookeeper: ZooKeeper, root: str, storages: Iterable[str]) -> None:
    """Assign all partitions to each of ``storages``, in one step. They must be told, too, through their admin ports.

    Raises ``StoreAdminError`` when one is unknown, or any storage node has partitions already.
    """
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        params = await read_store_params(session, root)
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        if taken := [storage for storage, held in assignments.partitions.items() if held]:
            raise StoreAdminError(f"storage nodes already have partitions: {', '.join(sorted(taken))}")
        for storage in storages:
            _check_known(assignments, storage)
            assignments.partitions[storage] = tuple(range(params.partition_count))
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


async def unassign_partitions(zookeeper: ZooKeeper, root: str, storage: str, partitions: Iterable[int]) -> None:
    """Take partitions away from a storage node.

    Raises ``StoreAdminError`` when none is given, one is not assigned to it, no other storage node of its group would
    hold one, and when the storage is unknown.
    """
    unwanted = set(partitions)
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        groups, _ = await _read(session, paths.group, GroupDescriptor)
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        held = _held(assignments, storage, unwanted)
        if storage not in groups.groups:
            raise StoreAdminError(f"storage node {storage} is in no group")
        if strange := unwanted.difference(held):
            raise StoreAdminError(f"partitions {_listed(strange)} are not assigned to {storage}")
        group_id = groups.groups[storage]
        elsewhere = {
            partition_id
            for other, ids in assignments.partitions.items()
            if other != storage and groups.groups.get(other) == group_id
            for partition_id in ids
        }
        if last := unwanted - elsewhere:
            raise StoreAdminError(f"no other storage node of group {group_id} holds partitions {_listed(last)}")
        assignments.partitions[storage] = tuple(sorted(set(held) - unwanted))
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


async def exchange_replica(zookeeper: ZooKeeper, root: str, partition_id: int, leaving: str, joining: str) -> None:
    """Take a partition away from a storage node and give it to another one of the same group, in one write.

    Raises ``StoreAdminError`` when the partition is not assigned to ``leaving``, or is to ``joining``, when the groups
    differ, and when one of them is unknown.
    """
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        groups, _ = await _read(session, paths.group, GroupDescriptor)
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        held, held_by_other = (_held(assignments, storage, {partition_id}) for storage in (leaving, joining))
        if partition_id not in held:
            raise StoreAdminError(f"partition {partition_id} is not assigned to {leaving}")
        if partition_id in held_by_other:
            raise StoreAdminError(f"partition {partition_id} is already assigned to {joining}")
        if groups.groups.get(leaving) != groups.groups.get(joining):
            raise StoreAdminError(f"storage nodes {leaving} and {joining} are not in the same group")
        assignments.partitions[leaving] = tuple(each for each in held if each != partition_id)
        assignments.partitions[joining] = tuple(sorted((*held_by_other, partition_id)))
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


async def give_up_replicas(zookeeper: ZooKeeper, root: str, partition_id: int, storages: Iterable[str]) -> None:
    """Take a partition away from lost storage nodes in one write, even if no other node of their groups holds it.

    Storage nodes without the partition are skipped. Raises ``StoreAdminError``.
    """
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        for storage in storages:
            held = assignments.partitions.get(storage, ())
            if partition_id in held:
                assignments.partitions[storage] = tuple(each for each in held if each != partition_id)
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


Decide = Callable[[StoreParams, GroupDescriptor, ReplicaAssignments], Mapping[str, Iterable[int]]]
"""Chooses further partitions for storage nodes of the cluster."""


async def assign_by(zookeeper: ZooKeeper, root: str, decide: Decide) -> None:
    """Assign the partitions that ``decide`` chooses from the present state, in one write. Raises what it raises."""
    paths = ClusterPaths.of(root)
    async with _changing(zookeeper, root) as session:
        params = await read_store_params(session, root)
        groups, _ = await _read(session, paths.group, GroupDescriptor)
        assignments, version = await _read(session, paths.assignment, ReplicaAssignments)
        for storage, partition_ids in decide(params, groups, assignments).items():
            assignments.partitions[storage] = tuple(sorted({*assignments.partitions.get(storage, ()), *partition_ids}))
        await _compare_and_set(session, paths.assignment, assignments.encode(), version)


async def auto_assign(zookeeper: ZooKeeper, root: str, group_id: int) -> None:
    """Spread all partitions over the storage nodes of a group without partitions.

    Raises ``StoreAdminError`` when the group has no storage node, or one that has partitions.
    """

    def deal(params: StoreParams, groups: GroupDescriptor, assignments: ReplicaAssignments) -> dict[str, Iterable[int]]:
        storages = group_members(groups, group_id)
        if taken := [storage for storage in storages if assignments.partitions.get(storage)]:
            raise StoreAdminError(f"storage nodes of group {group_id} already have partitions: {', '.join(taken)}")
        return {storage: range(index, params.partition_count, len(storages)) for index, storage in enumerate(storages)}

    await assign_by(zookeeper, root, deal)


def group_members(groups: GroupDescriptor, group_id: int) -> list[str]:
    """The storage nodes of a group, by name. Raises ``StoreAdminError`` if it has none."""
    storages = sorted(storage for storage, group in groups.groups.items() if group == group_id)
    if not storages:
        raise StoreAdminError(f"group {group_id} has no storage node")
    return storages


async def read_cluster_params(zookeeper: ZooKeeper, root: str) -> ClusterParams:
    """Name and number of partitions. :class:`StoreAdminError`: there is no cluster."""
    return await _read_required(zookeeper, ClusterPaths.of(root).root, ClusterParams, root)


async def read_store_params(zookeeper: ZooKeeper, root: str) -> StoreParams:
    """Cluster key and number of partitions. :class:`StoreAdminError`: there is no cluster."""
    return await _read_required(zookeeper, ClusterPaths.of(root).store, StoreParams, root)


async def sync_cluster(zookeeper: ZooKeeper, root: str) -> None:
    """Make later reads of a cluster at least as new as everything that any process was told of it before.

    To be called after an answer of a server or a storage when the answer of ZooKeeper must not be older.
    Raises :class:`StoreAdminError` (there is no cluster), ``ZooKeeperError``.
    """
    path = ClusterPaths.of(root).root
    try:
        await zookeeper.sync(path)
    except NoNodeError:
        raise await _missing(zookeeper, root, path) from None


async def read_partition_assignment(zookeeper: ZooKeeper, root: str) -> PartitionAssignment:
    """Which server owns which partition. :class:`StoreAdminError`: there is no cluster."""
    return await _read_required(zookeeper, ClusterPaths.of(root).server_descriptors, PartitionAssignment, root)


async def read_server_descriptors(zookeeper: ZooKeeper, root: str) -> list[ServerDescriptor]:
    """The live servers, by id. :class:`StoreAdminError`: there is no cluster."""
    paths = ClusterPaths.of(root)
    try:
        names = await zookeeper.children(paths.server_descriptors)
    except NoNodeError:
        raise await _missing(zookeeper, root, paths.server_descriptors) from None
    descriptors: list[ServerDescriptor] = []
    for path in map(paths.server_descriptor, names):
        with contextlib.suppress(NoNodeError):
            descriptors.append(ServerDescriptor.decode((await zookeeper.get(path))[0], path))
    return sorted(descriptors)


async def read_groups(zookeeper: ZooKeeper, root: str) -> GroupDescriptor:
    """Group of every storage node."""
    return (await _read(zookeeper, ClusterPaths.of(root).group, GroupDescriptor))[0]


async def read_connections(zookeeper: ZooKeeper, root: str) -> ConnectionMetadata:
    """Admin port of every storage node."""
    return (await _read(zookeeper, ClusterPaths.of(root).connection, ConnectionMetadata))[0]


async def read_replica_assignments(zookeeper: ZooKeeper, root: str, watch: Watch | None = None) -> ReplicaAssignments:
    """Partitions of every storage node; no value means no replicas."""
    return (await _read(zookeeper, ClusterPaths.of(root).assignment, ReplicaAssignments, watch))[0]


async def read_partition_metadata(zookeeper: ZooKeeper, root: str, partition_id: int) -> PartitionMetadata | None:
    """Generation, session and replica states; ``None`` before the partition's first store session."""
    path = ClusterPaths.of(root).partition(partition_id)
    try:
        return PartitionMetadata.decode((await zookeeper.get(path))[0], path)
    except NoNodeError:
        return None


@contextlib.asynccontextmanager
async def _changing(zookeeper: ZooKeeper, root: str) -> AsyncIterator[ZooKeeper]:
    """Hold the admin mutex of an existing cluster."""
    await read_store_params(zookeeper, root)
    async with mutex(zookeeper, ClusterPaths.of(root).admin_lock) as session:
        yield session


def _held(assignments: ReplicaAssignments, storage: str, partitions: set[int]) -> tuple[int, ...]:
    if not partitions:
        raise StoreAdminError("no partitions given")
    _check_known(assignments, storage)
    return assignments.partitions[storage]


def _check_known(assignments: ReplicaAssignments, storage: str) -> None:
    if storage not in assignments.partitions:
        raise StoreAdminError(f"storage node {storage} does not exist; add it first")


async def _read(zookeeper: ZooKeeper, path: str, kind: type[_V], watch: Watch | None = None) -> tuple[_V, int]:
    """A map and its version; no value is an empty map, as for the original."""
    try:
        data, stat = await zookeeper.get(path, watch)
    except NoNodeError:
        raise await _missing(zookeeper, path.rpartition("/store/")[0], path) from None
    return kind.decode(_EMPTY_MAP if data is None else data, path), stat.version


async def _read_required(zookeeper: ZooKeeper, path: str, kind: type[_V], root: str) -> _V:
    try:
        return kind.decode((await zookeeper.get(path))[0], path)
    except NoNodeError:
        raise await _missing(zookeeper, root, path) from None


async def _missing(zookeeper: ZooKeeper, root: str, path: str) -> StoreAdminError:
    """The error for a missing node that every cluster has: there is no cluster, or its tree is damaged.

    The root gets its value when a cluster is complete.
    """
    try:
        is_complete = path != root and (await zookeeper.get(root))[0] is not None
    except NoNodeError:
        is_complete = False
    if is_complete:
        return StoreAdminError(
            f"the tree of the cluster at {root} is damaged: {path} is missing in ZooKeeper. Nodes that run go on: "
            f"restart none of them, and restore the tree from a backup ({RUNBOOK}#restore-zookeeper)"
        )
    return StoreAdminError(f"there is no cluster at {root}; check cluster.root or create it first")


async def _create_missing(zookeeper: ZooKeeper, path: str, data: bytes | None) -> None:
    with contextlib.suppress(NodeExistsError):
        await zookeeper.create(path, data, make_path=True)


async def _create_with_value(zookeeper: ZooKeeper, path: str, value: _Value) -> None:
    """Create a node with null and then set the value, as the original does, so that the versions are equal."""
    await _create_missing(zookeeper, path, None)
    data, stat = await zookeeper.get(path)
    if data is None:
        await _compare_and_set(zookeeper, path, value.encode(), stat.version)


async def _compare_and_set(zookeeper: ZooKeeper, path: str, data: bytes, version: int) -> None:
    try:
        await zookeeper.set(path, data, version)
    except BadVersionError:
        raise StoreAdminError(f"{path} was changed by someone else meanwhile; check it and try again") from None


async def _delete_tree(zookeeper: ZooKeeper, path: str) -> None:
    with contextlib.suppress(NoNodeError):
        for name in await zookeeper.children(path):
            await _delete_tree(zookeeper, f"{path}/{name}")
        await zookeeper.delete(path)


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
