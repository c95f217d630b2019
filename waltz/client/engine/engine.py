"""The engine of a client: a member of the cluster that appends to partitions and follows them, for any face."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from waltz.client.arguments import check_loop
from waltz.client.engine.environment import Environment
from waltz.client.engine.links.assignments import Assigned
from waltz.client.engine.metrics import ClientMetrics
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.reads.data_lists import PendingList
from waltz.client.engine.rpc import RpcClient
from waltz.client.engine.sessions import WriteSessions
from waltz.client.engine.settings import PartitionSettings, SessionSettings
from waltz.client.engine.stream import StreamClient
from waltz.client.engine.submission import Limits
from waltz.client.engine.tasks import Closing, TaskOwner, take_all
from waltz.client.errors import (
    ClientClosedError,
    ClientTimeoutError,
    InvalidOperationError,
    PartitionInactiveError,
    PartitionNotFoundError,
)
from waltz.client.events import Events, Lagging
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.net.tls import client_context
from waltz.common.wire.storage_times import TimeQuestion


class Engine:
    """Created by :meth:`open`, at first without partitions. Belongs to the event loop of that call.

    With an applier, the high-water mark of a partition is the last applied transaction. Without an applier nothing is
    applied, and the mark is the last transaction that is known to be committed.
    """

    def __init__(self, environment: Environment, applier: Applier | None) -> None:
        config = environment.config
        self.options = environment.options
        self.limits = Limits(config.max_transaction_size_bytes, config.max_locks_per_transaction)
        self.closed = False
        self.lags: Callable[[], dict[int, int]] = self._backlogs
        """For each partition that is read or applied, the number of transactions in its log that were not read or
        applied yet. Set by the face."""
        self.metrics = ClientMetrics(environment.clock, lambda: self.lags())
        """The counters of the client."""
        events = Events(environment.on_event)
        self._lagging = Lagging(events, self.options.behind_count)
        self._environment = environment
        self._tasks = TaskOwner()
        self._closing = Closing()
        self._waits: set[asyncio.Timeout] = set()
        tls = client_context(config.tls, environment.token)
        random_source = environment.random_source or random.Random()
        sessions = SessionSettings.of(config)
        settings = PartitionSettings(
            applier=applier,
            max_concurrent_transactions=config.max_concurrent_transactions,
            limits=self.limits,
            retries=config.num_transaction_retry_threads > 0,
            sessions=sessions,
            applying=asyncio.Semaphore(config.num_consumer_threads),
            tasks=self._tasks,
            options=self.options,
            random_source=random_source,
            events=events,
            clock=environment.clock,
        )
        self.rpc = RpcClient(
            tls=tls, options=self.options, random_source=random_source, connector=environment.connector
        )
        """The requests to servers other than appends and feeds."""
        self._stream = StreamClient(
            settings,
            tls=tls,
            long_wait_threshold_s=config.long_wait_threshold_ms / 1000,
            options=self.options,
            random_source=random_source,
            connector=environment.connector,
            looked=self._look,
        )
        self.sessions = WriteSessions(sessions, self.partition, self.high_water_mark, self._tasks)
        """The write sessions of all partitions."""
        self._cluster_name: str | None = None
        self._client_id: int | None = None
        self._active: frozenset[int] = frozenset()
        self._changing_partitions = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, environment: Environment, applier: Applier | None = None) -> Self:
        """Join the cluster. Raises ``ConfigError`` for TLS, and the errors of joining."""
        engine = cls(environment, applier)
        try:
            await environment.cluster.join(engine)
        except BaseException:
            await engine.close()
            raise
        return engine

    def spawn(self, work: Awaitable[None], what: str) -> None:
        """Run ``work`` in a task that ends with the client. An exception is logged as a failure of ``what``."""
        self._tasks.spawn(work, what)

    @asynccontextmanager
    async def while_open(self) -> AsyncIterator[None]:
        """A context for waits without another end: the close of the client ends the block with
        ``ClientClosedError``."""
        if self.closed:
            raise ClientClosedError
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waits.add(limit)
                yield
        except TimeoutError as error:
            if limit.expired():
                raise ClientClosedError from error
            raise
        finally:
            self._waits.discard(limit)

    async def close(self) -> None:
        """Leave the cluster and close everything. May be called twice, and by a callback.

        Undecided submissions fail with ``ClientClosedError``. The callback of a transaction that is being applied has
        ``close_grace_s`` to end, and is cancelled then. The close continues to its end even if the caller is cancelled.
        """
        await self.close_for(asyncio.current_task())

    async def close_for(self, caller: asyncio.Task[Any] | None) -> None:
        """Close on behalf of a task, without waiting for that task."""
        if self.closed and self.runs(caller):
            return  # the first call of close waits for this task
        self.closed = True
        waits, self._waits = self._waits, set()  # taken once: another call may come before the tasks have ended
        for limit in waits:
            limit.reschedule(self._loop.time())
        await self._closing.run(lambda: self._close(caller))

    async def _close(self, caller: asyncio.Task[Any] | None) -> None:
        await take_all(
            self.rpc.close,
            lambda: self._stream.close(caller),
            lambda: self._tasks.close(self.options.close_grace_s, caller),
            lambda: self._environment.cluster.leave(self),
        )

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task belongs to the engine. Such tasks call callbacks, and a close waits for them."""
        return task in self._tasks or any(partition.feed.runs(task) for partition in self.partitions)

    # Calls of the cluster

    def cluster_joined(self, cluster_name: str, client_id: int, partition_count: int) -> None:
        """Take the id that the cluster assigns to the client. A repeated call with the same number of partitions
        changes nothing."""
        if self._client_id is None:
            self._cluster_name = cluster_name
            self._client_id = client_id
            self.rpc.create_partitions(client_id, partition_count)
            self._stream.create_partitions(client_id, partition_count, self.rpc.partitions.__getitem__)
            self.metrics.joined(cluster_name, client_id, self._stream.partitions, lambda: sorted(self._active))
        elif partition_count != len(self.partitions):
            raise InvalidOperationError(
                f"the number of partitions of cluster {self._cluster_name} changed from {len(self.partitions)} to "
                f"{partition_count}; that is not supported"
            )

    def set_endpoints(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> None:
        """Take the owners of the partitions from the cluster."""
        if not self.closed:
            self.rpc.set_endpoints(endpoints)
            self._stream.set_endpoints(endpoints)

    def remove_server(self, endpoint: Endpoint) -> None:
        """Remove a server that has left the cluster."""
        if not self.closed:
            self.rpc.remove_server(endpoint)
            self._stream.remove_server(endpoint)

    def _look(self) -> None:
        self.metrics.refresh()
        self._lagging.look(self.lags())

    def _backlogs(self) -> dict[int, int]:
        return {each.partition_id: each.feed.received - each.feed.applied for each in self.partitions if each.active}

    # Calls of the faces

    def check_loop(self) -> None:
        """Raise ``InvalidOperationError`` unless this is the event loop of the engine."""
        check_loop(self._loop)

    @property
    def client_id(self) -> int:
        """The id of this client in the cluster. No other client ever has the same id."""
        if self._client_id is None:
            raise InvalidOperationError("the client has not joined a cluster")
        return self._client_id

    @property
    def cluster_name(self) -> str:
        """The name of the cluster."""
        if self._cluster_name is None:
            raise InvalidOperationError("the client has not joined a cluster")
        return self._cluster_name

    @property
    def partitions(self) -> list[StreamPartition]:
        """All partitions of the cluster, by their ids."""
        return self._stream.partitions

    @property
    def active(self) -> frozenset[int]:
        """The active partitions of the engine."""
        return self._active

    def partition(self, partition_id: int) -> StreamPartition:
        """The partition with an id. Raises ``ClientClosedError`` and ``PartitionNotFoundError``."""
        if self.closed:
            raise ClientClosedError
        partitions = self._stream.partitions
        if not 0 <= partition_id < len(partitions):
            raise PartitionNotFoundError(partition_id, len(partitions))
        return partitions[partition_id]

    async def set_partitions(
        self, partition_ids: Collection[int], read_high_water_mark: Callable[[int], Awaitable[int]]
    ) -> None:
        """Take part in exactly these partitions, each from the mark that is read for it. Unknown ids are ignored.

        Returns when all submissions to the other partitions are decided. Raises the errors of ``read_high_water_mark``,
        and ``ClientTimeoutError``.
        """
        async with self._changing_partitions:
            await self._activate_only(partition_ids, read_high_water_mark)

    async def join(self, partition_id: int) -> StreamPartition:
        """Follow a partition from its server's present high-water mark on.

        Raises ``PartitionNotFoundError``, ``DeadlineExceededError`` and ``ClientClosedError``.
        """
        if not 0 <= partition_id < len(self.partitions):
            raise PartitionNotFoundError(partition_id, len(self.partitions))
        if partition_id not in self._active:
            high_water_mark = await self.rpc.high_water_mark(partition_id)  # other calls need not wait for that

            async def known(_partition_id: int) -> int:
                return high_water_mark

            async with self._changing_partitions:
                if partition_id not in self._active:
                    await self._activate_only(self._active | {partition_id}, known)
        return self.partitions[partition_id]

    async def _activate_only(
        self, partition_ids: Collection[int], read_high_water_mark: Callable[[int], Awaitable[int]]
    ) -> None:
        if self.closed:
            raise ClientClosedError
        try:
            await self._stream.set_active(partition_ids, read_high_water_mark)
        finally:
            self._active = frozenset(partition.partition_id for partition in self.partitions if partition.active)

    async def flush(self, timeout_s: float) -> None:
        """Return when all appends sent so far are decided (and, if committed, about to be applied).

        Raises ``PartitionInactiveError`` if a partition is inactive, ``ClientTimeoutError`` if a partition cannot be
        mounted or an outcome is not known in time, ``ClientAheadError`` and ``ClientClosedError``.
        """
        if self.closed:
            raise ClientClosedError
        try:
            async with asyncio.timeout(timeout_s):
                appends = [partition.appends for partition in self.partitions]
                flushes = [(each, await each.begin_flush()) for each in appends]
                for each, last in flushes:
                    if last is not None:
                        await each.flushed(last)
        except TimeoutError:
            undecided = [partition.appends for partition in self.partitions if partition.appends.has_pending]
            obstacle = next((each.obstacle for each in undecided if each.obstacle is not None), None)
            reason = "" if obstacle is None else f": {obstacle}"
            raise ClientTimeoutError(f"not all transactions were decided within {timeout_s:g} s{reason}") from obstacle

    @property
    def has_pending(self) -> bool:
        """Whether a submission is undecided, waits for another attempt, or is being built."""
        return any(partition.appends.has_pending for partition in self.partitions)

    async def advanced(self, partition_id: int, transaction_id: int) -> None:
        """Return when a followed partition certainly has a transaction.

        Raises ``ClientClosedError``, ``PartitionInactiveError``, ``NotAuthorizedError`` while the client may not
        follow the partition, and ``TrimmedError``.
        """
        partition = self.partitions[partition_id]
        while partition.feed.applied < transaction_id:
            if self.closed:
                raise ClientClosedError
            if not partition.active:
                raise PartitionInactiveError(partition_id)
            partition.mount.raise_refusal()
            await partition.feed.advanced.wait()

    def obstacle(self, partition_id: int) -> WaltzError | None:
        """The known reason why requests cannot be sent to the server of a partition at present."""
        return self.rpc.partitions[partition_id].obstacle

    async def high_water_mark(
        self, partition_id: int, timeout_s: float | None = None, *, confirmed: bool = False
    ) -> int:
        """The id of the last committed transaction of a partition, according to its server; -1 when there is none.

        Raises ``PartitionNotFoundError``, ``DeadlineExceededError``, ``ConfirmedMarkNotSupportedError`` and
        ``ClientClosedError``.
        """
        if self.closed:
            raise ClientClosedError
        return await self.rpc.high_water_mark(partition_id, timeout_s, confirmed=confirmed)

    async def offset_at(self, partition_id: int, time_ms: int, timeout_s: float | None = None) -> int:
        """The id of the last transaction that was committed by a time, as far as is known; -1 when there is none.

        Raises as :meth:`high_water_mark`, and ``TimesNotSupportedError``.
        """
        if self.closed:
            raise ClientClosedError
        found = await self.rpc.time_entry(partition_id, TimeQuestion.LAST_AT, time_ms, timeout_s)
        return found[0]

    async def time_of(self, partition_id: int, transaction_id: int, timeout_s: float | None = None) -> int | None:
        """The time by which a transaction was committed, in milliseconds since the epoch; ``None``: unknown.

        Raises as :meth:`offset_at`.
        """
        if self.closed:
            raise ClientClosedError
        question, wanted = TimeQuestion.FIRST_COVERING, max(transaction_id, 0)
        found, time_ms = await self.rpc.time_entry(partition_id, question, wanted, timeout_s)
        return None if found == NO_TRANSACTION else time_ms

    def request_list(self, partition_id: int, first_id: int, max_count: int, max_bytes: int) -> PendingList:
        """Begin a bulk read."""
        return self.rpc.partitions[partition_id].request_list(first_id, max_count, max_bytes)
