"""The plain face: append transactions and read the feed, without callbacks."""

import asyncio
import dataclasses
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from waltz.client.arguments import (
    APPEND_TIMEOUT_S,
    check_integer,
    check_loop,
    check_mark,
    check_seconds,
    milliseconds_of,
)
from waltz.client.builder import Append, append_fields, fields_of
from waltz.client.configuration import Token
from waltz.client.decisions import Decide, check_attempts, chosen_append
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Config, Directory, Environment, environment_of
from waltz.client.engine.joining import Joining
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.submission import AppendFields
from waltz.client.engine.tasks import Closing, take_all
from waltz.client.errors import (
    AppendManyError,
    ClientClosedError,
    InvalidOperationError,
    NotAppendedError,
    PartitionNotFoundError,
)
from waltz.client.events import OnEvent
from waltz.client.locks import NO_LOCKS, PartitionLocalLock
from waltz.client.options import ClientOptions
from waltz.client.partition_calls import PartitionCalls
from waltz.client.plain.acknowledgement import Acknowledgement, EarlyLevel
from waltz.client.plain.append import Deadlines, EarlySubmission, PlainSubmission
from waltz.client.plain.consumer import Consumer, Log, Start
from waltz.client.plain.feed import BatchFeed, Feed, PartitionFeeds, TransactionFeed, confirm_mark, seen
from waltz.client.plain.merged import MergedFeed, share_of
from waltz.client.plain.reader import OpenEngine, Share
from waltz.client.plain.transact import Transact, check_followed
from waltz.client.positions.interface import PositionStore
from waltz.common.consistency import Consistency, level_from_commit, level_of_append, storages_before_commit
from waltz.common.errors import DeadlineExceededError, TlsRefusedError, WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.keys import partition_for
from waltz.common.metrics.registry import Registry
from waltz.common.zk.client import ZooKeeper

MAX_IN_FLIGHT = 2048

Data = bytes | bytearray | memoryview
Locks = Iterable[PartitionLocalLock]
FeedKind = TypeVar("FeedKind", bound=Feed)


def environment_for(
    config: Config,
    *,
    max_in_flight: int,
    session_write: bool | None,
    exclusive_session: bool | None,
    zookeeper: ZooKeeper | None,
    options: ClientOptions | None,
    on_event: OnEvent | None,
    token: Token | None,
    settings: Mapping[str, object],
) -> Environment:
    """The environment of a client. The arguments are those of :func:`waltz.connect`; ``settings`` are its further
    arguments."""
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
    environment = environment_of(config, zookeeper, options, settings, on_event, token)
    environment = environment.with_sessions(session_write, exclusive_session)
    copied = environment.config.model_copy(update={"max_concurrent_transactions": max_in_flight})
    return dataclasses.replace(environment, config=copied)


