from tests.unit.spark.fakes import make_metadata
from waltz.common.ids import Endpoint
from waltz.common.zk.replicas import Source, choose_replicas
from waltz.common.zk.znodes import UNRESOLVED, ConnectionMetadata, ReplicaAssignments

A, B, C = "a:6000", "b:6000", "c:6000"
ASSIGNED = ReplicaAssignments({A: (0, 1), B: (0,), C: (0,)})
CONNECTIONS = ConnectionMetadata({A: 6100, B: 6200, C: 6300})


def test_replicas_of_the_current_session_may_serve() -> None:
    metadata = make_metadata(0, {A: (7, UNRESOLVED), B: (7, UNRESOLVED), C: (7, UNRESOLVED)})
    choice = choose_replicas(0, metadata, ASSIGNED, CONNECTIONS)
    assert choice.sources == (
        Source(A, Endpoint("a", 6100)),
        Source(B, Endpoint("b", 6200)),
        Source(C, Endpoint("c", 6300)),
    )
    assert not choice.refused


def test_whoever_may_have_a_dirty_tail_may_not() -> None:
    metadata = make_metadata(0, {A: (6, UNRESOLVED), B: (6, 41), C: (7, 41)})
    choice = choose_replicas(0, metadata, ASSIGNED, CONNECTIONS)
    assert choice.sources == ()
    assert choice.refused == {
        A: "it was left behind in session 6, session 7 is current",
        B: "it was left behind in session 6, session 7 is current",
        C: "it was left behind in the current session",
    }


def test_replicas_that_are_not_assigned_any_more_are_not_asked() -> None:
    metadata = make_metadata(1, {A: (7, UNRESOLVED), B: (7, UNRESOLVED)})
    choice = choose_replicas(1, metadata, ASSIGNED, CONNECTIONS)
    assert [source.storage for source in choice.sources] == [A]


def test_new_replicas_and_unknown_ports_are_explained() -> None:
    metadata = make_metadata(0, {B: (7, UNRESOLVED), "nonsense": (7, UNRESOLVED)})
    assigned = ReplicaAssignments({A: (0,), B: (0,), "nonsense": (0,)})
    choice = choose_replicas(0, metadata, assigned, ConnectionMetadata({A: 6100, "nonsense": 1}))
    assert choice.sources == ()
    assert choice.refused == {
        A: "it takes no part in the current session",
        B: "no admin port is registered for it",
        "nonsense": "not of the form host:port: 'nonsense'",
    }


def test_a_partition_without_metadata_has_no_replicas() -> None:
    assert choose_replicas(0, None, ASSIGNED, CONNECTIONS).sources == ()
