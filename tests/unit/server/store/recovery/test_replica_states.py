from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
from waltz.server.store.recovery.replica_states import is_clean, states_after_recovery

A, B, C, D, E = (ReplicaId(7, f"{name}:1") for name in "abcde")


def test_states_after_recovery() -> None:
    before = {
        A: ReplicaState(A, 4, UNRESOLVED),
        B: ReplicaState(B, 4, UNRESOLVED),
        C: ReplicaState(C, 3, 90),
        E: ReplicaState(E, 4, UNRESOLVED),
    }
    metadata = PartitionMetadata(2, 5, before)
    after = states_after_recovery(metadata, {A, B, C, D}, {A}, 120)
    assert after == {
        A: ReplicaState(A, 5, UNRESOLVED),
        B: ReplicaState(B, 4, 120),
        C: ReplicaState(C, 3, 90),
        D: ReplicaState(D, -1, 120),
    }
    later = states_after_recovery(PartitionMetadata(2, 5, after), {A, B, C, D}, {B, D}, 120)
    assert later == {
        A: ReplicaState(A, 5, UNRESOLVED),
        B: ReplicaState(B, 5, UNRESOLVED),
        C: ReplicaState(C, 3, 90),
        D: ReplicaState(D, 5, UNRESOLVED),
    }


def test_clean() -> None:
    assert is_clean(ReplicaState(A, 5, UNRESOLVED), 5)
    assert not is_clean(ReplicaState(A, 4, UNRESOLVED), 5)
    assert not is_clean(ReplicaState(A, 5, 17), 5)
    assert not is_clean(None, 5)
