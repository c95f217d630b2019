"""Messages that take the oldest transactions away: part of version 1 of the protocol between servers and the storage
port.

What takes transactions away is sent by the owner of a partition only, under its session, for a partition whose trim
point allows it.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG


class TrimRequest(NamedTuple):
    """Records that all transactions before ``transaction_id`` are trimmed, and removes the oldest segment if it has no
    later ones. At most one segment is removed, so that appends do not wait for many of them.

    Refused above the storage's own low-water mark, and behind the end of its log. The answer is a ``TrimResponse``.
    """

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int


class BeginRequest(NamedTuple):
    """Begins the log of a replica at ``transaction_id``, without records. All transactions that the replica may have
    are before it, and trimmed.

    Refused if the storage has the transaction ``transaction_id``, or a later one. The answer is a ``TrimResponse``.
    ``offline`` is the flag of requests to a replica that is switched off.
    """

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int
    offline: bool


class SizeRequest(NamedTuple):
    """Asks where the newest segments begin that have ``size_bytes`` or more together.

    The answer is a ``TrimResponse``: the first transaction of these segments, or of the log if it is smaller.
    """

    session_id: int
    seq_num: int
    partition_id: int
    size_bytes: int


class TrimResponse(NamedTuple):
    """The first transaction that the storage keeps, or will keep if its log is empty; or the answer to a
    ``SizeRequest``."""

    session_id: int
    seq_num: int
    partition_id: int
    transaction_id: int


StorageTrimMessage = TrimRequest | BeginRequest | TrimResponse | SizeRequest

_FIELDS = (LONG, LONG, INT, LONG)


def storage_trim_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    return {
        26: layout(TrimRequest, *_FIELDS),
        27: layout(BeginRequest, *_FIELDS, BOOLEAN),
        28: layout(TrimResponse, *_FIELDS),
        29: layout(SizeRequest, *_FIELDS),
    }
