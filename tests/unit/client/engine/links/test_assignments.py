"""What the cluster says about owners."""

from waltz.client.engine.links.assignments import Assignments, Owner
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionGeneration

A, B = Endpoint("a", 1), Endpoint("b", 1)


def test_changes_are_told_once() -> None:
    assignments = Assignments()
    assert assignments.update({A: [PartitionGeneration(0, 1), PartitionGeneration(1, 1)], B: []}) == {
        0: Owner(A, 1),
        1: Owner(A, 1),
    }
    assert assignments.update({A: [PartitionGeneration(0, 1)], B: [PartitionGeneration(1, 2)]}) == {1: Owner(B, 2)}
    assert assignments.owner(1) == Owner(B, 2)
    assert assignments.owner(5) is None


def test_old_news_are_ignored() -> None:
    assignments = Assignments()
    assignments.update({A: [PartitionGeneration(0, 5)]})
    assert assignments.update({B: [PartitionGeneration(0, 4)]}) == {}
    assert assignments.update({B: [PartitionGeneration(0, 5)]}) == {0: Owner(B, 5)}


def test_of_two_in_one_assignment_the_newer_counts() -> None:
    assignments = Assignments()
    assert assignments.update({A: [PartitionGeneration(0, 3)], B: [PartitionGeneration(0, 2)]}) == {0: Owner(A, 3)}


def test_a_removed_server_owns_nothing() -> None:
    assignments = Assignments()
    assignments.update({A: [PartitionGeneration(0, 3)], B: [PartitionGeneration(1, 2)]})
    assert assignments.remove(A) == [0]
    assert assignments.owner(0) is None
    assert assignments.owner(1) == Owner(B, 2)
    assert assignments.update({A: [PartitionGeneration(0, 3)]}) == {0: Owner(A, 3)}
