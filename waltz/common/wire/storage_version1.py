"""Both versions of the storage protocol.

Version 0 is the original's. Version 1 is an extension of this implementation: only its own nodes offer it in their
hello. It adds one frame for the appends of many partitions, since a frame for each partition would cost more; and
messages about times (:mod:`waltz.common.wire.storage_times`) and about trims (:mod:`waltz.common.wire.storage_trim`).
All else is as in version 0: an append among many is the same request, with the same answer, as an append in its own
frame. So partitions stay independent of each other.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.records import Record, decode_records
from waltz.common.wire import storage as wire
from waltz.common.wire.catalogue import Catalogue, layout
from waltz.common.wire.fields import INT, LONG, list_of, structure
from waltz.common.wire.frames import FRAME_HEADER, STORAGE
from waltz.common.wire.storage_times import StorageTimeMessage, storage_time_layouts
from waltz.common.wire.storage_trim import StorageTrimMessage, storage_trim_layouts
from waltz.common.wire.structures import RECORD_LIST

OUR_VERSION = 1

APPEND_MANY_REQUEST = 19
"""Type number of :class:`AppendManyRequest`."""

MAX_MANY_BYTES = 1 << 20
"""Limit of the size of all entries of an :class:`AppendManyRequest`."""
MAX_ENTRY_BYTES = 128 << 10
"""Appends of this size or more have a frame of their own."""

_MANY = struct.Struct(">BhiBqqii")
_ENTRY = struct.Struct(">qi")
_ENTRY_HEAD = struct.Struct(">qii")
_COMMON = struct.Struct(">bqqi")
_COUNT = struct.Struct(">i")
_MAX_LONG = (1 << 63) - 1
_new_tuple = tuple.__new__  # the call behind a named tuple's constructors, at half their price

MANY_OVERHEAD_BYTES = _MANY.size
"""Bytes of the frame of an :class:`AppendManyRequest` without its entries."""
ENTRY_OVERHEAD_BYTES = _ENTRY_HEAD.size
"""Bytes of an entry without its records."""


class PartitionAppend(NamedTuple):
    """An append among many."""

    session_id: int
    partition_id: int
    records: list[Record]


class AppendManyRequest(NamedTuple):
    """Several appends. The first is request ``seq_num``, the next ``seq_num + 1``, and so on.

    Each append has its own answer. ``session_id`` and ``partition_id`` are -1.
    """

    session_id: int
    seq_num: int
    partition_id: int
    appends: list[PartitionAppend]


Message = wire.Message | AppendManyRequest | StorageTimeMessage | StorageTrimMessage
"""All messages of the data port."""

_ENTRIES = list_of(structure(PartitionAppend, LONG, INT, RECORD_LIST), ENTRY_OVERHEAD_BYTES)

_CATALOGUES: dict[int, Catalogue[Any]] = {
    wire.VERSION: wire.CATALOGUE,
    OUR_VERSION: Catalogue(
        STORAGE.magic,
        OUR_VERSION,
        {
            **wire.LAYOUTS,
            APPEND_MANY_REQUEST: layout(AppendManyRequest, LONG, LONG, INT, _ENTRIES),
            **storage_time_layouts(),
            **storage_trim_layouts(),
        },
    ),
}


def encode(message: Message, version: int) -> bytes:
    """Encode any message of the data port as a whole frame.

    Raises:
        ProtocolError: The version has no such message, or a value does not fit into its field.
    """
    return _CATALOGUES[version].encode(message)


def decode(buffer: bytes, start: int, end: int, version: int) -> Message:
    """Decode the payload ``buffer[start:end]`` of a message of the data port.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    message: Message = _CATALOGUES[version].decode(buffer, start, end)
    return message


def with_version(frame: bytes, version: int) -> bytes:
    """Turn a frame of version 0 into one of another version."""
    magic, _, size_bytes = FRAME_HEADER.unpack_from(frame)
    return b"".join((FRAME_HEADER.pack(magic, version, size_bytes), memoryview(frame)[FRAME_HEADER.size :]))


SUCCESS_HEAD = with_version(wire.encode_success(0, 0, 0), OUR_VERSION)[: wire.TYPE_AT + 1]
"""Beginning of the frame of a ``SuccessResponse``; the rest is as in version 0."""

EncodedAppend = tuple[int, int, int, bytes]
"""Session, partition, number of records, and the encoded records; a plain tuple, which is faster to make."""


def encode_many(first_seq_num: int, appends: Sequence[EncodedAppend], size_bytes: int) -> bytes:
    """The frame of an :class:`AppendManyRequest`.

    Args:
        first_seq_num: The number of the first request.
        appends: The appends. Their numbers have to fit into their fields.
        size_bytes: The size of all entries.
    """
    payload_bytes = MANY_OVERHEAD_BYTES - FRAME_HEADER.size + size_bytes
    magic, count, pack = STORAGE.magic, len(appends), _ENTRY_HEAD.pack
    parts = [_MANY.pack(magic, OUR_VERSION, payload_bytes, APPEND_MANY_REQUEST, -1, first_seq_num, -1, count)]
    for session_id, partition_id, count, records in appends:
        parts += pack(session_id, partition_id, count), records
    return b"".join(parts)


def decode_many(buffer: bytes, start: int, end: int) -> list[tuple[wire.AppendRequest, int]]:
    """Decode an :class:`AppendManyRequest` into single requests, each with its size in bytes.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    position = start + _COMMON.size + _COUNT.size
    if position > end:
        raise ProtocolError("AppendManyRequest: too short")
    _, _, seq_num, _ = _COMMON.unpack_from(buffer, start)
    (count,) = _COUNT.unpack_from(buffer, position - _COUNT.size)
    if end - position > MAX_MANY_BYTES:
        raise ProtocolError(f"AppendManyRequest: entries of {end - position} bytes, at most {MAX_MANY_BYTES}")
    if count < 0 or count * ENTRY_OVERHEAD_BYTES > end - position:
        raise ProtocolError(f"AppendManyRequest: {count} entries in {end - position} bytes")
    if seq_num + count > _MAX_LONG:  # the number of the last append would be too large
        raise ProtocolError(f"AppendManyRequest: {count} requests from {seq_num} on")
    found: list[tuple[wire.AppendRequest, int]] = []
    last_entry = end - ENTRY_OVERHEAD_BYTES
    for number in range(seq_num, seq_num + count):
        if position > last_entry:
            raise ProtocolError("AppendManyRequest: too short")
        session_id, partition_id = _ENTRY.unpack_from(buffer, position)
        records, behind = decode_records(buffer, position + _ENTRY.size, end)
        request = _new_tuple(wire.AppendRequest, (session_id, number, partition_id, records, False))
        found.append((request, behind - position))
        position = behind
    if position != end:
        raise ProtocolError(f"AppendManyRequest: {end - position} bytes left over")
    return found
