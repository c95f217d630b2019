"""Entries in memory beside a dictionary."""

import random
from itertools import pairwise

import pytest

from waltz.table.stores import key_space
from waltz.table.stores.key_space import KeySpace


@pytest.mark.parametrize("seed", range(4))
def test_entries_are_those_of_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_space, "_MAX_UNORDERED", 5)
    chance = random.Random(seed)
    space = KeySpace()
    known: dict[bytes, bytes] = {}
    for step in range(600):
        for _ in range(chance.randrange(4)):
            key, value = b"%03d" % chance.randrange(300), b"%d" % step
            space.put(key, value)
            known[key] = value
        gone = [b"%03d" % chance.randrange(300) for _ in range(chance.randrange(3))]
        gone = [*dict.fromkeys(gone)]
        space.delete(gone)
        for key in gone:
            known.pop(key, None)
        asked = [b"%03d" % chance.randrange(300) for _ in range(5)]
        assert space.get(asked) == [known.get(key) for key in asked]
        if chance.random() < 0.3:
            in_order = sorted(known.items())
            assert space.page(b"", None, 1000) == in_order
            assert space.page(b"", None, 7, reverse=True) == in_order[::-1][:7]


def test_spaces_share_nothing() -> None:
    first, second = KeySpace(), KeySpace()
    first.put(b"a", b"1")
    assert second.get([b"a"]) == [None]
    assert second.page(b"", None, 10) == []


def test_the_memory_goes_in_pages() -> None:
    space = KeySpace()
    for number in range(50_000):
        space.put(b"%d" % number, b"")
    pages, left = 0, [50_000]
    while space.release_page():
        pages += 1
        left.append(sum(map(len, space._entries)))
    assert max(before - after for before, after in pairwise(left)) <= 2 * key_space._RELEASED_ENTRIES
    assert left[-1] == 0
    assert pages >= 5


def test_few_entries_go_in_one_page() -> None:
    space = KeySpace()
    assert not space.release_page()
    space.put(b"a", b"")
    assert not space.release_page()
