"""From envelopes to columns: the changes that the transactions of a chunk made to a table.

A row begins where the row before it ends, so the places of its parts have to be found row by row. Nothing else is done
row by row: the columns are then cut out of the bytes of all rows at once.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
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
"""A batch ends after this number of bytes of bodies; a transaction is never cut."""
_MAX_MEMORY_BYTES = 2**31 - 1
"""The largest offset of Arrow's binary columns."""

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
"""The rows of a log, each with all of its fields."""

Found: TypeAlias = pa.RecordBatch | Truncate | SweepMark
"""Rows, or a change that removes rows before it."""

_PLAIN_HEAD = struct.Struct(">IqBI")
"""Mark, version and codec of an envelope that is not compressed, and what a batch begins with."""
_BATCH_HEAD = struct.Struct(">qBI")
_KIND_PLACE = 8
_PLAIN = int.from_bytes(MARK + bytes((VERSION, Codec.NONE)), "big")
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
        """Bodies above the limit are not read as envelopes. Without ``values`` the column of values is null."""
        self._partition_id = partition_id
        self._max_body_bytes = max_body_bytes
        self._values = values
        self.skipped = 0
        """Transactions that were no envelopes."""
        self.first_skipped: int | None = None

    def read(self, chunk: Chunk) -> Iterator[Found]:
        """The changes that the transactions of a chunk made, in the order of the log.

        Raises ``CodecUnavailableError``: without that codec, rows would be missing from the answer.
        """
        payloads = chunk.payloads
        ends = offsets_of(payloads).tolist()
        origin = ends[0]
        data = bytes(memoryview(payloads.buffers()[2] or b"")[origin : ends[-1]])
        if origin:
            ends = [end - origin for end in ends]
        gathered = _Gathered(self._values)
        unpack_head, head_bytes = _PLAIN_HEAD.unpack_from, _PLAIN_HEAD.size
        for transaction_id, (start, end) in enumerate(pairwise(ends), chunk.first):
            if gathered.size_bytes + end - start > MAX_BODIES_BYTES and gathered.ids:
                yield gathered.batch()
                gathered = _Gathered(self._values)
            try:
                if end - start >= head_bytes:
                    word, written_at_ms, kind, count = unpack_head(data, start)
                    if word == _PLAIN and kind == BATCH:
                        gathered.add(transaction_id, written_at_ms, count, data, start + head_bytes, end)
                        continue
                body, position = body_of(data[start:end], self._max_body_bytes)
                self._check_size(len(body), transaction_id)
                if gathered.size_bytes + len(body) > MAX_BODIES_BYTES and gathered.ids:
                    yield gathered.batch()
                    gathered = _Gathered(self._values)
                mark = gathered.add_body(transaction_id, body, position)
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


@dataclass(slots=True)
class _Piece:
    """Memory in which rows of consecutive transactions stand."""

    memory: bytes
    start: int
    first_place: int
    """Index of its first place among all places."""
    end: int = 0


class _Gathered:
    """The rows of some transactions, with the places of their parts."""

    def __init__(self, values: bool) -> None:
        self._values = values
        self._pieces: list[_Piece] = []
        self.size_bytes = 0
        """Size of the bodies."""
        self._places: list[int] = []
        self._flags = bytearray()
        self.ids: list[int] = []
        """Ids of the transactions that have rows."""
        self._counts: list[int] = []
        self._written_at: list[int] = []

    def add_body(self, transaction_id: int, body: bytes, position: int) -> Truncate | SweepMark | None:
        """Note the rows of ``body`` from ``position`` to its end, or return the other change that the body makes.

        Raises ``EnvelopeError``; then nothing is noted.
        """
        if len(body) - position < _BATCH_HEAD.size or body[position + _KIND_PLACE] != BATCH:
            envelope = decode_body(body, position)
            assert not isinstance(envelope, Batch)
            return envelope
        written_at_ms, _, count = _BATCH_HEAD.unpack_from(body, position)
        self.add(transaction_id, written_at_ms, count, body, position + _BATCH_HEAD.size, len(body))
        return None

    def add(self, transaction_id: int, written_at_ms: int, count: int, body: bytes, position: int, end: int) -> None:
        """Note the rows from ``position`` to ``end``. Raises ``EnvelopeError``; then nothing is noted."""
        places, flags = len(self._places), len(self._flags)
        try:
            self._find(body, position, end, count)
        except (EnvelopeError, IndexError, struct.error):
            del self._places[places:]
            del self._flags[flags:]
            raise EnvelopeError("it ends inside a row") from None
        if count:
            if not self._pieces or self._pieces[-1].memory is not body:
                self._pieces.append(_Piece(body, position, places))
            self._pieces[-1].end = end
            self.size_bytes += end - position
            self.ids.append(transaction_id)
            self._counts.append(count)
            self._written_at.append(written_at_ms)

    def _find(self, body: bytes, position: int, end: int, count: int) -> None:
        """Find the parts of all rows: written flat, since it runs for every row of a log.

        Bytes behind ``end`` may be read, and are then refused, since places only grow.
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
            note_places((prefix_start, prefix_end, key_start, key_end, key_end, timestamp_end, value_start, position))
        if position != end:
            raise EnvelopeError(f"{end - position} bytes behind the last row")

    def batch(self) -> pa.RecordBatch:
        """The rows in columns."""
        count = len(self._flags)
        parts = self._parts()
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

    def _parts(self) -> pa.BinaryArray:
        """The bytes between each place and the next one."""
        self._places.append(self._places[-1])
        places = over_memory(pa.int32(), array("i", self._places))
        memory = self._pieces[0].memory
        if len(self._pieces) > 1:
            memory = b"".join([piece.memory[piece.start : piece.end] for piece in self._pieces])
            places = pa.concat_arrays(self._moved(places))
        return pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, places.buffers()[1], pa.py_buffer(memory)])

    def _moved(self, places: pa.Int32Array) -> Iterator[pa.Int32Array]:
        """The places of all pieces, relative to the common buffer."""
        base = 0
        firsts = [piece.first_place for piece in self._pieces[1:]]
        for piece, first_place, behind in zip(self._pieces, [0, *firsts], [*firsts, len(places)], strict=True):
            own = places.slice(first_place, behind - first_place)
            yield pc.add(own, pa.scalar(base - piece.start, pa.int32()))
            base += piece.end - piece.start

    def _repeater(self, count: int) -> "Callable[[pa.Array], pa.Array]":
        """A function that turns a column with a value for each transaction into one with a value for each row."""
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
