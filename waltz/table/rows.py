"""The format of rows in a view: the order of keys, and the winner of two rows of a key. Pure.

A row's key is its prefix with every 00 escaped as 00 FF, then 00 01, then the unchanged key: plain comparison of bytes
then compares prefixes first and keys second. A row begins with its timestamp (the sign bit flipped), transaction id and
index in its batch, all big endian: of two rows of a key, the row with the greater bytes wins.
"""

import struct
from typing import NamedTuple

from waltz.common.ids import LONG_MIN
from waltz.table.envelope import HAS_VALUE, TOMBSTONE

_ESCAPED = b"\x00\xff"
_END = b"\x00\x01"
_BEHIND_END = b"\x00\x02"

_ROW_HEAD = struct.Struct(">QQIqB")
_ROW_HEAD_BYTES = _ROW_HEAD.size
_TRANSACTION_ID = struct.Struct(">Q")  # behind the timestamp, which has the same size
_POSITION = struct.Struct(">QI")
POSITION_BYTES = _POSITION.size
"""Transaction id and index in its batch, at the end of a key of the index by prefix."""

_SIGN = -LONG_MIN
_FLAGS_AT = _ROW_HEAD.size - 1
_new_tuple = tuple.__new__  # the call behind a named tuple's constructor, at half its price


class Version(NamedTuple):
    """The place of a row in its log; unique and increasing within a partition.

    Examples:
        ```python
        (row,) = await table.get([b"alice"])
        version = None if row is None else row.version
        await table.put_if(b"alice", b"200", version)  # VersionConflict if somebody was faster
        ```
    """

    transaction_id: int
    row: int
    """Index in the batch of that transaction."""


class TableRow(NamedTuple):
    """A winning row, as readers see it.

    Examples:
        ```python
        rows: list[waltz.table.TableRow] = [row async for row in table.scan(limit=10)]
        for row in rows:
            print(row.prefix, row.key, row.value, row.timestamp_ms, row.version.transaction_id)
        ```
    """

    prefix: bytes
    key: bytes
    value: bytes | None
    timestamp_ms: int
    version: Version
    written_at_ms: int
    """Time at which the batch was written, by the writer's clock."""
    tombstone: bool


class RowHead(NamedTuple):
    """The part of a row that decides whether it is seen or removed."""

    timestamp_ms: int
    written_at_ms: int
    tombstone: bool


def prefix_start(prefix: bytes) -> bytes:
    """The common beginning of the row keys of a prefix, and of no other prefix."""
    return prefix.replace(b"\x00", _ESCAPED) + _END


def prefix_end(prefix: bytes) -> bytes:
    """The smallest bytes above all row keys of a prefix."""
    return prefix.replace(b"\x00", _ESCAPED) + _BEHIND_END


def row_key(prefix: bytes, key: bytes) -> bytes:
    """Prefix and key as one, in the order of (prefix, key) under plain comparison of bytes."""
    return prefix_start(prefix) + key if prefix else _END + key


def split_row_key(joined: bytes) -> tuple[bytes, bytes]:
    """Prefix and key again. Raises ``ValueError`` for bytes that :func:`row_key` does not make."""
    position = joined.find(b"\x00")
    while joined[position : position + 2] == _ESCAPED:
        position = joined.find(b"\x00", position + 2)
    if position < 0 or joined[position : position + 2] != _END:
        raise ValueError(f"no key of a row: {joined[:40].hex()}")
    return joined[:position].replace(_ESCAPED, b"\x00"), joined[position + 2 :]


def pack_row(
    timestamp_ms: int, transaction_id: int, place: int, written_at_ms: int, tombstone: bool, value: bytes | None
) -> bytes:
    """The stored form of a row; of two rows of a key the greater one wins."""
    head = _ROW_HEAD.pack(
        timestamp_ms + _SIGN,
        transaction_id,
        place,
        written_at_ms,
        (TOMBSTONE if tombstone else 0) if value is None else HAS_VALUE,
    )
    return head if value is None else head + value


def unpack_row(prefix: bytes, key: bytes, packed: bytes) -> TableRow:
    """The row of a stored form."""
    timestamp, transaction_id, place, written_at_ms, flags = _ROW_HEAD.unpack_from(packed)
    value = packed[_ROW_HEAD_BYTES:] if flags & HAS_VALUE else None
    version = _new_tuple(Version, (transaction_id, place))
    dead = flags & TOMBSTONE != 0
    return _new_tuple(TableRow, (prefix, key, value, timestamp - _SIGN, version, written_at_ms, dead))


def unpack_head(packed: bytes) -> RowHead:
    """The head of a stored row."""
    timestamp, _, _, written_at_ms, flags = _ROW_HEAD.unpack_from(packed)
    return RowHead(timestamp - _SIGN, written_at_ms, flags & TOMBSTONE != 0)


def transaction_id_of(packed: bytes) -> int:
    """The transaction that wrote a row."""
    (transaction_id,) = _TRANSACTION_ID.unpack_from(packed, _TRANSACTION_ID.size)
    return int(transaction_id)


def is_tombstone(packed: bytes) -> bool:
    """Whether a row deletes its key."""
    return packed[_FLAGS_AT] & TOMBSTONE != 0


def position_key(prefix: bytes, transaction_id: int, row: int) -> bytes:
    """The key of a row in the index by prefix, which is in the order of the log within each prefix."""
    return prefix_start(prefix) + _POSITION.pack(transaction_id, row)


def split_position_key(joined: bytes) -> Version:
    """The place in the log of a key of the index by prefix."""
    return Version(*_POSITION.unpack_from(joined, len(joined) - POSITION_BYTES))
