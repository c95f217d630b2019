"""Plans that move partitions, against the policy that assigns them: for any preferences and any number of servers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.cluster.policy import assign
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionAssignment, ServerDescriptor
from waltz.operations.partition_moves import (
    Ownership,
    PartitionMove,
    PreferenceChange,
    moves_between,
    plan_drain,
    plan_rebalance,
)


@st.composite
def clusters(draw: st.DrawFn) -> Ownership:
    """As the policy has left them, some servers having come later and some preferences having changed."""
    count = draw(st.integers(1, 24))
    ids = draw(st.lists(st.integers(1, 20), min_size=1, max_size=6, unique=True))
    preferred = st.lists(st.integers(0, count - 1), unique=True, max_size=count)
    assignment = PartitionAssignment(-1, count, {})
    servers: tuple[ServerDescriptor, ...] = ()
    for server_id in ids:
        wanted = tuple(sorted(draw(preferred))) if draw(st.booleans()) else ()
        servers = (*servers, ServerDescriptor(server_id, Endpoint("server", server_id), wanted))
        assignment = assign(0, assignment, count, servers)
    return Ownership(assignment, count, servers)


@given(clusters(), st.data())
def test_a_drained_server_has_nothing_and_nothing_else_has_moved(now: Ownership, data: st.DataObject) -> None:
    server_id = data.draw(st.sampled_from([server.server_id for server in now.servers]))
    if len(now.servers) == 1:
        with pytest.raises(WaltzError, match="this is the only server"):
            plan_drain(now, server_id)
        return
    owned = {partition_id for partition_id, owner in now.owners().items() if owner == server_id}
    steps = plan_drain(now, server_id)
    moved: list[int] = []
    at = now
    for step in steps:
        after = at.after([step])
        moved += [move.partition_id for move in moves_between(at, after)]
        at = after
    assert at == now.after(steps)
    assert at.counts()[server_id] == 0
    assert sorted(at.owners()) == list(range(now.partition_count))
    assert sorted(moved) == sorted(owned)
    assert plan_drain(at, server_id) == []


@given(clusters(), st.data())
def test_a_drain_that_was_interrupted_is_finished_by_another(now: Ownership, data: st.DataObject) -> None:
    if len(now.servers) == 1:
        return
    server_id = data.draw(st.sampled_from([server.server_id for server in now.servers]))
    steps = plan_drain(now, server_id)
    half = now.after(steps[: data.draw(st.integers(0, len(steps)))])
    assert half.after(plan_drain(half, server_id)).counts()[server_id] == 0


@given(clusters())
def test_a_balanced_cluster_differs_by_one_at_most(now: Ownership) -> None:
    steps = plan_rebalance(now)
    after = now.after(steps)
    counts = after.counts().values()
    assert max(counts) - min(counts) <= 1
    assert not any(step.add for step in steps)
    assert plan_rebalance(after) == []
    before = now.counts().values()
    if max(before) - min(before) <= 1:
        assert steps == []


@given(clusters(), st.data())
def test_a_server_that_was_drained_gets_its_share_again(now: Ownership, data: st.DataObject) -> None:
    if len(now.servers) == 1:
        return
    server_id = data.draw(st.sampled_from([server.server_id for server in now.servers]))
    drained = now.after(plan_drain(now, server_id))
    again = drained.after(plan_rebalance(drained))
    assert again.counts()[server_id] >= now.partition_count // len(now.servers)


def test_moves() -> None:
    def at(owners: dict[int, list[int]]) -> Ownership:
        stored = PartitionAssignment(0, 2, {})
        for server_id, owned in owners.items():
            wanted = ServerDescriptor(server_id, Endpoint("server", 1), tuple(owned))
            stored = assign(0, stored, 2, (wanted,)) if len(owned) == 2 else stored
        return Ownership(stored, 2, ())

    assert moves_between(at({1: [0, 1]}), at({2: [0, 1]})) == [PartitionMove(0, 1, 2), PartitionMove(1, 1, 2)]
    assert moves_between(at({}), at({2: [0, 1]})) == [PartitionMove(0, None, 2), PartitionMove(1, None, 2)]


def test_nobody_to_balance() -> None:
    with pytest.raises(WaltzError, match="there is no server"):
        plan_rebalance(Ownership(PartitionAssignment(0, 2, {}), 2, ()))


def test_steps_change_what_a_server_prefers() -> None:
    servers = tuple(ServerDescriptor(each, Endpoint("server", each), (3,)) for each in (1, 2))
    now = Ownership(assign(0, PartitionAssignment(-1, 4, {}), 4, servers), 4, servers)
    after = now.after([PreferenceChange(2, True, (0, 1)), PreferenceChange(2, False, (3,))])
    assert [server.preferred_partitions for server in after.servers] == [(3,), (0, 1)]
    assert after.follows(PreferenceChange(2, True, (0, 1)))
    assert after.follows(PreferenceChange(2, False, (3,)))
    assert after.follows(PreferenceChange(9, True, (3,)))
    assert not now.follows(PreferenceChange(2, True, (0, 3)))
    assert not now.follows(PreferenceChange(1, False, (3, 2)))
