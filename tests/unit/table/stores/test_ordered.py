"""Every store against the dictionary: random histories, snapshots, steps that do not follow, and reopening."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.table.model import Model
from tests.unit.table.stores.cases import (
    KEEPING,
    ON_DISK,
    PREFIXES,
    check_equal,
    feed,
    joined,
    opened,
    random_history,
)
from tests.unit.table.strategies import bounds, clock, near_envelopes, sweep_marks
from waltz.table.ages import Ages
from waltz.table.envelope import Batch, Envelope, Row, Truncate
from waltz.table.errors import StoreDamagedError, StoreError, ViewGapError
from waltz.table.rows import split_row_key, unpack_row
from waltz.table.stores.interface import Changes, Removal
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import PAGE_ROWS, OrderedStore, unpack_progress
from waltz.table.view import Reading


@pytest.mark.parametrize("name", KEEPING)
def test_a_random_history_gives_what_the_dictionary_gives(name: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    history = random_history(seed=7, transactions=1500)
    model = Model()
    store = opened(name, tmp_path)
    try:
        position = 0
        while position < len(history):
            part = history[position : position + chance.randint(1, 300)]
            position += len(part)
            model.apply_all(part)
            feed(store, part, max_rows=chance.choice((1, 50, 1000)))
            check_equal(store, model, chance)
    finally:
        store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_a_store_goes_on_where_it_ended(name: str, tmp_path: Path) -> None:
    chance = random.Random(2)
    history = random_history(seed=8, transactions=300)
    model = Model()
    for start in range(0, len(history), 60):
        part = history[start : start + 60]
        model.apply_all(part)
        store = opened(name, tmp_path)
        feed(store, part)
        check_equal(store, model, chance)
        store.close()


@pytest.mark.parametrize("name", KEEPING)
def test_a_snapshot_stays_as_it_was(name: str, tmp_path: Path) -> None:
    chance = random.Random(3)
    history = random_history(seed=9, transactions=900)
    models: list[Model] = []
    model = Model()
    store = opened(name, tmp_path)
    snapshots = []
    for start in range(0, len(history), 150):
        part = history[start : start + 150]
        feed(store, part)
        model.apply_all(part)
        copy = Model()
        copy.apply_all(history[: start + 150])
        models.append(copy)
        snapshots.append(store.snapshot())
    for snapshot, before in zip(snapshots, models, strict=True):
        check_equal(snapshot, before, chance)
    snapshots[0].close()
    with pytest.raises(StoreError, match="closed"):
        snapshots[0].get([])
    check_equal(snapshots[1], models[1], chance)
    store.close()


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_does_not_see_what_is_written_meanwhile(name: str, reverse: bool, tmp_path: Path) -> None:
    """Rows are added before, between and behind the pages, changed, and all removed while the scan stands still."""
    store = opened(name, tmp_path)
    count = 3 * PAGE_ROWS + 5
    model = Model()
    rows = [Row(b"", b"%05d" % (2 * number), b"old") for number in range(count)]
    model.apply(Batch(5, rows))
    feed(store, [Batch(5, rows)])
    expected = model.scan(raw=True)[:: -1 if reverse else 1]
    for pause in (0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS):
        snapshot = store.snapshot()
        scan = Reading(snapshot, 0, raw=True).scan(reverse=reverse)
        seen = list(itertools.islice(scan, pause))
        feed(store, [Batch(6, [Row(b"", b"%05d" % number, b"new") for number in range(0, 2 * count, 3)]), Truncate(7)])
        assert seen + list(scan) == expected
        snapshot.close()
        live = Reading(store, 0, raw=True).scan(reverse=reverse)
        assert list(live) == []
        feed(store, [Batch(5, rows)])
        expected = [unpack_row(*split_row_key(key), row) for key, row in store.scan(b"", None, reverse=reverse)]
    store.close()


@pytest.mark.parametrize("name", KEEPING)
def test_steps_that_do_not_follow_are_refused(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path)
    feed(store, [Batch(1, [Row(b"", b"k", b"v")])])
    for after in (-1, 1, 5):
        with pytest.raises(ViewGapError, match="ends at transaction 0"):
            store.apply(Changes(after, after + 1, {}, [], 0))
        with pytest.raises(ViewGapError, match="ends at transaction 0"):
            store.sweep(Removal(after + 1, None))
    assert len(list(store.scan(b"", None))) == 1
    with pytest.raises(ValueError, match="not indexed"):
        store.take_prefix(b"", -1, 1)
    store.close()


def test_a_progress_that_is_none_is_damage() -> None:
    engine = MemoryEngine()
    store = OrderedStore(engine)
    feed(store, [None])
    assert OrderedStore(engine).progress == store.progress == (0, 0, 0, 1)
    with pytest.raises(StoreDamagedError, match="31 bytes"):
        unpack_progress(bytes(31))


def test_closing_a_store_closes_its_snapshots() -> None:
    store = OrderedStore(MemoryEngine())
    snapshot = store.snapshot()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        snapshot.get(joined(b"k"))


class StoreMachine(RuleBasedStateMachine):
    """A store in memory, fed in writes of any size, beside the dictionary; and snapshots beside what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.store = OrderedStore(MemoryEngine())
        self.model = Model()
        self.history: list[Envelope | None] = []
        self.frozen = self.store.snapshot()
        self.frozen_at = 0

    @rule(part=st.lists(st.none() | near_envelopes(), min_size=1, max_size=5), max_rows=st.sampled_from((1, 3, 1000)))
    def apply(self, part: list[Envelope | None], max_rows: int) -> None:
        self.history += part
        self.model.apply_all(part)
        feed(self.store, part, max_rows)

    @rule(mark=sweep_marks(bounds))
    def sweep(self, mark: Envelope) -> None:
        self.apply([mark], 1)

    @rule()
    def freeze(self) -> None:
        self.frozen.close()
        self.frozen = self.store.snapshot()
        self.frozen_at = len(self.history)

    @rule(now_ms=clock, ages=st.builds(Ages, *(st.integers(0, 20) for _ in range(4))), reverse=st.booleans())
    def read_by_the_clock(self, now_ms: int, ages: Ages, reverse: bool) -> None:
        expected = self.model.scan(raw=False, now_ms=now_ms, ages=ages)
        reading = Reading(self.store, now_ms, ages)
        assert list(reading.scan(reverse=reverse)) == expected[:: -1 if reverse else 1]
        visible = {(row.prefix, row.key): row for row in expected}
        for prefix, key in self.model.rows:
            assert reading.get(prefix, [key]) == [visible.get((prefix, key))]

    @rule()
    def build_again(self) -> None:
        """The log in one go gives the same as in pieces."""
        again = OrderedStore(MemoryEngine())
        feed(again, self.history)
        assert again.progress == self.store.progress
        assert list(again.scan(b"", None)) == list(self.store.scan(b"", None))

    @invariant()
    def store_is_the_model(self) -> None:
        tombstones = sum(row.tombstone for row in self.model.rows.values())
        assert self.store.progress == (self.model.applied, len(self.model.rows), tombstones, self.model.skipped)
        assert list(Reading(self.store, 0, raw=True).scan()) == self.model.scan(raw=True)
        for prefix in PREFIXES[1:]:
            for limit in (1, 100):
                assert self.store.take_prefix(prefix, 1, limit) == self.model.take(prefix, 1, limit)

    @invariant()
    def snapshot_is_as_it_was(self) -> None:
        before = Model()
        before.apply_all(self.history[: self.frozen_at])
        assert list(Reading(self.frozen, 0, raw=True).scan()) == before.scan(raw=True)
        assert self.frozen.take_prefix(b"a", -1, 100) == before.take(b"a", -1, 100)


StoreMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestStoreMachine = StoreMachine.TestCase


@pytest.mark.parametrize("name", ON_DISK)
def test_a_closed_store_says_so(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path)
    store.close()
    with pytest.raises(StoreError):
        store.get(joined(b"k"))
    with pytest.raises(StoreError):
        feed(store, [None])
