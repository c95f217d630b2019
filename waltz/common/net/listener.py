"""A listening port whose connections are channels, all closed when it closes."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Self

from waltz.common.errors import WaltzError
from waltz.common.net.channel import CLOSE_TIMEOUT_S, HELLO_TIMEOUT_S, MAX_PAYLOAD_BYTES, Channel, ChannelHandler
from waltz.common.wire.frames import Family

logger = logging.getLogger(__name__)

MAX_CHANNELS = 10_000
"""Connections above this number are refused."""

_BACKLOG = 512


class Listener:
    """Accepts connections of one protocol family and owns their channels until it is closed."""

    def __init__(self, max_channels: int) -> None:
        self.port: int = 0
        """The port listened on; the one the operating system chose when 0 was asked for."""
        self.channels: set[Channel] = set()
        """The channels that are open, those whose hello is still awaited included."""
        self._max_channels = max_channels
        self._server: asyncio.Server | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        family: Family,
        hello_text: str,
        handler_factory: Callable[[], ChannelHandler],
        *,
        tls: ssl.SSLContext | None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        max_channels: int = MAX_CHANNELS,
    ) -> Self:
        """Listen on all addresses that ``host`` resolves to (an empty string: all of this machine).

        Every connection gets a handler of its own. ``hello_timeout_s`` bounds the TLS handshake and then the wait for
        the peer's hello. Raises ``WaltzError`` saying what to do when the port cannot be had.
        """
        listener = cls(max_channels)

        def make_channel() -> Channel:
            return Channel(
                family,
                hello_text,
                handler_factory(),
                owner=listener,
                max_payload_bytes=max_payload_bytes,
                hello_timeout_s=hello_timeout_s,
            )

        listener._server = await start_server(make_channel, host, port, tls=tls, handshake_timeout_s=hello_timeout_s)
        listener.port = bound_port(listener._server)
        return listener

    def accept(self, channel: Channel) -> bool:
        """Called by a channel when its connection (and TLS) is established; ``False`` refuses it."""
        if self._closed:
            return False
        if len(self.channels) >= self._max_channels:
            logger.warning(
                "refusing %s: %d connections are open on port %d", channel.peer, len(self.channels), self.port
            )
            return False
        self.channels.add(channel)
        return True

    def release(self, channel: Channel) -> None:
        """Called by a channel when its connection is gone."""
        self.channels.discard(channel)

    async def close(self) -> None:
        """Stop accepting and close all channels; those that take too long are aborted. May be called twice."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        channels = list(self.channels)
        for channel in channels:
            channel.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await _all_closed(channels)
        except TimeoutError:
            for channel in channels:
                channel.abort()
            await _all_closed(channels)
        if self._server is not None:
            await self._server.wait_closed()


async def _all_closed(channels: list[Channel]) -> None:
    for channel in channels:
        await channel.wait_closed()


async def start_server(
    protocol_factory: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    handshake_timeout_s: float,
) -> asyncio.Server:
    """``loop.create_server`` with errors that say what to do (``WaltzError``)."""
    loop = asyncio.get_running_loop()
    try:
        if tls is None:
            return await loop.create_server(protocol_factory, host, port, backlog=_BACKLOG)
        return await loop.create_server(
            protocol_factory,
            host,
            port,
            backlog=_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=handshake_timeout_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )
    except OSError as error:
        raise WaltzError(f"cannot listen on {host or '*'}:{port}: {_remedy(error)}") from error


def bound_port(server: asyncio.Server) -> int:
    """The port that a server listens on."""
    port = server.sockets[0].getsockname()[1]
    assert isinstance(port, int)
    return port


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror}); configure another bind address"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop the process that uses it or configure another port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission; configure a port above 1023 or grant the right to use low ports"
    if error.errno == errno.EADDRNOTAVAIL:
        return "not an address of this machine; configure another bind address"
    return str(error.strerror or error)
