"""The plain client for threads and notebooks: every call blocks until it is done.

    import waltz.blocking

    with waltz.blocking.connect("client.yml") as client:
        transaction_id = client.append(0, b"hello")
        for transaction in client.feed(0, after=-1, until=transaction_id):
            print(transaction.data)

All clients of a process share one event loop on a thread of its own, which ends when the last of them is closed. A
client may be used by any number of threads at a time. Calls are bounded by the deadlines of the asynchronous client.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import length_hint
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from waltz.client.arguments import check_seconds
from waltz.client.builder import Append, serialized
from waltz.client.configuration import ClientSettings
from waltz.client.database_batches import MAX_BATCH
from waltz.client.databases import Connection, Database
from waltz.client.decisions import Basis, Choice, chosen_append
from waltz.client.engine.environment import Config
from waltz.client.engine.sessions import ExclusiveSession
from waltz.client.errors import ClientClosedError, InvalidOperationError
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.client.plain import client as plain
from waltz.client.plain.client import APPEND_TIMEOUT_S, MAX_IN_FLIGHT, Data, Locks
from waltz.client.plain.consumer import Consumer as AsyncConsumer
from waltz.client.plain.consumer import Start
from waltz.client.plain.feed import Feed
from waltz.client.plain.merged import MergedFeed as AsyncMergedFeed
from waltz.client.plain.to_database import THREADS, apply_to_database
from waltz.client.positions.interface import PositionStore
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError
from waltz.common.loops import new_event_loop
from waltz.common.metrics import Registry
from waltz.common.records import Record
from waltz.common.serializers import Serializer

if TYPE_CHECKING:
    from waltz.table.face.blocking import BlockingCursor, BlockingTable
    from waltz.table.face.blocking_several import BlockingPartitionedTable
    from waltz.table.properties import PartitionProperties

C = TypeVar("C", bound=Connection)
T = TypeVar("T")

_END_TIMEOUT_S = 5.0

_TURN = 512
"""Transactions that a thread takes at a time: each turn costs a visit to the loop's thread."""

__all__ = ["BatchFeed", "Client", "Consumer", "MergedFeed", "TransactionFeed", "ValueClient", "connect"]


