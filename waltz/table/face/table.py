"""The asynchronous face of a table: writes through the log, reads from a view beside the process."""

import asyncio
import random
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.client.errors import LockConflict
from waltz.client.plain.client import Client
from waltz.table.ages import NO_AGES
from waltz.table.envelope import Batch, Row, Truncate
from waltz.table.errors import VersionConflict
from waltz.table.face.leasing import Leasing, acquired, renewed
from waltz.table.face.levels import Answer, AsOf, Read, ReadConsistency, within
from waltz.table.face.locks import TABLE_LOCK, locks_of_batch
from waltz.table.face.partition import TIMEOUT_S, TablePartition, close_in_pages, in_time, system_clock
from waltz.table.face.ranges import Ranges, ranges_of
from waltz.table.face.sweeping import SweepCheck, check_sweep, present_mark
from waltz.table.face.takes import followed, taken_parts
from waltz.table.face.transacting import PACE, Transacting, Work, transacted
from waltz.table.face.transaction import TableTransaction
from waltz.table.leases import Lease, duration_ms_of
from waltz.table.limits import check_rows
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version, row_key
from waltz.table.stores.interface import Snapshot
from waltz.table.taking import Taken
from waltz.table.view import KeyRange


def _place(lease: Lease) -> tuple[bytes, bytes, str, int]:
    return lease.key, lease.prefix, lease.holder, lease.term


_SWEEPS = "sweeps that are done where they are due"


