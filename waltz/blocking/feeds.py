"""Feeds for threads: the log of one partition, and the base of all feeds."""

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from waltz.blocking.loop import Calls
from waltz.client.arguments import check_seconds
from waltz.client.plain.feed import Feed, present_consumer
from waltz.client.plain.merged import MergedFeed as AsyncMergedFeed
from waltz.common.records import Record


class Turn(NamedTuple):
    """Transactions that a thread has taken over from the loop's thread."""

    feed: Feed
    """The partition's feed."""
    records: list[Record]
    """At least one record, without gaps."""

    @property
    def rest(self) -> list[Record]:
        """The records that were not handed out."""
        return self.records[self.feed.handed_out + 1 - self.records[0][0] :]

    @property
    def following(self) -> Record | None:
        """Index of the first record that was not handed out."""
        index = self.feed.handed_out + 1 - self.records[0][0]
        return self.records[index] if index < len(self.records) else None


class Reading:
    """A feed for one thread at a time. Closed by :meth:`close` or when a loop over it is left; runs nothing itself."""

    def __init__(self, client: Calls, feed: Feed | AsyncMergedFeed) -> None:
        self._client = client
        self._feed = feed

    def close(self) -> None:
        """Read no more."""
        if not self._feed.closed and not self._client.closed:
            self._client.run(self._feed.aclose())

    def _close_soon(self) -> None:
        """Read no more; does not wait for the end."""
        if not self._feed.closed:
            self._client.on_loop(lambda: asyncio.ensure_future(self._feed.aclose()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class OneByOne(Reading):
    """Hands out the records of turns, each of one partition.

    The thread may be interrupted anywhere, even between a turn's arrival and its taking. So taking is one assignment,
    handing out is one, too (to the feed's ``handed_out``), and no other state has the position.
    """

    def __init__(self, client: Calls, feed: Feed | AsyncMergedFeed) -> None:
        super().__init__(client, feed)
        self._taken: Turn | None = None

    def _turn(self, timeout_s: float | None, *, whole: bool) -> Turn | None:
        """The next transactions of one partition; with ``whole``, all that came together.

        Returns the same transactions until one of them was handed out.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Read no more."""
        self._taken = None
        super().close()

    def _close_soon(self) -> None:
        self._taken = None
        super()._close_soon()

    def __iter__(self) -> Iterator[Record]:
        left = self._loop_left
        try:
            while turn := self._more(None):
                feed = turn.feed
                for record in turn.rest:
                    if record[0] <= feed.handed_out:
                        continue  # by a call in the loop
                    feed.handed_out = record[0]
                    yield record
                    feed.position = feed.handed_out
                    if feed.awaiting:
                        self._client.on_loop(feed.wake)
        except GeneratorExit:  # the garbage collector may call it, in the middle of any call, on any thread
            left = self._loop_dropped
            raise
        finally:
            left()

    def _loop_left(self) -> None:
        self.close()

    def _loop_dropped(self) -> None:
        self._close_soon()

    def __next__(self) -> Record:
        """What ``next(feed)`` gives; the feed stays open."""
        record = self._next(None)
        if record is None:
            raise StopIteration
        return record

    def poll(self, timeout_s: float) -> Record | None:
        """The next transaction; ``None`` when there is none within ``timeout_s``, and at the end, if there is one."""
        check_seconds(timeout_s, "timeout_s")
        return self._next(timeout_s)

    def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions of one partition; an empty list at the end and after ``timeout_s``."""
        turn = self._more(timeout_s, whole=True)
        if turn is None:
            return []
        return turn.feed.take(turn.rest)

    def _next(self, timeout_s: float | None) -> Record | None:
        turn = self._more(timeout_s)
        if turn is None:
            return None
        record = turn.following
        assert record is not None
        turn.feed.take([record])
        return record

    def _more(self, timeout_s: float | None, *, whole: bool = False) -> Turn | None:
        """A turn with records that were not handed out; ``None`` at the end and after the time."""
        self._done()
        if self._taken is None or self._taken.following is None:
            self._taken = None
            self._taken = self._turn(timeout_s, whole=whole)
        return self._taken

    def _done(self) -> None:
        """The consumer is done with the records that it was given."""
        if self._taken is not None:
            feed = self._taken.feed
            feed.position = feed.handed_out
            if feed.awaiting:
                self._client.on_loop(feed.wake)


class OfPartition(Reading):
    """Reads one partition."""

    _feed: Feed

    def __init__(self, client: Calls, feed: Feed) -> None:
        super().__init__(client, feed)
        self._fetched: list[Record] = []
        """On the loop: what the thread was given, as long as it may not have it."""

    @property
    def position(self) -> int:
        """Id of the last transaction that its consumer is done with."""
        return self._feed.position

    @property
    def handed_out(self) -> int:
        """Id of the last transaction that its consumer was given; at first the id that the feed begins after."""
        return self._feed.handed_out

    @property
    def source(self) -> Feed:
        """The underlying asynchronous feed."""
        return self._feed

    def _fetch(self, timeout_s: float | None) -> list[Record]:
        return self._client.run(self._fetch_on_loop(timeout_s))

    async def _fetch_on_loop(self, timeout_s: float | None) -> list[Record]:
        feed = self._feed
        caller = present_consumer()
        if self._fetched and self._fetched[-1][0] > feed.handed_out and not feed.closed:
            feed.done(caller)  # the call was interrupted before it had them
            return self._fetched
        self._fetched = []
        self._fetched = await feed.fetch(caller, timeout_s)
        return self._fetched


class TransactionFeed(OneByOne, OfPartition):
    """The transactions of one partition, one by one.

    Examples:
        ```python
        with client.feed(0, after=-1) as feed:
            print(next(feed).data)
            print(feed.poll(timeout_s=1.0))  # None when there is none in time
        ```
    """

    _feed: Feed

    def __init__(self, client: Calls, feed: Feed) -> None:
        super().__init__(client, feed)

    def _turn(self, timeout_s: float | None, *, whole: bool) -> Turn | None:
        records = self._fetch(timeout_s)
        return Turn(self._feed, records) if records else None


class BatchFeed(OfPartition):
    """The transactions of one partition, as many at a time as came together.

    Examples:
        ```python
        for batch in client.feed_batches(0, after=-1, until=client.high_water_mark(0)):
            print(len(batch), "transactions up to", batch[-1].transaction_id)
        ```
    """

    def __init__(self, client: Calls, feed: Feed) -> None:
        super().__init__(client, feed)

    def __iter__(self) -> Iterator[list[Record]]:
        close = self.close
        try:
            while batch := self.next_batch():
                yield batch
        except GeneratorExit:  # as for feeds of single transactions
            close = self._close_soon
            raise
        finally:
            close()

    def __next__(self) -> list[Record]:
        """What ``next(feed)`` gives; the feed stays open."""
        batch = self.next_batch()
        if not batch:
            raise StopIteration
        return batch

    def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions, as soon as there are any; an empty list at the end, if there is one.

        The list is also empty when none came within ``timeout_s``. The call confirms all earlier transactions:
        ``position`` moves up to them.
        """
        return self._feed.take(self._fetch(timeout_s))
