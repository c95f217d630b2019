"""The asynchronous face of a table: writes through the log, reads from a view beside the process."""

import asyncio
import inspect
import random
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.client.errors import LockConflict, NotAppendedError
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain.client import Client
from waltz.client.retry_policy import RetryPolicy
from waltz.common.records import Record
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Envelope, Row, Truncate, encode
from waltz.table.errors import PropertiesError, VersionConflict
from waltz.table.face.configured import Configured
from waltz.table.face.follower import Follower
from waltz.table.face.locks import TABLE_LOCK, locks_of_batch
from waltz.table.face.sweeping import SweepCheck, check_sweep, present_mark
from waltz.table.face.transaction import TableTransaction
from waltz.table.limits import check_rows
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version
from waltz.table.stores.directory import StoreIdentity
from waltz.table.stores.interface import Snapshot, Store
from waltz.table.stores.registry import open_store
from waltz.table.taking import Taken, rows_of
from waltz.table.view import KeyRange, Reading

TIMEOUT_S = 30.0
DEFAULT_STORE = "memory"
_YIELD_ROWS = 256
_LOOP_BYTES = 64 << 10
"""More is not compressed on the event loop."""
_PACE = RetryPolicy()


def _system_clock() -> int:
    return time.time_ns() // 1_000_000


