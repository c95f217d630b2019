"""The state of a cluster at one moment: the reports of ZooKeeper, servers and storages, arranged by partition."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.owners import Owner, read_owners
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.storage_health import Ailment
from waltz.common.zk.storage_labels import read_labels
from waltz.common.zk.store_admin import read_cluster_params
from waltz.operations.survey.checks import Check, find_failures, find_storage_ailments
from waltz.operations.survey.evidence import PARTITIONS_AT_ONCE, Evidence, read_evidence
from waltz.operations.survey.replica_judgement import (
    StorageFacts,
    SurveyedReplica,
    Told,
    judge_replicas,
    lacks_record,
    owner_lags,
)
from waltz.operations.survey.survey import ServerReport, StorageReport, Survey
from waltz.operations.survey.zone_risks import ZoneRisk, find_zone_risks

LARGE_INTERVAL_S = 30.0
"""Interval at which a large storage is asked for its metrics: about the interval of Prometheus."""

NO_REPLICA = "NO_REPLICA"
"""The problem of a partition without an assigned storage, for which no check is possible."""

NO_RECORD = "NO_RECORD"
"""The problem of a partition whose record in ZooKeeper is missing."""


class SurveyedPartition(NamedTuple):
    """One partition. A field is None without an answer."""

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
    """The failing checks of ``waltz cluster verify``."""
    reasons: Mapping[str, Sequence[str]] = {}
    """The reasons, by check."""
    feed_lag: int | None = None
    """Committed transactions that the feed furthest behind was promised and not sent, as the owner tells."""
    feed_lag_s: float | None = None
    """For how long at least the oldest such transaction of all feeds has been committed."""


class SurveyedServer(NamedTuple):
    """One server."""

    server_id: int
    endpoint: str
    version: int | None
    """Version of the protocol; None if the server does not answer."""
    partitions: int
    preferred: tuple[int, ...]
    reason: str | None = None
    """The reason for a missing answer."""


class SurveyedStorage(NamedTuple):
    """One storage node."""

    storage: str
    answers: bool
    online: int
    """The number of its online partitions."""
    assigned: int
    reason: str | None = None
    """The reason for a missing answer."""
    free_bytes: int | None = None
    """Free bytes of its disk; None without an answer."""
    version: str | None = None
    """Version of its software; None without an answer."""
    ailments: tuple[Ailment, ...] | None = None
    """Faults of its disk and files; None if it does not report faults."""
    told_at_s: float | None = None
    """Time of its last metrics (the three fields above), by the loop's clock."""


class ClusterState(NamedTuple):
    """The state of the whole cluster."""

    name: str
    root: str
    at_s: float
    """The time of the marks, by the clock of the event loop."""
    servers: tuple[SurveyedServer, ...]
    storages: tuple[SurveyedStorage, ...]
    partitions: tuple[SurveyedPartition, ...]
    zone_risks: tuple[ZoneRisk, ...] = ()
    """The zones whose loss would stop partitions. They do not count as faults."""
    unreadable_labels: tuple[str, ...] = ()
    """A line for each storage with unreadable labels, and therefore an unknown zone."""

    @property
    def unwell(self) -> int:
        """The number of partitions with problems."""
        return sum(bool(partition.problems) for partition in self.partitions)

    @property
    def node_faults(self) -> dict[str, list[str]]:
        """The nodes that do not answer or report a fault, with the fault."""
        faults = {
            f"server {server.endpoint}": [f"it does not answer: {server.reason}"]
            for server in self.servers
            if server.version is None
        }
        for storage in self.storages:
            if not storage.answers:
                faults[f"storage {storage.storage}"] = [f"it does not answer: {storage.reason}"]
            elif storage.ailments:
                faults[f"storage {storage.storage}"] = [f"{each.text}: {each.remedy}" for each in storage.ailments]
        return faults

    @property
    def unwell_nodes(self) -> int:
        """The number of nodes that do not answer or report a fault."""
        return len(self.node_faults)

    def document(self) -> dict[str, Json]:
        """The state as JSON, for programs."""
        return {
            "name": self.name,
            "root": self.root,
            "healthy": not self.unwell and not self.unwell_nodes,
            "servers": [{**each._asdict(), "preferred": list(each.preferred)} for each in self.servers],
            "storages": [_storage_document(each) for each in self.storages],
            "partitions": [
                {
                    **each._asdict(),
                    "replicas": [replica._asdict() for replica in each.replicas],
                    "problems": list(each.problems),
                }
                for each in self.partitions
            ],
            "zone_risks": [
                {"zone": dict(each.zone), "partitions": list(each.partition_ids), "do": str(each.remedy)}
                for each in self.zone_risks
            ],
        }


