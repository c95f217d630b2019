"""Feeds of several partitions for threads, and consumers behind stored positions."""

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from waltz.blocking.feeds import OneByOne, Turn
from waltz.blocking.loop import Calls
from waltz.client.plain.consumer import Consumer as AsyncConsumer
from waltz.client.plain.merged import MergedFeed as AsyncMergedFeed
from waltz.common.errors import WaltzError
from waltz.common.records import Record

T = TypeVar("T")

_TURN = 512
"""Transactions that a thread takes at a time: each turn costs a round trip to the loop's thread."""


class MergedFeed(OneByOne):
    """Transactions of several partitions, for one thread at a time: in order within each, in turn between them.

    Examples:
        ```python
        with client.feed_all([0, 1], after=-1) as feed:
            transaction = next(feed)
            print(transaction.partition_id, transaction.transaction_id, transaction.data)
        ```
    """

    _feed: AsyncMergedFeed

    def __init__(self, client: Calls, feed: AsyncMergedFeed) -> None:
        super().__init__(client, feed)

    @property
    def partition_ids(self) -> list[int]:
        """The partitions that are read."""
        return self._on_loop(lambda: self._feed.partition_ids)

    @property
    def positions(self) -> Mapping[int, int]:
        """By partition, the id of the last transaction that the consumer is done with."""
        return self._on_loop(lambda: self._feed.positions)

    @property
    def handed_out(self) -> Mapping[int, int]:
        """By partition, the id of the last transaction that the consumer was given; at first the id before it."""
        return self._on_loop(lambda: self._feed.handed_out)

    @property
    def obstacles(self) -> Mapping[int, WaltzError]:
        """Why partitions cannot be read at present, by their ids."""
        return self._on_loop(lambda: dict(self._feed.obstacles))

    def pause(self, *partition_ids: int) -> None:
        """Hand out nothing of these partitions until :meth:`resume`, except for the rest of a turn that was taken."""
        self._on_loop(lambda: self._feed.pause(*partition_ids))

    def resume(self, *partition_ids: int) -> None:
        """Continue with these partitions."""
        self._on_loop(lambda: self._feed.resume(*partition_ids))

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self._client.run(called())

    def _turn(self, timeout_s: float | None, *, whole: bool) -> Turn | None:
        caller = threading.get_ident()

        async def turn() -> Turn | None:
            records = await self._feed.turn(caller, timeout_s, None if whole else _TURN, whole=True)
            return Turn(self._feed.feed_at_hand, records) if records else None

        return self._client.run(turn())


class Consumer(MergedFeed):
    """Transactions of several partitions behind stored positions, for one thread at a time; used with ``with``.

    Leaving a loop over it does not close it.

    Examples:
        ```python
        with client.consume(waltz.FilePositions(f"{directory}/mails.positions")) as consumer:
            batch = consumer.next_batch(timeout_s=1.0)
            print(len(batch), "transactions of one partition")
            consumer.commit()  # a restart goes on behind them
        ```
    """

    _feed: AsyncConsumer

    def __init__(self, client: Calls, consumer: AsyncConsumer) -> None:
        super().__init__(client, consumer)

    @property
    def committed(self) -> Mapping[int, int]:
        """By partition, the position that is stored, as far as this consumer knows."""
        return self._on_loop(lambda: self._feed.committed)

    def commit(self, positions: Mapping[int, int] | None = None) -> None:
        """Confirm that the work on all transactions handed out is safe: a restart continues after them."""
        self._client.run(self._feed.commit(positions))

    def __enter__(self) -> Self:
        self._client.run(self._feed.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._taken = None
        if not self._client.closed:
            self._client.run(self._feed.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Record]:
        self._done()
        return super().__iter__()

    def _loop_left(self) -> None:
        """Nothing: a later loop continues where this one was left."""

    def _loop_dropped(self) -> None:
        """Nothing, as in :meth:`_loop_left`."""
