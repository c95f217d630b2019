"""What storages hold of partitions, beside what the metadata in ZooKeeper say that they take part in."""

import asyncio
import json
import re
from collections.abc import Collection
from typing import NamedTuple

from waltz.cli.session import Session
from waltz.cli.survey import Survey
from waltz.common.errors import WaltzError
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.operations import admin_endpoint, connection

_LAST_ID = re.compile(r"waltz-storage\.partition-(\d+)\.max-transaction-id")


class ReplicaReport(NamedTuple):
    """What a storage says of one partition."""

    session_id: int
    """The store session that it has persisted."""
    last_id: int | None
    """Its last transaction, committed or not; None if it does not tell."""


async def ask_last_ids(session: Session, survey: Survey, timeout_s: float) -> dict[str, dict[int, int]]:
    """The last transaction of each replica, by storage; nothing of those that do not tell."""
    storages = [storage for storage, report in survey.storage_reports.items() if not isinstance(report, str)]
    answers = await asyncio.gather(*(_ask(session, storage, (), timeout_s) for storage in storages))
    return {storage: last_ids for storage, (last_ids, _) in zip(storages, answers, strict=True)}


async def ask_replicas(
    session: Session, survey: Survey, partition_ids: Collection[int], timeout_s: float
) -> dict[str, dict[int, ReplicaReport]]:
    """What each storage says of those of the partitions that it has online; nothing of those that do not tell."""
    wanted = {
        storage: [each for each in partition_ids if report.get(each, False)]
        for storage, report in survey.storage_reports.items()
        if not isinstance(report, str)
    }
    answers = await asyncio.gather(*(_ask(session, storage, wanted[storage], timeout_s) for storage in wanted))
    return {
        storage: {each: ReplicaReport(session_id, last_ids.get(each)) for each, session_id in session_ids.items()}
        for storage, (last_ids, session_ids) in zip(wanted, answers, strict=True)
    }


async def _ask(
    session: Session, storage: str, partition_ids: Collection[int], timeout_s: float
) -> tuple[dict[int, int], dict[int, int]]:
    """Last transactions of all partitions, and persisted sessions of some; as far as they were told in time."""
    last_ids: dict[int, int] = {}
    session_ids: dict[int, int] = {}
    try:
        async with asyncio.timeout(timeout_s):
            admin = await admin_endpoint(session.zookeeper, session.root, storage)
            async with connection(StorageAdminClient, session.zookeeper, session.root, admin, session.tls) as client:
                last_ids = parse_last_ids(await client.metrics())
                for partition_id in partition_ids:
                    session_ids[partition_id] = (await client.last_session_info(partition_id)).session_id
    except (WaltzError, TimeoutError, ValueError):
        pass
    return last_ids, session_ids


def parse_last_ids(text: str) -> dict[int, int]:
    """The last transaction ids by partition, from the metrics that the admin port of a storage tells.

    Raises ``ValueError`` when it is something else.
    """
    gauges = json.loads(text).get("gauges", {})
    found: dict[int, int] = {}
    for name, gauge in gauges.items():
        match = _LAST_ID.fullmatch(name)
        value = gauge.get("value") if match else None
        if match is not None and isinstance(value, int):
            found[int(match[1])] = value
    return found
