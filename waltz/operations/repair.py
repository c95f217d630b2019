"""Repairs damaged records of one node with records of the other replicas of the partition."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import Source, read_replicas
from waltz.common.errors import WaltzError
from waltz.common.ids import UNKNOWN_END, Endpoint
from waltz.common.records import Record
from waltz.operations.storages import TIMEOUT_S, connection
from waltz.operations.times import copy_times_of_members
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

logger = logging.getLogger(__name__)

FETCH_RECORDS = 1000
"""The number of records in one request to another replica. The replica limits their bytes."""


class Roles(NamedTuple):
    """The replicas that may serve records, and whether the damaged node has a vote in the partition's next recovery."""

    sources: tuple[Source, ...]
    node_may_vote: bool


class Repaired(NamedTuple):
    """The result of a repair: ids of transactions, both ends included, and the number of restored transactions."""

    missing: tuple[tuple[int, int], ...]
    restored: int
    uncommitted: tuple[tuple[int, int], ...]


async def read_roles(cluster: ClusterHandle, partition_id: int, node: Endpoint) -> Roles:
    """Judge the replicas by rule S6. To be called after the committed mark was read.

    ``node`` is the damaged node's admin port. Raises ``WaltzError``.
    """
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    storage = replicas.name_of(node)
    if storage not in replicas.assignments.storages_of(partition_id):
        raise WaltzError(
            f"partition {partition_id} has no replica whose admin port is {node} in the cluster at {cluster.root}"
        )
    sources = replicas.choose(partition_id).sources
    return Roles(
        tuple(source for source in sources if source.storage != storage), replicas.may_vote(partition_id, storage)
    )


class Repair:
    """The repair of one partition on one node."""

    def __init__(
        self,
        cluster: ClusterHandle,
        node: Endpoint,
        partition_id: int,
        report: Callable[[str], None],
    ) -> None:
        """``report`` takes lines for the operator."""
        self._cluster = cluster
        self._node = node
        self._partition_id = partition_id
        self._report = report

    async def run(self, committed_mark: int | None) -> Repaired:
        """Restore committed records. ``committed_mark`` is the mark of the owner. If it is missing because no server
        was asked, the marks at the beginning of the current session limit the repair.

        Raises ``WaltzError``. The files of the node are as before then, or the repair has to be repeated.
        """
        roles = await read_roles(self._cluster, self._partition_id, self._node)
        async with connection(StorageAdminClient, self._cluster, self._node) as client:
            missing, last_id, whole = await client.repair_survey(self._partition_id)
            if whole:
                return Repaired((), 0, ())
            if not missing:
                # Only a header is damaged, or the reason why the partition could not be opened has vanished.
                await client.repair_commit(self._partition_id, last_id)
                return Repaired((), 0, ())
            mark = committed_mark
            if mark is None:
                mark = await self._mark_of_session(roles)
                # The replicas that reported the mark may be in a newer session, without some of the other replicas.
                roles = await read_roles(self._cluster, self._partition_id, self._node)
            wanted = [(first, min(last, mark)) for first, last in missing if first <= mark]
            uncommitted = tuple((max(first, mark + 1), last) for first, last in missing if last > mark)
            self._check_may_be_cut(roles, uncommitted, mark)
            restored = 0
            for first, last in wanted:
                restored += await self._restore(client, roles, first, last)
            if uncommitted:  # the node may have joined a session meanwhile
                roles = await read_roles(self._cluster, self._partition_id, self._node)
                self._check_may_be_cut(roles, uncommitted, mark)
            await client.repair_commit(self._partition_id, mark)
            await self._copy_times(wanted)
            return Repaired(missing, restored, tuple(each for each in uncommitted if each[1] != UNKNOWN_END))

    async def _copy_times(self, restored: list[tuple[int, int]]) -> None:
        """Copy the times of restored transactions: a start that did not find their segment has removed its times."""
        cluster, partition_id = self._cluster, self._partition_id
        replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
        storage, metadata = replicas.name_of(self._node), replicas.metadata[partition_id]
        if storage is None or metadata is None:
            return
        try:
            async with connection(StorageClient, cluster, Endpoint.parse(storage)) as data:
                if not data.keeps_times:
                    return
                enter = partial(data.enter_times, metadata.session_id, partition_id, timeout_s=TIMEOUT_S)
                for first, last in restored:
                    await copy_times_of_members(
                        cluster, replicas, partition_id, enter, first, last, self._report, except_from=storage
                    )
        except WaltzError as error:
            self._report(f"partition {partition_id}: the times of its transactions were not copied: {error}")

    def _check_may_be_cut(self, roles: Roles, uncommitted: tuple[tuple[int, int], ...], mark: int) -> None:
        """Refuse to cut records above the mark that a node with a vote may have acknowledged."""
        if uncommitted and roles.node_may_vote:
            raise WaltzError(
                f"partition {self._partition_id}, transactions {_id_pairs(uncommitted)} are damaged and not known "
                f"to be committed (the mark is {mark}): repeat the repair when the servers have begun a new "
                "store session"
            )

    async def _mark_of_session(self, roles: Roles) -> int:
        """A certainly committed mark: the highest low-water mark of the replicas in the current session."""
        marks = []
        for storage, endpoint in roles.sources:
            try:
                async with connection(StorageAdminClient, self._cluster, endpoint) as source:
                    marks.append((await source.last_session_info(self._partition_id)).low_water_mark)
            except WaltzError as error:
                self._report(f"{storage} does not tell its mark: {error}")
        if not marks:
            raise WaltzError(f"no replica of partition {self._partition_id} in the current store session answers")
        return max(marks)

    async def _restore(self, client: StorageAdminClient, roles: Roles, first: int, last: int) -> int:
        """Copy the records ``first`` to ``last`` from any source. Returns the number of records."""
        next_id = first
        for storage, endpoint in roles.sources:
            connecting = connection(StorageAdminClient, self._cluster, endpoint)
            async with AsyncExitStack() as stack:
                source: StorageAdminClient | None = None
                while next_id <= last:
                    try:
                        if source is None:
                            source = await stack.enter_async_context(connecting)
                        records = await self._fetch(source, next_id, min(last - next_id + 1, FETCH_RECORDS))
                    except WaltzError as error:
                        self._report(f"{storage} does not give transaction {next_id}: {error}")
                        break
                    await client.repair_records(self._partition_id, records)
                    next_id += len(records)
                else:
                    self._report(f"transactions {first} to {last} come from {storage}")
                    return last - first + 1
        raise WaltzError(
            f"no replica in the current store session gives transaction {next_id} of partition {self._partition_id}"
        )

    async def _fetch(self, source: StorageAdminClient, first: int, count: int) -> list[Record]:
        """Fetch records from ``first`` on, at least one. The client verifies the payloads."""
        records = await source.records(self._partition_id, first, count)
        if not records:
            raise WaltzError(f"it does not hold transaction {first}")
        if [record.transaction_id for record in records] != list(range(first, first + len(records))):
            raise WaltzError(f"it sent other transactions than {first} and the following ones")
        return records


def _id_pairs(ranges: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{first} and later" if last == UNKNOWN_END else f"{first} to {last}" for first, last in ranges)
