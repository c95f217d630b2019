"""Every store against the dictionary: random histories, snapshots, steps that do not follow, and reopening."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.quick_files import quick_directory
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
    request_id,
)
from tests.unit.table.strategies import bounds, clock, near_envelopes, sweep_marks
from waltz.common.ids import LONG_MIN
from waltz.table.ages import LONG_MAX, Ages
from waltz.table.envelope import Batch, Envelope, Row, SweepMark, Truncate
from waltz.table.errors import StoreDamagedError, StoreError, ViewGapError
from waltz.table.rows import split_row_key, unpack_row
from waltz.table.stores.engine import Space
from waltz.table.stores.interface import PAGE_ROWS, Changes, Removal
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore, Pending, pack_pending, unpack_pending, unpack_progress
from waltz.table.stores.zones import ZONE_ROWS
from waltz.table.view import Reading


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """What these stores do at a sync is the same without a disk."""
    with quick_directory() as directory:
        yield Path(directory)


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
    assert OrderedStore(engine).progress == store.progress == (0, 0, 0, 1, LONG_MIN, request_id(0))
    assert unpack_progress(bytes(40)) == (0, 0, 0, 0, 0, b""), "the request id is not known"
    for size in (39, 41, 55, 57):
        with pytest.raises(StoreDamagedError, match=f"{size} bytes"):
            unpack_progress(bytes(size))


def test_closing_a_store_closes_its_snapshots() -> None:
    store = OrderedStore(MemoryEngine())
    snapshot = store.snapshot()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        snapshot.get(joined(b"k"))


class SmallZones(OrderedStore):
    """A removal takes many pages."""

    zone_rows = 2


class StoreMachine(RuleBasedStateMachine):
    """A store in memory, fed in writes of any size, beside the dictionary; and snapshots beside what it was.

    What is removed is taken out at any time, or never; between two pages the process may die.
    """

    def __init__(self) -> None:
        super().__init__()
        self.engine = MemoryEngine()
        self.store: OrderedStore = SmallZones(self.engine)
        self.model = Model()
        self.history: list[Envelope | None] = []
        self.seen: set[tuple[bytes, bytes]] = set()
        self.frozen = self.store.snapshot()
        self.frozen_at = 0

    @rule(part=st.lists(st.none() | near_envelopes(), min_size=1, max_size=5), max_rows=st.sampled_from((1, 3, 1000)))
    def apply(self, part: list[Envelope | None], max_rows: int) -> None:
        self.history += part
        self.seen.update((row.prefix, row.key) for each in part if isinstance(each, Batch) for row in each.rows)
        self.model.apply_all(part)
        feed(self.store, part, max_rows, take_out=False)

    @rule(pages=st.integers(1, 3))
    def take_out(self, pages: int) -> None:
        for _ in range(pages):
            self.store.remove_page()

    @rule()
    def die(self) -> None:
        """Only what the engine was given is left."""
        self.store = SmallZones(self.engine)
        self.freeze()

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
        if not self.store.removing:
            assert again.progress == self.store.progress
        assert list(again.scan(b"", None)) == list(self.store.scan(b"", None))

    @invariant()
    def store_is_the_model(self) -> None:
        tombstones = sum(row.tombstone for row in self.model.rows.values())
        progress, removal = self.store.progress, self.store.removal
        counts = (progress.rows, progress.tombstones) if removal is None or removal.mark is None else None
        assert counts in (None, (len(self.model.rows), tombstones))
        assert (progress.applied, progress.skipped) == (self.model.applied, self.model.skipped)
        assert (progress.newest_ms, progress.request_id) == (self.model.newest_ms, request_id(self.model.applied))
        assert list(Reading(self.store, 0, raw=True).scan()) == self.model.scan(raw=True)
        assert list(Reading(self.store, 0, raw=True).scan(reverse=True)) == self.model.scan(raw=True)[::-1]
        for prefix, key in self.seen:
            assert Reading(self.store, 0, raw=True).get(prefix, [key]) == [self.model.rows.get((prefix, key))]
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


@pytest.fixture
def small_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderedStore, "zone_rows", 5)


@pytest.mark.deep
@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.usefixtures("small_zones")
def test_a_removal_goes_on_page_by_page_beside_everything_else(name: str, tmp_path: Path) -> None:
    """Also after a restart at any page. Whatever is read, it is as if all pages were done at once."""
    chance = random.Random(5)
    history = random_history(seed=12, transactions=1200, keys=40)
    model = Model()
    store = opened(name, tmp_path)
    applied: list[Envelope | None] = []
    met = 0
    for start in range(0, len(history), 7):
        part = history[start : start + 7]
        applied += part
        model.apply_all(part)
        feed(store, part, take_out=False)
        for _ in range(chance.randrange(4)):
            met += store.removing
            store.remove_page()
        if name in ON_DISK and chance.random() < 0.2:
            store.close()
            store = opened(name, tmp_path)
        if chance.random() < 0.3:
            snapshot = store.snapshot()
            check_equal(store, model, chance, counts=not store.removing)
            before = Model()
            before.apply_all(applied)
            more = [Batch(5, [Row(b"", b"1", b"new")])]
            applied += more
            model.apply_all(more)
            feed(store, more, take_out=False)
            store.remove_page()
            check_equal(snapshot, before, chance, counts=False)
            snapshot.close()
    assert met > 50
    feed(store, [])
    assert not store.removing
    check_equal(store, model, chance)
    store.close()


class Counting(MemoryEngine):
    """Counts what is read of the rows, and what is written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.most = 0

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        page = super().page(space, start, end, limit, reverse=reverse)
        if space is Space.ROWS:
            self.read += len(page)
            self.most = max(self.most, len(page))
        return page

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        self.most = max(self.most, len(deletes))
        super().write(puts, deletes)

    def cost(self) -> int:
        """Rows that were read since the last call."""
        read, self.read = self.read, 0
        return read


