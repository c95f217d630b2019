"""Reading the log of one partition in order, with data: in bulk where servers can, one by one where they cannot."""

import asyncio
import random
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Self

from waltz.client.arguments import check_loop
from waltz.client.engine.data_lists import PendingList
from waltz.client.engine.data_requests import MAX_CHECKSUM_FAILURES
from waltz.client.engine.engine import Engine
from waltz.client.engine.feed import Applier
from waltz.client.engine.partition import StreamPartition
from waltz.client.engine.tasks import Signal
from waltz.client.errors import (
    BulkReadsNotSupportedError,
    ClientAheadError,
    ClientClosedError,
    DataChecksumError,
    RpcError,
)
from waltz.client.transaction import Transaction
from waltz.common.checksum import checksum, crc32
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.records import Record

_FIRST_COUNT = 500
_MAX_COUNT = 10_000
_MAX_BYTES = 8 << 20
"""The limits of servers."""

_NEVER = 1 << 63
_QUEUED_RECORDS = 1024
"""Transactions read one by one that may wait to be consumed."""


class BulkReader:
    """Keeps a few bulk reads on their way while the batches before them are consumed. Has no task of its own."""

    def __init__(self, engine: Engine, partition_id: int, after: int) -> None:
        self.partition: StreamPartition | None = None
        """To be set before the first batch is read."""
        self.next_id = after + 1
        """Id of the transaction that the next batch begins with."""
        options = engine.options
        self._engine = engine
        self._partition_id = partition_id
        self._options = options
        self._ahead: deque[PendingList] = deque()
        self._asked_until = after + 1
        self._count = _FIRST_COUNT
        self._known_mark = -1
        self._checksum_failures = 0
        self._backoff = Backoff(options.data_retry_initial_s, options.data_retry_maximum_s, random.Random())

    async def next_batch(self) -> list[Record]:
        """The next transactions, as soon as there are any.

        Raises ``BulkReadsNotSupportedError``, ``DeadlineExceededError`` when servers fail for too long,
        ``DataChecksumError`` and ``ClientClosedError``.
        """
        loop = asyncio.get_running_loop()
        failing_since_s: float | None = None
        while True:
            try:
                records = await self._try()
            except RpcError as error:
                self._start_over()
                now_s = loop.time()
                failing_since_s = failing_since_s or now_s
                if now_s - failing_since_s >= self._options.data_request_lifetime_s:
                    raise DeadlineExceededError(
                        f"transaction {self.next_id} of partition {self._partition_id} could not be read within "
                        f"{self._options.data_request_lifetime_s:g} s: {error}"
                    ) from error
                await asyncio.sleep(self._backoff.next_delay_s())
                continue
            except BaseException:
                self._start_over()
                raise
            self._backoff.reset()
            return records

    async def _try(self) -> list[Record]:
        self._ask()
        if not self._ahead:
            await self._engine.advanced(self._partition_id, self.next_id)
            self._ask()
        request = self._ahead[0]
        records = await request.wait()
        self._known_mark = max(self._known_mark, request.high_water_mark)
        records = self._checked(records)
        self._ahead.popleft()
        self.next_id += len(records)
        if len(records) < request.max_count:
            self._start_over()  # what was asked for behind it leaves a gap
        return records

    def _ask(self) -> None:
        assert self.partition is not None
        mark = max(self._known_mark, self.partition.feed.applied)
        while len(self._ahead) < self._options.list_requests and self._asked_until <= mark:
            count = min(self._count, mark + 1 - self._asked_until)
            self._ahead.append(self._engine.request_list(self._partition_id, self._asked_until, count, _MAX_BYTES))
            self._asked_until += count

    def _start_over(self) -> None:
        self._ahead.clear()
        self._asked_until = self.next_id

    def _checked(self, records: list[Record]) -> list[Record]:
        """``records``, or those before the first damaged one."""
        expected_id = self.next_id
        if not records or records[0][0] != expected_id or records[-1][0] != expected_id + len(records) - 1:
            raise RpcError(f"the server has no transaction {expected_id}, or not the next ones")
        size_bytes = 0
        for index, (transaction_id, _, _, data, expected) in enumerate(records):
            if crc32(data) != expected & 0xFFFF_FFFF:
                if index:
                    return records[:index]
                self._damaged(transaction_id)
            size_bytes += len(data)
        self._checksum_failures = 0
        average_bytes = size_bytes / len(records) + 32
        self._count = max(1, min(_MAX_COUNT, int(self._options.list_request_bytes / average_bytes)))
        return records

    def _damaged(self, transaction_id: int) -> None:
        self._checksum_failures += 1
        text = f"the data of transaction {transaction_id} of partition {self._partition_id} came with a wrong checksum"
        if self._checksum_failures >= MAX_CHECKSUM_FAILURES:
            raise DataChecksumError(f"{text}, {MAX_CHECKSUM_FAILURES} times")
        raise RpcError(text)