class _BackgroundLoop:
    """The loop and its thread, as long as somebody uses them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        """On which the loop runs."""

    def enter(self) -> asyncio.AbstractEventLoop:
        """Start the loop if it does not run."""
        with self._mutex:
            if self._loop is None:
                self._loop = new_event_loop()
                self.thread = threading.Thread(target=self._run, args=(self._loop,), name="waltz", daemon=True)
                self.thread.start()
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """End the loop if nobody else uses it."""
        with self._mutex:
            self._users -= 1
            if self._users:
                return
            loop, thread = self._loop, self.thread
            self._loop = self.thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_end_calls())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _end_calls() -> None:
    """Let the calls of closed clients come to their ends."""
    calls = asyncio.all_tasks() - {asyncio.current_task()}
    if calls:
        await asyncio.wait(calls, timeout=_END_TIMEOUT_S)
    for call in calls:
        call.cancel()
    if calls:
        await asyncio.wait(calls)


_background = _BackgroundLoop()


def _forget_parent() -> None:
    """In the child of a fork there is no such thread; clients of the parent cannot be used there."""
    global _background
    _background = _BackgroundLoop()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_parent)


def connect(
    config: Config = None,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    session_write: bool | None = None,
    exclusive_session: bool | None = None,
    options: ClientOptions | None = None,
    on_event: OnEvent | None = None,
    **settings: Unpack[ClientSettings],
) -> "Client":
    """A client, to be opened with ``with``; the arguments are those of :func:`waltz.connect`."""

    def make() -> plain.Client:
        return plain.connect(
            config,
            max_in_flight=max_in_flight,
            session_write=session_write,
            exclusive_session=exclusive_session,
            options=options,
            on_event=on_event,
            **settings,
        )

    return Client(make)


class Client:
    """The calls of :class:`waltz.client.plain.client.Client`, each blocking until it is done, with the same errors."""

    def __init__(self, make: Callable[[], plain.Client]) -> None:
        self._client = make()
        self._background = _background
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._process_id = os.getpid()
        self._mutex = threading.Lock()

    def open(self) -> Self:
        """What ``with`` does at first.

        Raises as ``open`` of the asynchronous client, ``InvalidOperationError`` when it was opened before.
        """
        with self._mutex:
            if self._loop is not None:
                raise InvalidOperationError("a client is opened once")
            self._loop = self._background.enter()
        try:
            self.run(self._client.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """What ``with`` does at last; may be called twice. Calls of other threads end with errors."""
        with self._mutex:
            if self._loop is None or self._closed or self._process_id != os.getpid():
                return
            self._closed = True
            future = asyncio.run_coroutine_threadsafe(self._client.close(), self._loop)
        try:
            future.result()
        finally:
            self._background.leave()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def client_id(self) -> int:
        """Id of this client in the cluster."""
        return self._client.client_id

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self._client.cluster_name

    @property
    def metrics(self) -> Registry:
        """What the client counts; see :mod:`waltz.telemetry`. May be read by any thread."""
        return self._client.metrics

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return self._client.partition_count

    def partition_for(self, key: object) -> int:
        """The partition that a key belongs to."""
        return self._client.partition_for(key)

    def with_serializer(self, serializer: Serializer[T]) -> "ValueClient[T]":
        """This client for values that ``serializer`` turns into bytes and back; it may be made for a single call."""
        return ValueClient(self, serializer)

    def append(
        self,
        partition_id: int,
        data: Data,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """Append a transaction; returns its id when it is committed."""
        return self.run(
            self._client.append(
                partition_id,
                data,
                header=header,
                write_locks=write_locks,
                read_locks=read_locks,
                append_locks=append_locks,
                high_water_mark=high_water_mark,
                timeout_s=timeout_s,
            )
        )

    def append_many(
        self,
        partition_id: int,
        items: Iterable[Data | Append],
        *,
        high_water_mark: int | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """Append many transactions, each for itself; returns their ids when all are committed."""
        items = list(items)  # on this thread: it may be a generator of the application
        return self.run(
            self._client.append_many(partition_id, items, high_water_mark=high_water_mark, timeout_s=timeout_s)
        )

    def transact(
        self,
        partition_id: int,
        decide: Callable[[Basis], Choice],
        *,
        feed: "TransactionFeed | BatchFeed | None" = None,
        reads_log: bool = False,
        timeout_s: float = APPEND_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Decide and append, again if the decision was overtaken; ``decide`` is called on the thread of the caller."""
        steps = self.run(
            self._client.transacting(
                partition_id,
                feed=None if feed is None else feed.source,
                reads_log=reads_log,
                caller=threading.get_ident(),
                timeout_s=timeout_s,
                max_attempts=max_attempts,
            )
        )
        while True:
            basis = self.run(steps.basis())
            chosen = chosen_append(decide(basis))
            if chosen is None:
                return None
            transaction_id = self.run(steps.append(basis, chosen))
            if transaction_id is not None:
                return transaction_id

    def feed(self, partition_id: int, *, after: int, until: int | None = None) -> "TransactionFeed":
        """The transactions with an id above ``after`` (up to ``until``), one by one, and those to come."""
        return TransactionFeed(self, self.run(self._opened(partition_id, after, until)))

    def feed_batches(self, partition_id: int, *, after: int, until: int | None = None) -> "BatchFeed":
        """The same in lists, as many at a time as came together."""
        return BatchFeed(self, self.run(self._opened(partition_id, after, until)))

    def apply_to_database(
        self,
        database: Database[C],
        apply: Callable[[Transaction, bytes, C], None],
        *,
        partition_ids: Collection[int] | None = None,
        follow: bool = True,
        max_batch: int = MAX_BATCH,
        threads: int = THREADS,
    ) -> None:
        """Have ``apply(transaction, data, connection)`` change a database for each transaction: exactly once.

        As ``apply_to_database`` of :class:`waltz.Client`: up to ``max_batch`` transactions that wait are applied by one
        database transaction, and as many partitions at a time as there are ``threads``. With ``follow`` it never
        returns; without, it does when everything is applied that was committed at the call.

        Raises what ``apply`` raises, when everything before that transaction is applied: calling it again goes on
        there. Raises ``StoredMarkError`` and ``ValueError`` as that does.
        """
        self.run(
            apply_to_database(
                self._client,
                database,
                apply,
                partition_ids=partition_ids,
                follow=follow,
                max_batch=max_batch,
                threads=threads,
            )
        )

    def feed_all(
        self,
        partition_ids: Iterable[int] | None = None,
        *,
        after: int | Mapping[int, int],
        until: Mapping[int, int] | None = None,
    ) -> "MergedFeed":
        """The transactions of all partitions, or of these, in one loop: in order within each, in turn between them."""
        ids = None if partition_ids is None else list(partition_ids)

        async def opened() -> AsyncMergedFeed:
            return self._client.feed_all(ids, after=after, until=until)

        return MergedFeed(self, self.run(opened()))

    def consume(
        self,
        positions: PositionStore,
        partition_ids: Iterable[int] | None = None,
        *,
        start: Start = "beginning",
        commit_every_s: float | None = None,
        share: str | None = None,
    ) -> "Consumer":
        """The transactions of all partitions, or of these, from where the application was: use it in ``with``.

        How far that is, is kept in ``positions``. A partition of which they know nothing is read from ``start``:
        ``"beginning"``, ``"end"``, or behind a transaction (a mapping by partition). With ``commit_every_s``, in
        seconds, what the application is done with is committed so often, and at the end; otherwise by
        ``consumer.commit()``. All instances that use the same name as ``share`` share the partitions.

        Raises ``PartitionNotFoundError``, ``ValueError``, ``TypeError`` and ``ClientClosedError``, and when it is
        opened or read ``PositionsError``, as ``consume`` of :class:`waltz.Client`.
        """
        ids = None if partition_ids is None else list(partition_ids)

        async def made() -> AsyncConsumer:
            return self._client.consume(positions, ids, start=start, commit_every_s=commit_every_s, share=share)

        return Consumer(self, self.run(made()))

    def high_water_mark(self, partition_id: int, *, timeout_s: float | None = None) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none."""
        return self.run(self._client.high_water_mark(partition_id, timeout_s=timeout_s))

    def write_session(self, partition_id: int) -> int | None:
        """Number of the write session in which appends to a partition are sent at present, if there is one."""

        async def number() -> int | None:
            return self._client.write_session(partition_id)

        return self.run(number())

    def last_transaction_id(self, partition_id: int, *, fence: bool = False, if_session: int | None = None) -> int:
        """Id of the last transaction behind everything that was sent; with ``fence`` a write session begins there.

        With ``if_session`` it begins only if this is the number of the present one.
        """
        return self.run(self._client.last_transaction_id(partition_id, fence=fence, if_session=if_session))

    def renew_session(self, partition_id: int) -> int:
        """Go on in the present write session of a partition; returns its number."""
        return self.run(self._client.renew_session(partition_id))

    @contextmanager
    def exclusive(self, partition_id: int) -> Iterator[ExclusiveSession]:
        """Be the only writer of a partition: ``with client.exclusive(partition_id) as session:``."""
        exclusive = self._client.exclusive(partition_id)
        session = self.run(exclusive.__aenter__())
        try:
            yield session
        finally:
            if not self._closed:
                self.run(exclusive.__aexit__(None, None, None))

    def table(
        self,
        partition_id: int,
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
    ) -> "BlockingTable":
        """The table in a partition, to be opened with ``with`` while the client is open."""
        from waltz.table.face.blocking import BlockingTable  # for those only who use tables
        from waltz.table.face.table import Table

        async def made() -> Table:
            path = None if directory is None else Path(directory)
            return Table(self._client, partition_id, properties, store=store, directory=path)

        return BlockingTable(self.run(made()), self.run)

    def partitioned_table(
        self,
        partition_ids: Sequence[int],
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
    ) -> "BlockingPartitionedTable":
        """One table in several partitions, as :class:`waltz.table.PartitionedTable`, to be opened with ``with``."""
        from waltz.table.face.blocking_several import BlockingPartitionedTable
        from waltz.table.face.several import PartitionedTable

        async def made() -> PartitionedTable:
            path = None if directory is None else Path(directory)
            return PartitionedTable(self._client, partition_ids, properties, store=store, directory=path)

        return BlockingPartitionedTable(self.run(made()), self.run)

    def configure_table(self, partition_id: int, changes: Mapping[str, object]) -> "PartitionProperties":
        """Change properties of a partition, as :func:`waltz.table.configure` does."""
        from waltz.table.face.configured import configure

        return self.run(configure(self._client, partition_id, changes))

    def named_cursor(self, group: str, partition_id: int) -> "BlockingCursor":
        """How far a group of consumers has come in a partition, as :class:`waltz.table.NamedCursor`."""
        from waltz.table.face.blocking import BlockingCursor
        from waltz.table.face.cursors import NamedCursor

        return BlockingCursor(NamedCursor(self._client, group, partition_id), self.run)

    def zookeeper_positions(self, group: str) -> PositionStore:
        """Positions in the cluster's ZooKeeper, for :meth:`consume`: :class:`waltz.ZooKeeperPositions`.

        Raises ``ValueError`` when the name of the group cannot be that of a node.
        """
        from waltz.table.face.positions import ZooKeeperPositions

        return ZooKeeperPositions(self._client, group)

    async def _opened(self, partition_id: int, after: int, until: int | None) -> Feed:
        return self._client.feed_batches(partition_id, after=after, until=until)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the asynchronous client on the background loop; what interrupts this cancels it."""
        try:
            with self._mutex:  # not after the loop was told to stop, which would never get to it
                future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def on_loop(self, call: Callable[[], None]) -> None:
        """Have something called on the background loop, if it runs."""
        with self._mutex:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(call)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise InvalidOperationError("the client is not open; use it in `with waltz.blocking.connect(...)`")
        if self._process_id != os.getpid():
            raise InvalidOperationError("the client was opened before a fork; open another one in this process")
        if self._closed:
            raise ClientClosedError
        if threading.current_thread() is self._background.thread:
            raise InvalidOperationError("a blocking call on the loop that has to do the work would never end")
        return self._loop


