"""Messages of write sessions, which belong to version 5 of the protocol between clients and servers.

A write session is a number W of a partition. Appends may carry a number, and an append with another number than the
partition's present one is refused. So raising the number ("fencing") keeps writers of older sessions from adding to the
log.
"""

from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID, Field, enumeration, too_short

NO_WRITE_SESSION = -1
"""The number of a missing write session."""


class HeartbeatOption(IntFlag):
    """The question of a heartbeat."""

    MARK_FOR_READERS = 1
    """A sign of life for readers of the log. The answer's high-water mark is one; nothing is written."""
    GET_SESSION = 2
    """The number of the present session."""
    EXCLUSIVE = 4
    """A session in which only this client may write; if there is none, the number is raised for it."""


class HeartbeatState(IntEnum):
    """The result of a heartbeat."""

    OK = 0
    NOT_READY = 1
    """The partition is not at this server, or not yet, or the connection is not the client's mounted one."""
    HELD_BY_ANOTHER = 2
    """Another client holds an exclusive session; no number is given."""


class SessionFlag(IntFlag):
    """Properties of a session beside its number."""

    EXCLUSIVE = 1
    HELD_BY_YOU = 2


class FenceOption(IntFlag):
    """Options of a question for the last transaction."""

    FENCE = 1
    """Raise the number of the session first."""
    EXCLUSIVE = 2
    """Make the new session one in which only this client may write."""


class LastTransactionStatus(IntEnum):
    """The result of a question for the last transaction."""

    OK = 0
    NOT_READY = 1
    """The partition is not at this server, or not yet."""
    FENCE_FAILED = 2
    """The number was not raised; ask again."""
    UNEXPECTED_SESSION = 3
    """The present session is not the expected one; nothing was raised."""


class SessionFenced(NamedTuple):
    """The append of this request id was refused because of its session. ``write_session`` is the present one, for logs
    only: a client that continued in it would defeat the fence."""

    req_id: bytes
    high_water_mark: int
    write_session: int


class HeartbeatRequest(NamedTuple):
    """Asks for the present session; from a connection that has mounted the partition."""

    req_id: bytes
    heartbeat: HeartbeatOption


class HeartbeatResponse(NamedTuple):
    """The present session if it was asked for and may be told, else -1."""

    req_id: bytes
    heartbeat_state: HeartbeatState
    high_water_mark: int
    write_session: int
    session_flags: SessionFlag


class LastTransactionIdRequest(NamedTuple):
    """Asks for the last transaction after all earlier appends, and perhaps for a fence there.

    With an ``expected_session`` other than -1, nothing is raised unless that is the present one.
    """

    req_id: bytes
    fence: FenceOption
    expected_session: int


class LastTransactionIdResponse(NamedTuple):
    """The last transaction, or -1 when the log is empty, and the present session. After a fence no
    append with an older number is after ``transaction_id``."""

    req_id: bytes
    last_transaction_status: LastTransactionStatus
    transaction_id: int
    write_session: int


WriteSessionMessage = (
    SessionFenced | HeartbeatRequest | HeartbeatResponse | LastTransactionIdRequest | LastTransactionIdResponse
)


def _flags(kind: type[IntFlag], name: str) -> Field[Any]:
    """One byte of flags; an unknown flag is an error, since it may ask for something that is not supported here."""
    known = sum(kind)

    def encode(value: int) -> bytes:
        if value & ~known:
            raise ProtocolError(f"unknown {name} {value:#x}")
        return bytes([value])

    def decode(buffer: bytes, position: int, end: int) -> tuple[IntFlag, int]:
        if position >= end:
            raise too_short()
        if buffer[position] & ~known:
            raise ProtocolError(f"unknown {name} {buffer[position]:#x}")
        return kind(buffer[position]), position + 1

    return Field(encode, decode)


def write_session_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    state = enumeration(HeartbeatState, "heartbeat state")
    status = enumeration(LastTransactionStatus, "status")
    return {
        23: layout(SessionFenced, REQ_ID, LONG, LONG),
        24: layout(HeartbeatRequest, REQ_ID, _flags(HeartbeatOption, "heartbeat options")),
        25: layout(HeartbeatResponse, REQ_ID, state, LONG, LONG, _flags(SessionFlag, "session flags")),
        26: layout(LastTransactionIdRequest, REQ_ID, _flags(FenceOption, "fence options"), LONG),
        27: layout(LastTransactionIdResponse, REQ_ID, status, LONG, LONG),
    }
