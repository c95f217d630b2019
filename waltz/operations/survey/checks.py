"""The checks of ``waltz cluster verify``: whether ZooKeeper, servers and storages agree on a partition. Pure."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from waltz.common.cluster.quorum import quorum_of
from waltz.common.consistency import Consistency, accepts
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.partition_ids import id_ranges, named_partitions
from waltz.common.replica_states import RUNBOOK, ReplicaStatus
from waltz.common.storage_health import Ailment, find_ailments
from waltz.common.wire.versions import FIRST_WITH_APPEND_FAILED, FIRST_WITH_CONSISTENCY, FIRST_WITH_WRITE_SESSION
from waltz.common.zk.znodes import UNRESOLVED, ServerDescriptor
from waltz.operations.survey.replica_judgement import (
    StorageFacts,
    SurveyedReplica,
    Told,
    admin_address,
    judge_replicas,
    lacks_record,
)
from waltz.operations.survey.survey import ServerReport, StorageReport, Survey

NOTHING = Told()
"""The value in place of the answers when no storage was asked for its progress."""


class Check(Enum):
    """The original's checks, under its names. The values are meant for people."""

    PARTITION_ASSIGNMENT_ZK_VALIDITY = "the assignment gives the partition to exactly one server"
    PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY = "that server has it, and no other one"
    SERVER_STORAGE_CONNECTIVITY = "the server reaches all storages of the partition"
    PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY = "the storages that are to hold the partition do, and no others"
    PARTITION_QUORUM_STATUS = "more than half of its replicas are online"
    REPLICA_RECOVERY_STATUS = "all its replicas take full part in the present store session"
    SERVER_PARTITION_HEALTH_CHECK = "the server calls it healthy"


def find_failures(survey: Survey, partition_id: int, told: Told = NOTHING) -> dict[Check, list[str]]:
    """The failing checks of a partition with their reasons. Raises ``WaltzError`` if it has no replica."""
    if not survey.storages.get(partition_id):
        raise WaltzError(
            f"partition {partition_id} has no replica: assign it to storage nodes (waltz zookeeper assign-partition)"
        )
    reasons = {
        Check.PARTITION_ASSIGNMENT_ZK_VALIDITY: _assignment_faults(survey, partition_id),
        Check.PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY: _server_faults(survey, partition_id),
        Check.SERVER_STORAGE_CONNECTIVITY: _connectivity_faults(survey, partition_id),
        Check.PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY: _storage_faults(survey, partition_id),
        Check.PARTITION_QUORUM_STATUS: _quorum_faults(survey, partition_id),
        Check.REPLICA_RECOVERY_STATUS: _recovery_faults(survey, partition_id, told),
        Check.SERVER_PARTITION_HEALTH_CHECK: _health_faults(survey, partition_id),
    }
    found = {check: list(faults) for check, faults in reasons.items()}
    return {check: faults for check, faults in found.items() if faults}


def _owner(survey: Survey, partition_id: int) -> tuple[str, ServerReport] | str:
    """The name and the report of the owner, or the reason why there is none."""
    owners = survey.owners.get(partition_id, ())
    if len(owners) != 1:
        return "there is not exactly one server to be asked"
    server = survey.servers.get(owners[0])
    if server is None:
        return f"server {owners[0]} is gone"
    return f"server {server.endpoint}", survey.server_reports[server.server_id]


def _assignment_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    owners = survey.owners.get(partition_id, ())
    if not owners:
        yield "the assignment gives it to no server"
    elif len(owners) > 1:
        yield f"the assignment gives it to servers {', '.join(map(str, owners))}"


def _server_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    owner = _owner(survey, partition_id)
    if isinstance(owner, str):
        yield owner
    else:
        name, report = owner
        if isinstance(report.partitions, str):
            yield f"{name} did not report its partitions: {report.partitions}"
        elif partition_id not in report.partitions:
            yield f"{name} does not have it"
    for server_id, report in survey.server_reports.items():
        if server_id in survey.owners.get(partition_id, ()) or isinstance(report.partitions, str):
            continue
        if partition_id in report.partitions:
            yield f"server {survey.servers[server_id].endpoint} has it, without being its owner"


def _connectivity_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    owner = _owner(survey, partition_id)
    if isinstance(owner, str):
        yield owner
        return
    name, report = owner
    if isinstance(report.storages, str):
        yield f"{name} did not report which storages it reaches: {report.storages}"
        return
    for storage in sorted(survey.storages[partition_id]):
        if not report.storages.get(storage, False):
            yield f"{name} {'does not reach' if storage in report.storages else 'does not know'} storage {storage}"


