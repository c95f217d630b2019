"""From a log to steps, and from rows to what readers see."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.table.model import Model
from tests.unit.table.stores.cases import encoded, feed
from tests.unit.table.strategies import batches, near_envelopes
from waltz.table import codecs
from waltz.table.ages import NO_ROWS, Ages, oldest_of
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Envelope, Row, SweepMark, Truncate, encode
from waltz.table.errors import CodecUnavailableError
from waltz.table.rows import RowHead, row_key
from waltz.table.stores.interface import Changes, IndexEntry, Removal
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.view import KeyRange, Reading, steps


def store_of(*envelopes: Envelope | None) -> OrderedStore:
    store = OrderedStore(MemoryEngine())
    feed(store, envelopes)
    return store


def keys_of(reading: Reading, *ranges: KeyRange, reverse: bool = False) -> list[tuple[bytes, bytes]]:
    return [(row.prefix, row.key) for row in reading.scan(ranges or None, reverse=reverse)]


def test_a_write_ends_behind_the_transaction_that_reaches_the_limit() -> None:
    batch = encoded(Batch(1, [Row(b"", b"%d" % row, b"") for row in range(4)]))
    records = [(number, batch) for number in range(5)]
    assert [(step.after, step.applied) for step in steps(records, -1, max_rows=7)] == [(-1, 1), (1, 3), (3, 4)]
    assert list(steps([], 5)) == []


def test_removals_stand_alone() -> None:
    mark = SweepMark(1, 2, 3, 4, 5)
    envelopes = [Batch(1, [Row(b"p", b"k", b"v")]), None, Truncate(1), mark, None]
    found = list(steps(list(enumerate(map(encoded, envelopes), 7)), 6))
    first, truncate, sweep, last = found
    assert isinstance(first, Changes)
    assert (first.after, first.applied, first.skipped) == (6, 8, 1)
    assert list(first.rows) == [row_key(b"p", b"k")]
    assert first.prefixed == [IndexEntry(b"p", 7, 0, b"k")]
    assert (truncate, sweep) == (Removal(9, None), Removal(10, mark))
    assert truncate.after == 8
    assert last == Changes(10, 11, {}, [], 1, NO_ROWS)


@given(st.lists(st.none() | near_envelopes(), max_size=8), st.integers(1, 6))
def test_steps_follow_each_other_and_hold_every_transaction(envelopes: list[Envelope | None], max_rows: int) -> None:
    after = -1
    skipped = 0
    for step in steps(list(enumerate(map(encoded, envelopes))), -1, max_rows=max_rows):
        assert step.after == after < step.applied
        after = step.applied
        skipped += step.skipped if isinstance(step, Changes) else 0
    assert after == len(envelopes) - 1
    assert skipped == envelopes.count(None)


@given(st.lists(near_envelopes() | batches(), max_size=8))
def test_a_step_knows_how_old_its_rows_are(envelopes: list[Envelope]) -> None:
    """Rows that lose within it count as well."""
    for step in steps(list(enumerate(map(encoded, envelopes))), -1, max_rows=3):
        if isinstance(step, Changes):
            heads = [
                RowHead(
                    batch.written_at_ms if row.timestamp_ms is None else row.timestamp_ms,
                    batch.written_at_ms,
                    row.tombstone,
                )
                for batch in envelopes[step.after + 1 : step.applied + 1]
                if isinstance(batch, Batch)
                for row in batch.rows
            ]
            assert step.oldest == oldest_of(heads)


def test_a_view_stops_before_what_only_others_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it skipped, the view would differ from those that have the library."""
    data = encode(Batch(1, [Row(b"", b"b", b"v" * 500)]), Codec.ZSTD)
    records = [(0, encoded(Batch(1, [Row(b"", b"a", b"")]))), (1, data), (2, b"")]
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs._functions.cache_clear()
    found = steps(records, -1)
    assert next(found).applied == 0
    with pytest.raises(CodecUnavailableError):
        next(found)


def test_a_body_beyond_the_limit_is_skipped() -> None:
    data = encode(Batch(1, [Row(b"", b"b", b"v" * 500)]), Codec.ZLIB)
    (step,) = steps([(0, data)], -1, max_body_bytes=500)
    assert isinstance(step, Changes)
    assert step.skipped == 1


