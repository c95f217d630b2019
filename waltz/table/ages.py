"""The ages at which rows are hidden and removed. Pure.

Readers hide rows by the clock; sweep marks in the log remove rows, so that all views stay equal.
"""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import LONG_MIN
from waltz.table.envelope import NO_BOUND, SweepMark
from waltz.table.rows import RowHead

LONG_MAX = -LONG_MIN - 1


class Ages(NamedTuple):
    """Ages at which rows are hidden or may be removed, in milliseconds; 0 is never."""

    tombstone_timestamp_ms: int = 0
    """Age of a tombstone, by its timestamp."""
    tombstone_written_at_ms: int = 0
    """Age of a tombstone, by the time at which it was written."""
    row_timestamp_ms: int = 0
    """Age of any row, by its timestamp: its time to live."""
    row_written_at_ms: int = 0
    """Age of any row, by the time at which it was written."""


NO_AGES = Ages()


class Oldest(NamedTuple):
    """The oldest times of some rows, in the order of a sweep mark's bounds; the greatest number without any row."""

    tombstone_timestamp_ms: int = LONG_MAX
    tombstone_written_at_ms: int = LONG_MAX
    row_timestamp_ms: int = LONG_MAX
    row_written_at_ms: int = LONG_MAX

    def beside(self, row: RowHead) -> "Oldest":
        """The oldest times with one more row."""
        times = (row.timestamp_ms, row.written_at_ms)
        return self.and_(Oldest(*times, *times) if row.tombstone else Oldest(LONG_MAX, LONG_MAX, *times))

    def and_(self, others: "Oldest") -> "Oldest":
        """The oldest times of these rows and the others together."""
        return Oldest(*map(min, self, others))


NO_ROWS = Oldest()


def oldest_of(rows: Sequence[RowHead]) -> Oldest:
    """The oldest times of these rows."""
    if not rows:
        return NO_ROWS
    timestamps, written_at, _ = zip(*rows, strict=True)
    dead = [row for row in rows if row.tombstone]
    of_dead = oldest_of([row._replace(tombstone=False) for row in dead])[2:] if dead else NO_ROWS[:2]
    return Oldest(*of_dead, min(timestamps), min(written_at))


def is_expired(row: RowHead, now_ms: int, ages: Ages) -> bool:
    """Whether a row is past its time to live, and so hidden from readers."""
    return bool(
        (ages.row_timestamp_ms and now_ms - row.timestamp_ms >= ages.row_timestamp_ms)
        or (ages.row_written_at_ms and now_ms - row.written_at_ms >= ages.row_written_at_ms)
    )


def is_swept(row: RowHead, mark: SweepMark) -> bool:
    """Whether a sweep mark removes this winning row."""
    return (
        row.timestamp_ms < mark.row_timestamp_ms
        or row.written_at_ms < mark.row_written_at_ms
        or (
            row.tombstone
            and (row.timestamp_ms < mark.tombstone_timestamp_ms or row.written_at_ms < mark.tombstone_written_at_ms)
        )
    )


def may_be_swept(oldest: Oldest, mark: SweepMark) -> bool:
    """Whether a sweep mark may remove one of the rows with these oldest times."""
    return (
        oldest.row_written_at_ms < mark.row_written_at_ms
        or oldest.row_timestamp_ms < mark.row_timestamp_ms
        or oldest.tombstone_written_at_ms < mark.tombstone_written_at_ms
        or oldest.tombstone_timestamp_ms < mark.tombstone_timestamp_ms
    )


def sweep_mark(now_ms: int, ages: Ages) -> SweepMark | None:
    """The mark that removes the rows that have reached their age; ``None`` when no age is set.

    Marks remove rows that are *older* than a bound, so a bound is one above the youngest row to be removed: the mark of
    an instant removes exactly the rows that are hidden at that instant.
    """
    if ages == NO_AGES:
        return None
    return SweepMark(now_ms, *(now_ms - age + 1 if age else NO_BOUND for age in ages))


def due_mark(now_ms: int, ages: Ages, intervals: Ages) -> SweepMark | None:
    """The mark for the ages plus their intervals: a sweep is due when this mark would remove a row."""
    return sweep_mark(now_ms, Ages(*(age and age + interval for age, interval in zip(ages, intervals, strict=True))))
