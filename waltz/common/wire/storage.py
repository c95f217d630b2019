"""Messages between servers and the storage port of a storage node, version 0.

Every message begins with the session, the number of the request on its connection and the partition; a reply repeats
those of its request (the replies to :class:`OpenRequest` carry -1 in all three).
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from waltz.common.errors import ProtocolError
from waltz.common.records import Record, RecordHeader, decode_records
from waltz.common.wire.catalogue import Catalogue, Layout, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, UUID_FIELD, optional
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES, STORAGE, Bounds, Run
from waltz.common.wire.structures import (
    RECORD,
    RECORD_HEADER_FIELD,
    RECORD_HEADER_LIST,
    RECORD_LIST,
    RPC_EXCEPTION,
    SESSION_INFO,
    RpcException,
    SessionInfo,
)

VERSION = 0


class OpenRequest(NamedTuple):
    """Asks whether the storage belongs to this cluster; the three common fields are -1."""

    session_id: int
    seq_num: int
    partition_id: int
    key: UUID
    partition_count: int


class LastSessionInfoRequest(NamedTuple):
    """Asks for the persisted session and marks. ``offline``, here and below: asked by offline recovery."""

    session_id: int
    seq_num: int
    partition_id: int
    offline: bool


class LastSessionInfoResponse(NamedTuple):
    """Answers :class:`LastSessionInfoRequest`."""

    session_id: int
    seq_num: int
    partition_id: int
    info: SessionInfo


class SetLowWaterMarkRequest(NamedTuple):
    """Persists the session and its low-water mark."""

    session_id: int
    seq_num: int
    partition_id: int
    low_water_mark: int
    offline: bool


class TruncateRequest(NamedTuple):
    """Removes every record above ``transaction_id``; answered by :class:`MaxTransactionIdResponse`."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    offline: bool


class AppendRequest(NamedTuple):
    """Appends records whose transaction ids continue those that are stored."""

    session_id: int
    seq_num: int
    partition_id: int
    records: list[Record]
    offline: bool


class SuccessResponse(NamedTuple):
    """The request succeeded."""

    session_id: int
    seq_num: int
    partition_id: int


class FailureResponse(NamedTuple):
    """The request failed, or succeeded in part only."""

    session_id: int
    seq_num: int
    partition_id: int
    error: RpcException


class RecordHeaderRequest(NamedTuple):
    """Asks for one record without its data."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int


class RecordHeaderResponse(NamedTuple):
    """Answers :class:`RecordHeaderRequest`; ``None`` when the storage has no such record."""

    session_id: int
    seq_num: int
    partition_id: int
    record_header: RecordHeader | None


class RecordRequest(NamedTuple):
    """Asks for one record."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int


class RecordResponse(NamedTuple):
    """Answers :class:`RecordRequest`; ``None`` when the storage has no such record."""

    session_id: int
    seq_num: int
    partition_id: int
    record: Record | None


class MaxTransactionIdRequest(NamedTuple):
    """Asks for the highest transaction id that is stored, committed or not."""

    session_id: int
    seq_num: int
    partition_id: int
    offline: bool


class MaxTransactionIdResponse(NamedTuple):
    """Answers :class:`MaxTransactionIdRequest` and :class:`TruncateRequest`; -1 when nothing is stored."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int


class RecordHeaderListRequest(NamedTuple):
    """Asks for at most ``max_count`` consecutive record headers from ``transaction_id``."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class RecordHeaderListResponse(NamedTuple):
    """Answers :class:`RecordHeaderListRequest`."""

    session_id: int
    seq_num: int
    partition_id: int
    record_headers: list[RecordHeader]


