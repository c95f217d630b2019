"""Rows in memory: rebuilt from the log whenever a process starts."""

from collections.abc import Iterable, Sequence

from waltz.table.stores.engine import Engine, Space
from waltz.table.stores.key_space import KeySpace


class MemoryEngine(Engine):
    """Dictionaries, with the keys of each space in order."""

    def __init__(self) -> None:
        self._spaces = {space: KeySpace() for space in Space}

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

    def release_page(self) -> bool:
        return any(space.release_page() for space in self._spaces.values())

    def close(self) -> None:
        self._spaces = {space: KeySpace() for space in Space}
