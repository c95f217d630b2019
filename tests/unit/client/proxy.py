"""A proxy between a client and its servers that breaks connections in every way that a network does."""

import asyncio
import contextlib
import random
from typing import Any, Self

from waltz.client.engine.links.links import Connector
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, ChannelHandler, connect
from waltz.common.net.listener import close_server
from waltz.common.wire.frames import Family

_CHUNK_BYTES = 16 << 10


class Pipe:
    """One connection through the proxy."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._client_reader, self.client_writer = client
        self._server_reader, self.server_writer = server
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def run(self) -> None:
        await asyncio.gather(
            self._copy(self._client_reader, self.server_writer), self._copy(self._server_reader, self.client_writer)
        )
        self.cut()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    def cut(self) -> None:
        self._flowing.set()
        self.client_writer.transport.abort()
        self.server_writer.transport.abort()

    def half_close(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    async def stall(self, delay_s: float) -> None:
        """Everything is held back for a while; if the client is gone meanwhile, its bytes arrive late."""
        self._flowing.clear()
        await asyncio.sleep(delay_s)
        self._flowing.set()

    async def linger(self, delay_s: float) -> None:
        """The client loses the connection at once; what it had sent gets to the server after it came back."""
        self._flowing.clear()
        await asyncio.sleep(0.001)  # some more of what is on its way gets into the pipe
        self.client_writer.transport.abort()
        await asyncio.sleep(delay_s)
        self._flowing.set()


class Proxy:
    """Stands before one server."""

    def __init__(self, target: Endpoint) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.pipes: set[Pipe] = set()

    async def open(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    @property
    def endpoint(self) -> Endpoint:
        assert self._server is not None
        return Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(reader, writer))
        self._running.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())  # it may be cancelled before it begins
        task.add_done_callback(self._running.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            return
        pipe = Pipe((reader, writer), target)
        self.pipes.add(pipe)
        try:
            await pipe.run()
        finally:
            pipe.cut()
            self.pipes.discard(pipe)

    async def disturb(self, chosen: random.Random) -> None:
        """One of the things that happen to connections."""
        if not self.pipes:
            return
        pipe = chosen.choice(sorted(self.pipes, key=id))
        delay_s = chosen.random() * 0.01
        match chosen.randrange(5):
            case 0:
                pipe.cut()
            case 1:
                pipe.half_close(pipe.client_writer)
            case 2:
                pipe.half_close(pipe.server_writer)
            case 3:
                await pipe.stall(delay_s)
            case 4:
                await pipe.linger(delay_s)

    async def close(self) -> None:
        assert self._server is not None
        await close_server(self._server)
        for pipe in list(self.pipes):
            pipe.cut()
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._server.wait_closed()


class Proxies:
    """A :class:`Connector` that goes through a proxy to each server."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._proxies: dict[Endpoint, Proxy] = {}
        self._opening = asyncio.Lock()

    def connector(self) -> Connector:
        return self._connect

    async def _connect(
        self,
        endpoint: Endpoint,
        family: Family,
        hello_text: str,
        handler: ChannelHandler,
        **options: Any,
    ) -> Channel:
        async with self._opening:
            if endpoint not in self._proxies:
                self._proxies[endpoint] = await Proxy(endpoint).open()
        return await connect(self._proxies[endpoint].endpoint, family, hello_text, handler, **options)

    async def disturb(self, times: int, pause_s: float) -> None:
        """Disturb one server's connections after the other."""
        for _ in range(times):
            await asyncio.sleep(pause_s * (0.5 + self.random.random()))
            if self._proxies:
                await self.random.choice(sorted(self._proxies.values(), key=lambda each: each.endpoint)).disturb(
                    self.random
                )

    @property
    def pipes(self) -> list[Pipe]:
        """All connections."""
        return [pipe for proxy in self._proxies.values() for pipe in proxy.pipes]

    def cut(self) -> None:
        """End all connections."""
        for pipe in self.pipes:
            pipe.cut()

    async def close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
