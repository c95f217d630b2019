"""The sequences of the protocol's specification against the client, as raw bytes on a raw socket."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.unit.client.application import Callbacks, Context, config, open_client
from tests.unit.client.fake_server import until
from waltz.client.callbacks import WaltzClient
from waltz.client.locks import PartitionLocalLock
from waltz.common.ids import Endpoint
from waltz.common.net.listener import close_server
from waltz.common.zk.znodes import PartitionGeneration

pytestmark = pytest.mark.timeout(30)

SERVER_HELLO = "4800000000001e00000005000000010002000300040000000c57616c747a20536572766572"
CLIENT_HELLO = "480000000000220000000700000001000200030004000500060000000c57616c747a20436c69656e74"

LOCK = PartitionLocalLock("mock", 1)
LOCK_HASH = "0033398b"


def rid(seq_num: int) -> str:
    """Client 7, generation 3, partition 0."""
    return "00000007" + "00000003" + "00000000" + f"{seq_num:08x}"


OTHERS = "ffffffff" + "00000000" + "00000000" + "00000001"


def long(value: int) -> str:
    return value.to_bytes(8, "big", signed=True).hex()


def frame(kind: int, req_id: str, body: str = "") -> bytes:
    payload = bytes([kind]) + bytes.fromhex(req_id + body)
    return bytes.fromhex("4c0004") + len(payload).to_bytes(4, "big") + payload


def mount(seq_num: int, mark: int, connection: int) -> bytes:
    return frame(0, rid(seq_num), long(mark) + long(connection))


def ready(seq_num: int) -> bytes:
    return frame(1, rid(seq_num), "00000000")


def append(seq_num: int, mark: int, data: bytes, lock: str = "") -> bytes:
    locks = f"{len(lock) // 8:08x}{lock}" + "00000000" + "00000000"
    checksum = zlib.crc32(data).to_bytes(4, "big").hex()
    return frame(2, rid(seq_num), long(mark) + locks + "00000000" + f"{len(data):08x}" + data.hex() + checksum)


def feed_request(seq_num: int, mark: int) -> bytes:
    return frame(3, rid(seq_num), long(mark))


def feed_data(transaction_id: int, req_id: str = OTHERS) -> bytes:
    return frame(4, req_id, long(transaction_id) + "00000000")


def suspended(seq_num: int) -> bytes:
    return frame(5, rid(seq_num))


def flush(seq_num: int) -> bytes:
    return frame(8, rid(seq_num))


def flushed(seq_num: int, mark: int) -> bytes:
    return frame(9, rid(seq_num), long(mark))


def lock_failure(seq_num: int, transaction_id: int) -> bytes:
    return frame(10, rid(seq_num), long(transaction_id))


class RawServer:
    """Accepts connections, one after the other."""

    def __init__(self) -> None:
        self._connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._writers: list[asyncio.StreamWriter] = []
        """Of all connections, those included that nobody has asked for."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._connections.put_nowait((reader, writer))

    @property
    def endpoint(self) -> Endpoint:
        assert self._server is not None
        return Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def accept(self) -> None:
        """The next connection, with the hellos exchanged."""
        self._reader, self._writer = await self._connections.get()
        self._writer.write(bytes.fromhex(SERVER_HELLO))
        await self.expect(bytes.fromhex(CLIENT_HELLO))

    async def expect(self, *frames: bytes) -> None:
        """These very bytes, and nothing before them."""
        expected = b"".join(frames)
        async with asyncio.timeout(60):
            assert await self._reader.readexactly(len(expected)) == expected

    async def expect_silence(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await self._reader.readexactly(1)

    def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    def close_connection(self) -> None:
        self._writer.close()

    async def close(self) -> None:
        assert self._server is not None
        await close_server(self._server)
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RawServer]:
    made = RawServer()
    await made.open()
    yield made
    await made.close()


async def client_of(server: RawServer, callbacks: Callbacks) -> WaltzClient:
    return await open_client(callbacks, {server.endpoint: [PartitionGeneration(0, 3)]}, 1, config())


async def test_fresh_mount_and_append(server: RawServer) -> None:
    callbacks = Callbacks()
    async with await client_of(server, callbacks) as client:
        await server.accept()
        await server.expect(mount(1, -1, 0))
        server.send(*(feed_data(transaction_id) for transaction_id in range(10)), ready(1))
        await server.expect(feed_request(1, 9))
        context = Context(b"hello", write=[LOCK])
        await client.submit(context)
        await server.expect(append(2, 9, b"hello", LOCK_HASH))
        server.send(feed_data(10, rid(2)))
        await until(lambda: context.done)
        assert context.events == [("completed", True), "applied"]
        server.send(*(feed_data(transaction_id) for transaction_id in range(11, 110)), suspended(1))
        await server.expect(feed_request(1, 109))
        assert callbacks.applied == {0: list(range(110))}


async def test_lock_failure(server: RawServer) -> None:
    callbacks = Callbacks({0: 109})
    async with await client_of(server, callbacks) as client:
        await server.accept()
        await server.expect(mount(1, 109, 0))
        server.send(ready(1))
        await server.expect(feed_request(1, 109))
        context = Context(b"x", write=[LOCK])
        await client.submit(context)
        await server.expect(append(2, 109, b"x", LOCK_HASH))
        server.send(lock_failure(2, 112))
        await until(lambda: context.events == ["lock failure"])
        await server.expect_silence()
        server.send(feed_data(110), feed_data(111))
        await server.expect_silence()
        server.send(feed_data(112))
        await server.expect(append(3, 112, b"x", LOCK_HASH))
        server.send(feed_data(113, rid(3)))
        await until(lambda: context.done)
        assert context.events == ["lock failure", ("completed", True), "applied"]


async def test_connection_loss_with_pending_appends(server: RawServer) -> None:
    callbacks = Callbacks({0: 120})
    async with await client_of(server, callbacks) as client:
        await server.accept()
        await server.expect(mount(1, 120, 0))
        server.send(ready(1))
        await server.expect(feed_request(1, 120))
        committed, lost = Context(b"5"), Context(b"6")
        await client.submit(committed)
        await client.submit(lost)
        await server.expect(append(2, 120, b"5"), append(3, 120, b"6"))
        server.close_connection()
        await server.accept()
        await server.expect(mount(4, 120, 1))
        server.send(feed_data(121, rid(2)), ready(4))
        await server.expect(flush(3), feed_request(4, 121))
        await until(lambda: committed.done)
        assert lost.events == []
        server.send(flushed(3, 121))
        await server.expect(append(5, 121, b"6"))
        server.send(feed_data(122, rid(5)))
        await until(lambda: lost.done)
        assert callbacks.applied == {0: [121, 122]}
        assert committed.events == lost.events == [("completed", True), "applied"]


async def test_keep_alives_foreign_and_repeated_feed_are_tolerated(server: RawServer) -> None:
    callbacks = Callbacks()
    async with await client_of(server, callbacks):
        await server.accept()
        await server.expect(mount(1, -1, 0))
        keep_alive = bytes.fromhex("4c000400000000")
        server.send(keep_alive, feed_data(0), feed_data(0), keep_alive, feed_data(2), feed_data(1), ready(9), ready(1))
        await server.expect(feed_request(1, 1))
        server.send(suspended(9), feed_data(2))
        await server.expect_silence()
        await until(lambda: callbacks.applied == {0: [0, 1, 2]})
