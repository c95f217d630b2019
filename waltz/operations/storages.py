"""Administration of storage nodes: assignments, validation, copies of partitions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Set
from contextlib import asynccontextmanager
from typing import TypeVar

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.wire.structures import SessionInfo
from waltz.common.zk.store_admin import (
    read_connections,
    read_groups,
    read_replica_assignments,
    read_store_params,
    sync_cluster,
)
from waltz.common.zk.trim_points import read_trim_point
from waltz.common.zk.znodes import ReplicaId
from waltz.operations.copying import copy_records
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

TIMEOUT_S = 30.0
"""Deadline of an administrative request. The opening of a partition may have to scan its log."""

ASSIGNED_AT_ONCE = 20
"""The largest number of partitions in one request. A node of the original sends no sign of life while it opens them."""

_PROGRESS_INTERVAL = 10_000


Client = TypeVar("Client", StorageAdminClient, StorageClient)


@asynccontextmanager
async def connection(kind: type[Client], cluster: ClusterHandle, endpoint: Endpoint) -> AsyncIterator[Client]:
    """A context with a client of class ``kind`` for the port ``endpoint`` of a storage node."""
    params = await read_store_params(cluster.zookeeper, cluster.root)
    client = await kind.connect(
        endpoint, cluster_key=params.key, partition_count=params.partition_count, tls=cluster.tls, timeout_s=TIMEOUT_S
    )
    try:
        yield client
    finally:
        await client.close()


async def admin_endpoint(cluster: ClusterHandle, storage: str) -> Endpoint:
    """The admin port of the storage node with connect string ``storage``. Raises :class:`WaltzError` if there is
    none."""
    admin_port = (await read_connections(cluster.zookeeper, cluster.root)).admin_ports.get(storage)
    if admin_port is None:
        raise WaltzError(f"storage node {storage} is not known to the cluster at {cluster.root}; add it first")
    return Endpoint(Endpoint.parse(storage).host, admin_port)


async def listed_replicas(
    cluster: ClusterHandle, admin: Endpoint, partition_ids: Iterable[int]
) -> dict[int, int] | None:
    """The partitions of which the cluster lists a replica at a node, with the number of other assigned replicas.

    A replica is listed by the assignment, or by the metadata of its partition, which keep it until the next store
    session. ``None`` if the cluster does not know a node with this admin port.
    """
    wanted = sorted(set(partition_ids))
    replicas = await read_replicas(cluster.zookeeper, cluster.root, wanted)
    name = replicas.name_of(admin)
    if name is None:
        return None
    listed: dict[int, int] = {}
    for partition_id in wanted:
        assigned = replicas.assignments.storages_of(partition_id)
        metadata = replicas.metadata[partition_id]
        if name in assigned or (metadata is not None and ReplicaId(partition_id, name) in metadata.replicas):
            listed[partition_id] = len(assigned - {name})
    return listed


async def sync_partitions(cluster: ClusterHandle) -> None:
    """Make every storage node hold exactly its partitions according to the cluster's assignment.

    Offline partitions are assigned again, which reopens partitions that a disk failure has put out of service. When a
    node loses a partition, the files of the partition are kept. Nodes are asked in parallel; a node that does not
    answer delays no other node. Raises the error of the first node that failed.
    """
    await sync_cluster(cluster.zookeeper, cluster.root)
    assignments = await read_replica_assignments(cluster.zookeeper, cluster.root)

    async def sync_storage(storage: str, partitions: Set[int]) -> None:
        endpoint = await admin_endpoint(cluster, storage)
        async with connection(StorageAdminClient, cluster, endpoint) as client:
            status = await client.assigned_partition_status()
            online = {partition_id for partition_id, is_online in status.items() if is_online}
            for portion in _portions(partitions - online):
                await client.set_assigned(portion, True)
            for portion in _portions(set(status) - partitions):
                await client.set_assigned(portion, False)

    told = [sync_storage(storage, set(partitions)) for storage, partitions in sorted(assignments.partitions.items())]
    for failure in await asyncio.gather(*told, return_exceptions=True):
        if failure is not None:
            raise failure


def _portions(partition_ids: Set[int]) -> Iterator[list[int]]:
    """The ids in ascending order, in portions that a storage can open within the deadline of a request."""
    ordered = sorted(partition_ids)
    for first in range(0, len(ordered), ASSIGNED_AT_ONCE):
        yield ordered[first : first + ASSIGNED_AT_ONCE]


async def validate(cluster: ClusterHandle) -> None:
    """Open both ports of every storage node of the cluster. Raises ``WaltzError`` that names the first bad port."""
    for storage in sorted((await read_groups(cluster.zookeeper, cluster.root)).groups):
        try:
            async with connection(StorageClient, cluster, Endpoint.parse(storage)):
                pass
        except (WaltzError, ValueError) as error:
            raise WaltzError(f"the data port of storage {storage} does not answer as it should: {error}") from error
    for storage in sorted((await read_connections(cluster.zookeeper, cluster.root)).admin_ports):
        try:
            endpoint = await admin_endpoint(cluster, storage)
            async with connection(StorageAdminClient, cluster, endpoint):
                pass
        except (WaltzError, ValueError) as error:
            raise WaltzError(f"the admin port of storage {storage} does not answer as it should: {error}") from error


async def max_transaction_id(
    cluster: ClusterHandle,
    admin: Endpoint,
    storage_port: int,
    partition_id: int,
    *,
    offline: bool,
) -> int:
    """The highest transaction id on a node. The question carries the persisted session, so that no running session is
    fenced.

    ``offline``: the partition is switched off. Raises ``WaltzError``.
    """
    async with connection(StorageAdminClient, cluster, admin) as client:
        session_id = (await client.last_session_info(partition_id)).session_id
    async with connection(StorageClient, cluster, Endpoint(admin.host, storage_port)) as storage:
        await storage.last_session_info(session_id, partition_id, offline=offline, timeout_s=TIMEOUT_S)
        return await storage.max_transaction_id(session_id, partition_id, offline=offline, timeout_s=TIMEOUT_S)


async def begin_at_trim_point(
    cluster: ClusterHandle,
    data: StorageClient,
    storage: Endpoint | str,
    info: SessionInfo,
    partition_id: int,
    current: int,
    mark: int,
) -> int:
    """Begin the log of a replica that is switched off with the first transaction that is not trimmed, if the replica
    has nothing from there on: the others may not have the transactions before.

    Args:
        cluster: The cluster, which knows the trim point.
        data: The data port of the replica's node.
        storage: The name of the node in errors.
        info: The persisted state of the replica.
        partition_id: The partition.
        current: The last transaction of the replica, which is certain, or -1.
        mark: A transaction up to which all are certainly committed; the log begins behind it at the latest.

    Returns:
        The last transaction of the replica after that, or the one before its begin.

    Raises:
        WaltzError: The node cannot begin there, or does not answer.
    """
    begin = min(await read_trim_point(cluster.zookeeper, cluster.root, partition_id), mark + 1)
    if current + 1 >= begin:
        return current
    if not data.trims:
        raise WaltzError(
            f"partition {partition_id} is trimmed before {begin}, and {storage} cannot begin there: it is a "
            "node of the original, or of an older version"
        )
    await data.begin(info.session_id, partition_id, begin, offline=True, timeout_s=TIMEOUT_S)
    if begin - 1 >= info.low_water_mark:  # what is before is certain, even if nothing is copied behind it
        await data.set_low_water_mark(info.session_id, partition_id, begin - 1, offline=True, timeout_s=TIMEOUT_S)
    return begin - 1


class PartitionCopy:
    """Copies a partition from one node to another, up to the source's local low-water mark.

    The partition is assigned on both nodes, and switched off on the destination. A destination with records is refused
    while it is a member, because its log may decide the committed mark. Records above the low-water mark of the
    destination are not certain, and have to be removed first. A destination that has nothing from the trim point of
    the partition on begins there.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        source: StorageAdminClient,
        destination_admin: StorageAdminClient,
        destination: StorageClient,
        partition_id: int,
        report: Callable[[str], None],
    ) -> None:
        """``report`` takes lines for the operator."""
        self._cluster = cluster
        self._source = source
        self._destination_admin = destination_admin
        self._destination = destination
        self._partition_id = partition_id
        self._report = report

    async def run(self, batch_size: int, *, truncate: bool = False) -> int:
        """Copy in batches of ``batch_size`` records. Returns the highest transaction id of the destination.

        ``truncate``: remove the records of the destination above its low-water mark. Without ``truncate``, such records
        are an error before any change. Raises ``WaltzError``; copied batches stay.
        """
        if batch_size < 1:
            raise WaltzError(f"a batch must have at least 1 record, not {batch_size}")
        partition_id, destination = self._partition_id, self._destination
        status = await self._destination_admin.assigned_partition_status()
        if status.get(partition_id, False):
            raise WaltzError("it is online on the destination: switch it off first (waltz storage availability)")
        info = await self._destination_admin.last_session_info(partition_id)
        session_id = info.session_id
        await destination.last_session_info(session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        target = (await self._source.last_session_info(partition_id)).local_low_water_mark
        current = await destination.max_transaction_id(session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        if current > NO_TRANSACTION:
            await self._check_no_member()
        if current > info.low_water_mark:
            cut = f"transactions {info.low_water_mark + 1} to {current}"
            if not truncate:
                raise WaltzError(
                    f"the destination has {cut} above its low-water mark; they would be removed, and only those up to "
                    f"{target} copied from the source; to have that done repeat with --truncate"
                )
            self._report(f"removing {cut} from the destination")
            current = await destination.truncate(
                session_id, partition_id, info.low_water_mark, offline=True, timeout_s=TIMEOUT_S
            )
        current = await begin_at_trim_point(
            self._cluster, destination, self._destination_admin.endpoint, info, partition_id, current, target
        )
        copying = copy_records(
            self._source,
            destination,
            partition_id,
            info,
            current,
            target,
            timeout_s=TIMEOUT_S,
            batch_records=batch_size,
        )
        async for batch in copying:
            before, current = current, batch.last_id
            if before // _PROGRESS_INTERVAL != current // _PROGRESS_INTERVAL:
                self._report(f"transaction {current} of {target} ({100 * (current + 1) // (target + 1)} %)")
        return current

    async def _check_no_member(self) -> None:
        """Refuse a destination that may have a vote in the next recovery."""
        partition_id, node = self._partition_id, self._destination_admin.endpoint
        replicas = await read_replicas(self._cluster.zookeeper, self._cluster.root, [partition_id])
        storage = replicas.name_of(node)
        if storage is None:
            raise WaltzError(
                f"the cluster at {self._cluster.root} knows no storage node whose admin port is {node}, so it is "
                "unknown whether it is a member of the partition; name it as waltz zookeeper list does, or add it first"
            )
        if replicas.may_vote(partition_id, storage):
            raise WaltzError(
                f"the metadata list the destination as a member: what {storage} holds may decide what is committed. "
                "When it is online servers bring it up to date; damaged records are restored by waltz storage repair. "
                "To fill it from the source begin it anew (waltz storage remove-partition -d, then add-partition), if "
                "the partition's other replicas are well"
            )
