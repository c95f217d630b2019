"""Reads many partitions in one loop: the transactions of each partition in order, the partitions in turn."""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from operator import length_hint
from types import TracebackType
from typing import NamedTuple, Self

from waltz.client.arguments import check_loop, check_seconds
from waltz.client.engine.tasks import Signal
from waltz.client.errors import (
    ClientAheadError,
    ClientClosedError,
    NotAuthorizedError,
    OtherLogError,
    PartitionNotFoundError,
    TimesNotSupportedError,
)
from waltz.client.options import ClientOptions
from waltz.client.plain.feed import Feed
from waltz.client.plain.reader import Share
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record

logger = logging.getLogger(__name__)

TURN = 64
"""The largest number of transactions of a partition that are handed out before another partition has its turn."""

_LEAST_BYTES = 64 << 10

OpenFeed = Callable[[int, int, int | None, Share | None], Feed]
"""A function that opens the feed of a partition after a transaction, possibly up to another transaction."""


def share_of(partition_count: int, options: ClientOptions) -> Share | None:
    """The share of each of ``count`` partitions in the data read ahead; ``None``: the limits of a single feed.

    Together they have the limits of a single feed, but each has at least one read. (More data would also cost more
    time: waiting data does not stay in the caches of the processor.)
    """
    if partition_count < 2:
        return None
    together_bytes = options.list_requests * options.list_request_bytes
    return Share(1, min(options.list_request_bytes, max(_LEAST_BYTES, together_bytes // partition_count)))


class _Turn(NamedTuple):
    feed: Feed
    records: list[Record]
    offset: int


class MergedFeed:
    """The committed transactions of several partitions, and future ones, one by one: ``async for`` over all of them.

    The transactions of each partition are in order. Partitions with data are served in turn. No partition waits for a
    partition whose server does not answer: the latter is in :attr:`obstacles`, and its reads are repeated for ever. For
    each partition there is at most one bulk read under way, or its result, so the memory is bounded. A slow consumer
    delays only itself. Closed at the end of its loop, by :meth:`aclose`, as an asynchronous context manager, and with
    its client.

    Examples:
        ```python
        async with client.feed_all([0, 1], after=-1) as feed:
            transaction = await anext(feed)
            print(transaction.partition_id, transaction.transaction_id, transaction.data)
            print(feed.positions, feed.obstacles)
        ```
    """

    def __init__(self, open_feed: OpenFeed, options: ClientOptions) -> None:
        """A feed without partitions; see :meth:`add`."""
        self.closed = False
        self.obstacles: dict[int, WaltzError] = {}
        """The reasons why partitions cannot be read at present, by their ids."""
        self._open_feed = open_feed
        self._options = options
        self._feeds: dict[int, Feed] = {}
        self._leaving: dict[int, Feed] = {}
        self._ready: deque[_Turn] = deque()
        self._paused: set[int] = set()
        self._held: dict[int, _Turn] = {}
        self._at_hand: _Turn | None = None
        self._rest: Iterator[Record] = iter(())
        self._given: tuple[Feed, list[Record]] | None = None
        self._ends: dict[int, tuple[int, bytes]] = {}
        self._failure: BaseException | None = None
        self._endless = False
        self._changed = Signal()
        self._loop = asyncio.get_running_loop()
        self._consumer: object = None

    # Partitions

    def add(
        self,
        partition_id: int,
        after: int,
        until: int | None = None,
        share: Share | None = None,
        request_id: bytes = b"",
        since_ms: int | None = None,
    ) -> None:
        """Begin to read a partition. ``share`` limits the data read ahead; ``None``: the limits of a single feed.

        With a ``request_id``, the transaction ``after`` has to have that id; otherwise reads raise ``OtherLogError``.
        With ``since_ms``, the partition is read since that time instead of ``after`` a transaction.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
            ValueError: ``after`` is below -1.
            TypeError: Ids are not integers.
        """
        feed = self._open_feed(partition_id, after, until, share).expect(request_id)
        if since_ms is not None:
            feed.since(since_ms)
        self._feeds[partition_id] = feed
        self._endless = self._endless or until is None
        self._read_on(feed)

    async def withdraw(self, partition_id: int) -> Feed:
        """Stop handing out a partition. Returns when the consumer is done with the transactions of the partition."""
        feed = self._leaving[partition_id] = self._feeds.pop(partition_id)
        self._take_back(partition_id)
        await feed.passed(self._last_at_hand(feed))
        if self._leaving.get(partition_id) is feed:
            del self._leaving[partition_id]
        await feed.aclose()
        return feed

    def drop(self, partition_id: int) -> None:
        """Stop handing out a partition, and drop its state."""
        self._take_back(partition_id)
        if self._given is not None and self._given[0].partition_id == partition_id:
            self._given = None
        for feeds in (self._feeds, self._leaving):
            feed = feeds.pop(partition_id, None)
            if feed is not None:
                self._loop.create_task(feed.aclose())

    def _take_back(self, partition_id: int) -> None:
        self._ready = deque(turn for turn in self._ready if turn.feed.partition_id != partition_id)
        self._held.pop(partition_id, None)
        self._paused.discard(partition_id)
        self.obstacles.pop(partition_id, None)
        turn = self._at_hand
        if turn is not None and turn.feed.partition_id == partition_id:
            self._at_hand = turn._replace(offset=len(turn.records))
            self._give_up_rest()

    def _give_up_rest(self) -> None:
        for _ in self._rest:  # all loops over it have the same iterator
            pass

    def _last_at_hand(self, feed: Feed) -> int:
        """The last transaction that was handed to the consumer, or that it will take from its present turn."""
        given = self._given
        return feed.handed_out if given is None or given[0] is not feed else max(feed.handed_out, given[1][-1][0])

    def pause(self, *partition_ids: int) -> None:
        """Hand out nothing of these partitions until :meth:`resume`. Data already read is kept.

        The rest of the present turn, at most 64 transactions, is still handed out. A partition that leaves and returns
        is not paused any more.

        Raises:
            PartitionNotFoundError: A partition is not read here.
        """
        check_loop(self._loop)
        for partition_id in partition_ids:
            if partition_id not in self._feeds:
                raise PartitionNotFoundError(partition_id)
        self._paused.update(partition_ids)

    def resume(self, *partition_ids: int) -> None:
        """Continue with these partitions."""
        check_loop(self._loop)
        for partition_id in partition_ids:
            self._paused.discard(partition_id)
            turn = self._held.pop(partition_id, None)
            if turn is not None:
                self._ready.append(turn)
        self._changed.notify()

    # Positions

    @property
    def partition_ids(self) -> list[int]:
        """The read partitions."""
        return sorted(self._feeds)

    @property
    def positions(self) -> Mapping[int, int]:
        """By partition, the id of the last transaction that the consumer is done with: the consumer has asked for
        more."""
        return {feed.partition_id: feed.position for feed in self._all()}

    @property
    def handed_out(self) -> Mapping[int, int]:
        """By partition, the id of the last transaction that was handed out; at first, the id after which the partition
        is read."""
        return {feed.partition_id: feed.handed_out for feed in self._all()}

    def request_id(self, partition_id: int, transaction_id: int) -> bytes:
        """The request id of a recently handed out transaction; empty when it is not known any more."""
        turns = [*self._ready, *self._held.values(), *([] if self._at_hand is None else [self._at_hand])]
        for feed, records, _ in turns:
            place = transaction_id - records[0][0]
            if feed.partition_id == partition_id and 0 <= place < len(records):
                return bytes(records[place].req_id)
        last_id, request_id = self._ends.get(partition_id, (NO_TRANSACTION, b""))
        return bytes(request_id) if last_id == transaction_id else b""

    def _all(self) -> list[Feed]:
        return [*self._feeds.values(), *self._leaving.values()]

    @property
    def held_bytes(self) -> int:
        """The size of the data that was read and not handed out yet."""
        turns = [*self._ready, *self._held.values(), *([] if self._at_hand is None else [self._at_hand])]
        return sum(len(record.data) for turn in turns for record in turn.records[turn.offset :])

    # Reading

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the feed."""
        if self.closed:
            return
        self.closed = True
        self._ready.clear()
        self._held.clear()
        self._given = None
        self._give_up_rest()
        self._changed.notify()
        for feed in self._all():
            await feed.aclose()

    async def client_closed(self) -> None:
        """Close the feed with its client."""
        await self.aclose()

    async def __aiter__(self) -> AsyncGenerator[Record, None]:
        try:
            while await self._more(None):
                feed = self.feed_at_hand
                awaiting = feed.awaiting
                for record in self._rest:
                    feed.handed_out = record[0]
                    yield record
                    feed.position = feed.handed_out
                    if awaiting:
                        feed.wake()
        finally:
            await self._loop_left()

    async def _loop_left(self) -> None:
        await self.aclose()

    async def __anext__(self) -> Record:
        """The result of ``anext(feed)``; the feed stays open."""
        record = await self._next(None)
        if record is None:
            raise StopAsyncIteration
        return record

    async def poll(self, timeout_s: float) -> Record | None:
        """The next transaction; ``None`` when there is none within ``timeout_s``, and at the end, if there is one.

        Reads continue meanwhile. Raises as :meth:`next_batch`.
        """
        check_seconds(timeout_s, "timeout_s")
        return await self._next(timeout_s)

    async def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions of one partition that have arrived together; empty when :meth:`poll` returns ``None``.

        The call confirms all earlier transactions.

        Raises:
            ClientAheadError: The log of a partition ends before the transaction after which it is read.
            ClientClosedError: The client or the feed is closed.
        """
        records = await self.turn(asyncio.current_task(), timeout_s)
        if records:
            self.feed_at_hand.take(records)
        return records

    async def _next(self, timeout_s: float | None) -> Record | None:
        self._done(asyncio.current_task())
        if not await self._more(timeout_s):
            return None
        record = next(self._rest)
        self.feed_at_hand.take([record])
        return record

    async def _more(self, timeout_s: float | None) -> bool:
        self._check_held()
        if not length_hint(self._rest):
            self._rest = iter(await self.turn(asyncio.current_task(), timeout_s, TURN))
        return length_hint(self._rest) > 0

    @property
    def feed_at_hand(self) -> Feed:
        """The feed of the partition whose turn it is."""
        assert self._at_hand is not None
        return self._at_hand.feed

    async def turn(
        self, consumer: object, timeout_s: float | None, count: int | None = None, *, whole: bool = False
    ) -> list[Record]:
        """The next transactions of one partition, at most ``count``. The caller decides which of them it hands out.

        ``consumer`` is the task or the thread that asks. With ``whole`` the consumer takes all of them, even when the
        partition is withdrawn meanwhile, and asks again only after it has handed out all of them. If it asks before, it
        has not received them, and gets them again. The list is empty when there are none within ``timeout_s``, and at
        the end, if there is one. Raises ``ClientAheadError`` and ``ClientClosedError`` like :meth:`next_batch`.
        """
        check_loop(self._loop)
        self._check_held()
        rest = self._not_taken() if whole else list(self._rest)
        self._done(consumer)
        if rest:
            return rest
        self._given = None
        self._put_back()
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            if self.closed:
                raise ClientClosedError
            if self._failure is not None:
                raise self._failure
            self._check_held()
            if self._ready:
                turn = self._ready.popleft()
                if turn.feed.partition_id in self._paused:
                    self._held[turn.feed.partition_id] = turn
                    continue
                end = len(turn.records) if count is None else min(len(turn.records), turn.offset + count)
                self._at_hand = turn._replace(offset=end)
                turn.feed.consumer = consumer
                records = turn.records[turn.offset : end]
                self._given = (turn.feed, records) if whole else None
                return records
            if not self._endless and not self._held and all(feed.closed for feed in self._feeds.values()):
                return []
            left_s = None if deadline_s is None else max(deadline_s - self._loop.time(), 0.0)
            if not await self._changed.wait(left_s):
                return []

    def _check_held(self) -> None:
        """Before records are handed out, drop the partitions that another instance may have by now."""

    def _not_taken(self) -> list[Record]:
        if self._given is None:
            return []
        feed, records = self._given
        return records if records[-1][0] > feed.handed_out else []

    def _done(self, consumer: object) -> None:
        self._consumer = consumer
        if self._at_hand is not None:
            self._at_hand.feed.done(consumer)

    def _put_back(self) -> None:
        """End the turn: the rest of its batch waits for the next turn, or the next batch is read."""
        turn, self._at_hand = self._at_hand, None
        if turn is not None:
            place = turn.feed.handed_out - turn.records[0][0]
            if 0 <= place < len(turn.records):
                self._ends[turn.feed.partition_id] = turn.records[place][:2]
        if turn is None or self.closed or self._feeds.get(turn.feed.partition_id) is not turn.feed:
            return
        if turn.offset < len(turn.records):
            self._ready.append(turn)
        else:
            self._read_on(turn.feed)

    def _read_on(self, feed: Feed) -> None:
        if not self.closed and self._feeds.get(feed.partition_id) is feed:
            feed.read_on(self._consumer).add_done_callback(functools.partial(self._read, feed))

    def _read(self, feed: Feed, task: "asyncio.Task[list[Record]]") -> None:
        partition_id = feed.partition_id
        if self.closed or self._feeds.get(partition_id) is not feed:
            return
        try:
            records = feed.read_result()
        except (
            ClientAheadError,
            ClientClosedError,
            NotAuthorizedError,
            OtherLogError,
            TimesNotSupportedError,
        ) as error:
            self._failure = error
        except WaltzError as error:
            logger.warning("partition %d cannot be read at present, it is tried again: %s", partition_id, error)
            self.obstacles[partition_id] = error
            self._loop.call_later(self._options.data_retry_maximum_s, self._read_on, feed)
        except BaseException as error:  # a defect: the reader has to get the error
            self._failure = error
        else:
            if self.obstacles.pop(partition_id, None) is not None:
                logger.info("partition %d can be read again", partition_id)
            if records:
                self._ready.append(_Turn(feed, records, 0))
            else:
                self._loop.create_task(feed.aclose()).add_done_callback(lambda _: self._changed.notify())
        self._changed.notify()
