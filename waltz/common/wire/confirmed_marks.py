"""Messages of confirmed marks: part of version 6 of the protocol between clients and servers.

A former owner of a partition may not know yet that another server has replaced it, and answers with an old mark. A
confirmed mark is up to date: a quorum of the storages has answered the owner after the client's question.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID, enumeration


class ConfirmedMarkStatus(IntEnum):
    """The result of a question for a confirmed mark."""

    OK = 0
    NOT_READY = 1
    """This server does not own the partition, or has no store session."""
    NOT_CONFIRMED = 2
    """The store session ended, or no quorum of the storages answered in time; ask again."""


class ConfirmedMarkRequest(NamedTuple):
    """Asks for a high-water mark that covers every commit before the question, on any server."""

    req_id: bytes


class ConfirmedMarkResponse(NamedTuple):
    """The mark, or -1 when the log is empty or the mark is unknown."""

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
