"""A store over an engine: who wins, what is counted, and what is removed."""

import struct
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from waltz.common.ids import LONG_MIN, NO_TRANSACTION, ReqId
from waltz.table.ages import may_be_swept, oldest_of
from waltz.table.envelope import SweepMark
from waltz.table.errors import StoreDamagedError
from waltz.table.rows import RowHead, is_tombstone, position_key, split_position_key, unpack_head
from waltz.table.stores.engine import Engine, Space
from waltz.table.stores.interface import (
    PAGE_ROWS,
    Changes,
    IndexEntry,
    Progress,
    Removal,
    Snapshot,
    Store,
    check_follows,
)
from waltz.table.stores.snapshots import Overlay
from waltz.table.stores.zones import ZONE_ROWS, Changed, Zone, Zones, pack_zone, unpack_zone

PROGRESS_KEY = b"progress"
PENDING_KEY = b"pending"
INDEXED_KEY = b"indexed"
"""In :attr:`Space.META`."""

_PROGRESS = struct.Struct(">5q")
_PENDING = struct.Struct(">q?5q")
_INDEXED = struct.Struct(">q")
_LOADING = LONG_MIN
"""In the place of the begin of the index: rows were loaded, but not all of them."""


class Pending(NamedTuple):
    """A removal of which rows are still to be taken out."""

    removal: Removal
    reached: bytes
    """The joined key up to which, not including it, they have been."""


def pack_progress(progress: Progress) -> bytes:
    """The progress as it is stored: numbers, and the request id if it is known."""
    return _PROGRESS.pack(*progress[:-1]) + progress.request_id


def unpack_progress(stored: bytes) -> Progress:
    """The progress again. Raises :class:`~waltz.table.errors.StoreDamagedError`."""
    if len(stored) - _PROGRESS.size not in (0, ReqId.SIZE_BYTES):
        raise StoreDamagedError(f"a progress of {len(stored)} bytes")
    applied, rows, tombstones, skipped, newest_ms = _PROGRESS.unpack_from(stored)
    return Progress(applied, rows, tombstones, skipped, newest_ms, stored[_PROGRESS.size :])


def pack_pending(pending: Pending) -> bytes:
    """The removal as it is stored."""
    (applied, mark, _), reached = pending
    return _PENDING.pack(applied, mark is None, *(mark or SweepMark(0))) + reached


def unpack_pending(stored: bytes) -> Pending:
    """The removal again. Raises :class:`~waltz.table.errors.StoreDamagedError`."""
    if len(stored) < _PENDING.size:
        raise StoreDamagedError(f"a removal of {len(stored)} bytes")
    applied, removes_all, *mark = _PENDING.unpack_from(stored)
    return Pending(Removal(applied, None if removes_all else SweepMark(*mark)), stored[_PENDING.size :])


def unpack_indexed(stored: bytes) -> int:
    """The transaction behind which the index by prefix begins. Raises ``StoreDamagedError``, also during a load."""
    if len(stored) != _INDEXED.size:
        raise StoreDamagedError(f"the begin of an index in {len(stored)} bytes")
    (after,) = _INDEXED.unpack(stored)
    if after == _LOADING:
        raise StoreDamagedError("a saved snapshot was not loaded to its end")
    return int(after)


