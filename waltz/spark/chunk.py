"""Consecutive records as they came over the wire, and the columns cut out of them.

The records of an answer stand one behind the other, so the whole answer *is* an Arrow array of binary values as soon as
it is known where each record begins; payloads and the fixed fields are then cut out of all records at once. What is
done record by record is finding the next one and the checksum of its payload.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from waltz.common.checksum import crc32
from waltz.common.errors import ProtocolError
from waltz.common.records import RECORD_OVERHEAD_BYTES
from waltz.storage.disk.segment.segment_format import RECORD_CRC, RECORD_PREFIX, STORED_OVERHEAD_BYTES
from waltz.storage.remote.errors import DataCorruptionError

_COUNT = struct.Struct(">i")
_HEAD_BYTES = 32
"""Transaction id (8), request id (16), header (4), size of the payload (4)."""
_SIZE_PLACE = 28
_CHECKSUM_BYTES = 4


class Layout(NamedTuple):
    """Places of the fields in a record behind its first 32 bytes; negative places count from the end."""

    payload: tuple[int, int]
    checksum: tuple[int, int | None]
    overhead_bytes: int


ON_THE_WIRE = Layout((_HEAD_BYTES, -_CHECKSUM_BYTES), (-_CHECKSUM_BYTES, None), RECORD_OVERHEAD_BYTES)
ON_DISK = Layout((RECORD_PREFIX.size, -RECORD_CRC.size), (_HEAD_BYTES, RECORD_PREFIX.size), STORED_OVERHEAD_BYTES)

_ID_BYTES = 8
_REQUEST_ID_END = 24
_LARGEST_ID = 2**63 - 1
_HEAD_INTS = 8
_CHECKSUM_BLOCK_RECORDS = 1024
"""Number of payloads whose checksums are taken at once: small payloads then stay in the processor's cache."""

_INT_PLACE = {"client_id": 2, "generation": 3, "seq_num": 5, "header": 6}
"""Index of each field among the 32-bit integers of the fixed part."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Chunk:
    """Records ``first``, ``first + 1``, ... whose checksums were verified.

    Its ``repr`` is short for a reason: ``asyncio.Runner.run`` takes the ``repr`` of every result while it puts the
    signal handler back, and showing all payloads there takes several times as long as reading them.
    """

    first: int
    records: pa.BinaryArray
    """Every record from its first to its last byte, over the memory of the answer."""
    payloads: pa.BinaryArray
    """The payloads, in memory of their own."""
    layout: Layout
    """The places of fields in ``records``."""

    def __repr__(self) -> str:
        return f"<Chunk {self.first} to {self.first + self.count - 1}>"

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.records)

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads."""
        ends = self._ends()
        return ends[-1] - ends[0]

    def checksums(self) -> "array[int]":
        """The signed checksums of the payloads."""
        return _integers("i", _stored_checksums(self.records, self.layout))

    def heads(self) -> "Heads":
        """The fixed fields of all records."""
        return Heads(_integers("i", _bytes_of(pc.binary_slice(self.records, 0, _HEAD_BYTES))))

    def request_id(self, place: int) -> bytes:
        """The request id of the record at a place."""
        return bytes(self.records[place].as_py()[_ID_BYTES:_REQUEST_ID_END])

    def transaction_ids(self) -> pa.Int64Array:
        """``first``, ``first + 1``, ..."""
        return consecutive(self.first, self.count)

    def cut(self, max_bytes: int) -> Iterator["Chunk"]:
        """The same records in chunks of at most ``max_bytes`` of payload; a larger record is a chunk of its own."""
        if self.size_bytes <= max_bytes:
            yield self
            return
        ends = self._ends()
        start = 0
        for index in range(1, self.count):
            if ends[index + 1] - ends[start] > max_bytes:
                yield self.part(start, index)
                start = index
        yield self.part(start, self.count)

    def part(self, start: int, end: int) -> "Chunk":
        """The records at the places ``start`` to ``end - 1``, over the same memory."""
        return Chunk(
            self.first + start,
            self.records.slice(start, end - start),
            self.payloads.slice(start, end - start),
            self.layout,
        )

    def _ends(self) -> "memoryview[int]":
        """The offsets of the payloads in their buffer, and the end of the last payload."""
        return offsets_of(self.payloads)