def _storage_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    assigned = survey.storages[partition_id]
    for storage, report in sorted(survey.storage_reports.items()):
        if isinstance(report, str):
            if storage in assigned:
                yield f"storage {storage} did not report its partitions: {report}"
        elif storage in assigned and partition_id not in report:
            yield f"storage {storage} is to hold it and does not (waltz storage sync-partitions)"
        elif storage not in assigned and partition_id in report:
            yield f"storage {storage} holds it and is not to (waltz storage sync-partitions)"


def _quorum_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    assigned = survey.storages[partition_id]
    reports = {storage: survey.storage_reports.get(storage, "") for storage in assigned}
    online = [
        storage
        for storage, report in sorted(reports.items())
        if not isinstance(report, str) and report.get(partition_id, False)
    ]
    if len(online) < quorum_of(len(assigned)):
        yield f"{len(online)} of {len(assigned)} replicas are online: {', '.join(online) or 'none'}"


def _recovery_faults(survey: Survey, partition_id: int, told: Told) -> Iterator[str]:
    metadata = survey.metadata[partition_id]
    if metadata is None:
        yield (
            f"its record in ZooKeeper (store/partition/{partition_id}) is missing, though it has had store sessions: "
            "the next session finds no record to begin from; restore it from a backup before a node restarts "
            f"({RUNBOOK}#restore-zookeeper)"
            if lacks_record(survey, partition_id, told)
            else "it has had no store session yet"
        )
    yield from _replica_faults(judge_replicas(survey, partition_id, told), survey.storage_reports, partition_id)
    if metadata is None:
        return
    assigned = survey.storages[partition_id]
    states = {replica_id.connect_string: state for replica_id, state in metadata.replicas.items()}
    for storage in sorted(assigned - states.keys()):
        yield f"the metadata do not list storage {storage}, which is to hold it"
    for storage in sorted(states.keys() - assigned):
        yield f"the metadata list storage {storage}, which is not to hold it"
    for storage, state in sorted(states.items()):
        if not state.is_member_of(metadata.session_id):
            mark = state.closing_high_water_mark
            closed = "" if mark == UNRESOLVED else f", up to transaction {mark}"
            yield (
                f"storage {storage} was left in session {state.session_id}{closed}; "
                f"session {metadata.session_id} is the present one"
            )


def _replica_faults(
    replicas: Sequence[SurveyedReplica], reports: Mapping[str, StorageReport], partition_id: int
) -> Iterator[str]:
    """Faults that storages themselves report about their replicas."""
    for replica in replicas:
        report = reports.get(replica.storage, "")
        if isinstance(report, str) or partition_id not in report:
            continue  # other checks report this
        if replica.state == ReplicaStatus.OFFLINE.value:
            yield f"storage {replica.storage} has it {replica.cause} ({replica.do})"
        elif replica.state in (ReplicaStatus.LAGGING.value, ReplicaStatus.CURRENT.value) and replica.cause:
            yield f"storage {replica.storage} {replica.cause}"


def find_storage_ailments(survey: Survey, facts: Mapping[str, StorageFacts | str]) -> dict[str, list[Ailment]]:
    """The faults of disks and files, by storage. Storages without reported faults are left out."""
    found = {}
    for storage, told in facts.items():
        if not isinstance(told, str) and told.health is not None:
            ailments = find_ailments(told.health, admin_address(survey, storage))
            if ailments:
                found[storage] = ailments
    return found


def find_preferences(servers: Iterable[ServerDescriptor], partition_ids: Container[int]) -> dict[int, list[Endpoint]]:
    """The partitions that more than one server prefers, with the servers. The server with the smallest id gets the
    partition."""
    preferring: dict[int, list[Endpoint]] = {}
    for server in sorted(servers, key=lambda each: each.server_id):
        for partition_id in server.preferred_partitions:
            if partition_id in partition_ids:
                preferring.setdefault(partition_id, []).append(server.endpoint)
    return {each: endpoints for each, endpoints in sorted(preferring.items()) if len(endpoints) > 1}


