"""Asks a whole cluster: the survey, and the progress of replicas at their storages."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import ask_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.replica_states import ReplicaStatus
from waltz.common.storage_health import StorageHealth
from waltz.operations.storages import admin_endpoint, connection
from waltz.operations.survey.replica_judgement import StorageFacts, Told, judge_replicas
from waltz.operations.survey.survey import Survey, read_survey
from waltz.storage.remote.admin_client import StorageAdminClient

MARK_TIMEOUT_S = 1.0
"""Time limit for the answers of owners with committed marks."""

LATE_S = 1.0
"""A healthy replica has each transaction within this time after the commit."""

PARTITIONS_AT_ONCE = 32
"""The number of partitions that are processed before the event loop may do other work: well below a millisecond."""

_VERSION = "waltz-storage.waltz-version-id"
_FREE_BYTES = "waltz-storage.waltz-storage-free-bytes"
_HEALTH = "waltz-storage.waltz-storage-health"
_OF_PARTITION = re.compile(r"waltz-storage\.partition-(\d+)\.(max-transaction-id|session-id|flags)")
_AVAILABLE = 1


Choose = Callable[[Mapping[str, Mapping[int, bool]]], Collection[str]]
"""A function that chooses the storages to be asked for their metrics, given the storages that answer and their
partitions."""


class Evidence(NamedTuple):
    """All answers."""

    survey: Survey
    told: Told
    unknown_marks: Mapping[int, str]
    """The reason why no owner reported the committed mark, by partition."""
    at_s: float
    """When the marks were read, by the loop's clock."""


async def read_evidence(
    cluster: ClusterHandle,
    partition_ids: Sequence[int],
    *,
    timeout_s: float,
    floor: Mapping[int, int] | None = None,
    choose: Choose | None = None,
) -> Evidence:
    """Ask all nodes; ``timeout_s`` limits each answer.

    ``floor`` has the committed marks of an earlier survey, at least :data:`LATE_S` ago: a replica that still lacks one
    of them lags. Without ``floor`` the present marks are read first, and replicas that lack them are asked again after
    :data:`LATE_S`. ``choose`` limits the questions for metrics, each of which costs a storage nearly half a millisecond
    of processor time per partition.

    Raises ``WaltzError`` of ZooKeeper. A missing answer of a node is part of the evidence.
    """
    survey = await read_survey(cluster, partition_ids, timeout_s=timeout_s)
    answering = {storage: report for storage, report in survey.storage_reports.items() if not isinstance(report, str)}
    asked = list(answering) if choose is None else choose(answering)
    if floor is None:
        first, _ = await _ask_marks(cluster, partition_ids, timeout_s)
    else:
        first = dict(floor)
    facts = await ask_storages(cluster, asked, timeout_s)
    doubtful = await _doubtful(survey, partition_ids, Told(facts, first, first), settled=floor is not None)
    if doubtful:
        await asyncio.sleep(LATE_S)
        facts |= await ask_storages(cluster, doubtful, timeout_s)
    # Asked after the storages: by then, each transaction of a storage is committed.
    marks, unknown_marks = await _ask_marks(cluster, partition_ids, timeout_s)
    return Evidence(survey, Told(facts, marks, first), unknown_marks, asyncio.get_running_loop().time())


async def _ask_marks(
    cluster: ClusterHandle, partition_ids: Iterable[int], timeout_s: float
) -> tuple[dict[int, int], dict[int, str]]:
    deadline_s = asyncio.get_running_loop().time() + min(timeout_s, MARK_TIMEOUT_S)
    return await ask_committed_marks(cluster, partition_ids, deadline_s=deadline_s)


async def _doubtful(survey: Survey, partition_ids: Iterable[int], told: Told, *, settled: bool) -> list[str]:
    """The storages of replicas that may be late by a moment only."""
    found = set()
    for place, partition_id in enumerate(partition_ids, 1):
        if place % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
        for replica in judge_replicas(survey, partition_id, told):
            if replica.state == ReplicaStatus.LAGGING.value and not (settled and replica.lag):
                found.add(replica.storage)
    return sorted(found)


async def ask_storages(
    cluster: ClusterHandle, storages: Collection[str], timeout_s: float
) -> dict[str, StorageFacts | str]:
    """Values from the metrics of storages, or the reasons for missing values."""
    answers = await asyncio.gather(*(_ask_storage(cluster, storage, timeout_s) for storage in storages))
    return dict(zip(storages, answers, strict=True))


async def _ask_storage(cluster: ClusterHandle, storage: str, timeout_s: float) -> StorageFacts | str:
    try:
        async with asyncio.timeout(timeout_s):
            admin = await admin_endpoint(cluster, storage)
            async with connection(StorageAdminClient, cluster, admin) as client:
                return parse_storage_metrics(await client.metrics())
    except (WaltzError, TimeoutError, ValueError) as error:
        return str(error) or f"no answer within {timeout_s:g} s"


def parse_storage_metrics(text: str) -> StorageFacts:
    """Parse the metrics from the admin port of a storage. Raises ``ValueError`` for any other text."""
    try:
        gauges = {name: gauge.get("value") for name, gauge in json.loads(text)["gauges"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the answer is not the metrics of a storage: {error!r}") from None
    numbers: dict[str, dict[int, int]] = {"max-transaction-id": {}, "session-id": {}, "flags": {}}
    for name, value in gauges.items():
        match = _OF_PARTITION.fullmatch(name)
        if match is not None and isinstance(value, int):
            numbers[match[2]][int(match[1])] = value
    free_bytes, version = gauges.get(_FREE_BYTES), gauges.get(_VERSION)
    return StorageFacts(
        numbers["max-transaction-id"],
        free_bytes if isinstance(free_bytes, int) else None,
        version if isinstance(version, str) else None,
        numbers["session-id"],
        {partition_id: bool(flags & _AVAILABLE) for partition_id, flags in numbers["flags"].items()},
        StorageHealth.parse(gauges[_HEALTH]) if gauges.get(_HEALTH) is not None else None,
    )
