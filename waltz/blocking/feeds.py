"""Feeds for threads: the log of one partition, and what all of them have in common."""

import threading
from collections.abc import Iterator
from operator import length_hint
from types import TracebackType
from typing import Self

from waltz.blocking.loop import Calls
from waltz.client.arguments import check_seconds
from waltz.client.plain.feed import Feed
from waltz.client.plain.merged import MergedFeed as AsyncMergedFeed
from waltz.common.records import Record


class Reading:
    """Reads for one thread at a time. Closed when its loop is left or it is closed; it has nothing that runs."""

    def __init__(self, client: Calls, feed: Feed | AsyncMergedFeed) -> None:
        self._client = client
        self._feed = feed

    def close(self) -> None:
        """Read no more."""
        if not self._feed.closed and not self._client.closed:
            self._client.run(self._feed.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class OneByOne(Reading):
    """Hands out what comes in turns, each of one partition."""

    def __init__(self, client: Calls, feed: Feed | AsyncMergedFeed) -> None:
        super().__init__(client, feed)
        self._rest: Iterator[Record] = iter(())
        self._at_hand: Feed | None = None
        """That of the partition whose turn it is."""

    def _turn(self, timeout_s: float | None, *, whole: bool) -> list[Record]:
        """The next transactions of one partition, all that came together if ``whole``."""
        raise NotImplementedError

    def close(self) -> None:
        """Read no more."""
        self._rest = iter(())
        super().close()

    def __iter__(self) -> Iterator[Record]:
        try:
            while self._more(None):
                feed = self._at_hand
                assert feed is not None
                for record in self._rest:
                    feed.handed_out = record[0]
                    yield record
                    feed.position = feed.handed_out
                    if feed.awaiting:
                        self._client.on_loop(feed.wake)
        finally:
            self._loop_left()

    def _loop_left(self) -> None:
        self.close()

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
        self._done()
        records = list(self._rest) or self._turn(timeout_s, whole=True)
        if records:
            assert self._at_hand is not None
            self._at_hand.take(records)
        return records

    def _next(self, timeout_s: float | None) -> Record | None:
        if length_hint(self._rest):
            self._done()
        elif not self._more(timeout_s):
            return None
        record = next(self._rest)
        assert self._at_hand is not None
        self._at_hand.take([record])
        return record

    def _more(self, timeout_s: float | None) -> bool:
        if not length_hint(self._rest):
            self._rest = iter(self._turn(timeout_s, whole=False))
        return length_hint(self._rest) > 0

    def _done(self) -> None:
        """The consumer is done with what it has in hand."""
        feed = self._at_hand
        if feed is not None:
            feed.position = feed.handed_out
            if feed.awaiting:
                self._client.on_loop(feed.wake)


class OfPartition(Reading):
    """Reads one partition."""

    _feed: Feed

    @property
    def position(self) -> int:
        """Id of the last transaction that its consumer is done with."""
        return self._feed.position

    @property
    def handed_out(self) -> int:
        """Id of the last transaction that its consumer was given; at first the one that the feed begins after."""
        return self._feed.handed_out

    @property
    def source(self) -> Feed:
        """The asynchronous feed behind it."""
        return self._feed

    def _fetch(self, timeout_s: float | None) -> list[Record]:
        return self._client.run(self._feed.fetch(threading.get_ident(), timeout_s))


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
        self._at_hand = feed

    def _turn(self, timeout_s: float | None, *, whole: bool) -> list[Record]:
        return self._fetch(timeout_s)


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
        try:
            while batch := self.next_batch():
                yield batch
        finally:
            self.close()

    def __next__(self) -> list[Record]:
        """What ``next(feed)`` gives; the feed stays open."""
        batch = self.next_batch()
        if not batch:
            raise StopIteration
        return batch

    def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions, as soon as there are any; an empty list at the end, if there is one.

        It is empty, too, when none came within ``timeout_s``. Asking says that the consumer is done with those before:
        ``position`` moves up to them.
        """
        return self._feed.take(self._fetch(timeout_s))
