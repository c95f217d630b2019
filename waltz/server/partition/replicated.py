"""What a partition needs of the replicated log behind it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from waltz.common.records import Record, RecordHeader
from waltz.server.store.interface import Append, LogListener
from waltz.server.store.replica.replica_view import ReplicaView


class PartitionLog(Protocol):
    """The part of :class:`~waltz.server.store.log.log.ReplicatedLog` that partitions use; tests replace it."""

    @property
    def open(self) -> bool:
        """A session of the current generation is running: appends may be given."""

    @property
    def opened_generation(self) -> int:
        """The generation of the session that was opened last; -1 before the first."""

    @property
    def congested(self) -> bool:
        """Too much is undecided; the listener is told when that ends."""

    @property
    def undecided_bytes(self) -> int:
        """Of the appends that were given and are not decided, as they go to the storages."""

    @property
    def healthy(self) -> bool:
        """Whether the last attempt to have a session, or to prove that it can commit, did not fail."""

    @property
    def trouble(self) -> str | None:
        """What the next session waits for, when it should have opened, or why the assigned storages have not taken over
        from those that hold the partition; one line."""

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Find out whether that is so, for those who have looked or ``unasked``, if nothing was committed lately."""

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """Every assigned replica as the session sees it, for operators."""

    def start(self) -> None:
        """Begin to open sessions."""

    async def close(self) -> None:
        """End the session; the listener is not called afterwards."""

    def append(self, appends: Sequence[Append]) -> None:
        """Replicate under the ids that they have: dense, from behind the mark that the session was opened with."""

    def renew(self) -> None:
        """Have another store session soon; the listener is told when it has begun."""

    def set_generation(self, generation: int) -> None:
        """A new assignment came."""

    def set_replicas(self, replicas: frozenset[str]) -> None:
        """The storages (``host:port``) of the partition changed."""

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        """The high-water mark at a moment of this call at which nobody else had written; ``None`` when that cannot be
        found out in time."""

    async def read(self, first_id: int, max_count: int, max_bytes: int, timeout_s: float) -> list[Record]:
        """Committed records, at least one if the first is committed."""

    async def read_headers(self, first_id: int, max_count: int, timeout_s: float) -> list[RecordHeader]:
        """Headers of committed records, at least one if the first is committed."""


LogFactory = Callable[[LogListener], PartitionLog]
"""Makes the log of a partition, which is the listener."""
