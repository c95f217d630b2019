"""A relay before a node's port, through which all others reach it, and which can be cut."""

import asyncio
import contextlib

CHUNK_SIZE_BYTES = 1 << 16
POLL_INTERVAL_S = 0.05


class Proxy:
    """Listens on ``host``:``port`` for a node that listens on ``behind``:``port``."""

    def __init__(self, host: str, port: int, behind: str) -> None:
        self._host = host
        self._port = port
        self._behind = behind
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen as soon as the node does, so that nobody takes the proxy for the node."""
        while True:
            try:
                _, writer = await asyncio.open_connection(self._behind, self._port)
            except OSError:
                await asyncio.sleep(POLL_INTERVAL_S)
                continue
            writer.close()
            self._server = await asyncio.start_server(self._accepted, self._host, self._port)
            return

    def cut(self) -> None:
        """Let nothing through."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through, what waited included."""
        self._whole.set()

    def reset(self) -> None:
        """End all connections."""
        for connection in self._connections:
            connection.cancel()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        self.reset()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            self._connections.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions, until one of them ends."""
        other_writer: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            other_reader, other_writer = await asyncio.open_connection(self._behind, self._port)
            directions = [
                asyncio.ensure_future(self._pump(reader, other_writer)),
                asyncio.ensure_future(self._pump(other_reader, writer)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
        except OSError:
            pass  # the node is down: whoever connected is disconnected
        finally:
            writer.transport.abort()
            if other_writer is not None:
                other_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_SIZE_BYTES):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
