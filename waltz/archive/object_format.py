"""The format of an archived object: consecutive committed records in their canonical form. Pure functions.

An object is a header, blocks, an index with an entry for each block, and a tail. All numbers are big-endian:

* header: magic (8), cluster key (16), partition (4), first transaction id (8), CRC-32 of these (4);
* block: bytes of the list of sizes (4), size of each record (4 each), bytes of the records (4), the records as on the
  disks of storages: equal on all replicas;
* index entry: first transaction id of the block (8), its offset in the object (8), its CRC-32 (4);
* tail: first and last transaction id (8 each), bytes of the records (8), offset of the index (8), number of blocks (4),
  CRC-32 of the index and of these (4), magic (8).

The end of a block depends on the sizes of its records only. So the same records make the same bytes. Times of commits
differ between replicas; so the manifest has them, and objects do not.
"""

import re
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

from waltz.archive.errors import ArchiveDamagedError
from waltz.common.checksum import crc32
from waltz.storage.disk.segment.segment_format import (
    RECORD_CRC,
    RECORD_PREFIX,
    STORED_OVERHEAD_BYTES,
)

BLOCK_BYTES = 1 << 20
"""Maximum bytes of the records of a block. A larger record has a block of its own."""

BLOCK_RECORDS = 1 << 14
"""Maximum number of records of a block."""

_MAGIC = b"WALTZAR\x01"
"""The last byte is the version of the format."""
_END_MAGIC = b"WALTZAE\x01"
_HEADER = struct.Struct(">8s16siq")
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">i")
_ENTRY = struct.Struct(">qqI")
_TAIL = struct.Struct(">qqqqi")

HEADER_BYTES = _HEADER.size + _CRC.size
TAIL_BYTES = _TAIL.size + _CRC.size + len(_END_MAGIC)

_PREFIX = struct.Struct(">q20xiI")
"""The beginning of a record on disk: transaction id, size of the payload, checksum of the payload."""
assert _PREFIX.size == RECORD_PREFIX.size

_COPIED_BYTES = 512
"""Payloads of up to this size are copied: copying costs less than a view of them."""

_NAME = re.compile(r"(\d{19})-(\d{19})-([0-9a-f]{8})", re.ASCII)


class ObjectName(NamedTuple):
    """The name of an object in the folder of its partition: first and last transaction, CRC-32 of all bytes."""

    first: int
    last: int
    crc: int

    def __str__(self) -> str:
        return f"{self.first:019d}-{self.last:019d}-{self.crc:08x}"


def parse_name(text: str) -> ObjectName | None:
    """Parse the name of an object; ``None`` if the text is not such a name."""
    match = _NAME.fullmatch(text)
    return None if match is None else ObjectName(int(match[1]), int(match[2]), int(match[3], 16))


class Block(NamedTuple):
    """The place of a block according to the index."""

    first: int
    """The first transaction id of the block."""
    record_count: int
    offset: int
    """Offset of the block in the object, in bytes."""
    size_bytes: int
    crc: int


class Index(NamedTuple):
    """The content of an object's index and tail."""

    first: int
    last: int
    records_bytes: int
    blocks: tuple[Block, ...]

    def covering(self, start: int, end: int) -> Sequence[Block]:
        """The blocks with transactions ``start`` to ``end - 1``."""
        starts = [block.first for block in self.blocks]
        return self.blocks[max(0, bisect_right(starts, start) - 1) : bisect_right(starts, end - 1)]


class SealedObject(NamedTuple):
    """A finished object."""

    name: ObjectName
    data: bytes
    records_bytes: int
    index_bytes: int
    """Bytes of index and tail at the end of the object."""


