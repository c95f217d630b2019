"""Field encodings shared by all message families.

A :class:`Field` is a pair of functions. ``decode(buffer, position, end)`` never reads beyond ``end`` and never reserves
memory for a count that it has not checked against the bytes present.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from waltz.common.errors import ProtocolError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_COUNT = struct.Struct(">i")
_REQ_ID_SIZE_BYTES = 16


class Field(NamedTuple, Generic[T]):
    """The encoding of one value, and the decoding to the value and the position after it."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes, int, int], tuple[T, int]]


def too_short() -> ProtocolError:
    """The error of a field that runs past the end of its message."""
    return ProtocolError("the message is too short")


def _number(code: str) -> Field[int]:
    packer = struct.Struct(">" + code)
    unpack, size = packer.unpack_from, packer.size

    def decode(buffer: bytes, position: int, end: int) -> tuple[int, int]:
        behind = position + size
        if behind > end:
            raise too_short()
        return unpack(buffer, position)[0], behind

    return Field(packer.pack, decode)


SHORT = _number("h")
INT = _number("i")
LONG = _number("q")


def enumeration(kind: type[IntEnum], name: str) -> Field[Any]:
    """A member of ``kind`` as a 32-bit number. Any other number raises a ``ProtocolError`` "unknown ``name``"."""

    def decode(buffer: bytes, position: int, end: int) -> tuple[IntEnum, int]:
        number, behind = INT.decode(buffer, position, end)
        try:
            return kind(number), behind
        except ValueError:
            raise ProtocolError(f"unknown {name} {number}") from None

    return Field(INT.encode, decode)


def _encode_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _decode_boolean(buffer: bytes, position: int, end: int) -> tuple[bool, int]:
    if position >= end:
        raise too_short()
    return buffer[position] == 1, position + 1


BOOLEAN = Field(_encode_boolean, _decode_boolean)
"""One byte; every value but 1 means false."""


def _encode_req_id(value: bytes) -> bytes:
    if len(value) != _REQ_ID_SIZE_BYTES:
        raise ProtocolError(f"a request id of {len(value)} bytes, it must have {_REQ_ID_SIZE_BYTES}")
    return value


