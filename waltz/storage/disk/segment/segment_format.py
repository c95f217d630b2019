"""The bytes of segment files: headers, records, index entries. Pure functions.

Data file: a 128-byte header, then records back to back: transaction id (8), request id (16), transaction header (4),
data length (4), data checksum (4), data, CRC-32 over everything before it (4). Index file: the same header, then for
transaction id t the offset of its record, 8 bytes at 128 + 8 * (t - first). Everything big-endian.
"""

import re
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.common.records import Record, RecordHeader

HEADER_SIZE_BYTES = 128
INDEX_ENTRY_SIZE_BYTES = 8
RECORD_PREFIX = struct.Struct(">q16siii")
"""Transaction id, request id, transaction header, data length, data checksum."""
RECORD_CRC = struct.Struct(">I")
STORED_OVERHEAD_BYTES = RECORD_PREFIX.size + RECORD_CRC.size
"""Bytes of a record on disk beside its data."""

DATA_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"

_HEADER = struct.Struct(">iq16siq")
_LENGTH = struct.Struct(">i")
_UNSIGNED_LENGTH = struct.Struct(">I")
_LENGTH_OFFSET = 28
_ID = struct.Struct(">q")
_FIRST_BLOCK_BYTES = 1 << 13
"""The size of the first read of a scan. Each further read is twice as large, up to :data:`_SCAN_BLOCK_BYTES`. So a
search that ends soon reads little."""
_SCAN_BLOCK_BYTES = 1 << 20


