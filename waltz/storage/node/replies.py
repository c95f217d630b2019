"""Answers of the data port that need more than their fields: failures, and reads from a log."""

import logging
import struct
from typing import NamedTuple

from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import RecordHeader
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.frames import FRAME_HEADER
from waltz.common.wire.storage_times import EnterTimesRequest, TimeEntryRequest, TimeListRequest
from waltz.common.wire.structures import RpcException
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.segment import StoredRecords
from waltz.storage.errors import wire_text
from waltz.storage.node.session_rule import ReadRequest, StorageRequest
from waltz.storage.node.times import answer_time

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 8 << 20
"""The largest size on disk of the records of one answer. The first record is always included; callers ask again for the
rest."""

MAX_HEADERS = 4096
"""The largest number of entries in a list of record headers.

Each entry costs the read and the check of a record. So a list of more than :data:`WHOLE_HEADERS` entries also stops at
:data:`MAX_REPLY_BYTES` of records.
"""

WHOLE_HEADERS = 64
"""Servers of the original ask for this number of headers, and rely on a complete list: large records do not shorten the
list."""

_COUNT = struct.Struct(">i")


def failure_frame(message: StorageRequest, text: str) -> bytes:
    """The frame that answers ``message`` with a failure; ``text`` is the Java rendering of an exception."""
    error = RpcException(text)
    return wire.encode(wire.FailureResponse(message.session_id, message.seq_num, message.partition_id, error))


def last_requested_id(message: ReadRequest) -> int:
    """The highest transaction id that the read asks for."""
    if isinstance(message, TimeEntryRequest | TimeListRequest):
        return NO_TRANSACTION
    if isinstance(message, EnterTimesRequest):
        return max((entry.transaction_id for entry in message.times), default=NO_TRANSACTION)
    if isinstance(message, wire.RecordHeaderListRequest | wire.RecordListRequest):
        return message.transaction_id + message.max_count - 1
    return message.transaction_id


class ReadAnswer(NamedTuple):
    """The answer to a read."""

    frame: bytes
    size_bytes: int
    """The size of the frame, or of the records that were read for the frame if that is larger."""


def answer_read(log: PartitionLog, message: ReadRequest) -> ReadAnswer:
    """Execute a read. Every error becomes a failure of this request alone. Blocking."""
    read_bytes = 0
    try:
        if isinstance(message, wire.RecordListRequest):
            frame = _record_list_frame(log, message)
        elif isinstance(message, TimeEntryRequest | TimeListRequest | EnterTimesRequest):
            frame = our_wire.encode(answer_time(log, message), our_wire.OUR_VERSION)
        elif isinstance(message, wire.RecordRequest):
            frame = wire.encode(_record(log, message))
        else:
            answer, read_bytes = _headers(log, message)
            frame = wire.encode(answer)
    except Exception as error:
        logger.error("partition %d: a read failed: %s: %s", message.partition_id, message, error)
        frame = failure_frame(message, wire_text(error))
    return ReadAnswer(frame, max(len(frame), read_bytes))


class EncodedRecords(NamedTuple):
    """The bytes of a list of records on the wire behind the count, in pieces."""

    record_count: int
    pieces: list[bytes]


def read_encoded(log: PartitionLog, first: int, max_count: int) -> EncodedRecords:
    """Records from ``first`` on, up to :data:`MAX_REPLY_BYTES`, but at least one if it is stored. Blocking."""
    if first < 0 or max_count <= 0:
        return EncodedRecords(0, [])
    return EncodedRecords(*log.read_encoded(first, max_count, MAX_REPLY_BYTES))


def read_stored(log: PartitionLog, first: int, max_count: int) -> list[StoredRecords]:
    """Like :func:`read_encoded`, but with the bytes of the records on disk."""
    if first < 0 or max_count <= 0:
        return []
    return log.read_stored(first, max_count, MAX_REPLY_BYTES)


def with_records(empty_frame: bytes, records: EncodedRecords) -> bytes:
    """The frame of a message that ends with a list of records, made from the frame with an empty list."""
    magic, version, size = FRAME_HEADER.unpack_from(empty_frame)
    size += sum(map(len, records.pieces))
    head = FRAME_HEADER.pack(magic, version, size) + empty_frame[FRAME_HEADER.size : -_COUNT.size]
    return b"".join((head, _COUNT.pack(records.record_count), *records.pieces))


def _record_list_frame(log: PartitionLog, message: wire.RecordListRequest) -> bytes:
    empty = wire.encode(wire.RecordListResponse(message.session_id, message.seq_num, message.partition_id, []))
    return with_records(empty, read_encoded(log, message.transaction_id, message.max_count))


def _record(log: PartitionLog, message: wire.RecordRequest) -> wire.Message:
    session_id, seq_num, partition_id, first = message
    records = log.read(first, 1) if first >= 0 else []
    return wire.RecordResponse(session_id, seq_num, partition_id, records[0] if records else None)


def _headers(
    log: PartitionLog, message: wire.RecordHeaderRequest | wire.RecordHeaderListRequest
) -> tuple[wire.Message, int]:
    """The answer, and the number of bytes of records that were read for the answer."""
    session_id, seq_num, partition_id, first = message[:4]
    if isinstance(message, wire.RecordHeaderRequest):
        headers, read_bytes = _read_headers(log, first, 1)
        header = headers[0] if headers else None
        return wire.RecordHeaderResponse(session_id, seq_num, partition_id, header), read_bytes
    headers, read_bytes = _read_headers(log, first, message.max_count)
    return wire.RecordHeaderListResponse(session_id, seq_num, partition_id, headers), read_bytes


def _read_headers(log: PartitionLog, first: int, max_count: int) -> tuple[list[RecordHeader], int]:
    if first < 0 or max_count <= 0:
        return [], 0
    max_bytes = None if max_count <= WHOLE_HEADERS else MAX_REPLY_BYTES
    return log.read_headers(first, min(max_count, MAX_HEADERS), max_bytes)