class Table:
    """A table in one partition: ``async with client.table(0) as table: ...``.

    Used on the loop of its client, which has to outlive it. Every write returns the id of its transaction; reads see
    at least what was written through this object before. Writes raise what ``Client.append`` raises, and
    ``PropertiesError`` while the partition is disabled; reads raise ``TableError`` when the view has stopped.
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
        clock: Callable[[], int] = _system_clock,
    ) -> None:
        """``properties`` are those of the partition in the cluster, and follow their changes, unless some are given.

        ``store`` is the name of one, by default that of the properties; ``directory`` is the table's own. ``clock``
        gives milliseconds since the epoch. Raises :class:`PropertiesError` for properties of a partition that is no
        table, and ``CodecUnavailableError``; without properties, opening does so.
        """
        self._client = client
        self._partition_id = partition_id
        self._configured = Configured(client, partition_id, properties)
        self._store_name = store
        self._directory = directory
        self._clock = clock
        self._written = -1
        self._store: Store
        self._follower: Follower

    async def __aenter__(self) -> Self:
        await self._configured.open()
        try:
            properties = self._configured.properties
            log = f"{self._client.cluster_name}/{await self._client.cluster_key()}"
            identity = StoreIdentity(self._partition_id, log, {"max_body_bytes": properties.max_body_bytes})
            name = self._store_name or properties.index_class_name or DEFAULT_STORE
            self._store = open_store(name, self._directory, identity)
        except BaseException:
            await self._configured.close()
            raise
        self._follower = Follower(self._client, self._partition_id, self._store, properties.max_body_bytes)
        self._follower.start()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        try:
            await self._configured.close()
            await self._follower.stop()
        finally:
            self._store.close()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._is_open:
            warn(f"unclosed {self!r}", ResourceWarning, source=self)

    @property
    def properties(self) -> PartitionProperties:
        """Those that hold at present. Raises ``TableError`` when they have changed so that the table cannot go on."""
        return self._configured.properties

    @property
    def applied(self) -> int:
        """The last transaction whose effect the view holds, -1 at first."""
        return self._store.progress.applied

    # Writes

    async def put(
        self, key: bytes, value: bytes | None, *, prefix: bytes = b"", timestamp_ms: int | None = None
    ) -> int:
        """Write one row. Raises as :meth:`batch`."""
        return await self.batch([Row(prefix, key, value, timestamp_ms)])

    async def delete(self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Delete one row, whether there is one or not. Raises as :meth:`batch`."""
        return await self.batch([Row(prefix, key, None, timestamp_ms, tombstone=True)])

    async def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False) -> int:
        """Write rows in one transaction.

        Raises ``ValueError`` when there are none, and ``TimestampError`` for timestamps that are not positive or,
        unless ``any_timestamp``, further ahead than the partition allows: they would win over all that is written until
        then. Raises ``KeyTooLongError``, and ``EnvelopeError`` for what does not fit into the envelope.
        """
        now_ms = self._clock()
        if not rows:
            raise ValueError("a batch of no rows")
        properties = self.properties
        check_rows(
            rows,
            max_key_bytes=properties.max_key_bytes,
            latest_ms=None if any_timestamp else now_ms + properties.max_timestamp_skew_ms,
        )
        return await self._append(Batch(now_ms, rows), append_locks=locks_of_batch(rows))

    async def truncate(self) -> int:
        """Void every row that is in the log before this."""
        return await self._append(Truncate(self._clock()), append_locks=[TABLE_LOCK])

    async def sweep(self) -> int | None:
        """Have all views remove what has reached its age; ``None`` when the partition has no ages."""
        mark = present_mark(self._clock(), self._configured.ages)
        return None if mark is None else await self._append(mark, append_locks=[TABLE_LOCK])

    async def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        Looks at the rows of the view until one is found; ``None`` when there is none. Of several programs that do so at
        a time one sweeps: the others are told of its mark by the lock of the table, and look again. Raises
        ``NotAppendedError`` at the deadline.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await _in_time(self._catch_up(fresh=False), deadline_s)
        attempt = 0
        while True:
            attempt += 1
            snapshot = self._store.snapshot()
            try:
                due = (await self._aged(snapshot, only_due=True)).due
            finally:
                snapshot.close()
            mark = present_mark(self._clock(), self._configured.ages)
            if mark is None or not due:
                return None
            try:
                return await self._append(
                    mark,
                    write_locks=[TABLE_LOCK],
                    high_water_mark=snapshot.progress.applied,
                    timeout_s=max(deadline_s - asyncio.get_running_loop().time(), 0.0),
                )
            except LockConflict as conflict:
                await _in_time(self._follower.reached(conflict.transaction_id), deadline_s)
                await _in_time(asyncio.sleep(_PACE.delay_s(attempt, random.random())), deadline_s)

    async def check_sweep(self) -> SweepCheck:
        """What a sweep would find at this moment; looks at all rows of the view."""
        await self._catch_up(fresh=False)
        snapshot = self._store.snapshot()
        try:
            return await self._aged(snapshot, only_due=False)
        finally:
            snapshot.close()

    async def _aged(self, snapshot: Snapshot, *, only_due: bool) -> SweepCheck:
        return await check_sweep(
            snapshot, self._clock(), self._configured.ages, self.properties.intervals, only_due=only_due
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
        """Write a row if the present one has that version; ``None``: if readers see none.

        Raises :class:`VersionConflict`.
        """

        def check_and_put(transaction: TableTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            present = None if row is None else row.version
            if present != version:
                raise VersionConflict(f"the row has the version {present}, not {version}")
            transaction.put(key, value, prefix=prefix)

        try:
            transaction_id = await self.transaction(check_and_put, timeout_s=timeout_s)
        except VersionConflict:  # by a view that may be behind
            await self.refresh()
            transaction_id = await self.transaction(check_and_put, timeout_s=timeout_s)
        assert transaction_id is not None
        return transaction_id

    async def transaction(
        self,
        work: Callable[[TableTransaction], Awaitable[None] | None],
        *,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Read and write rows as if nobody else did; ``None`` when nothing was written.

        ``work`` is called again, on a newer state, when what it read or wrote was changed meanwhile by this or any
        other writer of tables. It must have no other effects. Raises what ``work`` raises, ``LockConflict`` when there
        are no attempts left, and ``NotAppendedError`` at the deadline.
        """
        steps = self.transacting(timeout_s=timeout_s, max_attempts=max_attempts)
        while True:
            attempt = await steps.begin()
            try:
                working = work(attempt)
                if inspect.isawaitable(working):
                    await _in_time(working, steps.deadline_s)
            finally:
                steps.end()
            if await steps.commit():
                return steps.transaction_id

    def transacting(self, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None) -> "Transacting":
        """A transaction step by step, for those whose work is not done on this loop."""
        return Transacting(self, timeout_s, max_attempts)

    async def _append(
        self,
        envelope: Envelope,
        *,
        append_locks: Iterable[PartitionLocalLock] = (),
        write_locks: Iterable[PartitionLocalLock] = (),
        read_locks: Iterable[PartitionLocalLock] = (),
        high_water_mark: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        if self.properties.disabled:
            raise PropertiesError(
                f"partition {self._partition_id} is disabled: nothing is written until its property `disabled` is false"
            )
        data = await self._encoded(envelope)
        transaction_id = await self._client.append(
            self._partition_id,
            data,
            append_locks=append_locks,
            write_locks=write_locks,
            read_locks=read_locks,
            high_water_mark=high_water_mark,
            timeout_s=timeout_s,
        )
        self._written = max(self._written, transaction_id)
        return transaction_id

    async def _encoded(self, envelope: Envelope) -> bytes:
        codec, max_body_bytes = self.properties.codec, self.properties.max_body_bytes
        if codec is Codec.NONE or not isinstance(envelope, Batch):
            return encode(envelope, codec, max_body_bytes)
        if sum(len(row.key) + len(row.value or b"") for row in envelope.rows) <= _LOOP_BYTES:
            return encode(envelope, codec, max_body_bytes)
        return await asyncio.to_thread(encode, envelope, codec, max_body_bytes)

    # Reads

    async def refresh(self) -> None:
        """Return when the view has everything that was committed when this was called."""
        await self._follower.reached(await self.high_water_mark())

    async def high_water_mark(self) -> int:
        """The last transaction that the owner of the partition has committed at this moment, -1 if there is none."""
        return await self._client.high_water_mark(self._partition_id)

    async def get(
        self, keys: Sequence[bytes], *, prefix: bytes = b"", raw: bool = False, fresh: bool = False
    ) -> list[TableRow | None]:
        """The rows of keys, in their order. With ``raw`` tombstones and expired rows are given too.

        With ``fresh`` the view first catches up with what the owner of the partition has committed at this moment.
        """
        return (await self._reading(raw=raw, fresh=fresh)).get(prefix, keys)

    async def get_slice(
        self, key: bytes, offset: int, size: int, *, prefix: bytes = b"", fresh: bool = False
    ) -> bytes | None:
        """Part of a value; ``None`` when there is no row, or its value is null. Raises ``ValueError`` below 0."""
        if offset < 0 or size < 0:
            raise ValueError("offset and size must not be negative")
        (row,) = await self.get([key], prefix=prefix, fresh=fresh)
        return None if row is None or row.value is None else row.value[offset : offset + size]

    async def scan(
        self,
        ranges: Iterable[KeyRange] | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> AsyncGenerator[TableRow, None]:
        """The rows of ranges of keys, or of the whole table, in order; all of one state of the table."""
        async with aclosing(self._scan(ranges, reverse, limit, raw, fresh)) as rows:
            async for row in rows:
                yield row

    async def _scan(
        self, ranges: Iterable[KeyRange] | None, reverse: bool, limit: int | None, raw: bool, fresh: bool
    ) -> AsyncGenerator[TableRow, None]:
        await self._catch_up(fresh)
        snapshot = self._store.snapshot()
        try:
            rows = self._reading_of(snapshot, raw).scan(ranges, reverse=reverse)
            for number, row in enumerate(islice(rows, limit), 1):
                yield row
                if number % _YIELD_ROWS == 0:
                    await asyncio.sleep(0)
        finally:
            snapshot.close()

    async def scan_keys(
        self,
        ranges: Iterable[KeyRange] | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Prefix and key of what :meth:`scan` gives."""
        async with aclosing(self._scan(ranges, reverse, limit, raw, fresh)) as rows:
            async for row in rows:
                yield row.prefix, row.key

    async def approximate_count(self, *, raw: bool = False) -> int:
        """How many rows there are: expired ones are counted, tombstones only with ``raw``."""
        return (await self._reading(raw=raw, fresh=False)).approximate_count()

    async def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions behind ``after``.

        As many transactions as it takes to reach ``limit`` rows. With a prefix only its rows; the view then knows
        where to begin and where to end. Raises ``ValueError`` for a limit below 1.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        mark = await self.high_water_mark()
        if mark <= after:
            return Taken([], after, at_end=True)
        until = mark
        if prefix:
            await self._follower.reached(mark)
            entries = self._store.take_prefix(prefix, after, limit)
            if not entries:
                return Taken([], mark, at_end=True)
            after = entries[0].transaction_id - 1
            until = entries[-1].transaction_id if len(entries) >= limit else mark
        rows: list[TableRow] = []
        async with self._client.feed_batches(self._partition_id, after=after, until=until) as feed:
            async for records in feed:
                for record in records:
                    rows += self._taken(record, prefix)
                    after = record.transaction_id
                    if len(rows) >= limit:
                        return Taken(rows, after, at_end=after >= mark)
        return Taken(rows, after, at_end=after >= mark)

    async def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> AsyncGenerator[Taken, None]:
        """What :meth:`take` gives, as it comes, without an end, or up to the transaction ``until``.

        ``at_end`` is not known, and false. It is the way to read much: every take reads ahead for itself.
        """
        async with self._client.feed_batches(self._partition_id, after=after, until=until) as feed:
            async for records in feed:
                rows = [row for record in records for row in self._taken(record, prefix)]
                yield Taken(rows, records[-1].transaction_id, at_end=False)

    def _taken(self, record: Record, prefix: bytes | None) -> list[TableRow]:
        rows = rows_of(record.transaction_id, record.data, self.properties.max_body_bytes)
        return rows if prefix is None else [row for row in rows if row.prefix == prefix]

    async def _catch_up(self, fresh: bool) -> None:
        _ = self.properties  # refused when they do not fit the view
        await self._follower.reached(self._written)
        if fresh:
            await self.refresh()

    async def _reading(self, *, raw: bool, fresh: bool) -> Reading:
        await self._catch_up(fresh)
        return self._reading_of(self._store, raw)

    def _reading_of(self, rows: Snapshot, raw: bool) -> Reading:
        return Reading(rows, self._clock(), self._configured.ages, raw)


class Transacting:
    """The attempts of one transaction: each is begun, worked on, ended, and committed unless its work failed."""

    def __init__(self, table: Table, timeout_s: float, max_attempts: int | None) -> None:
        self.deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.transaction_id: int | None = None
        """Of what was committed, if anything was written."""
        self._table = table
        self._max_attempts = max_attempts
        self._count = 0
        self._now_ms = 0
        self._snapshot: Snapshot
        self._attempt: TableTransaction

    async def begin(self) -> TableTransaction:
        """An attempt on the present state. Raises ``TableError``, and ``NotAppendedError`` at the deadline."""
        table = self._table
        await _in_time(table._catch_up(fresh=False), self.deadline_s)
        self._count += 1
        self._snapshot = table._store.snapshot()
        self._now_ms = table._clock()
        reading = Reading(self._snapshot, self._now_ms, table._configured.ages, raw=True)
        self._attempt = TableTransaction(reading)
        return self._attempt

    def end(self) -> None:
        """Nothing more is read by it."""
        self._snapshot.close()

    async def commit(self) -> bool:
        """Append what is to be written; false when it was overtaken, and is to be begun again.

        Raises as :meth:`Table.transaction`.
        """
        table = self._table
        intent = self._attempt.intent()
        if intent is None:
            return True
        check_rows(intent.rows, max_key_bytes=table.properties.max_key_bytes, latest_ms=None)
        try:
            self.transaction_id = await table._append(
                Batch(self._now_ms, intent.rows),
                write_locks=intent.write_locks,
                read_locks=intent.read_locks,
                high_water_mark=self._snapshot.progress.applied,
                timeout_s=max(self.deadline_s - asyncio.get_running_loop().time(), 0.0),
            )
        except LockConflict as conflict:
            if self._count == self._max_attempts:
                raise
            await _in_time(table._follower.reached(conflict.transaction_id), self.deadline_s)
            await _in_time(asyncio.sleep(_PACE.delay_s(self._count, random.random())), self.deadline_s)
            return False
        return True


async def _in_time(awaitable: Awaitable[None], deadline_s: float) -> None:
    try:
        async with asyncio.timeout_at(deadline_s) as limit:
            await awaitable
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise NotAppendedError("no outcome in time; the transaction is not in the log") from error
