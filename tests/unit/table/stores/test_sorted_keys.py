"""Keys in order beside a sorted list."""

import gc
import random

import pytest

from waltz.table.stores import sorted_keys
from waltz.table.stores.sorted_keys import CHUNK_KEYS, WAITING_KEYS, SortedKeys


def check_form(keys: SortedKeys) -> None:
    """All keys lie within the bounds of their chunk, in order, and no two neighbours could be one chunk."""
    bounds, chunks, waiting = keys._bounds, keys._chunks, keys._waiting
    assert len(bounds) == len(chunks) == len(waiting)
    assert bounds[0] == b""
    for bound, behind, *both in zip(bounds, [*bounds[1:], None], chunks, waiting, strict=True):
        for part in both:
            assert list(part) == sorted(part)
            assert all(bound <= key and (behind is None or key < behind) for key in part)
    assert max(map(len, chunks)) <= 2 * sorted_keys.CHUNK_KEYS
    assert max(map(len, waiting)) <= sorted_keys.WAITING_KEYS


@pytest.mark.parametrize("seed", range(6))
def test_pages_are_those_of_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "CHUNK_KEYS", 4)
    monkeypatch.setattr(sorted_keys, "WAITING_KEYS", 2)
    chance = random.Random(seed)
    keys = SortedKeys()
    known: set[bytes] = set()
    for _ in range(400):
        new = {b"%03d" % chance.randrange(400) for _ in range(chance.choice((0, 1, 1, 3, 30)))} - known
        keys.add(new)
        known |= new
        gone = chance.sample(sorted(known), min(len(known), chance.choice((0, 1, 5, 5))))
        if chance.random() < 0.02:
            gone = sorted(known)
        keys.remove(gone)
        known -= set(gone)
        check_form(keys)
        in_order = sorted(known)
        assert keys.page(b"", None, 1000) == in_order
        start, end = b"%03d" % chance.randrange(410), chance.choice((None, b"%03d" % chance.randrange(410)))
        inside = [key for key in in_order if start <= key and (end is None or key < end)]
        for limit in (1, 5, 1000):
            assert keys.page(start, end, limit) == inside[:limit]
            assert keys.page(start, end, limit, reverse=True) == inside[::-1][:limit]


def test_chunks_are_neither_large_nor_many() -> None:
    """A write makes chunks anew, and the garbage collector looks at the list of chunks."""
    keys = SortedKeys()
    for start in (0, 50_000, 20_000):
        keys.add(b"%08d" % number for number in range(start, start + 10_000))
    for number in range(10_000, 20_000):
        keys.add([b"%08d" % number])
    keys.add(sorted(b"%08d" % number for number in range(60_000, 100_000))[::-1])
    check_form(keys)
    assert len(keys._chunks) <= 80_000 / CHUNK_KEYS + 1
    assert len(keys.page(b"", None, 1 << 20)) == 80_000


def test_chunks_that_have_become_small_become_one() -> None:
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(100_000))
    for start in range(0, 100_000, 1000):  # as a sweep does
        keys.remove([b"%08d" % number for number in range(start, start + 1000) if number % 100])
    check_form(keys)
    assert len(keys._chunks) <= 2 * 1000 / CHUNK_KEYS + 1
    assert keys.page(b"", None, 1 << 20) == [b"%08d" % number for number in range(0, 100_000, 100)]


def test_a_new_key_does_not_make_its_chunk_anew() -> None:
    chance = random.Random(1)
    keys = SortedKeys()
    keys.add(chance.randbytes(8) for _ in range(50_000))
    placed = keys.placed_keys
    for _ in range(10_000):
        keys.add([chance.randbytes(8)])
    assert keys.placed_keys - placed <= 10_000 * (WAITING_KEYS / 2 + 2 * CHUNK_KEYS / WAITING_KEYS)


def test_the_memory_goes_in_pages() -> None:
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(50_000))
    pages = 1
    while keys.release_page():
        pages += 1
    assert pages >= 3
    assert not keys._chunks
    assert not keys._waiting


def test_the_garbage_collector_leaves_the_keys_alone() -> None:
    """Or it would hold the loop for as long as a look at all of them takes."""
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(0, 10_000, 2))
    keys.add(b"%08d" % number for number in range(1, 10_000, 500))
    assert any(keys._waiting)
    gc.collect()
    assert not any(map(gc.is_tracked, keys._chunks + keys._waiting))


def test_placed_keys_are_those_of_all_chunks_ever_made() -> None:
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(10))
    keys.add([b"x"])
    keys.remove([b"x"])
    assert keys.placed_keys == 10 + 11 + 10
    keys.add(b"%08d" % number for number in range(10, 11 + WAITING_KEYS))
    assert keys.placed_keys == 10 + 11 + 10 + 11 + WAITING_KEYS
