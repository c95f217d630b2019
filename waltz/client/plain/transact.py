"""Reads, decides and appends, repeated until no other append conflicts with the decision."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from waltz.client.builder import Append
from waltz.client.decisions import Basis, Choice
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.errors import InvalidOperationError, LockConflict, NotAppendedError
from waltz.client.plain.feed import Feed, PartitionFeeds, present_consumer, seen
from waltz.client.retry_policy import RetryPolicy

_PACE = RetryPolicy()


class Transact:
    """The steps of one call of the plain face. The caller makes the decisions between the steps."""

    def __init__(
        self,
        append: Callable[[Append, int], Awaitable[int]],
        partition_id: int,
        partition: StreamPartition,
        feeds: PartitionFeeds | None,
        *,
        feed: Feed | None,
        reads_log: bool,
        deadline_s: float,
        timeout_s: float,
        max_attempts: int | None,
    ) -> None:
        """``append`` is called with a transaction and its high-water mark. It returns the id, and keeps the
        deadline."""
        self._append = append
        self._partition_id = partition_id
        self._partition = partition
        self._feeds = feeds
        self._feed = feed
        self._reads_log = reads_log
        self._deadline_s = deadline_s
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._attempt = 0
        self._guessed = False

    async def basis(self) -> Basis:
        """The basis of the next decision."""
        self._attempt += 1
        mark = seen(self._followers())
        self._guessed = mark is None and not self._reads_log
        return Basis(self._partition_id, self._partition.feed.applied if mark is None else mark, self._attempt)

    async def decision(self, awaitable: Awaitable[Choice]) -> Choice:
        """Wait for a decision within the time limit."""
        try:
            async with asyncio.timeout_at(self._deadline_s) as limit:
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NotAppendedError(
                f"nothing was decided within {self._timeout_s:g} s; the transaction is not in the log"
            ) from error

    async def append(self, basis: Basis, chosen: Append) -> int | None:
        """Append a decision. Returns ``None`` after a conflict, when the state is new enough for another decision."""
        if self._guessed and (chosen.write_locks or chosen.read_locks):
            raise TypeError(
                f"what decide rests on is not known, so the locks cannot be checked: this client has no open feed of "
                f"partition {self._partition_id} without `until`; pass the feed that keeps the state (feed=), or "
                "reads_log=True if decide reads the log up to basis.high_water_mark"
            )
        try:
            return await self._append(chosen, basis.high_water_mark)
        except LockConflict as conflict:
            if self._attempt == self._max_attempts:
                raise
            await self._catch_up(conflict)
            return None

    def _followers(self) -> list[Feed]:
        """The feeds whose loops keep the state for decisions."""
        if self._reads_log:
            return []
        if self._feed is not None:
            return [self._feed]
        return [] if self._feeds is None else self._feeds.endless

    async def _catch_up(self, conflict: LockConflict) -> None:
        """Return when the state includes the conflicting transaction. Raises ``conflict`` if it never will."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                if not self._reads_log:
                    followers = self._followers()
                    consumer = present_consumer()
                    for feed in followers:
                        if feed.consumer != consumer and not await feed.passed(conflict.transaction_id):
                            raise conflict
                    mark = seen(followers)
                    if not self._guessed and (mark is None or mark < conflict.transaction_id):
                        raise conflict  # only the caller could continue reading, and the caller is waiting here
                await asyncio.sleep(_PACE.delay_s(self._attempt, random.random()))
        except TimeoutError:
            raise NotAppendedError(
                f"no outcome within {self._timeout_s:g} s: the feed has not come to transaction "
                f"{conflict.transaction_id}, which was in the way; the transaction is not in the log"
            ) from conflict


def check_followed(feed: Feed | None, partition_id: int) -> None:
    """Raise ``InvalidOperationError`` for a feed of another partition."""
    if feed is not None and feed.partition_id != partition_id:
        raise InvalidOperationError(f"the feed is one of partition {feed.partition_id}, not of {partition_id}")
