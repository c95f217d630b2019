"""Feeds: the log of one partition, in order and with data, for reads in a loop."""

import asyncio
import random
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextvars import ContextVar
from operator import length_hint
from types import TracebackType
from typing import Self

from waltz.client.arguments import check_loop, check_seconds
from waltz.client.engine.engine import Engine
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.errors import (
    BulkReadsNotSupportedError,
    ClientAheadError,
    ClientClosedError,
    ConfirmedMarkNotSupportedError,
    InvalidOperationError,
    OtherLogError,
    TimesNotSupportedError,
)
from waltz.client.plain.reader import BulkReader, OpenEngine, Share, SingleReader
from waltz.common.errors import DeadlineExceededError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.records import Record

_NEVER = 1 << 63


ACTING_FOR: ContextVar[int | None] = ContextVar("waltz_acting_for", default=None)
"""The id of the thread on whose behalf the present task works; ``None``: the task works for itself."""


def present_consumer() -> object:
    """The present consumer, which reads feeds and makes decisions: a task, or the id of a thread."""
    return ACTING_FOR.get() or asyncio.current_task()


class PartitionFeeds:
    """The open feeds of one client and partition with one purpose."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        # Not a WeakSet: its iteration would take a third of the time of an append with locks.
        self._open: tuple[weakref.ref[Feed], ...] = ()

    @property
    def open(self) -> "list[Feed]":
        """The open feeds."""
        return [feed for known in self._open if (feed := known()) is not None]

    @property
    def endless(self) -> "list[Feed]":
        """The open feeds without an end. Their loops keep the present state."""
        return [feed for feed in self.open if feed.endless]

    def opened(self, feed: "Feed") -> None:
        """Add a new feed."""
        self._keep([*self.open, feed])

    def closed(self, feed: "Feed") -> None:
        """Remove a closed feed."""
        self._keep([each for each in self.open if each is not feed])

    def _keep(self, feeds: "list[Feed]") -> None:
        self._open = tuple(map(weakref.ref, feeds))


def seen(feeds: "Iterable[Feed]") -> int | None:
    """The id of the last transaction that is in all states kept by the loops over ``feeds``; ``None`` without feeds.

    That is the smallest position of the feeds. In the loop over a feed, the present transaction counts as included.
    """
    consumer = present_consumer()
    marks = [feed.handed_out if feed.consumer == consumer else feed.position for feed in feeds]
    return min(marks, default=None)


class Feed:
    """The committed transactions of one partition in order, and future ones: without an end, unless one was given.

    Closed at the end of its loop, by :meth:`aclose`, as an asynchronous context manager, and with its client. To
    continue later, open another feed after :attr:`position`. Created by clients, and used in their event loop.
    """

    _begun = False
    _asked = False
    _since_ms: int | None = None

    def __init__(
        self,
        engine: Engine,
        open_engine: OpenEngine,
        partition_id: int,
        after: int,
        until: int | None,
        feeds: PartitionFeeds,
        share: Share | None = None,
    ) -> None:
        """``open_engine`` opens another engine, for reads from servers without bulk reads.

        ``share`` limits the reads under way, if the feed shares the limits with other feeds.
        """
        self.partition_id = partition_id
        self.position = after
        """The id of the last transaction that the consumer is done with: the consumer has asked for the next one."""
        self.handed_out = after
        """The id of the last transaction that was handed to the consumer; at first, the transaction after which the
        feed begins."""
        self.consumer: object = None
        """The consumer that asked for transactions last: a task, or the id of a thread."""
        self.closed = False
        self.endless = until is None
        """Whether the feed follows the log for ever."""
        self.awaiting: list[tuple[int, asyncio.Future[None]]] = []
        """The calls that wait for :attr:`position` to reach a transaction. :meth:`wake` is called when the position has
        moved."""
        self._last_id = _NEVER if until is None else until
        self._engine = engine
        self._open_engine = open_engine
        self._feeds = feeds
        self._loop = asyncio.get_running_loop()
        self._share = share
        self._reader: BulkReader | SingleReader = BulkReader(engine, partition_id, after, share)
        self._rest: Iterator[Record] = iter(())
        self._reading: asyncio.Task[list[Record]] | None = None
        self._expected = b""
        self._ahead: list[Record] = []
        feeds.opened(self)

    def expect(self, request_id: bytes) -> Self:
        """Read only if the transaction after which the feed begins has this request id. Returns the feed.

        To be called before the first read. Reads raise ``OtherLogError`` if the log has another transaction there.
        Without a transaction before the feed, or with an empty ``request_id``, there is no comparison.
        """
        if request_id and self.position > NO_TRANSACTION:
            assert isinstance(self._reader, BulkReader)
            self._expected = request_id
            self._reader = BulkReader(self._engine, self.partition_id, self.position - 1, self._share)
        return self

    def since(self, time_ms: int) -> Self:
        """Begin with the first transaction that is not known to have been committed by a time. Returns the feed.

        To be called before the first read. Reads raise ``TimesNotSupportedError`` if times are unknown.
        """
        self._since_ms = time_ms
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._begun and not self.closed and not self._engine.closed and self._reader.next_id <= self._last_id:
            warn(f"unclosed {self!r}", ResourceWarning, source=self)

    async def aclose(self) -> None:
        """Close the feed."""
        if self.closed:
            return
        self.closed = True
        self._feeds.closed(self)
        self._rest = iter(())
        self.wake()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        if isinstance(self._reader, SingleReader):
            await self._reader.close()

    async def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions that have arrived together; an empty list at the end, if there is one.

        The list is also empty when none arrived within ``timeout_s``. Reads continue meanwhile, so that repeated calls
        succeed with any ``timeout_s``. The call confirms all earlier transactions: ``position`` moves up to them. It
        may be cancelled and repeated.

        Raises:
            ClientAheadError: The log ends before the transaction after which the feed begins.
            OtherLogError: The log has another transaction than the expected one at that place.
            DeadlineExceededError: Servers fail for too long.
            DataChecksumError: Servers send damaged data.
            TrimmedError: The next transactions are trimmed; the error tells the first available one.
            ClientClosedError: The client or the feed is closed.
            InvalidOperationError: The call is made in another event loop, or another call is waiting for transactions
                of the feed.
        """
        return self.take(await self.fetch(present_consumer(), timeout_s))

    def take(self, records: list[Record]) -> list[Record]:
        """Hand transactions out."""
        if records:
            self.handed_out = records[-1][0]
        return records

    async def passed(self, transaction_id: int) -> bool:
        """Return ``True`` when the consumer is done with a transaction, ``False`` when the feed is closed before."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (transaction_id, waiter)
        self.awaiting.append(entry)  # before the read of the position, which another thread may move
        try:
            if self.position < transaction_id and not self.closed:
                await waiter
        finally:
            self.awaiting.remove(entry)
        return self.position >= transaction_id

    def wake(self) -> None:
        """Wake the calls that wait for a change of :attr:`position`."""
        for transaction_id, waiter in self.awaiting:
            if (self.closed or self.position >= transaction_id) and not waiter.done():
                waiter.set_result(None)

    async def fetch(self, consumer: object, timeout_s: float | None = None) -> list[Record]:
        """The result of :meth:`next_batch`. The caller decides how many of the transactions it hands out."""
        self._check_turn()
        self.done(consumer)
        rest = list(self._rest)
        if rest:
            return rest
        self._asked = True
        try:
            if self._reading is None:
                if timeout_s is None:
                    return await self._read()
                self.read_on(consumer)
            reading = self._reading
            assert reading is not None
            if not (await asyncio.wait((reading,), timeout=timeout_s))[0]:
                return []
            return self.read_result()
        finally:
            self._asked = False

    def _check_turn(self) -> None:
        check_loop(self._loop)
        if self._asked:
            raise InvalidOperationError(
                f"somebody else waits for the next transactions of this feed of partition {self.partition_id}; "
                "open a feed for each task or thread that reads"
            )

    def read_on(self, consumer: object) -> "asyncio.Task[list[Record]]":
        """Begin the next read. The consumer is done with all transactions before."""
        self.done(consumer)
        self._reading = task = self._loop.create_task(self._read(), name=f"feed of partition {self.partition_id}")
        task.add_done_callback(_looked_at)
        return task

    def read_result(self) -> list[Record]:
        """The result of the read that :meth:`read_on` began, after its end. Raises the error of the read."""
        reading, self._reading = self._reading, None
        if reading is None or reading.cancelled() or (self.closed and reading.exception() is None):
            raise ClientClosedError
        return reading.result()

    def done(self, consumer: object) -> None:
        """Note that the consumer is done with its transactions, and asks for more."""
        self.consumer = consumer
        self.position = self.handed_out
        if self.awaiting:
            self.wake()

    async def _read(self) -> list[Record]:
        if self.closed:
            raise ClientClosedError
        if self._reader.next_id > self._last_id and not self._ahead:
            return []
        await self.begin()
        if self._ahead:
            records, self._ahead = self._ahead, []
        elif self._reader.next_id > self._last_id:
            return []
        else:
            try:
                records = await self._reader.next_batch()
            except BulkReadsNotSupportedError:
                records = await self._one_by_one()
        beyond = records[-1][0] - self._last_id
        return records[:-beyond] if beyond > 0 else records

    async def _one_by_one(self) -> list[Record]:
        """The next transactions from a server without bulk reads."""
        if self.closed:
            raise ClientClosedError
        assert isinstance(self._reader, BulkReader)
        share = self._reader.share
        self._reader = SingleReader(self.partition_id, self._reader.next_id - 1, self._open_engine, share)
        return await self._reader.next_batch()

    async def begin(self) -> None:
        """Make sure that the log has the transaction after which the feed begins. Raises like :meth:`next_batch`."""
        if self._begun:
            return
        partition = await self._engine.join(self.partition_id)
        try:
            if self._since_ms is not None:
                await self._begin_at(self._since_ms)
            await confirm_mark(self._engine, self._open_engine, partition, self.position)
            if isinstance(self._reader, BulkReader):
                self._reader.partition = partition
            if self._expected:
                try:
                    before, *self._ahead = await self._reader.next_batch()
                except BulkReadsNotSupportedError:
                    before, *self._ahead = await self._one_by_one()
                if before.req_id != self._expected:
                    raise OtherLogError(self.partition_id, self.position)
        except (ClientAheadError, OtherLogError, TimesNotSupportedError):
            await self.aclose()
            raise
        self._begun = True

    async def _begin_at(self, time_ms: int) -> None:
        last_before = await self._engine.offset_at(self.partition_id, time_ms)
        self.position = self.handed_out = last_before
        self._reader = BulkReader(self._engine, self.partition_id, last_before, self._share)
        self._since_ms = None

    async def begin_at_last(self, waiting: Callable[[DeadlineExceededError], object]) -> None:
        """Like :meth:`begin`, but waits for an owner of the partition for any time. ``waiting`` is called with the
        reason at each attempt."""
        options = self._engine.options
        backoff = Backoff(options.data_retry_initial_s, options.data_retry_maximum_s, random.Random())
        while True:
            try:
                await self.begin()
            except DeadlineExceededError as error:
                waiting(error)
                await asyncio.sleep(backoff.next_delay_s())
            else:
                return


async def confirm_mark(
    engine: Engine, open_engine: OpenEngine, partition: StreamPartition, transaction_id: int
) -> None:
    """Return when the log certainly has a transaction.

    Raises ``ClientAheadError`` only on proof of the contrary, because a server that has lost the partition, and does
    not know that yet, reports an old mark. Raises ``DeadlineExceededError`` and ``ClientClosedError``, too.
    ``open_engine`` opens another engine, for servers that do not confirm marks.
    """
    partition_id = partition.partition_id
    if transaction_id <= partition.feed.applied:
        return
    last_id = await engine.high_water_mark(partition_id)
    if transaction_id <= last_id:
        return
    try:
        last_id = await engine.high_water_mark(partition_id, confirmed=True)
    except ConfirmedMarkNotSupportedError:
        if not await _is_ahead(open_engine, partition_id, transaction_id, engine.options.rpc_timeout_s):
            return
    if transaction_id > last_id:
        raise ClientAheadError(partition_id, transaction_id, last_id)


async def _is_ahead(open_engine: OpenEngine, partition_id: int, transaction_id: int, timeout_s: float) -> bool:
    """Whether the log ends before a transaction, according to the answer to a mount after it. Servers prove this
    answer.

    Raises ``DeadlineExceededError`` without an answer, for example of a server that has lost the partition.
    """

    async def mark(_partition_id: int) -> int:
        return transaction_id

    engine = await open_engine(Applier(_ignore, _ignore))
    try:
        async with asyncio.timeout(timeout_s):
            await engine.set_partitions({partition_id}, mark)
            return await engine.partitions[partition_id].appends.found_ahead()
    except TimeoutError:
        raise DeadlineExceededError(
            f"it could not be found out within {timeout_s:g} s whether partition {partition_id} has transaction "
            f"{transaction_id}"
        ) from engine.obstacle(partition_id)
    finally:
        await engine.close()


def _ignore(*_: object) -> None:
    """Ignores the transactions of an engine that is opened only for its mount."""


class TransactionFeed(Feed):
    """The transactions of one partition, one by one.

    Examples:
        ```python
        async with client.feed(0, after=-1) as feed:
            transaction = await anext(feed)
            print(transaction.data, await feed.poll(timeout_s=1.0))  # None when there is none in time
        ```
    """

    async def __aiter__(self) -> AsyncGenerator[Record, None]:
        awaiting = self.awaiting
        try:
            while await self._more(present_consumer(), None):
                for record in self._rest:
                    self.handed_out = record[0]
                    yield record
                    self.position = self.handed_out
                    if awaiting:
                        self.wake()
        finally:
            await self.aclose()

    async def __anext__(self) -> Record:
        """The result of ``anext(feed)``; the feed stays open."""
        record = await self._next(present_consumer(), None)
        if record is None:
            raise StopAsyncIteration
        return record

    async def poll(self, timeout_s: float) -> Record | None:
        """The next transaction; ``None`` when there is none within ``timeout_s``, and at the end.

        Reads continue meanwhile, so that repeated calls succeed with any ``timeout_s``. Raises as :meth:`next_batch`.
        """
        check_seconds(timeout_s, "timeout_s")
        return await self._next(present_consumer(), timeout_s)

    async def _next(self, consumer: object, timeout_s: float | None) -> Record | None:
        self._check_turn()
        self.done(consumer)
        if self.closed:
            raise ClientClosedError
        if not await self._more(consumer, timeout_s):
            return None
        record = next(self._rest)
        self.take([record])
        return record

    async def _more(self, consumer: object, timeout_s: float | None) -> bool:
        """Fill ``_rest``. ``False`` at the end, and after the time."""
        if not length_hint(self._rest):
            self._rest = iter(await self.fetch(consumer, timeout_s))
        return length_hint(self._rest) > 0


class BatchFeed(Feed):
    """The transactions of one partition, in lists of transactions that have arrived together.

    Examples:
        ```python
        async for batch in client.feed_batches(0, after=-1, until=await client.high_water_mark(0)):
            print(len(batch), "transactions up to", batch[-1].transaction_id)
        ```
    """

    async def __aiter__(self) -> AsyncGenerator[list[Record], None]:
        try:
            while batch := await self.fetch(present_consumer()):
                self.handed_out = batch[-1][0]
                yield batch
        finally:
            await self.aclose()

    async def __anext__(self) -> list[Record]:
        """The result of ``anext(feed)``; the feed stays open."""
        batch = await self.next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch


def _looked_at(task: "asyncio.Task[list[Record]]") -> None:
    if not task.cancelled():
        task.exception()  # the next call raises it
