"""The plain face: append transactions and read the feed, without callbacks."""

import asyncio
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.client.builder import checked_data, checked_header, lock_hashes
from waltz.client.client import WaltzClient
from waltz.client.context import WaltzClientCallbacks
from waltz.client.core import ClusterCores, Core, Cores, Driver, JoinedPartition
from waltz.client.errors import (
    AppendManyError,
    ClientClosedError,
    ClientTimeoutError,
    InvalidOperationError,
    NotAppendedError,
    PartitionNotFoundError,
    TransactionTooLargeError,
)
from waltz.client.locks import PartitionLocalLock
from waltz.client.options import ClientOptions
from waltz.client.plain_append import Append, Deadlines, PlainAppend
from waltz.client.reader import BatchFeed, Feed, TransactionFeed
from waltz.common.config import ClientConfig, from_mapping, load
from waltz.common.errors import DeadlineExceededError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.zk.client import ZooKeeper

APPEND_TIMEOUT_S = 30.0
MAX_IN_FLIGHT = 2048

Data = bytes | bytearray | memoryview
Locks = Iterable[PartitionLocalLock]


def connect(
    config: ClientConfig | Mapping[str, object] | str | os.PathLike[str] | Driver,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    zookeeper: ZooKeeper | None = None,
    options: ClientOptions | None = None,
) -> "Client":
    """A client of the cluster that ``config`` describes, to be opened with ``async with``.

    ``config`` is the path of a configuration file, its content as a mapping, a ``ClientConfig``, or a mock driver. At
    most ``max_in_flight`` appends of each partition are under way; ``client.maxConcurrentTransactions`` does not count.
    ``zookeeper`` is used if given, and left open. Raises ``ConfigError``.
    """
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
    if isinstance(config, Driver):
        return Client(config.cores(max_in_flight, options), options=options)
    config = _loaded(config).model_copy(update={"max_concurrent_transactions": max_in_flight})
    return Client(
        ClusterCores(config, options, zookeeper),
        max_transaction_size_bytes=config.max_transaction_size_bytes,
        options=options,
    )


async def open_client(
    callbacks: WaltzClientCallbacks,
    config: ClientConfig | Mapping[str, object] | str | os.PathLike[str] | Driver,
    *,
    zookeeper: ZooKeeper | None = None,
    options: ClientOptions | None = None,
) -> WaltzClient:
    """A client with callbacks of the cluster that ``config`` describes, as for :func:`connect`.

    Raises ``ConfigError``, and as ``WaltzClient.open``.
    """
    if isinstance(config, Driver):
        return await config.open_client(callbacks, options=options)
    return await WaltzClient.open(callbacks, _loaded(config), zookeeper=zookeeper, options=options)


def _loaded(config: ClientConfig | Mapping[str, object] | str | os.PathLike[str]) -> ClientConfig:
    if isinstance(config, str | os.PathLike):
        return load(Path(config), ClientConfig)
    return config if isinstance(config, ClientConfig) else from_mapping(config, ClientConfig)


