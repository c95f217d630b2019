"""Replicas that move, against naive models of recovery: whatever happens, a session can begin after every step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.cluster.quorum import quorum_of
from waltz.common.errors import ProtocolError
from waltz.operations.replica_moves import (
    FILLING,
    PartitionView,
    ReplicaMove,
    ReplicaStep,
    StepRefused,
    after,
    check_back,
    check_move,
    check_step,
    next_step,
    next_step_back,
)

SOURCE, DESTINATION = "s0:1", "d:1"
MOVE = ReplicaMove(SOURCE, DESTINATION)


class Cluster:
    """One partition.

    Recoveries by servers of the original ask nobody who was unassigned. Other servers do, and stay with the storages of
    the last session while no quorum of the assigned ones answers.
    """

    def __init__(self, replicas: int, down: set[str], *, original: bool = True) -> None:
        self.original = original
        self.assigned = {f"s{number}:1" for number in range(replicas)}
        self.listed = set(self.assigned)
        self.members = set(self.assigned)
        self.files = set(self.assigned)
        self.down = down
        self.move: ReplicaMove | None = None

    def can_recover(self) -> bool:
        """Whether a session could begin: the last replicas decide by majority, the present ones complete it."""
        asked = self.assigned if self.original else self.listed
        deciding = (asked & self.listed & self.files) - self.down
        return len(deciding) >= quorum_of(len(self.listed)) and (not self.original or self.has_quorum())

    def has_quorum(self) -> bool:
        return len(self.assigned - self.down) >= quorum_of(len(self.assigned))

    def recover(self) -> None:
        """A session begins, if one can; who comes later joins it."""
        if self.can_recover():
            self.listed = set(self.assigned if self.has_quorum() else self.listed)
            self.members = self.listed - self.down

    @property
    def needed(self) -> int:
        """How many replicas must be there for a session."""
        return max(quorum_of(len(self.listed)), quorum_of(len(self.assigned)))

    def view(self) -> PartitionView:
        everyone = self.assigned | self.listed | {SOURCE, DESTINATION}
        return PartitionView(
            frozenset(self.assigned),
            frozenset(self.listed),
            frozenset((self.members & self.listed & self.files) - self.down),
            {each: None if each in self.down else each in self.files for each in (SOURCE, DESTINATION)},
            dict.fromkeys(everyone, 1),
            self.move,
        )

    def do(self, step: ReplicaStep, leaving: str, joining: str) -> bool:
        """Whether it could be done."""
        if step in FILLING:
            if joining in self.down:
                return False
            self.move = self.move or ReplicaMove(leaving, joining)
            self.files.add(joining)
            self.assigned.add(joining)
            if step is ReplicaStep.EXCHANGE:
                self.assigned.remove(leaving)
        elif step is ReplicaStep.REVERT:
            self.assigned.remove(leaving)
            self.assigned.add(joining)
        elif step is ReplicaStep.UNASSIGN:
            self.assigned.remove(leaving)
        elif step is ReplicaStep.RETURN:
            self.assigned.add(joining)
        elif step is ReplicaStep.CLEAR:
            assert leaving not in self.listed
            assert leaving not in self.assigned
            if leaving not in self.down:
                self.files.discard(leaving)
            self.move = None
        return True


def run(cluster: Cluster, *, back: bool, limit: int, killed_before_recovery: bool = False) -> bool:
    """Steps as the command does them, until all is done, no more is possible, or it is killed; whether all is done."""
    leaving, joining = (DESTINATION, SOURCE) if back else MOVE
    for number in range(limit):
        try:
            step = (next_step_back if back else next_step)(cluster.view(), MOVE)
            if step is None:
                return True
            check_step(cluster.view(), step, leaving=leaving, joining=joining)
        except StepRefused:
            return False
        could = cluster.can_recover()
        if not cluster.do(step, leaving, joining):
            return False
        assert cluster.can_recover() or not could, f"{step} has taken the majority away"
        if not killed_before_recovery or number < limit - 1:
            cluster.recover()
    return False


@given(st.data(), st.integers(1, 6), st.booleans(), st.booleans())
def test_a_session_can_begin_after_every_step_whoever_dies_between(
    data: st.DataObject, replicas: int, dead_from_the_beginning: bool, original: bool
) -> None:
    everyone = [f"s{number}:1" for number in range(replicas)] + [DESTINATION]
    down = st.sets(st.sampled_from(everyone), max_size=2)
    cluster = Cluster(replicas, data.draw(down) if dead_from_the_beginning else set(), original=original)
    cluster.recover()
    for _ in range(data.draw(st.integers(1, 6))):
        run(cluster, back=data.draw(st.booleans()), limit=data.draw(st.integers(0, 8)))
        cluster.down = data.draw(down)
        cluster.recover()
    assert len(cluster.assigned) >= replicas
    cluster.down = set()
    cluster.recover()
    if cluster.move is not None:
        back = data.draw(st.booleans())
        assert run(cluster, back=back, limit=20)
        assert len(cluster.assigned) == replicas
        assert (DESTINATION in cluster.assigned) is not back


@given(st.data(), st.integers(2, 7), st.booleans())
def test_no_step_needs_more_nodes_than_the_one_before_and_each_can_be_taken_back(
    data: st.DataObject, replicas: int, original: bool
) -> None:
    """Whoever could die before the move can die during it, and the new node as well, as long as it is one more."""
    others = [f"s{number}:1" for number in range(replicas)]
    down = data.draw(st.sets(st.sampled_from(others), max_size=(replicas - 1) // 2))
    cluster = Cluster(replicas, down, original=original)
    cluster.recover()
    steps = data.draw(st.integers(0, 5))
    killed_before_recovery = data.draw(st.booleans())
    is_over = run(cluster, back=False, limit=steps, killed_before_recovery=killed_before_recovery)
    assert cluster.needed <= quorum_of(replicas)
    assert cluster.can_recover()
    if replicas % 2 or SOURCE in cluster.assigned:
        cluster.down = {*down, DESTINATION}
        assert cluster.can_recover(), "the new node is missed"
    if data.draw(st.booleans()):
        cluster.recover()
    if not is_over and cluster.move is not None:
        if data.draw(st.booleans()):
            assert run(cluster, back=True, limit=10) or run(cluster, back=False, limit=10)
        else:
            assert run(cluster, back=False, limit=10) or run(cluster, back=True, limit=10)
        assert cluster.needed <= quorum_of(replicas)
        assert cluster.can_recover()
        assert cluster.move is None


@given(st.integers(1, 7), st.sets(st.sampled_from([SOURCE, "s1:1", "s2:1", DESTINATION]), max_size=3))
def test_what_is_planned_is_what_is_done(replicas: int, down: set[str]) -> None:
    cluster = Cluster(replicas, down)
    cluster.recover()
    try:
        planned = check_move(cluster.view(), MOVE)
    except StepRefused:
        assert replicas == 1 or len(down) >= 1
        return
    step = ReplicaStep
    if replicas % 2 or SOURCE in down:
        assert planned == [step.EXCHANGE, step.LEAVE, step.JOIN, step.CLEAR]
    else:
        assert planned == [step.FILL, step.JOIN, step.UNASSIGN, step.LEAVE, step.CLEAR]
    assert run(cluster, back=False, limit=20) is (DESTINATION not in down)


@pytest.mark.parametrize(("replicas", "possible"), [(1, False), (2, True), (3, True), (4, True), (5, True)])
def test_a_cluster_that_is_well(replicas: int, possible: bool) -> None:
    cluster = Cluster(replicas, set())
    if not possible:
        with pytest.raises(StepRefused, match="only one replica"):
            check_move(cluster.view(), MOVE)
        return
    assert run(cluster, back=False, limit=10)
    assert (cluster.assigned, cluster.listed) == ({*(f"s{each}:1" for each in range(1, replicas)), DESTINATION},) * 2
    assert cluster.files == cluster.assigned
    assert check_move(cluster.view(), MOVE) == []


@pytest.mark.parametrize(
    ("replicas", "down", "reason"),
    [
        (3, {SOURCE}, None),
        (3, {"s1:1"}, "without s0:1 2 of 3 replicas must be online members of the store session; these are: s2:1"),
        (3, {"s1:1", "s2:1"}, "now 2 of 3 replicas must be online members of the store session; these are: s0:1"),
        (2, {SOURCE}, "now 2 of 2"),
        (4, {SOURCE}, None),
        (4, {"s1:1"}, None),
        (5, {"s1:1"}, None),
        (5, {"s1:1", "s2:1"}, "without s0:1 3 of 5"),
    ],
)
def test_what_is_dead_stands_in_the_way_where_a_majority_would_be_lost(
    replicas: int, down: set[str], reason: str | None
) -> None:
    view = Cluster(replicas, down).view()
    if reason is None:
        assert check_move(view, MOVE)
    else:
        with pytest.raises(StepRefused, match=f"^{reason}"):
            check_move(view, MOVE)


def well() -> PartitionView:
    return Cluster(3, set()).view()


def test_what_is_in_no_move_is_left_alone() -> None:
    view = well()
    both = view._replace(assigned=view.assigned | {DESTINATION})
    with pytest.raises(StepRefused, match="both storages hold it, and nothing was being moved"):
        check_move(both, MOVE)
    neither = view._replace(assigned=view.assigned - {SOURCE})
    with pytest.raises(StepRefused, match=f"it is assigned to neither {SOURCE} nor {DESTINATION}"):
        check_move(neither, MOVE)
    assert check_back(view, MOVE) == []
    other = view._replace(move=ReplicaMove(SOURCE, "e:1"))
    for check in (check_move, check_back):
        with pytest.raises(StepRefused, match=f"a replica of it is being moved from {SOURCE} to e:1: finish that"):
            check(other, MOVE)
    with pytest.raises(StepRefused, match="never had a store session"):
        check_move(view._replace(listed=frozenset()), MOVE)
    changing = view._replace(listed=view.listed | {"x:1"})
    with pytest.raises(StepRefused, match=r"another change of its replicas \(x:1\) is under way"):
        check_move(changing, MOVE)


def test_a_replica_stays_in_its_group() -> None:
    view = well()._replace(groups={SOURCE: 1, DESTINATION: 2})
    with pytest.raises(StepRefused, match=r"d:1 is in group 2, s0:1 in group 1, .* add-storage-node -g 1"):
        check_move(view, MOVE)
    alone = after(well(), ReplicaStep.FILL, leaving=SOURCE, joining=DESTINATION)
    alone = after(alone, ReplicaStep.JOIN, leaving=SOURCE, joining=DESTINATION)._replace(groups=view.groups)
    with pytest.raises(StepRefused, match="no other storage node of group 1 would hold it"):
        check_step(alone, ReplicaStep.UNASSIGN, leaving=SOURCE, joining=DESTINATION)


def test_a_replica_of_an_even_number_that_leaves_and_is_missed_is_assigned_again() -> None:
    cluster = Cluster(4, set())
    steps = []
    while (step := next_step(cluster.view(), MOVE)) is not ReplicaStep.LEAVE:
        assert step is not None
        cluster.do(step, *MOVE)
        cluster.recover() if step is not ReplicaStep.UNASSIGN else None
        steps.append(step)
    assert steps == [ReplicaStep.FILL, ReplicaStep.UNASSIGN]
    cluster.down = {"s2:1", "s3:1"}  # in the moment in which it is unassigned
    assert not cluster.can_recover()
    assert next_step_back(cluster.view(), MOVE) is ReplicaStep.RETURN
    cluster.do(ReplicaStep.RETURN, DESTINATION, SOURCE)
    cluster.recover()
    assert cluster.members == {SOURCE, "s1:1", DESTINATION}
    assert not run(cluster, back=True, limit=10)
    cluster.down = set()
    cluster.recover()
    assert run(cluster, back=True, limit=10)
    assert cluster.view() == Cluster(4, set()).view()


def test_an_exchange_is_taken_back_by_one_write_as_long_as_no_session_has_begun_with_it() -> None:
    cluster = Cluster(3, {SOURCE})
    cluster.recover()
    cluster.do(ReplicaStep.EXCHANGE, *MOVE)
    cluster.down.add(DESTINATION)
    assert check_back(cluster.view(), MOVE) == [ReplicaStep.REVERT, ReplicaStep.CLEAR]
    assert run(cluster, back=True, limit=10)
    assert cluster.assigned == cluster.listed == {SOURCE, "s1:1", "s2:1"}


def test_an_exchange_is_taken_back_by_another_one_later() -> None:
    cluster = Cluster(3, set())
    assert not run(cluster, back=False, limit=1)
    assert cluster.listed == {"s1:1", "s2:1", DESTINATION}
    cluster.down = {DESTINATION}
    cluster.recover()
    assert next_step(cluster.view(), MOVE) is ReplicaStep.JOIN, "the old copy is not deleted before there is another"
    assert check_back(cluster.view(), MOVE) == [ReplicaStep.EXCHANGE, ReplicaStep.LEAVE, ReplicaStep.CLEAR]
    assert run(cluster, back=True, limit=10)
    assert cluster.assigned == cluster.members == {SOURCE, "s1:1", "s2:1"}


def test_a_move_between_two_dead_nodes_is_over_when_no_session_counts_the_old_one() -> None:
    cluster = Cluster(3, {SOURCE})
    cluster.recover()
    assert not run(cluster, back=False, limit=1)
    cluster.down.add(DESTINATION)
    assert check_move(cluster.view(), MOVE) == [ReplicaStep.CLEAR]
    assert run(cluster, back=False, limit=10)
    assert cluster.move is None


def test_a_destination_that_no_session_has_listed_can_be_taken_out_whoever_is_down() -> None:
    """Also where an earlier version has assigned it beside the others."""
    cluster = Cluster(3, {SOURCE})
    cluster.recover()
    cluster.do(ReplicaStep.FILL, *MOVE)
    cluster.down.add(DESTINATION)
    assert not cluster.can_recover()
    assert check_back(cluster.view(), MOVE) == [ReplicaStep.UNASSIGN, ReplicaStep.CLEAR]
    assert run(cluster, back=True, limit=10)
    assert cluster.can_recover()
    cluster = Cluster(3, set())
    cluster.do(ReplicaStep.FILL, *MOVE)
    cluster.recover()
    cluster.down = {SOURCE, DESTINATION}
    with pytest.raises(StepRefused, match="^without d:1 3 of 4 replicas must be online members of the store session"):
        check_back(cluster.view(), MOVE)


def test_what_is_to_hold_it_no_more_is_not_brought_back() -> None:
    gone = well()._replace(assigned=frozenset({"s1:1", "s2:1"}), listed=frozenset({"s1:1", "s2:1"}), move=MOVE)
    for check in (check_move, check_back):
        with pytest.raises(StepRefused, match=f"it is assigned to neither {SOURCE} nor {DESTINATION}"):
            check(gone, MOVE)


def test_what_zookeeper_keeps_of_a_move() -> None:
    assert ReplicaMove.decode(MOVE.encode(), "/m") == MOVE
    assert str(MOVE) == f"from {SOURCE} to {DESTINATION}"
    foreign = (b"{}", b"[]", b"\xff", b"7", b'{"source": 1, "destination": "d:1"}', b"[" * 200_000)
    for data in (None, b"", *foreign):
        with pytest.raises(ProtocolError, match="^/m does not say which replica is being moved: delete it"):
            ReplicaMove.decode(data, "/m")
