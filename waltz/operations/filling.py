"""Copies all committed records to a new replica before any server knows the replica. The partition stays in use."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.cluster.replicas import Replicas, read_replicas
from waltz.common.errors import ConnectFailedError, WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.wire.structures import SessionInfo
from waltz.common.zk.storage_labels import nearness, read_labels
from waltz.common.zk.trim_points import read_trim_point
from waltz.operations.copying import Pace, SourceError, copy_records
from waltz.operations.storages import TIMEOUT_S, admin_endpoint, begin_at_trim_point, connection
from waltz.operations.times import copy_times_of_members
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

BATCHES_PER_S = 4
"""The largest size of a batch, as a part of the allowed bytes per second."""

MAX_BATCH_BYTES = 1 << 20

SHORT_ROUND_S = 1.0
"""A round of at most this duration is the last one: the servers copy the records that were appended meanwhile."""

LOSING_ROUNDS = 3
"""The number of consecutive rounds without progress after which the copy ends with an error."""

Progress = Callable[[str, int, str], contextlib.AbstractContextManager[Callable[[int], object]]]
"""A function that shows progress, given a title, the total and its unit. The value of the context is called with each
further amount."""


class FillOptions(NamedTuple):
    """How a replica is filled."""

    bytes_per_s: int
    """The largest rate of the copy, headers of records included."""
    mark_timeout_s: float
    """Time limit for the answer of the partition's owner with the committed mark."""
    preferred_source: str
    """The replica that is read as long as it answers, unless another replica is nearer."""


