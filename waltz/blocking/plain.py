"""The plain face for threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Self, overload

from waltz.blocking.election import Election
from waltz.blocking.feeds import BatchFeed, TransactionFeed
from waltz.blocking.loop import Calls
from waltz.blocking.merged import Consumer, MergedFeed
from waltz.client.arguments import APPEND_TIMEOUT_S
from waltz.client.builder import Append
from waltz.client.decisions import Basis, Choice, chosen_append
from waltz.client.election import Election as AsyncElection
from waltz.client.engine.sessions import ExclusiveSession
from waltz.client.plain import client as plain
from waltz.client.plain.acknowledgement import Acknowledgement as AsyncAcknowledgement
from waltz.client.plain.acknowledgement import EarlyLevel
from waltz.client.plain.client import Data, Locks
from waltz.client.plain.consumer import Consumer as AsyncConsumer
from waltz.client.plain.consumer import Start
from waltz.client.plain.feed import Feed
from waltz.client.plain.merged import MergedFeed as AsyncMergedFeed
from waltz.client.positions.interface import PositionStore
from waltz.common.metrics.registry import Registry


class Acknowledgement(int):
    """What an append at a level below the quorum returns: the id at which storages below the quorum have it.

    Examples:
        ```python
        acknowledgement = client.append(0, b"clicked", consistency="leader")
        print("on one disk, as transaction", acknowledgement)
        print("committed, as transaction", acknowledgement.committed())
        ```
    """

    _asynchronous: AsyncAcknowledgement
    _calls: Calls

    def __new__(cls, asynchronous: AsyncAcknowledgement, calls: Calls) -> Self:
        made = super().__new__(cls, asynchronous)
        made._asynchronous, made._calls = asynchronous, calls
        return made

    def __repr__(self) -> str:
        return repr(self._asynchronous)

    @property
    def partition_id(self) -> int:
        """The partition of the append."""
        return self._asynchronous.partition_id

    @property
    def is_committed(self) -> bool:
        """Whether the transaction is known as committed."""
        return self._asynchronous.is_committed

    def committed(self, *, timeout_s: float = APPEND_TIMEOUT_S) -> int:
        """Wait until the transaction is committed; arguments, result and errors are those of
        :meth:`waltz.Acknowledgement.committed`."""
        return self._calls.run(self._asynchronous.committed(timeout_s=timeout_s))


class PlainClient(Calls):
    """Appends, feeds and marks: the calls of the plain face, each blocking until done, with the same errors."""

    def __init__(self, client: plain.Client) -> None:
        super().__init__()
        self._client = client

    def open(self) -> Self:
        """Join the cluster. ``with`` calls it; otherwise the caller has to call :meth:`close` at the end.

        Raises:
            InvalidOperationError: The client was opened before, or made before a fork.

        Raises the errors of ``open`` of :class:`waltz.Client`, too.
        """
        self._begin()
        try:
            self.run(self._client.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the client. Called at the end of ``with``; may be called twice.

        Calls of other threads end with errors.
        """
        self._finish(self._client.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _opened(self) -> plain.Client:
        """The asynchronous client; raises ``InvalidOperationError`` before it is opened, and ``ClientClosedError``."""
        self._running_loop()
        return self._client

    @property
    def asynchronous(self) -> plain.Client:
        """The asynchronous client behind this one, for the library itself: it is used on its own loop only."""
        return self._client

    @property
    def client_id(self) -> int:
        """Id of this client in the cluster."""
        return self._opened.client_id

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self._opened.cluster_name

    @property
    def metrics(self) -> Registry:
        """The metrics of the client; see :mod:`waltz.telemetry`. May be read by any thread."""
        return self._opened.metrics

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return self._opened.partition_count

    def partition_for(self, key: object) -> int:
        """The partition that a key belongs to."""
        return self._opened.partition_for(key)

    @overload
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
        consistency: EarlyLevel,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> Acknowledgement: ...

    @overload
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
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int: ...

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
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """Append a transaction, and wait until it is committed. Arguments and errors are those of
        :meth:`waltz.Client.append`.

        Returns:
            The id of the transaction; at a level below the quorum an :class:`Acknowledgement`.
        """
        outcome = self.run(
            self._client.append(
                partition_id,
                data,
                header=header,
                write_locks=write_locks,
                read_locks=read_locks,
                append_locks=append_locks,
                high_water_mark=high_water_mark,
                consistency=consistency,
                timeout_s=timeout_s,
            )
        )
        return Acknowledgement(outcome, self) if isinstance(outcome, AsyncAcknowledgement) else outcome

    def append_many(
        self,
        partition_id: int,
        items: Iterable[Data | Append],
        *,
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """Append many independent transactions, and wait until all are committed.

        Arguments and errors are those of :meth:`waltz.Client.append_many`.

        Returns:
            The ids in the order of ``items``.
        """
        items = list(items)  # on this thread: the items may be a generator of the application
        return self.run(
            self._client.append_many(
                partition_id, items, high_water_mark=high_water_mark, consistency=consistency, timeout_s=timeout_s
            )
        )

    def transact(
        self,
        partition_id: int,
        decide: Callable[[Basis], Choice],
        *,
        feed: TransactionFeed | BatchFeed | None = None,
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

    def feed(
        self, partition_id: int, *, after: int | None = None, since: datetime | None = None, until: int | None = None
    ) -> TransactionFeed:
        """The transactions with an id above ``after``, or since a time, (up to ``until``), one by one, and those to
        come."""
        return TransactionFeed(self, self.run(self._feed_of(partition_id, after, since, until)))

    def feed_batches(
        self, partition_id: int, *, after: int | None = None, since: datetime | None = None, until: int | None = None
    ) -> BatchFeed:
        """The same in lists of the transactions that came together."""
        return BatchFeed(self, self.run(self._feed_of(partition_id, after, since, until)))

    def feed_all(
        self,
        partition_ids: Iterable[int] | None = None,
        *,
        after: int | Mapping[int, int] | None = None,
        since: datetime | None = None,
        until: Mapping[int, int] | None = None,
    ) -> MergedFeed:
        """The transactions of all partitions, or of these, in one loop: in order within each, in turn between them.

        They begin ``after`` ids, or ``since`` a time.
        """
        ids = None if partition_ids is None else list(partition_ids)

        async def opened() -> AsyncMergedFeed:
            return self._client.feed_all(ids, after=after, since=since, until=until)

        return MergedFeed(self, self.run(opened()))

    def consume(
        self,
        positions: PositionStore,
        partition_ids: Iterable[int] | None = None,
        *,
        start: Start = "beginning",
        commit_every_s: float | None = None,
        share: str | None = None,
    ) -> Consumer:
        """The transactions of several partitions, from where the application was: use it in ``with``.

        ``consumer.commit()`` confirms the transactions handed out. Errors are those of :meth:`waltz.Client.consume`.

        Args:
            positions: The store of the application's positions.
            partition_ids: The partitions; by default all.
            start: The start of a partition without a position: ``"beginning"``, ``"end"``, a time, or a mapping of
                partitions to the transactions to start after.
            commit_every_s: Seconds between automatic commits of confirmed transactions; there is a last one at the
                end.
            share: Name of a group: all instances with the same name share the partitions.
        """
        ids = None if partition_ids is None else list(partition_ids)

        async def made() -> AsyncConsumer:
            return self._client.consume(positions, ids, start=start, commit_every_s=commit_every_s, share=share)

        return Consumer(self, self.run(made()))

    def high_water_mark(self, partition_id: int, *, confirmed: bool = False, timeout_s: float | None = None) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none.

        With ``confirmed`` it covers every transaction that was committed before the call; see :class:`waltz.Client`.
        """
        return self.run(self._client.high_water_mark(partition_id, confirmed=confirmed, timeout_s=timeout_s))

    def offset_at(self, partition_id: int, time: datetime, *, timeout_s: float | None = None) -> int:
        """Id of the last transaction that is known to have been committed at or before a time; -1 when none is.

        Never that of a later one; see :meth:`waltz.Client.offset_at`.
        """
        return self.run(self._client.offset_at(partition_id, time, timeout_s=timeout_s))

    def time_of(self, partition_id: int, transaction_id: int, *, timeout_s: float | None = None) -> datetime | None:
        """The time by which a transaction is known to have been committed; ``None`` when it is not known."""
        return self.run(self._client.time_of(partition_id, transaction_id, timeout_s=timeout_s))

    def write_session(self, partition_id: int) -> int | None:
        """Number of the write session of the client's appends to a partition, if there is one."""

        async def number() -> int | None:
            return self._client.write_session(partition_id)

        return self.run(number())

    def last_transaction_id(self, partition_id: int, *, fence: bool = False, if_session: int | None = None) -> int:
        """Id of the last transaction after everything that was sent; with ``fence`` a write session begins there.

        With ``if_session`` it begins only if this is the number of the present session.
        """
        return self.run(self._client.last_transaction_id(partition_id, fence=fence, if_session=if_session))

    def renew_session(self, partition_id: int) -> int:
        """Continue in the present write session of a partition; returns its number."""
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

    def election(self, partition_id: int, name: str | None = None) -> Election:
        """The election of the leader of a partition, to campaign in it and to observe it; see :class:`waltz.Client`.

        Observers see a leader by its ``name``, by default ``client`` and the id of the client.
        """

        async def made() -> AsyncElection:
            return self._client.election(partition_id, name)

        return Election(self, self.run(made()))

    async def _feed_of(self, partition_id: int, after: int | None, since: datetime | None, until: int | None) -> Feed:
        return self._client.feed_batches(partition_id, after=after, since=since, until=until)
