"""The state of a cluster at one moment: what ZooKeeper, servers and storages say, put together by partition."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import ask_committed_marks
from waltz.common.cluster.owners import Owner, read_owners
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.zk.store_admin import read_cluster_params
from waltz.operations.storages import admin_endpoint, connection
from waltz.operations.survey.checks import find_failures
from waltz.operations.survey.survey import ServerReport, Survey, read_survey
from waltz.storage.remote.admin_client import StorageAdminClient

PARTITIONS_AT_ONCE = 32
"""Put together before the loop may do something else: well below a millisecond's work."""

NO_REPLICA = "NO_REPLICA"
"""The problem of a partition that is assigned to no storage, so that no check can be made."""

_VERSION = "waltz-storage.waltz-version-id"
_FREE_BYTES = "waltz-storage.waltz-storage-free-bytes"
_LAST_ID = re.compile(r"waltz-storage\.partition-(\d+)\.max-transaction-id")


class SurveyedReplica(NamedTuple):
    """One copy of a partition."""

    storage: str
    state: str
    """``current`` (it takes full part in the store session), ``behind`` (it does not), ``offline`` (switched off, or
    not there), ``silent`` (its storage does not answer)."""
    lag: int | None
    """Committed transactions that the replica does not have; None if unknown."""


class SurveyedPartition(NamedTuple):
    """One partition. A field is None where nobody answered."""

    partition_id: int
    owner: int | None
    endpoint: str | None
    generation: int | None
    store_session: int | None
    write_session: int | None
    high_water_mark: int | None
    rate_per_s: float | None
    """Committed transactions per second."""
    replicas: tuple[SurveyedReplica, ...]
    problems: tuple[str, ...]
    """The checks of ``waltz cluster verify`` that fail."""
    reasons: Mapping[str, Sequence[str]] = {}
    """The reasons, by check."""


class SurveyedServer(NamedTuple):
    """One server."""

    server_id: int
    endpoint: str
    version: int | None
    """Version of the protocol; None if the server does not answer."""
    partitions: int
    preferred: tuple[int, ...]
    reason: str | None = None
    """Why it does not answer."""


class SurveyedStorage(NamedTuple):
    """One storage node."""

    storage: str
    answers: bool
    online: int
    """Partitions that servers may use."""
    assigned: int
    reason: str | None = None
    """Why it does not answer."""
    free_bytes: int | None = None
    """Free space of its disk, if it was asked and answered."""
    version: str | None = None
    """Version of its software, if it was asked and answered."""


class StorageFacts(NamedTuple):
    """Values from the metrics of a storage node."""

    last_ids: Mapping[int, int]
    """The last transaction of each partition."""
    free_bytes: int | None
    version: str | None


_NO_FACTS = StorageFacts({}, None, None)


class ClusterState(NamedTuple):
    """The state of the whole cluster."""

    name: str
    root: str
    at_s: float
    """When the marks were read, in the time of the loop."""
    servers: tuple[SurveyedServer, ...]
    storages: tuple[SurveyedStorage, ...]
    partitions: tuple[SurveyedPartition, ...]

    @property
    def unwell(self) -> int:
        """How many partitions have problems."""
        return sum(bool(partition.problems) for partition in self.partitions)

    def document(self) -> dict[str, Json]:
        """The state as JSON, for programs."""
        return {
            "name": self.name,
            "root": self.root,
            "healthy": not self.unwell,
            "servers": [{**each._asdict(), "preferred": list(each.preferred)} for each in self.servers],
            "storages": [each._asdict() for each in self.storages],
            "partitions": [
                {
                    **each._asdict(),
                    "replicas": [replica._asdict() for replica in each.replicas],
                    "problems": list(each.problems),
                }
                for each in self.partitions
            ],
        }


AskWriteSessions = Callable[[Mapping[int, Owner]], Awaitable[Mapping[int, int]]]
"""Asks the owners of partitions for the numbers of their write sessions; nothing is raised."""


