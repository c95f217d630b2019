"""The rows that win: what a view holds after a prefix of the log, as columns.

Rows are gathered until there are as many new rows as there were winners, and are then reduced to the winners, all at
once: so every row takes part in few reductions, and the memory is at most a few times that of the state. Rows are
removed at the right place in the log: a truncate drops all gathered rows, a sweep mark removes winners before it.
"""

import pyarrow as pa
import pyarrow.compute as pc

from waltz.table.ages import NO_ROWS, Ages, Oldest, may_be_swept
from waltz.table.envelope import SweepMark

LEAST_ROWS = 1 << 17
LEAST_BYTES = 64 << 20
"""Least number of new rows that are worth a reduction."""

_WIDE = {pa.binary(): pa.large_binary()}
"""A state may have more bytes than the 32-bit offsets of Arrow's ordinary columns can say."""


class Fold:
    """The winners of the rows that were added, in the order of the log."""

    _winners: pa.Table | None
    _oldest: Oldest

    def __init__(self, least_rows: int = LEAST_ROWS) -> None:
        """``least_rows`` is for tests."""
        self._least_rows = least_rows
        self._clear()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that follow all rows added before."""
        table = pa.Table.from_batches([rows])
        self._new.append(table.cast(_wide(table.schema)))
        self._oldest = self._oldest.and_(_oldest(rows))
        self._new_rows += rows.num_rows
        self._new_bytes += rows.nbytes
        if self._new_rows >= max(self._least_rows, self._winners_rows) or self._new_bytes >= max(
            LEAST_BYTES, self._winners_bytes
        ):
            self._reduce()

    def truncate(self) -> None:
        """Drop all rows added so far."""
        self._clear()

    def sweep(self, mark: SweepMark) -> None:
        """Remove winners that are older than the bounds. Costs nothing when there certainly are none."""
        if not may_be_swept(self._oldest, mark):
            return
        winners = self.winners()
        if winners is not None:
            self._winners = None
            winners = winners.filter(pc.invert(_swept(winners, mark)))
            self._hold(winners)

    def winners(self) -> pa.Table | None:
        """All winners; ``None`` if no row was ever added."""
        if self._new:
            self._reduce()
        return self._winners

    def _clear(self) -> None:
        self._winners = None
        self._winners_rows = self._winners_bytes = 0
        self._new: list[pa.Table] = []
        self._new_rows = self._new_bytes = 0
        self._oldest = NO_ROWS

    def _reduce(self) -> None:
        rows = pa.concat_tables(self._new if self._winners is None else [self._winners, *self._new])
        self._clear()  # so that the memory of a row that loses is free at once
        rows = rows.filter(_wins(rows))
        self._hold(rows)

    def _hold(self, winners: pa.Table) -> None:
        held = winners.combine_chunks()
        self._winners, self._winners_rows, self._winners_bytes = held, held.num_rows, held.nbytes
        self._oldest = _oldest(held)


def hidden(rows: pa.Table, now_ms: int, ages: Ages) -> pa.ChunkedArray:
    """A mask of the winners that readers do not see: tombstones and expired rows."""
    hides = rows["tombstone"]
    for column, age_ms in (("timestamp", ages.row_timestamp_ms), ("written_at", ages.row_written_at_ms)):
        if age_ms:
            hides = pc.or_(hides, _at_most(rows[column], now_ms - age_ms))
    return hides


def _swept(rows: pa.Table, mark: SweepMark) -> pa.ChunkedArray:
    old = pc.or_(
        _at_most(rows["timestamp"], mark.row_timestamp_ms - 1), _at_most(rows["written_at"], mark.row_written_at_ms - 1)
    )
    old_tombstone = pc.or_(
        _at_most(rows["timestamp"], mark.tombstone_timestamp_ms - 1),
        _at_most(rows["written_at"], mark.tombstone_written_at_ms - 1),
    )
    return pc.or_(old, pc.and_(rows["tombstone"], old_tombstone))


def _oldest(rows: pa.RecordBatch | pa.Table) -> Oldest:
    """The oldest timestamps among the rows, any of which may be a tombstone."""
    if not rows.num_rows:
        return NO_ROWS
    times = (pc.min(rows["timestamp"]).as_py(), pc.min(rows["written_at"]).as_py())
    return Oldest(*times, *times)


def _at_most(numbers: pa.ChunkedArray, bound: int) -> pa.ChunkedArray:
    """A mask of the numbers that are at most the bound; the bound may exceed 64 bits."""
    if bound < _LEAST:
        return pc.less(numbers, numbers)
    return pc.less_equal(numbers, pa.scalar(min(bound, _GREATEST), pa.int64()))


_LEAST, _GREATEST = -(2**63), 2**63 - 1


def _wins(rows: pa.Table) -> pa.Array:
    """A mask of the winners: for each (prefix, key) the row with the greatest timestamp, and of equal ones the last."""
    count = rows.num_rows
    keys = _keys(rows)
    timestamps = rows["timestamp"].combine_chunks()
    places = _consecutive(count)
    if count > 1 and not pc.all(pc.greater_equal(timestamps.slice(1), timestamps.slice(0, count - 1))).as_py():
        order = pc.array_sort_indices(timestamps)  # stable: equal timestamps stay in the order of the log
        last = _last_of_each(keys.take(order), places)
        winners = order.take(last)
    else:
        winners = _last_of_each(keys, places)
    return pc.is_in(places, value_set=winners.cast(pa.int64()))


def _last_of_each(keys: pa.Array, places: pa.Array) -> pa.Array:
    """The last place of every key."""
    grouped = pa.table({"key": keys, "place": places}).group_by("key").aggregate([("place", "max")])
    return grouped["place_max"].combine_chunks()


def _keys(rows: pa.Table) -> pa.Array:
    """A number for each row; rows with the same prefix and key have the same number."""
    prefixes, keys = _codes(rows["prefix"]), _codes(rows["key"])
    return pc.add(pc.multiply(prefixes.cast(pa.int64()), rows.num_rows), keys)


def _codes(values: pa.ChunkedArray) -> pa.Array:
    """A number below the count of values for each value; equal values have the same number."""
    encoded = values.dictionary_encode()
    return pa.chunked_array([chunk.indices for chunk in encoded.chunks], pa.int32()).combine_chunks()


def _consecutive(count: int) -> pa.Int64Array:
    """0, 1, 2, ...: of any length, which :func:`waltz.spark.chunk.consecutive` would keep."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _wide(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in schema])
