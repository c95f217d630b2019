"""The feed of one partition: who is to get how many committed transactions, from where on.

A *context* promises a number of transactions behind a position to one connection and ends with a message of its own
(the answer to a mount, or FeedSuspended). Contexts are in one of three places:

* at the tip: everything committed has been sent. A committed batch goes to all of them as one bytes object, cut only
  where a promise ends;
* behind: served in runs from the feed cache, one run per context and turn of the loop, or, on a miss, from the
  storages by one task. Neither makes the tip wait;
* paused: the channel has too much unsent; looked at again when it is writable.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable

from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.records import RecordHeader
from waltz.common.tasks import owned, restarting
from waltz.common.wire.client_server import encode_feed_data
from waltz.server.caches import FEED_BLOCK_COUNT, FeedCache
from waltz.server.feed_frames import FEED_FRAME_SIZE_BYTES, FEED_VERSION, with_version
from waltz.server.link import ClientLink

logger = logging.getLogger(__name__)

MAX_CONTEXTS_PER_CONNECTION = 64
"""Feed contexts that one connection may have in one partition; a client of the protocol needs two."""

RETRY_INITIAL_S = 0.05
RETRY_MAXIMUM_S = 5.0

ReadHeaders = Callable[[int, int], Awaitable[list[RecordHeader]]]
"""Reads the headers of at most so many committed transactions from an id on; raises ``WaltzError``."""


class FeedContext:
    """A promise: ``remaining`` transactions behind ``position``, then the frame ``terminator``."""

    __slots__ = ("link", "position", "remaining", "terminator")

    def __init__(self, link: ClientLink, position: int, remaining: int, terminator: bytes) -> None:
        self.link = link
        self.position = position
        self.remaining = remaining
        self.terminator = terminator


class Feed:
    """All contexts of one partition."""

    def __init__(
        self,
        partition_id: int,
        cache: FeedCache,
        read_headers: ReadHeaders,
        on_miss: Callable[[], None],
        random_source: random.Random,
    ) -> None:
        self.high_water_mark = NO_TRANSACTION
        self.contexts_added = 0
        self.catch_up_added = 0
        self._partition_id = partition_id
        self._cache = cache
        self._read_headers = read_headers
        self._on_miss = on_miss
        self._random = random_source
        self._tip: list[FeedContext] = []
        self._behind: deque[FeedContext] = deque()
        self._missing: deque[FeedContext] = deque()
        self._reading: FeedContext | None = None
        self._paused: list[FeedContext] = []
        self._pump_handle: asyncio.Handle | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def contexts_removed(self) -> int:
        """How many of the contexts added are finished or dropped."""
        return self.contexts_added - len(self._contexts())

    @property
    def catch_up_removed(self) -> int:
        """How many of the contexts that had to read from the storages wait for that no more."""
        return self.catch_up_added - len(self._missing) - (self._reading is not None)

    def start(self) -> None:
        """Start the task that reads what the cache has not got."""
        what = f"the feed of partition {self._partition_id}"
        self._task = owned(restarting(self._read_missing_or_fail, what), what)

    async def close(self) -> None:
        """Drop all contexts; nothing is sent any more."""
        self._drop(lambda context: True)
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def add(self, context: FeedContext) -> None:
        """Take a promise of at least one transaction, not ahead of the high-water mark.

        Raises ``ProtocolError`` when the connection has too many already.
        """
        if sum(other.link is context.link for other in self._contexts()) >= MAX_CONTEXTS_PER_CONNECTION:
            raise ProtocolError(f"more than {MAX_CONTEXTS_PER_CONNECTION} feeds of partition {self._partition_id}")
        self.contexts_added += 1
        self._place(context)

    def forget(self, link: ClientLink) -> None:
        """Drop the contexts of a connection that has closed."""
        self._drop(lambda context: context.link is link)

    def writable(self, link: ClientLink) -> None:
        """Go on with the contexts of a connection that can be written to again."""
        paused, self._paused = self._paused, []
        for context in paused:
            if context.link is link:
                self._place(context)
            else:
                self._paused.append(context)

    def committed(self, first: int, count: int, frames: bytes) -> None:
        """Transactions ``first`` and its successors were committed; ``frames`` are in the cache already."""
        if first != self.high_water_mark + 1:
            self.advance(first + count - 1)
            return
        before = self.high_water_mark
        self.high_water_mark = before + count
        framed = {FEED_VERSION: frames}
        stay = True
        for context in self._tip:
            channel = context.link.channel
            if channel.writable and context.remaining > count:
                version = channel.version
                if version not in framed:
                    framed[version] = with_version(frames, version)
                channel.send(framed[version])
                context.position += count
                context.remaining -= count
            else:
                stay = False
        if not stay:
            self._leave_tip(before, frames)

    def advance(self, high_water_mark: int) -> None:
        """The mark moved and there are no frames at hand: who was at the tip is behind now.

        A mark that moved down is a loss of committed transactions at the storages; connections that were fed more
        than it are closed, so that their clients mount again and are told.
        """
        self.high_water_mark = high_water_mark
        for context in self._contexts():
            if context.position > high_water_mark:
                context.link.fail(WaltzError(f"partition {self._partition_id} lost transactions"))
        tip, self._tip = self._tip, []
        for context in tip:
            self._place(context)

    def _leave_tip(self, before: int, frames: bytes) -> None:
        """Sort out the contexts that a committed batch did not go to as a whole."""
        tip, self._tip = self._tip, []
        for context in tip:
            if context.position != before:
                self._tip.append(context)
            elif context.link.channel.closed or not context.link.channel.writable:
                self._place(context)
            else:
                self._deliver(context, frames[: context.remaining * FEED_FRAME_SIZE_BYTES])

    def _deliver(self, context: FeedContext, frames: bytes) -> None:
        """Send the next frames of a context, and the terminator when the promise is kept; find its new place."""
        channel = context.link.channel
        count = len(frames) // FEED_FRAME_SIZE_BYTES
        channel.send(with_version(frames, channel.version))
        context.position += count
        context.remaining -= count
        if context.remaining:
            self._place(context)
        else:
            channel.send(context.terminator)

    def _place(self, context: FeedContext) -> None:
        channel = context.link.channel
        if channel.closed or context.position > self.high_water_mark:
            return
        if not channel.writable:
            self._paused.append(context)
            context.link.paused[self] = None
        elif context.position == self.high_water_mark:
            self._tip.append(context)
        else:
            self._behind.append(context)
            if self._pump_handle is None:
                self._pump_handle = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Serve one run from the cache to each context that is behind."""
        self._pump_handle = None
        for _ in range(len(self._behind)):
            context = self._behind.popleft()
            if context.link.channel.closed or not context.link.channel.writable:
                self._place(context)
                continue
            wanted = min(context.remaining, self.high_water_mark - context.position)
            frames = self._cache.get(self._partition_id, context.position + 1, wanted)
            if frames:
                self._deliver(context, frames)
            else:
                self._on_miss()
                self.catch_up_added += 1
                self._missing.append(context)
                self._wake.set()

    async def _read_missing_or_fail(self) -> None:
        """A defect breaks the connections that are fed, whose clients mount again: what they were sent is uncertain."""
        try:
            await self._read_missing()
        except Exception as error:
            contexts = self._contexts()
            self._drop(lambda context: True)
            for context in contexts:
                context.link.fail(WaltzError(f"the feed of partition {self._partition_id} has failed: {error!r}"))
            raise

    async def _read_missing(self) -> None:
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, self._random)
        while True:
            await self._wake.wait()
            while self._missing:
                context = self._reading = self._missing.popleft()
                try:
                    frames = await self._frames_for(context)
                except (WaltzError, OSError) as error:
                    logger.warning(
                        "partition %d: the feed from transaction %d on cannot be read, trying again: %s",
                        self._partition_id,
                        context.position + 1,
                        error,
                    )
                    self._missing.append(context)
                    self._reading = None
                    await asyncio.sleep(backoff.next_delay_s())
                    continue
                backoff.reset()
                if self._reading is context:
                    self._reading = None
                    self._resume(context, frames)
            self._wake.clear()

    async def _frames_for(self, context: FeedContext) -> bytes:
        """The frames behind the context's position, to the end of their block; read and kept unless in the cache."""
        first = context.position + 1
        count = min(FEED_BLOCK_COUNT - first % FEED_BLOCK_COUNT, self.high_water_mark - context.position)
        frames = self._cache.get(self._partition_id, first, count)
        if frames or count <= 0 or context.link.channel.closed:
            return frames
        headers = (await self._read_headers(first, count))[:count]
        if not headers or any(found.transaction_id != first + offset for offset, found in enumerate(headers)):
            raise WaltzError(f"the storages have not got transaction {first}, which is committed")
        frames = encode_feed_data(
            FEED_VERSION, [(found.req_id, found.transaction_id, found.header) for found in headers]
        )
        self._cache.add(self._partition_id, first, frames)
        return frames

    def _resume(self, context: FeedContext, frames: bytes) -> None:
        """Send what was read, so that even a tiny cache lets the context move on; then it is like any other."""
        channel = context.link.channel
        if frames and channel.writable and not channel.closed:
            self._deliver(context, frames[: context.remaining * FEED_FRAME_SIZE_BYTES])
        else:
            self._place(context)

    def _contexts(self) -> list[FeedContext]:
        reading = [] if self._reading is None else [self._reading]
        return [*self._tip, *self._behind, *self._missing, *self._paused, *reading]

    def _drop(self, unwanted: Callable[[FeedContext], bool]) -> None:
        self._tip = [context for context in self._tip if not unwanted(context)]
        self._paused = [context for context in self._paused if not unwanted(context)]
        self._behind = deque(context for context in self._behind if not unwanted(context))
        self._missing = deque(context for context in self._missing if not unwanted(context))
        if self._reading is not None and unwanted(self._reading):
            self._reading = None
