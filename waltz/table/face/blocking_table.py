"""The calls of a table for threads: each blocks until it is done on the loop of a client."""

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.table.envelope import Row
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S, TablePartition
from waltz.table.face.ranges import Ranges
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.table import Table
from waltz.table.face.threads import BlockingWork, ThreadsClient, iterated, transact
from waltz.table.leases import Lease
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken


class TableCalls:
    """The calls of :class:`~waltz.table.face.table.Table`, each blocking until it is done, with the same errors.

    Opened by ``with``; any number of threads may use it.
    """

    def __init__(
        self,
        client: ThreadsClient,
        partition_id: int,
        properties: PartitionProperties | None = None,
        *,
        store: str | None = None,
        directory: Path | None = None,
        snapshots: str | None = None,
    ) -> None:
        """The arguments are those of :class:`~waltz.table.face.table.Table`, with a client of threads."""

        async def made() -> Table:
            return Table(
                client.asynchronous, partition_id, properties, store=store, directory=directory, snapshots=snapshots
            )

        self._run = client.run
        self._table = self._run(made())

    def __enter__(self) -> Self:
        self._run(self._table.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._table.__aexit__(kind, error, traceback))

    def transaction(
        self,
        work: BlockingWork,
        *,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Read and write rows as if nobody else did; ``work`` is called on the thread of the caller."""
        return transact(self._table, self._run, work, timeout_s=timeout_s, max_attempts=max_attempts)

    # Made of waltz/table/face/table.py by `make twins`.

    @property
    def properties(self) -> PartitionProperties:
        """The present properties. Raises ``TableError`` when the table cannot continue with changed ones."""
        return self._table.properties

    @property
    def partition(self) -> TablePartition:
        """The partition below the table, for view nodes: these read without waiting for each other's writes."""
        return self._table.partition

    @property
    def applied(self) -> int:
        """The last transaction whose effect is in the view, -1 at first."""
        return self._table.applied

    @property
    def skipped(self) -> int:
        """Number of transactions up to :attr:`applied` that were no envelopes."""
        return self._table.skipped

    def put(
        self,
        key: bytes,
        value: bytes | None,
        *,
        prefix: bytes = b"",
        timestamp_ms: int | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write one row. Raises like :meth:`batch`."""
        return self._run(self._table.put(key, value, prefix=prefix, timestamp_ms=timestamp_ms, consistency=consistency))

    def delete(
        self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None, consistency: str | None = None
    ) -> int:
        """Delete one row, whether it exists or not. Raises like :meth:`batch`."""
        return self._run(self._table.delete(key, prefix=prefix, timestamp_ms=timestamp_ms, consistency=consistency))

    def batch(
        self,
        rows: Sequence[Row],
        *,
        any_timestamp: bool = False,
        timeout_s: float = TIMEOUT_S,
        consistency: str | None = None,
    ) -> int:
        """Write rows in one transaction.

        The clock of the process is compared with the newest row and with ZooKeeper.

        Args:
            rows: The rows, at least one.
            any_timestamp: Accept timestamps further ahead than the partition allows: such rows win over all writes
                until that time.
            timeout_s: Limit of the append in seconds.
            consistency: The level of the write, as of ``Client.append``. By default that of the partition.

        Returns:
            The id of the transaction.

        Raises:
            ValueError: There are no rows.
            TimestampError: A timestamp is not positive, or further ahead than the partition allows.
            KeyTooLongError: A key is longer than the partition allows.
            EnvelopeError: The rows do not fit into the envelope.
        """
        return self._run(
            self._table.batch(rows, any_timestamp=any_timestamp, timeout_s=timeout_s, consistency=consistency)
        )

    def truncate(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Remove every row written before this transaction. ``timeout_s`` limits the append, in seconds."""
        return self._run(self._table.truncate(timeout_s=timeout_s))

    def sweep(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Have all views remove the rows that have reached their age; ``None`` when the partition has no ages.

        ``timeout_s`` limits the append, in seconds. Raises as :meth:`batch` does when the clock of this process is
        ahead of that of ZooKeeper.
        """
        return self._run(self._table.sweep(timeout_s=timeout_s))

    def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        Looks at the rows of the view until one is found; ``None`` when there is none. Of several programs that do so at
        a time one sweeps: the others are told of its mark by the lock of the table, and look again. Raises
        ``NotAppendedError`` at the deadline.
        """
        return self._run(self._table.sweep_if_due(timeout_s=timeout_s))

    def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove now; reads all rows of the view."""
        return self._run(self._table.check_sweep())

    def put_if(
        self,
        key: bytes,
        value: bytes | None,
        version: Version | None,
        *,
        prefix: bytes = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Write a row if the present row has that version; ``None``: if readers see no row.

        Returns:
            The id of the transaction.

        Raises:
            VersionConflict: The present row has another version.
            NotAppendedError: The deadline of the whole call has passed.
        """
        return self._run(self._table.put_if(key, value, version, prefix=prefix, timeout_s=timeout_s))

    def acquire(
        self, key: bytes, holder: str, *, duration_s: float, prefix: bytes = b"", timeout_s: float | None = None
    ) -> Lease:
        """Get a lease, which nobody else has until it is released, or not renewed for its duration.

        The lease is the row of ``key``, which nobody else may write. The same holder gets it again at once, in a new
        term, which ends the term before: after a restart, or when an answer was lost.

        Args:
            key: The name of the lease.
            holder: The name of the process, unlike that of all others.
            duration_s: How long others wait after a grant or renewal, 0.1 to 3600 seconds. The holder counts on nine
                tenths of it.
            prefix: Prefix of the row.
            timeout_s: How long the lease is waited for, in seconds.

        Returns:
            The lease.

        Raises:
            LeaseHeldError: Somebody else has it.
            LeaseLostError: It was granted, but so late that it may be over.
            PropertiesError: Rows of the partition expire.
            ValueError: A duration or a name is out of bounds, or the row is no lease.
            NotAppendedError: The deadline has passed.
            OutcomeUnknownError: The same, and the lease may have been granted.
        """
        return self._run(self._table.acquire(key, holder, duration_s=duration_s, prefix=prefix, timeout_s=timeout_s))

    def renew(self, lease: Lease, *, timeout_s: float | None = None) -> Lease:
        """Have a lease from now on for its whole duration again, in the same term. Raises like :meth:`acquire`.

        When it fails for any other reason than :class:`~waltz.table.errors.LeaseLostError`, the lease ends as before,
        and may be renewed by another call.
        """
        return self._run(self._table.renew(lease, timeout_s=timeout_s))

    def release(self, lease: Lease, *, timeout_s: float | None = None) -> int | None:
        """End a lease, so that others need not wait; ``None`` if that term has ended before. Raises like ``batch``."""
        return self._run(self._table.release(lease, timeout_s=timeout_s))

    def refresh(self, *, strict: bool = True) -> None:
        """Return when the view has every transaction that was committed before the call.

        Args:
            strict: With ``False``, a server that cannot confirm its mark, such as the original's, may tell its own
                mark: the view lags then if that server has lost the partition without knowing it yet.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        self._run(self._table.refresh(strict=strict))

    def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        ``strict`` and errors are those of :meth:`refresh`.
        """
        return self._run(self._table.high_water_mark(strict=strict))

    def get(
        self,
        keys: Sequence[bytes],
        *,
        prefix: bytes = b"",
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
        stale_ok_after_s: float | None = None,
    ) -> Answer:
        """The rows of keys, in the order of the keys. With ``raw``, tombstones and expired rows are returned, too.

        With ``fresh`` the view first catches up with every transaction committed before the call, on any server; raises
        like :meth:`refresh` then.

        Args:
            keys: Keys of one prefix.
            prefix: The prefix.
            raw: Whether tombstones and expired rows are returned, too.
            fresh: The same as ``consistency="fresh"``.
            consistency: What the answer has: ``"fresh"``, ``"any"``, ``AtLeast(id)``, ``AsOf(id)`` or a level by the
                names of Amza. By default at least the earlier writes through this object.
            stale_ok_after_s: When the view does not have that within so many seconds, the answer is of what it has: it
                is ``stale`` then. By default the read waits, and raises.

        Returns:
            The rows, and as ``applied`` the last transaction whose effect is in them.

        Raises:
            ConsistencyRefusedError: The property ``consistency`` of the partition does not go with that level.
            DeadlineExceededError: What was asked for has not come in time.
            ValueError: There is no such level, or it is ``AsOf`` beside ``stale_ok_after_s``.
        """
        return self._run(
            self._table.get(
                keys, prefix=prefix, raw=raw, fresh=fresh, consistency=consistency, stale_ok_after_s=stale_ok_after_s
            )
        )

    def get_slice(
        self,
        key: bytes,
        offset: int,
        size: int,
        *,
        prefix: bytes = b"",
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> bytes | None:
        """Part of a value; ``None`` for a missing row or a null value. Raises ``ValueError`` for numbers below 0."""
        return self._run(self._table.get_slice(key, offset, size, prefix=prefix, fresh=fresh, consistency=consistency))

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[TableRow, None, None]:
        """The rows of ranges of keys, in order, all of one state of the table.

        Args:
            ranges: One range of keys, or several in sequence; by default all rows.
            prefix: Prefix of the rows; ``ranges`` are then ranges of its keys.
            reverse: Whether the order is from the last key to the first.
            limit: Maximum number of rows.
            raw: Whether tombstones and expired rows are returned, too.
            fresh: Whether the view first catches up with every transaction committed before the call.
            consistency: As for :meth:`get`.

        Raises:
            TypeError: ``ranges`` is neither one range nor several.
            ValueError: A range is one of another prefix.
            ConsistencyRefusedError: The property ``consistency`` of the partition does not go with that level.
        """
        return iterated(
            self._run,
            self._table.scan(
                ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh, consistency=consistency
            ),
        )

    def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Prefixes and keys of the rows of :meth:`scan`."""
        return iterated(
            self._run,
            self._table.scan_keys(
                ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh, consistency=consistency
            ),
        )

    def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows, expired ones included, tombstones only with ``raw``.

        Rows that a sweep has removed are counted until they are taken out of the view, page by page.
        """
        return self._run(self._table.approximate_count(raw=raw))

    def save_snapshot(self, url: str) -> int:
        """Save all rows of the view to an object store, for new views and for Spark to begin with.

        The view first catches up with everything committed before the call, as far as the server can tell. The rows are
        those of one state, tombstones and expired rows among them. The snapshot is whole or absent,
        whatever happens. There is at most one of each transaction: a present one stays.

        Args:
            url: Address of an object store, such as ``s3://bucket/prefix`` or ``file:///directory``; or ``cluster``,
                for the store of the cluster's archive.

        Returns:
            The last transaction whose effect is in the snapshot; -1 if the log is empty, and nothing was saved.

        Raises:
            ConfigError: The address cannot be used, or a package is missing.
            WaltzError: The object store did not answer: the call may be repeated.
            StoreError: The store of the view keeps no rows.
            DeadlineExceededError: No server answered in time.
        """
        return self._run(self._table.save_snapshot(url))

    def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions after ``after``.

        Args:
            after: Id of the transaction before the first one; -1 for all.
            limit: Number of rows at which the take ends, with the end of a transaction.
            prefix: Prefix of the rows. The view then finds their places in the log by its index, if its store keeps
                rows; the index of a view that began with a saved snapshot has later rows only.

        Returns:
            The rows; ``at_end`` tells that the log had no later transaction at the call, as far as the server knows.

        Raises:
            ValueError: The limit is below 1.
            ClientAheadError: The log ends before ``after``.
            CodecUnavailableError: A transaction has a codec that is not installed.

        Raises the errors of :meth:`refresh`, too.
        """
        return self._run(self._table.take(after, limit, prefix=prefix))

    def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> Generator[Taken, None, None]:
        """A stream of the results of :meth:`take`, without an end, or up to the transaction ``until``.

        Best for many rows, since it reads ahead. With a prefix, transactions without such rows give empty ``rows`` and
        a ``cursor`` after them. ``at_end`` is always false, even at the end of the log, which is not asked for. Raises
        like :meth:`take`.
        """
        return iterated(self._run, self._table.follow(after, prefix=prefix, until=until), 1)
