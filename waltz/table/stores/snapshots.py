"""Snapshots of a store over an engine: the rows as of one transaction, while the store continues."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from waltz.table.errors import StoreError
from waltz.table.stores.interface import PAGE_ROWS, IndexEntry, Progress, Removal, Snapshot
from waltz.table.stores.key_space import KeySpace

_NO_ROW = b""
"""Kept for a row that did not exist: no row is empty."""


class Live(Protocol):
    """The reads of a snapshot from its store."""

    progress: Progress

    @property
    def removal(self) -> Removal | None:
        """The removal that hides rows that are still in the engine."""

    @abstractmethod
    def stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of keys that are in the engine."""

    @abstractmethod
    def stored_page(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """The first, or last, rows of a range in the engine; :data:`PAGE_ROWS` unless there are no more."""

    @abstractmethod
    def take_index(self, prefix: bytes, after: int, limit: int, until: int) -> list[IndexEntry]:
        """Rows of a prefix up to a transaction."""

    @abstractmethod
    def forget(self, snapshot: "Overlay") -> None:
        """Stop reporting changes to a snapshot."""


class Overlay(Snapshot):
    """The rows of a store as of the snapshot: rows that have changed in the engine since are kept here.

    The engine's own snapshots are not used: they delay the reuse of pages and compaction, and LMDB cannot grow its map
    while one exists.
    """

    def __init__(self, store: Live) -> None:
        self.progress = store.progress
        self._removal = store.removal
        self._store: Live | None = store
        self._before = KeySpace()

    def remember(self, before: Mapping[bytes, bytes | None]) -> None:
        """Keep rows as they were before a change; ``None`` for a row that did not exist."""
        known = self._before.get(before)
        for (key, row), kept in zip(before.items(), known, strict=True):
            if kept is None:
                self._before.put(key, _NO_ROW if row is None else row)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        live = self._open_store().stored(keys)
        kept = self._before.get(keys)
        return [self._visible(row if old is None else old) for row, old in zip(live, kept, strict=True)]

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for page in self.pages(start, end, reverse=reverse):
            yield from page

    def pages(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[list[tuple[bytes, bytes]]]:
        while True:
            live = self._open_store().stored_page(start, end, reverse=reverse)
            kept = self._before.page(start, end, PAGE_ROWS, reverse=reverse)
            full = [part[-1][0] for part in (live, kept) if len(part) == PAGE_ROWS]
            if not full:
                yield self._merged(live, kept, reverse=reverse)
                return
            # Both are known up to the nearer one of their last keys.
            if reverse:
                end = max(full)
                live, kept = ([row for row in part if row[0] >= end] for part in (live, kept))
            else:
                last = min(full)
                start = last + b"\x00"
                live, kept = ([row for row in part if row[0] <= last] for part in (live, kept))
            yield self._merged(live, kept, reverse=reverse)

    def _merged(
        self, live: list[tuple[bytes, bytes]], kept: list[tuple[bytes, bytes]], *, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        if not kept and self._removal is None:
            return live
        rows = dict(live)
        rows.update(kept)
        return [(key, row) for key in sorted(rows, reverse=reverse) if self._visible(row := rows[key]) is not None]

    def _visible(self, row: bytes | None) -> bytes | None:
        if not row:
            return None
        return None if self._removal is not None and self._removal.voids(row) else row

    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        return self._open_store().take_index(prefix, after, limit, self.progress.applied)

    def _open_store(self) -> Live:
        if self._store is None:
            raise StoreError("the snapshot is closed")
        return self._store

    def detach(self) -> None:
        """End the reads, but keep the memory until the close."""
        if self._store is not None:
            self._store.forget(self)
            self._store = None

    def release_page(self) -> bool:
        self.detach()
        return self._before.release_page()

    def close(self) -> None:
        self.detach()
        self._before = KeySpace()
