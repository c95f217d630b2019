"""The decisions of the cluster manager, as tables."""

import pytest

from waltz.common.cluster.decisions import (
    ClusterAction,
    ClusterSnapshot,
    ServerNode,
    ServerRegistration,
    decide,
    membership,
    registration,
)
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionAssignment, ServerDescriptor


def descriptor(server_id: int, *preferred: int) -> ServerDescriptor:
    return ServerDescriptor(server_id, Endpoint("h", server_id), preferred)


@pytest.mark.parametrize(
    ("applied_version", "version", "stored_cversion", "cversion", "members", "own", "action"),
    [
        # The same state again, or a descriptor's data changed without a new assignment.
        (3, 3, 5, 5, {1, 2}, {1}, ClusterAction.NOTHING),
        (3, 3, 5, 5, {}, {}, ClusterAction.NOTHING),
        # Consistent and new, also for those who only watch.
        (2, 3, 5, 5, {1, 2}, {1}, ClusterAction.APPLY),
        (-1, 0, 5, 5, {1, 2}, {}, ClusterAction.APPLY),
        # Out of date: only who has the smallest id writes.
        (3, 3, 4, 5, {1, 2}, {1}, ClusterAction.WRITE),
        (3, 3, 4, 5, {1, 2}, {1, 2}, ClusterAction.WRITE),
        (3, 3, 4, 5, {1, 2}, {2}, ClusterAction.WAIT),
        (3, 3, 4, 5, {1, 2}, {}, ClusterAction.WAIT),
        # Written by someone who read older children than the present ones.
        (3, 4, 6, 5, {7}, {7}, ClusterAction.WRITE),
        # An own server that is not there does not make a coordinator.
        (3, 3, 4, 5, {2, 3}, {1}, ClusterAction.WAIT),
        # Nobody left: the assignment stays, so that generations survive.
        (3, 3, 4, 5, {}, {1}, ClusterAction.CLEAR),
        (-1, 0, -1, 0, {}, {}, ClusterAction.CLEAR),
    ],
)
def test_decide(
    applied_version: int,
    version: int,
    stored_cversion: int,
    cversion: int,
    members: set[int],
    own: set[int],
    action: ClusterAction,
) -> None:
    servers = {server_id: descriptor(server_id) for server_id in members}
    snapshot = ClusterSnapshot(version, cversion, PartitionAssignment(stored_cversion, 1, {}), servers)
    assert decide(applied_version, snapshot, own) is action


def test_membership_newest_node_counts_and_undecodable_ones_do_not() -> None:
    nodes = [
        ServerNode("s_0000000004", 12, descriptor(1, 5)),
        ServerNode("foreign", 0, None),
        ServerNode("s_0000000002", 11, descriptor(1)),
        ServerNode("s_0000000003", 13, descriptor(2)),
    ]
    assert membership(nodes) == {1: descriptor(1, 5), 2: descriptor(2)}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], ServerRegistration(None, False, [])),
        ([ServerNode("s_0", 10, descriptor(1, 2))], ServerRegistration("s_0", False, [])),
        ([ServerNode("s_0", 10, descriptor(1))], ServerRegistration("s_0", True, [])),
        # Of another session, another server, nobody.
        ([ServerNode("s_0", 9, descriptor(1, 2))], ServerRegistration(None, False, [])),
        ([ServerNode("s_0", 10, descriptor(2, 2))], ServerRegistration(None, False, [])),
        ([ServerNode("s_0", 10, None)], ServerRegistration(None, False, [])),
        # Two answers were lost.
        (
            [
                ServerNode("s_2", 10, descriptor(1, 2)),
                ServerNode("s_0", 10, descriptor(1)),
                ServerNode("s_1", 10, descriptor(1, 2)),
            ],
            ServerRegistration("s_2", False, ["s_0", "s_1"]),
        ),
    ],
)
def test_registration(nodes: list[ServerNode], expected: ServerRegistration) -> None:
    assert registration(descriptor(1, 2), nodes, 10) == expected
