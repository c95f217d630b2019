"""Peers that mean no good, against a server in a cluster of one ZooKeeper in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.common.net.peers import Recorder
from tests.unit.server.fakes import PartitionSetup, new_link, req_id, take
from tests.unit.server.fakes import mount as mount_request
from tests.unit.server.process.test_node import PARTITIONS, ROOT, NodeLog, config, no_storage, until
from tests.unit.server.requests.test_connection import client_hello, frame, mount
from waltz.common.config.schemas import ConnectionsConfig, TlsConfig
from waltz.common.ids import LONG_MIN, Endpoint, ReqId
from waltz.common.net.channel import connect
from waltz.common.net.tls import client_context
from waltz.common.wire.client_server import (
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountResponse,
    PartitionState,
    ServerPartitionsAssignmentRequest,
    encode,
)
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER
from waltz.common.zk import store_admin
from waltz.server.partition.partition import PartitionOptions
from waltz.server.process import node
from waltz.server.process.node import WaltzServer

QUICK = ConnectionsConfig(
    hello_timeout_ms=300, frame_timeout_ms=400, unread_timeout_ms=400, max=40, max_per_address=1000
)
ANY_TOOL = ReqId.of(-1, 0, 0, 1)
QUESTION = encode(ServerPartitionsAssignmentRequest(ANY_TOOL), 4)


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "ReplicatedLog", NodeLog)


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[WaltzServer]:
    tree = MemoryZooKeeperServer()
    admin, client = await tree.connect(), await tree.connect()
    await store_admin.create_cluster(admin, ROOT, "test", PARTITIONS)
    await store_admin.add_storage_node(admin, ROOT, "s1:6000", 1, 6100)
    server = WaltzServer(config(**settings), client, make_connector=no_storage)
    await server.start()
    try:
        yield server
    finally:
        await server.close()
        await admin.close()
        await client.close()


async def serves(server: WaltzServer, *, tls: bool = False) -> None:
    """A client that comes now gets an answer."""
    client = Recorder()
    context = client_context(TlsConfig()) if tls else None
    endpoint = Endpoint("127.0.0.1", server.endpoint.port)
    channel = await connect(endpoint, CLIENT_SERVER, "client", client, tls=context, timeout_s=60)
    channel.send(encode(ServerPartitionsAssignmentRequest(ANY_TOOL), channel.version))
    await client.until(lambda recorder: bool(recorder.payloads))
    channel.abort()
    await channel.wait_closed()


class Peers:
    """Raw connections to a server."""

    def __init__(self, server: WaltzServer) -> None:
        self._port = server.endpoint.port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, *sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        writer.write(b"".join(sent))
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def peers_of(server: WaltzServer) -> AsyncIterator[Peers]:
    peers = Peers(server)
    try:
        yield peers
    finally:
        await peers.close()


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(60):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


async def answered(reader: asyncio.StreamReader) -> None:
    """Wait for the answer to :data:`QUESTION`; other frames may come before it."""
    async with asyncio.timeout(60):
        while True:
            header = await reader.readexactly(7)
            payload = await reader.readexactly(int.from_bytes(header[3:], "big"))
            if header[0] == CLIENT_SERVER.magic and payload[1:17] == ANY_TOOL:
                return


def open_links(server: WaltzServer) -> int:
    assert server._service is not None
    return len(server._service.links)


async def test_slow_hellos_slow_frames_and_garbage() -> None:
    async with running(connections=QUICK) as server, peers_of(server) as peers:
        hello = client_hello(4)
        hostile = [
            await peers.open(),
            await peers.open(hello[:5]),
            await peers.open(hello, b"\xff" * 100),
            await peers.open(hello, FRAME_HEADER.pack(ord("L"), 4, 1000), b"slow"),
            await peers.open(hello, FRAME_HEADER.pack(ord("L"), 4, 30 << 20), b"a lying length before any mount"),
            await peers.open(hello, mount(1, -1), FRAME_HEADER.pack(ord("L"), 4, 30 << 20), bytes(50_000)),
            await peers.open(hello, mount(1, -1), FRAME_HEADER.pack(ord("L"), 4, 40 << 20)),
        ]
        await serves(server)
        for reader, _ in hostile:
            await ended(reader)
        await until(lambda: open_links(server) == 0)
        await serves(server)


async def test_more_connections_than_there_are_places() -> None:
    connections = QUICK.model_copy(update={"hello_timeout_ms": 60_000})
    async with running(connections=connections) as server, peers_of(server) as peers:
        used, writer = await peers.open(client_hello(4), QUESTION)
        await answered(used)
        for _ in range(60):
            await peers.open()
            await peers.open(client_hello(4))
        await serves(server)
        assert open_links(server) <= 41
        writer.write(QUESTION)
        await answered(used)


async def test_handshakes_that_never_end() -> None:
    connections = QUICK.model_copy(update={"hello_timeout_ms": 2000})
    async with running(connections=connections, tls=TlsConfig()) as server, peers_of(server) as peers:
        hostile = [await peers.open(sent) for sent in (b"", b"\x16\x03\x01\x02\x00") for _ in range(30)]
        await serves(server, tls=True)
        for reader, _ in hostile:
            await ended(reader)
        await serves(server, tls=True)


async def test_a_client_that_never_reads() -> None:
    async with running(connections=QUICK) as server, peers_of(server) as peers:
        _, writer = await peers.open(client_hello(4))
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport can read
        await until(lambda: open_links(server) == 1)
        for _ in range(400):
            writer.write(QUESTION * 1000)
        await serves(server)
        await until(lambda: open_links(server) == 0)
        await serves(server)


async def test_a_mounted_client_may_send_large_transactions() -> None:
    """Also in the very read that brings its mount request."""
    async with running(connections=QUICK) as server, peers_of(server) as peers:
        data = bytes(4 << 20)
        body = b"\xff" * 8 + bytes(12) + bytes(4) + len(data).to_bytes(4, "big") + data + crc32(data).to_bytes(4, "big")
        reader, writer = await peers.open(client_hello(4), mount(1, -1), frame(2, 2, body), QUESTION)
        await answered(reader)
        assert open_links(server) == 1
        writer.write(QUESTION)
        await answered(reader)


async def test_questions_that_cannot_be_answered_yet_are_bounded() -> None:
    setup = PartitionSetup(options=PartitionOptions(max_undecided_count=3))
    link = new_link()
    for number in range(5):
        setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(number)))
    assert take(link) == [HighWaterMarkResponse(req_id(number), LONG_MIN) for number in (3, 4)]
    setup.log.open_session()
    assert take(link) == [HighWaterMarkResponse(req_id(number), -1) for number in (0, 1, 2)]
    await setup.partition.close()


async def test_clients_ahead_of_the_log_are_bounded() -> None:
    setup, link = PartitionSetup(3, PartitionOptions(max_undecided_count=2)), new_link()
    setup.log.open_session()
    setup.partition.mount(link, mount_request(0, 5))
    await asyncio.sleep(0)  # the first is being decided
    for number in range(1, 5):
        setup.partition.mount(link, mount_request(number, 5))
    assert take(link) == [MountResponse(req_id(number), PartitionState.NOT_READY) for number in (3, 4)]
    await until(lambda: setup.log.confirmations == 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert take(link) == [MountResponse(req_id(number), PartitionState.CLIENT_AHEAD) for number in (0, 1, 2)]
    await setup.partition.close()