class Heads:
    """The fixed fields of some records, as integers in columns."""

    __slots__ = ("_ints",)

    def __init__(self, ints: "array[int]") -> None:
        self._ints = ints

    def column(self, name: str) -> "array[int]":
        """``header``, ``client_id``, ``generation`` or ``seq_num`` of every record."""
        return self._ints[_INT_PLACE[name] :: _HEAD_INTS]


def log_columns(partition_id: int, chunk: Chunk, heads: Heads | None) -> dict[str, Callable[[], pa.Array]]:
    """How each column of the log but the payload is made, by name; ``heads`` are the chunk's, if they are known."""
    count = chunk.count

    def head(name: str) -> Callable[[], pa.Array]:
        return lambda: over_memory(pa.int32(), (heads or chunk.heads()).column(name))

    return {
        "partition": lambda: over_memory(pa.int32(), array("i", [partition_id]) * count),
        "transaction_id": chunk.transaction_ids,
        "checksum": lambda: over_memory(pa.int32(), chunk.checksums()),
        **{name: head(name) for name in ("header", "client_id", "generation", "seq_num")},
    }


def decode_chunk(buffer: bytes, position: int, end: int, *, partition_id: int, source: object) -> Chunk | None:
    """The record list (count, then records) that fills ``buffer[position:end]``; ``None`` if it is empty.

    Raises ``ProtocolError`` when it is no such list or its ids are not consecutive, and ``DataCorruptionError`` for the
    first payload that does not match its checksum (rule S6). ``source`` begins
    the texts.
    """
    if position + _COUNT.size > end:
        raise ProtocolError(f"{source} sent a record list that is too short")
    (count,) = _COUNT.unpack_from(buffer, position)
    position += _COUNT.size
    if count < 0 or count * RECORD_OVERHEAD_BYTES > end - position:
        raise ProtocolError(f"{source} sent a record list of {count} records in {end - position} bytes")
    if count == 0:
        if position != end:
            raise ProtocolError(f"{source} sent an empty record list with {end - position} bytes left over")
        return None
    starts = _record_starts(buffer, position, end, count, source)
    return _checked(buffer, starts, count, ON_THE_WIRE, partition_id=partition_id, source=source)


def decode_range(buffer: bytes, position: int, end: int, *, partition_id: int, source: object) -> Chunk | None:
    """The records as they are on disk, behind their sizes, that fill ``buffer[position:end]``; ``None`` if there are
    none. Nothing is done record by record but the checksums. Raises as :func:`decode_chunk` does."""
    sizes_start = position + _COUNT.size
    if sizes_start > end:
        raise ProtocolError(f"{source} sent a range of records that is too short")
    (sizes_bytes,) = _COUNT.unpack_from(buffer, position)
    records_start = sizes_start + sizes_bytes + _COUNT.size
    if sizes_bytes < 0 or sizes_bytes % _COUNT.size or records_start > end:
        raise ProtocolError(f"{source} sent {sizes_bytes} bytes of sizes of records in {end - position} bytes")
    (records_bytes,) = _COUNT.unpack_from(buffer, records_start - _COUNT.size)
    if records_bytes != end - records_start:
        raise ProtocolError(f"{source} announced {records_bytes} bytes of records and sent {end - records_start}")
    if sizes_bytes == 0:
        if records_bytes:
            raise ProtocolError(f"{source} sent {records_bytes} bytes of records without their sizes")
        return None
    sizes = _integers("i", memoryview(buffer)[sizes_start : sizes_start + sizes_bytes])
    if min(sizes) < ON_DISK.overhead_bytes or sum(sizes) != records_bytes:
        raise ProtocolError(f"{source} sent sizes of records that are not those of {records_bytes} bytes of records")
    starts = array("i", accumulate(sizes, initial=records_start))
    chunk = _checked(buffer, starts, len(sizes), ON_DISK, partition_id=partition_id, source=source)
    claimed = _integers("i", _bytes_of(pc.binary_slice(chunk.records, _SIZE_PLACE, _HEAD_BYTES)))
    overhead_bytes = pa.scalar(ON_DISK.overhead_bytes, pa.int32())
    if not over_memory(pa.int32(), claimed).equals(pc.subtract(over_memory(pa.int32(), sizes), overhead_bytes)):
        raise ProtocolError(f"{source} sent sizes that are not those of its records")
    return chunk


