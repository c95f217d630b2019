"""Snapshots page by page. What they show beside the dictionary: ``test_ordered``."""

import gc
import random

import pytest

from tests.unit.table.stores.cases import feed, joined
from waltz.table.envelope import Batch, Envelope, Row, SweepMark, Truncate
from waltz.table.errors import StoreError
from waltz.table.stores import ordered, snapshots
from waltz.table.stores.interface import PAGE_ROWS, Snapshot
from waltz.table.stores.key_space import MAX_UNSEEN_KEYS
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.stores.snapshots import Overlay


def test_a_page_has_no_more_rows_than_a_loop_can_be_held_for() -> None:
    """Also where there are only rows that are still to be taken out: then it is empty."""
    store = OrderedStore(MemoryEngine())
    count = 3 * PAGE_ROWS
    feed(store, [Batch(5, [Row(b"", b"%05d" % number, b"") for number in range(count)])])
    before = store.snapshot()
    feed(store, [Truncate(6)], take_out=False)
    assert store.removing
    for reverse in (False, True):
        sizes = [len(page) for page in before.pages(b"", None, reverse=reverse)]
        assert sizes == [PAGE_ROWS] * 3 + [0]
        assert [len(page) for page in store.snapshot().pages(b"", None, reverse=reverse)] == [0] * 4
    assert before.get(joined(b"00000")) != [None]
    assert store.get(joined(b"00000")) == store.snapshot().get(joined(b"00000")) == [None]


def test_a_page_has_no_more_rows_when_all_of_them_have_been_taken_out_since() -> None:
    """Then all of them come from what the snapshot has kept."""
    store = OrderedStore(MemoryEngine())
    count = 3 * PAGE_ROWS + 7
    feed(store, [Batch(5, [Row(b"", b"%05d" % number, b"") for number in range(count)])])
    before = store.snapshot()
    feed(store, [Truncate(6), Batch(7, [Row(b"", b"%05d" % number, b"x") for number in range(0, 2 * count, 3)])])
    for reverse in (False, True):
        pages = list(before.pages(b"", None, reverse=reverse))
        assert max(map(len, pages)) <= PAGE_ROWS
        keys = [key for page in pages for key, _ in page]
        assert keys == sorted(joined(*(b"%05d" % number for number in range(count))), reverse=reverse)


class Counted(bytes):
    """A key that counts how often it is compared, or looked up."""

    looks = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.looks += 1
        return bytes.__lt__(self, other)

    def __gt__(self, other: bytes) -> bool:
        Counted.looks += 1
        return bytes.__gt__(self, other)

    def __hash__(self) -> int:
        Counted.looks += 1
        return bytes.__hash__(self)


def test_a_change_beside_a_scan_looks_at_few_of_the_rows_that_have_changed_before() -> None:
    store = OrderedStore(MemoryEngine())
    overlay = Overlay(store)
    keys = [Counted(b"%08d" % number) for number in range(0, 100_000, 2)]
    for start in range(0, len(keys), 1000):
        overlay.remember(dict.fromkeys(keys[start : start + 1000]))
    list(overlay.pages(b"", None))
    Counted.looks = 0
    for number in (1, 50_001, 99_999):
        overlay.remember({Counted(b"%08d" % number): None})
        next(overlay.pages(b"00040000", None))
    assert 0 < Counted.looks < 10_000


def test_the_garbage_collector_never_has_many_of_the_keys_to_look_at_that_are_kept() -> None:
    """Rows that are replaced make new chunks only there."""
    store = OrderedStore(MemoryEngine())
    keys = [b"%05d" % number for number in range(20_000)]
    feed(store, [Batch(5, [Row(b"", key, b"") for key in keys])])
    overlay = Overlay(store)
    gc.collect()
    random.Random(1).shuffle(keys)
    for start in range(0, len(keys), 100):
        overlay.remember(dict.fromkeys(keys[start : start + 100], b"x"))
        chunks = overlay._before._ordered._chunks + overlay._before._ordered._waiting
        assert sum(len(chunk) for chunk in chunks if gc.is_tracked(chunk)) <= 2 * MAX_UNSEEN_KEYS


def snapshot_with_changes(store: OrderedStore, count: int) -> Snapshot:
    """A snapshot that has kept that many rows."""
    snapshot = store.snapshot()
    feed(store, [Batch(5, [Row(b"", b"%05d" % number, b"") for number in range(count)])])
    return snapshot


def test_what_is_kept_goes_in_pages() -> None:
    store = OrderedStore(MemoryEngine())
    snapshot = snapshot_with_changes(store, 25_000)
    pages = 1
    while snapshot.release_page():
        pages += 1
    assert pages >= 3
    with pytest.raises(StoreError, match="closed"):
        snapshot.get([b""])
    snapshot.close()
    assert len(list(store.scan(b"", None))) == 25_000


def test_the_close_of_a_store_leaves_what_is_kept_to_the_close_of_the_snapshot() -> None:
    """Or it would let all of that go in one step."""
    store = OrderedStore(MemoryEngine())
    snapshot = snapshot_with_changes(store, 25_000)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        snapshot.get([b""])
    assert snapshot.release_page()
    snapshot.close()
    assert not snapshot.release_page()


@pytest.mark.parametrize("seed", range(30))
def test_pages_show_the_state_of_the_snapshot_whatever_happens_between_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "PAGE_ROWS", 3)
    monkeypatch.setattr(snapshots, "PAGE_ROWS", 3)
    chance = random.Random(seed)
    store = OrderedStore(MemoryEngine())

    def change(now_ms: int) -> None:
        keys = [b"%02d" % chance.randrange(60) for _ in range(chance.choice((0, 1, 2, 30)))]
        envelopes: list[Envelope] = [Batch(now_ms, [Row(b"", key, b"%d" % now_ms) for key in keys])]
        if chance.random() < 0.15:
            envelopes.append(chance.choice((Truncate(now_ms), SweepMark(now_ms, row_written_at_ms=now_ms - 3))))
        feed(store, envelopes, take_out=chance.random() < 0.5)

    for now_ms in range(1, 10):
        change(now_ms)
    expected = dict(store.scan(b"", None))
    snapshot = store.snapshot()
    for now_ms in range(10, 30):
        reverse = chance.random() < 0.5
        start, end = chance.choice(((b"", None), joined(*sorted(b"%02d" % chance.randrange(61) for _ in range(2)))))
        seen = []
        for page in snapshot.pages(start, end, reverse=reverse):
            assert len(page) < 2 * 3
            seen += page
            if chance.random() < 0.3:
                change(now_ms)
        inside = [(key, row) for key, row in expected.items() if start <= key and (end is None or key < end)]
        assert seen == sorted(inside, reverse=reverse)
