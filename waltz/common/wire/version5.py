"""The messages that version 5 adds to the protocol between clients and servers: an extension of this implementation.

They are bulk reads of transactions with their data, notices of appends that are not in the log, notices of partitions
that leave their server, and write sessions (:mod:`waltz.common.wire.write_sessions`).
"""

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.records import Record
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, enumeration
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER
from waltz.common.wire.structures import RECORD_LIST
from waltz.common.wire.write_sessions import write_session_layouts


class DataListStatus(IntEnum):
    """The result of a request for a list of transactions."""

    OK = 0
    NOT_READY = 1
    """This server does not own the partition (yet)."""
    FAILED = 2


class AppendFailure(IntEnum):
    """Why an append is not in the log and never will be."""

    GENERATION_MISMATCH = 1
    NOT_STORED = 2
    """The append was sent to the storages, but a later session has decided that it is not in the log."""
    MOVED = 3
    """The partition moved or closed before the append was sent to a storage."""
    TOO_LARGE = 4
    STOPPING = 5
    """The server is stopping, and had not sent the append to a storage."""
    OUT_OF_ORDER = 6
    """The append would get another id than the one its client has foreseen. Only a client hears it that has asked for
    that order, which begins with version 6."""


class TransactionDataListRequest(NamedTuple):
    """Asks for consecutive transactions with their data, from ``transaction_id`` on.

    Servers have their own limits for larger requests (10,000 transactions, 8 MiB by default).
    """

    req_id: bytes
    transaction_id: int
    max_count: int
    max_bytes: int


class TransactionDataListResponse(NamedTuple):
    """The transactions from ``transaction_id`` on, up to the high-water mark or the limits. If there are any, the
    response has at least one. The checksums in ``records`` are those of the appends; the user of the data verifies
    them.

    Without a store session the server does not know the end of the log: ``high_water_mark`` is then the id of the last
    record, or the status is ``NOT_READY`` if there are no records.
    """

    req_id: bytes
    transaction_id: int
    status: DataListStatus
    high_water_mark: int
    records: list[Record]
    error: str | None


class AppendFailed(NamedTuple):
    """The append of this request id is not in the log and never will be."""

    req_id: bytes
    reason: AppendFailure
    high_water_mark: int
    text: str | None


class PartitionClosed(NamedTuple):
    """This server no longer owns the partition; ``req_id`` is that of the mount request."""

    req_id: bytes


_LIST_RESPONSE = 29
_LIST_HEAD = struct.Struct(">b16sqiqi")


def version5_layouts() -> dict[int, Layout[Any]]:
    """The messages that version 4 does not have, by type byte."""
    status = enumeration(DataListStatus, "status")
    reason = enumeration(AppendFailure, "reason")
    return {
        **write_session_layouts(),
        28: layout(TransactionDataListRequest, REQ_ID, LONG, INT, INT),
        _LIST_RESPONSE: layout(TransactionDataListResponse, REQ_ID, LONG, status, LONG, RECORD_LIST, NULLABLE_STRING),
        30: layout(AppendFailed, REQ_ID, reason, LONG, NULLABLE_STRING),
        31: layout(PartitionClosed, REQ_ID),
    }


def encode_transaction_data_list(
    version: int, req_id: bytes, transaction_id: int, high_water_mark: int, count: int, records: bytes
) -> bytes:
    """Encode an ``OK`` :class:`TransactionDataListResponse` with ``count`` encoded records as a frame.

    ``records`` is the result of :func:`waltz.common.records.encode_records`, or an answer of a storage.
    """
    head = _LIST_HEAD.pack(_LIST_RESPONSE, req_id, transaction_id, DataListStatus.OK, high_water_mark, count)
    size = len(head) + len(records) + 4
    return b"".join(
        (FRAME_HEADER.pack(CLIENT_SERVER.magic, version, size), head, records, NULLABLE_STRING.encode(None))
    )
