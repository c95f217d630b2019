"""What storages hold of partitions, beside what the metadata in ZooKeeper say that they take part in."""

import asyncio
import json
import re
import ssl
from collections.abc import Collection, Mapping
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.zk.client import ZooKeeper
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.operations import admin_endpoint, connection
from waltz.survey.survey import Survey

_VERSION = "waltz-storage.waltz-version-id"
_FREE_BYTES = "waltz-storage.waltz-storage-free-bytes"
_LAST_ID = re.compile(r"waltz-storage\.partition-(\d+)\.max-transaction-id")


class StorageFacts(NamedTuple):
    """What the metrics of a storage node tell."""

    last_ids: Mapping[int, int]
    """The last transaction of each partition, committed or not."""
    free_bytes: int | None
    version: str | None


NO_FACTS = StorageFacts({}, None, None)


class ReplicaReport(NamedTuple):
    """What a storage says of one partition."""

    session_id: int
    """The store session that it has persisted."""
    last_id: int | None
    """Its last transaction, committed or not; None if it does not tell."""


async def ask_storages(
    zookeeper: ZooKeeper, root: str, tls: ssl.SSLContext | None, storages: Collection[str], timeout_s: float
) -> dict[str, StorageFacts]:
    """What the metrics of storages tell; nothing of those that do not tell."""
    answers = await asyncio.gather(*(_ask(zookeeper, root, tls, storage, (), timeout_s) for storage in storages))
    return {storage: facts for storage, (facts, _) in zip(storages, answers, strict=True)}


async def ask_replicas(
    zookeeper: ZooKeeper,
    root: str,
    tls: ssl.SSLContext | None,
    survey: Survey,
    partition_ids: Collection[int],
    timeout_s: float,
) -> dict[str, dict[int, ReplicaReport]]:
    """What each storage says of those of the partitions that it has online; nothing of those that do not tell."""
    wanted = {
        storage: [each for each in partition_ids if report.get(each, False)]
        for storage, report in survey.storage_reports.items()
        if not isinstance(report, str)
    }
    answers = await asyncio.gather(
        *(_ask(zookeeper, root, tls, storage, wanted[storage], timeout_s) for storage in wanted)
    )
    return {
        storage: {each: ReplicaReport(session_id, facts.last_ids.get(each)) for each, session_id in session_ids.items()}
        for storage, (facts, session_ids) in zip(wanted, answers, strict=True)
    }


async def _ask(
    zookeeper: ZooKeeper,
    root: str,
    tls: ssl.SSLContext | None,
    storage: str,
    partition_ids: Collection[int],
    timeout_s: float,
) -> tuple[StorageFacts, dict[int, int]]:
    """What the metrics tell, and the persisted sessions of some partitions; as far as they were told in time."""
    facts = NO_FACTS
    session_ids: dict[int, int] = {}
    try:
        async with asyncio.timeout(timeout_s):
            admin = await admin_endpoint(zookeeper, root, storage)
            async with connection(StorageAdminClient, zookeeper, root, admin, tls) as client:
                facts = parse_storage_metrics(await client.metrics())
                for partition_id in partition_ids:
                    session_ids[partition_id] = (await client.last_session_info(partition_id)).session_id
    except (WaltzError, TimeoutError, ValueError):
        pass
    return facts, session_ids


def parse_storage_metrics(text: str) -> StorageFacts:
    """Read the metrics that the admin port of a storage tells. Raises ``ValueError`` when it is something else."""
    try:
        gauges = {name: gauge.get("value") for name, gauge in json.loads(text)["gauges"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"what was told are not the metrics of a storage: {error!r}") from None
    matches = ((_LAST_ID.fullmatch(name), value) for name, value in gauges.items())
    last_ids = {int(match[1]): value for match, value in matches if match is not None and isinstance(value, int)}
    free_bytes, version = gauges.get(_FREE_BYTES), gauges.get(_VERSION)
    return StorageFacts(
        last_ids,
        free_bytes if isinstance(free_bytes, int) else None,
        version if isinstance(version, str) else None,
    )
