"""What is decided from the replicas that are left, and when nothing is."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState, ServerDescriptor
from waltz.operations.lost_replicas import Held, LossRefused, accept_loss, check_survey, describe
from waltz.operations.survey.survey import ServerReport, StorageReport, Survey
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.recovery.recovery_effects import (
    Compare,
    Copy,
    Effect,
    GetMaximum,
    Open,
    SetLowWaterMark,
    Truncate,
    WriteMetadata,
)

A, B, C, D = NAMES = ("a:1", "b:1", "c:1", "d:1")
SESSION = 7


def state(name: str, session_id: int = SESSION, closing: int = UNRESOLVED) -> ReplicaState:
    return ReplicaState(ReplicaId(0, name), session_id, closing)


def metadata(*states: ReplicaState) -> PartitionMetadata:
    return PartitionMetadata(3, SESSION + 2, {each.replica_id: each for each in states})


def held(name: str, maximum: int, mark: int = 40, session_id: int = SESSION, of: ReplicaState | None = None) -> Held:
    return Held(of or state(name), session_id, mark, maximum)


FOUR = metadata(*map(state, NAMES))
GONE = {A: "connection refused", D: "connection refused"}


def open_with(decided: PartitionMetadata, found: Mapping[str, Held]) -> int:
    """The mark with which a recovery opens from these metadata and storages, all of which are assigned."""
    maxima = {ReplicaId(0, name): each.max_transaction_id for name, each in found.items()}
    begun = decided._replace(session_id=decided.session_id + 1)
    machine = RecoveryMachine(begun, 0, maxima)
    effects: list[Effect] = []
    for name, each in found.items():
        effects += machine.replica_connected(ReplicaId(0, name), each.session_id, each.low_water_mark)
    for _ in range(1000):
        match effects.pop(0):
            case Open(high_water_mark=mark):
                return mark
            case WriteMetadata(version=version):
                effects += machine.metadata_written(version + 1)
            case GetMaximum(replica_id=replica_id):
                effects += machine.maximum_known(replica_id, maxima[replica_id])
            case Truncate(replica_id=replica_id, transaction_id=end):
                maxima[replica_id] = min(maxima[replica_id], end)
                effects += machine.maximum_known(replica_id, maxima[replica_id])
            case SetLowWaterMark(replica_id=replica_id):
                effects += machine.low_water_mark_set(replica_id)
            case Compare(replica_id=replica_id, source=source, transaction_id=transaction_id):
                effects += machine.compared(replica_id, source, transaction_id, same=True)
            case Copy(replica_id=replica_id, last=last):
                maxima[replica_id] = last
                effects += machine.copied(replica_id, last)
    raise AssertionError("it does not open")


def test_members_that_are_left_keep_all_that_any_of_them_holds() -> None:
    found = {B: held(B, 60), C: held(C, 55)}
    accepted = accept_loss(FOUR, found, GONE, [A, D])
    assert (accepted.mark, accepted.deciding, accepted.truncations) == (60, frozenset({B}), dict[str, int]())
    assert set(accepted.states.values()) == {state(B), state(C, closing=55)}
    assert open_with(FOUR._replace(replicas=dict(accepted.states)), found) == 60
    assert describe(accepted, found, [A, D], 0) == [
        "partition 0 without the lost replicas a:1, d:1:",
        "  b:1 holds transactions up to 60; low-water mark 40 of session 7",
        "  c:1 holds transactions up to 55; low-water mark 40 of session 7",
        "  the log then ends at transaction 60, as on b:1",
        "  transactions from 61 on may have been committed; if so, they are lost",
        "  their ids will be assigned again: applications that have seen them have to start again as after a restore",
        "  delete the partition's files on a:1, d:1 before a storage is started with them again",
    ]


def test_one_that_missed_the_last_session_decides_if_no_member_is_left_and_loses_its_uncertain_tail() -> None:
    behind = metadata(state(A), state(B, 5, 30), state(C, 5, 30), state(D))
    found = {name: held(name, maximum, 20, 5, state(name, 5, 30)) for name, maximum in ((B, 34), (C, 28))}
    accepted = accept_loss(behind, found, GONE, [A, D])
    assert (accepted.mark, accepted.deciding, accepted.truncations) == (30, frozenset({B}), {B: 30})
    assert set(accepted.states.values()) == {state(B, 5), state(C, 5, 28)}
    found[B] = found[B]._replace(max_transaction_id=30)
    assert open_with(behind._replace(replicas=dict(accepted.states)), found) == 30
    assert "  b:1 holds transactions up to 30; low-water mark 20 of session 5" in describe(accepted, found, [A], 0)


def test_an_old_disk_counts_up_to_its_low_water_mark_and_what_is_known_to_be_lost_is_told() -> None:
    found = {B: held(B, 60, mark=20, session_id=4), C: held(C, 30, mark=35)}
    accepted = accept_loss(FOUR, found, GONE, [A, D])
    assert (accepted.mark, accepted.known_committed, accepted.truncations) == (20, 35, {B: 20})
    lines = describe(accepted, found, [A, D], 0)
    assert "  b:1 holds transactions up to 60, certain up to 20; low-water mark 20 of session 4" in lines
    assert "  transactions 21 to 35 were committed, and are lost" in lines
    assert "  transactions from 36 on may have been committed; if so, they are lost" in lines


def test_an_empty_log_is_a_log() -> None:
    found = {B: held(B, -1, mark=-1), C: held(C, -1, mark=-1)}
    assert "  the log then is empty, as on b:1, c:1" in describe(accept_loss(FOUR, found, GONE, [A, D]), found, GONE, 0)


@pytest.mark.parametrize(
    ("found", "silent", "lost", "text"),
    [
        ([B, C, D], [A], [A], "3 of its 4 replicas in the metadata answer, and 3 are enough: nothing needs to be lost"),
        ([B, C], [A, D], [A], "not named as lost, but silent: d:1: gone; start them"),
        ([B, C], [A, D], [A, C, D], "not lost, as they answer: c:1"),
        ([B, C], [A, D], [A, D, "e:1"], "not among its replicas in the metadata, a:1, b:1, c:1, d:1: e:1"),
        ([], NAMES, NAMES, "no replica that answers has all transactions that it knows as committed"),
    ],
)
def test_what_is_not_accepted(found: list[str], silent: list[str], lost: list[str], text: str) -> None:
    with pytest.raises(LossRefused, match=text):
        accept_loss(FOUR, {name: held(name, 60) for name in found}, dict.fromkeys(silent, "gone"), lost)


def test_a_new_replica_decides_nothing() -> None:
    new = metadata(state(A), state(B), state(C, -1, 50), state(D))
    fresh = held(C, 40, session_id=-1, of=state(C, -1, 50))
    with pytest.raises(LossRefused, match="restore one from a backup"):
        accept_loss(new, {C: fresh}, {**GONE, B: "gone"}, [A, B, D])
    accepted = accept_loss(new, {B: held(B, 60), C: fresh}, GONE, [A, D])
    assert set(accepted.states.values()) == {state(B), state(C, -1, 40)}
    assert open_with(new._replace(replicas=dict(accepted.states)), {B: held(B, 60), C: fresh}) == 60


@given(st.data())
def test_a_recovery_opens_with_what_was_decided(data: st.DataObject) -> None:
    found: dict[str, Held] = {}
    states = []
    for name in NAMES:
        session_id = data.draw(st.integers(-1, SESSION))
        low = data.draw(st.integers(0, 20))
        closing = data.draw(st.integers(low, 40) | st.just(UNRESOLVED)) if session_id >= 0 else 30
        persisted = data.draw(st.integers(max(session_id - 1, 0), SESSION)) if session_id >= 0 else session_id
        states.append(state(name, session_id, closing))
        if name in (B, C):
            found[name] = Held(states[-1], persisted, low, data.draw(st.integers(low, 50)))
    try:
        accepted = accept_loss(metadata(*states), found, GONE, [A, D])
    except LossRefused:
        assert all(each.session_id == -1 for each in found.values())
        return
    for storage, mark in accepted.truncations.items():
        assert mark >= found[storage].low_water_mark
        found[storage] = found[storage]._replace(max_transaction_id=mark)
    assert open_with(metadata(*states)._replace(replicas=dict(accepted.states)), found) == accepted.mark


def survey(
    *,
    storages: Mapping[str, bool] | str = "away",
    healthy: Mapping[int, bool] | str = "away",
    admin: StorageReport = "",
) -> Survey:
    server = ServerReport(5, frozenset({0}), storages, healthy)
    descriptor = ServerDescriptor(1, Endpoint("s", 1), ())
    return Survey(1, {1: descriptor}, {0: (1,)}, {}, {}, {1: server}, {A: admin})


def test_nodes_contradict_the_operator() -> None:
    check_survey(survey(), 0, [A])
    check_survey(survey(storages={A: False, B: True}, healthy={0: False}), 0, [A])
    for found, text in (
        (survey(storages={A: True}), "server s:1 reaches a:1: not lost"),
        (survey(healthy={0: True}), "server s:1 says that partition 0 is well"),
        (survey(admin={0: True}), "the admin port of a:1 answers: not lost"),
    ):
        with pytest.raises(LossRefused, match=text):
            check_survey(found, 0, [A])