class RecordListRequest(NamedTuple):
    """Asks for at most ``max_count`` consecutive records from ``transaction_id``."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class RecordListResponse(NamedTuple):
    """Answers :class:`RecordListRequest`."""

    session_id: int
    seq_num: int
    partition_id: int
    records: list[Record]


Message = (
    OpenRequest
    | LastSessionInfoRequest
    | LastSessionInfoResponse
    | SetLowWaterMarkRequest
    | TruncateRequest
    | AppendRequest
    | SuccessResponse
    | FailureResponse
    | RecordHeaderRequest
    | RecordHeaderResponse
    | RecordRequest
    | RecordResponse
    | MaxTransactionIdRequest
    | MaxTransactionIdResponse
    | RecordHeaderListRequest
    | RecordHeaderListResponse
    | RecordListRequest
    | RecordListResponse
)

APPEND_REQUEST = 6
"""Type number of :class:`AppendRequest`."""
SUCCESS_RESPONSE = 7
"""Type number of :class:`SuccessResponse`."""
TYPE_AT = FRAME_HEADER_SIZE_BYTES
"""Offset of the type number in a frame."""

_COMMON = (LONG, LONG, INT)

LAYOUTS: Mapping[int, Layout[Any]] = {
    1: layout(OpenRequest, *_COMMON, UUID_FIELD, INT),
    2: layout(LastSessionInfoRequest, *_COMMON, BOOLEAN),
    3: layout(LastSessionInfoResponse, *_COMMON, SESSION_INFO),
    4: layout(SetLowWaterMarkRequest, *_COMMON, LONG, BOOLEAN),
    5: layout(TruncateRequest, *_COMMON, LONG, BOOLEAN),
    APPEND_REQUEST: layout(AppendRequest, *_COMMON, RECORD_LIST, BOOLEAN),
    SUCCESS_RESPONSE: layout(SuccessResponse, *_COMMON),
    8: layout(FailureResponse, *_COMMON, RPC_EXCEPTION),
    9: layout(RecordHeaderRequest, *_COMMON, LONG),
    10: layout(RecordHeaderResponse, *_COMMON, optional(RECORD_HEADER_FIELD)),
    11: layout(RecordRequest, *_COMMON, LONG),
    12: layout(RecordResponse, *_COMMON, optional(RECORD)),
    13: layout(MaxTransactionIdRequest, *_COMMON, BOOLEAN),
    14: layout(MaxTransactionIdResponse, *_COMMON, LONG),
    15: layout(RecordHeaderListRequest, *_COMMON, LONG, INT),
    16: layout(RecordHeaderListResponse, *_COMMON, RECORD_HEADER_LIST),
    17: layout(RecordListRequest, *_COMMON, LONG, INT),
    18: layout(RecordListResponse, *_COMMON, RECORD_LIST),
}
"""By type byte; version 1 has these as well."""

CATALOGUE: Catalogue[Message] = Catalogue(STORAGE.magic, VERSION, LAYOUTS)

_COMMON_HEADER = struct.Struct(">bqqi")
_APPEND_HEADER = struct.Struct(">BhiBqqii")
APPEND_OVERHEAD_BYTES = _APPEND_HEADER.size + 1
"""Bytes of the frame of an append without its records."""
_SUCCESS_FRAME = struct.Struct(">BhiBqqi")
_SUCCESS_SEQ_NUM = struct.Struct(f">{FRAME_HEADER_SIZE_BYTES + 9}xq4x")
SUCCESS_RUN = Run(SUCCESS_RESPONSE, _COMMON_HEADER.size)
"""The run of answers to appends: the answers of one turn are adjacent."""
_LARGE_BYTES = 192 << 10  # up to this size, a copy costs less than a write of three pieces


def encode(message: Message) -> bytes:
    """Encode a message as a whole frame.

    Raises:
        ProtocolError: A value does not fit into its field.
    """
    return CATALOGUE.encode(message)


def decode(buffer: bytes, start: int, end: int) -> Message:
    """Decode the payload ``buffer[start:end]``.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    return CATALOGUE.decode(buffer, start, end)


HEAD_BYTES = _COMMON_HEADER.size
"""Size of the beginning of every message: type, session id, sequence number and partition."""


def seq_num_of(head: bytes) -> int | None:
    """The sequence number in the first bytes of a message; ``None`` if there are fewer than :data:`HEAD_BYTES`."""
    return None if len(head) < HEAD_BYTES else int(_COMMON_HEADER.unpack_from(head)[2])


def decode_batch(buffer: bytes, bounds: Bounds) -> list[Message]:
    """Decode all payloads of one read.

    Raises:
        ProtocolError: One of the payloads is not a valid message; none of them is returned.
    """
    messages: list[Message] = []
    for start, end in bounds:
        kind = buffer[start]
        if kind == SUCCESS_RESPONSE and end - start == _COMMON_HEADER.size:
            _, session_id, seq_num, partition_id = _COMMON_HEADER.unpack_from(buffer, start)
            messages.append(SuccessResponse(session_id, seq_num, partition_id))
        elif kind == APPEND_REQUEST and end - start > _COMMON_HEADER.size:
            _, session_id, seq_num, partition_id = _COMMON_HEADER.unpack_from(buffer, start)
            records, position = decode_records(buffer, start + _COMMON_HEADER.size, end)
            if position != end - 1:
                raise ProtocolError(f"AppendRequest: {end - position} bytes behind the records, there must be 1")
            messages.append(AppendRequest(session_id, seq_num, partition_id, records, buffer[position] == 1))
        else:
            messages.append(CATALOGUE.decode(buffer, start, end))
    return messages


def encode_success(session_id: int, seq_num: int, partition_id: int) -> bytes:
    """The frame of a :class:`SuccessResponse`, the answer to every append, whose fields always fit."""
    return _SUCCESS_FRAME.pack(
        STORAGE.magic, VERSION, _COMMON_HEADER.size, SUCCESS_RESPONSE, session_id, seq_num, partition_id
    )


def success_seq_nums(buffer: bytes, start: int, end: int) -> Iterable[tuple[int]]:
    """The sequence number of each :class:`SuccessResponse` of a run, or of a single one. Empty if the message is
    another one or damaged."""
    start -= FRAME_HEADER_SIZE_BYTES
    if buffer[start + TYPE_AT] != SUCCESS_RESPONSE or (end - start) % _SUCCESS_FRAME.size:
        return ()
    return _SUCCESS_SEQ_NUM.iter_unpack(buffer[start:end])


def encode_append(
    session_id: int,
    seq_num: int,
    partition_id: int,
    records: bytes,
    count: int,
    offline: bool = False,
    version: int = VERSION,
) -> Sequence[bytes]:
    """Encode an :class:`AppendRequest` of ``count`` encoded records as a frame in pieces.

    ``records`` is the result of :func:`waltz.common.records.encode_records`: a batch is encoded once for all replicas.
    Large records are a piece of their own, and not copied for each replica.

    Raises:
        ProtocolError: A number does not fit into its field.
    """
    try:
        head = _APPEND_HEADER.pack(
            STORAGE.magic,
            version,
            _COMMON_HEADER.size + 4 + len(records) + 1,
            APPEND_REQUEST,
            session_id,
            seq_num,
            partition_id,
            count,
        )
    except struct.error as error:
        raise ProtocolError(f"AppendRequest: {error}") from None
    tail = b"\x01" if offline else b"\x00"
    return (head, records, tail) if len(records) >= _LARGE_BYTES else (b"".join((head, records, tail)),)
