"""The interface of the replicated log behind a partition."""

from collections.abc import Callable, Sequence
from typing import Protocol

from waltz.common.records import Record, RecordHeader
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.store.interface import Append, LogListener, TimeEntry
from waltz.server.store.replica.replica_view import ReplicaView


class PartitionLog(Protocol):
    """The part of :class:`~waltz.server.store.log.log.ReplicatedLog` that partitions use; tests replace it."""

    @property
    def opened_generation(self) -> int:
        """The generation of the last opened session; -1 before the first session."""

    @property
    def takes_more(self) -> bool:
        """Whether appends are accepted: a session of the current generation is running, and not too many bytes are
        undecided. The listener is told when there is room again."""

    @property
    def healthy(self) -> bool:
        """Whether the last attempt to open a session, or to prove that it can commit, succeeded."""

    @property
    def trouble(self) -> str | None:
        """The obstacle of an overdue session, or the reason why the assigned storages have not taken over from the
        present storages; one line."""

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Find out whether the log is healthy, unless a recent commit proves that. Only if the health was read, or with
        ``unasked``."""

    def tell_time(self, time_ms: int) -> None:
        """Report to the storages the transaction up to which all are committed now."""

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """The view of the session on every assigned replica, for operators."""

    def start(self) -> None:
        """Begin to open sessions."""

    async def close(self) -> None:
        """End the session. The listener is not called afterwards."""

    def append(self, appends: Sequence[Append]) -> None:
        """Replicate appends under their ids, which are dense and begin after the mark of the session's opening."""

    def renew(self) -> None:
        """Begin another store session soon. The listener is told."""

    def set_generation(self, generation: int) -> None:
        """Take over the generation of a new assignment."""

    def set_replicas(self, replicas: frozenset[str]) -> None:
        """Take over another set of storages (``host:port``)."""

    @property
    def first_available(self) -> int:
        """The first transaction that is not trimmed."""

    def set_trim_point(self, transaction_id: int) -> None:
        """Take over another trim point. A lower one than before has no effect."""

    def await_all(self, transaction_id: int) -> None:
        """Call the listener's ``stored_by_all`` now and, until all storages have the transaction, at each change."""

    def await_some(self, wanted: bool) -> None:
        """Call the listener's ``stored_by_some`` at each acknowledgement, or cease to."""

    @property
    def missing_storages(self) -> Sequence[str]:
        """Assigned storages that are known to be away (``host:port``)."""

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        """The high-water mark at a moment during this call at which no other server had written; ``None`` if that
        cannot be proved in time."""

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """The best entry of the storages about the time of a commit. Raises ``ReadFailedError``,
        ``TimesNotKeptError``."""

    async def read(self, first_id: int, max_count: int, max_bytes: int, timeout_s: float) -> list[Record]:
        """Committed records, at least one if the first is committed."""

    async def read_headers(self, first_id: int, max_count: int, timeout_s: float) -> list[RecordHeader]:
        """Headers of committed records, at least one if the first is committed."""


LogFactory = Callable[[LogListener], PartitionLog]
"""A function that creates the log of a partition; the argument is the listener."""
