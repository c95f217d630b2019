"""What the tests of the storage node share: observed files, records, a running node, a peer that speaks raw bytes."""

import asyncio
import errno
import os
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.access import ALLOW_ALL, Access
from waltz.common.checksum import checksum
from waltz.common.config.schemas import StorageConfig, TlsConfig
from waltz.common.ids import Endpoint, ReqId
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record, decode_records
from waltz.common.wire import admin as admin_wire
from waltz.common.wire import storage as wire
from waltz.common.zk.znodes import StoreParams
from waltz.storage.disk.files.files import File, Files, OsFile, OsFiles, T
from waltz.storage.node.node import StorageNode
from waltz.storage.node.replies import EncodedRecords
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

KEY = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
OTHER_KEY = UUID("ffffffff-0405-0607-0809-0a0b0c0d0e0f")
PARTITION_COUNT = 3
ROOT = "/cluster"
TIMEOUT_S = 30.0

SE = "com.wepay.waltz.storage.exception.StorageException: "
CUE = "com.wepay.waltz.storage.exception.ConcurrentUpdateException: "
DISABLED = SE + "read and write for partition={} have been disabled on storage node"
NOT_ASSIGNED = "java.lang.Exception: Partition:{} is not assigned."


def record(transaction_id: int, data: bytes = b"data") -> Record:
    return Record(transaction_id, ReqId.of(1, 2, 3, transaction_id), 7, data, checksum(data))


def records(first: int, count: int, data: bytes = b"data") -> list[Record]:
    return [record(transaction_id, data) for transaction_id in range(first, first + count)]


def decoded(found: EncodedRecords) -> list[Record]:
    """Records that were encoded for the wire."""
    data = struct.pack(">i", found.record_count) + b"".join(found.pieces)
    return decode_records(data, 0, len(data))[0]


class Gate:
    """Stops the thread that syncs a file until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._opened.wait(TIMEOUT_S), "the test never opened the gate"

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, TIMEOUT_S), "nothing was synced"

    def open(self) -> None:
        self._opened.set()


class ObservedFiles(Files):
    """The operating system's files, with syncs counted, stopped at gates, and made to fail, by the end of the path."""

    def __init__(self) -> None:
        self._os_files = OsFiles()
        self.data_syncs: Counter[str] = Counter()
        self.read_calls = 0
        self.gates: dict[str, Gate] = {}
        self.failing: set[str] = set()
        self.free: int | None = None
        self._opened: list[_ObservedFile] = []

    def gate(self, path_end: str) -> Gate:
        self.gates[path_end] = Gate()
        return self.gates[path_end]

    def before_sync(self, path: str) -> None:
        for path_end in list(self.gates):
            if path.endswith(path_end):
                self.gates.pop(path_end).pass_through()
        if any(path.endswith(path_end) for path_end in self.failing):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def data_sync_count(self, path_end: str) -> int:
        return sum(count for path, count in self.data_syncs.items() if path.endswith(path_end))

    def open(self, path: str, *, create: bool) -> File:
        file = _ObservedFile(self, path, self._os_files.open(path, create=create))
        self._opened.append(file)
        return file

    def exists(self, path: str) -> bool:
        return self._os_files.exists(path)

    def list_directory(self, path: str) -> list[str]:
        return self._os_files.list_directory(path)

    def make_directory(self, path: str) -> None:
        self._os_files.make_directory(path)

    def remove(self, path: str) -> None:
        self._os_files.remove(path)

    def rename(self, source: str, target: str) -> None:
        self._os_files.rename(source, target)
        for file in self._opened:
            if file.path == source:
                file.path = target

    def link(self, source: str, target: str) -> None:
        self._os_files.link(source, target)

    def free_bytes(self, path: str) -> int | None:
        return self._os_files.free_bytes(path) if self.free is None else self.free

    def sync_directory(self, path: str) -> None:
        self._os_files.sync_directory(path)

    def time_ms(self) -> int:
        return self._os_files.time_ms()

    async def run(self, function: Callable[[], T]) -> T:
        return await self._os_files.run(function)

    async def run_read(self, function: Callable[[], T]) -> T:
        self.read_calls += 1
        return await self._os_files.run_read(function)

    def close(self) -> None:
        self._os_files.close()


class _ObservedFile(File):
    def __init__(self, files: ObservedFiles, path: str, file: OsFile) -> None:
        self._files = files
        self.path = path
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        self._file.write(offset, chunks)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._files.before_sync(self.path)
        self._file.sync()

    def datasync(self) -> None:
        self._files.data_syncs[self.path] += 1
        self._files.before_sync(self.path)
        self._file.datasync()

    def discard_cache(self) -> None:
        self._file.discard_cache()

    def try_lock(self, size: int) -> bool:
        return self._file.try_lock(size)

    def close(self) -> None:
        self._file.close()


