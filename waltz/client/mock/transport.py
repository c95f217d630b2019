"""Connections that never leave the process: real channels on both sides, and memory in between."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, ChannelHandler
from waltz.common.wire.frames import Family


class MemoryTransport(asyncio.Transport):
    """One end. Written bytes arrive at the other end in the next turn of the loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.peer: MemoryTransport
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._reading = True
        self._arrived: deque[bytes] = deque()
        self._draining: asyncio.Handle | None = None
        self._closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if not self._closed:
            self.peer.arrive(bytes(data))

    def arrive(self, data: bytes) -> None:
        """Take bytes of the other end."""
        self._arrived.append(data)
        self._drain_soon()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._drain_soon()

    def _drain_soon(self) -> None:
        if self._draining is None:
            self._draining = self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._draining = None
        for _ in range(len(self._arrived)):
            if self._closed or not self._reading or not self._arrived:
                return
            self._protocol.data_received(self._arrived.popleft())

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close both ends after all written bytes have arrived."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._loop.call_soon(self.peer.close)

    def abort(self) -> None:
        """The same: nothing is left behind in a buffer."""
        self.close()


class MemoryConnector:
    """A :class:`~waltz.client.engine.links.links.Connector` to a server in this process."""

    def __init__(self, versions: tuple[int, ...], make_handler: Callable[[], ChannelHandler]) -> None:
        self._versions = versions
        self._make_handler = make_handler

    async def __call__(
        self,
        endpoint: Endpoint,
        family: Family,
        hello_text: str,
        handler: ChannelHandler,
        **_options: object,
    ) -> Channel:
        """Connect; without TLS and time limits, since nothing can fail."""
        client = Channel(family, hello_text, handler, peer=str(endpoint))
        server = Channel(family._replace(versions=self._versions), "Waltz Mock", self._make_handler(), peer="client")
        ours, theirs = MemoryTransport(client), MemoryTransport(server)
        ours.peer, theirs.peer = theirs, ours
        client.connection_made(ours)
        server.connection_made(theirs)
        await client.wait_ready()
        return client