def test_the_last_of_equal_rows_wins_and_an_older_one_does_not() -> None:
    store = store_of(
        Batch(10, [Row(b"", b"twice", b"first"), Row(b"", b"twice", b"last")]),
        Batch(10, [Row(b"", b"old", b"new", 20), Row(b"", b"old", b"old", 19)]),
        Batch(9, [Row(b"", b"twice", b"older"), Row(b"", b"old", b"newest", 21)]),
    )
    rows = Reading(store, 0).get(b"", [b"twice", b"old", b"never"])
    assert [row and row.value for row in rows] == [b"last", b"newest", None]


def test_what_was_swept_does_not_come_back_but_a_late_row_may_win() -> None:
    deleted = [Batch(10, [Row(b"", b"k", b"v")]), Batch(11, [Row(b"", b"k", None, tombstone=True)])]
    late = Batch(12, [Row(b"", b"k", b"late", 5)])
    (row,) = Reading(store_of(*deleted, late), 0).get(b"", [b"k"])
    assert row is None
    swept = store_of(*deleted, SweepMark(12, tombstone_timestamp_ms=12))
    assert Reading(swept, 0, raw=True).get(b"", [b"k"]) == [None]
    feed(swept, [late])
    (row,) = Reading(swept, 0).get(b"", [b"k"])
    assert row is not None
    assert row.value == b"late"


def test_a_truncate_voids_what_came_before_it() -> None:
    store = store_of(Batch(10, [Row(b"p", b"k", b"v", 99)]), Truncate(11), Batch(5, [Row(b"p", b"k2", b"v")]))
    assert keys_of(Reading(store, 0, raw=True)) == [(b"p", b"k2")]
    assert len(store.take_prefix(b"p", -1, 10)) == 2


def test_readers_hide_what_is_deleted_or_too_old() -> None:
    store = store_of(
        Batch(100, [Row(b"", b"a", b"", 50), Row(b"", b"b", b""), Row(b"", b"c", None, 99, tombstone=True)])
    )
    assert keys_of(Reading(store, 149, Ages(row_timestamp_ms=100))) == [(b"", b"a"), (b"", b"b")]
    young = Reading(store, 150, Ages(row_timestamp_ms=100))
    assert keys_of(young) == [(b"", b"b")]
    assert young.get(b"", [b"a", b"c"]) == [None, None]
    assert keys_of(Reading(store, 200, Ages(row_written_at_ms=100))) == []
    raw = Reading(store, 10_000, Ages(1, 1, 1, 1), raw=True)
    assert keys_of(raw) == [(b"", b"a"), (b"", b"b"), (b"", b"c")]
    assert raw.approximate_count() == 3
    assert young.approximate_count() == 2


def test_ranges_come_one_after_the_other() -> None:
    rows = [Row(prefix, key, b"") for prefix in (b"", b"a", b"b") for key in (b"1", b"2", b"3")]
    reading = Reading(store_of(Batch(1, rows)), 0)
    assert keys_of(reading, KeyRange(b"a")) == [(b"a", b"1"), (b"a", b"2"), (b"a", b"3")]
    assert keys_of(reading, KeyRange(b"a", b"2")) == [(b"a", b"2"), (b"a", b"3")]
    assert keys_of(reading, KeyRange(b"a", b"1", b"3"), reverse=True) == [(b"a", b"2"), (b"a", b"1")]
    assert keys_of(reading, KeyRange(b"", b"3", b"2", end_prefix=b"a")) == [(b"", b"3"), (b"a", b"1")]
    assert keys_of(reading, KeyRange(b"b", b"3"), KeyRange(b"", end=b"2")) == [(b"b", b"3"), (b"", b"1")]
    assert keys_of(reading, KeyRange(b"b", end_prefix=b"a")) == []


@given(st.lists(near_envelopes(), max_size=10))
def test_a_view_is_a_function_of_the_log(envelopes: list[Envelope]) -> None:
    model = Model()
    model.apply_all(envelopes)
    assert list(Reading(store_of(*envelopes), 0, raw=True).scan()) == model.scan(raw=True)
