"""Rows in memory: rebuilt from the log whenever a process starts."""

from collections.abc import Iterable, Sequence
from itertools import islice

from sortedcontainers import SortedList

from waltz.table.stores.engine import Engine, Space

_MAX_UNORDERED = 1000
"""As many keys are put in order at once: all of a large table would take seconds."""


class _KeySpace:
    """A dictionary, and its keys in order."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self._ordered: SortedList[bytes] = SortedList()
        self._unordered: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.entries:
            self._unordered.append(key)
            if len(self._unordered) >= _MAX_UNORDERED:
                self.ordered()
        self.entries[key] = value

    def delete(self, key: bytes) -> None:
        if self.entries.pop(key, None) is not None:
            self.ordered().remove(key)

    def ordered(self) -> "SortedList[bytes]":
        if self._unordered:
            self._ordered.update(self._unordered)
            self._unordered = []
        return self._ordered


class MemoryEngine(Engine):
    """Dictionaries, with the keys of each space in order."""

    def __init__(self) -> None:
        self._spaces = {space: _KeySpace() for space in Space}

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._spaces[space].entries.get, keys))

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        key_space = self._spaces[space]
        entries = key_space.entries
        keys = key_space.ordered().irange(start, end, inclusive=(True, False), reverse=reverse)
        return [(key, entries[key]) for key in islice(keys, limit)]

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        spaces = self._spaces
        for space, key, value in puts:
            spaces[space].put(key, value)
        for space, key in deletes:
            spaces[space].delete(key)

    def close(self) -> None:
        self._spaces = {space: _KeySpace() for space in Space}
