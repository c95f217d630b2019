"""Entries by key in memory, and the keys in order."""

import gc
from collections.abc import Iterable

from waltz.table.stores.sorted_keys import SortedKeys

_DICTIONARIES = 256
"""Number of dictionaries of a key space: a dictionary that grows moves all of its entries in one step."""

_NO_ENTRIES: dict[bytes, bytes] = {}
"""In the place of each dictionary that has no entry yet: most snapshots keep few rows, or none."""

_MAX_UNORDERED = 250
"""Number of new keys that are put in order at once."""

MAX_UNSEEN_KEYS = 10_000
"""Number of keys in new chunks after which the garbage collector looks at what is new."""

_RELEASED_ENTRIES = 10_000
"""Number of entries that are let go at once, and those of one dictionary."""


class KeySpace:
    """Entries by key, and the keys in order."""

    def __init__(self) -> None:
        self._entries = [_NO_ENTRIES] * _DICTIONARIES
        self._ordered = SortedKeys()
        self._unordered: list[bytes] = []
        self._seen_keys = 0

    def get(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The entries of keys, in their order."""
        entries = self._entries
        return [entries[hash(key) % _DICTIONARIES].get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        """Write an entry."""
        place = hash(key) % _DICTIONARIES
        entries = self._entries[place]
        if key not in entries:
            if not entries:
                entries = self._entries[place] = {}
            self._unordered.append(key)
            if len(self._unordered) >= _MAX_UNORDERED:
                self._order()
        entries[key] = value

    def delete(self, keys: Iterable[bytes]) -> None:
        """Take out entries; keys without one are passed over."""
        entries = self._entries
        gone = [key for key in keys if entries[hash(key) % _DICTIONARIES].pop(key, None) is not None]
        self._order()
        self._ordered.remove(gone)
        self._have_new_chunks_seen()

    def page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """The first, or in reverse the last, ``limit`` entries of [``start``, ``end``). ``None`` is open."""
        self._order()
        entries = self._entries
        keys = self._ordered.page(start, end, limit, reverse=reverse)
        return [(key, entries[hash(key) % _DICTIONARIES][key]) for key in keys]

    def release_page(self) -> bool:
        """Let some of the memory go, after which nothing else may be asked; whether there is more."""
        if not self._ordered.placed_keys:
            return False
        left = _RELEASED_ENTRIES
        while self._entries and left > 0:
            left -= len(self._entries.pop())
        return bool(self._entries) or self._ordered.release_page()

    def _order(self) -> None:
        if self._unordered:
            self._ordered.add(self._unordered)
            self._unordered = []
            self._have_new_chunks_seen()

    def _have_new_chunks_seen(self) -> None:
        """Let the garbage collector look at new chunks a few at a time: a look at all of them would hold the loop.

        A new chunk replaces another one, and so does not bring the collector's next turn nearer.
        """
        placed = self._ordered.placed_keys
        if placed - self._seen_keys >= MAX_UNSEEN_KEYS:
            self._seen_keys = placed
            if gc.isenabled():
                gc.collect(0)
