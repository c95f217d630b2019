"""The assignment policy: the original's cases, its defect, and laws."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.cluster.policy import PolicyError, assign
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration, ServerDescriptor

NOTHING = PartitionAssignment(-1, 0, {})


def servers(*ids: int, **preferred: list[int]) -> list[ServerDescriptor]:
    """Servers by id; ``s2=[1]`` makes server 2 prefer partition 1."""
    return [ServerDescriptor(i, Endpoint(f"h{i}", 8000), tuple(preferred.get(f"s{i}", ()))) for i in ids]


def stored(count: int, owned: Mapping[int, Iterable[tuple[int, int]]]) -> PartitionAssignment:
    return PartitionAssignment(0, count, {i: tuple(PartitionGeneration(*item) for item in o) for i, o in owned.items()})


def owners(assignment: PartitionAssignment) -> dict[int, tuple[int, int]]:
    """Partition id to (server id, generation); fails when one is owned twice."""
    found: dict[int, tuple[int, int]] = {}
    for server_id, owned in assignment.servers.items():
        for partition_id, generation in owned:
            assert partition_id not in found
            found[partition_id] = (server_id, generation)
    return found


def sizes(assignment: PartitionAssignment) -> list[int]:
    return sorted(len(owned) for owned in assignment.servers.values())


def test_first_assignment_has_generation_one() -> None:
    assignment = assign(7, NOTHING, 3, servers(1))
    assert assignment == stored(3, {1: [(0, 1), (1, 1), (2, 1)]})._replace(cversion=7)


def test_second_server_takes_its_share_with_the_next_generation() -> None:
    assignment = assign(2, assign(1, NOTHING, 2, servers(1)), 2, servers(1, 2))
    assert owners(assignment) == {0: (1, 1), 1: (2, 2)}


def test_servers_come_and_go() -> None:
    assignment = assign(1, NOTHING, 4, servers(1, 2, 3))
    assert sizes(assignment) == [1, 1, 2]
    before = owners(assignment)
    assignment = assign(2, assignment, 4, servers(1, 2, 3))
    assert owners(assignment) == before
    assignment = assign(3, assignment, 4, servers(1, 3))
    assert sizes(assignment) == [2, 2]
    assignment = assign(4, assignment, 4, servers(3))
    assert sizes(assignment) == [4]
    assert assign(5, assignment, 4, []).servers == {}


def test_preferences_hold_when_a_server_joins() -> None:
    start = stored(4, {1: [(0, 0), (1, 0), (2, 0), (3, 0)]})
    both = assign(1, start, 4, servers(1, 2, s1=[2, 3]))
    assert owners(both) == {0: (2, 1), 1: (2, 1), 2: (1, 0), 3: (1, 0)}
    assert owners(assign(1, both, 4, servers(1, 2, s1=[2, 3], s2=[2]))) == owners(both)
    moved = owners(assign(1, both, 4, servers(1, 2, s1=[3], s2=[2])))
    assert moved[2] == (2, 1)
    assert moved[3] == (1, 0)


def test_preferences_beyond_the_fair_share() -> None:
    start = stored(4, {1: [(0, 0), (1, 0), (2, 0), (3, 0)], 2: []})
    most = assign(1, start, 4, servers(1, 2, s2=[0, 1, 3]))
    assert owners(most) == {0: (2, 1), 1: (2, 1), 3: (2, 1), 2: (1, 0)}
    back = assign(1, most, 4, servers(1, 2, s1=[0, 1, 2], s2=[0, 1, 3]))
    assert owners(back) == {0: (1, 2), 1: (1, 2), 2: (1, 0), 3: (2, 1)}


@pytest.mark.parametrize(
    ("count", "members"),
    [
        (5, servers(1, 2, s1=[0, 1])),
        (3, servers(1, 2, s1=[0])),
        (5, servers(1, 2, s2=[4, 3])),
        (7, servers(1, 2, s1=[6])),
    ],
)
def test_uneven_preferences_are_completed(count: int, members: list[ServerDescriptor]) -> None:
    assignment = assign(1, assign(0, NOTHING, count, servers(1, 2)), count, members)
    assert sorted(owners(assignment)) == list(range(count))
    assert sizes(assignment) == [count // 2, count - count // 2]


def test_impossible_preferences_are_ignored() -> None:
    assignment = assign(1, NOTHING, 2, servers(1, 2, s1=[-1, 2, 7]))
    assert sizes(assignment) == [1, 1]


def test_stored_assignment_that_does_not_fit() -> None:
    with pytest.raises(PolicyError, match="has 3 partitions, the cluster has 2"):
        assign(1, stored(3, {}), 2, servers(1))
    with pytest.raises(PolicyError, match="partition 2, the cluster has 2"):
        assign(1, stored(2, {1: [(2, 1)]}), 2, servers(1))


def test_partition_listed_twice_counts_with_its_higher_generation() -> None:
    start = stored(1, {1: [(0, 4)], 2: [(0, 5)]})
    assert owners(assign(1, start, 1, servers(2))) == {0: (2, 5)}
    assert owners(assign(1, start, 1, servers(1))) == {0: (1, 6)}


def test_more_servers_than_partitions() -> None:
    assignment = assign(1, NOTHING, 2, servers(1, 2, 3))
    assert sizes(assignment) == [0, 1, 1]
    assert assignment.servers.keys() == {1, 2, 3}


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, PartitionAssignment, list[ServerDescriptor]]:
    """A stored assignment, complete or not, and the membership of now."""
    count = draw(st.integers(0, 12))
    ids = st.lists(st.integers(1, 9), unique=True)
    before = draw(ids)
    owned: dict[int, list[tuple[int, int]]] = {server_id: [] for server_id in before}
    if before:
        for partition_id in range(count):
            owner = draw(st.sampled_from([None, *before]))
            if owner is not None:
                owned[owner].append((partition_id, draw(st.integers(0, 5))))
    preferred = st.lists(st.integers(0, max(count - 1, 0)), unique=True)
    now = [ServerDescriptor(i, Endpoint("h", i), tuple(draw(preferred))) for i in draw(ids.filter(bool))]
    return count, stored(count, owned), now


@given(situations())
def test_complete_and_generations_only_grow(situation: tuple[int, PartitionAssignment, list[ServerDescriptor]]) -> None:
    count, before, now = situation
    after = assign(4, before, count, now)
    assert (after.cversion, after.partition_count) == (4, count)
    assert after.servers.keys() == {server.server_id for server in now}
    old, new = owners(before), owners(after)
    assert new.keys() == set(range(count))
    for partition_id, (server_id, generation) in new.items():
        old_owner, old_generation = old.get(partition_id, (None, 0))
        assert generation == old_generation + (server_id != old_owner)


@given(situations())
def test_preferences_are_honoured_and_the_rest_is_spread(
    situation: tuple[int, PartitionAssignment, list[ServerDescriptor]],
) -> None:
    count, before, now = situation
    after = assign(4, before, count, now)
    new = owners(after)
    wanted: dict[int, int] = {}
    for server in sorted(now):
        for partition_id in server.preferred_partitions:
            if partition_id < count:
                wanted.setdefault(partition_id, server.server_id)
    assert all(new[partition_id][0] == server_id for partition_id, server_id in wanted.items())
    preferred = list(wanted.values())
    # A server that got more than its preferences has at most one more than any other.
    smallest = min(sizes(after))
    for server_id, owned in after.servers.items():
        assert len(owned) <= max(smallest + 1, preferred.count(server_id))


@given(situations())
def test_without_preferences_balanced_and_as_few_moves_as_possible(
    situation: tuple[int, PartitionAssignment, list[ServerDescriptor]],
) -> None:
    count, before, now = situation
    after = assign(4, before, count, [server._replace(preferred_partitions=()) for server in now])
    share, extra = divmod(count, len(now))
    assert sizes(after) == sorted([share + 1] * extra + [share] * (len(now) - extra))
    old, new = owners(before), owners(after)
    kept = sum(1 for partition_id, (server_id, _) in new.items() if old.get(partition_id, (None,))[0] == server_id)
    had = sorted((len(before.servers.get(server.server_id, ())) for server in now), reverse=True)
    most = sum(min(held, share + (rank < extra)) for rank, held in enumerate(had))
    assert kept == most


@given(situations())
def test_stable(situation: tuple[int, PartitionAssignment, list[ServerDescriptor]]) -> None:
    count, before, now = situation
    after = assign(4, before, count, now)
    assert assign(4, after, count, now) == after
