"""Describes the problems of a cluster, the worst first. Pure."""

from collections import Counter
from collections.abc import Set
from typing import NamedTuple

from waltz.common.partition_ids import id_ranges
from waltz.common.replica_states import REMEDIES, Remedy, ReplicaStatus
from waltz.operations.survey.checks import Check
from waltz.operations.survey.cluster_state import NO_RECORD, NO_REPLICA, ClusterState, SurveyedPartition

_MAX_TEXT = 300

CRITICAL = "critical"
"""Severity of problems that applications notice: appends fail or wait."""
WARNING = "warning"
"""Severity of problems that applications do not notice yet."""


class Words(NamedTuple):
    """The texts for a failed check."""

    severity: str
    short: str
    """Text for one partition in a table."""
    one: str
    """The text that follows "partition 7"."""
    many: str
    """The text that follows "12 partitions"."""
    remedy: Remedy


_SYNC = "waltz storage sync-partitions"

WORDS = {
    NO_REPLICA: Words(
        CRITICAL,
        "no replica",
        "is assigned to no storage",
        "are assigned to no storage",
        Remedy("waltz zookeeper assign-partition, then waltz storage sync-partitions", "add-storage"),
    ),
    Check.PARTITION_ASSIGNMENT_ZK_VALIDITY.name: Words(
        CRITICAL, "no owner", "has no owner", "have no owner", Remedy("start a server", "no-owner")
    ),
    Check.PARTITION_QUORUM_STATUS.name: Words(
        CRITICAL,
        "no quorum",
        "has no quorum of replicas online: appends wait",
        "have no quorum of replicas online: appends wait",
        Remedy("bring storages back until more than half of the replicas are online", "no-quorum"),
    ),
    Check.SERVER_PARTITION_HEALTH_CHECK.name: Words(
        CRITICAL,
        "unhealthy",
        "is not known to be healthy",
        "are not known to be healthy",
        Remedy("read the log of its server", "unhealthy-partition"),
    ),
    NO_RECORD: Words(
        WARNING,
        "record missing",
        "has no record in ZooKeeper any more",
        "have no record in ZooKeeper any more",
        Remedy("restore the record from a backup before a node restarts", "restore-zookeeper"),
    ),
    Check.PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY.name: Words(
        WARNING,
        "not at its owner",
        "is not open at its owner, or open at another server",
        "are not open at their owners, or open at other servers",
        Remedy("wait a moment, because it may be moving; then start its server", "server-down"),
    ),
    Check.PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY.name: Words(
        WARNING,
        "misplaced replica",
        "is not known to be held by just the storages it is assigned to",
        "are not known to be held by just the storages they are assigned to",
        Remedy(_SYNC, "out-of-service"),
    ),
    Check.REPLICA_RECOVERY_STATUS.name: Words(
        WARNING,
        "replica not current",
        "has replicas without full part in its store session",
        "have replicas without full part in their store session",
        Remedy("see the states of its replicas", "under-replicated"),
    ),
    Check.SERVER_STORAGE_CONNECTIVITY.name: Words(
        WARNING,
        "storage not reached",
        "has an owner that does not reach all its storages",
        "have owners that do not reach all their storages",
        Remedy("start the storage, or mend the network to it", "storage-down"),
    ),
}
"""The texts by the names of the checks, the worst first."""


_NODES = ("server ", "storage ")
_SERVER_DOWN = Remedy("start it; meanwhile the other servers take its partitions over", "server-down")

_PLACES = Check.PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY.name


class Problem(NamedTuple):
    """One line in the list of problems."""

    severity: str
    text: str
    partitions: str
    """The affected partitions, such as ``0-6,9``; empty for nodes."""
    detail: str
    """The cause, or an example."""
    do: str
    """The remedy."""
    section: str
    """The link to the section of the runbook."""
    check: str | None = None
    """The failing check; None for the problem of a node."""

    @property
    def title(self) -> str:
        """The text, with the affected partitions if there are several."""
        several = self.check is not None and not self.partitions.isdecimal()
        return f"{self.text} ({self.partitions})" if several else self.text


