"""Asks storages for the sessions and records of their replicas, to compare them with the metadata in ZooKeeper."""

import asyncio
from collections.abc import Collection, Mapping

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.operations.storages import admin_endpoint, connection
from waltz.operations.survey.checks import ReplicaReport
from waltz.operations.survey.survey import Survey
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.errors import RemoteStorageError


async def ask_replicas(
    cluster: ClusterHandle,
    survey: Survey,
    partition_ids: Collection[int],
    marks: Mapping[int, int],
    *,
    timeout_s: float,
) -> dict[str, dict[int, ReplicaReport | str]]:
    """What each storage says of those of the partitions that it has online, or why it does not.

    ``marks`` are the committed transactions that are asked for; ``timeout_s`` is for each connection and each answer. A
    storage that does not answer for one partition is not asked for the rest.
    """
    wanted = {
        storage: [each for each in partition_ids if report.get(each, False)]
        for storage, report in survey.storage_reports.items()
        if not isinstance(report, str)
    }
    reports: dict[str, dict[int, ReplicaReport | str]] = {storage: {} for storage in wanted}

    async def ask(storage: str) -> None:
        told = reports[storage]
        try:
            async with asyncio.timeout(timeout_s) as limit:
                admin = await admin_endpoint(cluster, storage)
                async with connection(StorageAdminClient, cluster, admin) as client:
                    for partition_id in wanted[storage]:
                        limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                        told[partition_id] = await _ask_replica(client, partition_id, marks.get(partition_id))
        except (WaltzError, TimeoutError, ValueError) as error:
            reason = str(error) or f"no answer within {timeout_s:g} s"
            told.update({each: reason for each in wanted[storage] if each not in told})

    await asyncio.gather(*map(ask, wanted))
    return reports


async def _ask_replica(client: StorageAdminClient, partition_id: int, mark: int | None) -> ReplicaReport | str:
    try:
        session_id = (await client.last_session_info(partition_id)).session_id
        if mark is None:
            return ReplicaReport(session_id, None)
        return ReplicaReport(session_id, mark == NO_TRANSACTION or bool(await client.records(partition_id, mark, 1)))
    except RemoteStorageError as error:  # of this partition; others may be well
        return str(error)