def _checked(
    buffer: bytes, starts: "bytes | array[int]", count: int, layout: Layout, *, partition_id: int, source: object
) -> Chunk:
    """The records that begin at ``starts`` (the last start is their end), if ids and checksums are right."""
    records = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(starts), pa.py_buffer(buffer)])
    chunk = Chunk(_first_id(records, source), records, pc.binary_slice(records, *layout.payload), layout)
    stored, real = bytes(_stored_checksums(records, layout)), _payload_checksums(chunk.payloads)
    if stored != real:
        found = next(place for place in range(count) if stored[4 * place :][:4] != real[4 * place :][:4])
        raise DataCorruptionError(
            f"{source} delivered a damaged transaction: partition {partition_id}, "
            f"transaction {chunk.first + found}: the payload does not match its checksum"
        )
    return chunk


def _record_starts(buffer: bytes, position: int, end: int, count: int, source: object) -> bytes:
    """Where each record begins, and where the last one ends, as Arrow's 32-bit offsets."""
    starts: list[int] = []
    add, unpack = starts.append, _COUNT.unpack_from
    last_start = end - RECORD_OVERHEAD_BYTES
    for _ in range(count):
        if position > last_start:
            raise ProtocolError(f"{source} sent a record list that is too short")
        add(position)
        (size,) = unpack(buffer, position + _SIZE_PLACE)
        if size < 0:
            raise ProtocolError(f"{source} sent a payload of {size} bytes")
        position += RECORD_OVERHEAD_BYTES + size
    if position > end:
        raise ProtocolError(f"{source} sent a record list that is too short")
    if position < end:
        raise ProtocolError(f"{source} sent a record list with {end - position} bytes left over")
    return struct.pack(f"{count + 1}i", *starts, end)


def _first_id(records: pa.BinaryArray, source: object) -> int:
    """The first of the ids, which have to be consecutive."""
    count = len(records)
    ids = _integers("q", _bytes_of(pc.binary_slice(records, 0, _ID_BYTES)))
    first = ids[0]
    if first > _LARGEST_ID - count or not over_memory(pa.int64(), ids).equals(consecutive(first, count)):
        place, found = next((place, found) for place, found in enumerate(ids, first) if place != found)
        raise ProtocolError(f"{source} sent transaction {found} in the place of {place}")
    return first


def _stored_checksums(records: pa.BinaryArray, layout: Layout) -> memoryview:
    return _bytes_of(pc.binary_slice(records, *layout.checksum))


def _payload_checksums(payloads: pa.BinaryArray) -> bytes:
    """The checksums computed from the payloads, in the form in which records store them. The hot path of every read."""
    blocks = []
    for start in range(0, len(payloads), _CHECKSUM_BLOCK_RECORDS):
        block = payloads.slice(start, _CHECKSUM_BLOCK_RECORDS).to_pylist()
        blocks.append(struct.pack(f">{len(block)}I", *map(crc32, block)))
    return b"".join(blocks)


_counted = pa.array(range(1 << 14), type=pa.int64())
"""0, 1, 2, ...; replaced by a longer array when one is needed."""


def consecutive(first: int, count: int) -> pa.Int64Array:
    """``first``, ``first + 1``, ..., ``count`` of them."""
    global _counted
    if len(_counted) < count:
        _counted = pa.array(range(1 << count.bit_length()), type=pa.int64())
    return pc.add(_counted.slice(0, count), first)


def over_memory(kind: pa.DataType, values: "array[int]") -> pa.Array:
    """A column of numbers without nulls over the memory of ``values``."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def offsets_of(values: pa.BinaryArray) -> "memoryview[int]":
    """The offset of each value in the common buffer, and the end of the last value."""
    offsets: memoryview[int] = memoryview(values.buffers()[1]).cast("i")
    return offsets[values.offset : values.offset + len(values) + 1]


def _bytes_of(values: pa.BinaryArray) -> memoryview:
    """All values of the array as one buffer: they stand one behind the other."""
    offsets = offsets_of(values)
    return memoryview(values.buffers()[2])[offsets[0] : offsets[-1]]


def _integers(code: str, values: memoryview) -> "array[int]":
    """Big-endian integers."""
    found: array[int] = array(code)
    found.frombytes(values)
    if sys.byteorder == "little":
        found.byteswap()
    return found
