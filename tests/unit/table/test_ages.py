"""Hidden exactly at an age, and removed by the mark of the instant at which it is hidden."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.table.strategies import bounds, clock, sweep_marks
from waltz.table.ages import (
    NO_AGES,
    Ages,
    due_mark,
    is_expired,
    is_swept,
    may_be_swept,
    oldest_of,
    sweep_mark,
)
from waltz.table.envelope import NO_BOUND, SweepMark
from waltz.table.rows import RowHead

ages = st.builds(Ages, *(st.integers(0, 20) for _ in range(4)))
heads = st.builds(RowHead, clock, clock, st.booleans())


def test_a_row_is_hidden_at_its_age_and_not_before() -> None:
    row = RowHead(timestamp_ms=100, written_at_ms=200, tombstone=False)
    assert not is_expired(row, 1000, NO_AGES)
    assert not is_expired(row, 149, Ages(row_timestamp_ms=50))
    assert is_expired(row, 150, Ages(row_timestamp_ms=50))
    assert not is_expired(row, 249, Ages(row_written_at_ms=50))
    assert is_expired(row, 250, Ages(row_written_at_ms=50))


@pytest.mark.parametrize(
    ("mark", "row_goes", "tombstone_goes"),
    [
        (SweepMark(0), False, False),
        (SweepMark(0, tombstone_timestamp_ms=100), False, False),
        (SweepMark(0, tombstone_timestamp_ms=101), False, True),
        (SweepMark(0, tombstone_written_at_ms=200), False, False),
        (SweepMark(0, tombstone_written_at_ms=201), False, True),
        (SweepMark(0, row_timestamp_ms=100), False, False),
        (SweepMark(0, row_timestamp_ms=101), True, True),
        (SweepMark(0, row_written_at_ms=200), False, False),
        (SweepMark(0, row_written_at_ms=201), True, True),
    ],
)
def test_each_bound_removes_what_is_below_it(mark: SweepMark, row_goes: bool, tombstone_goes: bool) -> None:
    assert is_swept(RowHead(100, 200, tombstone=False), mark) == row_goes
    assert is_swept(RowHead(100, 200, tombstone=True), mark) == tombstone_goes


def test_no_bound_removes_not_even_the_oldest() -> None:
    assert not is_swept(RowHead(NO_BOUND, NO_BOUND, tombstone=True), SweepMark(0))


def test_ages_that_are_not_set_set_no_bound() -> None:
    assert sweep_mark(1000, NO_AGES) is None
    assert sweep_mark(1000, Ages(row_timestamp_ms=10)) == SweepMark(1000, NO_BOUND, NO_BOUND, 991, NO_BOUND)


@given(st.lists(heads, max_size=5), heads, sweep_marks(bounds))
def test_the_least_times_of_rows_tell_whether_a_mark_may_remove_one(
    rows: list[RowHead], more: RowHead, mark: SweepMark
) -> None:
    oldest = oldest_of(rows)
    assert may_be_swept(oldest, mark) == any(is_swept(row, mark) for row in rows)
    assert oldest.beside(more) == oldest_of([*rows, more]) == oldest.and_(oldest_of([more]))


@given(heads, clock, ages)
def test_what_is_expired_is_what_the_mark_of_that_instant_removes(row: RowHead, now_ms: int, ages: Ages) -> None:
    alive = row._replace(tombstone=False)
    mark = sweep_mark(now_ms, ages)
    assert is_expired(alive, now_ms, ages) == (mark is not None and is_swept(alive, mark))


@given(heads, clock, ages, ages)
def test_a_sweep_is_due_an_interval_after_the_age(row: RowHead, now_ms: int, ages: Ages, intervals: Ages) -> None:
    due = due_mark(now_ms, ages, intervals)
    by_timestamp_ms, by_writing_ms = now_ms - row.timestamp_ms, now_ms - row.written_at_ms
    past = (by_timestamp_ms, by_writing_ms, by_timestamp_ms, by_writing_ms)
    reached = [age > 0 and ms >= age + interval for ms, age, interval in zip(past, ages, intervals, strict=True)]
    assert (due is not None and is_swept(row, due)) == (any(reached[2:]) or (row.tombstone and any(reached[:2])))
