"""Folded rows are those of a dictionary to which one transaction after the other was applied."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.table.logs import chunks_of, log_of, rows_in
from tests.unit.table import strategies
from tests.unit.table.model import Model
from waltz.common.ids import LONG_MIN
from waltz.spark.table import fold as fold_module
from waltz.spark.table.envelopes import EnvelopeReader
from waltz.spark.table.fold import Fold, hidden
from waltz.table.ages import Ages
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Envelope, Row, SweepMark, Truncate
from waltz.table.rows import TableRow

histories = st.lists(st.none() | strategies.near_envelopes(), max_size=25)
ages = st.builds(Ages, *(st.sampled_from((0, 1, 10, 30)) for _ in range(4)))


def fold_of(log: list[bytes], size: int, least_rows: int) -> Fold:
    fold = Fold(least_rows)
    reader = EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES)
    for chunk in chunks_of(log, size):
        for item in reader.read(chunk):
            if isinstance(item, pa.RecordBatch):
                fold.add(item)
            elif isinstance(item, Truncate):
                fold.truncate()
            else:
                fold.sweep(item)
    return fold


def rows_of(winners: pa.Table | None) -> list[TableRow]:
    return [] if winners is None else sorted(rows_in(winners), key=lambda row: (row.prefix, row.key))


@given(histories, st.integers(1, 30), st.integers(1, 6), ages, strategies.clock)
def test_the_winners_are_those_of_a_dictionary(
    history: list[Envelope | None], size: int, least_rows: int, ages: Ages, now_ms: int
) -> None:
    model = Model()
    model.apply_all(history)
    winners = fold_of(log_of(history), size, least_rows).winners()
    assert rows_of(winners) == model.scan(raw=True)
    if winners is not None:
        seen = winners.filter(pc.invert(hidden(winners, now_ms, ages)))
        assert rows_of(seen) == model.scan(raw=False, now_ms=now_ms, ages=ages)


@given(st.lists(strategies.envelopes(), max_size=12), ages, strategies.longs)
def test_numbers_at_the_ends_of_their_ranges(history: list[Envelope], ages: Ages, now_ms: int) -> None:
    model = Model()
    model.apply_all(history)
    winners = fold_of(log_of(history), 100, 3).winners()
    assert rows_of(winners) == model.scan(raw=True)
    if winners is not None:
        seen = winners.filter(pc.invert(hidden(winners, now_ms, ages)))
        assert rows_of(seen) == model.scan(raw=False, now_ms=now_ms, ages=ages)


def test_a_mark_that_can_remove_nothing_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = fold_of(log_of([Batch(7, [Row(b"", b"%d" % number, b"", 5)]) for number in range(10)]), 100, 1000)
    reductions: list[int] = []
    reduce = fold._reduce

    def counted() -> None:
        reductions.append(1)
        reduce()

    monkeypatch.setattr(fold, "_reduce", counted)
    for mark in (SweepMark(0), SweepMark(0, row_timestamp_ms=5, row_written_at_ms=7, tombstone_timestamp_ms=5)):
        fold.sweep(mark)
    assert not reductions
    fold.sweep(SweepMark(0, row_timestamp_ms=6))
    assert len(reductions) == 1
    assert rows_of(fold.winners()) == []


def test_what_a_mark_removed_does_not_come_back_but_what_is_appended_later_may_win() -> None:
    old, new = Row(b"", b"k", b"old", 5), Row(b"", b"k", None, 10, True)
    mark = SweepMark(20, 11, LONG_MIN, LONG_MIN, LONG_MIN)
    assert rows_of(fold_of(log_of([Batch(1, [old]), Batch(2, [new]), mark]), 10, 1).winners()) == []
    later = fold_of(log_of([Batch(1, [new]), mark, Batch(2, [old])]), 10, 1).winners()
    assert [row.value for row in rows_of(later)] == [b"old"]


def test_nothing_is_no_table() -> None:
    assert Fold().winners() is None
    fold = fold_of(log_of([SweepMark(1), Truncate(2)]), 10, 1)
    assert fold.winners() is None


def test_overwritten_rows_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten keys, written again and again: what is held stays within the bounds of rows, and of bytes."""
    monkeypatch.setattr(fold_module, "LEAST_BYTES", 1 << 20)
    batch = Batch(1, [Row(b"", b"%d" % (number % 10), bytes(1000)) for number in range(100)])
    (rows,) = EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES).read(next(chunks_of(log_of([batch]), 1)))
    assert isinstance(rows, pa.RecordBatch)
    for least_rows, most_bytes in ((500, 700_000), (1 << 30, 1_300_000)):
        fold = Fold(least_rows)
        before = pa.total_allocated_bytes()
        for _ in range(200):
            fold.add(rows)
            assert pa.total_allocated_bytes() - before < most_bytes
