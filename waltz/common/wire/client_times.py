"""Messages about times of commits: part of version 6 of the protocol between clients and servers."""

from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID, enumeration
from waltz.common.wire.storage_times import TimeQuestion


class TimeStatus(IntEnum):
    """The result of a question about times."""

    OK = 0
    NOT_READY = 1
    """This server does not own the partition, or has no store session."""
    NOT_ANSWERED = 2
    """The storages did not answer in time; ask again."""
    NOT_KEPT = 3
    """No storage of the partition keeps times: all of them are the original's."""


class TimeRequest(NamedTuple):
    """Asks for a transaction by time, or for a time by transaction, as in the time index of a storage."""

    req_id: bytes
    question: TimeQuestion
    value: int


class TimeResponse(NamedTuple):
    """A transaction, and a time at which the log up to this transaction was committed; both -1 if unknown."""

    req_id: bytes
    time_status: TimeStatus
    transaction_id: int
    time_ms: int


ClientTimeMessage = TimeRequest | TimeResponse


def client_time_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    status = enumeration(TimeStatus, "status")
    return {
        42: layout(TimeRequest, REQ_ID, enumeration(TimeQuestion, "question"), LONG),
        43: layout(TimeResponse, REQ_ID, status, LONG, LONG),
    }