class ObjectWriter:
    """Makes one object from records that arrive in portions of any size."""

    def __init__(self, cluster_key: UUID, partition_id: int, first: int) -> None:
        """``first`` is the id of the first transaction to be added."""
        header = _HEADER.pack(_MAGIC, cluster_key.bytes, partition_id, first)
        self._partition_id = partition_id
        self._first = self._next = first
        self._pieces = [header + _CRC.pack(crc32(header))]
        self._offset = HEADER_BYTES
        self._entries: list[bytes] = []
        self._block_first = first
        self._block_sizes = array("i")
        self._block_pieces: list[bytes | memoryview] = []
        self._block_bytes = 0
        self.records_bytes = 0
        """Bytes of the added records."""

    @property
    def count(self) -> int:
        """Number of added records."""
        return self._next - self._first

    @property
    def next_id(self) -> int:
        """Id of the next transaction to add."""
        return self._next

    def add(self, records: bytes, sizes: Sequence[int]) -> None:
        """Add consecutive records; adds all of them or none.

        Args:
            records: The records as on disk, one behind the other.
            sizes: The bytes of each record.

        Raises:
            ArchiveDamagedError: A record is damaged, or does not follow the last added one.
        """
        bounds = array("q", accumulate(sizes, initial=0))
        intact = _sound_records(records, bounds, self._next)
        if intact < len(sizes) or bounds[-1] != len(records):
            raise ArchiveDamagedError(
                f"partition {self._partition_id}: transaction {self._next + intact} is damaged or out of order"
            )
        view, begin = memoryview(records), 0
        while begin < len(sizes):
            end = self._fitting(bounds, begin)
            if end <= begin:  # the block is full, or a large record exceeds it
                self._close_block()
                continue
            self._block_pieces.append(view[bounds[begin] : bounds[end]])
            self._block_sizes.extend(sizes[begin:end])
            self._block_bytes += bounds[end] - bounds[begin]
            begin = end
        self._next += len(sizes)
        self.records_bytes += bounds[-1]

    def finish(self) -> SealedObject:
        """The object with all added records. At least one record must have been added."""
        self._close_block()
        index = b"".join(self._entries)
        tail = _TAIL.pack(self._first, self._next - 1, self.records_bytes, self._offset, len(self._entries))
        crc = crc32(tail, crc32(index))
        ending = index + tail + _CRC.pack(crc) + _END_MAGIC
        data = b"".join([*self._pieces, ending])
        name = ObjectName(self._first, self._next - 1, crc32(data))
        return SealedObject(name, data, self.records_bytes, len(ending))

    def _fitting(self, bounds: Sequence[int], begin: int) -> int:
        """End of the records that fit into the open block."""
        room = BLOCK_BYTES - self._block_bytes
        end = bisect_right(bounds, bounds[begin] + room, begin) - 1
        if not self._block_sizes:
            end = max(end, begin + 1)  # the first record may be larger than a block
        return min(end, begin + BLOCK_RECORDS - len(self._block_sizes))

    def _close_block(self) -> None:
        if not self._block_sizes:
            return
        sizes = array("i", self._block_sizes)
        if sys.byteorder == "little":
            sizes.byteswap()
        sizes_bytes = sizes.tobytes()
        block = b"".join(
            (_SIZE.pack(len(sizes_bytes)), sizes_bytes, _SIZE.pack(self._block_bytes), *self._block_pieces)
        )
        self._entries.append(_ENTRY.pack(self._block_first, self._offset, crc32(block)))
        self._block_first += len(sizes)
        self._pieces.append(block)
        self._offset += len(block)
        self._block_sizes, self._block_pieces, self._block_bytes = array("i"), [], 0


def _sound_records(records: bytes, bounds: Sequence[int], first: int) -> int:
    """The number of intact records before the first damaged one.

    The storage made the checksum of a record, and the client that of its payload: the second may show earlier damage.
    Most of an archiver's processor time is spent here. So one pass compares both checksums, and small payloads are
    copied, because a copy costs less than a view.
    """
    view, prefix, crc_of, limit = memoryview(records), _PREFIX.unpack_from, RECORD_CRC.unpack_from, len(records)
    begin, transaction_id = bounds[0], first
    for end in bounds[1:]:
        payload_bytes = end - begin - STORED_OVERHEAD_BYTES
        if payload_bytes < 0 or end > limit:
            break
        crc_at = end - RECORD_CRC.size
        found_id, claimed_bytes, payload_crc = prefix(records, begin)
        record = records[begin:crc_at] if payload_bytes < _COPIED_BYTES else view[begin:crc_at]
        if (
            found_id != transaction_id
            or claimed_bytes != payload_bytes
            or crc32(record[_PREFIX.size :]) != payload_crc
            or crc32(record) != crc_of(records, crc_at)[0]
        ):
            break
        begin = end
        transaction_id += 1
    return transaction_id - first


class Limit(NamedTuple):
    """The limits of an object."""

    max_records: int
    max_bytes: int
    """Maximum bytes of the records."""


def records_that_fit(sizes: Sequence[int], present_count: int, present_bytes: int, limit: Limit) -> int:
    """The number of the next records that still fit into an object.

    The rule depends on its arguments only, so every archiver makes the same objects. An object takes its first record
    whatever the size of the record.

    Args:
        sizes: The bytes of each of the next records.
        present_count: Number of records in the object.
        present_bytes: Bytes of the records in the object.
        limit: The limits of the object.
    """
    ends = list(accumulate(sizes))
    fitting = min(bisect_right(ends, limit.max_bytes - present_bytes), limit.max_records - present_count)
    return max(fitting, 1) if present_count == 0 and sizes else max(fitting, 0)