def find_preference_warnings(servers: Iterable[ServerDescriptor], partition_ids: Container[int]) -> list[str]:
    """Warnings for partitions that more than one server prefers."""
    together: dict[tuple[Endpoint, ...], list[int]] = {}
    for partition_id, endpoints in find_preferences(servers, partition_ids).items():
        together.setdefault(tuple(endpoints), []).append(partition_id)
    return [
        f"several servers prefer {named_partitions(ids)}: {', '.join(map(str, endpoints))}; the first one gets them. "
        f"To move them take its preference back: waltz server remove-preferred-partition -s {endpoints[0]} -p "
        f"{id_ranges(ids, ',')}"
        for endpoints, ids in together.items()
    ]


def _health_faults(survey: Survey, partition_id: int) -> Iterator[str]:
    owner = _owner(survey, partition_id)
    if isinstance(owner, str):
        yield owner
        return
    name, report = owner
    if isinstance(report.healthy, str):
        yield f"{name} did not report the health of its partitions: {report.healthy}"
    elif partition_id not in report.healthy:
        yield f"{name} does not report its health"
    elif not report.healthy[partition_id]:
        yield f"{name} calls it unhealthy"


def find_session_warnings(survey: Survey, partition_ids: Collection[int]) -> list[str]:
    """Warnings about servers without write sessions, for partitions whose clients use write sessions.

    A server whose protocol version is unknown causes no warning.
    """
    warnings = []
    without = {
        server_id
        for server_id, report in survey.server_reports.items()
        if report.version is not None and report.version < FIRST_WITH_WRITE_SESSION
    }
    preferred = {
        partition_id
        for server in survey.servers.values()
        if (survey.server_reports[server.server_id].version or 0) >= FIRST_WITH_WRITE_SESSION
        for partition_id in server.preferred_partitions
    }
    for partition_id in sorted(partition_ids):
        owner = next(iter(survey.owners.get(partition_id, ())), None)
        if owner in without:
            server = survey.servers[owner]
            warnings.append(
                f"partition {partition_id} has clients with write sessions, and its owner, server "
                f"{server.endpoint}, knows none: it refuses nothing, and such clients write nothing there (unless "
                "client.sessionFallback is plain). Make the partition a preferred one of a server with version 5"
            )
        elif without and partition_id not in preferred:
            names = ", ".join(str(survey.servers[each].endpoint) for each in sorted(without))
            warnings.append(
                f"partition {partition_id} has clients with write sessions, and may move to servers that know none: "
                f"{names}. Make it a preferred partition of a server with version 5"
            )
    return warnings


def find_disabled_warnings(survey: Survey, partition_ids: Collection[int]) -> list[str]:
    """Warnings for disabled partitions whose servers still accept appends."""
    warnings = []
    for partition_id in sorted(partition_ids):
        owner = next((each for each in survey.owners.get(partition_id, ()) if each in survey.servers), None)
        version = None if owner is None else survey.server_reports[owner].version
        if owner is not None and version is not None and version < FIRST_WITH_APPEND_FAILED:
            endpoint = survey.servers[owner].endpoint
            warnings.append(
                f"partition {partition_id} is disabled, and its owner, server {endpoint}, takes appends all "
                f"the same: it speaks version {version}, and knows no properties. Make the partition a preferred one "
                "of a server with version 5"
            )
    return warnings


def find_consistency_warnings(survey: Survey, demands: Mapping[int, tuple[Consistency, bool]]) -> list[str]:
    """Warnings for partitions that demand more than the commit of their writers, and do not get it from all.

    ``demands`` has, for partitions whose demand is enforced, the level and whether older writers are refused.
    """
    warnings = []
    for partition_id, (level, refuses_legacy) in sorted(demands.items()):
        if accepts(level, Consistency.LEADER_QUORUM):
            continue
        owner = next((each for each in survey.owners.get(partition_id, ()) if each in survey.servers), None)
        version = None if owner is None else survey.server_reports[owner].version
        if owner is not None and version is not None and version < FIRST_WITH_CONSISTENCY:
            warnings.append(
                f"partition {partition_id} demands the consistency {level.word}, and its owner, server "
                f"{survey.servers[owner].endpoint}, speaks version {version} and knows no levels: it takes all. "
                "Make the partition a preferred one of a server with version 6"
            )
        elif not refuses_legacy:
            warnings.append(
                f"partition {partition_id} demands the consistency {level.word}, and lets in writers whose protocol "
                "has no levels: their appends are acknowledged at the commit. Set refuseLegacyWriters=true when there "
                "are none of them left"
            )
    return warnings
