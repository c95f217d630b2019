"""Messages about times of commits: part of version 1 of the protocol between servers and the storage port.

About once a second, and apart from appends, the owner of a partition sends its mark and the time by its own clock to
the storages. Storages keep both in the time index, and answer questions from it.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, enumeration, list_of, structure

COMMITTED_NOTICE = 20
"""Type number of :class:`CommittedNotice`."""
TIME_ENTRY_REQUEST = 21
"""Type number of :class:`TimeEntryRequest`."""

MAX_TIMES = 1024
"""Maximum number of entries in a message."""


class TimeQuestion(IntEnum):
    """The kind of a question to a time index; the question also has a value."""

    LAST_AT = 0
    """Asks for the last entry that is not later than the value, in milliseconds since the epoch."""
    FIRST_COVERING = 1
    """Asks for the first entry whose transaction is not before the value, a transaction id."""


class PartitionCommitted(NamedTuple):
    """All transactions of a partition up to this one are committed. The storage ignores other sessions than its
    present one."""

    session_id: int
    partition_id: int
    transaction_id: int


class CommittedNotice(NamedTuple):
    """The marks of partitions at ``time_ms``, in milliseconds since the epoch. The only message without an answer.

    The three common fields are -1.
    """

    session_id: int
    seq_num: int
    partition_id: int
    time_ms: int
    entries: list[PartitionCommitted]


class TimeEntryRequest(NamedTuple):
    """Asks for an entry of a partition's time index."""

    session_id: int
    seq_num: int
    partition_id: int
    question: TimeQuestion
    value: int


class TimeEntryResponse(NamedTuple):
    """The entry; transaction and time are -1 if the index has no such entry."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    time_ms: int


class CommitTime(NamedTuple):
    """At this time, in milliseconds since the epoch, all transactions up to this one were committed."""

    transaction_id: int
    time_ms: int


class TimeListRequest(NamedTuple):
    """Asks for the entries of a partition's time index from a transaction on, to copy them to another storage."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class TimeListResponse(NamedTuple):
    """Entries in the order of their transactions. The index has no more entries if there are fewer than requested, and
    fewer than :data:`MAX_TIMES`."""

    session_id: int
    seq_num: int
    partition_id: int
    times: list[CommitTime]


class EnterTimesRequest(NamedTuple):
    """Adds times of committed transactions to the time index of a storage. The storage has the transactions already.

    The answer is a ``TimeEntryResponse`` with the last entry after that. ``offline`` is the flag of requests to a
    replica that is switched off.
    """

    session_id: int
    seq_num: int
    partition_id: int
    offline: bool
    times: list[CommitTime]


StorageTimeMessage = (
    CommittedNotice | TimeEntryRequest | TimeEntryResponse | TimeListRequest | TimeListResponse | EnterTimesRequest
)

_COMMON = (LONG, LONG, INT)
_TIMES = list_of(structure(CommitTime, LONG, LONG), 16)
_NOTICE = struct.Struct(">bqqiqi")
_ENTRY = struct.Struct(">qiq")


def decode_notice(buffer: bytes, start: int, end: int) -> tuple[int, Iterator[tuple[int, int, int]]]:
    """Decode a notice from the payload ``buffer[start:end]``.

    Returns:
        The time, and the fields of each :class:`PartitionCommitted`.

    Raises:
        ProtocolError: The size does not match the number of entries.
    """
    entries_at = start + _NOTICE.size
    if entries_at > end:
        raise ProtocolError("CommittedNotice: too short")
    _, _, _, _, time_ms, count = _NOTICE.unpack_from(buffer, start)
    if count * _ENTRY.size != end - entries_at:
        raise ProtocolError(f"CommittedNotice: {count} entries in {end - entries_at} bytes")
    return time_ms, _ENTRY.iter_unpack(buffer[entries_at:end])


def storage_time_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    entries = list_of(structure(PartitionCommitted, LONG, INT, LONG), _ENTRY.size)
    return {
        COMMITTED_NOTICE: layout(CommittedNotice, *_COMMON, LONG, entries),
        TIME_ENTRY_REQUEST: layout(TimeEntryRequest, *_COMMON, enumeration(TimeQuestion, "question"), LONG),
        22: layout(TimeEntryResponse, *_COMMON, LONG, LONG),
        23: layout(TimeListRequest, *_COMMON, LONG, INT),
        24: layout(TimeListResponse, *_COMMON, _TIMES),
        25: layout(EnterTimesRequest, *_COMMON, BOOLEAN, _TIMES),
    }