def _storage_document(storage: SurveyedStorage) -> dict[str, Json]:
    document: dict[str, Json] = storage._asdict()
    del document["ailments"], document["told_at_s"]
    problems: list[Json] | None = None
    if storage.ailments is not None:
        problems = [
            {"problem": each.text, "partitions": list(each.partition_ids), "do": str(each.remedy)}
            for each in storage.ailments
        ]
    return {**document, "problems": problems}


AskWriteSessions = Callable[[Mapping[int, Owner]], Awaitable[Mapping[int, int]]]
"""A function that asks the owners of partitions for the numbers of their write sessions, without changing them."""


async def read_state(
    cluster: ClusterHandle,
    partition_ids: Sequence[int],
    *,
    timeout_s: float,
    before: ClusterState | None = None,
    ask_write_sessions: AskWriteSessions | None = None,
    max_metrics_partitions: int | None = None,
) -> ClusterState:
    """Ask all nodes. ``timeout_s`` limits each answer. Rates are computed since ``before``.

    Without ``ask_write_sessions`` all write sessions are unknown. Of the storages with more than
    ``max_metrics_partitions`` partitions, each call asks one for free space, health and version, see
    :func:`choose_storages`; the lags of their replicas are unknown.

    Raises ``WaltzError`` of ZooKeeper. Silent nodes are part of the state. Yields to the event loop regularly, for any
    number of partitions.
    """
    floor = None
    if before is not None:
        known = {each.partition_id: each.high_water_mark for each in before.partitions}
        floor = {partition_id: mark for partition_id, mark in known.items() if mark is not None}
    now_s = asyncio.get_running_loop().time()
    large: set[str] = set()

    def choose(reports: Mapping[str, Mapping[int, bool]]) -> Collection[str]:
        if max_metrics_partitions is None:
            return reports.keys()
        large.update(storage for storage, report in reports.items() if len(report) > max_metrics_partitions)
        return choose_storages(reports, large, before, now_s)

    evidence = await read_evidence(cluster, partition_ids, timeout_s=timeout_s, floor=floor, choose=choose)
    facts = {
        # A lag that is known at rare moments only is of no use.
        storage: told._replace(last_ids={}, session_ids={}) if storage in large and not isinstance(told, str) else told
        for storage, told in evidence.told.facts.items()
    }
    evidence = evidence._replace(told=evidence.told._replace(facts=facts))
    return await arrange(cluster, evidence, partition_ids, before=before, ask_write_sessions=ask_write_sessions)


async def arrange(
    cluster: ClusterHandle,
    evidence: Evidence,
    partition_ids: Sequence[int],
    *,
    before: ClusterState | None = None,
    ask_write_sessions: AskWriteSessions | None = None,
) -> ClusterState:
    """The state of the cluster according to the answers. Parameters and errors as in :func:`read_state`."""
    survey, told, at_s = evidence.survey, evidence.told, evidence.at_s
    owners = await read_owners(cluster.zookeeper, cluster.root)
    name = (await read_cluster_params(cluster.zookeeper, cluster.root)).name
    # An owner that has not reported the mark of a partition does not report the write session either.
    owned = {each: owners[each] for each in partition_ids if each in owners and each in told.marks}
    write_sessions = {} if ask_write_sessions is None else await ask_write_sessions(owned)
    rates = {} if before is None else _rates(before, told.marks, at_s)
    partitions = []
    for each in partition_ids:
        partitions.append(_partition(each, survey, told, owners.get(each), write_sessions.get(each), rates.get(each)))
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
    ailments = find_storage_ailments(survey, told.facts)
    told_before = {} if before is None else {each.storage: each for each in before.storages}
    storages = tuple(
        _storage(storage, report, told.facts.get(storage), ailments.get(storage, ()), told_before.get(storage), at_s)
        for storage, report in sorted(survey.storage_reports.items())
    )
    labels, unreadable = await read_labels(cluster.zookeeper, cluster.root)
    risks = find_zone_risks(survey.storages, labels, partition_ids)
    return ClusterState(name, cluster.root, at_s, servers, storages, tuple(partitions), tuple(risks), tuple(unreadable))


