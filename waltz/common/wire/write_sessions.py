"""Messages of write sessions: part of version 5 of the protocol between clients and servers.

A write session is a number W of a partition. Appends may carry a number. The server refuses an append whose number is
not the partition's present one. So a raise of the number ("fencing") stops the writers of older sessions.
"""

from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID, Field, enumeration, too_short

NO_WRITE_SESSION = -1
"""The number of a missing write session."""


class HeartbeatOption(IntFlag):
    """What a heartbeat asks for."""

    MARK_FOR_READERS = 1
    """Ask for a sign of life for readers of the log: the answer's high-water mark. Nothing is written."""
    GET_SESSION = 2
    """Ask for the number of the present session."""
    EXCLUSIVE = 4
    """Ask for a session in which only this client may write. If there is none yet, the number is raised."""


class HeartbeatState(IntEnum):
    """The result of a heartbeat."""

    OK = 0
    NOT_READY = 1
    """This server does not own the partition (yet), or the client has not mounted it on this connection."""
    HELD_BY_ANOTHER = 2
    """Another client has an exclusive session; the answer has no number."""


class SessionFlag(IntFlag):
    """Properties of a session besides its number."""

    EXCLUSIVE = 1
    HELD_BY_YOU = 2


class FenceOption(IntFlag):
    """Options of a question for the last transaction."""

    FENCE = 1
    """Raise the number of the session before the answer."""
    EXCLUSIVE = 2
    """Make the new session one in which only this client may write."""


class LastTransactionStatus(IntEnum):
    """The result of a question for the last transaction."""

    OK = 0
    NOT_READY = 1
    """This server does not own the partition (yet)."""
    FENCE_FAILED = 2
    """The number was not raised; ask again."""
    UNEXPECTED_SESSION = 3
    """The present session is not the expected one; the number was not raised."""


class SessionFenced(NamedTuple):
    """The append of this request id was refused because of its session. ``write_session`` is the present session. Use
    it for logs only: a client that continues in it defeats the fence."""

    req_id: bytes
    high_water_mark: int
    write_session: int


class HeartbeatRequest(NamedTuple):
    """Asks for the present session. The connection must have mounted the partition."""

    req_id: bytes
    heartbeat: HeartbeatOption


class HeartbeatResponse(NamedTuple):
    """The present session; -1 if the request did not ask for it, or another client has it exclusively."""

    req_id: bytes
    heartbeat_state: HeartbeatState
    high_water_mark: int
    write_session: int
    session_flags: SessionFlag


class LastTransactionIdRequest(NamedTuple):
    """Asks for the last transaction after all earlier appends, and optionally for a fence there.

    With an ``expected_session`` other than -1, the number is raised only if that session is the present one.
    """

    req_id: bytes
    fence: FenceOption
    expected_session: int


class LastTransactionIdResponse(NamedTuple):
    """The last transaction (-1 when the log is empty), and the present session. After a fence, no append with an older
    number can follow ``transaction_id``."""

    req_id: bytes
    last_transaction_status: LastTransactionStatus
    transaction_id: int
    write_session: int


WriteSessionMessage = (
    SessionFenced | HeartbeatRequest | HeartbeatResponse | LastTransactionIdRequest | LastTransactionIdResponse
)


def _flags(kind: type[IntFlag], name: str) -> Field[Any]:
    """One byte of flags. An unknown flag is an error, since it may ask for an unsupported feature."""
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
