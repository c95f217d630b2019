"""Messages about lags, which version 6 adds to the protocol between clients and servers: tools ask every server."""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_STRING, REQ_ID, list_of, not_null, structure

UNKNOWN_LAG = -1
"""A number that is not known."""


class ReplicaLag(NamedTuple):
    """What a replica is not known to hold of what is committed."""

    storage: str
    """``host:port``."""
    transactions: int
    age_ms: int
    """For how long at least the oldest of them has been committed, by the owner's own clock."""


class PartitionLags(NamedTuple):
    """What others lack of a partition, by its owner."""

    partition_id: int
    feed_transactions: int
    """Committed transactions that the feed furthest behind was promised and not sent."""
    feed_age_ms: int
    """For how long at least the oldest such transaction of all feeds has been committed."""
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
