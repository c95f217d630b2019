"""Applications for the client's tests."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.unit.client.fake_server import FakeServer, Log
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.engine.environment import Environment
from waltz.client.engine.links.links import Connector
from waltz.client.locks import PartitionLocalLock
from waltz.client.mock.cluster import FixedCluster
from waltz.client.options import ClientOptions
from waltz.client.transaction import Transaction
from waltz.common.config.schemas import ClientConfig, from_mapping
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect
from waltz.common.zk.znodes import PartitionGeneration

QUICK = ClientOptions(
    ahead_retry_initial_s=0.02,
    reconnect_initial_s=0.005,
    reconnect_maximum_s=0.02,
    not_ready_retry_s=0.02,
    apply_retry_initial_s=0.001,
    apply_retry_maximum_s=0.002,
    rpc_sweep_interval_s=0.02,
    rpc_resend_s=0.1,
    mark_resend_s=0.05,
    close_grace_s=0.2,
)
"""Options of a client with short pauses and time-outs."""


class Callbacks(WaltzClientCallbacks):
    """Applies transactions to lists, plainly."""

    def __init__(self, marks: dict[int, int] | None = None) -> None:
        self.marks = dict(marks or {})
        self.applied: dict[int, list[int]] = {}
        self.uncaught: list[tuple[int, int, BaseException]] = []
        self.mark_calls: list[int] = []
        self.events: list[Any] = []

    def client_high_water_mark(self, partition_id: int) -> int | Awaitable[int]:
        self.mark_calls.append(partition_id)
        return self.marks.get(partition_id, -1)

    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        self.record(transaction)
        return None

    def record(self, transaction: Transaction) -> None:
        self.applied.setdefault(transaction.partition_id, []).append(transaction.transaction_id)
        self.marks[transaction.partition_id] = transaction.transaction_id
        self.events.append(("apply", transaction.transaction_id))

    def uncaught_exception(
        self, partition_id: int, transaction_id: int, error: BaseException
    ) -> Awaitable[None] | None:
        self.uncaught.append((partition_id, transaction_id, error))
        return None


class AsyncCallbacks(Callbacks):
    """The class above, with every callback async."""

    async def client_high_water_mark(self, partition_id: int) -> int:
        await asyncio.sleep(0)
        self.mark_calls.append(partition_id)
        return self.marks.get(partition_id, -1)

    async def apply_transaction(self, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        self.record(transaction)

    async def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        await asyncio.sleep(0)
        self.uncaught.append((partition_id, transaction_id, error))


class Context(TransactionContext):
    """Records what happens to it."""

    def __init__(
        self,
        data: bytes = b"data",
        *,
        partition_id: int = 0,
        write: Sequence[PartitionLocalLock] = (),
        read: Sequence[PartitionLocalLock] = (),
        append: Sequence[PartitionLocalLock] = (),
        header: int = 0,
        attempts: int = 1_000_000,
        events: list[Any] | None = None,
    ) -> None:
        self.data = data
        self.partition = partition_id
        self.write = write
        self.read = read
        self.append = append
        self.header = header
        self.attempts = attempts
        self.executed = 0
        self.events: list[Any] = []
        self.all_events = events

    def note(self, event: Any) -> None:
        self.events.append(event)
        if self.all_events is not None:
            self.all_events.append(event)

    def partition_id(self, partition_count: int) -> int:
        return self.partition

    def execute(self, builder: TransactionBuilder) -> bool | Awaitable[bool]:
        return self.fill(builder)

    def fill(self, builder: TransactionBuilder) -> bool:
        self.executed += 1
        if self.executed > self.attempts:
            return False
        builder.set_header(self.header)
        builder.set_data(self.data)
        builder.set_write_locks(self.write)
        builder.set_read_locks(self.read)
        builder.set_append_locks(self.append)
        return True

    def on_completion(self, committed: bool) -> Awaitable[None] | None:
        self.note(("completed", committed))
        return None

    def on_application(self) -> Awaitable[None] | None:
        self.note("applied")
        return None

    def on_exception(self, error: Exception) -> Awaitable[None] | None:
        self.note(error)
        return None

    def on_lock_failure(self) -> Awaitable[None] | None:
        self.note("lock failure")
        return None

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1] in ("applied", ("completed", False))


class AsyncContext(Context):
    """The class above, with every callback async."""

    async def execute(self, builder: TransactionBuilder) -> bool:
        await asyncio.sleep(0)
        return self.fill(builder)

    async def on_completion(self, committed: bool) -> None:
        await asyncio.sleep(0)
        self.note(("completed", committed))

    async def on_application(self) -> None:
        await asyncio.sleep(0)
        self.note("applied")

    async def on_exception(self, error: Exception) -> None:
        await asyncio.sleep(0)
        self.note(error)

    async def on_lock_failure(self) -> None:
        await asyncio.sleep(0)
        self.note("lock failure")


def config(**values: object) -> ClientConfig:
    """A configuration for plaintext; keys below ``client`` by their short names."""
    document: dict[str, object] = {
        "zookeeper.connectString": "nowhere:1",
        "zookeeper.sessionTimeout": 30_000,
        "cluster.root": "/waltz",
        "client.ssl.plaintext": True,
    }
    document.update({f"client.{key}": value for key, value in values.items()})
    return from_mapping(document, ClientConfig)


def assignment(partition_ids: Iterable[int], generation: int = 1) -> list[PartitionGeneration]:
    return [PartitionGeneration(partition_id, generation) for partition_id in partition_ids]


async def open_client(
    callbacks: WaltzClientCallbacks,
    endpoints: Mapping[Endpoint, Sequence[PartitionGeneration]],
    partition_count: int,
    settings: ClientConfig,
    *,
    client_id: int = 7,
    options: ClientOptions = QUICK,
    connector: Connector = connect,
) -> WaltzClient:
    """A client of a cluster named ``test``."""
    cluster = FixedCluster("test", partition_count, endpoints, client_ids=[client_id])
    environment = Environment(settings, cluster, connector, options, random.Random(1))
    return await WaltzClient.open_in(environment, callbacks)


class World:
    """Servers and clients of one test; closes all of them."""

    def __init__(self, partition_count: int = 1) -> None:
        self.logs = {partition_id: Log(partition_id) for partition_id in range(partition_count)}
        self.servers: list[FakeServer] = []
        self.clients: list[WaltzClient] = []
        self._on_close: list[Callable[[], Awaitable[None]]] = []

    async def server(
        self, owned: Iterable[int] | None = None, *, versions: tuple[int, ...] = (0, 1, 2, 3, 4), port: int = 0
    ) -> FakeServer:
        server = await FakeServer.open(self.logs, owned, versions=versions, port=port)
        self.servers.append(server)
        return server

    async def client(
        self,
        callbacks: WaltzClientCallbacks,
        *servers: FakeServer,
        options: ClientOptions = QUICK,
        client_id: int | None = None,
        **values: object,
    ) -> WaltzClient:
        """A client that has been told of the servers (generation 1) and activated."""
        endpoints = {server.endpoint: assignment(server.owned) for server in servers}
        client_id = len(self.clients) + 1 if client_id is None else client_id
        settings = config(**values)
        client = await open_client(callbacks, endpoints, len(self.logs), settings, client_id=client_id, options=options)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for server in self.servers:
            await server.close()
