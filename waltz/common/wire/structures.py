"""Structures of several protocols."""

from typing import NamedTuple

from waltz.common.checksum import crc32
from waltz.common.errors import ProtocolError
from waltz.common.records import Record, RecordHeader, decode_record, decode_records, encode_record, encode_records
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, Field, list_of, not_null, structure


class StackFrame(NamedTuple):
    """One line of the stack trace of a Java peer."""

    class_name: str
    method_name: str
    file_name: str | None
    line_number: int


class RpcException(NamedTuple):
    """Why a request failed.

    ``message`` has the form of a Java exception: the qualified class name, then ``": "`` and the text, if any. Peers
    compare messages, so every node uses that form. This implementation sends no stack frames.
    """

    message: str | None
    frames: tuple[StackFrame, ...] = ()


class SessionInfo(NamedTuple):
    """The last session of a partition at a storage, and its low-water marks."""

    session_id: int
    low_water_mark: int
    local_low_water_mark: int


def verify_checksum(data: bytes, checksum: int) -> None:
    """Raise :class:`ProtocolError` unless ``checksum``, signed or not, is the CRC-32 of ``data``."""
    found = crc32(data)
    if found != checksum & 0xFFFF_FFFF:
        raise ProtocolError(f"the data has the checksum {found:08x}, and {checksum & 0xFFFF_FFFF:08x} was sent with it")


def _encode_list(records: list[Record]) -> bytes:
    return INT.encode(len(records)) + encode_records(records)


_STACK_FRAME = structure(
    StackFrame,
    not_null(NULLABLE_STRING, "class name"),
    not_null(NULLABLE_STRING, "method name"),
    NULLABLE_STRING,
    INT,
)
_STACK_FRAMES = list_of(_STACK_FRAME, 16)


def _encode_frames(frames: tuple[StackFrame, ...]) -> bytes:
    return _STACK_FRAMES.encode(list(frames))


def _decode_frames(buffer: bytes, position: int, end: int) -> tuple[tuple[StackFrame, ...], int]:
    frames, behind = _STACK_FRAMES.decode(buffer, position, end)
    return tuple(frames), behind


RPC_EXCEPTION = structure(RpcException, NULLABLE_STRING, Field(_encode_frames, _decode_frames))
SESSION_INFO = structure(SessionInfo, LONG, LONG, LONG)
RECORD_HEADER_FIELD = structure(RecordHeader, LONG, REQ_ID, INT)
RECORD = Field(encode_record, decode_record)
RECORD_LIST = Field(_encode_list, decode_records)
RECORD_HEADER_LIST = list_of(RECORD_HEADER_FIELD, 28)
