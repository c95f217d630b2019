"""What the log says about replicas."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from waltz.common.replica_states import ReplicaStatus
from waltz.server.process.replica_journal import ReplicaJournal, under_replicated
from waltz.server.store.replica.replica_view import ReplicaView

A, B, C = ("a:6000", "b:6000", "c:6000")


def views(**lags: int | None) -> tuple[ReplicaView, ...]:
    """Replicas that are current, but for those that lag or, with ``None``, are away."""
    found = []
    for storage in (A, B, C):
        lag = lags.get(storage[0], 0)
        status = {None: ReplicaStatus.AWAY, 0: ReplicaStatus.CURRENT}.get(lag, ReplicaStatus.LAGGING)
        found.append(ReplicaView(storage, status, lag))
    return tuple(found)


def test_a_state_that_lasts_is_told_once_and_its_end_too() -> None:
    journal = ReplicaJournal()
    assert journal.look(0, views()) == []
    assert journal.look(0, views(b=12)) == []
    assert journal.look(0, views(b=14)) == [
        (
            logging.WARNING,
            "partition 0: replica b:6000 is lagging, 14 transactions behind; 2 of 3 replicas are current",
            0,
            B,
        )
    ]
    assert journal.look(0, views(b=900)) == []
    assert journal.look(0, views(b=None)) == []
    assert journal.look(0, views(b=None)) == [
        (logging.WARNING, "partition 0: replica b:6000 is away (was lagging); 2 of 3 replicas are current", 0, B)
    ]
    assert journal.look(0, views()) == []
    assert journal.look(0, views()) == [
        (logging.INFO, "partition 0: replica b:6000 is current (was away); 3 of 3 replicas are current", 0, B)
    ]


def test_what_passes_between_two_looks_is_not_told() -> None:
    journal = ReplicaJournal()
    for lag in (0, 5, 0, 5, None, 0, 0):
        assert journal.look(0, views(a=lag)) == []


def test_a_replica_that_was_never_current_is_told_and_a_partition_that_leaves_is_forgotten() -> None:
    journal = ReplicaJournal()
    assert journal.look(7, views(c=None)) == []
    ((level, text, *where),) = journal.look(7, views(c=None))
    assert (level, text.split(";")[0]) == (logging.WARNING, "partition 7: replica c:6000 is away")
    assert where == [7, C]
    journal.keep({8})
    assert journal.look(7, views()) == []
    assert journal.look(7, views()) == []


def test_a_refused_replica_is_an_error() -> None:
    journal = ReplicaJournal()
    refused = (ReplicaView(A, ReplicaStatus.REFUSED, None),)
    journal.look(0, refused)
    ((level, *_),) = journal.look(0, refused)
    assert level == logging.ERROR


@given(st.lists(st.sampled_from([*ReplicaStatus]), max_size=30))
def test_every_state_that_lasts_is_told_unless_it_was_told_last(states: list[ReplicaStatus]) -> None:
    journal, told, before = ReplicaJournal(), ReplicaStatus.CURRENT, None
    for status in states:
        lines = journal.look(0, (ReplicaView(A, status, None),))
        assert len(lines) == (status is before and status is not told)
        if lines:
            told = status
        before = status


def test_under_replicated() -> None:
    assert not under_replicated(views())
    assert under_replicated(views(a=1))
    assert under_replicated(views(a=None))