def check_header(data: bytes, cluster_key: UUID, partition_id: int, first: int, name: str) -> None:
    """Check the header of an object.

    Args:
        data: The first bytes of the object.
        cluster_key: The expected cluster.
        partition_id: The expected partition.
        first: The expected first transaction id.
        name: Name of the object in the text of an error.

    Raises:
        ArchiveDamagedError: The header is damaged, or the object is another one.
    """
    if len(data) < HEADER_BYTES:
        raise ArchiveDamagedError(f"{name} is truncated: the object ends within its header")
    magic, key, found_partition, found_first = _HEADER.unpack_from(data)
    if magic[:-1] != _MAGIC[:-1]:
        raise ArchiveDamagedError(f"{name} is not an archived object")
    if magic != _MAGIC:
        raise ArchiveDamagedError(
            f"{name} has version {magic[-1]} of the format, but this version of Waltz reads only {_MAGIC[-1]}: "
            "upgrade Waltz"
        )
    if crc32(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        raise ArchiveDamagedError(f"{name} is damaged: the checksum of its header does not match")
    if (key, found_partition, found_first) != (cluster_key.bytes, partition_id, first):
        raise ArchiveDamagedError(
            f"{name} holds partition {found_partition} of cluster {UUID(bytes=key)} from transaction {found_first} on, "
            f"not partition {partition_id} of cluster {cluster_key} from {first} on"
        )


def decode_index(data: bytes, object_bytes: int, name: str) -> Index:
    """Decode and check the index of an object.

    Args:
        data: The last bytes of the object, with the whole index.
        object_bytes: The size of the object.
        name: Name of the object in the text of an error.

    Raises:
        ArchiveDamagedError: The index is damaged.
    """
    if len(data) < TAIL_BYTES or data[-len(_END_MAGIC) :] != _END_MAGIC:
        raise ArchiveDamagedError(f"{name} is truncated or damaged: its end is not the tail of an archived object")
    tail_at = len(data) - TAIL_BYTES
    first, last, records_bytes, index_at, count = _TAIL.unpack_from(data, tail_at)
    entries_at = tail_at - count * _ENTRY.size
    if count <= 0 or entries_at < 0 or index_at != object_bytes - len(data) + entries_at:
        raise ArchiveDamagedError(f"{name} is damaged: its index is not where its tail says")
    if crc32(data[entries_at : tail_at + _TAIL.size]) != _CRC.unpack_from(data, tail_at + _TAIL.size)[0]:
        raise ArchiveDamagedError(f"{name} is damaged: the checksum of its index does not match")
    entries = [*_ENTRY.iter_unpack(data[entries_at:tail_at])]
    ends = [*((entry[0], entry[1]) for entry in entries[1:]), (last + 1, index_at)]
    blocks = tuple(
        Block(begin, end - begin, offset, end_offset - offset, crc)
        for (begin, offset, crc), (end, end_offset) in zip(entries, ends, strict=True)
    )
    return Index(first, last, records_bytes, blocks)


class Records(NamedTuple):
    """The records of a block as on disk, and the size of each."""

    data: bytes
    sizes: Sequence[int]


def check_block(data: bytes, block: Block, name: str) -> None:
    """Check size and checksum of a block; ``name`` begins the text of an error.

    Raises:
        ArchiveDamagedError: The block is truncated or damaged.
    """
    if len(data) != block.size_bytes:
        raise ArchiveDamagedError(
            f"{name} is truncated: {len(data)} of {block.size_bytes} bytes of the block from transaction {block.first}"
        )
    if crc32(data) != block.crc:
        raise ArchiveDamagedError(
            f"{name} is damaged: transactions {block.first} to {block.first + block.record_count - 1} "
            "do not match the checksum of their block"
        )


def decode_block(data: bytes, block: Block, name: str) -> Records:
    """Decode a block and check each record; ``name`` begins the text of an error.

    Raises:
        ArchiveDamagedError: The block or a record is damaged.
    """
    check_block(data, block, name)
    (sizes_bytes,) = _SIZE.unpack_from(data)
    records_at = 2 * _SIZE.size + sizes_bytes
    sizes = array("i", data[_SIZE.size : _SIZE.size + sizes_bytes]) if sizes_bytes % _SIZE.size == 0 else array("i")
    if sys.byteorder == "little":
        sizes.byteswap()
    records = data[records_at:]
    bounds = array("q", accumulate(sizes, initial=0))
    if (
        len(sizes) != block.record_count
        or min(sizes, default=0) < STORED_OVERHEAD_BYTES
        or bounds[-1] != len(records)
        or _sound_records(records, bounds, block.first) < block.record_count
    ):
        raise ArchiveDamagedError(f"{name} is damaged: bad record in the block from transaction {block.first} on")
    return Records(records, sizes)


def decode_object(
    data: bytes, cluster_key: UUID, partition_id: int, wanted: ObjectName, name: str
) -> tuple[Index, list[Records]]:
    """Decode a whole object and check all of it.

    Args:
        data: The bytes of the object.
        cluster_key: The expected cluster.
        partition_id: The expected partition.
        wanted: The name of the object according to the manifest.
        name: Name of the object in the text of an error.

    Returns:
        The index, and the records of each block.

    Raises:
        ArchiveDamagedError: The object is damaged, or is another one.
    """
    check_header(data, cluster_key, partition_id, wanted.first, name)
    index = decode_index(data, len(data), name)
    if (index.first, index.last) != (wanted.first, wanted.last):
        raise ArchiveDamagedError(
            f"{name} is damaged: according to its index, it holds transactions {index.first} to {index.last}"
        )
    blocks = [decode_block(data[block.offset : block.offset + block.size_bytes], block, name) for block in index.blocks]
    if index.blocks[0].first != index.first or index.blocks[0].offset != HEADER_BYTES:
        raise ArchiveDamagedError(f"{name} is damaged: its blocks do not begin behind its header")
    if crc32(data) != wanted.crc:
        raise ArchiveDamagedError(f"{name} is damaged: its bytes do not match the checksum in its name")
    return index, blocks
