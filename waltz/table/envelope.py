"""The envelope of a table in the data of a transaction: a pure codec.

Big endian: mark ``WT``, u8 version, u8 codec; the size of the body (u32) when it is compressed; the body. The body has
the time of writing (i64, milliseconds), the kind (u8), and by kind: a batch of rows, nothing (truncate), or the four
bounds of a sweep mark. Everything else is not an envelope of this version: :class:`EnvelopeError`.

Every size is compared with the bytes present, or with the limit, before memory is reserved for it.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from waltz.common.ids import LONG_MIN
from waltz.table.codecs import Codec, compress, decompress
from waltz.table.errors import CodecUnavailableError, EnvelopeError

MARK = b"WT"
VERSION = 1

MAX_PREFIX_BYTES = 0x7FFF
DEFAULT_MAX_BODY_BYTES = 64 << 20
"""Limit of a decompressed body: twice the largest transaction (32 MiB)."""

NO_BOUND = LONG_MIN
"""A bound of a sweep mark that removes no row."""

TOMBSTONE = 1
HAS_PREFIX = 2
HAS_TIMESTAMP = 4
HAS_VALUE = 8
_FLAGS = TOMBSTONE | HAS_PREFIX | HAS_TIMESTAMP | HAS_VALUE

BATCH, _TRUNCATE, _SWEEP_MARK = range(3)
"""The kinds of bodies, by the byte behind the time of writing."""

_START = struct.Struct(">2sBB")
_BODY_SIZE = _COUNT = _SIZE = struct.Struct(">I")
_BODY_START = struct.Struct(">qB")
_PREFIX_SIZE = struct.Struct(">H")
_TIMESTAMP = struct.Struct(">q")
_BOUNDS = struct.Struct(">4q")
_MIN_ROW_BYTES = 5


class Row(NamedTuple):
    """One row of a batch to be written. A row without a prefix has the empty one; null is not the empty value.

    Examples:
        ```python
        rows = [waltz.table.Row(b"", b"alice", b"100"), waltz.table.Row(b"", b"bob", None, tombstone=True)]
        transaction_id = await table.batch(rows)  # all of them, or none
        ```
    """

    prefix: bytes
    key: bytes
    value: bytes | None
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; ``None``: the time at which the batch is written."""
    tombstone: bool = False
    """Whether the key is deleted; there is no value then."""


class Batch(NamedTuple):
    """Rows that are applied together."""

    written_at_ms: int
    rows: Sequence[Row]


class Truncate(NamedTuple):
    """Removes all rows of smaller transaction ids."""

    written_at_ms: int


class SweepMark(NamedTuple):
    """Removes winning rows that are older than one of the bounds; :data:`NO_BOUND` removes none.

    Two bounds are for tombstones only, two for every row.
    """

    written_at_ms: int
    tombstone_timestamp_ms: int = NO_BOUND
    tombstone_written_at_ms: int = NO_BOUND
    row_timestamp_ms: int = NO_BOUND
    row_written_at_ms: int = NO_BOUND


Envelope: TypeAlias = Batch | Truncate | SweepMark


