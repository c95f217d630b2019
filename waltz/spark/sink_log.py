"""The sink's access to the log: the client library for marks and appends, storage nodes for reading."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from waltz.asynchronous import Client, connect
from waltz.client.builder import Append
from waltz.client.errors import AppendError, AppendManyError, ClientError, TransactionTooLargeError
from waltz.client.locks import PartitionLocalLock
from waltz.common.config.schemas import ClientConfig
from waltz.common.errors import ConnectionClosedError, DeadlineExceededError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.tls import client_context
from waltz.common.zk.client import ZooKeeper, ZooKeeperError
from waltz.common.zk.znodes import StoreParams
from waltz.spark.errors import SinkError
from waltz.spark.exactly_once import Guard, NotAllAppendedError
from waltz.spark.offsets import OffsetRange
from waltz.spark.options import DEFAULT_FETCH_SIZE, ClusterOptions
from waltz.spark.owner import OwnerReader
from waltz.spark.planning import SESSION_TIMEOUT_S, Split, connect_zookeeper, read_sources, read_store
from waltz.spark.reading import SplitReader
from waltz.spark.rows import Row
from waltz.spark.write_options import SinkOptions

ATTEMPT_TIMEOUT_S = 30.0
"""How long the client retries staged rows that were lost on their way; then the sink searches the log for them."""

MARK_TIMEOUT_S = 10.0

LOCKS_AT_ONCE = 1 << 16
"""Locks of the transactions that are handed to the client at a time: a lock is an object, and may outweigh its row."""

GUARDED_LOCKS_AT_ONCE = 1000
"""The same limit for transactions with a guard, whose mark follows them. Each lock raises three of the 30,000 slots of
a server's table: this number of locks raises a tenth of them, which rarely holds all three slots of the guard."""

RowLocks: TypeAlias = Callable[[Row], Sequence[PartitionLocalLock]]
"""The locks that a transaction raises unchecked."""


@asynccontextmanager
async def open_log(options: SinkOptions, locks: RowLocks | None = None) -> AsyncIterator["ClusterLog"]:
    """The log of the cluster that the options name; each transaction also raises its own ``locks``.

    Raises what connecting raises, ``WaltzError`` all of it.
    """
    config = ClientConfig(
        zookeeper_connect_string=options.zookeeper,
        cluster_root=options.cluster_root,
        zookeeper_session_timeout_ms=int(SESSION_TIMEOUT_S * 1000),
        auto_mount=False,
        tls=options.tls,
    )
    zookeeper = await connect_zookeeper(options)
    try:
        store = await read_store(zookeeper, options)
        async with connect(config, max_in_flight=options.max_in_flight, zookeeper=zookeeper) as client:
            yield ClusterLog(client, zookeeper, store, options, locks)
    finally:
        await zookeeper.close()


class ClusterLog:
    """A :class:`~waltz.spark.exactly_once.SinkLog`; made by :func:`open_log`."""

    def __init__(
        self,
        client: Client,
        zookeeper: ZooKeeper,
        store: StoreParams,
        options: SinkOptions,
        locks: RowLocks | None = None,
    ) -> None:
        self._client = client
        self._zookeeper = zookeeper
        self._store = store
        self._options = options
        self._locks = locks
        self.may_hold_rows = False
        """Whether anything that was handed to :meth:`append` is in the log, or may be."""
        self._tls: ssl.SSLContext | None = client_context(options.tls)

    @property
    def client_id(self) -> int:
        return self._client.client_id

    async def high_water_mark(self, partition_id: int) -> int:
        try:
            return await self._client.high_water_mark(partition_id, timeout_s=MARK_TIMEOUT_S)
        except (DeadlineExceededError, ConnectionClosedError) as error:
            raise NotAllAppendedError(str(error)) from error

    async def rows(
        self, partition_id: int, after: int, up_to: int, client_ids: Collection[int]
    ) -> AsyncIterator[tuple[int, Row]]:
        """Raises ``PlanningError`` and ``ReplicaReadError``."""
        if up_to <= after:
            return
        options = self._options
        deadline_s = asyncio.get_running_loop().time() + options.append_timeout_s
        sources = await read_sources(self._zookeeper, options.cluster_root, {partition_id}, deadline_s)
        split = Split(
            OffsetRange(partition_id, after + 1, up_to + 1),
            sources[partition_id],
            self._store.key,
            self._store.partition_count,
        )
        reader = SplitReader(
            split,
            self._tls,
            fetch_size=DEFAULT_FETCH_SIZE,
            request_timeout_s=options.request_timeout_s,
            owner=OwnerReader(options, partition_id, self._tls),
        )
        try:
            while (chunk := await reader.next_chunk()) is not None:
                heads = chunk.heads()
                headers, payloads = heads.column("header"), chunk.payloads
                for place, client_id in enumerate(heads.column("client_id")):
                    if client_id in client_ids:
                        yield chunk.first + place, Row(headers[place], payloads[place].as_py())
        finally:
            await reader.close()

    async def append(self, partition_id: int, rows: Sequence[Row], guard: Guard | None) -> int:
        """Raises ``SinkError`` for a row that is too large."""
        last = NO_TRANSACTION
        for items in self._items(rows, guard):
            last = await self._append_items(partition_id, items, guard)
            if guard is not None:
                guard = guard._replace(high_water_mark=last)
        return last

    def _items(self, rows: Sequence[Row], guard: Guard | None) -> Iterator[list[Append]]:
        """The appends in groups with a bounded number of locks."""
        most = LOCKS_AT_ONCE if guard is None else GUARDED_LOCKS_AT_ONCE
        _, write, read, append = guard or Guard(0)
        items: list[Append] = []
        count = 0
        for row in rows:
            own = () if self._locks is None else self._locks(row)
            items.append(Append(row.data, row.header, write, read, (*append, *own)))
            count += len(own)
            if count >= most:
                yield items
                items, count = [], 0
        if items:
            yield items

    async def _append_items(self, partition_id: int, items: list[Append], guard: Guard | None) -> int:
        """Without a guard the sink does not search and retry: the client may use all of the time."""
        timeout_s = self._options.append_timeout_s
        may_hold_rows = True
        try:
            ids = await self._client.append_many(
                partition_id,
                items,
                high_water_mark=None if guard is None else guard.high_water_mark,
                timeout_s=timeout_s if guard is None else min(ATTEMPT_TIMEOUT_S, timeout_s),
            )
        except TransactionTooLargeError as error:
            raise SinkError(str(error)) from error
        except AppendError as error:
            may_hold_rows = not error.outcome_known or _some_appended(error)
            raise NotAllAppendedError(str(error)) from error
        except (ClientError, ZooKeeperError, DeadlineExceededError, ConnectionClosedError) as error:
            raise NotAllAppendedError(str(error)) from error
        finally:
            self.may_hold_rows |= may_hold_rows
        return ids[-1]


def _some_appended(error: AppendError) -> bool:
    return isinstance(error, AppendManyError) and any(isinstance(outcome, int) for outcome in error.outcomes)


async def read_cluster(options: ClusterOptions) -> StoreParams:
    """Key and size of the cluster. Raises ``PlanningError`` and ``ZooKeeperError``."""
    zookeeper = await connect_zookeeper(options)
    try:
        return await read_store(zookeeper, options)
    finally:
        await zookeeper.close()
