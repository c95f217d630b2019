"""The schedule of the smoke test's faults."""

import itertools

from tests.smoke.faults import CALM_S, LONGEST_S, RESTART_S, ZOOKEEPER, Fault, Kind, plan
from tests.smoke.line import Shape

NODES = ["server-1", "server-2", "server-3", "storage-1", "storage-2", "storage-3"]


def test_a_seed_is_a_schedule() -> None:
    assert plan(1, 300, NODES) == plan(1, 300, NODES)
    assert plan(1, 300, NODES) != plan(2, 300, NODES)


def test_every_kind_happens_and_a_node_gets_well_between_two_faults() -> None:
    faults = plan(3, 600, NODES)
    assert {fault.kind for fault in faults} == set(Kind)
    assert {fault.node for fault in faults} == {*NODES, ZOOKEEPER}
    assert all(CALM_S <= fault.at_s <= 600 and fault.lasting_s <= LONGEST_S for fault in faults)
    for node in (*NODES, ZOOKEEPER):
        for fault, following in itertools.pairwise(fault for fault in faults if fault.node == node):
            assert fault.at_s + fault.lasting_s + RESTART_S <= following.at_s
    assert {fault.kind for fault in faults if fault.node == ZOOKEEPER} == {
        Kind.KILL,
        Kind.PAUSE,
        Kind.BLACKHOLE,
    }
    assert all((fault.kind is Kind.SLOW) == (fault.shape != Shape()) for fault in faults)


def test_what_overlaps() -> None:
    paused, lost = Fault(10.0, "server-1", Kind.PAUSE, 5.0), Fault(10.0, "server-1", Kind.BLACKHOLE, 0.0)
    assert [paused.overlaps(*each) for each in ((0, 9), (0, 10), (12, 13), (15, 20), (16, 20))] == [
        *(False, True, True, True, False)
    ]
    assert [lost.overlaps(*each) for each in ((0, 9), (9, 11), (11, 12))] == [False, True, False]
