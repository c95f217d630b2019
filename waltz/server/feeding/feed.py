"""The feed of one partition: the committed transactions that each connection gets.

A *context* promises a number of transactions behind a position to one connection and ends with a message of its own
(the answer to a mount, or FeedSuspended). Contexts are in one of three places:

* at the tip: everything committed has been sent. A committed batch goes to all of them as one bytes object, cut only
  where a promise ends;
* behind: served in runs from the feed cache, one run per context and turn of the loop, or, on a miss, from the
  storages by one task. Neither makes the tip wait;
* paused: the channel has too many unsent bytes; continued when it is writable.

A context of *marks* promises the high-water mark instead of transactions, and has no end. It is at the tip, apart from
the others, when it was told the latest mark, and behind otherwise; nothing is read for it.

No turn of the loop serves more than :data:`MAX_SERVED_PER_TURN` contexts: of a larger number at the tip, the rest is
behind for some turns, and served from the cache. Every context knows its place, so that its removal costs the same for
any number of contexts.
"""

import asyncio
import logging
import random
import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.metrics.registry import Histogram
from waltz.common.net.backoff import Backoff
from waltz.common.records import RecordHeader
from waltz.common.tasks import owned, restarting
from waltz.common.wire.client_server import encode, encode_feed_data
from waltz.common.wire.mark_feed import MarkAdvanced
from waltz.server.feeding.caches import FEED_BLOCK_COUNT, FeedCache
from waltz.server.feeding.feed_frames import FEED_FRAME_SIZE_BYTES, FEED_VERSION, with_version
from waltz.server.requests.link import ClientLink

logger = logging.getLogger(__name__)

MAX_CONTEXTS_PER_CONNECTION = 64
"""Feed contexts that one connection may have in one partition; a client of the protocol needs two."""

MAX_SERVED_PER_TURN = 1000
"""Limit of contexts that are served in one turn of the loop."""

_ENDLESS = 1 << 63
_LONG = struct.Struct(">q")

RETRY_INITIAL_S = 0.05
RETRY_MAXIMUM_S = 5.0

ReadHeaders = Callable[[int, int], Awaitable[list[RecordHeader]]]
"""Reads the headers of a number of committed transactions at most, from an id on; raises ``WaltzError``."""


Notices = Mapping[ClientLink, Sequence[tuple[int, bytes]]]
"""Frames for the feed of a connection, each after the transaction of an id, in order of the ids."""

_NO_NOTICES: Notices = {}


class FeedContext:
    """A promise: ``remaining`` transactions after ``position``, then the frame ``terminator``.

    The last ``spare`` of them may be left out, and are left out at the tip: a client that asks again before them is fed
    every batch as a whole. Otherwise the end of a batch would follow its beginning a round trip later, with all of the
    client's answers, for ever after.
    """

    __slots__ = ("link", "of_marks", "place", "position", "remaining", "spare", "terminator")

    def __init__(
        self,
        link: ClientLink,
        position: int,
        remaining: int,
        terminator: bytes,
        spare: int = 0,
        *,
        of_marks: bool = False,
    ) -> None:
        self.link = link
        self.position = position
        self.remaining = remaining
        self.terminator = terminator
        self.spare = spare
        self.of_marks = of_marks
        self.place: dict[FeedContext, None] | None = None
        """Where the feed keeps it, if not in its hand."""


def marks_context(link: ClientLink, position: int) -> FeedContext:
    """A context that is told every high-water mark above ``position``."""
    return FeedContext(link, position, _ENDLESS, b"", of_marks=True)


