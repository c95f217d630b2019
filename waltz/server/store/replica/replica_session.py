"""The interface of a session to its replicas."""

from typing import Protocol

from waltz.common.records import Record
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import StoreOptions
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.recovery.recovery_effects import Effect
from waltz.server.store.ring import BatchRing


class ReplicaSession(Protocol):
    """The part of a session that its replicas use."""

    partition_id: int
    session_id: int
    machine: RecoveryMachine
    connections: StorageConnections
    options: StoreOptions
    untimed: dict[str, int]
    """By storage the first transaction that it has got as a copy, without the times of commits."""

    trim_point: int
    """The first transaction that is not trimmed."""

    @property
    def trim_bound(self) -> int:
        """The transaction before which the storages may remove everything."""
        ...

    @property
    def ring(self) -> BatchRing | None:
        """The batches; ``None`` before the session has opened and after its end."""
        ...

    @property
    def high_water_mark(self) -> int:
        """The last committed transaction known to the session."""
        ...

    def execute(self, effects: list[Effect]) -> None:
        """Carry out the effects of the machine."""
        ...

    def acknowledged(self) -> None:
        """A replica has made records durable."""
        ...

    def replica_left(self) -> None:
        """A replica has stopped serving."""
        ...

    def noticed(self, error: Exception) -> bool:
        """Note that a request to a storage has failed. Returns whether that has ended the session, because a newer
        session exists (rule S2)."""
        ...

    def barred_replica_reachable(self, storage: str) -> None:
        """Note that a replica can be connected that only another session can admit."""
        ...

    def replica_joined(self, storage: str) -> None:
        """The replica at a storage follows the session."""
        ...

    async def wait_committed(self, transaction_id: int) -> None:
        """Wait until an id is committed. End the session if that takes too long."""
        ...

    async def read(self, first_id: int, max_count: int, *, except_from: ReplicaId) -> list[Record]:
        """Committed records from another replica. Raises :class:`ReadFailedError`."""
        ...
