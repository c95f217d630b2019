"""A Waltz server for tests: real sockets and codecs, a log in memory, and every misbehaviour on command."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from waltz.common.checksum import checksum
from waltz.common.ids import LONG_MIN, Endpoint, ReqId
from waltz.common.net.channel import Channel
from waltz.common.net.listener import Listener
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataRequest,
    TransactionDataResponse,
    decode,
    encode,
)
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.wire.lags import LagsRequest, LagsResponse, PartitionLags

MIN_FETCH = 100


class Stored(NamedTuple):
    """A committed transaction."""

    req_id: bytes
    header: int
    data: bytes


@dataclass
class Log:
    """The log of one partition; outlives its servers."""

    partition_id: int = 0
    transactions: list[Stored] = field(default_factory=list)
    locks: dict[int, int] = field(default_factory=dict)
    generation: int | None = None
    """When set, appends of other generations are dropped without an answer."""

    @property
    def high_water_mark(self) -> int:
        return len(self.transactions) - 1

    def add(self, data: bytes, req_id: bytes | None = None, header: int = 0) -> int:
        """Commit a transaction as if another client had appended it."""
        self.transactions.append(
            Stored(req_id or ReqId.of(99, 0, self.partition_id, len(self.transactions) + 1), header, data)
        )
        return self.high_water_mark

    def append(self, request: AppendRequest) -> int | None:
        """Commit ``request``; the id of the conflicting transaction if a lock forbids that."""
        estimate = max((self.locks.get(h, -1) for h in (*request.write_locks, *request.read_locks)), default=-1)
        if estimate > request.client_high_water_mark:
            return estimate
        transaction_id = self.add(request.data, request.req_id, request.header)
        self.locks.update(dict.fromkeys((*request.write_locks, *request.append_locks), transaction_id))
        return None


@dataclass
class Feeding:
    """A feed context."""

    req_id: bytes
    position: int
    remaining: int
    terminator: Message


class Connection:
    """One connection of a client."""

    def __init__(self, server: "FakeServer") -> None:
        self.channel: Channel | None = None
        self.received: list[Message] = []
        self.sent: list[Message] = []
        self.contexts: dict[int, list[Feeding]] = {}
        self.lost = False
        self._server = server

    def channel_ready(self, channel: Channel) -> None:
        self.channel = channel
        self._server.connections.append(self)

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        self.lost = True
        self.contexts.clear()

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            message = decode(buffer, start, end, channel.version)
            self.received.append(message)
            self._server.received.append(message)
            if not self._server.filter(self, message):
                self._server.handle(self, message)

    def send(self, message: Message) -> None:
        assert self.channel is not None
        self.sent.append(message)
        self.channel.send(encode(message, self.channel.version))

    def send_raw(self, frame: bytes) -> None:
        assert self.channel is not None
        self.channel.send(frame)

    def close(self) -> None:
        assert self.channel is not None
        self.channel.close()

    @property
    def is_stream(self) -> bool:
        return any(isinstance(message, MountRequest) for message in self.received)

    def feed(self, partition_id: int, log: Log) -> None:
        """Feed what can be fed."""
        contexts = self.contexts.get(partition_id, [])
        for context in list(contexts):
            while context.remaining and context.position < log.high_water_mark:
                context.position += 1
                context.remaining -= 1
                stored = log.transactions[context.position]
                self.send(FeedData(stored.req_id, context.position, stored.header))
            if not context.remaining:
                contexts.remove(context)
                self.send(context.terminator)


class FakeServer:
    """Owns partitions of shared logs. ``filter`` may return ``True`` to take a message away from it."""

    def __init__(self, logs: dict[int, Log], owned: Iterable[int]) -> None:
        self.logs = logs
        self.owned = set(owned)
        self.connections: list[Connection] = []
        self.received: list[Message] = []
        self.filter: Callable[[Connection, Message], bool] = lambda connection, message: False
        self.data_errors: dict[int, list[str]] = {}
        self.preferred: list[int] = []
        self.lags: list[PartitionLags] = []
        """What it tells of the lags of its partitions."""
        self._listener: Listener | None = None

    @classmethod
    async def open(
        cls,
        logs: dict[int, Log],
        owned: Iterable[int] | None = None,
        *,
        versions: tuple[int, ...] = (0, 1, 2, 3, 4),
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> "FakeServer":
        server = cls(logs, logs if owned is None else owned)
        family = CLIENT_SERVER._replace(versions=versions)
        server._listener = await Listener.open(
            "127.0.0.1", port, family, "Waltz Server", lambda: Connection(server), tls=tls
        )
        return server

    @property
    def endpoint(self) -> Endpoint:
        assert self._listener is not None
        return Endpoint("127.0.0.1", self._listener.port)

    async def close(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    def hold(self, *kinds: type[object], count: int = 1 << 30) -> list[tuple[Connection, Message]]:
        """Take away the next ``count`` messages of some kinds; they appear in the list that is returned."""
        held: list[tuple[Connection, Message]] = []

        def take(connection: Connection, message: Message) -> bool:
            if not isinstance(message, kinds) or len(held) >= count:
                return False
            held.append((connection, message))
            return True

        self.filter = take
        return held

    def refuse_all(self) -> None:
        """Close every connection on which something comes."""

        def refuse(connection: Connection, message: Message) -> bool:
            connection.close()
            return True

        self.filter = refuse

    def of(self, *kinds: type[Message]) -> list[Message]:
        """What was received of some kinds."""
        return [message for message in self.received if isinstance(message, kinds)]

    def stream(self) -> Connection:
        """The latest connection on which something was mounted."""
        return [connection for connection in self.connections if connection.is_stream][-1]

    def commit(self, partition_id: int, data: bytes = b"") -> int:
        """Commit a transaction of another client and feed it."""
        transaction_id = self.logs[partition_id].add(data)
        self.feed_all(partition_id)
        return transaction_id

    def feed_all(self, partition_id: int) -> None:
        for connection in self.connections:
            if not connection.lost:
                connection.feed(partition_id, self.logs[partition_id])

    def handle(self, connection: Connection, message: Message) -> None:
        if self._administer(connection, message):
            return
        partition_id = ReqId(message.req_id).partition_id
        if partition_id not in self.owned:
            if isinstance(message, MountRequest):
                connection.send(MountResponse(message.req_id, PartitionState.NOT_READY))
            elif isinstance(message, TransactionDataRequest):
                connection.send(
                    TransactionDataResponse(message.req_id, message.transaction_id, None, 0, "partition not ready")
                )
            return
        log = self.logs[partition_id]
        if isinstance(message, MountRequest):
            self._mount(connection, partition_id, log, message)
        elif isinstance(message, FeedRequest):
            count = max(log.high_water_mark - message.client_high_water_mark, MIN_FETCH)
            feeding = Feeding(message.req_id, message.client_high_water_mark, count, FeedSuspended(message.req_id))
            connection.contexts.setdefault(partition_id, []).append(feeding)
            connection.feed(partition_id, log)
        elif isinstance(message, AppendRequest):
            self._append(connection, partition_id, log, message)
        elif isinstance(message, FlushRequest):
            connection.send(FlushResponse(message.req_id, log.high_water_mark))
        elif isinstance(message, TransactionDataRequest):
            self._data(connection, log, message)
        elif isinstance(message, HighWaterMarkRequest):
            connection.send(HighWaterMarkResponse(message.req_id, log.high_water_mark))
        elif isinstance(message, ConfirmedMarkRequest):
            connection.send(ConfirmedMarkResponse(message.req_id, ConfirmedMarkStatus.OK, log.high_water_mark))

    def _mount(self, connection: Connection, partition_id: int, log: Log, message: MountRequest) -> None:
        gap = log.high_water_mark - message.client_high_water_mark
        if gap < 0:
            connection.send(MountResponse(message.req_id, PartitionState.CLIENT_AHEAD))
            return
        ready = MountResponse(message.req_id, PartitionState.READY)
        if gap == 0:
            connection.send(ready)
            return
        feeding = Feeding(message.req_id, message.client_high_water_mark, gap, ready)
        connection.contexts.setdefault(partition_id, []).append(feeding)
        connection.feed(partition_id, log)

    def _append(self, connection: Connection, partition_id: int, log: Log, message: AppendRequest) -> None:
        if log.generation is not None and ReqId(message.req_id).generation != log.generation:
            return
        conflict = log.append(message)
        if conflict is not None:
            connection.send(LockFailure(message.req_id, conflict))
        self.feed_all(partition_id)

    def _data(self, connection: Connection, log: Log, message: TransactionDataRequest) -> None:
        errors = self.data_errors.get(message.transaction_id)
        if errors:
            connection.send(TransactionDataResponse(message.req_id, message.transaction_id, None, 0, errors.pop(0)))
            return
        data = log.transactions[message.transaction_id].data
        connection.send(TransactionDataResponse(message.req_id, message.transaction_id, data, checksum(data), None))

    def _administer(self, connection: Connection, message: Message) -> bool:
        req_id = message.req_id
        if isinstance(message, CheckStorageConnectivityRequest):
            connection.send(CheckStorageConnectivityResponse(req_id, (("storage:1", True), ("storage:2", False))))
        elif isinstance(message, ServerPartitionsAssignmentRequest):
            connection.send(ServerPartitionsAssignmentResponse(req_id, tuple(self.owned)))
        elif isinstance(message, ServerPartitionsHealthStatRequest):
            connection.send(ServerPartitionsHealthStatResponse(req_id, tuple((p, True) for p in sorted(self.owned))))
        elif isinstance(message, LagsRequest):
            connection.send(LagsResponse(req_id, self.lags))
        elif isinstance(message, AddPreferredPartitionRequest):
            self.preferred += message.partition_ids
            connection.send(AddPreferredPartitionResponse(req_id, max(message.partition_ids) < len(self.logs)))
        elif isinstance(message, RemovePreferredPartitionRequest):
            connection.send(RemovePreferredPartitionResponse(req_id, set(message.partition_ids) <= set(self.preferred)))
        else:
            return False
        return True


UNKNOWN_MARK = LONG_MIN


async def until(predicate: Callable[[], object], what: str = "", timeout_s: float = 60.0) -> None:
    """Return when ``predicate`` holds; fail the test when it does not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while not predicate():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"never happened: {what or predicate}") from None