class SingleReader:
    """Reads by applying, with an engine of its own: for servers that have no bulk reads."""

    def __init__(self, partition_id: int, after: int) -> None:
        self.next_id = after + 1
        """Id of the transaction that the next batch begins with."""
        self._after = after
        self._partition_id = partition_id
        self._records: deque[Record] = deque()
        self._error: Exception | None = None
        self._changed = Signal()
        self._engine: Engine | None = None
        self._closed = False

    async def open(self, open_engine: Callable[[Applier], Awaitable[Engine]]) -> None:
        """Begin to read."""
        self._engine = await open_engine(Applier(self._apply, self._failed))
        await self._engine.set_partitions({self._partition_id}, self._mark)

    async def next_batch(self) -> list[Record]:
        """What has come; waits for one at least. Raises what keeps a transaction from being read."""
        while not self._records:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise ClientClosedError
            await self._changed.wait()
        records = list(self._records)
        self._records.clear()
        self.next_id += len(records)
        self._changed.notify()
        return records

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._changed.notify()
        if self._engine is not None:
            await self._engine.close()

    async def _mark(self, partition_id: int) -> int:
        return self._after

    async def _apply(self, transaction: Transaction) -> None:
        """Take it in when there is room for it."""
        while not self._closed and (self._error is not None or len(self._records) >= _QUEUED_RECORDS):
            await self._changed.wait()
        try:
            data = await transaction.data_bytes()
        except WaltzError as error:
            self._error = error
            self._changed.notify()
            raise
        record = Record(transaction.transaction_id, transaction.req_id, transaction.header, data, checksum(data))
        self._records.append(record)
        self._changed.notify()

    def _failed(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """The consumer is told by :meth:`next_batch`."""


class PartitionFeeds:
    """What one client has read, and is reading, of one partition."""

    __slots__ = ("_open", "_past")

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._past: int | None = None

    @property
    def open(self) -> "list[Feed]":
        """Those that are not closed."""
        return list(self._open)

    @property
    def handed_out(self) -> int | None:
        """Id of the newest transaction that a feed, open or closed, has handed out; an open one begins with ``after``.

        ``None`` when there was none.
        """
        newest = self._past
        for feed in self._open:
            mark = feed.handed_out
            if newest is None or mark > newest:
                newest = mark
        return newest

    def opened(self, feed: "Feed") -> None:
        """A feed was made."""
        self._open.add(feed)

    def note(self, transaction_id: int) -> None:
        """It was handed out, whatever becomes of the feed that did."""
        if self._past is None or transaction_id > self._past:
            self._past = transaction_id

    def closed(self, feed: "Feed") -> None:
        """It is not read any more."""
        self._open.discard(feed)


class Feed:
    """The committed transactions of one partition in order, and those to come: without an end, unless one was given.

    Closed when its loop is left, by :meth:`aclose`, as an asynchronous context manager, and with its client. To go on
    later, open another one after :attr:`position`. Made by clients, used on their loop.
    """

    def __init__(
        self,
        engine: Engine,
        open_engine: Callable[[Applier], Awaitable[Engine]],
        partition_id: int,
        after: int,
        until: int | None,
        feeds: PartitionFeeds,
    ) -> None:
        """``open_engine`` makes another engine, to read from servers that have no bulk reads."""
        self.partition_id = partition_id
        self.position = after
        """Id of the last transaction that its consumer is done with: it has asked for the next one."""
        self.in_hand = 0
        """How many transactions behind ``position`` were handed out: those that the consumer is busy with."""
        self.consumer: object = None
        """Who asked for transactions last: a task, or the id of a thread."""
        self.closed = False
        self.endless = until is None
        """Whether it follows the log for ever."""
        self.awaiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits for :attr:`position` to get to a transaction; :meth:`wake` is called when it has moved."""
        self._last_id = _NEVER if until is None else until
        self._engine = engine
        self._open_engine = open_engine
        self._feeds = feeds
        self._begun = False
        self._loop = asyncio.get_running_loop()
        self._reader: BulkReader | SingleReader = BulkReader(engine, partition_id, after)
        feeds.opened(self)

    @property
    def handed_out(self) -> int:
        """Id of the last transaction that its consumer was given; at first the one that the feed begins after."""
        return self.position + self.in_hand

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Read no more."""
        if self.closed:
            return
        self.closed = True
        if self._begun:
            self._feeds.note(self.handed_out)
        self._feeds.closed(self)
        self.wake()
        if isinstance(self._reader, SingleReader):
            await self._reader.close()

    async def next_batch(self) -> list[Record]:
        """The next transactions, as many as came together; an empty list at the end, if there is one.

        Asking says that the consumer is done with those before: ``position`` moves up to them. May be given up (by
        ``asyncio.wait_for``, say) and called again. Raises ``ClientAheadError`` when the log ends before the
        transaction that the feed begins after, ``DeadlineExceededError`` when servers fail for too long,
        ``DataChecksumError``, ``ClientClosedError``, and ``InvalidOperationError`` on another event loop.
        """
        records = await self.fetch(asyncio.current_task())
        self.in_hand = len(records)
        if records:
            self._feeds.note(records[-1][0])
        return records

    async def passed(self, transaction_id: int) -> bool:
        """Return when the consumer is done with a transaction; ``False`` when the feed is closed before."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (transaction_id, waiter)
        self.awaiting.append(entry)  # before position is looked at, which may move on another thread
        try:
            if self.position < transaction_id and not self.closed:
                await waiter
        finally:
            self.awaiting.remove(entry)
        return self.position >= transaction_id

    def wake(self) -> None:
        """Tell those who wait for what :attr:`position` has come to."""
        for transaction_id, waiter in self.awaiting:
            if (self.closed or self.position >= transaction_id) and not waiter.done():
                waiter.set_result(None)

    async def fetch(self, consumer: object) -> list[Record]:
        """What :meth:`next_batch` returns; how many of them are in hand is up to the caller."""
        check_loop(self._loop)
        self.consumer = consumer
        self.position += self.in_hand
        self.in_hand = 0
        if self.awaiting:
            self.wake()
        if self.closed:
            raise ClientClosedError
        if self._reader.next_id > self._last_id:
            return []
        if not self._begun:
            await self._begin()
        try:
            records = await self._reader.next_batch()
        except BulkReadsNotSupportedError:
            self._reader = SingleReader(self.partition_id, self._reader.next_id - 1)
            await self._reader.open(self._open_engine)
            records = await self._reader.next_batch()
        beyond = records[-1][0] - self._last_id
        return records[:-beyond] if beyond > 0 else records

    async def _begin(self) -> None:
        assert isinstance(self._reader, BulkReader)
        partition = await self._engine.join(self.partition_id)
        try:
            await confirm_mark(self._engine, partition, self.position)
        except ClientAheadError:
            await self.aclose()
            raise
        self._reader.partition = partition
        self._begun = True


async def confirm_mark(engine: Engine, partition: StreamPartition, transaction_id: int) -> None:
    """Return when the log is known to have a transaction.

    Raises ``ClientAheadError`` when its server says twice, a while apart, that it has not: one that has lost the
    partition without knowing it yet may be wrong. Raises ``DeadlineExceededError`` and ``ClientClosedError``, too.
    """
    if transaction_id <= partition.feed.applied:
        return
    for delay_s in (0.0, engine.options.ahead_retry_initial_s):
        await asyncio.sleep(delay_s)
        last_id = max(await engine.high_water_mark(partition.partition_id), partition.feed.applied)
        if transaction_id <= last_id:
            return
    raise ClientAheadError(partition.partition_id, transaction_id, last_id)


class TransactionFeed(Feed):
    """One by one."""

    async def __aiter__(self) -> AsyncGenerator[Record, None]:
        awaiting = self.awaiting
        try:
            while batch := await self.fetch(asyncio.current_task()):
                self.in_hand = 1
                for record in batch:
                    yield record
                    self.position = record[0]
                    if awaiting:
                        self.wake()
                self.in_hand = 0
        finally:
            await self.aclose()


class BatchFeed(Feed):
    """As many at a time as came together."""

    async def __aiter__(self) -> AsyncGenerator[list[Record], None]:
        try:
            while batch := await self.fetch(asyncio.current_task()):
                self.in_hand = len(batch)
                yield batch
        finally:
            await self.aclose()
