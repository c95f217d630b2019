"""The groups of the journal: the entries that one sync makes durable. Pure.

A file of the journal is used many times; each use is a *life* of the file. A group fills whole blocks of 4 KiB. The
last eight bytes of each sector of 512 bytes are the mark of the life in which the sector was written. The other bytes
of all sectors, joined, are

- a head of 57 bytes: magic, sequence of the file, number of the group, oldest number that a replay needs, check of the
  group before, number of partitions, CRC-32 of their ids, number of entries, whether an entry makes earlier entries
  void, size of the body in bytes, CRC-32 of the body, check (the CRC-32 of the volume id and of the head up to here);
- the body: ids of the partitions that the group concerns, then the entries, then zeros.

Files are not emptied before they are used again. So a sector that was not written before a loss of power still has the
mark of an earlier life, or zeros. The marks of two lives differ in so many bits that one flipped bit never turns one
mark into another.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.checksum import crc32
from waltz.storage.disk.journal.entries import Entry, decode_entries, encode_entries

BLOCK_BYTES = 4096
"""Groups begin and end at multiples of this size."""
SECTOR_BYTES = 512
"""The unit that a disk writes wholly or not at all."""
MAX_SEQUENCE = (1 << 32) - 1
"""The sequence of the last life that a file can have."""

_MARK = struct.Struct(">II")
_CONTENT_BYTES = SECTOR_BYTES - _MARK.size
_BLOCK_CONTENT_BYTES = BLOCK_BYTES // SECTOR_BYTES * _CONTENT_BYTES
_MARK_BITS = 8 * _MARK.size
_SEQUENCE = struct.Struct(">I")
_LIFE = b"life of a journal"

_MAGIC = b"WJG1"
_HEAD = struct.Struct(">4sIqqIIII?QI")
_CHECK = struct.Struct(">I")
HEAD_BYTES = _HEAD.size + _CHECK.size
_PARTITION_BYTES = 4


class GroupHead(NamedTuple):
    """The fields of the first sector of a group."""

    sequence: int
    """The life of the file."""
    number: int
    """The number of the group; numbers are dense over all files."""
    base: int
    """The number of the oldest group that a replay needs."""
    previous_check: int
    """The check of the group before."""
    partition_count: int
    partitions_crc: int
    entry_count: int
    voids: bool
    """Whether an entry makes earlier entries void."""
    body_bytes: int
    body_crc: int
    check: int
    """A checksum of the whole group, because it covers ``body_crc``."""

    @property
    def size_bytes(self) -> int:
        """The size of the group in the file."""
        return stored_bytes(self.body_bytes)


def entries_at(head: GroupHead) -> int:
    """The offset in the body at which the entries begin."""
    return _PARTITION_BYTES * head.partition_count


def entries_of(head: GroupHead, body: bytes) -> list[Entry]:
    """The entries of a group.

    Args:
        head: The head of the group.
        body: The whole body of the group.

    Raises:
        EntryError: The body holds something else than entries.
    """
    return list(decode_entries(body, entries_at(head), head.entry_count))


def stored_bytes(body_bytes: int) -> int:
    """The size in the file of a group with a body of this size."""
    return -(-(HEAD_BYTES + body_bytes) // _BLOCK_CONTENT_BYTES) * BLOCK_BYTES


def mark_of(sequence: int) -> bytes:
    """The mark of a life in its sectors."""
    return _MARK.pack(sequence, crc32(_SEQUENCE.pack(sequence), crc32(_LIFE)))


def spread(content: bytes, sequence: int) -> bytes:
    """The sectors of a group: ``content``, which fills whole blocks, with the mark of the life in each sector."""
    mark = mark_of(sequence)
    return mark.join([content[at : at + _CONTENT_BYTES] for at in range(0, len(content), _CONTENT_BYTES)]) + mark


def gather(data: bytes) -> bytes:
    """The content of sectors, without the marks."""
    return b"".join([data[at : at + _CONTENT_BYTES] for at in range(0, len(data), SECTOR_BYTES)])


def life_of(sector: bytes) -> int | None:
    """The life in which a sector was written; 0 for a sector that was never written.

    One flipped bit of the mark is tolerated. ``None`` when the bytes are no mark.
    """
    mark = sector[_CONTENT_BYTES:SECTOR_BYTES]
    if len(mark) < _MARK.size:
        return None
    bits = int.from_bytes(mark, "big")
    if bits & (bits - 1) == 0:
        return 0
    for change in (0, *(1 << bit for bit in range(_MARK_BITS))):
        candidate = (bits ^ change).to_bytes(_MARK.size, "big")
        sequence: int = _SEQUENCE.unpack_from(candidate)[0]
        if sequence and mark_of(sequence) == candidate:
            return sequence
    return None


def encode_group(
    entries: Sequence[Entry], *, volume_id: bytes, sequence: int, number: int, base: int, previous_check: int
) -> tuple[bytes, int]:
    """The bytes of a group, and its check. The hot path of the journal.

    Args:
        entries: The entries of the group.
        volume_id: The id of the volume.
        sequence: The life of the file.
        number: The number of the group.
        base: The number of the oldest group that a replay needs.
        previous_check: The check of the group before.

    Raises:
        struct.error: A number does not fit.
    """
    pieces, partitions, voids = encode_entries(entries)
    ids = struct.pack(f">{len(partitions)}i", *partitions)
    pieces.insert(0, ids)
    body = b"".join(pieces)
    head = _HEAD.pack(
        _MAGIC,
        sequence,
        number,
        base,
        previous_check,
        len(partitions),
        crc32(ids),
        len(entries),
        voids,
        len(body),
        crc32(body),
    )
    check = crc32(head, crc32(volume_id))
    content = b"".join((head, _CHECK.pack(check), body, bytes(-(HEAD_BYTES + len(body)) % _BLOCK_CONTENT_BYTES)))
    return spread(content, sequence), check


def decode_head(sector: bytes, volume_id: bytes) -> GroupHead | None:
    """The head in the first sector of a group; ``None`` when the sector holds no whole head.

    Args:
        sector: The sector; more bytes may follow.
        volume_id: The id of the volume.
    """
    if len(sector) < SECTOR_BYTES:
        return None
    magic, *fields = _HEAD.unpack_from(sector)
    (check,) = _CHECK.unpack_from(sector, _HEAD.size)
    if magic != _MAGIC or check != crc32(memoryview(sector)[: _HEAD.size], crc32(volume_id)):
        return None
    return GroupHead._make((*fields, check))


def decode_body(head: GroupHead, data: bytes) -> bytes | None:
    """The body of a group; ``None`` when the body is not whole.

    Args:
        head: The head of the group.
        data: All sectors of the group.
    """
    if len(data) != head.size_bytes or _PARTITION_BYTES * head.partition_count > head.body_bytes:
        return None
    content = gather(data)
    end = HEAD_BYTES + head.body_bytes
    body = content[HEAD_BYTES:end]
    if crc32(body) != head.body_crc or content.count(0, end) != len(content) - end:
        return None
    return body


def partitions_of(head: GroupHead, data: bytes) -> Sequence[int] | None:
    """The partitions of a group that is not whole; ``None`` when the ids of the partitions are not whole either.

    Args:
        head: The head of the group.
        data: The sectors of the group, as many as there are.
    """
    content = gather(data)
    ids = content[HEAD_BYTES : HEAD_BYTES + _PARTITION_BYTES * head.partition_count]
    if len(ids) != _PARTITION_BYTES * head.partition_count or crc32(ids) != head.partitions_crc:
        return None
    found: Sequence[int] = struct.unpack(f">{head.partition_count}i", ids)
    return found