class Client(PartitionCalls):
    """Made by :func:`waltz.connect`, opened by ``async with`` or ``await``, on whose loop it lives.

    A client opened by ``await`` has to be closed: by :meth:`close`, or by a later ``async with``.

    The client joins a partition at its first use: from then on it follows the end of its log.
    """

    _engine: Engine | None = None
    _closed = False
    _entered = False

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._joined: dict[int, StreamPartition] = {}
        self._feeds: dict[int, PartitionFeeds] = {}
        self._library_feeds: dict[int, PartitionFeeds] = {}
        self._merged: weakref.WeakSet[MergedFeed] = weakref.WeakSet()
        self._joining = Joining(functools.partial(Engine.open, environment))
        self._closing = Closing()
        self._readers: weakref.WeakSet[Engine] = weakref.WeakSet()  # the tasks keep them alive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._deadlines: Deadlines

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._engine is not None and not self._closed:
            warn(f"unclosed {self!r}", ResourceWarning, source=self)

    async def open(self) -> Self:
        """Join the cluster. Called by ``async with`` and ``await``.

        Raises:
            ZooKeeperUnreachableError: ZooKeeper does not answer.
            ZooKeeperError: ZooKeeper refused a request.
            ConfigError: The files for TLS cannot be used.
            StoreAdminError: There is no such cluster.
            InvalidOperationError: The client was opened before.
            ClientClosedError: The client is closed meanwhile.
        """
        if self._loop is not None or self._closed:
            raise InvalidOperationError("a client is opened once")
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        self._deadlines = Deadlines()
        try:
            self._engine = await self._joining.engine()
            # Not a method: the engine must not keep a forgotten client alive.
            self._engine.lags = functools.partial(_lags, self._engine, (self._feeds, self._library_feeds))
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the client. Called at the end of ``async with``; may be called twice.

        Appends under way end with an error that says whether the outcome is known, and feeds with
        ``ClientClosedError``. The close continues to its end even if this call is cancelled. Another call waits for the
        end.
        """
        if self._closing.over:
            return
        if self._loop is not None:
            check_loop(self._loop)
        self._closed = True
        await self._closing.run(self._close)

    async def _close(self) -> None:
        feeds = [feed for feeds in (*self._feeds.values(), *self._library_feeds.values()) for feed in feeds.open]
        await take_all(
            *(merged.client_closed for merged in self._merged),
            *(feed.aclose for feed in feeds),
            self._joining.close,
            self._close_readers,
            self._environment.cluster.close,
        )

    async def _close_readers(self) -> None:
        if self._engine is not None:
            self._deadlines.close()
        await take_all(*(reader.close for reader in self._readers))

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        if self._engine is None or self._closed or self._entered:
            await self.open()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _open_engine(self) -> Engine:
        engine = self._engine
        if engine is None or self._closed:
            if self._closed:
                raise ClientClosedError
            raise InvalidOperationError("the client is not open; use it in `async with waltz.connect(...) as client:`")
        return engine

    def _own_engine(self) -> Engine:
        """The engine; raises unless this is the client's own event loop."""
        engine = self._open_engine()
        engine.check_loop()
        return engine

    @property
    def client_id(self) -> int:
        """The id of this client in the cluster. No other client ever has the same id."""
        return self._open_engine().client_id

    @property
    def cluster_name(self) -> str:
        """The name of the cluster."""
        return self._open_engine().cluster_name

    @property
    def partition_count(self) -> int:
        """The number of partitions of the cluster."""
        return len(self._open_engine().partitions)

    @property
    def directory(self) -> Directory:
        """The nodes of the cluster in ZooKeeper, or in the mock driver, and the root of the cluster there."""
        self._open_engine()
        return self._environment.cluster.directory

    async def cluster_key(self) -> str:
        """A key that distinguishes the logs of this cluster from those of all other clusters of the same name.

        Raises:
            ZooKeeperError: ZooKeeper cannot be asked.
            StoreAdminError: The cluster was deleted.
        """
        self._own_engine()
        return await self._environment.cluster.key()

    def partition_for(self, key: object) -> int:
        """The partition of a key; see :func:`waltz.partition_for` for the types of keys."""
        return partition_for(key, self.partition_count)

    @property
    def metrics(self) -> Registry:
        """The metrics of the client; see :mod:`waltz.telemetry`. May be read in any thread."""
        return self._open_engine().metrics.registry

    @overload
    async def append(
        self,
        partition_id: int,
        data: Data,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        consistency: EarlyLevel,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> Acknowledgement: ...

    @overload
    async def append(
        self,
        partition_id: int,
        data: Data,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int: ...

    async def append(
        self,
        partition_id: int,
        data: Data,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """Append a transaction, and wait until it is committed, or has the level of consistency.

        An append that gets lost on its way is sent again until ``timeout_s`` has passed. When the call is cancelled, a
        note on the ``CancelledError`` says whether anything was sent.

        Args:
            partition_id: The partition, from 0.
            data: The transaction's data.
            header: A number of the application's own; 32 bits with a sign.
            write_locks: Locks that must not have changed since ``high_water_mark``; the transaction changes them.
            read_locks: Locks that must not have changed since ``high_water_mark``.
            append_locks: Locks that the transaction changes without a check.
            high_water_mark: Id of the last transaction that the decision to append rests on. By default the position of
                this client's open feed of the partition that has no ``until`` (in the loop over it, the transaction at
                hand); of several, of the one that is furthest behind. Without such a feed, ``write_locks`` and
                ``read_locks`` need an explicit mark.
            consistency: The level at which the call returns: ``leader_quorum`` or ``quorum`` (committed),
                ``leader_all`` or ``write_all_read_one`` (committed, and on the disks of all storages), ``leader``,
                ``write_one_read_all`` or ``none`` (on one disk), ``leader_plus_one`` (on two). By default what the
                properties of the partition demand, and at least the commit.
            timeout_s: Limit of the whole call in seconds.

        Returns:
            The id of the transaction. At a level below the quorum it is a :class:`waltz.Acknowledgement`, which tells
            of the commit, or of the loss.

        Raises:
            LockConflict: A lock was changed; the transaction is not in the log.
            NotGuaranteedError: The deadline has passed; the transaction is committed, and it is not known that all
                storages have it.
            ConsistencyRefusedError: The level does not go; the transaction is not in the log.
            NotAppendedError: The deadline has passed, or the client was closed; the transaction is not in the log.
            OutcomeUnknownError: The same, and the transaction may be in the log.
            SessionFencedError: Another client has begun a write session.
            NotAuthorizedError: The client lacks a right; nothing is appended.
            ClientAheadError: The log does not have ``high_water_mark``. Like all below, before anything is sent.
            PartitionNotFoundError: The cluster has no such partition.
            TransactionTooLargeError: The data is too long, or there are too many locks.
            InvalidOperationError: The call is made on another event loop than that of the client.
            ClientClosedError: The client is closed.
            TypeError: An argument has a wrong type, or locks have no mark.
            ValueError: An argument is out of range, or ``consistency`` is no level.
        """
        level = None if consistency is None else level_of_append(consistency)
        loop = self._loop
        # A question for the running loop costs a system call, which this avoids in nearly all cases.
        if loop is None or get_ident() != self._thread_id or not loop.is_running():
            loop = self._own_loop()
        now_s = loop.time()
        partition = self._joined.get(partition_id)
        if partition is None:
            partition = await self._join(partition_id, timeout_s)
        if high_water_mark is None:
            mark = partition.feed.applied
        else:
            if type(high_water_mark) is not int or high_water_mark < NO_TRANSACTION:
                check_mark(high_water_mark, "high_water_mark")
            mark = high_water_mark
        fields = append_fields(data, header, mark, write_locks, read_locks, append_locks)
        engine = self._engine
        if engine is None or self._closed:
            raise ClientClosedError
        engine.limits.check(fields)
        if high_water_mark is None and (fields[3] != NO_LOCKS or fields[4] != NO_LOCKS):
            mark = self._seen(partition_id)
            fields = fields._replace(client_high_water_mark=mark)
        if mark > partition.feed.applied:
            await self._confirm(partition, mark, now_s, timeout_s)
        kind = PlainSubmission if level is None or storages_before_commit(level) is None else EarlySubmission
        try:  # the code of self._submission, without the cost of a call for every append
            append = kind(
                partition.partition_id, partition.appends, fields, loop.create_future(), now_s, timeout_s, level
            )
        except TypeError:
            check_seconds(timeout_s, "timeout_s")
            raise
        write_locks = read_locks = append_locks = ()  # not kept until the commit, to make garbage collections shorter
        deadlines = self._deadlines
        deadlines.pending[append] = None
        if append.deadline_s < deadlines.due_s:
            deadlines.arm(append.deadline_s)
        try:
            rest = partition.appends.submit(append)
            if rest is not None:
                await _finish(rest, append)
            transaction_id = await append.future
            return transaction_id if level is None else append.result(transaction_id)
        except asyncio.CancelledError as cancelled:
            append.abandon()
            append.note_outcome(cancelled)
            raise
        finally:
            deadlines.pending.pop(append, None)
            if append.committed_id is not None:
                partition.appends.guarantees.forget(append.committed_id)

    async def append_many(
        self,
        partition_id: int,
        items: Iterable[Data | Append],
        *,
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """Append many independent transactions, and wait until all are committed.

        The transactions are sent in order. If some get lost and are sent again, their ids are not in that order.

        Args:
            partition_id: The partition, from 0.
            items: Data, or ``Append`` for more than that.
            high_water_mark: As for :meth:`append`, for all items.
            consistency: As for :meth:`append`, for all items; not below the quorum.
            timeout_s: Limit of the whole call in seconds.

        Returns:
            The ids in the order of ``items``.

        Raises:
            AppendManyError: Some are not committed, not known as committed, or not known to have the level; it has the
                outcome of each.

        Raises as :meth:`append` before anything is sent.
        """
        level = None if consistency is None else level_from_commit(consistency)
        loop = self._own_loop()
        now_s = loop.time()
        partition = self._joined.get(partition_id)
        if partition is None:
            partition = await self._join(partition_id, timeout_s)
        if high_water_mark is not None:
            check_mark(high_water_mark, "high_water_mark")
        mark = partition.feed.applied if high_water_mark is None else high_water_mark
        all_fields = [fields_of(item if isinstance(item, Append) else Append(item), mark) for item in items]
        limits = self._open_engine().limits
        for fields in all_fields:
            limits.check(fields)
        if high_water_mark is None and _check_locks(all_fields):
            mark = self._seen(partition_id)
            all_fields = [fields._replace(client_high_water_mark=mark) for fields in all_fields]
        if mark > partition.feed.applied:
            await self._confirm(partition, mark, now_s, timeout_s)
        deadlines = self._deadlines
        appends = [self._submission(partition, fields, loop, now_s, timeout_s, level) for fields in all_fields]
        try:
            deadlines.pending.update(dict.fromkeys(appends))
            if appends and appends[0].deadline_s < deadlines.due_s:  # the appends share it
                deadlines.arm(appends[0].deadline_s)
            for append in appends:
                if not append.future.done():
                    rest = partition.appends.submit(append)
                    if rest is not None:
                        await _finish(rest, append)
            for append in appends:
                if not append.future.done():
                    await asyncio.wait((append.future,))
        except asyncio.CancelledError as cancelled:
            cancelled.add_note("Some of the transactions may have been sent; whether they are committed is not known.")
            raise
        finally:
            for append in appends:
                deadlines.pending.pop(append, None)
                append.abandon()
        return _results([append.future for append in appends])

    async def transact(
        self,
        partition_id: int,
        decide: Decide,
        *,
        feed: Feed | None = None,
        reads_log: bool = False,
        timeout_s: float = APPEND_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Decide on the present state and append the decision.

        When one of its locks was changed meanwhile, ``decide`` is called again as soon as the state is new enough. The
        state is kept by the loops over this client's feeds of the partition without ``until`` (or over ``feed``): the
        call waits for them, and the basis is the default mark of :meth:`append`.

        Args:
            partition_id: The partition, from 0.
            decide: Called with a :class:`~waltz.client.decisions.Basis`; returns an ``Append``, bytes, or ``None``. May
                be asynchronous.
            feed: The feed whose loop keeps the state; by default all of them.
            reads_log: Whether ``decide`` reads the log up to the basis, which is then the last transaction known as
                committed.
            timeout_s: Limit of the whole call in seconds.
            max_attempts: Maximum number of decisions.

        Returns:
            The id of the transaction; ``None`` if ``decide`` returned ``None``.

        Raises:
            LockConflict: After ``max_attempts``, or when the state cannot advance: the feed is closed, or the call is
                made in its loop.
            OutcomeUnknownError: The append may be committed, so it is not decided again.
            TypeError: Locks are to be checked, and there is neither such a feed nor ``reads_log``.

        Raises the errors of ``decide``, and like :meth:`append`.
        """
        steps = await self.transacting(
            partition_id,
            feed=feed,
            reads_log=reads_log,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )
        while True:
            basis = await steps.basis()
            choice = decide(basis)
            if inspect.isawaitable(choice):
                choice = await steps.decision(choice)
            chosen = chosen_append(choice)
            if chosen is None:
                return None
            transaction_id = await steps.append(basis, chosen)
            if transaction_id is not None:
                return transaction_id

    async def transacting(
        self,
        partition_id: int,
        *,
        feed: Feed | None,
        reads_log: bool,
        timeout_s: float,
        max_attempts: int | None,
    ) -> Transact:
        """The steps of :meth:`transact`, for decisions made elsewhere."""
        now_s = self._own_loop().time()
        check_seconds(timeout_s, "timeout_s")
        check_attempts(max_attempts)
        check_followed(feed, partition_id)
        partition = self._joined.get(partition_id)
        if partition is None:
            partition = await self._join(partition_id, timeout_s)
        return Transact(
            functools.partial(self._append_chosen, partition, now_s, timeout_s),
            partition_id,
            partition,
            self._feeds.get(partition_id),
            feed=feed,
            reads_log=reads_log,
            deadline_s=now_s + timeout_s,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )

    async def _append_chosen(
        self, partition: StreamPartition, began_s: float, timeout_s: float, chosen: Append, high_water_mark: int
    ) -> int:
        """Like :meth:`append`, within the time limit of an earlier call. Errors name the whole limit, not the rest of
        it."""
        loop = self._own_loop()
        fields = fields_of(chosen, high_water_mark)
        self._open_engine().limits.check(fields)
        if high_water_mark > partition.feed.applied:
            await self._confirm(partition, high_water_mark, began_s, timeout_s)
        append = self._submission(partition, fields, loop, began_s, timeout_s)
        deadlines = self._deadlines
        deadlines.pending[append] = None
        if append.deadline_s < deadlines.due_s:
            deadlines.arm(append.deadline_s)
        try:
            rest = partition.appends.submit(append)
            if rest is not None:
                await _finish(rest, append)
            return await append.future
        except asyncio.CancelledError as cancelled:
            append.abandon()
            append.note_outcome(cancelled)
            raise
        finally:
            deadlines.pending.pop(append, None)
            if append.committed_id is not None:
                partition.appends.guarantees.forget(append.committed_id)

    def feed(
        self, partition_id: int, *, after: int | None = None, since: datetime | None = None, until: int | None = None
    ) -> TransactionFeed:
        """The transactions of a partition with an id above ``after``, or since a time, one by one, with their data.

        ``async for transaction in client.feed(...)`` yields records (``transaction_id``, ``req_id``, ``header``,
        ``data``), and continues with later commits. They are read in bulk, ahead of their consumer.

        Args:
            partition_id: The partition, from 0.
            after: Id of the transaction before the first one; -1 for all.
            since: Instead of ``after``: a time, with a time zone. The feed begins after :meth:`offset_at`: it has every
                transaction that was committed later, and usually some of a second before.
            until: Id of the last transaction; ``None``: without an end.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
            InvalidOperationError: Both ``after`` and ``since`` are given, or neither.
            ClientAheadError: By reading: the log ends before ``after``.
            TimesNotSupportedError: By reading: the times of the partition's commits are unknown.
            DeadlineExceededError: By reading: servers have failed for a minute (10 s before the first record). Another
                read tries again.
            DataChecksumError: By reading: servers send damaged data.
        """
        return self._feed(TransactionFeed, partition_id, after, since, until)

    def feed_batches(
        self, partition_id: int, *, after: int | None = None, since: datetime | None = None, until: int | None = None
    ) -> BatchFeed:
        """Like :meth:`feed`, in lists of transactions that have arrived together: the fastest way to read a log."""
        return self._feed(BatchFeed, partition_id, after, since, until)

    def library_feed(self, partition_id: int, *, after: int, until: int | None = None) -> BatchFeed:
        """Like :meth:`feed_batches`, for reads of the library itself, which are invisible for the application."""
        return BatchFeed(*self._feed_arguments(partition_id, after, until, self._library_feeds))

    def feed_all(
        self,
        partition_ids: Iterable[int] | None = None,
        *,
        after: int | Mapping[int, int] | None = None,
        since: datetime | None = None,
        until: Mapping[int, int] | None = None,
    ) -> MergedFeed:
        """The transactions of several partitions in one loop: in order within each, in turn between them.

        Records have their ``partition_id``. A partition whose server does not answer does not stop the others: it is in
        ``feed.obstacles``, and its reads are repeated for ever.

        Args:
            partition_ids: The partitions; by default all.
            after: Id of the transaction before the first one (-1: from the beginning), for all or by partition.
            since: Instead of ``after``: a time, with a time zone; see :meth:`feed`.
            until: Id of the last transaction by partition; ``None``: without an end.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            InvalidOperationError: Both ``after`` and ``since`` are given, or neither.
            ClientAheadError: By reading: the log of a partition ends before ``after``.
            TimesNotSupportedError: By reading: the times of a partition's commits are unknown.
            ClientClosedError: The client is closed.
        """
        engine = self._own_engine()
        wanted = range(len(engine.partitions)) if partition_ids is None else list(dict.fromkeys(partition_ids))
        since_ms = _beginning(after, since)
        begins = _by_partition(NO_TRANSACTION if after is None else after, wanted, "after")
        ends = dict.fromkeys(wanted) if until is None else _by_partition(until, wanted, "until")
        for partition_id in wanted:  # errors are raised before the first feed begins
            self._feed_arguments(partition_id, begins[partition_id], ends[partition_id])
        share = share_of(len(wanted), engine.options)
        feed = MergedFeed(self.open_feed, engine.options)
        self._merged.add(feed)
        for partition_id in wanted:
            feed.add(partition_id, begins[partition_id], ends[partition_id], share, since_ms=since_ms)
        return feed

    def consume(
        self,
        positions: PositionStore,
        partition_ids: Iterable[int] | None = None,
        *,
        start: Start = "beginning",
        commit_every_s: float | None = None,
        share: str | None = None,
    ) -> Consumer:
        """The transactions of several partitions after the application's positions; used with ``async with``.

        ``await consumer.commit()`` confirms the transactions handed out. Others are handed out again after a restart.
        With ``share``, partitions move between instances when one comes, goes, or loses its ZooKeeper session: the next
        instance continues at the committed position.

        Args:
            positions: The store of the application's positions.
            partition_ids: The partitions; by default all.
            start: The start of a partition without a position: ``"beginning"``, ``"end"``, a time (see the ``since``
                of :meth:`feed`), or a mapping of partitions to the transactions to start after. It is stored at once,
                so that a restart begins there, too.
            commit_every_s: Seconds between automatic commits of the transactions that the application is done with (it
                has asked for more); there is a last one at the end.
            share: Name of a group: all instances with the same name share the partitions, each of which has one reader.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ValueError: ``start`` has another value, or lacks a partition.
            TypeError: Ids or seconds are not numbers.
            ClientClosedError: The client is closed.
            TimesNotSupportedError: By opening: the times of a partition's commits are unknown.
            PositionsError: By opening and reading: the positions cannot be used.
            ClientAheadError: By reading: the log of a partition ends before its position.
        """
        engine = self._own_engine()
        wanted = range(len(engine.partitions)) if partition_ids is None else list(dict.fromkeys(partition_ids))
        for partition_id in wanted:
            self._feed_arguments(partition_id, NO_TRANSACTION, None)
        if isinstance(start, Mapping):
            for position in _by_partition(start, wanted, "start").values():
                check_mark(position, "start")
        elif isinstance(start, datetime):
            milliseconds_of(start, "start")
        elif start not in ("beginning", "end"):
            raise ValueError(
                f"start must be 'beginning', 'end', a time or a mapping from partitions to ids, not {start!r}"
            )
        if commit_every_s is not None:
            check_seconds(commit_every_s, "commit_every_s")
        log = Log(
            self.open_feed, self.cluster_key, self.high_water_mark, self.offset_at, self.directory, engine.options
        )
        consumer = Consumer(log, positions, wanted, start=start, commit_every_s=commit_every_s, share=share)
        self._merged.add(consumer)
        return consumer

    def open_feed(self, partition_id: int, after: int, until: int | None, share: Share | None) -> Feed:
        """Open a part of a merged feed. ``share`` limits the data that it reads ahead; ``None``: the limit of a single
        feed.

        Raises ``PartitionNotFoundError``, ``ValueError`` for an ``after`` below -1, ``TypeError`` for ids that are not
        integers, and ``ClientClosedError``. Reads raise like those of :meth:`feed`.
        """
        return Feed(*self._feed_arguments(partition_id, after, until), share)

    # Write sessions

    def write_session(self, partition_id: int) -> int | None:
        """The number of the write session of the client's appends to a partition.

        ``None`` while no appends are sent (before the first use, and after the end of the session), and without write
        sessions.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
        """
        return self._own_engine().sessions.number(partition_id)

    async def last_transaction_id(
        self, partition_id: int, *, fence: bool = False, if_session: int | None = None
    ) -> int:
        """The id of the last transaction of a partition after all appends that this client has sent; -1 if there is
        none.

        Without write sessions (see :func:`connect`) ``fence`` has no effect but a warning in the log.

        Args:
            partition_id: The partition, from 0.
            fence: First begin a new write session, in which this client continues: no append of an older session is
                ever after the transaction. The client then knows all transactions before it, and all sent appends are
                decided.
            if_session: Begin the session only if this is the number of the present one.

        Raises:
            SessionFencedError: The present session is not ``if_session``.
            SessionNotSupportedError: The server does not support write sessions.
            DeadlineExceededError: ``client.sessionTimeout`` has passed; the new session may have begun.
            InvalidOperationError: A session of :meth:`exclusive` is open.
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
        """
        engine = await self._joined_engine(partition_id)
        return await engine.sessions.last_transaction_id(partition_id, fence=fence, if_session=if_session)

    async def _joined_engine(self, partition_id: int) -> Engine:
        if partition_id not in self._joined:
            try:
                await self._join(partition_id, self._environment.config.session_timeout_ms / 1000)
            except NotAppendedError as error:
                raise DeadlineExceededError(str(error)) from error
        return self._own_engine()

    # Appending

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        self._own_engine()
        assert self._loop is not None
        return self._loop

    async def _join(self, partition_id: int, timeout_s: float) -> StreamPartition:
        """Join a partition."""
        engine = self._own_engine()
        check_integer(partition_id, "partition_id")
        check_seconds(timeout_s, "timeout_s")
        obstacle: WaltzError | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        partition = self._joined[partition_id] = await engine.join(partition_id)
                        return partition
                    except DeadlineExceededError as error:
                        if isinstance(error.__cause__, TlsRefusedError):
                            raise NotAppendedError(
                                f"partition {partition_id} cannot be joined: {error.__cause__}; nothing was sent"
                            ) from error.__cause__
                        obstacle = error
        except TimeoutError:
            obstacle = engine.obstacle(partition_id) or obstacle
            reason = "its server does not answer" if obstacle is None else str(obstacle)
            raise NotAppendedError(
                f"partition {partition_id} could not be joined within {timeout_s:g} s: {reason}; nothing was sent"
            ) from obstacle

    def _seen(self, partition_id: int) -> int:
        """The transaction against which locks are checked if the application names none."""
        feeds = self._feeds.get(partition_id)
        mark = None if feeds is None else seen(feeds.endless)
        if mark is None:
            raise TypeError(
                "an append with write_locks or read_locks needs high_water_mark=, the id of the last transaction that "
                f"the decision to append rests on (-1: none): this client has no open feed of partition {partition_id} "
                "without `until`, whose position would say so"
            )
        return mark

    async def _confirm(self, partition: StreamPartition, mark: int, now_s: float, timeout_s: float) -> None:
        """Refuse a mark beyond the log, which would disable the check of the locks."""
        engine = self._own_engine()
        check_seconds(timeout_s, "timeout_s")
        try:
            async with asyncio.timeout_at(now_s + timeout_s):
                await confirm_mark(engine, self._open_reader, partition, mark)
            self._open_engine()
        except (TimeoutError, DeadlineExceededError) as error:
            raise NotAppendedError(
                f"it could not be found out within {timeout_s:g} s whether partition {partition.partition_id} has "
                f"transaction {mark}, the high-water mark of the append; nothing was sent"
            ) from error

    def _submission(
        self,
        partition: StreamPartition,
        fields: AppendFields,
        loop: asyncio.AbstractEventLoop,
        now_s: float,
        timeout_s: float,
        level: Consistency | None = None,
    ) -> PlainSubmission:
        try:
            return PlainSubmission(
                partition.partition_id, partition.appends, fields, loop.create_future(), now_s, timeout_s, level
            )
        except TypeError:
            check_seconds(timeout_s, "timeout_s")
            raise

    def _feed(
        self,
        kind: type[FeedKind],
        partition_id: int,
        after: int | None,
        since: datetime | None,
        until: int | None,
    ) -> FeedKind:
        since_ms = _beginning(after, since)
        if since_ms is None:
            assert after is not None
            return kind(*self._feed_arguments(partition_id, after, until))
        return kind(*self._feed_arguments(partition_id, NO_TRANSACTION, until)).since(since_ms)

    def _feed_arguments(
        self, partition_id: int, after: int, until: int | None, feeds_of: dict[int, PartitionFeeds] | None = None
    ) -> tuple[Engine, OpenEngine, int, int, int | None, PartitionFeeds]:
        engine = self._own_engine()
        check_integer(partition_id, "partition_id")
        if not 0 <= partition_id < len(engine.partitions):
            raise PartitionNotFoundError(partition_id, len(engine.partitions))
        check_integer(after, "after")
        if after < NO_TRANSACTION:
            raise ValueError(f"a feed begins after a transaction, or after -1 for the first one, not after {after}")
        if until is not None:
            check_integer(until, "until")
        if feeds_of is None:
            feeds_of = self._feeds
        feeds = feeds_of.setdefault(partition_id, PartitionFeeds())
        return engine, self._open_reader, partition_id, after, until, feeds

    async def _open_reader(self, applier: Applier) -> Engine:
        environment = self._environment.with_sessions(False, False)  # a session would compete with this client's
        reader = await Engine.open(dataclasses.replace(environment, on_event=None), applier)
        self._readers.add(reader)
        return reader


def _lags(engine: Engine, feeds_of: Iterable[Mapping[int, PartitionFeeds]]) -> dict[int, int]:
    """By partition, the lag of the feeds without an end behind the known committed mark."""
    found: dict[int, int] = {}
    for partition_id, feeds in [each for known in feeds_of for each in known.items()]:
        known_id = engine.partitions[partition_id].feed.applied
        for feed in feeds.endless:
            found[partition_id] = max(found.get(partition_id, 0), known_id - feed.handed_out)
    return found


def _check_locks(all_fields: Iterable[AppendFields]) -> bool:
    """Whether some of these appends depend on a high-water mark."""
    for fields in all_fields:  # noqa: SIM110 - a generator expression would be called for each
        if fields[3] != NO_LOCKS or fields[4] != NO_LOCKS:
            return True
    return False


async def _finish(rest: Coroutine[Any, Any, None], append: PlainSubmission) -> None:
    """Send the append when the partition takes it, or end it at its deadline."""
    try:
        async with asyncio.timeout_at(append.deadline_s):
            await rest
    except TimeoutError:
        append.expire()
    except Exception:
        assert append.future.done(), "it was told"


def _beginning(after: int | Mapping[int, int] | None, since: datetime | None) -> int | None:
    """The time since which feeds are read, in milliseconds since the epoch; ``None``: feeds are read after an id."""
    if (after is None) == (since is None):
        raise InvalidOperationError("a feed begins after= a transaction or since= a time: give one of the two")
    return None if since is None else milliseconds_of(since, "since")


def _by_partition(ids: int | Mapping[int, int], partition_ids: Iterable[int], name: str) -> Mapping[int, int]:
    if not isinstance(ids, Mapping):
        return dict.fromkeys(partition_ids, ids)
    missing = [partition_id for partition_id in partition_ids if partition_id not in ids]
    if missing:
        raise ValueError(f"{name} has no transaction for partition {missing[0]}")
    return ids


def _results(futures: "list[asyncio.Future[int]]") -> list[int]:
    outcomes: list[int | Exception] = []
    first: Exception | None = None
    for future in futures:
        error = future.exception()
        if error is None:
            outcomes.append(future.result())
        else:
            assert isinstance(error, Exception)
            first = first or error
            outcomes.append(error)
    if first is not None:
        raise AppendManyError(outcomes) from first
    return [future.result() for future in futures]
