"""Decides whether a damaged record is the rest of an interrupted write. Pure.

A write that is interrupted by a loss of power leaves some of its sectors unchanged: zeros, or beyond the end of the
file. All other sectors are right. So a record was certainly never synced, and never acknowledged, only if missing
sectors explain all of its damage. Missing sectors do not explain the damage if

- a present byte contradicts the transaction id, the length or the place of the next record;
- the payload matches its own checksum: then zeros in the payload are real;
- one flipped bit explains the damage, too: bits may flip in complete records, and their payloads may have zeros.

If only one bit is missing, for example in the last few bytes of a sector, both explanations lead to the same record:
the record that is intact with the bit (:func:`lost_bit`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from waltz.common.checksum import checksum, crc32
from waltz.storage.disk.segment.segment_format import (
    RECORD_CRC,
    RECORD_PREFIX,
    STORED_OVERHEAD_BYTES,
    Reader,
    find_later_record,
    stored_id_and_size,
    valid_record_size,
)

_SECTOR_BYTES = 512
_ID_BYTES = 8
_LENGTH_AT = 28
_CHECKSUM_AT = 32
_LENGTH_BITS = 32
_BLOCK_BYTES = 1 << 20

_POLYNOMIAL = 0xEDB88320
_TOP_BIT = 1 << 31
_STRIDE_BITS = 1 << 12


def is_torn(reader: Reader, offset: int, end: int, transaction_id: int) -> bool:
    """Whether a loss of power has certainly interrupted the write of the damaged record of this id at ``offset``.

    ``end`` is the size of the file. In doubt the result is false.
    """
    return _is_explained_by_loss(reader, offset, end, transaction_id) and _flipped_bit(reader, offset, end) is None


class Bit(NamedTuple):
    """One bit of a file: the offset of its byte, and its mask there."""

    offset: int
    mask: int


@dataclass(frozen=True, slots=True)
class WithBits:
    """A file with some bits set."""

    reader: Reader
    bits: Sequence[Bit]

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""
        data = bytearray(self.reader.read(offset, size))
        for bit in self.bits:
            if 0 <= bit.offset - offset < len(data):
                data[bit.offset - offset] |= bit.mask
        return bytes(data)


def lost_bit(reader: Reader, offset: int, end: int, transaction_id: int) -> Bit | None:
    """The bit that makes the record of this id at ``offset`` intact, if a lost sector explains the missing bit.

    In both cases, a sector that was never written or a flipped bit, the record was this one. The set bit restores an
    acknowledged record, or completes a record as if its write had ended in time. ``end`` is the size of the file.
    """
    if not _is_explained_by_loss(reader, offset, end, transaction_id):
        return None
    bit = _flipped_bit(reader, offset, end)
    if bit is None:
        return None
    at = bit.offset - offset
    if not _Piece(reader, offset, at + 1).misses(at, at + 1):
        return None
    is_intact = valid_record_size(WithBits(reader, [bit]), offset, end, transaction_id) is not None
    return bit if is_intact else None


class _Piece:
    """The bytes of the file from ``offset`` to the end of a sector or of the file, and the missing sectors among them.

    In the first sector only the bytes of the piece count.
    """

    def __init__(self, reader: Reader, offset: int, size: int) -> None:
        last = offset + size
        self.offset = offset
        self.data = reader.read(offset, last + -last % _SECTOR_BYTES - offset)
        self._missing: set[int] = set()
        nothing = bytes(_SECTOR_BYTES)
        start, stop = 0, _SECTOR_BYTES - offset % _SECTOR_BYTES
        while start < len(self.data):
            part = self.data[start:stop]
            if part == nothing[: len(part)]:
                self._missing.add((offset + start) // _SECTOR_BYTES)
            start, stop = stop, stop + _SECTOR_BYTES

    def misses(self, start: int, stop: int) -> bool:
        """Whether any of ``data[start:stop]`` may be missing."""
        first, last = (self.offset + start) // _SECTOR_BYTES, (self.offset + stop - 1) // _SECTOR_BYTES
        return stop > len(self.data) or any(sector in self._missing for sector in range(first, last + 1))

    def agrees(self, start: int, expected: bytes) -> bool:
        """Whether the present bytes of ``data[start:]`` are as expected."""
        return all(
            at >= len(self.data) or self.data[at] == byte or self.misses(at, at + 1)
            for at, byte in enumerate(expected, start)
        )


def _is_explained_by_loss(reader: Reader, offset: int, end: int, transaction_id: int) -> bool:
    piece = _Piece(reader, offset, RECORD_PREFIX.size)
    if not piece.agrees(0, transaction_id.to_bytes(_ID_BYTES, "big")):
        return False
    if piece.misses(_LENGTH_AT, _CHECKSUM_AT):
        return True
    _, size = stored_id_and_size(piece.data)
    if size < STORED_OVERHEAD_BYTES:
        return False
    if offset + size > end:
        return find_later_record(reader, offset, end, transaction_id) is None
    following = _Piece(reader, offset + size, _ID_BYTES)
    if not following.agrees(0, (transaction_id + 1).to_bytes(_ID_BYTES, "big")):
        return False
    piece = _Piece(reader, offset, size)
    crc_at = size - RECORD_CRC.size
    payload = memoryview(piece.data)[RECORD_PREFIX.size : crc_at]
    *_, stored_checksum = RECORD_PREFIX.unpack_from(piece.data)
    if checksum(payload) != stored_checksum:
        return piece.misses(_CHECKSUM_AT, crc_at)
    if piece.misses(0, RECORD_PREFIX.size):
        return True
    return piece.agrees(crc_at, RECORD_CRC.pack(crc32(memoryview(piece.data)[:crc_at])))


def _flipped_bit(reader: Reader, offset: int, end: int) -> Bit | None:
    """The bit whose change would make the record intact."""
    prefix = reader.read(offset, RECORD_PREFIX.size)
    if len(prefix) < RECORD_PREFIX.size:
        return None
    length = int.from_bytes(prefix[_LENGTH_AT:_CHECKSUM_AT], "big")
    for bit in range(_LENGTH_BITS):
        size = STORED_OVERHEAD_BYTES + (length ^ (1 << bit))
        if offset + size <= end and _syndrome(reader, offset, size, length ^ (1 << bit)) == 0:
            return Bit(offset + _CHECKSUM_AT - 1 - bit // 8, 1 << bit % 8)
    size = STORED_OVERHEAD_BYTES + length
    if offset + size > end:
        return None
    return _bit_of(_syndrome(reader, offset, size, length), offset, size - RECORD_CRC.size)


def _syndrome(reader: Reader, offset: int, size: int, length: int) -> int:
    """The difference between the CRC of a record of that length and the stored CRC behind it."""
    prefix = reader.read(offset, RECORD_PREFIX.size)
    found = crc32(prefix[:_LENGTH_AT] + length.to_bytes(_CHECKSUM_AT - _LENGTH_AT, "big") + prefix[_CHECKSUM_AT:])
    crc_offset = offset + size - RECORD_CRC.size
    for start in range(offset + RECORD_PREFIX.size, crc_offset, _BLOCK_BYTES):
        found = crc32(reader.read(start, min(_BLOCK_BYTES, crc_offset - start)), found)
    stored: int = RECORD_CRC.unpack(reader.read(crc_offset, RECORD_CRC.size))[0]
    return found ^ stored


def _bit_of(syndrome: int, offset: int, covered_bytes: int) -> Bit | None:
    """The bit that makes this difference: a bit of the CRC, or of the ``covered_bytes`` before the CRC, from ``offset``
    on.

    A bit n places before the end of the covered bytes makes the n-th power of the generator. The search for the n of
    the syndrome goes in strides.
    """
    if syndrome == 0:
        return None
    crc_offset = offset + covered_bytes
    if syndrome & (syndrome - 1) == 0:
        place = syndrome.bit_length() - 1
        return Bit(crc_offset + RECORD_CRC.size - 1 - place // 8, 1 << place % 8)
    powers: dict[int, int] = {}
    power = 1
    for exponent in range(_STRIDE_BITS):
        powers[power] = exponent
        power = (power >> 1) ^ (_POLYNOMIAL if power & 1 else 0)
    backwards = [_back(1 << bit, _STRIDE_BITS) for bit in range(32)]
    for strides in range(8 * covered_bytes // _STRIDE_BITS + 1):
        if syndrome in powers:
            place = strides * _STRIDE_BITS + powers[syndrome] - 1
            return Bit(crc_offset - 1 - place // 8, 0x80 >> place % 8) if 0 <= place < 8 * covered_bytes else None
        remaining, syndrome = syndrome, 0
        while remaining:
            lowest = remaining & -remaining
            syndrome ^= backwards[lowest.bit_length() - 1]
            remaining ^= lowest
    return None


def _back(power: int, steps: int) -> int:
    """The value that becomes ``power`` after ``steps`` multiplications by the generator."""
    for _ in range(steps):
        power = ((power ^ _POLYNOMIAL) << 1 | 1) if power & _TOP_BIT else power << 1
    return power