def choose_storages(
    answering: Collection[str], large: Collection[str], before: ClusterState | None, now_s: float
) -> list[str]:
    """The storages that are asked for their metrics: all except the ``large`` storages, and of these the one with the
    oldest answer, unless that answer is recent. Pure.
    """
    told_at_s = {} if before is None else {each.storage: each.told_at_s for each in before.storages}
    due = [(told_at_s.get(storage) or -math.inf, storage) for storage in sorted(large)]
    oldest = [storage for told_s, storage in due if now_s - told_s >= LARGE_INTERVAL_S and told_s == min(due)[0]]
    return [storage for storage in answering if storage not in large] + oldest[:1]


def _storage(
    storage: str,
    report: StorageReport,
    facts: StorageFacts | str | None,
    ailments: Sequence[Ailment],
    before: SurveyedStorage | None,
    at_s: float,
) -> SurveyedStorage:
    if isinstance(report, str):
        return SurveyedStorage(storage, False, 0, 0, report)
    found = SurveyedStorage(storage, True, sum(report.values()), len(report))
    if facts is None and before is not None:  # the storage was not asked
        return found._replace(
            free_bytes=before.free_bytes,
            version=before.version,
            ailments=before.ailments,
            told_at_s=before.told_at_s,
        )
    if facts is None or isinstance(facts, str):
        return found
    return found._replace(
        free_bytes=facts.free_bytes,
        version=facts.version,
        ailments=None if facts.health is None else tuple(ailments),
        told_at_s=at_s,
    )


def _silence(report: ServerReport) -> str | None:
    """The reason why a server gives no answer at all."""
    return report.partitions if report.version is None and isinstance(report.partitions, str) else None


def _partition(
    partition_id: int,
    survey: Survey,
    told: Told,
    owner: Owner | None,
    write_session: int | None,
    rate_per_s: float | None,
) -> SurveyedPartition:
    metadata = survey.metadata[partition_id]
    try:
        reasons = {check.name: faults for check, faults in find_failures(survey, partition_id, told).items()}
    except WaltzError as error:
        reasons = {NO_REPLICA: [str(error)]}
    if Check.REPLICA_RECOVERY_STATUS.name in reasons and lacks_record(survey, partition_id, told):
        reasons[NO_RECORD] = reasons.pop(Check.REPLICA_RECOVERY_STATUS.name)
    lags = owner_lags(survey, partition_id)
    return SurveyedPartition(
        partition_id,
        None if owner is None else owner.server_id,
        None if owner is None or owner.endpoint is None else str(owner.endpoint),
        None if owner is None else owner.generation,
        None if metadata is None else metadata.session_id,
        write_session,
        told.marks.get(partition_id),
        rate_per_s,
        judge_replicas(survey, partition_id, told),
        tuple(reasons),
        reasons,
        None if lags is None else lags.feed_transactions,
        None if lags is None else lags.feed_age_ms / 1000,
    )


def _rates(before: ClusterState, marks: Mapping[int, int], at_s: float) -> dict[int, float]:
    """Committed transactions per second, for the partitions with known marks at both times."""
    return {
        partition.partition_id: max(0, marks[partition.partition_id] - partition.high_water_mark) / (at_s - before.at_s)
        for partition in before.partitions
        if partition.high_water_mark is not None and partition.partition_id in marks
    }
