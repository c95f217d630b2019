"""The replicas in the metadata of a partition, and their changes by a session. Pure.

A state of (session, unresolved) lets the replica vote in the next recovery. A state with a closing mark means that the
replica has missed a later session, or a part of it, and is trusted up to that mark only. Session -1 is the state of a
replica that has never been part of a session.
"""

from collections.abc import Collection, Iterable

from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState

NO_SESSION = -1


def is_clean(state: ReplicaState | None, session_id: int) -> bool:
    """Whether the metadata list the replica as a full member of the session."""
    return state is not None and state.is_member_of(session_id)


def states_after_recovery(
    metadata: PartitionMetadata,
    assigned: Iterable[ReplicaId],
    clean: Collection[ReplicaId],
    high_water_mark: int,
) -> dict[ReplicaId, ReplicaState]:
    """The states to be written when a quorum has recovered, and again for every replica that recovers later.

    Replicas that are not assigned any more disappear; members of the session become (session, unresolved); replicas of
    an earlier session are closed at the mark from which this session started.
    """
    session_id = metadata.session_id
    states: dict[ReplicaId, ReplicaState] = {}
    for replica_id in sorted(assigned):
        state = metadata.replicas.get(replica_id)
        if replica_id in clean:
            state = ReplicaState(replica_id, session_id, UNRESOLVED)
        elif state is None:
            state = ReplicaState(replica_id, NO_SESSION, high_water_mark)
        elif state.session_id < session_id and state.closing_high_water_mark == UNRESOLVED:
            state = state._replace(closing_high_water_mark=high_water_mark)
        states[replica_id] = state
    return states
