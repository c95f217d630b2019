"""Tables that several clusters write, made equal: which row of a key has to win, and what a mirror appends. Pure.

Of the writes of a key the one with the greatest (timestamp, version, index, cluster) has to win in all clusters. The
version is the transaction id in the cluster in which an application has written the row, or more: it is greater than
the versions of all rows before it in that log. So a write that was decided with another one in view wins over that also
where the timestamps are equal, as those of conditional writes are if a clock is late.

A view does not know of that: of rows with equal timestamps the later one in its own log wins. So where the wrong one of
these is the later one, the mirror appends the right one again. Every reader then finds the same row, with any version
of this software.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from waltz.mirror.origins import Origin, Origins, Span, origin_row, origins_in
from waltz.table.envelope import Batch, Envelope, Row, Truncate
from waltz.table.rows import Version, row_key

MAX_ROWS = 900
"""Most rows of a batch with more than one transaction: each takes a lock, and more than 1,000 rows lock the table."""

MAX_BYTES = 1 << 20
"""Most bytes of keys and values of a batch with more than one transaction."""

MAX_SPREAD_MS = 1_000
"""Transactions that were written further apart are not in one batch: it has one time of writing."""


class Copy(NamedTuple):
    """A transaction of the source that is to be copied."""

    transaction_id: int
    version: int
    """That of its rows."""
    header: int
    batch: Batch

    @property
    def size_bytes(self) -> int:
        """Bytes of its prefixes, keys and values."""
        return sum(len(row.prefix) + len(row.key) + len(row.value or b"") for row in self.batch.rows)


class Versions:
    """The versions of the rows of a log, transaction by transaction."""

    def __init__(self, last: int = -1) -> None:
        """``last`` is that of the rows before those to come."""
        self.last = last
        """The greatest version of all rows so far."""

    def own(self, transaction_id: int) -> int:
        """The version of the rows of an application's transaction, which comes next."""
        self.last = max(self.last + 1, transaction_id)
        return self.last

    def copied(self, origins: Origins) -> None:
        """Rows of a mirror come next."""
        self.last = max(self.last, *(span.first.version for span in origins.spans), -1)


def copy_of(transaction_id: int, header: int, envelope: Envelope | None, versions: Versions) -> Copy | None:
    """What is to be copied of the next transaction of the source; ``versions`` are those of its log.

    ``None``: nothing. No mirror's batch is copied: its rows have another origin, from which they come by themselves.
    Sweep marks and truncations are each cluster's own. Raises ``MirrorError`` like
    :func:`~waltz.mirror.origins.origins_in`.
    """
    if not isinstance(envelope, Batch) or not envelope.rows:
        return None
    origins = origins_in(envelope)
    if origins is not None:
        versions.copied(origins)
        return None
    return Copy(transaction_id, versions.own(transaction_id), header, envelope)


def next_group(copies: Iterable[Copy]) -> list[Copy]:
    """The first of these transactions that go into one batch: whole ones, at least one of them."""
    group: list[Copy] = []
    rows = size_bytes = 0
    oldest_ms = newest_ms = 0
    for copy in copies:
        written_at_ms = copy.batch.written_at_ms
        rows += len(copy.batch.rows)
        size_bytes += copy.size_bytes
        oldest_ms = min(oldest_ms, written_at_ms) if group else written_at_ms
        newest_ms = max(newest_ms, written_at_ms) if group else written_at_ms
        too_much = rows > MAX_ROWS or size_bytes > MAX_BYTES or newest_ms - oldest_ms > MAX_SPREAD_MS
        if group and (too_much or copy.header != group[0].header):
            break
        group.append(copy)
    return group


def batch_of(source: str, group: Sequence[Copy], now_ms: int) -> Batch:
    """The batch that copies transactions of the source, up to the last of them."""
    rows: list[Row] = []
    spans: list[Span] = []
    for copy in group:
        rows += [_explicit(row, copy.batch.written_at_ms) for row in copy.batch.rows]
        spans.append(Span(Origin(copy.version, 0, source), len(copy.batch.rows)))
    rows.append(origin_row(Origins(source, group[-1].transaction_id, spans), now_ms))
    return Batch(max(copy.batch.written_at_ms for copy in group), rows)