def _decode_req_id(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    behind = position + _REQ_ID_SIZE_BYTES
    if behind > end:
        raise too_short()
    return buffer[position:behind], behind


REQ_ID = Field(_encode_req_id, _decode_req_id)
"""The 16 bytes of a :class:`~waltz.common.ids.ReqId`."""


def _encode_uuid(value: UUID) -> bytes:
    return value.bytes


def _decode_uuid(buffer: bytes, position: int, end: int) -> tuple[UUID, int]:
    behind = position + 16
    if behind > end:
        raise too_short()
    return UUID(bytes=buffer[position:behind]), behind


UUID_FIELD = Field(_encode_uuid, _decode_uuid)


def decode_count(buffer: bytes, position: int, end: int, item_size_bytes: int) -> tuple[int, int]:
    """Read the count of a list; each item takes at least ``item_size_bytes``.

    A negative count is returned unchanged.

    Raises:
        ProtocolError: The rest of the message cannot hold that number of items. No memory was reserved for them.
    """
    behind = position + 4
    if behind > end:
        raise too_short()
    (count,) = _COUNT.unpack_from(buffer, position)
    if count * item_size_bytes > end - behind:
        raise ProtocolError(f"a count of {count}, more than the message can hold")
    return count, behind


def _encode_nullable_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _COUNT.pack(len(value)) + value


def _decode_nullable_bytes(buffer: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = decode_count(buffer, position, end, 1)
    if size < 0:
        return None, position
    return buffer[position : position + size], position + size


NULLABLE_BYTES = Field(_encode_nullable_bytes, _decode_nullable_bytes)
"""A count and the bytes; any negative count is null."""


def _encode_nullable_string(value: str | None) -> bytes:
    return _encode_nullable_bytes(None if value is None else value.encode("utf-8", "replace"))


def _decode_nullable_string(buffer: bytes, position: int, end: int) -> tuple[str | None, int]:
    data, position = _decode_nullable_bytes(buffer, position, end)
    return None if data is None else data.decode("utf-8", "replace"), position


NULLABLE_STRING = Field(_encode_nullable_string, _decode_nullable_string)
"""Standard UTF-8 behind its size in bytes. Ill-formed input reads as U+FFFD, lone surrogates are written as ``?``."""


def _encode_nullable_ints(value: tuple[int, ...] | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(f">i{len(value)}i", len(value), *value)


def _decode_nullable_ints(buffer: bytes, position: int, end: int) -> tuple[tuple[int, ...] | None, int]:
    count, position = decode_count(buffer, position, end, 4)
    if count < 0:
        return None, position
    return struct.unpack_from(f">{count}i", buffer, position), position + 4 * count


NULLABLE_INTS = Field(_encode_nullable_ints, _decode_nullable_ints)
"""A count and the integers; any negative count is null."""


def not_null(field: Field[T | None], name: str) -> Field[T]:
    """``field`` for a value that may not be null: null raises :class:`ProtocolError` both ways."""
    encode_nullable, decode_nullable = field

    def encode(value: T) -> bytes:
        if value is None:
            raise ProtocolError(f"null {name}")
        return encode_nullable(value)

    def decode(buffer: bytes, position: int, end: int) -> tuple[T, int]:
        value, behind = decode_nullable(buffer, position, end)
        if value is None:
            raise ProtocolError(f"null {name}")
        return value, behind

    return Field(encode, decode)


def map_of(key: Field[K], value: Field[V], pair_size_bytes: int) -> Field[tuple[tuple[K, V], ...]]:
    """A map as pairs in their order, each of at least ``pair_size_bytes``.

    A negative count reads as empty; of a repeated key the last value wins.
    """

    def encode(pairs: tuple[tuple[K, V], ...]) -> bytes:
        parts = [_COUNT.pack(len(pairs))]
        for pair_key, pair_value in pairs:
            parts += key.encode(pair_key), value.encode(pair_value)
        return b"".join(parts)

    def decode(buffer: bytes, position: int, end: int) -> tuple[tuple[tuple[K, V], ...], int]:
        count, position = decode_count(buffer, position, end, pair_size_bytes)
        pairs: dict[K, V] = {}
        for _ in range(count):
            pair_key, position = key.decode(buffer, position, end)
            pairs[pair_key], position = value.decode(buffer, position, end)
        return tuple(pairs.items()), position

    return Field(encode, decode)


def list_of(item: Field[T], item_size_bytes: int) -> Field[list[T]]:
    """A list that may not be null; each item takes at least ``item_size_bytes``."""

    def encode(items: list[T]) -> bytes:
        return b"".join([_COUNT.pack(len(items)), *map(item.encode, items)])

    def decode(buffer: bytes, position: int, end: int) -> tuple[list[T], int]:
        count, position = decode_count(buffer, position, end, item_size_bytes)
        if count < 0:
            raise ProtocolError(f"a list with the negative count {count}")
        items = []
        for _ in range(count):
            value, position = item.decode(buffer, position, end)
            items.append(value)
        return items, position

    return Field(encode, decode)


def optional(field: Field[T]) -> Field[T | None]:
    """A presence boolean, then the value if there is one."""

    def encode(value: T | None) -> bytes:
        return b"\x00" if value is None else b"\x01" + field.encode(value)

    def decode(buffer: bytes, position: int, end: int) -> tuple[T | None, int]:
        present, position = _decode_boolean(buffer, position, end)
        return field.decode(buffer, position, end) if present else (None, position)

    return Field(encode, decode)


def structure(make: Callable[..., T], *fields: Field[Any]) -> Field[T]:
    """A NamedTuple as its fields one after the other."""

    def encode(value: Any) -> bytes:
        return b"".join([field.encode(part) for field, part in zip(fields, value, strict=True)])

    def decode(buffer: bytes, position: int, end: int) -> tuple[T, int]:
        parts = []
        for field in fields:
            part, position = field.decode(buffer, position, end)
            parts.append(part)
        return make(*parts), position

    return Field(encode, decode)