ROWS = 8_000
FIRST_MS = 1_000_000


def large_table() -> tuple[Counting, OrderedStore]:
    """A row a millisecond, in an order of their keys that is not that of their times."""
    engine = Counting()
    store = OrderedStore(engine)
    keys = [b"%08d" % number for number in range(ROWS)]
    random.Random(6).shuffle(keys)
    feed(store, [Batch(FIRST_MS + number, [Row(b"", key, b"v")]) for number, key in enumerate(keys)])
    engine.cost()
    return engine, store


def test_a_mark_that_can_remove_nothing_costs_nothing() -> None:
    engine, store = large_table()
    old = FIRST_MS - 1
    for mark in (
        SweepMark(0),
        SweepMark(0, row_written_at_ms=old, row_timestamp_ms=FIRST_MS),
        SweepMark(0, tombstone_timestamp_ms=LONG_MAX, tombstone_written_at_ms=LONG_MAX),
    ):
        assert not store.may_remove(mark)
        feed(store, [mark], take_out=False)
        assert not store.removing
    feed(store, [Truncate(0)])
    engine.cost()
    feed(store, [Truncate(0), SweepMark(0, row_written_at_ms=LONG_MAX)], take_out=False)
    assert not store.removing
    assert engine.cost() == 0


def test_pages_of_a_removal_are_small() -> None:
    engine, store = large_table()
    for envelope in (SweepMark(0, row_written_at_ms=FIRST_MS + ROWS // 2), Truncate(0)):
        engine.most = pages = 0
        feed(store, [envelope], take_out=False)
        assert (store.removing, engine.most) == (True, 0)
        while store.removing:
            store.remove_page()
            pages += 1
        assert 0 < engine.most <= ZONE_ROWS + 1
        assert pages >= ROWS // 2 // ZONE_ROWS
    assert store.progress.rows == 0


def test_after_a_look_at_all_rows_only_zones_with_old_ones_are_looked_at() -> None:
    """A mark a row would otherwise be as many looks at the whole table as there are rows."""
    engine, store = large_table()
    feed(store, [SweepMark(0, row_written_at_ms=FIRST_MS + 1)])
    assert ROWS <= engine.cost() <= ROWS + 2 * ROWS // ZONE_ROWS
    for number in range(2, 30):
        feed(store, [SweepMark(0, row_written_at_ms=FIRST_MS + number)])
        assert 0 < engine.cost() <= 2 * ZONE_ROWS + 1
        assert store.progress.rows == ROWS - number
    feed(store, [Batch(5, [Row(b"", b"new and old", b"")]), SweepMark(0, row_written_at_ms=6)])
    assert 0 < engine.cost() <= 2 * ZONE_ROWS + 1
    assert store.progress.rows == ROWS - 29


def test_zones_are_as_many_as_the_rows_need() -> None:
    """Also when old keys go and new ones come at the end, for ever."""
    engine, store = large_table()
    feed(store, [SweepMark(0, row_written_at_ms=FIRST_MS + 1)])
    most = len(engine.page(Space.ZONES, b"", None, 10_000))
    assert ROWS // ZONE_ROWS <= most <= 2 * ROWS // ZONE_ROWS
    for number in range(40):
        now_ms = FIRST_MS + ROWS * (number + 1)
        feed(store, [Batch(now_ms, [Row(b"", b"%08d-%d" % (ROWS + number, row), b"") for row in range(1000)])])
        feed(store, [SweepMark(now_ms, row_written_at_ms=now_ms - 3 * ROWS)])
        zones = engine.page(Space.ZONES, b"", None, 10_000)
        assert len(zones) <= 3 + 2 * store.progress.rows // ZONE_ROWS
    feed(store, [Truncate(0)])
    assert len(engine.page(Space.ZONES, b"", None, 10_000)) == 1


def test_a_removal_that_is_none_is_damage() -> None:
    for pending in (Pending(Removal(7, None), b""), Pending(Removal(7, SweepMark(1, 2, 3, 4, 5)), b"\x00\x01k")):
        assert unpack_pending(pack_pending(pending)) == pending
    with pytest.raises(StoreDamagedError, match="48 bytes"):
        unpack_pending(bytes(48))


@pytest.mark.parametrize("name", ON_DISK)
def test_a_closed_store_says_so(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path)
    store.close()
    with pytest.raises(StoreError):
        store.get(joined(b"k"))
    with pytest.raises(StoreError):
        feed(store, [None])
