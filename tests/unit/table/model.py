"""A table as a dictionary: slow, and plain enough to be believed."""

from collections.abc import Iterable

from waltz.common.ids import LONG_MIN
from waltz.table.ages import NO_AGES, Ages
from waltz.table.envelope import Batch, Envelope, SweepMark, Truncate
from waltz.table.rows import TableRow, Version
from waltz.table.stores.interface import IndexEntry


class Model:
    """Applies one transaction after the other, ``None`` being one that is no envelope."""

    def __init__(self) -> None:
        self.applied = -1
        self.skipped = 0
        self.newest_ms = LONG_MIN
        self.rows: dict[tuple[bytes, bytes], TableRow] = {}
        self.log: list[IndexEntry] = []

    def apply(self, envelope: Envelope | None) -> None:
        self.applied += 1
        if envelope is None:
            self.skipped += 1
        elif isinstance(envelope, Batch):
            self._add(envelope)
        elif isinstance(envelope, Truncate):
            self.rows = {}
        else:
            self.rows = {key: row for key, row in self.rows.items() if not self._goes(row, envelope)}

    def _add(self, batch: Batch) -> None:
        self.newest_ms = max(self.newest_ms, batch.written_at_ms)
        for place, row in enumerate(batch.rows):
            timestamp_ms = batch.written_at_ms if row.timestamp_ms is None else row.timestamp_ms
            version = Version(self.applied, place)
            new = TableRow(row.prefix, row.key, row.value, timestamp_ms, version, batch.written_at_ms, row.tombstone)
            old = self.rows.get((row.prefix, row.key))
            if old is None or (old.timestamp_ms, *old.version) < (timestamp_ms, *version):
                self.rows[row.prefix, row.key] = new
            if row.prefix:
                self.log.append(IndexEntry(row.prefix, self.applied, place, row.key))

    @staticmethod
    def _goes(row: TableRow, mark: SweepMark) -> bool:
        if row.timestamp_ms < mark.row_timestamp_ms or row.written_at_ms < mark.row_written_at_ms:
            return True
        old = row.timestamp_ms < mark.tombstone_timestamp_ms or row.written_at_ms < mark.tombstone_written_at_ms
        return row.tombstone and old

    def scan(self, *, raw: bool, now_ms: int = 0, ages: Ages = NO_AGES) -> list[TableRow]:
        """All rows in order."""
        in_order = [self.rows[key] for key in sorted(self.rows)]
        return in_order if raw else [row for row in in_order if not self.hides(row, now_ms, ages)]

    @staticmethod
    def hides(row: TableRow, now_ms: int, ages: Ages) -> bool:
        """Whether readers do not see the row."""
        too_old = 0 < ages.row_timestamp_ms <= now_ms - row.timestamp_ms
        written_too_long_ago = 0 < ages.row_written_at_ms <= now_ms - row.written_at_ms
        return row.tombstone or too_old or written_too_long_ago

    def take(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        """Rows of a prefix, whole transactions until there are ``limit`` rows."""
        found: list[IndexEntry] = []
        for entry in self.log:
            if entry.prefix != prefix or entry.transaction_id <= after:
                continue
            if len(found) >= limit and found[-1].transaction_id != entry.transaction_id:
                break
            found.append(entry)
        return found

    def apply_all(self, envelopes: Iterable[Envelope | None]) -> None:
        """One after the other."""
        for envelope in envelopes:
            self.apply(envelope)
