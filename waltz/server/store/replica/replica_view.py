"""The owner's view on the replicas of a partition, for operators. Pure."""

from typing import NamedTuple

from waltz.common.replica_states import ReplicaStatus


class ReplicaView(NamedTuple):
    """One replica at one moment."""

    storage: str
    """Connect string (``host:port``)."""
    status: ReplicaStatus
    lag_transactions: int | None
    """The number of committed transactions that the storage is not known to have; ``None`` while its state is
    unknown."""
