"""One partition that is a table: writes are appended to the log, reads come from a view beside the process."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from waltz.client.errors import (
    ClientAheadError,
    ConfirmedMarkNotSupportedError,
    NotAppendedError,
    NotGuaranteedError,
    OtherLogError,
    TrimmedError,
)
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain.client import Client
from waltz.client.plain.feed import BatchFeed
from waltz.common.consistency import level_from_commit
from waltz.common.errors import DeadlineExceededError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.zk.trim_points import read_trim_point
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Envelope, encode
from waltz.table.errors import StoreError, TimestampError
from waltz.table.face.clock import ClockCheck
from waltz.table.face.configured import Configured, check_enabled
from waltz.table.face.decoding import LOOP_BYTES, decoded
from waltz.table.face.follower import Follower
from waltz.table.face.levels import AsOf, AtLeast, Present, Read, ReadConsistency, read_of
from waltz.table.face.saved import begin_with_saved, check_saved, save_view
from waltz.table.properties import PartitionProperties
from waltz.table.stores.directory import StoreIdentity
from waltz.table.stores.interface import Changes, Removal, Snapshot, Store
from waltz.table.stores.registry import open_store
from waltz.table.view import Reading, steps

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
DEFAULT_STORE = "memory"


def system_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class TablePartition:
    """The common base of tables, their transactions and their sweeps."""

    store: Store
    follower: Follower
    clock: ClockCheck

    def __init__(
        self,
        client: Client,
        partition_id: int,
        properties: PartitionProperties | None,
        store: str | None,
        directory: Path | None,
        clock: Callable[[], int],
        snapshots: str | None,
    ) -> None:
        self.client = client
        self.partition_id = partition_id
        self.configured = Configured(client, partition_id, properties)
        self.now_ms = clock
        self._store_name = store
        self._directory = directory
        self._snapshots = snapshots
        self._is_configured = properties is None
        self._written = -1
        self._proved_s: float | None = None
        """When the view was last known to have all that was committed."""
        self._last_write_ms = self._last_accepted_ms = 0

    async def open(self) -> None:
        """Begin to follow the log. Raises the errors of opening a table."""
        await self.configured.open()
        self._metrics, self._client_id = self.client.metrics, self.client.client_id
        try:
            properties = self.configured.properties
            log = f"{self.client.cluster_name}/{await self.client.cluster_key()}"
            identity = StoreIdentity(self.partition_id, log, {"max_body_bytes": properties.max_body_bytes})
            name = self._store_name or properties.index_class_name or DEFAULT_STORE
            opened = partial(open_store, name, self._directory, identity)
            self.store = opened()

            def reopened() -> Store:
                self.store.close()
                self.store = opened()
                return self.store

            try:
                await self._begin(reopened)
                await self._check_available()
                feed = await self._feed()
                if feed is None:
                    self.store.condemn()
                    reopened()
                    feed = self.client.library_feed(self.partition_id, after=self.store.progress.applied)
            except BaseException:
                self.store.close()
                raise
        except BaseException:
            await self.configured.close()
            raise
        self.follower = Follower(feed, self.store, properties.max_body_bytes)
        self._measure(lambda: self.store.progress.skipped)
        self.clock = ClockCheck(self.client, self.partition_id, self.follower.newest)
        self.follower.start()

    async def _begin(self, reopened: Callable[[], Store]) -> None:
        """Load a saved snapshot into an empty store, if that was asked for."""
        if self._snapshots is None:
            return
        if self.store.progress.applied > NO_TRANSACTION or not self.store.loads_rows:
            check_saved(self._snapshots)
            return
        await begin_with_saved(
            self.client, self.partition_id, self._snapshots, self.properties.max_body_bytes, self.store, reopened
        )

    async def _check_available(self) -> None:
        """Raise ``TrimmedError`` if the log does not have all that the view lacks: its rows would be incomplete."""
        nodes, root = self.client.directory
        first_available = await read_trim_point(nodes, root, self.partition_id)
        if self.store.progress.applied + 1 < first_available:
            raise TrimmedError(self.partition_id, first_available)

    async def save_snapshot(self, url: str) -> int:
        """Catch up, and save the rows of the view; returns its last transaction, -1 without any."""
        if not self.store.finds_rows:
            raise StoreError("a snapshot needs a view with its rows, and the store of this one keeps none")
        await self.catch_up()
        await self.refresh(strict=False)
        rows = self.store.snapshot()
        try:
            if rows.progress.applied > NO_TRANSACTION:
                await save_view(
                    self.client,
                    self.partition_id,
                    url,
                    rows,
                    self.properties.max_body_bytes,
                    self.now_ms(),
                    is_configured=self._is_configured,
                )
            return rows.progress.applied
        finally:
            await close_in_pages(rows)

    async def _feed(self) -> BatchFeed | None:
        """A feed of the log after the view's end; ``None`` when the view is of another log."""
        progress = self.store.progress
        feed = self.client.library_feed(self.partition_id, after=progress.applied).expect(progress.request_id)
        if progress.applied > NO_TRANSACTION:
            try:
                await feed.begin()
            except (ClientAheadError, OtherLogError) as error:
                logger.warning("the view of partition %d is rebuilt from the log: %s", self.partition_id, error)
                return None
        return feed

    async def close(self) -> None:
        """Stop following the log."""
        skipped = self.store.progress.skipped
        self._measure(lambda: skipped)
        try:
            await self.configured.close()
            await self.follower.stop()
        finally:
            await close_in_pages(self.store)

    def _measure(self, skipped: Callable[[], int]) -> None:
        group = f"waltz-client-{self._client_id}.partition-{self.partition_id}"  # beside the client's own
        self._metrics.gauge(group, "table-skipped-transactions", skipped)

    @property
    def properties(self) -> PartitionProperties:
        """The present properties. Raises ``TableError`` when the table cannot continue with changed ones."""
        return self.configured.properties

    # Writes

    def write_ms(self) -> int:
        """The time of a write: that of the clock, but never less than an earlier write's.

        Of two writes of the same time the later one in the log wins.
        """
        self._last_write_ms = max(self._last_write_ms, self.now_ms())
        return self._last_write_ms

    async def append(
        self,
        envelope: Envelope,
        *,
        append_locks: Iterable[PartitionLocalLock] = (),
        write_locks: Iterable[PartitionLocalLock] = (),
        read_locks: Iterable[PartitionLocalLock] = (),
        high_water_mark: int | None = None,
        timeout_s: float = TIMEOUT_S,
        consistency: str | None = None,
    ) -> int:
        """Append an envelope; :meth:`catch_up` waits for it.

        Raises:
            PropertiesError: The partition is disabled.
            TimestampError: The clock of this process is ahead of others.
            ValueError: ``consistency`` is no level, or below the quorum.
        """
        if consistency is not None:
            level_from_commit(consistency)
        check_enabled(self.properties, self.partition_id)
        await self._check_clock(envelope.written_at_ms)
        data = await self._encoded(envelope)
        try:
            transaction_id = await self.client.append(
                self.partition_id,
                data,
                append_locks=append_locks,
                write_locks=write_locks,
                read_locks=read_locks,
                high_water_mark=high_water_mark,
                timeout_s=timeout_s,
                consistency=consistency,
            )
        except NotGuaranteedError as error:  # it is committed, and reads through this object see it
            self._written = max(self._written, error.transaction_id)
            raise
        self._written = max(self._written, transaction_id)
        return transaction_id

    async def _check_clock(self, written_at_ms: int) -> None:
        try:
            await self.clock.check_write(written_at_ms, self.properties.max_timestamp_skew_ms)
        except TimestampError:
            self._last_write_ms = self._last_accepted_ms  # the clock may have been set meanwhile
            raise
        self._last_accepted_ms = max(self._last_accepted_ms, written_at_ms)

    async def sweep_ms(self) -> int:
        """The time by which a sweep may remove rows.

        Raises:
            TimestampError: The clock of this process is ahead of that of ZooKeeper.
        """
        skew_ms, newest_ms = self.properties.max_timestamp_skew_ms, self.store.progress.newest_ms
        return await self.clock.sweep_ms(self.now_ms(), skew_ms, newest_ms)

    async def _encoded(self, envelope: Envelope) -> bytes:
        codec, max_body_bytes = self.properties.codec, self.properties.max_body_bytes
        if codec is Codec.NONE or not isinstance(envelope, Batch):
            return encode(envelope, codec, max_body_bytes)
        if sum(len(row.key) + len(row.value or b"") for row in envelope.rows) <= LOOP_BYTES:
            return encode(envelope, codec, max_body_bytes)
        return await asyncio.to_thread(encode, envelope, codec, max_body_bytes)

    # Reads

    async def refresh(self, *, strict: bool = True) -> None:
        """Return when the view has every transaction committed before the call; raises like :meth:`high_water_mark`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self.follower.reached(await self.high_water_mark(strict=strict))
        if strict:
            self._proved_s = began_s if self._proved_s is None else max(self._proved_s, began_s)

    @property
    def age_s(self) -> float | None:
        """Time since the view was last known to have all that was committed; ``None`` if it never was."""
        return None if self._proved_s is None else asyncio.get_running_loop().time() - self._proved_s

    async def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        A server that cannot confirm its mark tells its own mark, unless the call is ``strict``.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        try:
            return await self.client.high_water_mark(self.partition_id, confirmed=True)
        except ConfirmedMarkNotSupportedError:
            if strict:
                raise
            return await self.client.high_water_mark(self.partition_id)

    def read_of(self, fresh: bool, consistency: ReadConsistency | None) -> Read:
        """What a read with these arguments is of.

        Raises:
            ConsistencyRefusedError: The property ``consistency`` of the partition does not go with that level.
        """
        return read_of(fresh, consistency, self.properties, self.partition_id)

    async def catch_up_or_stale(self, read: Present | AtLeast, stale_ok_after_s: float | None) -> bool:
        """As :meth:`catch_up`; with a limit, in seconds, true after it instead of an error that what is read is not
        there.
        """
        if stale_ok_after_s is None:
            await self.catch_up(read)
            return False
        try:
            async with asyncio.timeout(stale_ok_after_s):
                await self.catch_up(read)
        except (TimeoutError, DeadlineExceededError, ConfirmedMarkNotSupportedError):
            return True
        return False

    async def catch_up(self, read: Read = Present.OWN) -> None:
        """Return when the view has what the read is of; for a past state, when the log has that transaction.

        Raises ``DeadlineExceededError`` if a given transaction is not there in time.
        """
        _ = self.properties  # raises when the properties do not fit the view
        if isinstance(read, Present):
            await self.follower.reached(NO_TRANSACTION if read is Present.ANY else self._written)
            if read is Present.FRESH:
                await self.refresh()
            return
        wanted = read.transaction_id
        if isinstance(read, AtLeast):
            wanted = max(wanted, self._written)
        elif wanted > self.store.progress.applied and wanted <= await self.high_water_mark(strict=False):
            return  # the log has it, and a past state needs no more
        try:
            async with asyncio.timeout(read.timeout_s) as limit:
                await self.follower.reached(wanted)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise DeadlineExceededError(
                f"transaction {wanted} of partition {self.partition_id} has not come within {read.timeout_s:g} s: the "
                f"view has applied {self.store.progress.applied}"
            ) from error

    async def catch_up_to(self, transaction_id: int) -> None:
        """Return when the view has applied a transaction, whatever this object has written; raises ``TableError``."""
        _ = self.properties  # raises when the properties do not fit the view
        await self.follower.reached(transaction_id)

    async def catch_up_to_decide(self, what: str) -> None:
        """Return when the view has the writes of this object, since ``what`` decides by its rows.

        Raises ``StoreError`` when the store finds no rows: a missing row would be no answer.
        """
        if not self.store.finds_rows:
            raise StoreError(
                f"{what} of partition {self.partition_id} need a view with its rows, and the store of this one keeps "
                'none: open the table with another one (store="memory"), or change the property indexClassName'
            )
        await self.catch_up()

    async def rows_of(self, read: Read, holds: Callable[[bytes], bool]) -> Snapshot:
        """The rows that a read is of, to be closed after use; ``holds`` tells the joined keys that it may look at."""
        await self.catch_up(read)
        if not isinstance(read, AsOf):
            return self.store.snapshot()
        if self.store.finds_rows and self.store.progress.applied == read.transaction_id:
            return self.store.snapshot()
        return await self._past(read.transaction_id, holds)

    async def _past(self, transaction_id: int, holds: Callable[[bytes], bool]) -> Snapshot:
        """The state after a transaction of the log, of some joined keys."""
        max_body_bytes = self.properties.max_body_bytes
        past = open_store(DEFAULT_STORE, None, StoreIdentity(self.partition_id, "", {}))
        try:
            if transaction_id > NO_TRANSACTION:
                async with self.client.library_feed(
                    self.partition_id, after=NO_TRANSACTION, until=transaction_id
                ) as feed:
                    async for records in feed:
                        envelopes = [
                            (record.transaction_id, await decoded(record.transaction_id, record.data, max_body_bytes))
                            for record in records
                        ]
                        for step in steps(envelopes, past.progress.applied, max_body_bytes=max_body_bytes):
                            await _take(past, step, holds)
        except BaseException:
            past.close()
            raise
        return past

    def reading_of(self, rows: Snapshot, raw: bool, read: Read = Present.OWN) -> Reading:
        """The rows of a store or a snapshot, hidden by the present time; past rows by the time of the newest one."""
        now_ms = rows.progress.newest_ms if isinstance(read, AsOf) else self.now_ms()
        return Reading(rows, now_ms, self.configured.ages, raw)


async def _take(past: Store, step: Changes | Removal, holds: Callable[[bytes], bool]) -> None:
    """Apply a step to a store of some joined keys; other work gets a turn."""
    if isinstance(step, Changes):
        past.apply(step._replace(rows={key: row for key, row in step.rows.items() if holds(key)}, prefixed=()))
    else:
        past.sweep(step)
    while past.removing:
        past.remove_page()
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def in_time(awaitable: Awaitable[None], deadline_s: float) -> None:
    """Wait for an awaitable until a deadline; raises ``NotAppendedError`` then."""
    try:
        async with asyncio.timeout_at(deadline_s) as limit:
            await awaitable
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise NotAppendedError("no outcome in time; the transaction is not in the log") from error


async def close_in_pages(rows: Snapshot) -> None:
    """Close a store or a snapshot; what it has in memory goes page by page, between which other work gets a turn."""
    try:
        while rows.release_page():  # noqa: ASYNC110 - turns for others, nothing is waited for
            await asyncio.sleep(0)
    finally:
        rows.close()