class ReplicaFilling:
    """The filling of one replica on a storage node that is not assigned to the partition."""

    def __init__(
        self,
        cluster: ClusterHandle,
        partition_id: int,
        storage: str,
        options: FillOptions,
        report: Callable[[str], None],
        progress: Progress,
    ) -> None:
        """``storage`` is the connect string of the node; ``report`` takes lines for the operator."""
        self._cluster = cluster
        self._partition_id = partition_id
        self._storage = storage
        self._options = options
        self._report = report
        self._progress = progress
        self._pace: Pace | None = None
        self._replicas: Replicas | None = None
        self._current = NO_TRANSACTION
        self._trim_point = 0

    async def run(self) -> None:
        """Fill the replica until only the newest transactions are missing, and switch it on.

        The copy of an earlier run is continued. Raises ``WaltzError``; copied batches stay.
        """
        partition_id, data_port = self._partition_id, Endpoint.parse(self._storage)
        admin_port = await admin_endpoint(self._cluster, self._storage)
        async with (
            connection(StorageAdminClient, self._cluster, admin_port) as admin,
            connection(StorageClient, self._cluster, data_port) as data,
        ):
            await admin.set_available([partition_id], False)
            if partition_id not in await admin.assigned_partition_status():
                await admin.set_assigned([partition_id], True)
            info = await admin.last_session_info(partition_id)
            await self._keep_certain(data, info)
            await self._follow(admin, data, info)
            await self._copy_times(data, info)
            await admin.set_available([partition_id], True)

    async def _keep_certain(self, data: StorageClient, info: SessionInfo) -> None:
        """Start from the low-water mark: records above it may be from an unfinished batch or an earlier assignment."""
        session_id, partition_id = info.session_id, self._partition_id
        await data.last_session_info(session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        self._current = await data.max_transaction_id(session_id, partition_id, offline=True, timeout_s=TIMEOUT_S)
        if self._current > info.low_water_mark:
            self._current = await data.truncate(
                session_id, partition_id, info.low_water_mark, offline=True, timeout_s=TIMEOUT_S
            )

    async def _follow(self, admin: StorageAdminClient, data: StorageClient, info: SessionInfo) -> None:
        """Copy in rounds, each up to the committed mark at its begin, until a round is short."""
        loop = asyncio.get_running_loop()
        losing, missing_before = 0, None
        while True:
            began_s = loop.time()
            missing = await self._mark() - self._current
            if missing < 0:
                raise WaltzError(
                    f"{self._storage} has transactions of partition {self._partition_id} up to {self._current}, "
                    f"{-missing} more than are committed: delete them (waltz storage remove-partition -d)"
                )
            losing = losing + 1 if missing_before is not None and missing >= missing_before else 0
            if losing == LOSING_ROUNDS:
                raise WaltzError(
                    f"partition {self._partition_id} grows faster than it is copied, {missing} transactions are "
                    "missing: run it again with a larger --rate"
                )
            missing_before = missing
            await self._copy(admin, data, info, self._current + missing)
            if loop.time() - began_s < SHORT_ROUND_S:
                return

    async def _mark(self) -> int:
        deadline_s = asyncio.get_running_loop().time() + self._options.mark_timeout_s
        marks = await read_committed_marks(self._cluster, [self._partition_id], deadline_s=deadline_s)
        return marks[self._partition_id]

    async def _copy(self, admin: StorageAdminClient, data: StorageClient, info: SessionInfo, mark: int) -> None:
        """Copy up to a committed mark, from any replica."""
        # The metadata are read after the mark (rule S6).
        replicas = await read_replicas(self._cluster.zookeeper, self._cluster.root, [self._partition_id])
        self._replicas = replicas
        await self._begin_at_trim_point(data, info, mark)
        sources = replicas.choose(self._partition_id).sources
        reasons = []
        labels = (await read_labels(self._cluster.zookeeper, self._cluster.root)).labels
        here, preferred = labels.get(self._storage, {}), self._options.preferred_source
        ordered = sorted(
            sources, key=lambda each: (-nearness(here, labels.get(each.storage, {})), each.storage != preferred)
        )
        for storage, endpoint in ordered:
            try:
                async with connection(StorageAdminClient, self._cluster, endpoint) as source:
                    await self._compare(admin, source)
                    if self._current < mark:
                        first = self._current + 1
                        self._report(
                            f"partition {self._partition_id}: copying transactions {first} to {mark} from {storage}"
                        )
                    await self._copy_from(source, data, info, mark)
                    return
            except (SourceError, ConnectFailedError) as error:
                reasons.append(f"{storage}: {error}")
        raise WaltzError(
            f"no replica of partition {self._partition_id} gives transaction {self._current + 1}: "
            f"{'; '.join(reasons) or 'none is a member of the present store session'}"
        )

    async def _begin_at_trim_point(self, data: StorageClient, info: SessionInfo, mark: int) -> None:
        """Begin the replica with the first transaction that is not trimmed, if the replica has nothing from there on:
        the others may not have the transactions before."""
        partition_id = self._partition_id
        self._trim_point = await read_trim_point(self._cluster.zookeeper, self._cluster.root, partition_id)
        self._current = await begin_at_trim_point(
            self._cluster, data, self._storage, info, partition_id, self._current, mark
        )

    async def _copy_times(self, data: StorageClient, info: SessionInfo) -> None:
        """Copy the times of the commits, from where an earlier run has ended. The servers copy the others' later."""
        if self._replicas is None or not data.keeps_times:
            return
        enter = partial(data.enter_times, info.session_id, self._partition_id, offline=True, timeout_s=TIMEOUT_S)
        known = await enter([])
        await copy_times_of_members(
            self._cluster,
            self._replicas,
            self._partition_id,
            enter,
            NO_TRANSACTION + 1 if known is None else known.transaction_id + 1,
            self._current,
            self._report,
            except_from=self._storage,
        )

    async def _compare(self, admin: StorageAdminClient, source: StorageAdminClient) -> None:
        """Raise ``WaltzError`` if the destination's last transaction differs from the source's."""
        if self._current < max(self._trim_point, 0):
            return  # there is none, or it may be trimmed
        try:
            theirs = await source.records(self._partition_id, self._current, 1)
        except WaltzError as error:
            raise SourceError(str(error)) from error
        if theirs and theirs != await admin.records(self._partition_id, self._current, 1):
            raise WaltzError(
                f"{self._storage} has another transaction {self._current} of partition {self._partition_id} than the "
                "replicas: delete what it has (waltz storage remove-partition -d), and run it again"
            )

    async def _copy_from(self, source: StorageAdminClient, data: StorageClient, info: SessionInfo, mark: int) -> None:
        loop = asyncio.get_running_loop()
        pace = self._pace = self._pace or Pace(self._options.bytes_per_s, loop.time())
        copying = copy_records(
            source,
            data,
            self._partition_id,
            info,
            self._current,
            mark,
            timeout_s=TIMEOUT_S,
            batch_bytes=min(MAX_BATCH_BYTES, self._options.bytes_per_s // BATCHES_PER_S),
        )
        with self._progress(f"partition {self._partition_id}", mark - self._current, "transactions") as advance:
            async for last_id, size_bytes in copying:
                advance(last_id - self._current)
                self._current = last_id
                await asyncio.sleep(pace.pause_s(size_bytes, loop.time()))
