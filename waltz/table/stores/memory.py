"""Rows in memory: rebuilt from the log whenever a process starts."""

import gc
from collections.abc import Iterable, Sequence

from waltz.table.stores.engine import Engine, Space
from waltz.table.stores.sorted_keys import SortedKeys

_DICTIONARIES = 256
"""Number of dictionaries of a key space: a dictionary that grows moves all of its entries in one step."""

_MAX_UNORDERED = 1000
"""Number of new keys that are put in order at once."""

MAX_UNSEEN_KEYS = 10_000
"""Number of keys in new chunks after which a write ends with a look of the garbage collector at what is new."""


class _KeySpace:
    """Entries by key, and the keys in order."""

    def __init__(self) -> None:
        self._entries: list[dict[bytes, bytes]] = [{} for _ in range(_DICTIONARIES)]
        self._ordered = SortedKeys()
        self._unordered: list[bytes] = []

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        entries = self._entries
        return [entries[hash(key) % _DICTIONARIES].get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        entries = self._entries[hash(key) % _DICTIONARIES]
        if key not in entries:
            self._unordered.append(key)
            if len(self._unordered) >= _MAX_UNORDERED:
                self._order()
        entries[key] = value

    def delete(self, keys: Iterable[bytes]) -> None:
        entries = self._entries
        gone = [key for key in keys if entries[hash(key) % _DICTIONARIES].pop(key, None) is not None]
        self._order()
        self._ordered.remove(gone)

    def page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        self._order()
        entries = self._entries
        keys = self._ordered.page(start, end, limit, reverse=reverse)
        return [(key, entries[hash(key) % _DICTIONARIES][key]) for key in keys]

    @property
    def placed_keys(self) -> int:
        """As of :class:`SortedKeys`."""
        return self._ordered.placed_keys

    def _order(self) -> None:
        if self._unordered:
            self._ordered.add(self._unordered)
            self._unordered = []


class MemoryEngine(Engine):
    """Dictionaries, with the keys of each space in order."""

    def __init__(self) -> None:
        self._spaces = {space: _KeySpace() for space in Space}
        self._seen_keys = 0

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._spaces[space].get(keys)

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return self._spaces[space].page(start, end, limit, reverse=reverse)

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        spaces = self._spaces
        for space, key, value in puts:
            spaces[space].put(key, value)
        gone: dict[Space, list[bytes]] = {}
        for space, key in deletes:
            gone.setdefault(space, []).append(key)
        for space, keys in gone.items():
            spaces[space].delete(keys)
        self._have_new_chunks_seen()

    def _have_new_chunks_seen(self) -> None:
        """Let the garbage collector look at new chunks a few at a time: a look at all of them would hold the loop.

        A new chunk replaces another one, and so does not bring the collector's next turn nearer.
        """
        placed = sum(space.placed_keys for space in self._spaces.values())
        if placed - self._seen_keys >= MAX_UNSEEN_KEYS:
            self._seen_keys = placed
            if gc.isenabled():
                gc.collect(0)

    def close(self) -> None:
        self._spaces = {space: _KeySpace() for space in Space}
        self._seen_keys = 0
