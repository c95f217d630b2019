"""The connections of one server to the storages, shared by all its partitions."""

import asyncio
import enum
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from waltz.common.errors import ConnectFailedError, ConnectionClosedError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.outbox import Outbox
from waltz.common.records import Record, RecordHeader
from waltz.common.wire.storage_times import CommitTime, TimeQuestion
from waltz.common.wire.structures import SessionInfo
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.owed_answers import Transfer

logger = logging.getLogger(__name__)


class StorageRpc(Protocol):
    """The part of a connection to a storage that a server uses; see :class:`waltz.storage.remote.client.StorageClient`.

    Requests of one connection and partition are executed in the order of the calls. Every call raises
    ``RemoteStorageError`` (the storage answered with a failure), ``ConnectionClosedError`` or ``DeadlineExceededError``
    (outcome unknown). ``DeadlineExceededError`` concerns this request only, not the shared connection: a silent
    connection closes by itself (rule L3).
    """

    outbox: Outbox | None

    @property
    def closed(self) -> bool: ...

    @property
    def writable(self) -> bool: ...

    def add_close_listener(self, listener: Callable[[Exception | None], None]) -> None: ...

    def append_encoded(
        self,
        session_id: int,
        partition_id: int,
        records: bytes,
        count: int,
        done: Callable[[Exception | None], None],
    ) -> int: ...

    def transfer(self, position: int) -> Transfer: ...

    async def append(
        self, session_id: int, partition_id: int, records: Sequence[Record], *, timeout_s: float
    ) -> None: ...

    async def last_session_info(self, session_id: int, partition_id: int, *, timeout_s: float) -> SessionInfo: ...

    async def set_low_water_mark(self, session_id: int, partition_id: int, mark: int, *, timeout_s: float) -> None: ...

    async def truncate(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int: ...

    async def max_transaction_id(self, session_id: int, partition_id: int, *, timeout_s: float) -> int: ...

    async def record_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[RecordHeader]: ...

    async def records(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[Record]: ...

    @property
    def keeps_times(self) -> bool: ...

    def note_committed(self, session_id: int, partition_id: int, transaction_id: int, time_ms: int) -> None: ...

    async def time_entry(
        self, session_id: int, partition_id: int, question: TimeQuestion, value: int, *, timeout_s: float
    ) -> tuple[int, int] | None: ...

    async def times(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[CommitTime]: ...

    async def enter_times(
        self, session_id: int, partition_id: int, times: Sequence[CommitTime], *, timeout_s: float
    ) -> CommitTime | None: ...

    @property
    def trims(self) -> bool: ...

    async def trim(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int: ...

    async def begin(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


ConnectFunction = Callable[[str], Awaitable[StorageRpc]]
"""A function that opens a connection to the storage with a connect string (``host:port``), under its own deadline."""


CloseWatcher = Callable[[Exception | None], None]
"""A function that is called in the event loop when a connection has closed."""


class Lane(enum.Enum):
    """Reads have their own connection, so that bulk answers never delay acknowledgements (rule S8)."""

    WRITE = "write"
    READ = "read"


def storage_connector(
    *, cluster_key: UUID, partition_count: int, tls: ssl.SSLContext | None, timeout_s: float = 10.0
) -> ConnectFunction:
    """The connect function for real storages of the cluster."""

    async def connect(storage: str) -> StorageRpc:
        try:
            endpoint = Endpoint.parse(storage)
        except ValueError as error:
            raise ConnectFailedError(f"the connect string of a storage is {error}") from None
        return await StorageClient.connect(
            endpoint,
            cluster_key=cluster_key,
            partition_count=partition_count,
            tls=tls,
            timeout_s=timeout_s,
        )

    return connect


class StorageConnections:
    """Opens connections on demand, at most one per storage and lane, and replaces broken connections on the next
    demand."""

    def __init__(self, connect: ConnectFunction, storages: Iterable[str] = ()) -> None:
        """``storages`` are the connect strings of the storages with replicas."""
        self.outbox = Outbox()
        """Collects the appends of one turn of the event loop: each connection sends its appends with one write."""
        self._connect = connect
        self._storages = frozenset(storages)
        self._clients: dict[tuple[str, Lane], StorageRpc] = {}
        self._opening: dict[tuple[str, Lane], asyncio.Task[StorageRpc]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watchers: dict[StorageRpc, dict[object, CloseWatcher]] = {}
        self._closed = False

    @property
    def storages(self) -> frozenset[str]:
        """The connect strings of the storages with replicas."""
        return self._storages

    async def client(self, storage: str, lane: Lane = Lane.WRITE) -> StorageRpc:
        """The open connection to a storage. Raises the errors of the connect function, and
        ``ConnectionClosedError``."""
        key = (storage, lane)
        client = self._clients.get(key)
        if client is not None and not client.closed:
            return client
        if self._closed:
            raise ConnectionClosedError("the connections to the storages are closed")
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(key))
            self._opening[key] = opening
            opening.add_done_callback(_retrieve)
        # Other calls may wait for the same connection: a cancelled call must not cancel it.
        return await asyncio.shield(opening)

    def watch(self, client: StorageRpc, watcher: CloseWatcher) -> Callable[[], None]:
        """Have ``watcher`` called once when the connection closes, or soon if it has closed already. Returns a function
        that ends the watch.

        A watch keeps the connection open: a connection to a storage without replicas is closed at the end of the last
        watch.
        """
        watchers = self._watchers.get(client)
        if watchers is None:
            handle = asyncio.get_running_loop().call_soon(watcher, None)
            return handle.cancel
        key = object()
        watchers[key] = watcher

        def end() -> None:
            watchers.pop(key, None)
            if not watchers:
                self._close_unneeded(client)

        return end

    def _close_unneeded(self, client: StorageRpc) -> None:
        for (storage, lane), known in list(self._clients.items()):
            if known is client and lane is Lane.WRITE and storage not in self._storages:
                self._close_all_of(storage)

    def _close_all_of(self, storage: str) -> None:
        for lane in Lane:
            client = self._clients.pop((storage, lane), None)
            if client is not None:
                self._close_soon(client)

    def update(self, storages: Iterable[str]) -> None:
        """Take over another set of storages: close the connections to removed storages only.

        A watched connection is closed at the end of the last watch: the session of a partition may need the storage
        until another session has begun.
        """
        self._storages = frozenset(storages)
        for storage in {storage for storage, _ in self._clients} - self._storages:
            client = self._clients.get((storage, Lane.WRITE))
            if client is None or not self._watchers.get(client):
                self._close_all_of(storage)

    async def check_connectivity(self, timeout_s: float) -> dict[str, bool]:
        """Whether a connection to each storage could be opened within the time."""

        async def check(storage: str) -> bool:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.client(storage)
            except (WaltzError, OSError):  # TimeoutError is an OSError
                return False
            return True

        storages = sorted(self._storages)
        results = await asyncio.gather(*(check(storage) for storage in storages))
        return dict(zip(storages, results, strict=True))

    async def close(self) -> None:
        """Close all connections. No connection can be opened afterwards."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for client in self._clients.values():
            self._close_soon(client)
        self._clients.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _open(self, key: tuple[str, Lane]) -> StorageRpc:
        try:
            client = await self._connect(key[0])
        finally:
            self._opening.pop(key, None)
        client.outbox = self.outbox
        self._clients[key] = client
        # Connections live much longer than sessions: the watchers are kept here, where they can be removed.
        self._watchers[client] = {}
        client.add_close_listener(partial(self._client_closed, client))
        return client

    def _client_closed(self, client: StorageRpc, error: Exception | None) -> None:
        for watcher in list(self._watchers.pop(client, {}).values()):
            watcher(error)

    def _close_soon(self, client: StorageRpc) -> None:
        task = asyncio.get_running_loop().create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _retrieve(task: asyncio.Task[StorageRpc]) -> None:
    """Retrieve the exception, because no call may be waiting for it any more."""
    if not task.cancelled():
        task.exception()
