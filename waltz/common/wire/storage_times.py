"""Messages about times, which version 1 adds to the protocol between servers and the storage port.

The owner of a partition tells the storages what was committed when, by its own clock, about once a second and apart
from appends. Storages keep that in the time index, and answer questions from it.
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
"""Most entries of one message."""


class TimeQuestion(IntEnum):
    """Which entry of a time index is wanted; the other words of a question say the value."""

    LAST_AT = 0
    """The last one that is not later than the value, in milliseconds since the epoch."""
    FIRST_COVERING = 1
    """The first one whose transaction is not before the value, a transaction id."""


class PartitionCommitted(NamedTuple):
    """Everything up to the transaction is committed in a partition. Counts only for the session that the storage
    follows."""

    session_id: int
    partition_id: int
    transaction_id: int


class CommittedNotice(NamedTuple):
    """What was committed by ``time_ms``, milliseconds since the epoch. The only message without an answer.

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
    """The entry; twice -1 when the index has none such."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    time_ms: int


class CommitTime(NamedTuple):
    """Everything up to the transaction was committed by that time, in milliseconds since the epoch."""

    transaction_id: int
    time_ms: int


class TimeListRequest(NamedTuple):
    """Asks for the entries of a partition's time index from a transaction on, for another storage that lacks them."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class TimeListResponse(NamedTuple):
    """Entries in the order of their transactions. Fewer than were asked for (and than :data:`MAX_TIMES`): there are no
    more."""

    session_id: int
    seq_num: int
    partition_id: int
    times: list[CommitTime]


class EnterTimesRequest(NamedTuple):
    """Enters times of committed transactions that the storage holds, and whose times it lacks.

    The answer is a ``TimeEntryResponse`` with the last entry after that. ``offline`` is the flag of the requests that
    fill a replica which is switched off.
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
    """Time and entries (as :class:`PartitionCommitted` has them) of the notice whose payload is ``buffer[start:end]``.

    Raises :class:`ProtocolError` when it has another size than it says.
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