class Table:
    """A table in one partition: ``async with client.table(0) as table: ...``.

    Used on the loop of its client, which has to outlive the table. Every write returns the id of its transaction; reads
    see at least the earlier writes through this object. Writes raise the errors of ``Client.append``, and
    ``PropertiesError`` while the partition is disabled; reads raise ``TableError`` when the view has stopped. With the
    store ``noop`` reads find nothing, and calls that decide by rows (transactions, conditional writes,
    ``sweep_if_due``) raise ``StoreError``.

    Examples:
        ```python
        await waltz.table.configure(client, 0, {"format": "table"})
        async with client.table(0) as table:
            await table.put(b"alice", b"100")
            (alice,) = await table.get([b"alice"])
            print(alice.value if alice else "no such row")
        ```
    """

    _is_open = False

    def __init__(
        self,
        client: Client,
        partition_id: int,
        properties: PartitionProperties | None = None,
        *,
        store: str | None = None,
        directory: Path | None = None,
        clock: Callable[[], int] = system_clock,
        snapshots: str | None = None,
    ) -> None:
        """Without ``properties`` the table uses those of the partition in the cluster, and follows their changes.

        ``store`` is the name of a store, by default that in the properties; ``directory`` is for this table only.
        ``clock`` returns milliseconds since the epoch. ``snapshots`` is the address of an object store with saved
        snapshots, or ``cluster``: an empty view begins with the newest one that fits, and not with the log's begin.
        Raises :class:`PropertiesError` for given properties that are
        not a table's, and ``CodecUnavailableError``; without given properties, opening raises them.
        """
        self._partition = TablePartition(client, partition_id, properties, store, directory, clock, snapshots)
        self._leasing = Leasing(self._partition)

    async def __aenter__(self) -> Self:
        await self._partition.open()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._partition.close()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._is_open:
            warn(f"unclosed {self!r}", ResourceWarning, source=self)

    @property
    def properties(self) -> PartitionProperties:
        """The present properties. Raises ``TableError`` when the table cannot continue with changed ones."""
        return self._partition.properties

    @property
    def partition(self) -> TablePartition:
        """The partition below the table, for view nodes: these read without waiting for each other's writes."""
        return self._partition

    @property
    def applied(self) -> int:
        """The last transaction whose effect is in the view, -1 at first."""
        return self._partition.store.progress.applied

    @property
    def skipped(self) -> int:
        """Number of transactions up to :attr:`applied` that were no envelopes."""
        return self._partition.store.progress.skipped

    # Writes

    async def put(
        self,
        key: bytes,
        value: bytes | None,
        *,
        prefix: bytes = b"",
        timestamp_ms: int | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write one row. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, value, timestamp_ms)], consistency=consistency)

    async def delete(
        self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None, consistency: str | None = None
    ) -> int:
        """Delete one row, whether it exists or not. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, None, timestamp_ms, tombstone=True)], consistency=consistency)

    async def batch(
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
        now_ms = self._partition.write_ms()
        if not rows:
            raise ValueError("a batch of no rows")
        properties = self.properties
        check_rows(
            rows,
            max_key_bytes=properties.max_key_bytes,
            latest_ms=None if any_timestamp else now_ms + properties.max_timestamp_skew_ms,
        )
        return await self._partition.append(
            Batch(now_ms, rows), append_locks=locks_of_batch(rows), timeout_s=timeout_s, consistency=consistency
        )

    async def truncate(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Remove every row written before this transaction. ``timeout_s`` limits the append, in seconds."""
        truncation = Truncate(self._partition.write_ms())
        return await self._partition.append(truncation, append_locks=[TABLE_LOCK], timeout_s=timeout_s)

    async def sweep(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Have all views remove the rows that have reached their age; ``None`` when the partition has no ages.

        ``timeout_s`` limits the append, in seconds. Raises as :meth:`batch` does when the clock of this process is
        ahead of that of ZooKeeper.
        """
        ages = self._partition.configured.ages
        mark = None if ages is NO_AGES else present_mark(await self._partition.sweep_ms(), ages)
        if mark is None:
            return None
        return await self._partition.append(mark, append_locks=[TABLE_LOCK], timeout_s=timeout_s)

    async def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        Looks at the rows of the view until one is found; ``None`` when there is none. Of several programs that do so at
        a time one sweeps: the others are told of its mark by the lock of the table, and look again. Raises
        ``NotAppendedError`` at the deadline.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await in_time(self._partition.catch_up_to_decide(_SWEEPS), deadline_s)
        attempt = 0
        while True:
            attempt += 1
            snapshot = self._partition.store.snapshot()
            try:
                now_ms = self._partition.now_ms()
                due = (await self._aged(snapshot, now_ms, only_due=True)).due
                if due and (believed_ms := await self._partition.sweep_ms()) < now_ms:
                    now_ms = believed_ms
                    due = (await self._aged(snapshot, now_ms, only_due=True)).due
            finally:
                await close_in_pages(snapshot)
            mark = present_mark(now_ms, self._partition.configured.ages)
            if mark is None or not due:
                return None
            try:
                return await self._partition.append(
                    mark,
                    write_locks=[TABLE_LOCK],
                    high_water_mark=snapshot.progress.applied,
                    timeout_s=max(deadline_s - asyncio.get_running_loop().time(), 0.0),
                )
            except LockConflict as conflict:
                await in_time(self._partition.follower.reached(conflict.transaction_id), deadline_s)
                await in_time(asyncio.sleep(PACE.delay_s(attempt, random.random())), deadline_s)

    async def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove now; reads all rows of the view."""
        await self._partition.catch_up_to_decide(_SWEEPS)
        snapshot = self._partition.store.snapshot()
        try:
            return await self._aged(snapshot, self._partition.now_ms(), only_due=False)
        finally:
            await close_in_pages(snapshot)

    async def _aged(self, snapshot: Snapshot, now_ms: int, *, only_due: bool) -> SweepCheck:
        mark = present_mark(now_ms, self._partition.configured.ages)
        if mark is not None and not self._partition.store.may_remove(mark):
            return SweepCheck(0, due=False)
        return await check_sweep(
            snapshot,
            now_ms,
            self._partition.configured.ages,
            self.properties.intervals,
            only_due=only_due,
        )

    async def put_if(
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
        deadline_s = asyncio.get_running_loop().time() + timeout_s

        def check_and_put(transaction: TableTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            present = None if row is None else row.version
            if present != version:
                raise VersionConflict(f"the row has the version {present}, not {version}")
            transaction.put(key, value, prefix=prefix)

        try:
            transaction_id = await self.transaction(check_and_put, timeout_s=timeout_s)
        except VersionConflict:  # by a view that may lag
            await in_time(self._partition.refresh(strict=False), deadline_s)
            left_s = max(deadline_s - asyncio.get_running_loop().time(), 0.0)
            transaction_id = await self.transaction(check_and_put, timeout_s=left_s)
        assert transaction_id is not None
        return transaction_id

    async def transaction(
        self,
        work: Work,
        *,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Read and write rows in isolation from all other writers.

        Args:
            work: Reads and writes rows, and has no other effects. It is called again, on a newer state, when any writer
                has changed meanwhile the rows that it read or wrote. May be asynchronous.
            timeout_s: Limit of the whole call in seconds.
            max_attempts: Maximum number of calls of ``work``.

        Returns:
            The id of the transaction; ``None`` when nothing was written.

        Raises:
            LockConflict: No attempt is left.
            NotAppendedError: The deadline has passed.

        Raises the errors of ``work``, too.
        """
        return await transacted(self.transacting(timeout_s=timeout_s, max_attempts=max_attempts), work)

    def transacting(self, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None) -> Transacting:
        """A transaction step by step, for work that does not run on this loop."""
        return Transacting(self._partition, timeout_s, max_attempts)

    # Leases

    async def acquire(
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
        limit_s = TIMEOUT_S if timeout_s is None else timeout_s

        async def grant(left_s: float) -> int:
            return await self._leasing.grant(key, prefix, holder, duration_ms_of(duration_s), left_s)

        return await acquired(grant, key, prefix, holder, duration_s, limit_s)

    async def renew(self, lease: Lease, *, timeout_s: float | None = None) -> Lease:
        """Have a lease from now on for its whole duration again, in the same term. Raises like :meth:`acquire`.

        When it fails for any other reason than :class:`~waltz.table.errors.LeaseLostError`, the lease ends as before,
        and may be renewed by another call.
        """
        limit_s = min(TIMEOUT_S if timeout_s is None else timeout_s, lease.left_s)
        return await renewed(lambda: self._leasing.renew(*_place(lease), limit_s), lease)

    async def release(self, lease: Lease, *, timeout_s: float | None = None) -> int | None:
        """End a lease, so that others need not wait; ``None`` if that term has ended before. Raises like ``batch``."""
        limit_s = TIMEOUT_S if timeout_s is None else timeout_s
        return await self._leasing.release(*_place(lease), limit_s)

    # Reads

    async def refresh(self, *, strict: bool = True) -> None:
        """Return when the view has every transaction that was committed before the call.

        Args:
            strict: With ``False``, a server that cannot confirm its mark, such as the original's, may tell its own
                mark: the view lags then if that server has lost the partition without knowing it yet.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        await self._partition.refresh(strict=strict)

    async def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        ``strict`` and errors are those of :meth:`refresh`.
        """
        return await self._partition.high_water_mark(strict=strict)

    async def get(
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
        partition = self._partition
        read = partition.read_of(fresh, consistency)
        if not isinstance(read, AsOf):
            stale = await partition.catch_up_or_stale(read, stale_ok_after_s)
            rows_now = partition.reading_of(partition.store, raw).get(prefix, keys)
            return Answer(rows_now, self.applied, age_s=partition.age_s, stale=stale)
        if stale_ok_after_s is not None:
            raise ValueError("a past state is never stale: AsOf goes without stale_ok_after_s")
        rows = await partition.rows_of(read, {row_key(prefix, key) for key in keys}.__contains__)
        try:
            return Answer(partition.reading_of(rows, raw, read).get(prefix, keys), read.transaction_id)
        finally:
            await close_in_pages(rows)

    async def get_slice(
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
        if offset < 0 or size < 0:
            raise ValueError("offset and size must not be negative")
        (row,) = await self.get([key], prefix=prefix, fresh=fresh, consistency=consistency)
        return None if row is None or row.value is None else row.value[offset : offset + size]

    async def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[TableRow, None]:
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
        read = self._partition.read_of(fresh, consistency)
        async with aclosing(self._scan(ranges_of(ranges, prefix), reverse, limit, raw, read)) as rows:
            async for row in rows:
                yield row

    async def _scan(
        self, ranges: list[KeyRange] | None, reverse: bool, limit: int | None, raw: bool, read: Read
    ) -> AsyncGenerator[TableRow, None]:
        snapshot = await self._partition.rows_of(read, within(ranges))
        try:
            left = limit
            for page in self._partition.reading_of(snapshot, raw, read).pages(ranges, reverse=reverse):
                for row in page[:left]:
                    yield row
                if left is not None and (left := left - len(page)) <= 0:
                    return
                await asyncio.sleep(0)
        finally:
            await close_in_pages(snapshot)

    async def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Prefixes and keys of the rows of :meth:`scan`."""
        read = self._partition.read_of(fresh, consistency)
        async with aclosing(self._scan(ranges_of(ranges, prefix), reverse, limit, raw, read)) as rows:
            async for row in rows:
                yield row.prefix, row.key

    async def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows, expired ones included, tombstones only with ``raw``.

        Rows that a sweep has removed are counted until they are taken out of the view, page by page.
        """
        await self._partition.catch_up()
        return self._partition.reading_of(self._partition.store, raw).approximate_count()

    async def save_snapshot(self, url: str) -> int:
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
        return await self._partition.save_snapshot(url)

    async def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
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
        taken = Taken([], after, at_end=False)
        async with aclosing(taken_parts(self._partition, after, limit, prefix)) as parts:
            async for part in parts:
                taken = part._replace(rows=taken.rows + part.rows)
        return taken

    async def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> AsyncGenerator[Taken, None]:
        """A stream of the results of :meth:`take`, without an end, or up to the transaction ``until``.

        Best for many rows, since it reads ahead. With a prefix, transactions without such rows give empty ``rows`` and
        a ``cursor`` after them. ``at_end`` is always false, even at the end of the log, which is not asked for. Raises
        like :meth:`take`.
        """
        async with aclosing(followed(self._partition, after, prefix, until)) as parts:
            async for taken in parts:
                yield taken
