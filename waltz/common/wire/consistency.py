"""Messages about levels of consistency: part of version 6 of the protocol between clients and servers.

A level holds for the following appends of one connection to one partition, until the next level or mount. Appends and
commits are as in version 5. To wait for more than the commit, a client asks by the id of the transaction: so the client
can also ask the next owner.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.consistency import Consistency
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, enumeration


class ConsistencyRefusal(IntEnum):
    """Why the level of an append was refused."""

    BELOW_PROPERTY = 1
    """The partition demands a stronger level of its writers."""
    STORAGE_MISSING = 2
    """The level needs a storage that is unavailable."""


class AppendAck(NamedTuple):
    """All transactions up to this one are on the disks of all storages of the partition; carries their number."""

    req_id: bytes
    transaction_id: int
    storage_count: int


class AppendLevelRequest(NamedTuple):
    """Sets the level of the following appends to the partition on this connection. The default is leader_quorum."""

    req_id: bytes
    level: Consistency


class AppendAckRequest(NamedTuple):
    """Asks for an :class:`AppendAck` as soon as all storages have this transaction."""

    req_id: bytes
    transaction_id: int


class ConsistencyRefused(NamedTuple):
    """The append of this request id is not in the log and never will be, because its level was refused."""

    req_id: bytes
    refusal: ConsistencyRefusal
    text: str | None


class PartitionConsistency(NamedTuple):
    """The property ``consistency`` of the partition, sent before the answer to a mount, and after a change.

    The default is leader_quorum.
    """

    req_id: bytes
    level: Consistency


ConsistencyMessage = AppendAck | AppendLevelRequest | AppendAckRequest | ConsistencyRefused | PartitionConsistency


def consistency_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    level = enumeration(Consistency, "level of consistency")
    refusal = enumeration(ConsistencyRefusal, "refusal")
    return {
        32: layout(AppendAck, REQ_ID, LONG, INT),
        35: layout(AppendLevelRequest, REQ_ID, level),
        36: layout(AppendAckRequest, REQ_ID, LONG),
        37: layout(ConsistencyRefused, REQ_ID, refusal, NULLABLE_STRING),
        38: layout(PartitionConsistency, REQ_ID, level),
    }
