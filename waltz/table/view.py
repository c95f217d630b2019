"""A view: the state of a table after a prefix of its log. Pure: time is a parameter, and only hides rows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from waltz.common.ids import LONG_MIN
from waltz.table.ages import LONG_MAX, NO_AGES, NO_ROWS, Ages, Oldest, is_expired
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Envelope, SweepMark, envelope_of
from waltz.table.rows import (
    TableRow,
    is_tombstone,
    pack_row,
    prefix_end,
    prefix_start,
    row_key,
    split_row_key,
    unpack_head,
    unpack_row,
)
from waltz.table.stores.interface import Changes, IndexEntry, Removal, Snapshot

MAX_ROWS_PER_WRITE = 250
"""Changes are cut after this number of rows, at the end of a transaction."""


class KeyRange(NamedTuple):
    """The keys from (``start_prefix``, ``start``) up to but not including (``end_prefix``, ``end``).

    Prefixes are compared first. Without ``end`` a range ends with its last prefix; without ``end_prefix``, too, it
    covers one prefix.

    Examples:
        ```python
        names = waltz.table.KeyRange(start=b"a", end=b"c")
        print([row.key async for row in table.scan(names)])
        ```
    """

    prefix: bytes = b""
    start: bytes = b""
    end: bytes | None = None
    end_prefix: bytes | None = None

    def bounds(self) -> tuple[bytes, bytes]:
        """The range as joined keys."""
        last = self.prefix if self.end_prefix is None else self.end_prefix
        return row_key(self.prefix, self.start), prefix_end(last) if self.end is None else row_key(last, self.end)


def steps(
    records: Iterable[tuple[int, bytes | Envelope | None]],
    after: int,
    *,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    max_rows: int = MAX_ROWS_PER_WRITE,
) -> Iterator[Changes | Removal]:
    """The steps of a store for consecutive transactions after ``after``, given as ids and data.

    A known envelope may be given in place of data, or ``None`` if the data is no envelope. A transaction is whole in
    one step. Raises :class:`~waltz.table.errors.CodecUnavailableError` after yielding the steps before the transaction
    that cannot be read.
    """
    folded = _Fold(after)
    for transaction_id, data in records:
        try:
            envelope = envelope_of(transaction_id, data, max_body_bytes) if isinstance(data, bytes) else data
        except BaseException:
            if folded.applied > folded.after:
                yield folded.changes()
            raise
        if envelope is None:
            folded.skip(transaction_id)
            continue
        if isinstance(envelope, Batch):
            folded.add(transaction_id, envelope)
            if folded.count < max_rows:
                continue
        if folded.applied > folded.after:
            yield folded.changes()
        folded = _Fold(transaction_id)
        if not isinstance(envelope, Batch):
            yield Removal(transaction_id, envelope if isinstance(envelope, SweepMark) else None)
    if folded.applied > folded.after:
        yield folded.changes()


class _Fold:
    """Changes that are being collected."""

    def __init__(self, after: int) -> None:
        self.after = self.applied = after
        self.count = 0
        self._skipped = 0
        self._rows: dict[bytes, bytes] = {}
        self._prefixed: list[IndexEntry] = []
        self._oldest = NO_ROWS
        self._newest_ms = LONG_MIN

    def skip(self, transaction_id: int) -> None:
        self.applied = transaction_id
        self._skipped += 1

    def add(self, transaction_id: int, batch: Batch) -> None:
        written_at_ms, rows = batch
        won = self._rows
        least_ms = least_dead_ms = LONG_MAX
        has_dead = False
        for place, (prefix, key, value, timestamp_ms, tombstone) in enumerate(rows):
            joined = row_key(prefix, key)
            own_timestamp_ms = written_at_ms if timestamp_ms is None else timestamp_ms
            row = pack_row(own_timestamp_ms, transaction_id, place, written_at_ms, tombstone, value)
            if won.setdefault(joined, row) < row:
                won[joined] = row
            if own_timestamp_ms < least_ms:
                least_ms = own_timestamp_ms
            if tombstone:
                has_dead = True
                least_dead_ms = min(least_dead_ms, own_timestamp_ms)
            if prefix:
                self._prefixed.append(IndexEntry(prefix, transaction_id, place, key))
        if rows:
            dead_ms = (least_dead_ms, written_at_ms) if has_dead else (LONG_MAX, LONG_MAX)
            self._oldest = self._oldest.and_(Oldest(*dead_ms, least_ms, written_at_ms))
        self._newest_ms = max(self._newest_ms, written_at_ms)
        self.count += len(rows)
        self.applied = transaction_id

    def changes(self) -> Changes:
        return Changes(
            self.after, self.applied, self._rows, self._prefixed, self._skipped, self._oldest, self._newest_ms
        )


class Reading(NamedTuple):
    """Reads of a table as of one instant, from a store or a snapshot of it."""

    rows: Snapshot
    now_ms: int
    ages: Ages = NO_AGES
    raw: bool = False
    """Whether tombstones and expired rows are returned, too."""

    def get(self, prefix: bytes, keys: Sequence[bytes]) -> list[TableRow | None]:
        """The rows of keys of one prefix, in their order."""
        start = prefix_start(prefix)
        found = self.rows.get([start + key for key in keys])
        hides = self._hides
        return [
            None if row is None or hides(row) else unpack_row(prefix, key, row)
            for key, row in zip(keys, found, strict=True)
        ]

    def scan(self, ranges: Iterable[KeyRange] | None = None, *, reverse: bool = False) -> Iterator[TableRow]:
        """The rows of the ranges one after the other, each in order; ``None`` is the whole table."""
        return chain.from_iterable(self.pages(ranges, reverse=reverse))

    def pages(self, ranges: Iterable[KeyRange] | None = None, *, reverse: bool = False) -> Iterator[list[TableRow]]:
        """The rows of :meth:`scan` in pages small enough for an event loop; a page may be empty."""
        bounds: Iterable[tuple[bytes, bytes | None]]
        bounds = [(b"", None)] if ranges is None else [key_range.bounds() for key_range in ranges]
        for start, end in bounds:
            yield from self.within(start, end, reverse=reverse)

    def within(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[list[TableRow]]:
        """The rows of one range of joined keys, in pages like those of :meth:`pages`."""
        for page in self.rows.pages(start, end, reverse=reverse):
            yield [unpack_row(*split_row_key(key), row) for key, row in page if not self._hides(row)]

    def approximate_count(self) -> int:
        """Number of rows, from the store's count, which includes expired rows."""
        progress = self.rows.progress
        return progress.rows if self.raw else progress.rows - progress.tombstones

    def _hides(self, row: bytes) -> bool:
        if self.raw:
            return False
        if is_tombstone(row):
            return True
        ages = self.ages
        return ages is not NO_AGES and is_expired(unpack_head(row), self.now_ms, ages)
