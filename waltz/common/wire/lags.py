"""Messages about lags, for tools: part of version 6 of the protocol between clients and servers."""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, list_of, not_null, structure

UNKNOWN_LAG = -1
"""A number that is not known."""


class ReplicaLag(NamedTuple):
    """The committed transactions that a replica may lack, by the knowledge of the owner."""

    storage: str
    """``host:port``."""
    transactions: int
    age_ms: int
    """Minimum time since the commit of the oldest of them, by the owner's clock."""


class PartitionLags(NamedTuple):
    """The lags of a partition's feeds and replicas, according to its owner."""

    partition_id: int
    feed_transactions: int
    """Number of committed transactions not yet sent to the slowest feed, although the server has promised them."""
    feed_age_ms: int
    """Minimum time since the commit of the oldest such transaction of all feeds."""
    replicas: list[ReplicaLag]


class LagsRequest(NamedTuple):
    """Asks a server for the lags of its partitions."""

    req_id: bytes


class LagsResponse(NamedTuple):
    """The lags of all partitions that the server owns."""

    req_id: bytes
    lags: list[PartitionLags]


LagMessage = LagsRequest | LagsResponse

_REPLICA_BYTES = 4 + 8 + 8
_PARTITION_BYTES = 4 + 8 + 8 + 4


def lag_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    replica = structure(ReplicaLag, not_null(NULLABLE_STRING, "storage"), LONG, LONG)
    partition = structure(PartitionLags, INT, LONG, LONG, list_of(replica, _REPLICA_BYTES))
    return {
        46: layout(LagsRequest, REQ_ID),
        47: layout(LagsResponse, REQ_ID, list_of(partition, _PARTITION_BYTES)),
    }
