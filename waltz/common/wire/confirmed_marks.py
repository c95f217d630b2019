"""Messages of confirmed marks, which version 6 adds to the protocol between clients and servers.

A server that was replaced as the owner of a partition may not know it yet. The mark that it tells is old then, as long
as that lasts. A confirmed mark is not: a quorum of the storages has answered the owner after it was asked.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID, enumeration


class ConfirmedMarkStatus(IntEnum):
    """What came of a question for a confirmed mark."""

    OK = 0
    NOT_READY = 1
    """The partition is not at this server, or has no store session."""
    NOT_CONFIRMED = 2
    """The store session ended, or no quorum of the storages answered in time; ask again."""


class ConfirmedMarkRequest(NamedTuple):
    """Asks for a high-water mark that covers everything committed before the question, by whichever server."""

    req_id: bytes


class ConfirmedMarkResponse(NamedTuple):
    """The mark, or -1 when the log is empty or there is no mark to tell."""

    req_id: bytes
    confirmed_mark_status: ConfirmedMarkStatus
    transaction_id: int


ConfirmedMarkMessage = ConfirmedMarkRequest | ConfirmedMarkResponse


def confirmed_mark_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    status = enumeration(ConfirmedMarkStatus, "status")
    return {
        33: layout(ConfirmedMarkRequest, REQ_ID),
        34: layout(ConfirmedMarkResponse, REQ_ID, status, LONG),
    }
