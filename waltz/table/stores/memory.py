"""Rows in memory: rebuilt from the log whenever a process starts."""

from collections.abc import Iterable, Sequence
from itertools import islice

from sortedcontainers import SortedList

from waltz.table.stores.engine import Engine, Space


class _KeySpace:
    """A dictionary, and its keys in order. Those that came since they were needed in order are sorted all at once."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self._ordered: SortedList[bytes] = SortedList()
        self._unordered: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.entries:
            self._unordered.append(key)
        self.entries[key] = value

    def delete(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.entries.pop(key, None)
        self._ordered = SortedList(self.entries)
        self._unordered = []

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

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        spaces = self._spaces
        for space, key, value in puts:
            spaces[space].put(key, value)
        if deletes:
            spaces[Space.ROWS].delete(deletes)

    def close(self) -> None:
        self._spaces = {space: _KeySpace() for space in Space}
