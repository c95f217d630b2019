"""The state of a replica according to ZooKeeper, its server and its storage, with cause and remedy. Pure.

Every tool takes the state of a replica from this module. The owner of a partition knows more about its replicas than it
reports to other processes: the console of the owner adds this view by :func:`with_owner_view`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.replica_states import REMEDIES, Remedy, ReplicaStatus
from waltz.common.storage_health import StorageHealth, out_of_service_remedy
from waltz.common.wire.lags import PartitionLags
from waltz.operations.survey.survey import Survey

NO_SESSION = -1
"""The store session that storages report before the first store session of a partition."""


class StorageFacts(NamedTuple):
    """Values from the metrics of a storage node. Unreported values are missing or None."""

    last_ids: Mapping[int, int] = {}
    """The last transaction of each partition."""
    free_bytes: int | None = None
    version: str | None = None
    session_ids: Mapping[int, int] = {}
    """The store session that each partition has persisted."""
    available: Mapping[int, bool] = {}
    """Whether each partition is switched on."""
    health: StorageHealth | None = None
    """The problems of the storage; None for nodes of the original, which report none."""


class Told(NamedTuple):
    """Further evidence about the progress of replicas."""

    facts: Mapping[str, StorageFacts | str] = {}
    """Answers or error texts of storages, by connect string. Storages that were not asked are missing."""
    marks: Mapping[int, int] = {}
    """The committed high-water marks."""
    floor: Mapping[int, int] = {}
    """Marks from some time before the question to the storages; a healthy replica has reached them."""


class SurveyedReplica(NamedTuple):
    """One copy of a partition."""

    storage: str
    state: str
    """A value of :class:`~waltz.common.replica_states.ReplicaStatus`."""
    lag: int | None
    """The number of committed transactions that the replica has lacked for more than a moment; None if unknown."""
    cause: str | None = None
    """The reason why the replica is not current, or why its progress is unknown."""
    do: str | None = None
    """The remedy."""
    section: str | None = None
    """Where the runbook explains it."""
    lag_s: float | None = None
    """For how long at least the oldest transaction that it lacks has been committed, as the partition's owner tells;
    None if it does not tell, or lacks nothing that the owner knows of."""


def _replica(
    storage: str, status: ReplicaStatus, lag: int | None, cause: str, remedy: Remedy | None = None
) -> SurveyedReplica:
    found = REMEDIES[status] if remedy is None else remedy
    return SurveyedReplica(storage, status.value, lag, cause, found.do, found.section)


def judge_replicas(survey: Survey, partition_id: int, told: Told) -> tuple[SurveyedReplica, ...]:
    """The replicas that are assigned to a partition, by storage."""
    lags = owner_lags(survey, partition_id)
    ages_s = {} if lags is None else {each.storage: each.age_ms / 1000 for each in lags.replicas if each.age_ms > 0}
    replicas = (
        _judge(survey, partition_id, storage, told) for storage in sorted(survey.storages.get(partition_id, ()))
    )
    return tuple(
        replica._replace(lag_s=0.0 if replica.lag == 0 else ages_s.get(replica.storage)) for replica in replicas
    )


def owner_lags(survey: Survey, partition_id: int) -> PartitionLags | None:
    """What the only owner of a partition tells of the lags; None if it does not."""
    owners = survey.owners.get(partition_id, ())
    report = survey.server_reports.get(owners[0]) if len(owners) == 1 else None
    return None if report is None or isinstance(report.lags, str) else report.lags.get(partition_id)


def lacks_record(survey: Survey, partition_id: int, told: Told) -> bool:
    """Whether a partition has no record in ZooKeeper, although its nodes report store sessions."""
    if survey.metadata[partition_id] is not None:
        return False
    if told.marks.get(partition_id, NO_TRANSACTION) > NO_TRANSACTION:
        return True
    owners = [survey.server_reports.get(each) for each in survey.owners.get(partition_id, ())]
    if any(each and not isinstance(each.healthy, str) and each.healthy.get(partition_id) for each in owners):
        return True
    facts = (told.facts.get(storage) for storage in survey.storages.get(partition_id, ()))
    known = (each for each in facts if each is not None and not isinstance(each, str))
    return any(each.session_ids.get(partition_id, NO_SESSION) > NO_SESSION for each in known)


def admin_address(survey: Survey, storage: str) -> str:
    """The admin port of a storage as an argument of commands."""
    try:
        return str(Endpoint(Endpoint.parse(storage).host, survey.admin_ports[storage]))
    except (KeyError, ValueError):
        return "HOST:ADMIN_PORT"


def _judge(survey: Survey, partition_id: int, storage: str, told: Told) -> SurveyedReplica:
    report = survey.storage_reports.get(storage, "it was not asked")
    facts = told.facts.get(storage)
    known = StorageFacts() if facts is None or isinstance(facts, str) else facts
    mark, last_id = told.marks.get(partition_id), known.last_ids.get(partition_id)
    missing = None if mark is None or last_id is None else max(0, mark - last_id)
    if isinstance(report, str):
        return _replica(storage, ReplicaStatus.AWAY, None, f"its storage does not answer: {report}")
    if partition_id not in report:
        remedy = Remedy("waltz storage sync-partitions", "out-of-service")
        return _replica(storage, ReplicaStatus.OFFLINE, None, "missing", remedy)
    if not report[partition_id]:
        return _offline(survey, partition_id, storage, known)
    unreached = _unreached(survey, partition_id, storage)
    if unreached is not None:
        return _replica(storage, ReplicaStatus.AWAY, missing, unreached)
    metadata = survey.metadata[partition_id]
    if metadata is not None:
        states = {each.connect_string: state for each, state in metadata.replicas.items()}
        if storage not in states or not states[storage].is_member_of(metadata.session_id):
            cause = f"it is no member of the present session {metadata.session_id}"
            return _replica(storage, ReplicaStatus.BEHIND, missing, cause)
    elif not lacks_record(survey, partition_id, told):
        return _replica(storage, ReplicaStatus.BEHIND, missing, "there has been no store session yet")
    floor = told.floor.get(partition_id, NO_TRANSACTION)
    if last_id is not None and last_id < floor:
        lag = max(missing or 0, floor - last_id)
        return _replica(storage, ReplicaStatus.LAGGING, lag, f"lacks {_transactions(lag)}")
    session_id = known.session_ids.get(partition_id)
    if metadata is not None and session_id is not None and session_id < metadata.session_id:
        return _replica(storage, ReplicaStatus.LAGGING, missing, f"knows of session {session_id} only")
    current = SurveyedReplica(storage, ReplicaStatus.CURRENT.value, None if last_id is None or mark is None else 0)
    return current._replace(cause=f"did not tell what it holds: {facts}") if isinstance(facts, str) else current


def _offline(survey: Survey, partition_id: int, storage: str, facts: StorageFacts) -> SurveyedReplica:
    reason = None if facts.health is None else facts.health.out_of_service.get(partition_id)
    if reason is not None:
        remedy = out_of_service_remedy(reason)
        return _replica(storage, ReplicaStatus.OFFLINE, None, f"out of service: {reason}", remedy)
    if facts.available.get(partition_id) is False:
        admin = admin_address(survey, storage)
        remedy = Remedy(f"waltz storage availability -s {admin} -p {partition_id} -o true", "under-replicated")
        return _replica(storage, ReplicaStatus.OFFLINE, None, "switched off", remedy)
    return _replica(storage, ReplicaStatus.OFFLINE, None, "offline: switched off, or out of service")


def _unreached(survey: Survey, partition_id: int, storage: str) -> str | None:
    """The reason, if the only owner of the partition reports that it does not reach the storage."""
    owners = survey.owners.get(partition_id, ())
    report = survey.server_reports.get(owners[0]) if len(owners) == 1 else None
    if report is None or isinstance(report.storages, str) or report.storages.get(storage) is not False:
        return None
    return f"server {survey.servers[owners[0]].endpoint} does not reach it"


def _transactions(count: int) -> str:
    return f"{count} committed transaction{'' if count == 1 else 's'}"


def with_owner_view(
    found: SurveyedReplica, status: ReplicaStatus, lag: int | None, lag_s: float | None = None
) -> SurveyedReplica:
    """A replica with the state that the owner of its partition sees.

    The owner knows best how it uses a replica. Only the storage can report that it does not serve the replica, or that
    old committed transactions are missing.
    """
    if found.state in (ReplicaStatus.OFFLINE.value, ReplicaStatus.LAGGING.value):
        return found
    if status is ReplicaStatus.CURRENT:
        return SurveyedReplica(found.storage, status.value, 0, lag_s=0.0)
    if status.value == found.state:
        known = found if lag is None else found._replace(lag=lag)
    else:
        known = _replica(found.storage, status, lag, f"its server says that it is {status.value}")
    return known._replace(lag_s=lag_s or found.lag_s)
