"""From envelopes to columns: what the transactions of a chunk did to a table.

A row begins where the one before it ends, so where its parts are has to be found row by row. That is all that is done
so; the columns are then cut out of the bytes of all rows at once.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from waltz.spark.chunk import Chunk, consecutive, offsets_of, over_memory
from waltz.spark.errors import PayloadError
from waltz.table.codecs import Codec
from waltz.table.envelope import (
    BATCH,
    HAS_PREFIX,
    HAS_TIMESTAMP,
    HAS_VALUE,
    MARK,
    MAX_PREFIX_BYTES,
    TOMBSTONE,
    VERSION,
    Batch,
    SweepMark,
    Truncate,
    body_of,
    decode_body,
)
from waltz.table.errors import EnvelopeError

MAX_BODIES_BYTES = 16 << 20
"""Behind how many bytes of bodies a batch ends; one transaction is never cut."""
_MAX_MEMORY_BYTES = 2**31 - 1
"""What offsets of Arrow's binary columns can say."""

ROWS = pa.schema(
    [
        pa.field("transaction_id", pa.int64(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("prefix", pa.binary(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("written_at", pa.int64(), nullable=False),
        pa.field("tombstone", pa.bool_(), nullable=False),
    ]
)
"""The rows of a log: all that is to be known of each."""

Found: TypeAlias = pa.RecordBatch | Truncate | SweepMark
"""Rows, or what removes rows that stand before it."""

_PLAIN = MARK + bytes((VERSION, Codec.NONE))
_PLAIN_BATCH = struct.Struct(">qBI")
_SIZE = struct.Struct(">I")
_MIN_ROW_BYTES = 5
_UNKNOWN_FLAGS = 0xFF & ~(TOMBSTONE | HAS_PREFIX | HAS_TIMESTAMP | HAS_VALUE)
_DEAD_WITH_VALUE = TOMBSTONE | HAS_VALUE

_PLACES = 8
"""Numbers for each row: where its prefix, key, timestamp and value begin and end."""
_PREFIX, _KEY, _TIMESTAMP, _VALUE = range(0, _PLACES, 2)


class EnvelopeReader:
    """Reads the transactions of one partition, and counts those that are no envelopes."""

    def __init__(self, partition_id: int, max_body_bytes: int, *, values: bool = True) -> None:
        """Larger bodies are no envelopes. Without ``values`` that column is null."""
        self._partition_id = partition_id
        self._max_body_bytes = max_body_bytes
        self._values = values
        self.skipped = 0
        """Transactions that were no envelopes."""
        self.first_skipped: int | None = None

    def read(self, chunk: Chunk) -> Iterator[Found]:
        """What the transactions of a chunk did, in the order of the log.

        Raises ``CodecUnavailableError``: a transaction that is skipped for that would be missing from what is read.
        """
        payloads = chunk.payloads
        ends = offsets_of(payloads)
        origin = ends[0]
        data = bytes(memoryview(payloads.buffers()[2] or b"")[origin : ends[-1]])
        gathered = _Gathered(self._values)
        for place in range(len(payloads)):
            start, end = ends[place] - origin, ends[place + 1] - origin
            transaction_id = chunk.first + place
            try:
                if data[start : start + 4] == _PLAIN:
                    body, position, end_of_body = data, start + 4, end
                else:
                    body, position = body_of(data[start:end], self._max_body_bytes)
                    end_of_body = len(body)
                    self._check_size(end_of_body, transaction_id)
                if gathered.size_bytes + end_of_body - position > MAX_BODIES_BYTES and gathered.ids:
                    yield gathered.batch()
                    gathered = _Gathered(self._values)
                mark = gathered.add(transaction_id, body, position, end_of_body)
            except EnvelopeError:
                self.skipped += 1
                if self.first_skipped is None:
                    self.first_skipped = transaction_id
                continue
            if mark is not None:
                if gathered.ids:
                    yield gathered.batch()
                    gathered = _Gathered(self._values)
                yield mark
        if gathered.ids:
            yield gathered.batch()

    def _check_size(self, size_bytes: int, transaction_id: int) -> None:
        if size_bytes > _MAX_MEMORY_BYTES:
            raise PayloadError(
                f"partition {self._partition_id}, transaction {transaction_id}: its rows take {size_bytes} bytes; at "
                f"most {_MAX_MEMORY_BYTES} are possible in Spark"
            )


class _Gathered:
    """The rows of some transactions, and where everything is in them."""

    def __init__(self, values: bool) -> None:
        self._values = values
        self._bodies: list[bytes] = []
        self.size_bytes = 0
        """Of the bodies."""
        self._places: list[int] = []
        self._flags = bytearray()
        self.ids: list[int] = []
        """Of the transactions that have rows."""
        self._counts: list[int] = []
        self._written_at: list[int] = []

    def add(self, transaction_id: int, body: bytes, position: int, end: int) -> Truncate | SweepMark | None:
        """Take note of the rows of a body, or say what it is instead. Raises ``EnvelopeError``; then nothing is
        noted."""
        if end - position < _PLAIN_BATCH.size or body[position + 8] != BATCH:
            envelope = decode_body(body[position:end], 0)
            assert not isinstance(envelope, Batch)
            return envelope
        written_at_ms, _, count = _PLAIN_BATCH.unpack_from(body, position)
        places, flags = len(self._places), len(self._flags)
        try:
            self._find(body, position + _PLAIN_BATCH.size, end, count, self.size_bytes - position)
        except (EnvelopeError, IndexError, struct.error):
            del self._places[places:]
            del self._flags[flags:]
            raise EnvelopeError("it ends inside a row") from None
        if count:
            self._bodies.append(body[position:end])
            self.size_bytes += end - position
            self.ids.append(transaction_id)
            self._counts.append(count)
            self._written_at.append(written_at_ms)
        return None

    def _find(self, body: bytes, position: int, end: int, count: int, shift: int) -> None:
        """Find the parts of all rows: flat, since this is done for every row of a log.

        ``shift`` is from places in ``body`` to places in all bodies. What lies behind ``end`` may be read, and is
        refused then, since places only grow.
        """
        if count * _MIN_ROW_BYTES > end - position:
            raise EnvelopeError(f"{count} rows in {end - position} bytes")
        unpack_size, note_places, note_flags = _SIZE.unpack_from, self._places.extend, self._flags.append
        for _ in range(count):
            flags = body[position]
            if flags & _UNKNOWN_FLAGS or flags & _DEAD_WITH_VALUE == _DEAD_WITH_VALUE:
                raise EnvelopeError(f"a row with the flags {flags:#x}")
            prefix_start = prefix_end = position + 1
            if flags & HAS_PREFIX:
                size = body[prefix_start] << 8 | body[prefix_start + 1]
                if size > MAX_PREFIX_BYTES:
                    raise EnvelopeError(f"a prefix of {size} bytes")
                prefix_start += 2
                prefix_end = prefix_start + size
            (size,) = unpack_size(body, prefix_end)
            key_start = prefix_end + 4
            key_end = timestamp_end = key_start + size
            if flags & HAS_TIMESTAMP:
                timestamp_end += 8
            value_start = position = timestamp_end
            if flags & HAS_VALUE:
                (size,) = unpack_size(body, timestamp_end)
                value_start += 4
                position = value_start + size
            if position > end:
                raise EnvelopeError("it ends inside a row")
            note_flags(flags)
            note_places(
                (
                    prefix_start + shift,
                    prefix_end + shift,
                    key_start + shift,
                    key_end + shift,
                    key_end + shift,
                    timestamp_end + shift,
                    value_start + shift,
                    position + shift,
                )
            )
        if position != end:
            raise EnvelopeError(f"{end - position} bytes behind the last row")

    def batch(self) -> pa.RecordBatch:
        """The rows in columns."""
        count = len(self._flags)
        memory = pa.py_buffer(b"".join(self._bodies))
        places = array("i", self._places)
        places.append(places[-1])
        parts = pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, pa.py_buffer(places), memory])
        every_eighth = pc.multiply(consecutive(0, count), _PLACES)
        flags = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(bytes(self._flags))])

        def has(flag: int) -> pa.BooleanArray:
            return pc.not_equal(pc.bit_wise_and(flags, pa.scalar(flag, pa.uint8())), pa.scalar(0, pa.uint8()))

        def part(place: int) -> pa.BinaryArray:
            return parts.take(pc.add(every_eighth, place))

        per_row = self._repeater(count)
        written_at = per_row(over_memory(pa.int64(), array("q", self._written_at)))
        return pa.RecordBatch.from_arrays(
            [
                per_row(over_memory(pa.int64(), array("q", self.ids))),
                self._numbers(count, per_row),
                part(_PREFIX),
                part(_KEY),
                _nullable(part(_VALUE), has(HAS_VALUE)) if self._values else pa.nulls(count, pa.binary()),
                _timestamps(part(_TIMESTAMP), has(HAS_TIMESTAMP), written_at),
                written_at,
                has(TOMBSTONE),
            ],
            schema=ROWS,
        )

    def _repeater(self, count: int) -> "Callable[[pa.Array], pa.Array]":
        """What makes a column with a value for each row of one with a value for each transaction."""
        if len(self.ids) == count:
            return lambda values: values
        ends = over_memory(pa.int32(), array("i", accumulate(self._counts)))
        return lambda values: pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))

    def _numbers(self, count: int, per_row: "Callable[[pa.Array], pa.Array]") -> pa.Int32Array:
        """The place of each row in its transaction."""
        starts = over_memory(pa.int64(), array("q", accumulate(self._counts, initial=0))).slice(0, len(self.ids))
        return pc.subtract(consecutive(0, count), per_row(starts)).cast(pa.int32())


def _nullable(values: pa.BinaryArray, valid: pa.BooleanArray) -> pa.BinaryArray:
    return values if valid.true_count == len(values) else pc.if_else(valid, values, pa.scalar(None, pa.binary()))


def _timestamps(own: pa.BinaryArray, has_own: pa.BooleanArray, written_at: pa.Int64Array) -> pa.Int64Array:
    """The timestamps of rows, of which some have their own: eight bytes of the big-endian number, or none."""
    given = has_own.true_count
    if not given:
        return written_at
    ends = offsets_of(own)
    numbers = array("q", bytes(memoryview(own.buffers()[2])[ends[0] : ends[-1]]))
    if sys.byteorder == "little":
        numbers.byteswap()
    timestamps = over_memory(pa.int64(), numbers)
    return timestamps if given == len(own) else pc.replace_with_mask(written_at, has_own, timestamps)