def silent_storages(state: ClusterState) -> set[str]:
    """The storages that do not answer."""
    return {storage.storage for storage in state.storages if not storage.answers}


def failed_checks(partition: SurveyedPartition, silent: Set[str]) -> list[str]:
    """The failing checks of a partition, the worst first.

    A ``silent`` storage is a problem of its own, and not a problem of its partitions. Each silent storage is one reason
    of the check, so the check counts only with a further reason.
    """
    unsaid = sum(replica.storage in silent for replica in partition.replicas)
    known = set(partition.problems)
    if len(partition.reasons.get(_PLACES, ())) == unsaid:
        known.discard(_PLACES)
    return [name for name in WORDS if name in known]


def find_problems(state: ClusterState, *, every_check: bool = False) -> list[Problem]:
    """All problems, with at most one line for each node and each check.

    ``every_check`` adds checks that fail only because of silent storages, and leaves out risks, because risks are no
    failed checks.
    """
    found = [] if every_check else find_risks(state)
    silent = set() if every_check else silent_storages(state)
    by_check: dict[str, list[SurveyedPartition]] = {name: [] for name in WORDS}
    for partition in state.partitions:
        for name in failed_checks(partition, silent):
            by_check[name].append(partition)
    for name, words in WORDS.items():
        concerned = by_check[name]
        if concerned:
            first = concerned[0]
            count = len(concerned)
            only = count == 1
            text = f"partition {first.partition_id} {words.one}" if only else f"{count} partitions {words.many}"
            detail = "; ".join(first.reasons.get(name, ()))
            if not only and detail:
                detail = f"partition {first.partition_id}, for example: {detail}"
            ids = shortened(id_ranges((partition.partition_id for partition in concerned), ","))
            found.append(Problem(words.severity, text, ids, shortened(detail), *_remedy(name, first), name))
    held = Counter(replica.storage for partition in state.partitions for replica in partition.replicas)
    for server in state.servers:
        if server.version is None:
            severity = CRITICAL if server.partitions else WARNING
            text = f"server {server.endpoint} does not answer"
            found.append(Problem(severity, text, "", shortened(server.reason or ""), *_SERVER_DOWN))
    for storage in state.storages:
        if not storage.answers:
            count = held[storage.storage]
            text = f"storage {storage.storage} does not answer, and holds {count} replica{'' if count == 1 else 's'}"
            found.append(Problem(WARNING, text, "", shortened(storage.reason or ""), *REMEDIES[ReplicaStatus.AWAY]))
        for ailment in storage.ailments or ():
            text = shortened(f"storage {storage.storage}: {ailment.text}")
            found.append(Problem(WARNING, text, id_ranges(ailment.partition_ids, ","), "", *ailment.remedy))
    # Nodes come first within a severity: they cause the problems of partitions.
    return sorted(found, key=lambda problem: (problem.severity != CRITICAL, not problem.text.startswith(_NODES)))


def find_risks(state: ClusterState) -> list[Problem]:
    """The risks: events that have not happened and would stop partitions."""
    risks = [
        Problem(WARNING, shortened(risk.text), shortened(id_ranges(risk.partition_ids, ",")), "", *risk.remedy)
        for risk in state.zone_risks
    ]
    unreadable = Remedy("set the labels again (waltz storage label)", "zones")
    return risks + [Problem(WARNING, shortened(text), "", "", *unreadable) for text in state.unreadable_labels]


def _remedy(name: str, partition: SurveyedPartition) -> Remedy:
    """The remedy for a failed check. For a replica that is not current, the remedy depends on its state."""
    if name == Check.REPLICA_RECOVERY_STATUS.name:
        for replica in partition.replicas:
            if replica.do is not None and replica.section is not None:
                return Remedy(replica.do, replica.section)
    return WORDS[name].remedy


def shortened(text: str) -> str:
    """The text, cut to the length of a line."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