class Feed:
    """All contexts of one partition."""

    def __init__(
        self,
        partition_id: int,
        cache: FeedCache,
        read_headers: ReadHeaders,
        on_miss: Callable[[], None],
        random_source: random.Random,
        lag: Histogram,
    ) -> None:
        """``lag`` observes the number of transactions that a connection lacks after each send."""
        self.high_water_mark = NO_TRANSACTION
        self._first_available = 0
        self.contexts_added = 0
        self.contexts_removed = 0
        """How many of the contexts added are finished or dropped."""
        self.catch_up_added = 0
        self._partition_id = partition_id
        self._told_req_id = ReqId.of(-1, -1, partition_id, -1)
        self._mark_heads: dict[int, bytes] = {}  # by version, the frame of a mark without its last field, the mark
        self._cache = cache
        self._read_headers = read_headers
        self._on_miss = on_miss
        self._random = random_source
        self._lag = lag
        self._of_link: dict[ClientLink, dict[FeedContext, None]] = {}
        self._tip: dict[FeedContext, None] = {}
        self._told: dict[FeedContext, None] = {}  # the contexts of marks at the tip
        self._behind: OrderedDict[FeedContext, None] = OrderedDict()
        self._missing: OrderedDict[FeedContext, None] = OrderedDict()
        self._reading: FeedContext | None = None
        self._paused: dict[FeedContext, None] = {}
        self._pump_handle: asyncio.Handle | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def catch_up_removed(self) -> int:
        """Number of contexts that no longer wait for a read from the storages."""
        return self.catch_up_added - len(self._missing) - (self._reading is not None)

    @property
    def lag_transactions(self) -> int:
        """The largest number of promised committed transactions that a connection has not been sent."""
        mark = self.high_water_mark
        return max([min(mark - each.position, each.remaining) for each in self._contexts_behind()], default=0)

    @property
    def position_behind(self) -> int | None:
        """The smallest position of the connections that have not been sent promised transactions; ``None``: there are
        none."""
        mark = self.high_water_mark
        lagging = [each.position for each in self._contexts_behind() if each.remaining > 0 and each.position < mark]
        return min(lagging, default=None)

    def _contexts_behind(self) -> list[FeedContext]:
        behind = [context for place in (self._behind, self._missing, self._paused) for context in place]
        if self._reading is not None:
            behind.append(self._reading)
        return behind

    def start(self) -> None:
        """Start the task that reads frames that are not cached."""
        what = f"the feed of partition {self._partition_id}"
        self._task = owned(restarting(self._read_missing_or_fail, what), what)

    async def close(self) -> None:
        """Drop all contexts."""
        for link in list(self._of_link):
            self.forget(link)
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def add(self, context: FeedContext) -> None:
        """Take a promise of at least one transaction, or of marks, not ahead of the high-water mark.

        It replaces an earlier promise of marks. Raises ``ProtocolError`` when the connection has too many already, or
        when the transactions are trimmed.
        """
        if self._wants_trimmed(context):
            raise ProtocolError(f"partition {self._partition_id} begins with transaction {self._first_available}")
        for earlier in [known for known in self._of_link.get(context.link, ()) if known.of_marks]:
            self._end(earlier)
        contexts = self._of_link.setdefault(context.link, {})
        if len(contexts) >= MAX_CONTEXTS_PER_CONNECTION:
            raise ProtocolError(f"more than {MAX_CONTEXTS_PER_CONNECTION} feeds of partition {self._partition_id}")
        contexts[context] = None
        self.contexts_added += 1
        self._place(context)

    def trim(self, first_available: int) -> None:
        """The transactions before this one are trimmed. Connections that still need them are closed, so that their
        clients mount again and get the error."""
        self._first_available = first_available
        for contexts in list(self._of_link.values()):
            for context in list(contexts):
                if self._wants_trimmed(context):
                    context.link.fail(WaltzError(f"partition {self._partition_id} begins with {first_available} now"))

    def _wants_trimmed(self, context: FeedContext) -> bool:
        return context.position + 1 < self._first_available and not context.of_marks

    def forget(self, link: ClientLink) -> None:
        """Drop the contexts of a connection that has closed, or whose client begins anew."""
        for context in list(self._of_link.get(link, ())):
            if context is self._reading:
                self._reading = None
            self._end(context)

    def writable(self, link: ClientLink) -> None:
        """Continue the contexts of a connection that is writable again."""
        for context in list(self._of_link.get(link, ())):
            if context.place is self._paused:
                self._place(context)

    def committed(self, first: int, count: int, frames: bytes, notices: Notices = _NO_NOTICES) -> None:
        """Transactions ``first`` and its successors were committed; ``frames`` are in the cache already.

        Every notice is sent now: into the feed, if its connection is at the tip, or else before the rest of these
        transactions for that connection.
        """
        if first != self.high_water_mark + 1:
            self.advance(first + count - 1)
            _send_all(notices)
            return
        before = self.high_water_mark
        self.high_water_mark = before + count
        framed = {FEED_VERSION: frames}
        contexts: Collection[FeedContext] = self._tip
        if len(self._tip) > MAX_SERVED_PER_TURN:
            contexts = self._first_at_the_tip()
        others: list[FeedContext] = []
        if notices:
            others = [context for context in contexts if context.link in notices]
            contexts = [context for context in contexts if context.link not in notices]
        apart = len(others)
        for context in contexts:
            channel = context.link.channel
            if channel.writable and context.remaining - count > context.spare:
                version = channel.version
                if version not in framed:
                    framed[version] = with_version(frames, version)
                channel.send(framed[version])
                context.position += count
                context.remaining -= count
            else:
                others.append(context)
        served = len(contexts) - len(others) + apart
        if served:
            self._lag.observe(0, served)
        if others:
            notices = self._serve_apart(others, before, frames, notices)
        if notices:
            _send_all(notices)
        if self._told:
            self._tell_all()

    def advance(self, high_water_mark: int) -> None:
        """The mark moved without frames at hand: contexts at the tip are behind now.

        A mark that moved down is a loss of committed transactions at the storages; connections that were fed beyond it
        are closed, so that their clients mount again and get the error.
        """
        self.high_water_mark = high_water_mark
        for contexts in list(self._of_link.values()):
            for context in list(contexts):
                if context.position > high_water_mark:
                    context.link.fail(WaltzError(f"partition {self._partition_id} lost transactions"))
        for context in [*self._tip, *self._told]:
            self._place(context)

    def _tell_all(self) -> None:
        """Tell the mark to the contexts of marks at the tip, within the limit of one turn; the rest is behind."""
        frames: dict[int, bytes] = {}
        for served, context in enumerate(list(self._told)):
            if served < MAX_SERVED_PER_TURN and context.link.channel.writable:
                self._tell(context, frames)
            else:
                self._place(context)

    def _tell(self, context: FeedContext, frames: dict[int, bytes]) -> None:
        """Send the latest mark; ``frames`` has its frame in each version used so far."""
        channel = context.link.channel
        frame = frames.get(channel.version)
        if frame is None:
            head = self._mark_heads.get(channel.version)
            if head is None:
                frame = encode(MarkAdvanced(self._told_req_id, 0), channel.version)
                head = self._mark_heads[channel.version] = frame[: -_LONG.size]
            frame = frames[channel.version] = head + _LONG.pack(self.high_water_mark)
        channel.send(frame)
        context.position = self.high_water_mark

    def _first_at_the_tip(self) -> list[FeedContext]:
        """The contexts that one turn serves; the others continue as if they had been behind."""
        tip = list(self._tip)
        for context in tip[MAX_SERVED_PER_TURN:]:
            self._place(context)
        return tip[:MAX_SERVED_PER_TURN]

    def _serve_apart(self, contexts: list[FeedContext], before: int, frames: bytes, notices: Notices) -> Notices:
        """Serve the contexts at the tip that do not get a committed batch as a whole; returns the remaining notices."""
        left = dict(notices)
        for context in contexts:
            link = context.link
            if link.channel.closed or not link.channel.writable:
                self._place(context)
                continue
            promised = frames[: context.remaining * FEED_FRAME_SIZE_BYTES]
            behind_ids = left.pop(link, ())
            self._deliver(context, promised, [(transaction_id - before, frame) for transaction_id, frame in behind_ids])
        return left

    def _deliver(self, context: FeedContext, frames: bytes, notices: Sequence[tuple[int, bytes]] = ()) -> None:
        """Send the next frames of a context, and the terminator when the promise is kept; find its new place.

        Each notice is sent after its number of frames, or after all if there are fewer.
        """
        channel = context.link.channel
        count = len(frames) // FEED_FRAME_SIZE_BYTES
        frames = with_version(frames, channel.version)
        channel.send(_woven(frames, notices) if notices else frames)
        context.position += count
        context.remaining -= count
        self._lag.observe(self.high_water_mark - context.position)
        at_tip = context.position == self.high_water_mark
        if context.remaining > (context.spare if at_tip else 0):
            self._place(context)
        else:
            channel.send(context.terminator)
            self._end(context)

    def _place(self, context: FeedContext) -> None:
        """Find the new place of a context."""
        channel = context.link.channel
        if channel.closed or context.position > self.high_water_mark:
            self._end(context)
        elif not channel.writable:
            self._move(context, self._paused)
            context.link.paused[self] = None
        elif context.position == self.high_water_mark:
            self._move(context, self._told if context.of_marks else self._tip)
        else:
            self._move(context, self._behind)
            if self._pump_handle is None:
                self._pump_handle = asyncio.get_running_loop().call_soon(self._pump)

    def _move(self, context: FeedContext, place: dict[FeedContext, None] | None) -> None:
        if context.place is not None:
            del context.place[context]
        if place is not None:
            place[context] = None
        context.place = place

    def _end(self, context: FeedContext) -> None:
        """The context is finished or dropped."""
        self._move(context, None)
        contexts = self._of_link.get(context.link, {})
        if context in contexts:
            del contexts[context]
            self.contexts_removed += 1
        if not contexts:
            self._of_link.pop(context.link, None)

    def _pump(self) -> None:
        """Serve one run from the cache to each context that is behind, within the limit of one turn."""
        self._pump_handle = None
        marks: dict[int, bytes] = {}
        for _ in range(min(len(self._behind), MAX_SERVED_PER_TURN)):
            context = next(iter(self._behind))
            if context.link.channel.closed or not context.link.channel.writable:
                self._place(context)
                continue
            if context.of_marks:
                self._tell(context, marks)
                self._place(context)
                continue
            wanted = min(context.remaining, self.high_water_mark - context.position)
            frames = self._cache.get(self._partition_id, context.position + 1, wanted)
            if frames:
                self._deliver(context, frames)
            else:
                self._on_miss()
                self.catch_up_added += 1
                self._move(context, self._missing)
                self._wake.set()
        if self._behind and self._pump_handle is None:
            self._pump_handle = asyncio.get_running_loop().call_soon(self._pump)

    async def _read_missing_or_fail(self) -> None:
        """Read missing frames; a defect closes the fed connections, whose clients mount again, since the sent part is
        uncertain."""
        try:
            await self._read_missing()
        except Exception as error:
            for link in list(self._of_link):
                self.forget(link)
                link.fail(WaltzError(f"the feed of partition {self._partition_id} has failed: {error!r}"))
            raise

    async def _read_missing(self) -> None:
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, self._random)
        while True:
            await self._wake.wait()
            while self._missing:
                context = self._reading = next(iter(self._missing))
                self._move(context, None)
                try:
                    frames = await self._frames_for(context)
                except (WaltzError, OSError) as error:
                    logger.warning(
                        "partition %d: the feed from transaction %d on cannot be read, trying again: %s",
                        self._partition_id,
                        context.position + 1,
                        error,
                    )
                    if self._reading is context:
                        self._move(context, self._missing)
                        self._reading = None
                    await asyncio.sleep(backoff.next_delay_s())
                    continue
                backoff.reset()
                if self._reading is context:
                    self._reading = None
                    self._resume(context, frames)
            self._wake.clear()

    async def _frames_for(self, context: FeedContext) -> bytes:
        """The frames after the context's position, to the end of their block; read and kept unless they are cached."""
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
        """Send the frames that were read, so that a context moves on even with a tiny cache; then it is like any
        other."""
        channel = context.link.channel
        if frames and channel.writable and not channel.closed:
            self._deliver(context, frames[: context.remaining * FEED_FRAME_SIZE_BYTES])
        else:
            self._place(context)


def _woven(frames: bytes, notices: Sequence[tuple[int, bytes]]) -> bytes:
    """``frames`` with each notice after its number of frames, or after all if there are fewer."""
    pieces: list[bytes] = []
    start = 0
    for count, notice in notices:
        end = min(count * FEED_FRAME_SIZE_BYTES, len(frames))
        pieces += (frames[start:end], notice)
        start = end
    return b"".join([*pieces, frames[start:]])


def _send_all(notices: Notices) -> None:
    for link, found in notices.items():
        if not link.channel.closed:
            link.channel.send(b"".join([frame for _, frame in found]))
