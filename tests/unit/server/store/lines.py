"""Lines with a rate and a length between servers and storages, in virtual time.

The servers' side is the real one, down to the channel: :class:`waltz.storage.remote.client.StorageClient` over an
asyncio transport that sends so many bytes a second, hides some of them as kernels and relays do, and can be cut without
a word.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from tests.unit.server.store.fakes import FakeNetwork, FakePartition, FakeStorage
from tests.unit.server.store.virtual_time import VirtualTimeLoop
from waltz.common.errors import ConnectFailedError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
from waltz.common.records import RecordHeader
from waltz.common.wire import storage as wire
from waltz.common.wire.frames import STORAGE, Bounds
from waltz.common.wire.structures import RpcException, SessionInfo
from waltz.server.store.connections import StorageRpc
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

ORIGINAL = STORAGE._replace(versions=(0,))
"""What storages of the original offer."""
KEY = UUID(int=1)
MAX_REPLY_BYTES = 8 << 20
PIECE_BYTES = 16 << 10
MAX_QUEUED_REQUESTS = 100
"""While more wait at one partition, the connection is not read: as the original's storages have it."""


@dataclass(slots=True)
class Line:
    """Between one storage and everybody; both directions."""

    bytes_per_s: float = 1e9
    round_trip_s: float = 0.001
    hidden_bytes: int = 256 << 10
    """What leaves a transport at once, although it has not been sent: kernels, and relays on the way."""


class LineTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, line: Line, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.peer: LineTransport
        self.protocol = protocol
        self.silent = False
        """What is sent from this end is lost, and nobody is told."""
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_bytes, self._low_bytes = 64 << 10, 16 << 10
        self._paused = False
        self._sending = False
        self._closing = False
        self._lost = False
        self._reading = True
        self._unread: list[memoryview] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes, self._low_bytes = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return max(self._queued_bytes - self._line.hidden_bytes, 0)

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or not data:
            return
        self._queue.append(memoryview(bytes(data)))
        self._queued_bytes += len(data)
        if not self._paused and self.get_write_buffer_size() > self._high_bytes:
            self._paused = True
            self.protocol.pause_writing()
        self._send()

    def close(self) -> None:
        self._closing = True
        if not self._queue:
            self.abort()

    def abort(self) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._queue.clear()
            self._queued_bytes = 0
            self._loop.call_soon(self.protocol.connection_lost, None)
            if not self.silent:
                self._loop.call_later(self._line.round_trip_s / 2, self.peer.abort)

    def _send(self) -> None:
        if self._sending or self._lost or self.silent or not self._queue:
            return
        piece = self._queue.popleft()
        if len(piece) > PIECE_BYTES:
            self._queue.appendleft(piece[PIECE_BYTES:])
            piece = piece[:PIECE_BYTES]
        self._sending = True
        self._loop.call_later(len(piece) / self._line.bytes_per_s, self._sent, piece)

    def _sent(self, piece: memoryview) -> None:
        self._sending = False
        if self._lost or self.silent:
            return
        self._queued_bytes -= len(piece)
        self._loop.call_later(self._line.round_trip_s / 2, self.peer.arrived, piece)
        if self._paused and self.get_write_buffer_size() <= self._low_bytes:
            self._paused = False
            self.protocol.resume_writing()
        self._send()
        if self._closing and not self._queue:
            self.abort()

    def arrived(self, piece: memoryview) -> None:
        if not self._reading:
            self._unread.append(piece)
        elif not self._lost:
            self.protocol.data_received(bytes(piece))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for piece in unread:
            self._loop.call_soon(self.arrived, piece)


