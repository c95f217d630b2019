"""A store over an engine: who wins, what is counted, and snapshots."""

import struct
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from waltz.common.ids import NO_TRANSACTION
from waltz.table.ages import is_swept
from waltz.table.errors import StoreDamagedError, StoreError
from waltz.table.rows import is_tombstone, position_key, split_position_key, unpack_head
from waltz.table.stores.engine import Engine, Space
from waltz.table.stores.interface import Changes, IndexEntry, Progress, Removal, Snapshot, Store, check_follows

PAGE_ROWS = 256
PROGRESS_KEY = b"progress"
"""In :attr:`Space.META`."""


_PROGRESS = struct.Struct(">4q")


def pack_progress(progress: Progress) -> bytes:
    """The progress as it is stored."""
    return _PROGRESS.pack(*progress)


def unpack_progress(stored: bytes) -> Progress:
    """The progress again. Raises :class:`~waltz.table.errors.StoreDamagedError`."""
    if len(stored) != _PROGRESS.size:
        raise StoreDamagedError(f"a progress of {len(stored)} bytes")
    return Progress(*_PROGRESS.unpack(stored))


class OrderedStore(Store):
    """Rows, index and progress in the key spaces of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Raises :class:`~waltz.table.errors.StoreDamagedError` when the progress that is stored cannot be read."""
        self._engine = engine
        self._snapshots: weakref.WeakSet[_Overlay] = weakref.WeakSet()
        (stored,) = engine.get(Space.META, [PROGRESS_KEY])
        self.progress = Progress() if stored is None else unpack_progress(stored)

    def apply(self, changes: Changes) -> None:
        check_follows(self.progress, changes)
        keys = list(changes.rows)
        before = self.get(keys)
        rows, tombstones = self.progress.rows, self.progress.tombstones
        puts: list[tuple[Space, bytes, bytes]] = []
        put = puts.append
        won: dict[bytes, bytes | None] = {}
        for (key, row), old in zip(changes.rows.items(), before, strict=True):
            if old is None:
                rows += 1
            elif old < row:
                tombstones -= is_tombstone(old)
            else:
                continue
            tombstones += is_tombstone(row)
            won[key] = old
            put((Space.ROWS, key, row))
        for prefix, transaction_id, row_number, row_part in changes.prefixed:
            key = position_key(prefix, transaction_id, row_number)
            put((Space.BY_PREFIX, key, row_part))
        skipped = self.progress.skipped + changes.skipped
        self._write(puts, [], Progress(changes.applied, rows, tombstones, skipped), won)

    def sweep(self, removal: Removal) -> None:
        check_follows(self.progress, removal)
        rows, tombstones = self.progress.rows, self.progress.tombstones
        gone: list[bytes] = []
        before: dict[bytes, bytes | None] = {}
        remembered = len(self._snapshots) > 0
        for key, row in self._live(b"", None):
            if removal.mark is None or is_swept(unpack_head(row), removal.mark):
                gone.append(key)
                if remembered:
                    before[key] = row
                rows -= 1
                tombstones -= is_tombstone(row)
        progress = Progress(removal.applied, rows, tombstones, self.progress.skipped)
        self._write([], gone, progress, before)

    def _write(
        self,
        puts: list[tuple[Space, bytes, bytes]],
        deletes: list[bytes],
        progress: Progress,
        before: dict[bytes, bytes | None],
    ) -> None:
        puts.append((Space.META, PROGRESS_KEY, pack_progress(progress)))
        self._engine.write(puts, deletes)
        self.progress = progress
        for overlay in self._snapshots:
            overlay.remember(before)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._engine.get(Space.ROWS, keys)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        snapshot = self.snapshot()
        try:
            yield from snapshot.scan(start, end, reverse=reverse)
        finally:
            snapshot.close()

    def _live(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        while page := self.page(start, end):
            yield from page
            start = page[-1][0] + b"\x00"

    def page(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """The first, or last, rows of a range as they are now; :data:`PAGE_ROWS` unless there are no more."""
        if end is not None and start >= end:
            return []  # databases differ in what they make of it
        return self._engine.page(Space.ROWS, start, end, PAGE_ROWS, reverse=reverse)

    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        return self.take_index(prefix, after, limit, self.progress.applied)

    def take_index(self, prefix: bytes, after: int, limit: int, until: int) -> list[IndexEntry]:
        """Rows of a prefix up to a transaction: what a snapshot has of the index, which only grows."""
        if not prefix:
            raise ValueError("rows without a prefix are not indexed")
        if until <= max(after, NO_TRANSACTION):
            return []
        start, end = position_key(prefix, max(after, NO_TRANSACTION) + 1, 0), position_key(prefix, until + 1, 0)
        found: list[IndexEntry] = []
        while page := self._engine.page(Space.BY_PREFIX, start, end, PAGE_ROWS):
            for key, row_part in page:
                version = split_position_key(key)
                if len(found) >= limit and found[-1].transaction_id != version.transaction_id:
                    return found
                found.append(IndexEntry(prefix, *version, row_part))
            start = page[-1][0] + b"\x00"
        return found

    def snapshot(self) -> Snapshot:
        overlay = _Overlay(self)
        self._snapshots.add(overlay)
        return overlay

    def forget(self, snapshot: "_Overlay") -> None:
        """Stop telling a snapshot what changes."""
        self._snapshots.discard(snapshot)

    def close(self) -> None:
        for overlay in list(self._snapshots):
            overlay.close()
        self._engine.close()


class _Overlay(Snapshot):
    """The rows of a store, with what has changed since as it was before.

    The engine's own snapshots are not used: they hold up the reuse of pages and compaction, and LMDB cannot grow its
    map while there is one.
    """

    def __init__(self, store: OrderedStore) -> None:
        self.progress = store.progress
        self._store: OrderedStore | None = store
        self._before: dict[bytes, bytes | None] = {}
        self._changed: list[bytes] = []  # the keys of those, sorted when they are needed
        self._sorted = True

    def remember(self, before: dict[bytes, bytes | None]) -> None:
        """Take note of rows as they were before a change; ``None`` where there was none."""
        fresh = before.keys() - self._before.keys()
        self._before.update((key, before[key]) for key in fresh)
        self._changed += fresh
        self._sorted = False

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        live = self._open_store().get(keys)
        before = self._before
        return [before.get(key, row) for key, row in zip(keys, live, strict=True)]

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        while True:
            page = self._open_store().page(start, end, reverse=reverse)
            last = len(page) < PAGE_ROWS
            if reverse:
                low, high = (start if last else page[-1][0]), end
            else:
                low, high = start, (end if last else page[-1][0] + b"\x00")
            yield from self._as_before(page, low, high, reverse=reverse)
            if last:
                return
            start, end = (start, low) if reverse else (page[-1][0] + b"\x00", end)

    def _as_before(
        self, page: list[tuple[bytes, bytes]], low: bytes, high: bytes | None, *, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        changed = self._changed_in(low, high)
        if not changed:
            return page
        rows: dict[bytes, bytes | None] = dict(page)
        rows.update((key, self._before[key]) for key in changed)
        return [(key, row) for key in sorted(rows, reverse=reverse) if (row := rows[key]) is not None]

    def _changed_in(self, low: bytes, high: bytes | None) -> list[bytes]:
        if not self._sorted:
            self._changed.sort()
            self._sorted = True
        behind = len(self._changed) if high is None else bisect_left(self._changed, high)
        return self._changed[bisect_left(self._changed, low) : behind]

    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        return self._open_store().take_index(prefix, after, limit, self.progress.applied)

    def _open_store(self) -> OrderedStore:
        if self._store is None:
            raise StoreError("the snapshot is closed")
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.forget(self)
            self._store = None
            self._before = {}
            self._changed = []
