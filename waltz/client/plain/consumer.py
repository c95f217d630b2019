"""Consumers: merged feeds with stored positions, which may share the partitions with other instances."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, NamedTuple, Self

from waltz.client.arguments import check_loop
from waltz.client.engine.environment import Directory
from waltz.client.engine.tasks import Closing, take_all
from waltz.client.errors import ClientClosedError, InvalidOperationError, PositionConflictError
from waltz.client.options import ClientOptions
from waltz.client.plain.feed import Feed
from waltz.client.plain.merged import MergedFeed, OpenFeed, share_of
from waltz.client.positions.interface import Move, PositionStore
from waltz.client.sharing import Membership
from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record

logger = logging.getLogger(__name__)

Start = Literal["beginning", "end"] | datetime | Mapping[int, int]


class Log(NamedTuple):
    """The part of a client that a consumer needs."""

    open_feed: OpenFeed
    cluster_key: Callable[[], Awaitable[str]]
    high_water_mark: Callable[[int], Awaitable[int]]
    offset_at: Callable[[int, datetime], Awaitable[int]]
    directory: Directory
    options: ClientOptions


class Consumer(MergedFeed):
    """The transactions of several partitions behind stored positions.

    Made by ``client.consume`` and used with ``async with``. It is read like a :class:`MergedFeed`, but leaving a loop
    over it does not close it.

    Examples:
        ```python
        async with client.consume(waltz.FilePositions(f"{directory}/mails.positions")) as consumer:
            batch = await consumer.next_batch(timeout_s=1.0)
            print(len(batch), "transactions of one partition")
            await consumer.commit()  # a restart goes on behind them
        ```
    """

    def __init__(
        self,
        log: Log,
        positions: PositionStore,
        partition_ids: Sequence[int],
        *,
        start: Start,
        commit_every_s: float | None,
        share: str | None,
    ) -> None:
        super().__init__(log.open_feed, log.options)
        self._log = log
        self._store = positions
        self._wanted = list(partition_ids)
        self._start = start
        self._commit_every_s = commit_every_s
        self._share_bytes = share_of(len(self._wanted), log.options)
        self._endless = True
        self._opened = False
        self._cluster_key = ""
        self._committed: dict[int, int] = {}
        self._reading: dict[int, Feed] = {}
        self._anew: set[int] = set()
        self._attempted: dict[int, int] = {}
        self._saving = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        self._membership: Membership | None = None
        self._closing = Closing()
        if share is not None:
            self._membership = Membership(
                log.directory.nodes,
                log.directory.root,
                share,
                self._wanted,
                take=lambda partition_id: self._begin([partition_id]),
                give_back=self._give_back,
                lost=self._forget,
                failed=self._fail,
            )

    @property
    def committed(self) -> Mapping[int, int]:
        """By partition, the stored position, as far as this consumer knows."""
        return dict(self._committed)

    async def __aenter__(self) -> Self:
        """Begin to read.

        Raises ``PositionsError``, the errors of the store, ``DeadlineExceededError`` for a first start from the end or
        a time, and ``TimesNotSupportedError`` for a time.
        """
        check_loop(self._loop)
        if self._opened:
            raise InvalidOperationError("a consumer is opened once")
        self._opened = True
        try:
            self._cluster_key = await self._log.cluster_key()
            if self._membership is None:
                await self._begin(self._wanted)
            else:
                self._membership.start()
        except BaseException:
            await self._store.close()
            raise
        if self._commit_every_s is not None:
            self._committing = asyncio.create_task(self._keep_committing(self._commit_every_s), name="commits")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception:
            if kind is None:
                raise
            logger.warning("the positions could not be committed at the end", exc_info=True)

    async def aclose(self) -> None:
        """Make the last automatic commit, if automatic commits are on, give back partitions, and stop reading.

        The last transactions handed out do not count as done; if they are done, call :meth:`commit` before. Raises like
        :meth:`commit`. The close continues to its end even if this call is cancelled. Another call waits for the end.
        """
        await self._closing.run(self._close)

    async def _close(self) -> None:
        positions = self.positions
        await take_all(super().aclose, lambda: self._commit_last(positions), self._leave, self._close_store)

    async def _commit_last(self, positions: Mapping[int, int]) -> None:
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.wait([self._committing])
            await self._save(positions)

    async def _leave(self) -> None:
        if self._membership is not None:
            await self._membership.leave()

    async def _close_store(self) -> None:
        async with self._saving:
            await self._store.close()

    async def client_closed(self) -> None:
        """End reads with an error. The owner of the consumer closes it, and gets the result of the last commit."""
        self._fail(ClientClosedError())

    def __aiter__(self) -> AsyncGenerator[Record, None]:
        self._done(asyncio.current_task())
        return super().__aiter__()

    async def _loop_left(self) -> None:
        """Do nothing: reads and commits can continue."""

    async def commit(self, positions: Mapping[int, int] | None = None) -> None:
        """Confirm that the work on all transactions handed out is done and safe: a restart continues behind them.

        No position goes back. The call may be repeated after an error. After a conflict, the partitions are read again
        from the stored positions on (with ``share``: if this instance gets them again).

        Args:
            positions: The last safe transactions, by partition; by default all transactions handed out.

        Raises:
            ValueError: A transaction was not handed out.
            PositionConflictError: Another consumer has moved the positions.

        Raises what the store raises, too.
        """
        check_loop(self._loop)
        handed_out = self.handed_out
        for partition_id, position in (positions or {}).items():
            if position > handed_out.get(partition_id, position):
                raise ValueError(f"transaction {position} of partition {partition_id} was not handed out")
        await self._save(handed_out if positions is None else positions)

    # Reading

    async def turn(
        self, consumer: object, timeout_s: float | None, count: int | None = None, *, whole: bool = False
    ) -> list[Record]:
        """Like ``turn`` of :class:`MergedFeed`, with the same ``count`` and ``whole``.

        Raises ``InvalidOperationError``, too, when the consumer is not open.
        """
        if not self._opened:
            raise InvalidOperationError("the consumer is not open; use it in `async with client.consume(...)`")
        await self._begin_anew(self._store.take_conflicts())
        return await super().turn(consumer, timeout_s, count, whole=whole)

    def _check_held(self) -> None:
        if self._membership is not None:
            self._membership.check()

    async def _begin(self, partition_ids: Sequence[int]) -> None:
        """Read these partitions from their positions, or for the first time."""
        positions = await self._store.load(self._cluster_key, partition_ids)
        request_ids = {each: self._store.request_id(each) for each in positions}
        missing = [each for each in partition_ids if each not in positions]
        if missing:
            first = {each: await self._first(each) for each in missing}
            try:
                await self._store.save(self._cluster_key, {each: Move(None, first[each]) for each in missing})
                positions.update(first)
            except PositionConflictError:  # another consumer has begun with the same partitions at the same moment
                positions = await self._store.load(self._cluster_key, partition_ids)
                if not positions.keys() >= set(partition_ids):
                    raise
                request_ids = {each: self._store.request_id(each) for each in positions}
        if self.closed:
            return
        for partition_id in partition_ids:
            self._committed[partition_id] = positions[partition_id]
            request_id = request_ids.get(partition_id, b"")
            self.add(partition_id, positions[partition_id], None, self._share_bytes, request_id)
            self._reading[partition_id] = self._feeds[partition_id]

    async def _first(self, partition_id: int) -> int:
        if self._start == "beginning":
            return NO_TRANSACTION
        if self._start == "end":
            return await self._log.high_water_mark(partition_id)
        if isinstance(self._start, datetime):
            return await self._log.offset_at(partition_id, self._start)
        return self._start[partition_id]

    async def _give_back(self, partition_id: int) -> None:
        """Give back a partition when the consumer is done with the records of the partition, and has committed."""
        if self.closed or partition_id not in self._feeds:
            return
        feed = await self.withdraw(partition_id)
        if self._committing is not None:
            try:
                await self._save({partition_id: feed.position})
            except Exception as error:
                logger.warning("partition %d is handed over at its last committed position: %s", partition_id, error)
        self._committed.pop(partition_id, None)
        self._reading.pop(partition_id, None)

    def _forget(self, partition_id: int) -> None:
        self._committed.pop(partition_id, None)
        self._reading.pop(partition_id, None)
        self._attempted.pop(partition_id, None)
        self.drop(partition_id)

    def _give_up(self, partition_ids: Collection[int]) -> None:
        """Drop the records of partitions whose positions another consumer has moved."""
        for partition_id in partition_ids:
            if partition_id not in self._reading:
                continue
            self._forget(partition_id)
            if self._membership is None:
                self._anew.add(partition_id)
            else:
                self._membership.give_up(partition_id)

    async def _begin_anew(self, conflicting: Collection[int] = ()) -> None:
        """Read dropped partitions again, from their stored positions on."""
        self._give_up(conflicting)
        if not self._anew or self.closed:
            return
        anew, self._anew = self._anew, set()
        try:
            await self._begin(sorted(anew))
        except BaseException:
            self._anew |= anew
            raise

    def _fail(self, error: BaseException) -> None:
        """Raise the error in the reading calls."""
        self._failure = error
        self._changed.notify()

    # Storing

    async def _keep_committing(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._save(self.positions)
            except PositionConflictError as error:
                if self._membership is None:
                    self._fail(error)
                    return
                logger.warning("%s; they are others' now", error)
            except Exception as error:
                logger.warning("positions cannot be committed at present, it is tried again: %s", error)

    async def _save(self, positions: Mapping[int, int]) -> None:
        """Save, and continue to the end even if the caller is cancelled: the stored positions have to be known."""
        done = [_Done(feed, positions[each]) for each, feed in self._reading.items() if each in positions]
        saving = self._loop.create_task(self._save_all(done))
        saving.add_done_callback(_looked_at)
        await asyncio.shield(saving)

    async def _save_all(self, done: Sequence["_Done"]) -> None:
        async with self._saving:
            await self._begin_anew(self._store.take_conflicts())
            try:
                await self._save_moved(done)
            except PositionConflictError as error:
                self._give_up(error.partition_ids)
                await self._save_moved(done)
                await self._begin_anew()
                raise

    async def _save_moved(self, done: Sequence["_Done"]) -> None:
        if self._attempted:
            await self._learn()
        moves = {
            feed.partition_id: Move(
                self._committed[feed.partition_id], position, self.request_id(feed.partition_id, position)
            )
            for feed, position in done
            if self._reads(feed) and position > self._committed[feed.partition_id]
        }
        if not moves:
            return
        try:
            await self._store.save(self._cluster_key, moves)
        except PositionConflictError:
            raise
        except BaseException:
            self._attempted = {each: move.after for each, move in moves.items()}
            raise
        for feed, position in done:
            if self._reads(feed) and feed.partition_id in moves:
                self._committed[feed.partition_id] = position

    def _reads(self, feed: Feed) -> bool:
        """Whether the partition is still read from the same start. A partition that is read again begins after another
        position."""
        return self._reading.get(feed.partition_id) is feed

    async def _learn(self) -> None:
        """Find out the result of a change whose outcome is unknown."""
        stored = await self._store.load(self._cluster_key, list(self._attempted))
        attempted, self._attempted = self._attempted, {}
        for each, position in attempted.items():
            if each in self._committed and stored.get(each) == position:
                self._committed[each] = position


class _Done(NamedTuple):
    """By partition, the last transaction that a consumer is done with."""

    feed: Feed
    position: int


def _looked_at(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # reported, unless the caller was cancelled
