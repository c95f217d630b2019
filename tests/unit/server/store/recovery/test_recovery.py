"""The recovery machine on the cases that the original's tests assert, and on its mended hazards, in random orders."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.unit.server.store.recovery_model import Model, Stored, U, record, replica
from waltz.common.zk.znodes import ReplicaState
from waltz.server.store.recovery.recovery import Step
from waltz.server.store.recovery.recovery_effects import Abort, Compare, Copy, Renew, WriteMetadata

SEEDS = range(25)


class Case(NamedTuple):
    name: str
    states: Sequence[tuple[int, int] | None]
    """(session, closing mark) of each replica in the metadata; ``None``: not there."""
    stored: list[Stored]
    down: tuple[int, ...] = ()
    unassigned: tuple[int, ...] = ()


def stored(maxima: list[int], low_water_mark: int = 110, session_id: int = 998) -> list[Stored]:
    return [Stored(session_id, low_water_mark, maximum) for maximum in maxima]


VOTES = (998, U)
MIXED = [125, 125, 120, 115, 115]

CASES = [
    Case("all new", [None] * 5, [Stored(-1, -1, -1)] * 5),
    Case("all vote", [VOTES] * 5, stored(MIXED)),
    Case("three vote", [VOTES] * 3 + [(997, 100)] * 2, stored(MIXED)),
    Case("two vote", [VOTES] * 2 + [(997, 110)] * 3, stored([120, 120, 120, 105, 105])),
    Case("two vote, older ones", [VOTES] * 2 + [(997, 110), (997, 110), (996, 100)], stored([120, 120, 120, 105, 105])),
    Case("one votes", [VOTES] + [(997, 110)] * 4, stored([120, 120, 120, 105, 105])),
    Case(
        "dirty tail",
        [VOTES] + [(997, 110)] * 4,
        [Stored(998, 110, 120), Stored(997, 110, 130, 111), *stored([105, 105, 105], session_id=997)],
    ),
    Case(
        "previous recovery failed",
        [VOTES] * 2 + [(997, 120)] * 3,
        [*stored([120, 120], 120), *stored([120, 110, 110], session_id=997)],
    ),
    Case(
        "previous recovery failed, older ones",
        [VOTES] * 2 + [(997, 120), (997, 120), (996, 100)],
        [*stored([120, 120], 120), *stored([120, 110], session_id=997), Stored(996, 100, 110, 101)],
    ),
    Case("far behind", [VOTES] * 5, stored([120, 120, 120, 110, 100], 120), down=(0, 1)),
    *(
        Case(
            f"inconsistent storage at {maximum}",
            [VOTES] * 5,
            [*stored([125, 125]), Stored(997, 110, maximum, 111), *stored([120, 120])],
        )
        for maximum in (115, 130)
    ),
    Case("unavailable: first", [VOTES] * 5, stored(MIXED), down=(0,)),
    Case("unavailable: last", [VOTES] * 5, stored(MIXED), down=(4,)),
    Case("unavailable: first two", [VOTES] * 5, stored([120, 120, 120, 115, 115]), down=(0, 1)),
    Case("unavailable: last two", [VOTES] * 5, stored(MIXED), down=(3, 4)),
    Case("unavailable: undecidable at first", [VOTES] * 5, stored([120, 120, 115, 115, 120]), down=(0, 4)),
    Case("added: fourth", [VOTES] * 3 + [None], [*stored([125, 120, 120]), Stored(-1, -1, -1)]),
    Case("added: fourth and fifth", [VOTES] * 3 + [None] * 2, [*stored([125, 120, 120]), *[Stored(-1, -1, -1)] * 2]),
    Case(
        "added: two, the first is down",
        [VOTES] * 3 + [None] * 2,
        [*stored([120, 120, 120]), *[Stored(-1, -1, -1)] * 2],
        down=(0,),
    ),
    Case(
        "added: an old directory is left",
        [VOTES] * 3 + [None],
        [*stored([125, 120, 120]), Stored(500, 50, 70, 51)],
    ),
    Case("removed: first of three", [VOTES] * 3, stored([125, 120, 120]), unassigned=(0,)),
    Case("removed: first two of five", [VOTES] * 5, stored([125, 125, 120, 120, 120]), unassigned=(0, 1)),
    Case(
        "replaced: first of three",
        [VOTES] * 3 + [None],
        [*stored([125, 120, 120]), Stored(-1, -1, -1)],
        unassigned=(0,),
    ),
]


def names(count: int) -> list[str]:
    return [f"s{index}:1" for index in range(count)]


def model_of(case: Case, seed: int) -> Model:
    all_names = names(len(case.stored))
    states = {name: state for name, state in zip(all_names, case.states, strict=True) if state is not None}
    return Model(states, dict(zip(all_names, case.stored, strict=True)), seed=seed)


def mark_of(model: Model) -> int | None:
    return model.opened


def check_recovered(model: Model, available: list[str]) -> None:
    mark = model.opened
    assert mark is not None, model.machine and model.machine.describe()
    for name in available:
        partition = model.storages[name]
        assert partition.maximum == mark
        assert partition.low_water_mark == mark
        assert partition.session_id == model.session_id
        assert partition.records == [record(i) for i in range(mark + 1)], f"{name} differs"
        assert model.metadata.replicas[replica(name)] == ReplicaState(replica(name), model.session_id, U)
    assert model.metadata.generation == 10
    clean = {key.connect_string for key, state in model.metadata.replicas.items() if state[1:] == (model.session_id, U)}
    assert clean == set(available) == set(model.joined)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_of_the_original(case: Case, seed: int) -> None:
    model = model_of(case, seed)
    everyone = names(len(case.stored))
    assigned = [name for index, name in enumerate(everyone) if index not in case.unassigned]
    available = [name for index, name in enumerate(everyone) if index not in (*case.down, *case.unassigned)]
    reachable = everyone if model.random.random() < 0.5 else assigned  # removed ones may still run, or not
    model.begin(assigned)
    model.run([name for name in reachable if name in available or name not in assigned])
    if model.opened is None:
        # Removed replicas count as absent: without them, fewer than a quorum of the previous ones may be left.
        assert case.unassigned
        model.run(everyone)
    check_recovered(model, available)
    assert model.opened is not None
    assert model.opened == -1 if case.name == "all new" else 120 <= model.opened <= 125
    model.run(assigned)
    check_recovered(model, assigned)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_attempt_without_metadata_update_can_be_repeated(seed: int) -> None:
    model = model_of(CASES[1], seed)
    model.begin(names(5))
    for name in names(5):
        model.connect(name)
    for _ in range(model.random.randrange(60)):
        if model.idle:
            break
        model.step()
    model.begin(names(5))
    model.run(names(5))
    assert model.session_id == 1000
    check_recovered(model, names(5))
    assert model.opened is not None
    assert 120 <= model.opened <= 125


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_answers_of_metadata_writes_do_not_matter(seed: int) -> None:
    model = model_of(CASES[2], seed)
    model.fail_writes = 4
    model.begin(names(5))
    model.run(names(5))
    check_recovered(model, names(5))


@pytest.mark.parametrize("seed", SEEDS)
def test_s10_nothing_is_decided_below_the_floor(seed: int) -> None:
    """The disk of one is an older one of the same session, one has missed the end, and one that has it all is away."""
    a, b, c = everyone = names(3)
    states = {a: (998, U), b: (998, U), c: (997, 110)}
    model = Model(states, {a: Stored(998, 110, 115), b: Stored(998, 110, 120), c: Stored(997, 100, 110)}, seed=seed)
    machine = model.begin(everyone, floor=120)
    model.run([a, c])
    assert model.opened is None
    below_floor = [machine.below_floor]
    assert "not to be decided below 120" in machine.describe()
    model.run([b])
    assert [*below_floor, machine.below_floor] == [115, None]
    check_recovered(model, everyone)
    assert model.opened == 120


def test_s10_metadata_that_were_lost_are_no_empty_log() -> None:
    everyone = names(3)
    model = Model({}, dict(zip(everyone, [Stored(-1, -1, -1)] * 3, strict=True)))
    machine = model.begin(everyone, floor=7)
    model.run(everyone)
    assert model.opened is None
    assert machine.below_floor == -1


def recover_beside_a_storage_that_has_lost(seed: int) -> Model:
    """Four of five voted for 120; one of these holds 112 only, and the others for 120 are away but one."""
    everyone = names(5)
    storages = [Stored(998, 110, maximum) for maximum in (112, 120, 120, 114, 114)]
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, storages, strict=True)), seed=seed)
    model.begin(everyone)
    for name in everyone[2:]:
        model.connect(name)
    model.connect(everyone[0], acknowledged=120)
    model.run(everyone[2:])
    return model


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storage_that_has_lost_what_it_acknowledged_is_closed_and_does_not_vote(seed: int) -> None:
    lost = replica(names(5)[0])
    model = recover_beside_a_storage_that_has_lost(seed)
    assert "holds transactions up to 112 and has acknowledged 120 in session 998" in model.refused[names(5)[0]]
    assert model.machine is not None
    assert model.machine.is_barred(lost)
    assert model.opened == 120, "the others have copied what one of them holds"
    assert model.metadata.replicas[lost] == ReplicaState(lost, 998, 112)
    model.begin(names(5))
    model.run(names(5))
    check_recovered(model, names(5))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storage_that_was_closed_within_its_session_proves_nothing(seed: int) -> None:
    """Another owner: one that has 120 is away, and the one that lost it does not say that nobody can have had it."""
    everyone = names(5)
    states = dict.fromkeys(everyone, VOTES) | {everyone[0]: (998, 112)}
    storages = [Stored(998, 110, maximum) for maximum in (112, 120, 120, 114, 114)]
    model = Model(states, dict(zip(everyone, storages, strict=True)), seed=seed)
    model.begin(everyone)
    model.run([everyone[0], *everyone[2:]])
    assert model.opened == 120
    model.run(everyone)
    check_recovered(model, everyone)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_that_returns_with_less_than_it_has_acknowledged_is_closed(seed: int) -> None:
    model = model_of(CASES[1], seed)
    everyone = names(5)
    second = everyone[1]
    machine = model.begin(everyone)
    model.run(everyone)
    model.lose(second)
    del model.storages[second].records[100:]
    model.connect(second, acknowledged=model.opened or 0)
    model.run([])
    assert machine.is_barred(replica(second))
    assert second not in model.joined
    mark = model.storages[second].low_water_mark
    assert model.metadata.replicas[replica(second)] == ReplicaState(replica(second), 999, mark), (
        "its own mark is not cut"
    )
    model.begin(everyone)
    model.run(everyone)
    check_recovered(model, everyone)


def test_superseded_by_another_session() -> None:
    model = model_of(CASES[1], 0)
    machine = model.begin(names(5))
    for name in names(3):
        model.connect(name)
    other = model.metadata._replace(session_id=1000)
    assert machine.metadata_read(other, 50) == [Abort("session 1000 has superseded session 999", superseded=True)]
    assert machine.metadata_read(other, 51) == []
    assert machine.replica_connected(replica(names(5)[4]), 998, 110) == []


def test_nothing_is_changed_before_the_metadata_prove_the_session() -> None:
    """Rule S2: only after a write that began after the storage answered; one that is under way is not enough."""
    model = model_of(CASES[3], 0)
    model.begin(names(5))
    model.connect(names(5)[2])
    assert model.idle, "a single replica is nothing to write for"
    model.connect(names(5)[0])
    model.connect(names(5)[3])
    assert model.write_count == 0
    model.connect(names(5)[4])
    model.step()
    assert model.write_count == 1
    assert model.steps()[names(5)[2]] is Step.INSPECTING
    assert model.steps()[names(5)[4]] is Step.VERIFYING
    model.run(names(5))
    check_recovered(model, names(5))


def test_far_down_mark_of_a_lost_replica_is_forgotten() -> None:
    """Rule S2: two of three are heard, one of them breaks away before the decision: it counts as absent."""
    case = Case("", [VOTES] * 3, stored([125, 120, 120]))
    model = model_of(case, 0)
    machine = model.begin(names(3))
    model.run(names(3)[1:2])
    model.connect(names(3)[0])
    while model.steps()[names(3)[0]] is not Step.KNOWN and machine.high_water_mark is None:
        model.step()
    model.lose(names(3)[0])
    if machine.high_water_mark is None:
        model.run(names(3)[1:])
        assert machine.high_water_mark == 120


def crash_after_the_first_mark(model: Model, a: str, c: str) -> None:
    """Recover with two of three, and stop as soon as one of them has been given the decided mark, or a bit later."""
    model.begin(names(3))
    model.connect(a)
    model.connect(c)
    while max(model.storages[a].low_water_mark, model.storages[c].low_water_mark) < 120:
        model.step()
    for _ in range(model.random.randrange(4)):
        if not model.idle:
            model.step()


@pytest.mark.parametrize("seed", SEEDS)
def test_s7_a_mark_on_a_borrowed_copy_is_recorded_first(seed: int) -> None:
    """One voter holds 120; with the copy on a non-voter this becomes the mark. A crash in between must not undo it."""
    a, b, c = names(3)
    states = {a: (998, U), b: (998, U), c: (997, 100)}
    storages = {a: Stored(998, 110, 120), b: Stored(998, 110, 115), c: Stored(997, 100, 105, 101)}
    model = Model(states, storages, seed=seed)
    crash_after_the_first_mark(model, a, c)
    assert model.metadata.replicas[replica(c)].closing_high_water_mark in (120, U)
    model.begin([a, b, c])
    model.run([b, c])
    assert model.opened in (None, 120), "the next recovery must not decide lower"
    model.run([a, b, c])
    check_recovered(model, [a, b, c])


@pytest.mark.parametrize("old_session", [-1, 400])
@pytest.mark.parametrize("seed", SEEDS)
def test_s7_holds_for_a_replica_that_was_never_in_a_session(seed: int, old_session: int) -> None:
    a, b, c = names(3)
    fresh = Stored(-1, -1, -1) if old_session < 0 else Stored(old_session, 40, 60, 41)
    states = {a: (998, U), b: (998, U), c: (-1, 100)}
    model = Model(states, {a: Stored(998, 110, 120), b: Stored(998, 110, 115), c: fresh}, seed=seed)
    crash_after_the_first_mark(model, a, c)
    model.begin([a, b, c])
    model.run([b, c])
    assert model.opened in (None, 120), "the next recovery must not decide lower"
    model.run([a, b, c])
    check_recovered(model, [a, b, c])


@pytest.mark.parametrize("closing", [-1, 70, 110])
@pytest.mark.parametrize("maximum", [90, 95])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_storage_that_an_operator_has_filled_keeps_what_is_certain(seed: int, maximum: int, closing: int) -> None:
    """No session has reached it, and the metadata know it: it was assigned before it was filled up to 90."""
    a, b, c = everyone = ["a", "b", "c"]
    filled = Stored(-1, 90, maximum, 91)
    states = {a: (998, U), b: (998, U), c: (-1, closing)}
    model = Model(states, {a: Stored(998, 110, 120), b: Stored(998, 110, 120), c: filled}, seed=seed)
    model.begin(everyone)
    model.run(everyone)
    assert model.opened == 120
    assert model.joined.keys() == set(everyone)
    assert model.storages[c].records == [record(number) for number in range(121)]


@pytest.mark.parametrize("seed", SEEDS)
def test_h3_old_records_of_a_readded_storage_are_not_kept(seed: int) -> None:
    """It comes after the session has opened: its state says (-1, R), but its own records above its mark are dirty."""
    everyone = names(4)
    states = dict.fromkeys(everyone[:3], VOTES)
    storages = dict(zip(everyone, [*stored([120, 120, 120]), Stored(500, 50, 115, 51)], strict=True))
    model = Model(states, storages, seed=seed)
    model.begin(everyone)
    model.run(everyone[:3])
    assert model.metadata.replicas[replica(everyone[3])] == ReplicaState(replica(everyone[3]), -1, 120)
    model.run(everyone)
    check_recovered(model, everyone)


def test_h5_storages_with_data_are_not_emptied_when_the_metadata_are_gone() -> None:
    everyone = names(3)
    model = Model({}, dict(zip(everyone, stored([120, 120, 115]), strict=True)))
    model.begin(everyone)
    model.run(everyone)
    for name in sorted(model.refused):
        model.run([name])
    assert model.opened is None
    assert len(model.refused) >= 2
    assert [model.storages[name].maximum for name in everyone] == [120, 120, 115]
    assert all("above the partition's high-water mark" in reason for reason in model.refused.values())


def test_h5_records_without_any_mark_are_refused_as_well() -> None:
    everyone = names(3)
    model = Model({}, dict(zip(everyone, [Stored(-1, -1, 40), *[Stored(-1, -1, -1)] * 2], strict=True)))
    model.begin(everyone)
    model.run(everyone)
    assert model.opened == -1
    assert "is new according to ZooKeeper" in model.refused[everyone[0]]
    model.refused.clear()
    model.run([everyone[0]])
    assert model.refused
    assert model.storages[everyone[0]].maximum == 40


def test_h4_the_session_opens_only_with_the_metadata() -> None:
    model = model_of(CASES[1], 3)
    model.begin(names(5))
    model.fail_writes = 1 << 30
    with pytest.raises(AssertionError, match="does not come to rest"):
        model.run(names(5), max_steps=3000)
    assert model.opened is None
    assert not model.joined


def test_a_replica_is_barred_after_an_unanswered_change() -> None:
    model = model_of(CASES[2], 0)
    machine = model.begin(names(5))
    for name in names(5)[2:]:
        model.connect(name)
    target = names(5)[3]
    while model.steps()[target] is not Step.INSPECTING:
        model.step()
    model.lose(target)
    assert machine.is_barred(replica(target))
    with pytest.raises(ValueError, match="barred"):
        model.connect(target)
    model.begin(names(5))
    model.run(names(5))
    check_recovered(model, names(5))


def test_a_member_that_returns_keeps_its_records() -> None:
    everyone = names(3)
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, stored([120] * 3), strict=True)))
    machine = model.begin(everyone)
    model.run(everyone)
    model.storages[everyone[0]].append([record(121), record(122)])
    model.lose(everyone[0])
    assert not machine.is_barred(replica(everyone[0]))
    writes = model.write_count
    model.run(everyone)
    assert model.write_count == writes + 1, "the metadata are compared and set before it is trusted again"
    assert model.joined[everyone[0]] == 122
    assert model.storages[everyone[0]].maximum == 122
    assert model.storages[everyone[0]].low_water_mark == 120


def test_a_member_that_has_forgotten_the_session_ends_it() -> None:
    everyone = names(3)
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, stored([120] * 3), strict=True)))
    model.begin(everyone)
    model.run(everyone)
    model.lose(everyone[0])
    model.storages[everyone[0]].session_id = 998
    model.run(everyone)
    assert model.aborted is not None
    assert not model.aborted.superseded


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restored_storage_proves_nothing_about_what_was_committed(seed: int) -> None:
    """A acknowledged 120 together with B and was then set back to a backup; B is down, C is behind."""
    a, b, c = names(3)
    storages = {a: Stored(997, 100, 105), b: Stored(998, 110, 120), c: Stored(998, 110, 115)}
    model = Model(dict.fromkeys((a, b, c), VOTES), storages, seed=seed)
    model.begin([a, b, c])
    model.run([a, c])
    assert mark_of(model) is None
    model.run([a, b, c])
    assert model.opened == 120
    check_recovered(model, [a, b, c])


@pytest.mark.parametrize("seed", SEEDS)
def test_one_of_two_can_be_removed_while_it_still_runs(seed: int) -> None:
    """The original blocks for ever: the removed replica is never asked."""
    a, b = names(2)
    model = Model(dict.fromkeys((a, b), VOTES), {a: Stored(998, 110, 120), b: Stored(998, 110, 118)}, seed=seed)
    model.begin([b])
    model.run([b])
    assert mark_of(model) is None
    model.run([a, b])
    check_recovered(model, [b])
    assert (mark_of(model) or 0) >= 118
    assert model.storages[a].session_id == 998


def test_a_copy_that_fails_again_and_again_is_no_progress() -> None:
    """Rule L2: who waits for it to end would wait for ever."""
    everyone = names(3)
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, stored([120, 120, 115]), strict=True)))
    machine = model.begin(everyone)
    for name in everyone:
        model.connect(name)
    target = replica(everyone[2])
    while machine.step(target) is not Step.COPYING:
        model.step()
    (copy,) = [effect for effect in model.pending if isinstance(effect, Copy)]
    copying = [machine.copying]
    for _ in range(3):
        (copy,) = [effect for effect in machine.copy_failed(target, copy.source) if isinstance(effect, Copy)]
        copying.append(machine.copying)
    assert copying == [True, True, True, False]
    assert machine.step(target) is Step.COPYING
    machine.copied(target, copy.first)
    assert machine.copying or machine.step(target) is not Step.COPYING


def test_a_session_whose_owner_has_taken_the_next_number_goes_on_until_it_is_renewed() -> None:
    everyone = names(3)
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, stored([120] * 3), strict=True)))
    machine = model.begin(everyone)
    model.run(everyone)
    mine = model.metadata._replace(session_id=model.session_id + 1)
    assert machine.metadata_read(mine, 50) == [Renew()]


def test_a_session_of_another_generation_supersedes_an_open_one() -> None:
    everyone = names(3)
    model = Model(dict.fromkeys(everyone, VOTES), dict(zip(everyone, stored([120] * 3), strict=True)))
    machine = model.begin(everyone)
    model.run(everyone)
    other = model.metadata._replace(session_id=model.session_id + 1, generation=11)
    (abort,) = machine.metadata_read(other, 50)
    assert isinstance(abort, Abort)
    assert abort.superseded


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("listed", [None, (-1, 120)], ids=["not listed", "listed without a session"])
@pytest.mark.parametrize("session_id", [-1, 500], ids=["filled by an operator", "of an earlier session"])
def test_a_storage_with_another_log_is_refused(listed: tuple[int, int] | None, session_id: int, seed: int) -> None:
    """It was lost with transactions 51 to 70, whose ids others have got since; its low-water mark covers its own."""
    states: list[tuple[int, int] | None] = [VOTES, VOTES, listed]
    case = Case("given up", states, [*stored([120, 120]), Stored(session_id, 70, 70, dirty_from=51)])
    model = model_of(case, seed)
    before = list(model.storages["s2:1"].records)
    model.begin(names(3))
    model.run(names(3))
    assert set(model.joined) == {"s0:1", "s1:1"}
    assert model.opened == 120
    assert "holds another transaction 70 than s" in model.refused["s2:1"]
    assert model.storages["s2:1"].records == before
    state = model.metadata.replicas[replica("s2:1")]
    assert state.session_id == -1


def comparing() -> tuple[Model, Compare]:
    case = Case("given back", [VOTES, VOTES, None], [*stored([120, 120]), Stored(500, 50, 50)])
    model = model_of(case, 0)
    model.begin(names(3))
    model.run(["s0:1", "s1:1"])
    model.connect("s2:1")
    while not isinstance(model.pending[0], Compare):
        model.step()
    (compare,) = model.pending
    assert isinstance(compare, Compare)
    return model, compare


def test_a_storage_that_cannot_be_compared_waits_and_asks_another_one() -> None:
    model, compare = comparing()
    machine = model.machine
    assert machine is not None
    assert compare.transaction_id == 50
    asked = [compare.source]
    for _ in range(4):
        assert machine.step(compare.replica_id) is Step.COMPARING
        assert machine.joining == (len(asked) <= 3)
        (effect,) = machine.comparison_failed(compare.replica_id, asked[-1])
        assert isinstance(effect, Compare)
        asked.append(effect.source)
    assert asked[0] != asked[1] == asked[3] != asked[2]
    (effect,) = machine.compared(compare.replica_id, asked[-1], 50, same=True)
    assert isinstance(effect, Copy)


@pytest.mark.parametrize("filled_to", [115, 120])
def test_what_is_being_compared_is_no_source_and_decides_nothing(filled_to: int) -> None:
    """The copy that an operator filled counts when it is known to be of this log."""
    case = Case("filled", [VOTES, VOTES, (-1, 100)], [*stored([115, 115]), Stored(-1, filled_to, filled_to)])
    model = model_of(case, 0)
    model.begin(names(3))
    for name in ("s0:1", "s2:1"):
        model.connect(name)
    while [type(effect) for effect in model.pending] != [Compare]:
        model.step()
    machine = model.machine
    assert machine is not None
    compare = model.pending[0]
    assert isinstance(compare, Compare)
    assert (compare.source, compare.transaction_id) == (replica("s0:1"), 115)
    assert "high-water mark undecided" in machine.describe()
    assert machine.step(replica("s0:1")) is Step.KNOWN
    (effect,) = machine.compared(compare.replica_id, compare.source, 115, same=True)
    assert type(effect) is (WriteMetadata if filled_to == 115 else Copy)