class RunningNode:
    """A storage node on loopback, without TLS, and what a test needs to talk to it."""

    def __init__(self, node: StorageNode, files: ObservedFiles, registry: Registry, config: StorageConfig) -> None:
        self.node = node
        self.files = files
        self.registry = registry
        self.config = config
        self._clients: list[StorageClient | StorageAdminClient | RawPeer] = []

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.node.port)

    @property
    def admin_endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.node.admin_port)

    async def client(self, append_timeout_s: float = TIMEOUT_S) -> StorageClient:
        client = await StorageClient.connect(
            self.endpoint,
            cluster_key=KEY,
            partition_count=PARTITION_COUNT,
            tls=None,
            timeout_s=TIMEOUT_S,
            append_timeout_s=append_timeout_s,
        )
        self._clients.append(client)
        return client

    async def admin(self) -> StorageAdminClient:
        client = await StorageAdminClient.connect(
            self.admin_endpoint, cluster_key=KEY, partition_count=PARTITION_COUNT, tls=None, timeout_s=TIMEOUT_S
        )
        self._clients.append(client)
        return client

    async def raw(self, *, admin: bool = False, versions: tuple[int, ...] = (0,)) -> "RawPeer":
        peer = await RawPeer.connect(self.admin_endpoint if admin else self.endpoint, versions)
        self._clients.append(peer)
        return peer

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.close()


def make_hello(versions: tuple[int, ...] = (0,)) -> bytes:
    """The frame with which a peer that knows these versions begins."""
    count, name = len(versions), b"a peer in tests"
    hello = struct.pack(f">i{count}hi", count, *versions, len(name)) + name
    return b"H\0\0" + len(hello).to_bytes(4, "big") + hello


class RawPeer:
    """Writes and reads the very bytes."""

    HELLO = make_hello()

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.hello = b""

    @classmethod
    async def connect(cls, endpoint: Endpoint, versions: tuple[int, ...] = (0,)) -> "RawPeer":
        peer = cls(*await asyncio.open_connection(*endpoint))
        peer.writer.write(make_hello(versions))
        peer.hello = await peer.frame()
        return peer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def frame(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            header = await self.reader.readexactly(7)
            return header + await self.reader.readexactly(int.from_bytes(header[3:7], "big"))

    async def ask(self, message: wire.Message) -> wire.Message:
        self.send(wire.encode(message))
        return await self.answer()

    async def answer(self) -> wire.Message:
        frame = await self.frame()
        assert frame[:3] == b"S\x00\x00"
        return wire.decode(frame, 7, len(frame))

    async def ask_admin(self, message: admin_wire.Message) -> admin_wire.Message:
        self.send(admin_wire.encode(message))
        frame = await self.frame()
        assert frame[:3] == b"A\x00\x00"
        return admin_wire.decode(frame, 7, len(frame))

    async def closed_by_node(self) -> bool:
        """Wait for the end; whether nothing came before it."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


def make_config(directory: Path, **settings: object) -> StorageConfig:
    values: dict[str, object] = {
        "zookeeper_connect_string": "memory",
        "zookeeper_session_timeout_ms": 10_000,
        "cluster_root": ROOT,
        "storage_port": 0,
        "storage_admin_port": 0,
        "storage_directory": str(directory),
        "storage_bind_address": "127.0.0.1",
        "tls": TlsConfig(plaintext=True),
        **settings,
    }
    return StorageConfig.model_validate(values)


async def make_zookeeper(key: UUID = KEY, partition_count: int = PARTITION_COUNT) -> MemoryZooKeeperServer:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    await client.create(f"{ROOT}/store", StoreParams(key, partition_count).encode(), make_path=True)
    await client.close()
    return server


@asynccontextmanager
async def running_node(
    directory: Path,
    *,
    assign: Sequence[int] = (0, 1),
    files: ObservedFiles | None = None,
    key: UUID = KEY,
    partition_count: int = PARTITION_COUNT,
    access: Access = ALLOW_ALL,
    **settings: object,
) -> AsyncIterator[RunningNode]:
    own_files = files if files is not None else ObservedFiles()
    registry = Registry()
    config = make_config(directory, **settings)
    zookeeper = await (await make_zookeeper(key, partition_count)).connect()
    try:
        node = await StorageNode.start(config, files=own_files, zookeeper=zookeeper, metrics=registry, access=access)
        running = RunningNode(node, own_files, registry, config)
        try:
            await node.manager.assign(assign)
            yield running
        finally:
            await running.close_clients()
            await node.close()
    finally:
        await zookeeper.close()
        if files is None:
            own_files.close()
