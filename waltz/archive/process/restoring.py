"""Restores the archive of a lost cluster: fills the replicas of a fresh one."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from waltz.archive.chain import Place, read_ranges
from waltz.archive.errors import ArchiveError
from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import Block, decode_object
from waltz.archive.object_format import Records as StoredRecords
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.records import Record
from waltz.common.wire.storage_times import MAX_TIMES, CommitTime
from waltz.common.zk.client import NodeExistsError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import (
    EMPTY_PARTITION_METADATA,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaId,
    ReplicaState,
)
from waltz.operations.copying import copy_records
from waltz.operations.storages import TIMEOUT_S, admin_endpoint, connection
from waltz.storage.disk.segment.segment_format import decode_span
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

BATCH_BYTES = 1 << 20

RESTORED_SESSION_ID = 0
"""The store session of the restored records. The first server begins the next session."""


class ArchivedRecords:
    """The records of an archived partition, read in order; a ``CopySource``."""

    def __init__(self, place: Place, ranges: Sequence[ArchivedRange]) -> None:
        """``ranges`` are all ranges of the manifest."""
        self.partition_id = place.partition_id
        self._place = place
        self._ranges = ranges
        self._loaded: ArchivedRange | None = None
        self._blocks: list[tuple[Block, StoredRecords]] = []

    async def records(self, partition_id: int, first: int, max_count: int) -> list[Record]:
        assert partition_id == self._place.partition_id
        wanted = self._ranges[bisect_right([each.first for each in self._ranges], first) - 1]
        if not wanted.first <= first < wanted.end:
            return []
        if wanted is not self._loaded:
            await self._load(wanted)
        block, stored = self._blocks[bisect_right([each.first for each, _ in self._blocks], first) - 1]
        start = first - block.first
        bounds = array("q", accumulate(stored.sizes, initial=0))[start : start + max_count + 1]
        return decode_span(stored.data[bounds[0] : bounds[-1]], bounds, first)

    def times(self) -> list[CommitTime]:
        """The known times of commit: those of the first and last transaction of each object."""
        return [
            CommitTime(transaction_id, time_ms)
            for each in self._ranges
            for transaction_id, time_ms in ((each.first, each.first_time_ms), (each.name.last, each.last_time_ms))
            if time_ms is not None
        ]

    async def _load(self, wanted: ArchivedRange) -> None:
        """Read and check an object."""
        path = self._place.object_path(wanted)
        data = await self._place.store.get(path)
        index, blocks = decode_object(data, self._place.cluster_key, self._place.partition_id, wanted.name, path)
        self._loaded, self._blocks = wanted, [*zip(index.blocks, blocks, strict=True)]


async def restore_partition(cluster: ClusterHandle, place: Place, report: Callable[[str], None]) -> int:
    """Fill every assigned replica of a partition that no server has opened.

    Ids, headers, request ids and data are those of the archive. The metadata of the partition are written last: so
    after an interruption the next call continues.

    Args:
        cluster: The fresh cluster.
        place: The archived partition.
        report: Called with a line of text for each replica.

    Returns:
        The number of transactions.

    Raises:
        ArchiveError: The partition has metadata already, or a replica has other transactions.
        WaltzError: A storage or ZooKeeper failed.
    """
    partition_id = place.partition_id
    ranges = await read_ranges(place)
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    if replicas.metadata[partition_id] is not None:
        raise ArchiveError(
            f"partition {partition_id} has already been restored, or opened by a server: restore into a fresh cluster, "
            "and start its servers afterwards"
        )
    storages = sorted(replicas.assignments.storages_of(partition_id))
    if not ranges:
        raise ArchiveError(f"{place.store.url} has no archived transactions of partition {partition_id}")
    if not storages:
        raise ArchiveError(f"partition {partition_id} is assigned to no storage node: waltz zookeeper assign-partition")
    target = ranges[-1].end - 1
    for storage in storages:
        report(f"partition {partition_id}: restoring transactions up to {target} at {storage}")
        await fill_replica(cluster, ArchivedRecords(place, ranges), storage, target)
    await _declare(cluster, partition_id, storages)
    return target + 1


async def _declare(cluster: ClusterHandle, partition_id: int, storages: Sequence[str]) -> None:
    """Write the metadata: all replicas are members of the restored session, since each has all of its records."""
    replica_ids = [ReplicaId(partition_id, storage) for storage in storages]
    states = {each: ReplicaState(each, RESTORED_SESSION_ID, UNRESOLVED) for each in replica_ids}
    metadata = PartitionMetadata(EMPTY_PARTITION_METADATA.generation, RESTORED_SESSION_ID, states)
    path = ClusterPaths.of(cluster.root).partition(partition_id)
    try:
        await cluster.zookeeper.create(path, metadata.encode())
    except NodeExistsError:
        raise ArchiveError(
            f"a server opened partition {partition_id} during the restore: stop the servers, make a fresh cluster, "
            "and restore again"
        ) from None


async def fill_replica(cluster: ClusterHandle, source: ArchivedRecords, storage: str, target: int) -> None:
    """Fill one replica up to transaction ``target``, and set its low-water mark there in the restored session.

    Raises:
        ArchiveError: The storage does not know the partition, or has other transactions.
        WaltzError: A storage or ZooKeeper failed.
    """
    partition_id = source.partition_id
    async with (
        connection(StorageAdminClient, cluster, await admin_endpoint(cluster, storage)) as admin,
        connection(StorageClient, cluster, Endpoint.parse(storage)) as data,
    ):
        if partition_id not in await admin.assigned_partition_status():
            raise ArchiveError(f"{storage} does not know partition {partition_id} yet: waltz storage sync-partitions")
        await admin.set_available([partition_id], False)
        info = await admin.last_session_info(partition_id)
        await data.last_session_info(info.session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        current = await data.max_transaction_id(info.session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        if current > info.low_water_mark:  # records of an interrupted restore
            current = await data.truncate(
                info.session_id, partition_id, info.low_water_mark, offline=True, timeout_s=TIMEOUT_S
            )
        if current != NO_TRANSACTION:
            theirs = await admin.records(partition_id, current, 1)
            if theirs != await source.records(partition_id, current, 1):
                raise ArchiveError(
                    f"transaction {current} of partition {partition_id} at {storage} differs from the archive: "
                    "delete the replica (waltz storage remove-partition -d), and restore again"
                )
        async for _ in copy_records(
            source, data, partition_id, info, current, target, timeout_s=TIMEOUT_S, batch_bytes=BATCH_BYTES
        ):
            pass
        if data.keeps_times:
            times = source.times()
            for start in range(0, len(times), MAX_TIMES):
                page = times[start : start + MAX_TIMES]
                await data.enter_times(info.session_id, partition_id, page, offline=True, timeout_s=TIMEOUT_S)
        await admin.set_available([partition_id], True)
        await data.last_session_info(RESTORED_SESSION_ID, partition_id, timeout_s=TIMEOUT_S)
        await data.set_low_water_mark(RESTORED_SESSION_ID, partition_id, target, timeout_s=TIMEOUT_S)
