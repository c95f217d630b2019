"""Deferred lock failures and flush points."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.partition.deferred import DeferredDecisions


def test_lock_failures_come_by_transaction_id_and_flush_points_in_order() -> None:
    deferred = DeferredDecisions()
    deferred.add_lock_failure(9, b"a")
    deferred.add_lock_failure(4, b"b")
    deferred.add_flush_point(6, b"c")
    deferred.add_flush_point(5, b"d")
    assert deferred.due_at == 4
    assert deferred.take_lock_failures(3) == []
    assert deferred.take_lock_failures(4) == [b"b"]
    assert deferred.due_at == 6
    assert deferred.take_flush_points(5) == []
    assert deferred.take_flush_points(6) == [b"c", b"d"]
    assert deferred.due_at == 9
    deferred.clear()
    assert deferred.take_lock_failures(100) == []
    assert deferred.due_at > 1 << 62


def test_a_flush_point_per_append_is_kept() -> None:
    deferred = DeferredDecisions()
    deferred.add_flush_point(5, b"a")
    deferred.add_flush_point(6, b"a")
    assert deferred.take_flush_points(5) == [b"a"]
    assert deferred.take_flush_points(6) == []


@given(st.lists(st.tuples(st.integers(0, 20), st.binary(min_size=1, max_size=2)), max_size=20))
def test_everything_is_taken_exactly_when_it_is_due(failures: list[tuple[int, bytes]]) -> None:
    deferred = DeferredDecisions()
    for transaction_id, req_id in failures:
        deferred.add_lock_failure(transaction_id, req_id)
    for mark in range(21):
        due = deferred.due_at <= mark
        taken = deferred.take_lock_failures(mark)
        assert sorted(taken) == sorted(req_id for transaction_id, req_id in failures if transaction_id == mark)
        assert due == bool(taken)
