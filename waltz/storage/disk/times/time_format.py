"""The format of the files of a time index, and the search among their entries. Pure.

A file begins with a header; entries of equal size follow. Ids grow from entry to entry, times do not fall. The checksum
of each entry begins with the checksum of the header. So neither a torn write nor an entry of another file counts as an
entry.
"""

import struct
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple
from uuid import UUID

from waltz.common.checksum import crc32

TIME_INDEX_SUFFIX = ".tdx"
VERSION = 1

_MAGIC = b"WTDX"
_HEADER = struct.Struct(">4si16siq")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">qq")

HEADER_BYTES = _HEADER.size + _CRC.size
ENTRY_BYTES = _ENTRY.size + _CRC.size


class TimeEntry(NamedTuple):
    """At this time, by the clock of the partition's owner, all transactions up to this one were committed."""

    transaction_id: int
    time_ms: int


class TimeHeader(NamedTuple):
    """The identity of a file. ``first_transaction_id`` is the first id of the segment."""

    cluster_key: UUID
    partition_id: int
    first_transaction_id: int

    def encode(self) -> bytes:
        """The header as bytes of the file."""
        key, partition_id, first_id = self
        fields = _HEADER.pack(_MAGIC, VERSION, key.bytes, partition_id, first_id)
        return fields + _CRC.pack(crc32(fields))

    @property
    def checksum(self) -> int:
        """The value with which the checksums of the entries begin."""
        found: int = _CRC.unpack(self.encode()[-_CRC.size :])[0]
        return found


def time_index_name(first_transaction_id: int) -> str:
    """Name of the time index of a segment."""
    return f"{first_transaction_id:019d}{TIME_INDEX_SUFFIX}"


def time_index_path(data_path: str) -> str:
    """Path of the time index that belongs to a data file."""
    return str(PurePath(data_path).with_suffix(TIME_INDEX_SUFFIX))


def encode_entry(header: TimeHeader, entry: TimeEntry) -> bytes:
    """An entry as bytes of a file with that header."""
    fields = _ENTRY.pack(*entry)
    return fields + _CRC.pack(crc32(fields, header.checksum))


def decode_entry(header: TimeHeader, data: bytes) -> TimeEntry | None:
    """The entry in ``data``; ``None`` when it is torn, or damaged."""
    if len(data) < ENTRY_BYTES:
        return None
    fields = data[: _ENTRY.size]
    if _CRC.unpack_from(data, _ENTRY.size)[0] != crc32(fields, header.checksum):
        return None
    return TimeEntry(*_ENTRY.unpack(fields))


def entry_offset(position: int) -> int:
    """The offset of the entry at this position."""
    return HEADER_BYTES + position * ENTRY_BYTES


def entry_count(size_bytes: int) -> int:
    """Number of whole entries in a file of this size."""
    return max(0, size_bytes - HEADER_BYTES) // ENTRY_BYTES


def last_position(
    read: Callable[[int], TimeEntry | None], count: int, is_wanted: Callable[[TimeEntry], bool]
) -> int | None:
    """The position of the last entry that is wanted.

    Args:
        read: Returns the entry at a position; ``None`` for a damaged entry, which is passed over.
        count: Number of positions.
        is_wanted: True for all entries up to some position, false for all later entries.

    Returns:
        ``None`` when no entry is wanted.
    """
    found, low, high = None, 0, count
    while low < high:
        middle = probed = (low + high) // 2
        entry = read(probed)
        while entry is None and probed > low:
            probed -= 1
            entry = read(probed)
        if entry is None:
            low = middle + 1
        elif is_wanted(entry):
            found, low = probed, middle + 1
        else:
            high = probed
    return found