def encode(envelope: Envelope, codec: Codec = Codec.NONE, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
    """The data of a transaction. A body that compression does not make much smaller stays uncompressed.

    Raises :class:`EnvelopeError` when a value does not fit into its field, or when the body is larger than
    ``max_body_bytes``, and :class:`~waltz.table.errors.CodecUnavailableError`.
    """
    try:
        body = _encode_body(envelope)
    except struct.error as error:
        raise EnvelopeError(f"an envelope that cannot be written: {error}") from None
    if len(body) > max_body_bytes:
        raise EnvelopeError(f"a body of {len(body)} bytes; at most {max_body_bytes} are read again")
    compressed = compress(codec, body)
    if compressed is None:
        return _START.pack(MARK, VERSION, Codec.NONE) + body
    return b"".join((_START.pack(MARK, VERSION, codec), _BODY_SIZE.pack(len(body)), compressed))


def decode(data: bytes, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> Envelope:
    """The envelope in the data of a transaction.

    Raises :class:`EnvelopeError` when the data is no envelope of this version, or its body would be larger than
    ``max_body_bytes`` when decompressed, and :class:`~waltz.table.errors.CodecUnavailableError`.
    """
    return decode_body(*body_of(data, max_body_bytes))


def envelope_of(transaction_id: int, data: bytes, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> Envelope | None:
    """The envelope of a transaction; ``None`` when its data is no envelope.

    Raises:
        CodecUnavailableError: The library of its codec is not installed; the error names the transaction.
    """
    try:
        return decode(data, max_body_bytes)
    except EnvelopeError:
        return None
    except CodecUnavailableError as error:
        raise CodecUnavailableError(f"transaction {transaction_id} is compressed: {error}") from None


def announced_body_bytes(data: bytes) -> int:
    """The announced size of an envelope's decompressed body; 0 for all other data."""
    start = _START.size + _BODY_SIZE.size
    if len(data) < start or not data.startswith(MARK) or not data[_START.size - 1]:
        return 0
    return int.from_bytes(data[_START.size : start], "big")


def body_of(data: bytes, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> tuple[bytes, int]:
    """Bytes that end with the decompressed body of an envelope, and the body's offset. Raises like :func:`decode`."""
    if len(data) < _START.size:
        raise EnvelopeError(f"{len(data)} bytes are no envelope")
    mark, version, codec_number = _START.unpack_from(data)
    if mark != MARK or version != VERSION:
        raise EnvelopeError("no mark of an envelope of this version")
    if codec_number == 0:
        return data, _START.size
    if codec_number > max(Codec):
        raise EnvelopeError(f"the unknown codec {codec_number}")
    body_start = _START.size + _BODY_SIZE.size
    if len(data) < body_start:
        raise EnvelopeError("it ends before its body")
    (size,) = _BODY_SIZE.unpack_from(data, _START.size)
    if size > max_body_bytes:
        raise EnvelopeError(f"a body of {size} bytes, more than {max_body_bytes}")
    return decompress(Codec(codec_number), data[body_start:], size), 0


def _encode_body(envelope: Envelope) -> bytes:
    if isinstance(envelope, Truncate):
        return _BODY_START.pack(envelope.written_at_ms, _TRUNCATE)
    if isinstance(envelope, SweepMark):
        return _BODY_START.pack(envelope.written_at_ms, _SWEEP_MARK) + _BOUNDS.pack(*envelope[1:])
    parts = [_BODY_START.pack(envelope.written_at_ms, BATCH), _COUNT.pack(len(envelope.rows))]
    for prefix, key, value, timestamp_ms, tombstone in envelope.rows:
        if tombstone and value is not None:
            raise EnvelopeError("a tombstone with a value")
        if len(prefix) > MAX_PREFIX_BYTES:
            raise EnvelopeError(f"a prefix of {len(prefix)} bytes; at most {MAX_PREFIX_BYTES} are possible")
        flags = (
            (TOMBSTONE if tombstone else 0)
            | (HAS_PREFIX if prefix else 0)
            | (HAS_TIMESTAMP if timestamp_ms is not None else 0)
            | (HAS_VALUE if value is not None else 0)
        )
        parts.append(bytes((flags,)))
        if prefix:
            parts += _PREFIX_SIZE.pack(len(prefix)), prefix
        parts += _SIZE.pack(len(key)), key
        if timestamp_ms is not None:
            parts.append(_TIMESTAMP.pack(timestamp_ms))
        if value is not None:
            parts += _SIZE.pack(len(value)), value
    return b"".join(parts)


def decode_body(body: bytes, position: int) -> Envelope:
    """The envelope with a body that :func:`body_of` has found. Raises :class:`EnvelopeError`."""
    end = len(body)
    start = position + _BODY_START.size
    if start > end:
        raise EnvelopeError("it ends before it says what it is")
    written_at_ms, kind = _BODY_START.unpack_from(body, position)
    if kind == BATCH:
        return Batch(written_at_ms, _decode_rows(body, start))
    if kind == _TRUNCATE and start == end:
        return Truncate(written_at_ms)
    if kind == _SWEEP_MARK and start + _BOUNDS.size == end:
        return SweepMark(written_at_ms, *_BOUNDS.unpack_from(body, start))
    raise EnvelopeError(f"{end - start} bytes of the kind {kind}")


def _decode_rows(body: bytes, position: int) -> list[Row]:
    """The rows up to the end of the body: written flat, since a view decodes every row of a log here."""
    end = len(body)
    rows: list[Row] = []
    add, make, unpack_size, unpack_timestamp = rows.append, Row._make, _SIZE.unpack_from, _TIMESTAMP.unpack_from
    try:
        (count,) = _COUNT.unpack_from(body, position)
        position += _COUNT.size
        if count * _MIN_ROW_BYTES > end - position:
            raise EnvelopeError(f"{count} rows in {end - position} bytes")
        for _ in range(count):
            flags = body[position]
            position += 1
            if flags & ~_FLAGS or (flags & TOMBSTONE and flags & HAS_VALUE):
                raise EnvelopeError(f"a row with the flags {flags:#x}")
            prefix = b""
            if flags & HAS_PREFIX:
                (size,) = _PREFIX_SIZE.unpack_from(body, position)
                if size > MAX_PREFIX_BYTES:
                    raise EnvelopeError(f"a prefix of {size} bytes")
                position += 2 + size
                prefix = body[position - size : position]
            (size,) = unpack_size(body, position)
            position += 4 + size
            key = body[position - size : position]
            timestamp_ms = None
            if flags & HAS_TIMESTAMP:
                (timestamp_ms,) = unpack_timestamp(body, position)
                position += 8
            value = None
            if flags & HAS_VALUE:
                (size,) = unpack_size(body, position)
                position += 4 + size
                value = body[position - size : position]
            if position > end:
                raise EnvelopeError("it ends inside a row")
            add(make((prefix, key, value, timestamp_ms, flags & TOMBSTONE != 0)))
    except (IndexError, struct.error):
        raise EnvelopeError("it ends inside a row") from None
    if position != end:
        raise EnvelopeError(f"{end - position} bytes behind the last row")
    return rows