class _StorageEnd:
    """The data port of a storage: requests of a partition are executed in their order, partitions side by side."""

    def __init__(self, network: "LineNetwork", storage: FakeStorage) -> None:
        self._network = network
        self._storage = storage
        self._queues: dict[int, asyncio.Queue[wire.Message | None]] = {}
        self._channel: Channel | None = None

    def channel_ready(self, channel: Channel) -> None:
        self._channel = channel

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        for queue in self._queues.values():
            queue.put_nowait(None)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for message in wire.decode_batch(buffer, bounds):
            queue = self._queues.get(message.partition_id)
            if queue is None:
                queue = self._queues[message.partition_id] = asyncio.Queue()
                self._network.spawn(asyncio.get_running_loop().create_task(self._work(queue)))
            queue.put_nowait(message)
        self._regulate()

    def _regulate(self) -> None:
        channel = self._channel
        if channel is None or channel.closed:
            return
        if any(queue.qsize() > MAX_QUEUED_REQUESTS for queue in self._queues.values()):
            channel.pause_reading()
        else:
            channel.resume_reading()

    async def _work(self, queue: "asyncio.Queue[wire.Message | None]") -> None:
        channel = self._channel
        assert channel is not None
        while True:
            message = await queue.get()
            if message is None:
                return
            self._regulate()
            await self._storage.running.wait()
            if not self._storage.up:
                continue
            network = self._network
            if isinstance(message, network.slow_requests) and self._storage.name in network.slow_storages:
                await asyncio.sleep(network.slow_s if message.partition_id >= 0 else 0)
            try:
                answer = self._answer(message)
            except RemoteStorageError as error:
                answer = wire.FailureResponse(*message[:3], RpcException(str(error)))
            channel.send(wire.encode(answer))

    def _answer(self, message: wire.Message) -> wire.Message:
        common = message[:3]
        if isinstance(message, wire.OpenRequest):
            return wire.SuccessResponse(*common)
        partition = self._storage.partitions.get(message.partition_id)
        if partition is None:
            self._network.probes += 1
            raise RemoteStorageError(f"java.lang.Exception: Partition:{message.partition_id} is not assigned.")
        partition.fence = max(partition.fence, message.session_id)
        partition.check(message.session_id)
        return self._execute(message, partition)

    def _execute(self, message: wire.Message, partition: FakePartition) -> wire.Message:
        common = message[:3]
        match message:
            case wire.LastSessionInfoRequest():
                info = SessionInfo(partition.session_id, partition.low_water_mark, partition.local_low_water_mark)
                return wire.LastSessionInfoResponse(*common, info)
            case wire.MaxTransactionIdRequest():
                return wire.MaxTransactionIdResponse(*common, partition.maximum)
            case wire.TruncateRequest():
                return wire.MaxTransactionIdResponse(*common, partition.truncate(message.transaction_id))
            case wire.SetLowWaterMarkRequest():
                partition.set_low_water_mark(message.session_id, message.low_water_mark)
            case wire.AppendRequest():
                if self._storage.refuse_appends is not None:
                    raise RemoteStorageError(self._storage.refuse_appends)
                partition.append(message.records)
            case wire.RecordListRequest():
                self._network.reads += 1
                failure = self._network.failing_reads.get(self._storage.name)
                first = message.transaction_id
                if failure is not None and first <= failure < first + message.max_count:
                    raise RemoteStorageError("com.wepay.waltz.storage.exception.StorageException: corrupted")
                found = partition.records[first : first + message.max_count]
                count = next((n for n, size in enumerate(_sums(found), 1) if size >= MAX_REPLY_BYTES), len(found))
                return wire.RecordListResponse(*common, found[:count])
            case wire.RecordHeaderListRequest():
                first = message.transaction_id
                found = partition.records[first : first + message.max_count]
                headers = [RecordHeader(record.transaction_id, record.req_id, record.header) for record in found]
                return wire.RecordHeaderListResponse(*common, headers)
            case _:
                raise AssertionError(message)
        return wire.SuccessResponse(*common)


def _sums(records: list[Any]) -> Iterator[int]:
    total = 0
    for record in records:
        total += len(record.data)
        yield total


@dataclass(slots=True, eq=False)
class Connection:
    """One connection as faults see it."""

    storage: str
    near: LineTransport
    far: LineTransport

    def blackhole(self) -> None:
        """Nothing passes any more in either direction, and nobody is told."""
        self.near.silent = self.far.silent = True

    def break_now(self) -> None:
        self.near.abort()


class LineNetwork(FakeNetwork):
    """Use with a world; ``lines`` may be changed at any time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lines = {name: Line() for name in self.storages}
        self.opened: list[Connection] = []
        """Every connection that was ever opened, oldest first."""
        self.reads = 0
        self.probes = 0
        self.failing_reads: dict[str, int] = {}
        """Storages that cannot read a transaction, and which."""
        self.slow_storages: set[str] = set(self.storages)
        self.slow_requests: tuple[type, ...] = ()
        self.slow_s = 0.0

    def connector(self, reachable: Callable[[str], bool] = lambda name: True) -> "LineConnector":  # type: ignore[override]  # another kind
        return LineConnector(self, reachable)

    def set_lines(self, **values: float) -> None:
        """Change all lines alike."""
        for line in self.lines.values():
            for name, value in values.items():
                setattr(line, name, value)


class LineConnector:
    """The connect function of one server."""

    def __init__(self, network: LineNetwork, reachable: Callable[[str], bool]) -> None:
        self._network = network
        self._reachable = reachable

    async def __call__(self, name: str) -> StorageRpc:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.connect = self._connect
        client = await StorageClient.connect(
            Endpoint.parse(name), cluster_key=KEY, partition_count=1, tls=None, timeout_s=10.0
        )
        self._network.storages[name].connect_count += 1
        return client

    async def _connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
        network, name = self._network, f"{host}:{port}"
        storage, line = network.storages.get(name), network.lines.get(name)
        await asyncio.sleep(0.001 if line is None else line.round_trip_s)
        if storage is None or line is None or not storage.up or not self._reachable(name):
            raise ConnectFailedError(f"{name}: connection refused")
        far_channel = Channel(ORIGINAL, "a storage", _StorageEnd(network, storage), hello_timeout_s=1e9)
        near = LineTransport(line, cast("asyncio.Protocol", factory()))
        far = LineTransport(line, far_channel)
        near.peer, far.peer = far, near
        connection = Connection(name, near, far)
        network.opened.append(connection)
        storage.connections.add(connection)  # type: ignore[arg-type]  # all that is asked of it is to break
        far_channel.connection_made(far)
        near.protocol.connection_made(near)
