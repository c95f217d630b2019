"""The calls of a served table for threads: each blocks until it is done on the loop of a client."""

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Self

from waltz.table.envelope import Row
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.ranges import Ranges
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.threads import BlockingWork, ThreadsClient, iterated, transact
from waltz.table.leases import Lease
from waltz.table.rows import TableRow, Version
from waltz.table.served.table import ServedTable
from waltz.table.taking import Taken


class ServedTableCalls:
    """The calls of :class:`~waltz.table.served.table.ServedTable`, each blocking until it is done.

    Errors are the same. Opened by ``with``; any number of threads may use it.
    """

    def __init__(self, client: ThreadsClient, table: ServedTable) -> None:
        """``table`` is one of the asynchronous client of ``client``."""
        self._run = client.run
        self._table = table

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
        timeout_s: float | None = None,
        max_attempts: int | None = None,
    ) -> int | None:
        """As :meth:`~waltz.table.served.table.ServedTable.transaction`; ``work`` is called on the caller's thread."""
        limit_s = self._table.timeout_s if timeout_s is None else timeout_s
        return transact(self._table, self._run, work, timeout_s=limit_s, max_attempts=max_attempts)

    # Made of waltz/table/served/table.py by `make twins`.

    @property
    def applied(self) -> int:
        """The last transaction that a read or write through this object has seen; -1 at first."""
        return self._table.applied

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
        timeout_s: float | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write rows in one transaction, at the time of the view node's clock.

        Args:
            rows: The rows, at least one.
            any_timestamp: Accept timestamps further ahead than the partition allows.
            timeout_s: Limit of the whole call in seconds.
            consistency: The level of the write, as of ``Client.append``. By default that of the partition.

        Returns:
            The id of the transaction.

        Raises:
            ValueError: There are no rows, or no such level.
            ConsistencyRefusedError: The partition demands another level, or the server is too old.
            TimestampError: A timestamp is not positive, or further ahead than the partition allows.
            KeyTooLongError: A key is longer than the partition allows.
            EnvelopeError: The rows do not fit into the envelope.
            NotAppendedError: The write did not come to the log in time, and never will.
            OutcomeUnknownError: The deadline has passed, or the answer was lost; the rows may have been written.
            NotGuaranteedError: They are written, and it is not known that all storages have them.
            NotAuthorizedError: The client lacks a right at the view node; nothing is written.
        """
        return self._run(
            self._table.batch(rows, any_timestamp=any_timestamp, timeout_s=timeout_s, consistency=consistency)
        )

    def truncate(self, *, timeout_s: float | None = None) -> int:
        """Remove every row written before this transaction. Raises like :meth:`batch`."""
        return self._run(self._table.truncate(timeout_s=timeout_s))

    def sweep(self, *, timeout_s: float | None = None) -> int | None:
        """Have all views remove the rows that have reached their age; ``None`` when the partition has no ages.

        By the clock of the view node. Raises like :meth:`batch`.
        """
        return self._run(self._table.sweep(timeout_s=timeout_s))

    def sweep_if_due(self, *, timeout_s: float | None = None) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        The view node looks at the rows; ``None`` when there is none. Raises like :meth:`batch`.
        """
        return self._run(self._table.sweep_if_due(timeout_s=timeout_s))

    def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove now; the view node reads all rows. Raises like :meth:`get`."""
        return self._run(self._table.check_sweep())

    def put_if(
        self,
        key: bytes,
        value: bytes | None,
        version: Version | None,
        *,
        prefix: bytes = b"",
        timeout_s: float | None = None,
    ) -> int:
        """Write a row if the present row has that version; ``None``: if readers see no row.

        Raises:
            VersionConflict: The present row has another version.
            NotAppendedError: The deadline of the whole call has passed.
            OutcomeUnknownError: The same, and the row may have been written.
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
        """Have later reads see every transaction that was committed before the call; raises like :meth:`get`.

        Args:
            strict: With ``False``, a server that cannot confirm its mark, such as the original's, may tell its own
                mark: later reads lag then if that server has lost the partition without knowing it yet.
        """
        self._run(self._table.refresh(strict=strict))

    def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        Args:
            strict: With ``False``, a server that cannot confirm its mark tells its own.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
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

        With ``fresh`` the view first catches up with every transaction committed before the call, on any server. More
        than a thousand keys are got by several requests, and may be of several states.

        Args:
            keys: Keys of one prefix.
            prefix: The prefix.
            raw: Whether tombstones and expired rows are returned, too.
            fresh: The same as ``consistency="fresh"``.
            consistency: What the answer has: ``"fresh"``, ``"any"``, ``AtLeast(id)`` or a level by the names of Amza.
                By default at least what was written and read through this object.
            stale_ok_after_s: When no view node has that within so many seconds, the answer is of what the most
                advanced view has: it is ``stale`` then. By default the read waits, and raises.

        Returns:
            The rows, and as ``applied`` the last transaction whose effect is surely in them.

        Raises:
            ViewUnavailableError: No view node has the answer in time.
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark, which ``fresh`` needs.
            ConsistencyRefusedError: The property ``consistency`` of the partition does not go with that level.
            NotAuthorizedError: The client lacks the right to read.
            ValueError: There is no such level, or it is ``AsOf``: view nodes have the present state only.
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

        Arguments are those of :meth:`~waltz.table.face.table.Table.scan`. Raises like :meth:`get`, and
        ``ViewUnavailableError`` for a scan that the view node could not end within a minute.
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
        """Prefixes and keys of the rows of :meth:`scan`, without the values on the way."""
        return iterated(
            self._run,
            self._table.scan_keys(
                ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh, consistency=consistency
            ),
        )

    def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows, expired ones included, tombstones only with ``raw``. Raises like :meth:`get`."""
        return self._run(self._table.approximate_count(raw=raw))

    def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions after ``after``.

        Args:
            after: Id of the transaction before the first one; -1 for all.
            limit: Number of rows at which the take ends, with the end of a transaction.
            prefix: Prefix of the rows.

        Returns:
            The rows; ``at_end`` tells that the log had no later transaction at the last request for them. A take that
            a view node has not ended when it fails goes on at the next one.

        Raises:
            ValueError: The limit is below 1.
            ClientAheadError: The log ends before ``after``.

        Raises the errors of :meth:`get`, too.
        """
        return self._run(self._table.take(after, limit, prefix=prefix))

    def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> Generator[Taken, None, None]:
        """A stream of the rows that are written after a transaction, without an end, or up to ``until``.

        As :meth:`~waltz.table.face.table.Table.follow`, but for ``cursor``: transactions without such rows are told
        together, after some seconds. When a view node fails the stream goes on at the next one, without a gap.

        Raises:
            ViewUnavailableError: No view node has answered in time.
            NotAuthorizedError: The client lacks the right to read.
            TableError: The view node cannot read what was written.
            ClientAheadError: The log ends before ``after``.
        """
        return iterated(self._run, self._table.follow(after, prefix=prefix, until=until), 1)