class OrderedStore(Store):
    """Rows, index and progress in the key spaces of an engine.

    A removal is recorded with the progress, and hides its rows from then on. They are taken out page by page; each page
    is one write with the key that was reached. Only zones that may hold such rows are looked at.
    """

    loads_rows: ClassVar[bool] = True

    zone_rows: ClassVar[int] = ZONE_ROWS
    """As many rows are looked at in a page of a removal."""

    def __init__(self, engine: Engine) -> None:
        """Raises :class:`~waltz.table.errors.StoreDamagedError` when what is stored of the progress cannot be read."""
        self._engine = engine
        self._snapshots: weakref.WeakSet[Overlay] = weakref.WeakSet()
        progress, pending, indexed = engine.get(Space.META, [PROGRESS_KEY, PENDING_KEY, INDEXED_KEY])
        self.progress = Progress() if progress is None else unpack_progress(progress)
        self._pending = None if pending is None else unpack_pending(pending)
        self.indexed_after = NO_TRANSACTION if indexed is None else unpack_indexed(indexed)
        zones = ((start, unpack_zone(zone)) for start, zone in self._stored(Space.ZONES))
        self._zones = Zones(zones, self.zone_rows)

    def apply(self, changes: Changes) -> None:
        check_follows(self.progress, changes)
        keys = list(changes.rows)
        removal = self.removal
        rows, tombstones = self.progress.rows, self.progress.tombstones
        puts: list[tuple[Space, bytes, bytes]] = []
        put = puts.append
        won: dict[bytes, bytes | None] = {}
        for (key, row), old in zip(changes.rows.items(), self.stored(keys), strict=True):
            if old is None:
                rows += 1
            elif removal is not None and removal.voids(old):
                if removal.mark is None:
                    rows += 1
                else:  # it is counted until it is taken out
                    tombstones -= is_tombstone(old)
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
        progress = Progress(
            changes.applied,
            rows,
            tombstones,
            self.progress.skipped + changes.skipped,
            max(self.progress.newest_ms, changes.newest_ms),
            changes.request_id,
        )
        covered = self._zones.cover(changes.oldest)
        zones = {} if covered else self._zones.lowered({key: changes.rows[key] for key in won})
        self._write(puts, [], progress, self._pending, zones, won)

    def sweep(self, removal: Removal) -> None:
        check_follows(self.progress, removal)
        while self.removing:
            self.remove_page()
        progress = self.progress._replace(applied=removal.applied, request_id=removal.request_id)
        removes = self.progress.rows > 0 and (removal.mark is None or self.may_remove(removal.mark))
        if removal.mark is None:
            progress = progress._replace(rows=0, tombstones=0)
        self._write([], [], progress, Pending(removal, b"") if removes else None, {}, {})

    def begin_load(self) -> None:
        assert self.progress == Progress(), "only an empty store is loaded"
        loading = [(Space.META, INDEXED_KEY, _INDEXED.pack(_LOADING))]
        self._write(loading, [], self.progress, None, {}, {})

    def load(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        dead = sum(is_tombstone(row) for _, row in rows)
        progress = self.progress._replace(
            rows=self.progress.rows + len(rows), tombstones=self.progress.tombstones + dead
        )
        zones = self._zones.lowered(dict(rows))
        self._write([(Space.ROWS, key, row) for key, row in rows], [], progress, None, zones, {})

    def end_load(self, progress: Progress) -> None:
        indexed = _INDEXED.pack(progress.applied)
        counted = progress._replace(rows=self.progress.rows, tombstones=self.progress.tombstones)
        self._write([(Space.META, INDEXED_KEY, indexed)], [], counted, None, {}, {})
        self.indexed_after = progress.applied

    @property
    def removal(self) -> Removal | None:
        """What hides rows that are still in the engine."""
        return None if self._pending is None else self._pending.removal

    @property
    def removing(self) -> bool:
        return self._pending is not None

    def may_remove(self, mark: SweepMark) -> bool:
        return may_be_swept(self._zones.floor, mark)

    def remove_page(self) -> None:
        if self._pending is None:
            return
        removal, reached = self._pending
        zone = self._zones.first(removal.mark, reached)
        if zone is None:
            self._zones.settle()
            self._write([], [], self.progress, None, {}, {})
            return
        start, end = zone
        page = self._engine.page(Space.ROWS, start, end, self.zone_rows + 1)
        behind = page.pop()[0] if len(page) > self.zone_rows else None
        rows, tombstones = self.progress.rows, self.progress.tombstones
        gone: dict[bytes, bytes | None] = {}
        kept: list[RowHead] = []
        for key, row in page:
            if not removal.voids(row):
                kept.append(unpack_head(row))
                continue
            gone[key] = row
            if removal.mark is not None:
                rows -= 1
                tombstones -= is_tombstone(row)
        next_key = end if behind is None else behind
        self._write(
            [],
            [(Space.ROWS, key) for key in gone],
            self.progress._replace(rows=rows, tombstones=tombstones),
            None if next_key is None else Pending(removal, next_key),
            self._zones.looked(start, behind, Zone(oldest_of(kept), len(kept))),
            gone,
        )
        if next_key is None:
            self._zones.settle()

    def _write(
        self,
        puts: list[tuple[Space, bytes, bytes]],
        deletes: list[tuple[Space, bytes]],
        progress: Progress,
        pending: Pending | None,
        zones: Changed,
        before: dict[bytes, bytes | None],
    ) -> None:
        puts.append((Space.META, PROGRESS_KEY, pack_progress(progress)))
        if pending is not None and pending is not self._pending:
            puts.append((Space.META, PENDING_KEY, pack_pending(pending)))
        elif pending is None and self._pending is not None:
            deletes.append((Space.META, PENDING_KEY))
        for start, zone in zones.items():
            if zone is None:
                deletes.append((Space.ZONES, start))
            else:
                puts.append((Space.ZONES, start, pack_zone(zone)))
        self._engine.write(puts, deletes)
        self.progress, self._pending = progress, pending
        self._zones.take_over(zones)
        for overlay in self._snapshots:
            overlay.remember(before)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self.stored(keys)
        removal = self.removal
        if removal is None:
            return rows
        return [None if row is None or removal.voids(row) else row for row in rows]

    def stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of keys that are in the engine, those that are still to be taken out among them."""
        return self._engine.get(Space.ROWS, keys)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for page in self.pages(start, end, reverse=reverse):
            yield from page

    def pages(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[list[tuple[bytes, bytes]]]:
        snapshot = self.snapshot()
        try:
            yield from snapshot.pages(start, end, reverse=reverse)
        finally:
            snapshot.close()

    def stored_page(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """The first, or last, rows of a range in the engine; :data:`PAGE_ROWS` unless there are no more."""
        if end is not None and start >= end:
            return []  # databases differ in what they make of it
        return self._engine.page(Space.ROWS, start, end, PAGE_ROWS, reverse=reverse)

    def _stored(self, space: Space) -> Iterable[tuple[bytes, bytes]]:
        start = b""
        while page := self._engine.page(space, start, None, PAGE_ROWS):
            yield from page
            start = page[-1][0] + b"\x00"

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
        overlay = Overlay(self)
        self._snapshots.add(overlay)
        return overlay

    def forget(self, snapshot: Overlay) -> None:
        """Stop telling a snapshot what changes."""
        self._snapshots.discard(snapshot)

    def condemn(self) -> None:
        """Nothing: what is only in memory goes with the close."""

    def release_page(self) -> bool:
        return self._engine.release_page()

    def close(self) -> None:
        for overlay in list(self._snapshots):
            overlay.detach()
        self._engine.close()
