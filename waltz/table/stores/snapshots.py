"""Snapshots of a store over an engine: the rows as of one transaction, while the store continues."""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from waltz.table.errors import StoreError
from waltz.table.stores.interface import PAGE_ROWS, IndexEntry, Progress, Removal, Snapshot


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
        self._before: dict[bytes, bytes | None] = {}
        self._changed: list[bytes] = []  # their keys, sorted when they are needed
        self._sorted = True

    def remember(self, before: Mapping[bytes, bytes | None]) -> None:
        """Keep rows as they were before a change; ``None`` for a row that did not exist."""
        fresh = before.keys() - self._before.keys()
        self._before.update((key, before[key]) for key in fresh)
        self._changed += fresh
        self._sorted = False

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        live = self._open_store().stored(keys)
        before = self._before
        return [self._visible(before.get(key, row)) for key, row in zip(keys, live, strict=True)]

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for page in self.pages(start, end, reverse=reverse):
            yield from page

    def pages(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[list[tuple[bytes, bytes]]]:
        while True:
            page = self._open_store().stored_page(start, end, reverse=reverse)
            last = len(page) < PAGE_ROWS
            if reverse:
                low, high = (start if last else page[-1][0]), end
            else:
                low, high = start, (end if last else page[-1][0] + b"\x00")
            yield self._as_before(page, low, high, reverse=reverse)
            if last:
                return
            start, end = (start, low) if reverse else (page[-1][0] + b"\x00", end)

    def _as_before(
        self, page: list[tuple[bytes, bytes]], low: bytes, high: bytes | None, *, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        changed = self._changed_in(low, high)
        if not changed and self._removal is None:
            return page
        rows: dict[bytes, bytes | None] = dict(page)
        rows.update((key, self._before[key]) for key in changed)
        return [(key, row) for key in sorted(rows, reverse=reverse) if (row := self._visible(rows[key])) is not None]

    def _visible(self, row: bytes | None) -> bytes | None:
        removal = self._removal
        return None if row is None or (removal is not None and removal.voids(row)) else row

    def _changed_in(self, low: bytes, high: bytes | None) -> list[bytes]:
        if not self._sorted:
            self._changed.sort()
            self._sorted = True
        behind = len(self._changed) if high is None else bisect_left(self._changed, high)
        return self._changed[bisect_left(self._changed, low) : behind]

    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        return self._open_store().take_index(prefix, after, limit, self.progress.applied)

    def _open_store(self) -> Live:
        if self._store is None:
            raise StoreError("the snapshot is closed")
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.forget(self)
            self._store = None
            self._before = {}
            self._changed = []