async def read_state(
    cluster: ClusterHandle,
    partition_ids: Sequence[int],
    *,
    timeout_s: float,
    before: ClusterState | None = None,
    ask_write_sessions: AskWriteSessions | None = None,
    max_metrics_partitions: int | None = None,
) -> ClusterState:
    """Ask everybody; ``timeout_s`` is for each answer. Rates are those since ``before``.

    Without ``ask_write_sessions`` no write session is known. Storages that hold more than ``max_metrics_partitions``
    are not asked for their metrics, so that lags, free space and version stay unknown: to put metrics together takes
    nearly half a millisecond of a storage's processor for each partition.

    Raises ``WaltzError`` of ZooKeeper; who does not answer is part of the state. Leaves the loop to others again and
    again, however many partitions there are.
    """
    loop = asyncio.get_running_loop()
    survey = await read_survey(cluster, partition_ids, timeout_s=timeout_s)
    owners = await read_owners(cluster.zookeeper, cluster.root)
    name = (await read_cluster_params(cluster.zookeeper, cluster.root)).name
    owned = {each: owners[each] for each in partition_ids if each in owners}
    asked = [
        storage
        for storage, report in survey.storage_reports.items()
        if not isinstance(report, str) and (max_metrics_partitions is None or len(report) <= max_metrics_partitions)
    ]
    facts, write_sessions = await asyncio.gather(
        _ask_storages(cluster, asked, timeout_s),
        _no_write_sessions(owned) if ask_write_sessions is None else ask_write_sessions(owned),
    )
    # After the storages: what they have is committed by then, or it is counted as lag.
    marks, _ = await ask_committed_marks(cluster, partition_ids, deadline_s=loop.time() + min(timeout_s, 1.0))
    at_s = loop.time()
    rates = {} if before is None else _rates(before, marks, at_s)
    partitions = []
    for each in partition_ids:
        partitions.append(
            _partition(
                each, survey, owners.get(each), marks.get(each), write_sessions.get(each), facts, rates.get(each)
            )
        )
        if len(partitions) % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    owned_count = Counter(server_id for owning in survey.owners.values() for server_id in owning)
    servers = tuple(
        SurveyedServer(
            server_id,
            str(server.endpoint),
            survey.server_reports[server_id].version,
            owned_count[server_id],
            server.preferred_partitions,
            _silence(survey.server_reports[server_id]),
        )
        for server_id, server in sorted(survey.servers.items())
    )
    storages = tuple(
        SurveyedStorage(storage, False, 0, 0, report)
        if isinstance(report, str)
        else SurveyedStorage(
            storage,
            True,
            sum(report.values()),
            len(report),
            None,
            facts.get(storage, _NO_FACTS).free_bytes,
            facts.get(storage, _NO_FACTS).version,
        )
        for storage, report in sorted(survey.storage_reports.items())
    )
    return ClusterState(name, cluster.root, at_s, servers, storages, tuple(partitions))


def _silence(report: ServerReport) -> str | None:
    """Why a server does not answer at all."""
    return report.partitions if report.version is None and isinstance(report.partitions, str) else None


async def _no_write_sessions(_: Mapping[int, Owner]) -> Mapping[int, int]:
    return {}


def _partition(
    partition_id: int,
    survey: Survey,
    owner: Owner | None,
    mark: int | None,
    write_session: int | None,
    facts: Mapping[str, StorageFacts],
    rate_per_s: float | None,
) -> SurveyedPartition:
    metadata = survey.metadata[partition_id]
    replicas = tuple(
        _replica(partition_id, storage, survey, mark, facts.get(storage, _NO_FACTS).last_ids.get(partition_id))
        for storage in sorted(survey.storages.get(partition_id, ()))
    )
    try:
        reasons = {check.name: faults for check, faults in find_failures(survey, partition_id).items()}
    except WaltzError as error:
        reasons = {NO_REPLICA: [str(error)]}
    return SurveyedPartition(
        partition_id,
        None if owner is None else owner.server_id,
        None if owner is None or owner.endpoint is None else str(owner.endpoint),
        None if owner is None else owner.generation,
        None if metadata is None else metadata.session_id,
        write_session,
        mark,
        rate_per_s,
        replicas,
        tuple(reasons),
        reasons,
    )


def _rates(before: ClusterState, marks: Mapping[int, int], at_s: float) -> dict[int, float]:
    """Committed transactions per second, for the partitions whose marks are known at both times."""
    return {
        partition.partition_id: max(0, marks[partition.partition_id] - partition.high_water_mark) / (at_s - before.at_s)
        for partition in before.partitions
        if partition.high_water_mark is not None and partition.partition_id in marks
    }


def _replica(partition_id: int, storage: str, survey: Survey, mark: int | None, last_id: int | None) -> SurveyedReplica:
    report, metadata = survey.storage_reports.get(storage, ""), survey.metadata[partition_id]
    if isinstance(report, str):
        return SurveyedReplica(storage, "silent", None)
    if not report.get(partition_id, False):
        return SurveyedReplica(storage, "offline", None)
    states = {} if metadata is None else {each.connect_string: state for each, state in metadata.replicas.items()}
    is_member = metadata is not None and storage in states and states[storage].is_member_of(metadata.session_id)
    lag = None if mark is None or last_id is None else max(0, mark - last_id)
    return SurveyedReplica(storage, "current" if is_member else "behind", lag)


async def _ask_storages(cluster: ClusterHandle, storages: Sequence[str], timeout_s: float) -> dict[str, StorageFacts]:
    """Values from the metrics of storages; empty ones for storages that do not answer."""
    answers = await asyncio.gather(*(_ask_storage(cluster, storage, timeout_s) for storage in storages))
    return dict(zip(storages, answers, strict=True))


async def _ask_storage(cluster: ClusterHandle, storage: str, timeout_s: float) -> StorageFacts:
    try:
        async with asyncio.timeout(timeout_s):
            admin = await admin_endpoint(cluster, storage)
            async with connection(StorageAdminClient, cluster, admin) as client:
                return parse_storage_metrics(await client.metrics())
    except (WaltzError, TimeoutError, ValueError):
        return _NO_FACTS


def parse_storage_metrics(text: str) -> StorageFacts:
    """Parse the metrics from the admin port of a storage. Raises ``ValueError`` for any other text."""
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
