"""The times of commits, from the owners of the partitions."""

import asyncio
from collections.abc import Mapping
from functools import partial

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.owners import Answer, Owner, OwnerConnection, read_owners
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.versions import FIRST_WITH_TIME

ANSWER_TIMEOUT_S = 5.0


async def ask_commit_times(cluster: ClusterHandle, wanted: Mapping[int, int]) -> dict[int, int]:
    """Ask the owners when transactions were committed.

    An unknown time is not an error, because storages of the original keep no times.

    Args:
        cluster: The cluster.
        wanted: One transaction id of each partition.

    Returns:
        Milliseconds since the epoch, by partition; without the partitions whose time is unknown.

    Raises:
        WaltzError: ZooKeeper failed.
    """
    found: dict[int, int] = {}
    if not wanted:
        return found
    by_server: dict[Endpoint, dict[int, Owner]] = {}
    for partition_id, owner in (await read_owners(cluster.zookeeper, cluster.root)).items():
        if partition_id in wanted and owner.endpoint is not None:
            by_server.setdefault(owner.endpoint, {})[partition_id] = owner

    async def ask(endpoint: Endpoint, owners: Mapping[int, Owner]) -> None:
        try:
            connection = await OwnerConnection.open(endpoint, tls=cluster.tls, timeout_s=ANSWER_TIMEOUT_S)
        except WaltzError:
            return
        try:
            if connection.channel.version >= FIRST_WITH_TIME:
                await _ask_server(connection, owners, wanted, found)
        except WaltzError:
            return
        finally:
            await connection.close()

    async with asyncio.TaskGroup() as group:
        for endpoint, owners in by_server.items():
            group.create_task(ask(endpoint, owners))
    return found


def _question(transaction_id: int, req_id: ReqId) -> TimeRequest:
    return TimeRequest(req_id, TimeQuestion.FIRST_COVERING, transaction_id)


async def _ask_server(
    connection: OwnerConnection, owners: Mapping[int, Owner], wanted: Mapping[int, int], found: dict[int, int]
) -> None:
    answers: dict[int, asyncio.Future[Answer]] = {}
    for partition_id, owner in owners.items():
        transaction_id = wanted[partition_id]
        answers[partition_id] = connection.send(
            partition_id,
            owner.generation,
            partial(_question, transaction_id),
        )
    await asyncio.wait(answers.values(), timeout=ANSWER_TIMEOUT_S)
    for partition_id, answer in answers.items():
        if answer.cancel() or answer.exception() is not None:
            continue
        message = answer.result().decode()
        if isinstance(message, TimeResponse) and message.time_status is TimeStatus.OK and message.time_ms >= 0:
            found[partition_id] = message.time_ms