class Client:
    """Made by :func:`connect`, opened by ``async with``; everything happens on the loop on which that is done.

    A partition is joined when it is used first: from then on the client knows how far its log has come.
    """

    def __init__(
        self,
        cores: Cores,
        *,
        max_transaction_size_bytes: int = 32 << 20,
        options: ClientOptions | None = None,
    ) -> None:
        self._cores = cores
        self._max_transaction_size_bytes = max_transaction_size_bytes
        self._options = options or ClientOptions()
        self._open_core: Core | None = None
        self._joined: dict[int, JoinedPartition] = {}
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop
        self._deadlines: Deadlines

    async def open(self) -> Self:
        """What ``async with`` does at first; raises as ``WaltzClient.open``."""
        if self._open_core is not None or self._closed:
            raise InvalidOperationError("a client is opened once")
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        try:
            self._open_core = await self._cores.open_core()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """What ``async with`` does at last; may be called twice.

        Appends under way end with an error that says whether the outcome is known, and feeds with
        ``ClientClosedError``.
        """
        if self._closed:
            return
        self._closed = True
        for feed in list(self._feeds):
            await feed.aclose()
        if self._open_core is not None:
            await self._open_core.close()
            self._deadlines.close()
        await self._cores.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _core(self) -> Core:
        core = self._open_core
        if core is None or self._closed:
            if self._closed:
                raise ClientClosedError
            raise InvalidOperationError("the client is not open; use it in `async with waltz.connect(...) as client:`")
        return core

    @property
    def client_id(self) -> int:
        """Id of this client in the cluster; no other client ever has it."""
        return self._core.client_id

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self._core.cluster_name

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return self._core.partition_count

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
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """Append a transaction; returns its id when it is committed.

        Locks are checked against ``high_water_mark``: the id of the last transaction that the decision to append this
        one rests on. By default that is the position of this client's open feed of the partition (the least if there
        are several); without a feed, the last transaction that is known to be committed.

        What gets lost on its way is sent again until ``timeout_s`` is over. Raises ``LockConflict``; at the deadline
        and when the client is closed ``NotAppendedError`` (it is not in the log) or ``OutcomeUnknownError``;
        ``PartitionNotFoundError``, ``TransactionTooLargeError``, and ``TypeError`` and ``ValueError`` for what is no
        data, header or lock. When it is cancelled the same holds: a note on the ``CancelledError`` tells whether
        anything was sent.
        """
        partition = self._joined.get(partition_id)
        if partition is None:
            partition, timeout_s = await self._join(partition_id, timeout_s)
        append = self._made(
            partition_id, partition, data, header, write_locks, read_locks, append_locks, high_water_mark, timeout_s
        )
        deadlines = self._deadlines
        deadlines.add(append)
        future = append.future
        try:
            if not partition.append_now(append, *append.request):
                await self._send(partition, append)
            return await future
        except asyncio.CancelledError as cancelled:
            _abandon(future)
            cancelled.add_note(
                "The transaction was sent; whether it is committed is not known."
                if append.in_flight
                else "The transaction was not sent; it is not in the log."
            )
            raise
        finally:
            deadlines.remove(append)

    async def append_many(
        self,
        partition_id: int,
        items: Iterable[Data | Append],
        *,
        high_water_mark: int | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """Append many transactions, each for itself; returns their ids in the order given when all are committed.

        ``high_water_mark`` and the deadline hold for all of them. They are sent in order; should some get lost and be
        sent again, their ids are not. Raises :class:`AppendManyError`, which tells the outcome of each; and, before
        anything is sent, what :meth:`append` raises for wrong arguments.
        """
        partition = self._joined.get(partition_id)
        if partition is None:
            partition, timeout_s = await self._join(partition_id, timeout_s)
        appends: list[PlainAppend] = []
        for item in items:
            each = item if isinstance(item, Append) else Append(item)
            appends.append(
                self._made(
                    partition_id,
                    partition,
                    each.data,
                    each.header,
                    each.write_locks,
                    each.read_locks,
                    each.append_locks,
                    high_water_mark,
                    timeout_s,
                )
            )
        try:
            await self._send_all(partition, appends)
        except asyncio.CancelledError as cancelled:
            cancelled.add_note("Some of the transactions may have been sent; whether they are committed is not known.")
            raise
        finally:
            for append in appends:
                self._deadlines.remove(append)
                _abandon(append.future)
        return _results([append.future for append in appends])

    def feed(self, partition_id: int, *, after: int, until: int | None = None) -> TransactionFeed:
        """The transactions of a partition with an id above ``after`` (-1: all), one by one, with their data.

        ``async for transaction in client.feed(...)`` gives records (``transaction_id``, ``req_id``, ``header``,
        ``data``), and goes on with what will be committed, up to ``until`` if that is given. They are read in bulk,
        ahead of their consumer.
        Raises ``DeadlineExceededError`` when servers fail for a minute, ``DataChecksumError``, ``ClientClosedError``.
        """
        core = self._checked(partition_id, after)
        feed = TransactionFeed(core, self._cores, partition_id, after, until, self._options)
        self._feeds.add(feed)
        return feed

    def feed_batches(self, partition_id: int, *, after: int, until: int | None = None) -> BatchFeed:
        """The same in lists, as many at a time as came together: the fastest way to read a log."""
        core = self._checked(partition_id, after)
        feed = BatchFeed(core, self._cores, partition_id, after, until, self._options)
        self._feeds.add(feed)
        return feed

    async def high_water_mark(self, partition_id: int, *, timeout_s: float | None = None) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none.

        Right after the partition has moved it may be that of the server before, until the client hears of the new one:
        then it is behind.

        Raises ``PartitionNotFoundError``, ``DeadlineExceededError`` (10 s by default) and ``ClientClosedError``.
        """
        return await self._core.high_water_mark(partition_id, timeout_s=timeout_s)

    # Appending

    async def _join(self, partition_id: int, timeout_s: float) -> tuple[JoinedPartition, float]:
        """Join a partition; returns it and what is left of ``timeout_s``."""
        core = self._core
        deadline_s = self._loop.time() + timeout_s
        reason = "its server does not answer"
        try:
            async with asyncio.timeout_at(deadline_s):
                while True:
                    try:
                        partition = self._joined[partition_id] = await core.join(partition_id)
                        return partition, deadline_s - self._loop.time()
                    except DeadlineExceededError as error:
                        reason = str(error)
        except TimeoutError:
            raise NotAppendedError(
                f"partition {partition_id} could not be joined within {timeout_s:g} s: {reason}; nothing was sent"
            ) from None

    def _made(
        self,
        partition_id: int,
        partition: JoinedPartition,
        data: Data,
        header: int,
        write_locks: Locks,
        read_locks: Locks,
        append_locks: Locks,
        high_water_mark: int | None,
        timeout_s: float,
    ) -> PlainAppend:
        if self._closed:
            raise ClientClosedError
        if not isinstance(data, bytes):
            data = checked_data(data)
        if len(data) > self._max_transaction_size_bytes:
            raise TransactionTooLargeError(
                f"the transaction data has {len(data)} bytes; "
                f"client.maxTransactionSize is {self._max_transaction_size_bytes}"
            )
        if high_water_mark is None:
            high_water_mark = self._position(partition_id) if self._feeds else partition.high_water_mark
            if high_water_mark is None:
                high_water_mark = partition.high_water_mark
        loop = self._loop
        request = (
            data,
            checked_header(header),
            high_water_mark,
            lock_hashes(write_locks) if write_locks != () else (),
            lock_hashes(read_locks) if read_locks != () else (),
            lock_hashes(append_locks) if append_locks != () else (),
        )
        return PlainAppend(partition_id, partition, request, loop.create_future(), loop.time(), timeout_s)

    def _position(self, partition_id: int) -> int | None:
        """How far the open feeds of a partition are, the one that is least far."""
        return min(
            (feed.position for feed in self._feeds if feed.partition_id == partition_id and not feed.closed),
            default=None,
        )

    async def _send(self, partition: JoinedPartition, append: PlainAppend) -> None:
        """Send as soon as the partition takes it; returns, too, when its future is done."""
        try:
            async with asyncio.timeout_at(append.deadline_s):
                while not append.future.done():
                    try:
                        await partition.submit_attempt(append)
                        return
                    except ClientTimeoutError:
                        continue  # not mounted yet, but there may be time left
        except TimeoutError:
            append.expire()
        except Exception as error:
            append.on_exception(error)

    async def _send_all(self, partition: JoinedPartition, appends: list[PlainAppend]) -> None:
        """Send all, in order, and wait for all."""
        for append in appends:
            self._deadlines.add(append)
        for append in appends:
            if not append.future.done() and not partition.append_now(append, *append.request):
                await self._send(partition, append)
        for append in appends:
            if not append.future.done():
                await asyncio.wait((append.future,))

    def _checked(self, partition_id: int, after: int) -> Core:
        core = self._core
        if not 0 <= partition_id < core.partition_count:
            raise PartitionNotFoundError(partition_id)
        if after < NO_TRANSACTION:
            raise ValueError(f"a feed begins after a transaction, or after -1 for the first one, not after {after}")
        return core


def _abandon(future: "asyncio.Future[int]") -> None:
    """Nobody looks at the outcome any more."""
    if not future.cancel() and not future.cancelled():
        future.exception()


def _results(futures: "list[asyncio.Future[int]]") -> list[int]:
    outcomes: list[int | Exception] = []
    failed = False
    for future in futures:
        error = future.exception()
        if error is None:
            outcomes.append(future.result())
        else:
            assert isinstance(error, Exception)
            failed = True
            outcomes.append(error)
    if failed:
        raise AppendManyError(outcomes)
    return [future.result() for future in futures]