class Standing(NamedTuple):
    """The row of a key that has to win."""

    timestamp_ms: int
    origin: Origin
    place: Version
    """Where it is in the log of the target."""


class Merged:
    """What a mirror knows of the log of its target, from the first transaction on."""

    def __init__(self, source: str, target: str) -> None:
        """Keys of both clusters."""
        self.applied = -1
        """The last transaction of the target that is looked at."""
        self.position = -1
        """The last transaction of the source that is in the target, with all before it."""
        self.position_version = -1
        """The version of its rows."""
        self.unsettled: dict[bytes, Standing] = {}
        """By the keys of rows: the rows that have to win, and do not."""
        self._source = source
        self._target = target
        self._standing: dict[bytes, Standing] = {}
        self._versions = Versions()

    @property
    def keys(self) -> int:
        """The number of keys of which something is known."""
        return len(self._standing)

    def apply(self, transaction_id: int, envelope: Envelope | None) -> None:
        """Look at the next transaction of the target; ``None``: its data is no envelope.

        Raises ``MirrorError`` like :func:`~waltz.mirror.origins.origins_in`.
        """
        if isinstance(envelope, Truncate):
            self._standing.clear()
            self.unsettled.clear()
        elif isinstance(envelope, Batch):
            self._apply_batch(transaction_id, envelope)
        self.applied = transaction_id

    def _apply_batch(self, transaction_id: int, batch: Batch) -> None:
        if not batch.rows:
            return
        origins = origins_in(batch)
        if origins is None:
            version = self._versions.own(transaction_id)
            known = [Origin(version, place, self._target) for place in range(len(batch.rows))]
        else:
            self._versions.copied(origins)
            known = [*origins.each()]
            if origins.source == self._source and origins.position > self.position:
                self.position = origins.position
                self.position_version = origins.spans[-1].first.version
        for place, (row, origin) in enumerate(zip(batch.rows, known, strict=False)):
            timestamp_ms = batch.written_at_ms if row.timestamp_ms is None else row.timestamp_ms
            self._land(row_key(row.prefix, row.key), Standing(timestamp_ms, origin, Version(transaction_id, place)))

    def _land(self, key: bytes, row: Standing) -> None:
        standing = self._standing.get(key)
        if standing is None or row[:2] >= standing[:2]:
            self._standing[key] = row
            self.unsettled.pop(key, None)
        elif row.timestamp_ms == standing.timestamp_ms:  # it wins, as it is later
            self.unsettled[key] = standing

    def cannot_settle(self, keys: Iterable[bytes]) -> None:
        """The rows that have to win cannot be read any more."""
        for key in keys:
            self.unsettled.pop(key, None)

    def next_unsettled(self) -> tuple[int, list[bytes]]:
        """A transaction of the target with rows that have to win and do not, and the keys of these rows."""
        transaction_id = next(iter(self.unsettled.values())).place.transaction_id
        keys = [key for key, row in self.unsettled.items() if row.place.transaction_id == transaction_id]
        return transaction_id, keys[:MAX_ROWS]

    def settling_batch(self, keys: Iterable[bytes], written: Batch, now_ms: int) -> Batch:
        """The batch that lets rows win which stand in one batch of the target."""
        rows: list[Row] = []
        spans: list[Span] = []
        for key in keys:
            standing = self.unsettled[key]
            rows.append(_explicit(written.rows[standing.place.row], written.written_at_ms))
            spans.append(Span(standing.origin, 1))
        rows.append(origin_row(Origins(self._source, self.position, spans), now_ms))
        return Batch(written.written_at_ms, rows)


def _explicit(row: Row, written_at_ms: int) -> Row:
    """The row with its timestamp, whenever it is written."""
    return row if row.timestamp_ms is not None else row._replace(timestamp_ms=written_at_ms)
