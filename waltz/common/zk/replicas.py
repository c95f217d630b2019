"""Which replicas may serve a bulk read, a repair or a comparison. Pure.

Second half of rule S6, judged on metadata that was read *after* the high-water mark: a replica of the current session
that is unresolved took part in the recovery of this session, so everything it has up to a committed mark is right, and
stays right in all later sessions. Any other replica may have a tail that a recovery is still going to truncate.
"""

from typing import NamedTuple

from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import (
    UNRESOLVED,
    ConnectionMetadata,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
)


class Source(NamedTuple):
    """A storage node that may serve."""

    storage: str
    """Its connect string, the name under which the cluster knows it."""
    admin: Endpoint
    """Where it is read from."""


class Choice(NamedTuple):
    """Who may serve, and why the others may not."""

    sources: tuple[Source, ...]
    refused: dict[str, str]


def choose_replicas(
    partition_id: int,
    metadata: PartitionMetadata | None,
    assignments: ReplicaAssignments,
    connections: ConnectionMetadata,
) -> Choice:
    """Judge every replica that is assigned now."""
    sources: list[Source] = []
    refused: dict[str, str] = {}
    for storage in sorted(assignments.storages_of(partition_id)):
        state = None if metadata is None else metadata.replicas.get(ReplicaId(partition_id, storage))
        port = connections.admin_ports.get(storage)
        reason = _objection(state, metadata)
        if reason is not None:
            refused[storage] = reason
        elif port is None:
            refused[storage] = "no admin port is registered for it"
        else:
            try:
                sources.append(Source(storage, Endpoint(Endpoint.parse(storage).host, port)))
            except ValueError as error:
                refused[storage] = str(error)
    return Choice(tuple(sources), refused)


def _objection(state: ReplicaState | None, metadata: PartitionMetadata | None) -> str | None:
    if state is None or metadata is None:
        return "it takes no part in the current session"
    if state.session_id != metadata.session_id:
        return f"it was left behind in session {state.session_id}, session {metadata.session_id} is current"
    if state.closing_high_water_mark != UNRESOLVED:
        return "it was left behind in the current session"
    return None
