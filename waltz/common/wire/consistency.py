"""Messages about levels of consistency, which version 6 adds to the protocol between clients and servers.

A level holds for the appends of one connection to one partition that follow it, until the next level or mount. The
append itself, and everything up to its commit, is as in version 5. A client that waits for more than the commit asks by
the id of the transaction, so that it can ask the next owner as well.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from waltz.common.consistency import Consistency
from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, enumeration


class ConsistencyRefusal(IntEnum):
    """Why an append was refused because of its level."""

    BELOW_PROPERTY = 1
    """The partition demands more of its writers."""
    STORAGE_MISSING = 2
    """The level needs a storage that is known to be away."""


class AppendAck(NamedTuple):
    """All transactions up to this one are on the disks of so many storages, which are all of the partition."""

    req_id: bytes
    transaction_id: int
    storage_count: int


class AppendLevelRequest(NamedTuple):
    """The level of the appends to the partition that follow on the connection. Without it: leader_quorum."""

    req_id: bytes
    level: Consistency


class AppendAckRequest(NamedTuple):
    """Asks for an :class:`AppendAck` as soon as one for this transaction is true."""

    req_id: bytes
    transaction_id: int


class ConsistencyRefused(NamedTuple):
    """The append of this request id is not in the log and never will be: its level does not go."""

    req_id: bytes
    refusal: ConsistencyRefusal
    text: str | None


class PartitionConsistency(NamedTuple):
    """The property ``consistency`` of the partition, told before the answer to a mount, and after a change.

    Without it: leader_quorum.
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
