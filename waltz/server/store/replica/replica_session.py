"""The interface of a session for its replicas."""

from typing import Protocol

from waltz.common.records import Record
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import StoreOptions
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.recovery.recovery_effects import Effect
from waltz.server.store.ring import BatchRing


class ReplicaSession(Protocol):
    """The part of its session that a replica needs."""

    partition_id: int
    session_id: int
    machine: RecoveryMachine
    connections: StorageConnections
    options: StoreOptions
    untimed: dict[str, int]
    """By storage the first transaction that it has got as a copy, without the times of commits."""

    @property
    def ring(self) -> BatchRing | None:
        """The batches; ``None`` until the session has opened and once it has ended."""
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
        """A request to a storage has failed; whether that has ended the session, for a newer one exists (rule S2)."""
        ...

    def barred_replica_reachable(self, storage: str) -> None:
        """A replica that only another session can take in can be connected."""
        ...

    def replica_joined(self, storage: str) -> None:
        """The replica at a storage follows the session."""
        ...

    async def wait_committed(self, transaction_id: int) -> None:
        """Wait until an id is committed; ends the session if that takes too long."""
        ...

    async def read(self, first_id: int, max_count: int, *, except_from: ReplicaId) -> list[Record]:
        """Committed records from another replica. Raises :class:`ReadFailedError`."""
        ...
