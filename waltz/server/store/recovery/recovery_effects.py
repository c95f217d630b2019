"""Effects of a partition's recovery; see :mod:`waltz.server.store.recovery.recovery`. Pure."""

from typing import NamedTuple

from waltz.common.zk.znodes import PartitionMetadata, ReplicaId


class GetMaximum(NamedTuple):
    """Ask for the highest id stored; event :meth:`RecoveryMachine.maximum_known`."""

    replica_id: ReplicaId


class Truncate(NamedTuple):
    """Remove everything above an id; event :meth:`RecoveryMachine.maximum_known` with the resulting maximum."""

    replica_id: ReplicaId
    transaction_id: int


class SetLowWaterMark(NamedTuple):
    """Persist session and low-water mark; event :meth:`RecoveryMachine.low_water_mark_set`."""

    replica_id: ReplicaId
    low_water_mark: int


class Compare(NamedTuple):
    """Compare a record with that of the same id at another replica.

    Event :meth:`RecoveryMachine.compared`, or :meth:`RecoveryMachine.comparison_failed` when the source could not be
    read.
    """

    replica_id: ReplicaId
    source: ReplicaId
    transaction_id: int


class Copy(NamedTuple):
    """Copy some records, in order from ``first``, at most up to ``last``.

    Event :meth:`RecoveryMachine.copied`, or :meth:`RecoveryMachine.copy_failed` when the source could not be read.
    """

    replica_id: ReplicaId
    source: ReplicaId
    first: int
    last: int


class Refuse(NamedTuple):
    """The storage cannot take part in its present state. Drop the connection, and tell the operator the reason."""

    replica_id: ReplicaId
    reason: str


class Join(NamedTuple):
    """The replica is a member of the session and has all records up to ``position``. Its votes count from now on."""

    replica_id: ReplicaId
    position: int


class WriteMetadata(NamedTuple):
    """Compare-and-set; event :meth:`RecoveryMachine.metadata_written`, or, after any failure, a fresh read and
    :meth:`RecoveryMachine.metadata_read`."""

    metadata: PartitionMetadata
    version: int


class Open(NamedTuple):
    """A quorum has recovered, and the metadata have recorded that: the session may begin after this mark."""

    high_water_mark: int


class Abort(NamedTuple):
    """This session can never open, or has to end. The last effect of the machine."""

    reason: str
    superseded: bool


class Renew(NamedTuple):
    """This session cannot write the metadata any more, but continues until the owner has begun another session."""


ReplicaEffect = GetMaximum | Truncate | SetLowWaterMark | Compare | Copy | Refuse | Join
Effect = ReplicaEffect | WriteMetadata | Open | Abort | Renew
