"""The state of every replica of a partition as the owner of the partition sees it, for operators. Pure."""

from typing import NamedTuple

from waltz.common.replica_states import ReplicaStatus


class ReplicaView(NamedTuple):
    """One replica at one moment."""

    storage: str
    """Connect string (``host:port``)."""
    status: ReplicaStatus
    lag_transactions: int | None
    """Committed transactions that the storage is not known to have; ``None`` while nothing is known of it."""
