"""Keys in order beside a sorted list."""

import gc
import random

import pytest

from waltz.table.stores import sorted_keys
from waltz.table.stores.sorted_keys import CHUNK_KEYS, SortedKeys


@pytest.mark.parametrize("seed", range(6))
def test_pages_are_those_of_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "CHUNK_KEYS", 4)
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
        in_order = sorted(known)
        assert keys.page(b"", None, 1000) == in_order
        start, end = b"%03d" % chance.randrange(410), chance.choice((None, b"%03d" % chance.randrange(410)))
        inside = [key for key in in_order if start <= key and (end is None or key < end)]
        for limit in (1, 5, 1000):
            assert keys.page(start, end, limit) == inside[:limit]
            assert keys.page(start, end, limit, reverse=True) == inside[::-1][:limit]


def test_chunks_stay_small() -> None:
    keys = SortedKeys()
    for start in (0, 50_000, 20_000):
        keys.add(b"%08d" % number for number in range(start, start + 10_000))
    for number in range(10_000, 20_000):
        keys.add([b"%08d" % number])
    assert max(map(len, keys._chunks)) <= 2 * CHUNK_KEYS
    assert len(keys.page(b"", None, 1 << 20)) == 40_000


def test_the_garbage_collector_leaves_the_keys_alone() -> None:
    """Or it would hold the loop for as long as a look at all of them takes."""
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(10_000))
    gc.collect()
    assert not any(map(gc.is_tracked, keys._chunks))


def test_placed_keys_are_those_of_all_chunks_ever_made() -> None:
    keys = SortedKeys()
    keys.add(b"%08d" % number for number in range(10))
    keys.add([b"x"])
    keys.remove([b"x"])
    assert keys.placed_keys == 10 + 11 + 10