class Reader(Protocol):
    """A source with reads by position; fewer bytes only at the end."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""


class SegmentHeader(NamedTuple):
    """The common header of a segment's data file and index file."""

    version: int
    creation_time_ms: int
    cluster_key: UUID
    partition_id: int
    first_transaction_id: int

    def encode(self) -> bytes:
        """The 128 bytes of the header."""
        fields = _HEADER.pack(
            self.version,
            self.creation_time_ms,
            self.cluster_key.bytes,
            self.partition_id,
            self.first_transaction_id,
        )
        return fields.ljust(HEADER_SIZE_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "SegmentHeader":
        """The header in 128 bytes; the version is not checked."""
        version, creation_time_ms, key, partition_id, first_transaction_id = _HEADER.unpack_from(data)
        return cls(version, creation_time_ms, UUID(bytes=key), partition_id, first_transaction_id)


def data_file_name(first_transaction_id: int) -> str:
    """Name of the data file of a segment: its first transaction id with 19 digits."""
    return f"{first_transaction_id:019d}{DATA_SUFFIX}"


def index_path(data_path: str) -> str:
    """Path of the index file that belongs to a data file."""
    return data_path.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX


def index_offset(first_transaction_id: int, transaction_id: int) -> int:
    """The offset of a transaction's entry in the index file."""
    return HEADER_SIZE_BYTES + INDEX_ENTRY_SIZE_BYTES * (transaction_id - first_transaction_id)


def encode_index(offsets: Sequence[int]) -> bytes:
    """Index entries for consecutive transactions."""
    entries = array("q", offsets)
    if sys.byteorder == "little":
        entries.byteswap()
    return entries.tobytes()


def decode_index(data: bytes) -> Sequence[int]:
    """The offsets in index entries; an incomplete last entry is ignored."""
    entries = array("q", data[: len(data) - len(data) % INDEX_ENTRY_SIZE_BYTES])
    if sys.byteorder == "little":
        entries.byteswap()
    return entries


def encode_record(record: Record) -> bytes:
    """A record in the form of the disk."""
    transaction_id, req_id, header, data, checksum = record
    body = RECORD_PREFIX.pack(transaction_id, req_id, header, len(data), checksum) + data
    return body + RECORD_CRC.pack(crc32(body))


def decode_record(buffer: bytes, start: int, end: int, transaction_id: int) -> Record | None:
    """The record that fills ``buffer[start:end]`` exactly; ``None`` without an intact record of this id."""
    data_start, data_end = start + RECORD_PREFIX.size, end - RECORD_CRC.size
    if data_start > data_end or end > len(buffer):
        return None
    found_id, req_id, header, size, checksum = RECORD_PREFIX.unpack_from(buffer, start)
    if found_id != transaction_id or size != data_end - data_start:
        return None
    if crc32(memoryview(buffer)[start:data_end]) != RECORD_CRC.unpack_from(buffer, data_end)[0]:
        return None
    return Record(found_id, req_id, header, buffer[data_start:data_end], checksum)


def decode_span(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> list[Record]:
    """The records that begin at the bounds, up to the first damaged record. The last bound is the end of the last
    record.

    Bounds are offsets in the file; the buffer begins at the first bound.
    """
    start = bounds[0]
    records: list[Record] = []
    for i in range(len(bounds) - 1):
        record = decode_record(buffer, bounds[i] - start, bounds[i + 1] - start, transaction_id + i)
        if record is None:
            break
        records.append(record)
    return records


WIRE_PIECES = 3
"""Number of pieces of a record on the wire."""

_WIRE_HEAD_BYTES = 32
_ID_AND_SIZE = struct.Struct(">q20xi")


def intact_sizes(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> list[int]:
    """Like :func:`decode_span`, but only the size of each record in bytes. The hot path of bulk reads."""
    start, limit = bounds[0], len(buffer)
    sizes: list[int] = []
    view, unpack, unpack_crc = memoryview(buffer), _ID_AND_SIZE.unpack_from, RECORD_CRC.unpack_from
    begin = 0
    for bound in bounds[1:]:
        end = bound - start
        size = end - begin
        if size < STORED_OVERHEAD_BYTES or end > limit:
            break
        data_end = end - 4
        found_id, data_size = unpack(buffer, begin)
        if (
            found_id != transaction_id
            or data_size != size - STORED_OVERHEAD_BYTES
            or crc32(view[begin:data_end]) != unpack_crc(buffer, data_end)[0]
        ):
            break
        sizes.append(size)
        transaction_id += 1
        begin = end
    return sizes


def header_span(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> list[RecordHeader]:
    """Like :func:`decode_span`, but without the payloads: these are checked, but not copied."""
    headers: list[RecordHeader] = []
    begin = 0
    for size in intact_sizes(buffer, bounds, transaction_id):
        headers.append(RecordHeader(*RECORD_PREFIX.unpack_from(buffer, begin)[:3]))
        begin += size
    return headers


def encode_span(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> list[bytes]:
    """Like :func:`decode_span`, but the records in the form of a list on the wire, :data:`WIRE_PIECES` each.

    Disk and wire differ only in the place of the payload's checksum, so nothing is decoded.
    """
    pieces: list[bytes] = []
    begin = 0
    for size in intact_sizes(buffer, bounds, transaction_id):
        data_at, data_start, end = begin + _WIRE_HEAD_BYTES, begin + RECORD_PREFIX.size, begin + size
        pieces += (buffer[begin:data_at], buffer[data_start : end - RECORD_CRC.size], buffer[data_at:data_start])
        begin = end
    return pieces


def stored_id_and_size(prefix: bytes) -> tuple[int, int]:
    """The transaction id and the size on disk (possibly negative) according to the first 36 bytes of a record."""
    return _ID.unpack_from(prefix)[0], STORED_OVERHEAD_BYTES + _LENGTH.unpack_from(prefix, _LENGTH_OFFSET)[0]


def add_record_offsets(offsets: list[int], data: bytes, start: int, end: int, count: int, offset: int) -> None:
    """Add the file offsets of the ``count`` records that fill ``data[start:end]``.

    The first record is at ``offset``; the lengths give the places of the others. Nothing else is checked.

    Raises ``ValueError`` when the records do not fill the range.
    """
    at, difference, unpack = start, offset - start, _UNSIGNED_LENGTH.unpack_from
    last = end - STORED_OVERHEAD_BYTES
    found = 0
    while at <= last and found < count:
        offsets.append(at + difference)
        found += 1
        at += STORED_OVERHEAD_BYTES + unpack(data, at + _LENGTH_OFFSET)[0]
    if found != count or at != end:
        raise ValueError(f"{end - start} bytes are not {count} records")


def valid_record_size(reader: Reader, offset: int, end: int, transaction_id: int) -> int | None:
    """Size in bytes of the intact record of this id at ``offset``, ``None`` without one.

    ``end`` is the size of the file: even with a damaged length, no more memory is taken than the file has bytes.
    """
    prefix = reader.read(offset, RECORD_PREFIX.size) if offset >= HEADER_SIZE_BYTES else b""
    if len(prefix) < RECORD_PREFIX.size:
        return None
    found_id, size = stored_id_and_size(prefix)
    if found_id != transaction_id or size < STORED_OVERHEAD_BYTES or offset + size > end:
        return None
    return size if decode_record(reader.read(offset, size), 0, size, transaction_id) is not None else None


def scan_records(reader: Reader, offset: int, end: int, transaction_id: int) -> Sequence[int]:
    """The offsets of the intact records from ``transaction_id`` at ``offset`` on, and the end of the last record.

    Stops at the first damaged record. The result has one element more than the number of records.
    """
    offsets = array("q", [offset])
    block, block_start, block_size = b"", offset, _FIRST_BLOCK_BYTES
    while offset + STORED_OVERHEAD_BYTES <= end:
        position = offset - block_start
        size = _size_at(block, position)
        if size is None or position + size > len(block):
            # The block does not have the whole record: read a new block from here, large enough for a plausible record.
            block, block_start, position = reader.read(offset, min(block_size, end - offset)), offset, 0
            block_size = min(2 * block_size, _SCAN_BLOCK_BYTES)
            size = _size_at(block, 0)
            if size is None or size < STORED_OVERHEAD_BYTES or offset + size > end:
                break
            if size > len(block):
                block = reader.read(offset, size)
        if size < STORED_OVERHEAD_BYTES or not _is_intact(block, position, size, transaction_id):
            break
        offset += size
        transaction_id += 1
        offsets.append(offset)
    return offsets


def _size_at(block: bytes, position: int) -> int | None:
    """The size of the record at ``position`` according to its prefix; ``None`` if the prefix is not in the block."""
    if position + RECORD_PREFIX.size > len(block):
        return None
    size: int = STORED_OVERHEAD_BYTES + _LENGTH.unpack_from(block, position + _LENGTH_OFFSET)[0]
    return size


def _is_intact(block: bytes, position: int, size: int, transaction_id: int) -> bool:
    crc_position = position + size - RECORD_CRC.size
    return (
        len(block) >= position + size
        and _ID.unpack_from(block, position)[0] == transaction_id
        and crc32(memoryview(block)[position:crc_position]) == RECORD_CRC.unpack_from(block, crc_position)[0]
    )


def find_later_record(reader: Reader, offset: int, end: int, transaction_id: int) -> tuple[int, int] | None:
    """The first intact record with a larger id after a damaged place: ``(transaction id, offset)``.

    ``transaction_id`` should be at ``offset``, but is damaged. An id is plausible if there is room for the records in
    between. ``None``: no complete record follows, so the tail is torn.
    """
    largest_id = transaction_id + (end - offset) // STORED_OVERHEAD_BYTES
    pattern = _ids_pattern(transaction_id + 1, largest_id)
    overlap = _ID.size - 1
    next_start, block_size = offset, _FIRST_BLOCK_BYTES
    while next_start < end:
        block_start = next_start
        block = reader.read(block_start, min(block_size + overlap, end - block_start))
        next_start, block_size = block_start + block_size, min(2 * block_size, _SCAN_BLOCK_BYTES)
        if block.count(0) == len(block):
            continue
        for match in pattern.finditer(block):
            found_id = _ID.unpack_from(block, match.start())[0]
            found_offset = block_start + match.start()
            room = (found_offset - offset) // STORED_OVERHEAD_BYTES
            if transaction_id < found_id <= transaction_id + room and valid_record_size(
                reader, found_offset, end, found_id
            ):
                return found_id, found_offset
    return None


def _ids_pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """A pattern for the places at which the big-endian bytes of an id from the range, or of a few other ids, may
    begin."""
    low, high = _ID.pack(lowest), _ID.pack(max(lowest, highest))
    common = 0
    while common < _ID.size and low[common] == high[common]:
        common += 1
    pattern = re.escape(low[:common])
    if common < _ID.size:
        pattern += b"[" + re.escape(low[common : common + 1]) + b"-" + re.escape(high[common : common + 1]) + b"]"
        pattern += b".{%d}" % (_ID.size - common - 1)
    return re.compile(b"(?=" + pattern + b")", re.DOTALL)
