"""When rows are hidden, and when they are removed. Pure.

Readers hide by the clock; what is removed is said by sweep marks in the log, so that all views stay equal.
"""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import LONG_MIN
from waltz.table.envelope import NO_BOUND, SweepMark
from waltz.table.rows import RowHead

LONG_MAX = -LONG_MIN - 1


class Ages(NamedTuple):
    """From which age rows are hidden or may be removed, in milliseconds; 0 is never."""

    tombstone_timestamp_ms: int = 0
    """Of a tombstone, by its timestamp."""
    tombstone_written_at_ms: int = 0
    """Of a tombstone, by when it was written."""
    row_timestamp_ms: int = 0
    """Of any row, by its timestamp: its time to live."""
    row_written_at_ms: int = 0
    """Of any row, by when it was written."""


NO_AGES = Ages()


class Oldest(NamedTuple):
    """The least times of rows, in the order of the bounds of a sweep mark; the greatest number if there are none."""

    tombstone_timestamp_ms: int = LONG_MAX
    tombstone_written_at_ms: int = LONG_MAX
    row_timestamp_ms: int = LONG_MAX
    row_written_at_ms: int = LONG_MAX

    def beside(self, row: RowHead) -> "Oldest":
        """Those of one more row."""
        times = (row.timestamp_ms, row.written_at_ms)
        return self.and_(Oldest(*times, *times) if row.tombstone else Oldest(LONG_MAX, LONG_MAX, *times))

    def and_(self, others: "Oldest") -> "Oldest":
        """Those of these rows and others."""
        return Oldest(*map(min, self, others))


NO_ROWS = Oldest()


def oldest_of(rows: Sequence[RowHead]) -> Oldest:
    """The least times of these rows."""
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
    """Whether a sweep mark removes a row that wins."""
    return (
        row.timestamp_ms < mark.row_timestamp_ms
        or row.written_at_ms < mark.row_written_at_ms
        or (
            row.tombstone
            and (row.timestamp_ms < mark.tombstone_timestamp_ms or row.written_at_ms < mark.tombstone_written_at_ms)
        )
    )


def may_be_swept(oldest: Oldest, mark: SweepMark) -> bool:
    """Whether a sweep mark may remove one of the rows with these least times."""
    return any(time_ms < bound_ms for time_ms, bound_ms in zip(oldest, mark[1:], strict=True))


def sweep_mark(now_ms: int, ages: Ages) -> SweepMark | None:
    """The mark that removes what has reached its age; ``None`` when no age is set.

    A bound is one behind the youngest that goes, since marks remove what is *older*: what is hidden at an instant is
    what the mark of that instant removes.
    """
    if ages == NO_AGES:
        return None
    return SweepMark(now_ms, *(now_ms - age + 1 if age else NO_BOUND for age in ages))


def due_mark(now_ms: int, ages: Ages, intervals: Ages) -> SweepMark | None:
    """The mark of ages that are later by their intervals: a sweep is due when this one would remove a row."""
    return sweep_mark(now_ms, Ages(*(age and age + interval for age, interval in zip(ages, intervals, strict=True))))
