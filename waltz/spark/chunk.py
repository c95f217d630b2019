"""Consecutive records as they came over the wire, and the columns cut out of them.

No object is made per record. The records of an answer stand one behind the other, so the whole answer *is* an Arrow
array of binary values as soon as it is known where each record begins; payloads and the fixed fields are then cut out
of all records at once. What is done record by record is finding the next one and the checksum of its payload.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from waltz.common.errors import ProtocolError
from waltz.storage.client import DataCorruptionError

_COUNT = struct.Struct(">i")
_HEAD_BYTES = 32
"""Transaction id (8), request id (16), header (4), size of the payload (4)."""
_SIZE_PLACE = 28
_CHECKSUM_BYTES = 4
_OVERHEAD_BYTES = _HEAD_BYTES + _CHECKSUM_BYTES
_HEAD_LONGS = 4
_LARGEST_ID = 2**63 - 1
_HEAD_INTS = 8

_INT_PLACE = {"client_id": 2, "generation": 3, "seq_num": 5, "header": 6}
"""Where a field stands among the 32-bit integers of the fixed part."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Chunk:
    """Records ``first``, ``first + 1``, ... whose checksums were verified.

    Its ``repr`` is short for a reason: ``asyncio.Runner.run`` takes the ``repr`` of every result while it puts the
    signal handler back, and showing all payloads there takes several times as long as reading them.
    """

    first: int
    records: pa.BinaryArray
    """Every record from its first to its last byte, over the memory of the answer."""

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
        return ends[-1] - ends[0] - _OVERHEAD_BYTES * self.count

    def payloads(self) -> pa.BinaryArray:
        """The payloads, in memory of their own."""
        return pc.binary_slice(self.records, _HEAD_BYTES, -_CHECKSUM_BYTES)

    def checksums(self) -> "array[int]":
        """The signed checksums of the payloads."""
        return _integers("i", pc.binary_slice(self.records, -_CHECKSUM_BYTES), self.count)

    def heads(self) -> "Heads":
        """The fixed fields of all records."""
        return Heads(_integers("i", pc.binary_slice(self.records, 0, _HEAD_BYTES), _HEAD_INTS * self.count))

    def transaction_ids(self) -> "array[int]":
        """``first``, ``first + 1``, ..."""
        return array("q", range(self.first, self.first + self.count))

    def cut(self, max_bytes: int) -> Iterator["Chunk"]:
        """The same records in chunks of at most ``max_bytes`` of payload, or of one record that is larger."""
        if self.size_bytes <= max_bytes:
            yield self
            return
        ends = [end - _OVERHEAD_BYTES * index for index, end in enumerate(self._ends())]
        start = 0
        for index in range(1, self.count):
            if ends[index + 1] - ends[start] > max_bytes:
                yield self._slice(start, index)
                start = index
        yield self._slice(start, self.count)

    def _slice(self, start: int, end: int) -> "Chunk":
        return Chunk(self.first + start, self.records.slice(start, end - start))

    def _ends(self) -> "memoryview[int]":
        """Where the records begin in the answer, and where the last one ends."""
        offsets: memoryview[int] = memoryview(self.records.buffers()[1]).cast("i")
        return offsets[self.records.offset : self.records.offset + self.count + 1]


class Heads:
    """The fixed fields of some records, as integers in columns."""

    __slots__ = ("_ints",)

    def __init__(self, ints: "array[int]") -> None:
        self._ints = ints

    def column(self, name: str) -> "array[int]":
        """``header``, ``client_id``, ``generation`` or ``seq_num`` of every record."""
        return self._ints[_INT_PLACE[name] :: _HEAD_INTS]


def decode_chunk(buffer: bytes, position: int, end: int, *, partition_id: int, source: object) -> Chunk | None:
    """The record list (count, then records) that fills ``buffer[position:end]``; ``None`` if it is empty.

    Raises ``ProtocolError`` when it is no such list or its ids are not consecutive, and ``DataCorruptionError`` for the
    first payload that does not match its checksum (rule S6). ``source`` is named in the texts.
    """
    if position + _COUNT.size > end:
        raise ProtocolError(f"storage {source} sent a record list that is too short")
    (count,) = _COUNT.unpack_from(buffer, position)
    position += _COUNT.size
    if count < 0 or count * _OVERHEAD_BYTES > end - position:
        raise ProtocolError(f"storage {source} sent a record list of {count} records in {end - position} bytes")
    if count == 0:
        if position != end:
            raise ProtocolError(f"storage {source} sent an empty record list with {end - position} bytes left over")
        return None
    starts, checksums = _scan(buffer, position, end, count, source)
    records = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(starts), pa.py_buffer(buffer)])
    first = _first_id(records, count, source)
    chunk = Chunk(first, records)
    if chunk.checksums() != checksums:
        found = next(
            index
            for index, (stored, real) in enumerate(zip(chunk.checksums(), checksums, strict=True))
            if stored != real
        )
        raise DataCorruptionError(
            f"storage {source} delivered a damaged transaction: partition {partition_id}, "
            f"transaction {first + found}: the payload does not match its checksum"
        )
    return chunk


def _scan(buffer: bytes, position: int, end: int, count: int, source: object) -> tuple["array[int]", "array[int]"]:
    """Where each record begins (and the last one ends), and what the checksum of each payload is."""
    starts: list[int] = []
    checksums: list[int] = []
    add_start, add_checksum, unpack, checksum = starts.append, checksums.append, _COUNT.unpack_from, crc32
    last_start = end - _OVERHEAD_BYTES
    for _ in range(count):
        if position > last_start:
            raise ProtocolError(f"storage {source} sent a record list that is too short")
        add_start(position)
        data_start = position + _HEAD_BYTES
        data_end = data_start + unpack(buffer, position + _SIZE_PLACE)[0]
        position = data_end + _CHECKSUM_BYTES
        if not data_start <= data_end or position > end:
            raise ProtocolError(f"storage {source} sent a payload of {data_end - data_start} bytes")
        add_checksum(checksum(buffer[data_start:data_end]))
    if position != end:
        raise ProtocolError(f"storage {source} sent a record list with {end - position} bytes left over")
    add_start(end)
    signed = array("i")
    signed.frombytes(array("I", checksums).tobytes())
    return array("i", starts), signed


def _first_id(records: pa.BinaryArray, count: int, source: object) -> int:
    longs = _integers("q", pc.binary_slice(records, 0, _HEAD_BYTES), _HEAD_LONGS * count)
    ids = longs[::_HEAD_LONGS]
    first = ids[0]
    if first > _LARGEST_ID - count or ids != array("q", range(first, first + count)):
        place, found = next((place, found) for place, found in enumerate(ids, first) if place != found)
        raise ProtocolError(f"storage {source} sent transaction {found} in the place of {place}")
    return first


def _integers(code: str, values: pa.BinaryArray, count: int) -> "array[int]":
    """The bytes of all values, which stand one behind the other, as big-endian integers."""
    found: array[int] = array(code)
    offsets = memoryview(values.buffers()[1]).cast("i")
    start = offsets[values.offset]
    found.frombytes(memoryview(values.buffers()[2])[start : start + count * found.itemsize])
    if sys.byteorder == "little":
        found.byteswap()
    return found
