"""Decides how a partition continues after an operator has reported the permanent loss of a majority of its replicas.
Pure.

A recovery waits for a majority of the replicas in the metadata, because missing replicas could hold committed
transactions. When the majority is lost, only an operator can decide to continue with the remaining replicas. After that
the metadata list the remaining replicas only. The longest logs among them decide the end of the log, and the other
replicas are filled up.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from waltz.common.cluster.quorum import quorum_of
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
from waltz.operations.survey.survey import Survey

_NO_SESSION = -1


class LossRefused(WaltzError):
    """The loss cannot be accepted in the present state. Nothing was changed."""


class Held(NamedTuple):
    """The log of a replica that answers, and the replica's state in the metadata."""

    state: ReplicaState
    session_id: int
    """The session that the storage has persisted; -1 for none."""
    low_water_mark: int
    max_transaction_id: int

    @property
    def intact(self) -> bool:
        """Whether the storage knows every session in which it took part according to the metadata."""
        return self.session_id >= self.state.session_id

    @property
    def certain_up_to(self) -> int:
        """The last transaction up to which the replica certainly agrees with the log."""
        closing = self.state.closing_high_water_mark
        limit = self.max_transaction_id if closing == UNRESOLVED else closing
        if not self.intact or self.state.session_id == _NO_SESSION:
            limit = min(limit, self.low_water_mark)
        return min(limit, self.max_transaction_id)

    @property
    def can_decide(self) -> bool:
        """Whether a recovery can take the log of the replica as the whole log."""
        return self.session_id != _NO_SESSION and self.certain_up_to >= self.low_water_mark


class Acceptance(NamedTuple):
    """The decision."""

    mark: int
    """The last transaction that stays."""
    deciding: frozenset[str]
    """The storages that hold the transaction ``mark``."""
    known_committed: int
    """The last transaction that a storage knows to be committed. It is lost if it is above ``mark``."""
    states: Mapping[ReplicaId, ReplicaState]
    """The new states of the replicas in the metadata."""
    truncations: Mapping[str, int]
    """Storages that first have to remove uncertain transactions, each with the last transaction that stays."""


def accept_loss(
    metadata: PartitionMetadata, held: Mapping[str, Held], silent: Mapping[str, str], lost: Collection[str]
) -> Acceptance:
    """Decide on the basis of the remaining replicas.

    Args:
        metadata: The partition's metadata.
        held: The log of each listed replica that answers, by connect string.
        silent: The reasons why the other replicas do not answer, by connect string.
        lost: The permanently lost replicas, according to the operator.

    Raises:
        LossRefused: The lost replicas are not exactly the silent ones, a majority is left, or no remaining replica can
        decide.
    """
    listed = {replica_id.connect_string for replica_id in metadata.replicas}
    needed = quorum_of(len(listed))
    if strange := sorted(set(lost) - listed):
        raise LossRefused(f"not among its replicas in the metadata, {_names(listed)}: {_names(strange)}")
    if found := sorted(set(lost) & held.keys()):
        raise LossRefused(f"not lost, as they answer: {_names(found)}")
    if missing := sorted(silent.keys() - set(lost)):
        reasons = "; ".join(f"{storage}: {silent[storage]}" for storage in missing)
        raise LossRefused(f"not named as lost, but silent: {reasons}; start them, or name them as lost")
    if sum(each.intact for each in held.values()) >= needed:
        raise LossRefused(
            f"{len(held)} of its {len(listed)} replicas in the metadata answer, and {needed} are enough: nothing needs "
            "to be lost"
        )
    able = {storage: each.certain_up_to for storage, each in held.items() if each.can_decide}
    if not able:
        raise LossRefused(
            "no replica that answers has all transactions that it knows as committed: restore one from a backup"
        )
    mark = max(able.values())
    deciding = frozenset(storage for storage, certain in able.items() if certain == mark)
    states: dict[ReplicaId, ReplicaState] = {}
    for storage, each in sorted(held.items()):
        closing = UNRESOLVED if storage in deciding else each.certain_up_to
        session_id = min(each.session_id, each.state.session_id) if each.state.session_id >= 0 else each.session_id
        states[each.state.replica_id] = ReplicaState(each.state.replica_id, session_id, closing)
    return Acceptance(
        mark,
        deciding,
        max(each.low_water_mark for each in held.values()),
        states,
        {storage: mark for storage in sorted(deciding) if held[storage].max_transaction_id > mark},
    )


def check_survey(survey: Survey, partition_id: int, lost: Collection[str]) -> None:
    """Raise :class:`LossRefused` if the report of a node contradicts the operator."""
    for server_id, report in sorted(survey.server_reports.items()):
        name = f"server {survey.servers[server_id].endpoint}"
        if not isinstance(report.storages, str) and (
            reached := sorted(each for each in lost if report.storages.get(each, False))
        ):
            raise LossRefused(f"{name} reaches {_names(reached)}: not lost")
        if not isinstance(report.healthy, str) and report.healthy.get(partition_id, False):
            raise LossRefused(f"{name} says that partition {partition_id} is well")
    for storage in sorted(lost):
        if not isinstance(survey.storage_reports.get(storage, ""), str):
            raise LossRefused(f"the admin port of {storage} answers: not lost")


def describe(acceptance: Acceptance, held: Mapping[str, Held], lost: Collection[str], partition_id: int) -> list[str]:
    """The decision and its cost, as lines for operators."""
    mark, known = acceptance.mark, acceptance.known_committed
    lines = [f"partition {partition_id} without the lost replicas {_names(lost)}:"]
    for storage, each in sorted(held.items()):
        certain = "" if each.certain_up_to == each.max_transaction_id else f", certain up to {each.certain_up_to}"
        lines.append(
            f"  {storage} holds transactions up to {each.max_transaction_id}{certain}; low-water mark "
            f"{each.low_water_mark} of session {each.session_id}"
        )
    end = "is empty" if mark == NO_TRANSACTION else f"ends at transaction {mark}"
    lines.append(f"  the log then {end}, as on {_names(acceptance.deciding)}")
    if known > mark:
        lines.append(f"  transactions {mark + 1} to {known} were committed, and are lost")
    lines += [
        f"  transactions from {max(mark, known) + 1} on may have been committed; if so, they are lost",
        "  their ids will be assigned again: applications that have seen them have to start again as after a restore",
        f"  delete the partition's files on {_names(lost)} before a storage is started with them again",
    ]
    return lines


def _names(storages: Collection[str]) -> str:
    return ", ".join(sorted(storages))