class ValueClient(Generic[T]):
    """Made by ``client.with_serializer(serializer)``. What the serializer raises comes out before anything is sent."""

    def __init__(self, client: Client, serializer: Serializer[T]) -> None:
        self._client = client
        self._serializer = serializer

    def value(self, record: Record) -> T:
        """The value that ``record`` was made of; raises what the serializer does."""
        return self._serializer.deserialize(record.data)

    def append(
        self,
        partition_id: int,
        value: T,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """As ``append`` of the client."""
        return self._client.append(
            partition_id,
            self._serializer.serialize(value),
            header=header,
            write_locks=write_locks,
            read_locks=read_locks,
            append_locks=append_locks,
            high_water_mark=high_water_mark,
            timeout_s=timeout_s,
        )

    def append_many(
        self,
        partition_id: int,
        items: Iterable[T | Append[T]],
        *,
        high_water_mark: int | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """As ``append_many`` of the client, of values and of ``Append`` with values."""
        made = [serialized(item, self._serializer) for item in items]
        return self._client.append_many(partition_id, made, high_water_mark=high_water_mark, timeout_s=timeout_s)

    def transact(
        self,
        partition_id: int,
        decide: Callable[[Basis], T | Append[T] | None],
        *,
        feed: "TransactionFeed | BatchFeed | None" = None,
        reads_log: bool = False,
        timeout_s: float = APPEND_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """As ``transact`` of the client: ``decide`` returns a value, an ``Append`` of one, or ``None`` for nothing."""

        def decide_bytes(basis: Basis) -> Append | None:
            choice = decide(basis)
            return None if choice is None else serialized(choice, self._serializer)

        return self._client.transact(
            partition_id,
            decide_bytes,
            feed=feed,
            reads_log=reads_log,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )


class _BlockingFeed:
    """Reads for one thread at a time. Closed when its loop is left or it is closed; it has nothing that runs."""

    def __init__(self, client: Client, feed: Feed) -> None:
        self._client = client
        self._feed = feed

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

    def next_batch(self, timeout_s: float | None = None) -> list[Record]:
        """The next transactions, as soon as there are any; an empty list at the end, if there is one.

        It is empty, too, when none came within ``timeout_s``. Asking says that the consumer is done with those before:
        ``position`` moves up to them.
        """
        return self._feed.take(self._fetch(timeout_s))

    def _fetch(self, timeout_s: float | None = None) -> list[Record]:
        return self._client.run(self._feed.fetch(threading.get_ident(), timeout_s))


class TransactionFeed(_BlockingFeed):
    """One by one."""

    def __init__(self, client: Client, feed: Feed) -> None:
        super().__init__(client, feed)
        self._rest: Iterator[Record] = iter(())

    def __iter__(self) -> Iterator[Record]:
        try:
            feed = self._feed
            while self._more(None):
                for record in self._rest:
                    feed.in_hand = 1
                    yield record
                    feed.position += feed.in_hand
                    if feed.awaiting:
                        self._client.on_loop(feed.wake)
                feed.in_hand = 0
        finally:
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
        """The next transactions, as soon as there are any; an empty list at the end and after ``timeout_s``."""
        rest = list(self._rest)
        if not rest:
            return super().next_batch(timeout_s)
        self._done()
        return self._feed.take(rest)

    def close(self) -> None:
        self._rest = iter(())
        super().close()

    def _next(self, timeout_s: float | None) -> Record | None:
        if length_hint(self._rest):
            self._done()
        elif not self._more(timeout_s):
            return None
        record = next(self._rest)
        self._feed.take([record])
        return record

    def _done(self) -> None:
        feed = self._feed
        feed.position += feed.in_hand
        feed.in_hand = 0
        if feed.awaiting:
            self._client.on_loop(feed.wake)

    def _more(self, timeout_s: float | None) -> bool:
        if not length_hint(self._rest):
            self._rest = iter(self._fetch(timeout_s))
        return length_hint(self._rest) > 0


class BatchFeed(_BlockingFeed):
    """As many at a time as came together."""

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


class MergedFeed:
    """Transactions of several partitions, for one thread at a time: in order within each, in turn between them."""

    def __init__(self, client: Client, feed: AsyncMergedFeed) -> None:
        self._client = client
        self._feed = feed
        self._rest: Iterator[Record] = iter(())
        self._at_hand: Feed | None = None

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
        """By partition, the id of the last transaction that the consumer was given; at first that before the first."""
        return self._on_loop(lambda: self._feed.handed_out)

    @property
    def obstacles(self) -> Mapping[int, WaltzError]:
        """Why partitions cannot be read at present, by their ids."""
        return self._on_loop(lambda: dict(self._feed.obstacles))

    def pause(self, *partition_ids: int) -> None:
        """Hand out nothing of these partitions until :meth:`resume`, but for the rest of a turn that is at hand."""
        self._on_loop(lambda: self._feed.pause(*partition_ids))

    def resume(self, *partition_ids: int) -> None:
        """Go on with these partitions."""
        self._on_loop(lambda: self._feed.resume(*partition_ids))

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self._client.run(called())

    def close(self) -> None:
        """Read no more."""
        self._rest = iter(())
        if not self._feed.closed and not self._client.closed:
            self._client.run(self._feed.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        try:
            yield from self._records()
        finally:
            self.close()

    def _records(self) -> Iterator[Record]:
        while self._more(None):
            feed = self._at_hand
            assert feed is not None
            for record in self._rest:
                feed.in_hand = 1
                yield record
                self._done()

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
        records = list(self._rest) or self._turn(timeout_s, None)
        if records:
            assert self._at_hand is not None
            self._at_hand.take(records)
        return records

    def _next(self, timeout_s: float | None) -> Record | None:
        self._done()
        if not self._more(timeout_s):
            return None
        record = next(self._rest)
        assert self._at_hand is not None
        self._at_hand.take([record])
        return record

    def _more(self, timeout_s: float | None) -> bool:
        if not length_hint(self._rest):
            self._rest = iter(self._turn(timeout_s, _TURN))
        return length_hint(self._rest) > 0

    def _turn(self, timeout_s: float | None, count: int | None) -> list[Record]:
        caller = threading.get_ident()

        async def turn() -> list[Record]:
            records = await self._feed.turn(caller, timeout_s, count, whole=True)
            self._at_hand = self._feed.feed_at_hand if records else None
            return records

        return self._client.run(turn())

    def _done(self) -> None:
        feed = self._at_hand
        if feed is not None:
            feed.position += feed.in_hand
            feed.in_hand = 0
            if feed.awaiting:
                self._client.on_loop(feed.wake)


class Consumer(MergedFeed):
    """Transactions of several partitions behind stored positions, for one thread at a time; used with ``with``.

    Leaving a loop over it does not close it.
    """

    def __init__(self, client: Client, consumer: AsyncConsumer) -> None:
        super().__init__(client, consumer)
        self._consumer = consumer

    @property
    def committed(self) -> Mapping[int, int]:
        """By partition, the position that is stored, as far as this consumer knows."""
        return self._on_loop(lambda: self._consumer.committed)

    def commit(self, positions: Mapping[int, int] | None = None) -> None:
        """Say that the work on everything that was handed out is safe: a restart goes on behind it."""
        self._client.run(self._consumer.commit(positions))

    def __enter__(self) -> Self:
        self._client.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rest = iter(())
        if not self._client.closed:
            self._client.run(self._consumer.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Record]:
        self._done()
        return self._records()
