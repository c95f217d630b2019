"""The client of a cluster."""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from threading import get_ident
from types import TracebackType
from typing import Self

from waltz.client.arguments import check_integer, check_loop, check_seconds
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.decisions import Decide, DecidedSubmission, check_attempts, transact_applied
from waltz.client.engine.assignments import Assigned
from waltz.client.engine.links import Connector
from waltz.client.engine.rpc import RpcClient
from waltz.client.engine.settings import PartitionSettings
from waltz.client.engine.stream import StreamClient
from waltz.client.engine.submission import tell_exception
from waltz.client.engine.tasks import TaskOwner
from waltz.client.errors import ClientClosedError, ClientTimeoutError, InvalidOperationError, PartitionNotFoundError
from waltz.client.options import ClientOptions
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config import ClientConfig
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect
from waltz.common.net.tls import client_context
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect as connect_zookeeper

_CONNECT_TIMEOUT_S = 30.0
TRANSACT_TIMEOUT_S = 30.0


class WaltzClient:
    """Appends transactions and applies all committed ones, in order; see :mod:`waltz.client.context` for its callbacks.

    Made by :meth:`open`; to be closed, or used as an asynchronous context manager. Everything happens on the loop on
    which it was opened; a call on another one raises ``InvalidOperationError`` before it does anything.
    """

    def __init__(
        self,
        callbacks: WaltzClientCallbacks,
        config: ClientConfig,
        *,
        tls: ssl.SSLContext | None,
        options: ClientOptions | None = None,
        random_source: random.Random | None = None,
        connector: Connector = connect,
    ) -> None:
        """For those who play the cluster: :meth:`cluster_joined`, :meth:`set_endpoints`, then :meth:`activate`."""
        options = options or ClientOptions()
        random_source = random_source or random.Random()
        self._callbacks = callbacks
        self._config = config
        self._options = options
        self._tasks = TaskOwner()
        settings = PartitionSettings(
            callbacks=callbacks,
            max_concurrent_transactions=config.max_concurrent_transactions,
            max_transaction_size_bytes=config.max_transaction_size_bytes,
            max_locks=config.max_locks_per_transaction,
            retries=config.num_transaction_retry_threads > 0,
            applying=asyncio.Semaphore(config.num_consumer_threads),
            tasks=self._tasks,
            options=options,
            random_source=random_source,
        )
        self._rpc = RpcClient(tls=tls, options=options, random_source=random_source, connector=connector)
        self._stream = StreamClient(
            settings,
            tls=tls,
            long_wait_threshold_s=config.long_wait_threshold_ms / 1000,
            options=options,
            random_source=random_source,
            connector=connector,
        )
        self._cluster_name: str | None = None
        self._client_id: int | None = None
        self._active: frozenset[int] = frozenset()
        self._changing_partitions = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        self._cluster: ClusterManager | None = None
        self._own_zookeeper: ZooKeeper | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        callbacks: WaltzClientCallbacks,
        config: ClientConfig,
        *,
        zookeeper: ZooKeeper | None = None,
        options: ClientOptions | None = None,
        connector: Connector = connect,
    ) -> Self:
        """Join the cluster of ``config`` and, with ``client.autoMount``, take part in all partitions.

        ``zookeeper`` is used if given, and left open by :meth:`close`; ``connector`` makes the connections to servers.
        Raises what the callback for the high-water mark raises, ``ConfigError``, ``ZooKeeperError``, and ``WaltzError``
        when there is no such cluster.
        """
        client = cls(callbacks, config, tls=client_context(config.tls), options=options, connector=connector)
        try:
            if zookeeper is None:
                zookeeper = client._own_zookeeper = await connect_zookeeper(
                    config.zookeeper_connect_string,
                    session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                )
            client._cluster = await ClusterManager.open(zookeeper, config.cluster_root)
            await client._cluster.manage_client(client)
            await client.activate()
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # The cluster's side

    def cluster_joined(self, cluster_name: str, client_id: int, partition_count: int) -> None:
        """The cluster tells who the client is. Repeated with the same number of partitions it changes nothing."""
        if self._client_id is None:
            self._cluster_name = cluster_name
            self._client_id = client_id
            self._rpc.create_partitions(client_id, partition_count)
            self._stream.create_partitions(client_id, partition_count, self._rpc.partitions.__getitem__)
        elif partition_count != self.partition_count:
            raise InvalidOperationError(
                f"the number of partitions of cluster {self._cluster_name} changed from {self.partition_count} to "
                f"{partition_count}; that is not supported"
            )

    def set_endpoints(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> None:
        """The cluster tells which server owns which partitions."""
        self._rpc.set_endpoints(endpoints)
        self._stream.set_endpoints(endpoints)

    def remove_server(self, endpoint: Endpoint) -> None:
        """The cluster tells that a server is gone."""
        self._rpc.remove_server(endpoint)
        self._stream.remove_server(endpoint)

    async def activate(self) -> None:
        """With ``client.autoMount``, take part in all partitions; part of :meth:`open`."""
        if self._config.auto_mount:
            await self._set_active(range(self.partition_count))

    # The application's side

    @property
    def client_id(self) -> int:
        """Id of this client in the cluster; no other client ever has it."""
        if self._client_id is None:
            raise InvalidOperationError("the client has not joined a cluster")
        return self._client_id

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        if self._cluster_name is None:
            raise InvalidOperationError("the client has not joined a cluster")
        return self._cluster_name

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return len(self._stream.partitions)

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this client takes part in."""
        return self._active

    async def set_partitions(self, partition_ids: Collection[int]) -> None:
        """Take part in these partitions and no others; unknown ones are ignored.

        Returns when what was submitted to the partitions left is decided, which needs their servers. Raises
        :class:`InvalidOperationError` with ``client.autoMount``, and what the callback for the high-water mark raises.
        """
        check_loop(self._loop)
        if self._config.auto_mount:
            raise InvalidOperationError("failed to set partitions: client.autoMount is on, all partitions are mounted")
        await self._set_active(partition_ids)

    async def submit(self, context: TransactionContext) -> None:
        """Have a transaction appended; returns when its first attempt is sent, or ``execute`` did not want one.

        Waits for the partition to be mounted (10 s) and for a place among ``client.maxConcurrentTransactions``. What
        becomes of it is told to ``context``. Raises, after telling ``on_exception``: ``PartitionNotFoundError``,
        ``PartitionInactiveError``, ``ClientAheadError``, ``ClientTimeoutError``, ``ClientClosedError``,
        ``TransactionTooLargeError``, ``ProtocolError`` (locks that the server's version does not know), and what the
        context raises.
        """
        # Asking for the running loop costs a system call; this finds the same, but for an exotic case that costs it.
        if get_ident() != self._thread_id or not self._loop.is_running():
            check_loop(self._loop)
        partitions = self._stream.partitions
        partition_id = -1
        try:
            partition_id = context.partition_id(len(partitions))
            if self._closed:
                raise ClientClosedError
            if not 0 <= partition_id < len(partitions):
                raise PartitionNotFoundError(partition_id)
        except Exception as error:
            await tell_exception(context, error)
            raise
        rest = partitions[partition_id].appends.submit(context)
        if rest is not None:
            await rest

    async def transact(
        self,
        partition_id: int,
        decide: Decide,
        *,
        timeout_s: float = TRANSACT_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Decide on what has been applied and append what was decided; returns its id when that has been applied.

        ``decide`` (plain or async) is called with a :class:`~waltz.client.decisions.Basis` and returns an ``Append``,
        bytes, or ``None``, which is returned. It is called again when the append got lost, and when one of its locks
        was changed meanwhile, as soon as the change has been applied: ``max_attempts`` times, within ``timeout_s``.

        Not to be awaited by a callback of the same partition. Raises ``LockConflict`` after ``max_attempts``;
        ``NotAppendedError`` and ``OutcomeUnknownError`` at the deadline and when the client is closed;
        ``PartitionNotFoundError``, ``TransactionTooLargeError``, and what ``decide`` raises. When it is cancelled a
        note on the ``CancelledError`` tells whether anything was sent.
        """
        check_loop(self._loop)
        check_integer(partition_id, "partition_id")
        check_seconds(timeout_s, "timeout_s")
        check_attempts(max_attempts)
        if self._closed:
            raise ClientClosedError
        if not 0 <= partition_id < self.partition_count:
            raise PartitionNotFoundError(partition_id)
        submission = DecidedSubmission(
            partition_id,
            self._stream.partitions[partition_id].appends,
            decide,
            now_s=self._loop.time(),
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )
        return await transact_applied(submission)

    async def flush_transactions(self, *, timeout_s: float | None = None) -> None:
        """Return when every append sent until now is decided (and, if committed, about to be applied).

        Raises ``PartitionInactiveError`` if any partition is inactive, ``ClientTimeoutError`` if one cannot be mounted
        or the outcome is not known in time (60 s by default), ``ClientAheadError`` and ``ClientClosedError``.
        """
        check_loop(self._loop)
        if self._closed:
            raise ClientClosedError
        timeout_s = self._options.flush_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                appends = [partition.appends for partition in self._stream.partitions]
                flushes = [(each, await each.begin_flush()) for each in appends]
                for each, entry in flushes:
                    if entry is not None:
                        await each.flushed(entry)
        except TimeoutError:
            raise ClientTimeoutError(f"not all transactions were decided within {timeout_s:g} s") from None

    def has_pending_transactions(self) -> bool:
        """Whether anything submitted is undecided, waits for another attempt, or is being executed."""
        return any(partition.appends.has_pending for partition in self._stream.partitions)

    def client_high_water_mark(self, partition_id: int) -> int:
        """Id of the last transaction that this client has applied; raises :class:`PartitionNotFoundError`."""
        if not 0 <= partition_id < self.partition_count:
            raise PartitionNotFoundError(partition_id)
        return self._stream.partitions[partition_id].feed.applied

    async def high_water_mark(self, partition_id: int, *, timeout_s: float | None = None) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none.

        Right after the partition has moved it may be that of the server before, until the client hears of the new one:
        then it is behind.

        Raises ``PartitionNotFoundError``, ``DeadlineExceededError`` (10 s by default) and ``ClientClosedError``.
        """
        check_loop(self._loop)
        if self._closed:
            raise ClientClosedError
        return await self._rpc.high_water_mark(partition_id, timeout_s)

    # Administration; errors as in RpcClient

    async def check_server_connections(self, endpoints: Iterable[Endpoint]) -> dict[Endpoint, dict[str, bool]]:
        """For each server, which storages (``host:port``) it reaches; servers that cannot be asked are left out."""
        check_loop(self._loop)
        return await self._rpc.check_server_connections(endpoints)

    async def server_partition_assignments(self, endpoint: Endpoint) -> list[int]:
        """The partitions that a server owns."""
        check_loop(self._loop)
        return await self._rpc.server_partition_assignments(endpoint)

    async def server_partition_health(self, endpoint: Endpoint) -> dict[int, bool]:
        """Each partition of a server, and whether it is healthy."""
        check_loop(self._loop)
        return await self._rpc.server_partition_health(endpoint)

    async def add_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Have the cluster give these partitions to a server by preference; whether the server agreed."""
        check_loop(self._loop)
        return await self._rpc.add_preferred_partitions(endpoint, partition_ids)

    async def remove_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Take the preference back; whether the server agreed."""
        check_loop(self._loop)
        return await self._rpc.remove_preferred_partitions(endpoint, partition_ids)

    async def close(self) -> None:
        """Leave the cluster and close everything; may be called twice.

        What is undecided ends with ``ClientClosedError`` (it may or may not be committed). A transaction that is being
        applied is given a few seconds, then its application is cancelled.
        """
        if self._closed:
            return
        check_loop(self._loop)
        self._closed = True
        if self._cluster is not None:
            self._cluster.unmanage_client(self)
        await self._rpc.close()
        await self._stream.close()
        await self._tasks.close(self._options.close_grace_s)
        if self._cluster is not None:
            await self._cluster.close()
        if self._own_zookeeper is not None:
            await self._own_zookeeper.close()

    async def _set_active(self, partition_ids: Collection[int]) -> None:
        async with self._changing_partitions:
            await self._activate_only(partition_ids, self._read_high_water_mark)

    async def _activate_only(
        self, partition_ids: Collection[int], read_high_water_mark: Callable[[int], Awaitable[int]]
    ) -> None:
        if self._closed:
            raise ClientClosedError
        try:
            await self._stream.set_active(partition_ids, read_high_water_mark)
        finally:
            self._active = frozenset(
                partition.partition_id for partition in self._stream.partitions if partition.active
            )

    async def _read_high_water_mark(self, partition_id: int) -> int:
        high_water_mark = self._callbacks.client_high_water_mark(partition_id)
        if isinstance(high_water_mark, int):
            return high_water_mark
        return await high_water_mark
