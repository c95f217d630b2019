"""Handlers and bare sockets for tests of channels."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
from waltz.common.net.listener import close_server
from waltz.common.wire.frames import Bounds, Family, encode_frame

FAMILY = Family("test", ord("L"), (0, 3))


def frame(payload: bytes, version: int = 3) -> bytes:
    return encode_frame(FAMILY.magic, version, payload)


class Recorder:
    """Notes all that a channel says; tests wait for what they expect."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.payloads: list[bytes] = []
        self.reads: list[int] = []
        self.writable_calls = 0
        self.closed: list[Exception | None] = []
        self.failure: Exception | None = None
        self.on_payload: Callable[[Channel, bytes], None] | None = None
        self._changed = asyncio.Event()

    def channel_ready(self, channel: Channel) -> None:
        assert self.channel is None
        self.channel = channel
        self._changed.set()

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        if self.failure is not None:
            raise self.failure
        self.reads.append(len(bounds))
        for start, end in bounds:
            self.payloads.append(buffer[start:end])
            if self.on_payload is not None:
                self.on_payload(channel, buffer[start:end])
        self._changed.set()

    def channel_writable(self, channel: Channel) -> None:
        self.writable_calls += 1
        self._changed.set()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        assert channel.closed
        self.closed.append(error)
        self._changed.set()

    async def until(self, condition: Callable[["Recorder"], bool]) -> None:
        """Return when the condition holds, which is looked at after every call of the channel."""
        async with asyncio.timeout(60):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self) -> Exception | None:
        await self.until(lambda recorder: bool(recorder.closed))
        assert len(self.closed) == 1
        return self.closed[0]


@asynccontextmanager
async def bare_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object],
) -> AsyncIterator[Endpoint]:
    """A plain TCP server that does to each new connection what ``serve`` does, then keeps it open."""
    writers: list[asyncio.StreamWriter] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        serve(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        await close_server(server)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
        await server.wait_closed()


@asynccontextmanager
async def bare_client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain TCP connection to a listener."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def has_ended(client: socket.socket) -> bool:
    """Whether the peer has closed the connection by now."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True
