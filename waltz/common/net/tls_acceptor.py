"""Accepts TCP connections and does their TLS handshakes; a connection counts from its first packet on.

asyncio's own TLS servers report a connection after its handshake. So a peer that never ends its handshakes could open
connections until the process runs out of files.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, Self, TypeVar, cast

from waltz.common.net.channel import CLOSE_TIMEOUT_S, peer_name
from waltz.common.net.revocation import RevocationLists, untrusted
from waltz.common.net.tls_renewal import files_of, follow, present, revocations_of
from waltz.common.quiet_log import QuietLog
from waltz.common.tasks import owned, restarting

logger = logging.getLogger(__name__)

BACKLOG = 512

ACCEPT_RETRY_S = 1.0
"""Pause after a failed accept, probably for lack of file descriptors."""


class Accepted(Protocol):
    """An ``asyncio.Protocol`` for one connection, such as a channel."""

    peer: str

    @property
    def connected(self) -> bool:
        """Whether the handshake was completed."""

    def abort(self) -> None:
        """End the connection at once, if there is one."""


C = TypeVar("C", bound=Accepted)
C_contra = TypeVar("C_contra", bound=Accepted, contravariant=True)


class AcceptedOwner(Protocol[C_contra]):
    """The owner of accepted connections, responsible for closing them."""

    @property
    def log(self) -> QuietLog:
        """The log for errors of peers."""

    def accept(self, connection: C_contra, /) -> bool:
        """Take a connection in; ``False`` refuses it. Called before the handshake."""

    def release(self, connection: C_contra, /) -> None:
        """The connection has ended."""


class TlsAcceptor(Generic[C]):
    """Turns the connections to one port into channels. A channel belongs to its owner from its connection on."""

    def __init__(
        self,
        sockets: list[socket.socket],
        context: ssl.SSLContext,
        owner: AcceptedOwner[C],
        make_channel: Callable[[], C],
        handshake_timeout_s: float,
        shutdown_timeout_s: float,
        on_renewed: Callable[[], None],
    ) -> None:
        """Use :meth:`open`."""
        address = sockets[0].getsockname()
        self.port: int = address[1]
        self.failed_handshakes = 0
        """Number of failed TLS handshakes, except those given up by the peer: these are probes."""
        self._sockets = sockets
        self._context = context
        self._owner = owner
        self._make_channel = make_channel
        self._handshake_timeout_s = handshake_timeout_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._on_renewed = on_renewed
        self._loop = asyncio.get_running_loop()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._connections: dict[C, socket.socket] = {}
        """The sockets of channels in their handshakes, except cancelled ones."""
        self._handshakes: set[asyncio.Task[None]] = set()
        what = f"following the TLS stores of port {self.port}"
        self._following = owned(restarting(partial(follow, context, on_renewed), what), what)
        for listening in sockets:
            self._loop.add_reader(listening, self._accept, listening)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        context: ssl.SSLContext,
        owner: AcceptedOwner[C],
        make_channel: Callable[[], C],
        *,
        handshake_timeout_s: float,
        shutdown_timeout_s: float = CLOSE_TIMEOUT_S,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> Self:
        """Listen on all addresses that ``host`` resolves to. Raises ``OSError``.

        ``on_renewed`` is called when changed files are in use, and after each handshake that had begun before.
        """
        sockets: list[socket.socket] = []
        try:
            for family, address in await _addresses(host, port):
                sockets.append(_listening_socket(family, address))
        except BaseException:
            for opened in sockets:
                opened.close()
            raise
        return cls(sockets, context, owner, make_channel, handshake_timeout_s, shutdown_timeout_s, on_renewed)

    @property
    def unusable_stores(self) -> bool:
        """Whether a changed file cannot be used, or a revocation list has expired."""
        files, revocations = files_of(self._context), self.revocations
        return (files is not None and files.problem is not None) or (revocations is not None and revocations.expired)

    @property
    def revocations(self) -> RevocationLists | None:
        """The revocation lists in use."""
        return revocations_of(self._context)

    def cancel(self, channel: C) -> bool:
        """Cancel a handshake; ``False`` if the channel is not in one."""
        connection = self._connections.pop(channel, None)
        if connection is None:
            return False
        # A cancelled task would leave the socket to transports that nobody closes. So the handshake has to fail.
        with suppress(OSError):  # the peer may be gone already
            connection.shutdown(socket.SHUT_RDWR)
        return True

    async def close(self) -> None:
        """Stop accepting and end all handshakes; other channels belong to the owner. May be called twice."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for pause in self._pauses.values():
            pause.cancel()
        self._following.cancel()
        for channel in list(self._connections):
            self.cancel(channel)
        await asyncio.gather(self._following, *self._handshakes, return_exceptions=True)
        await asyncio.sleep(0)  # the end of a handshake is handled in the next turn of the loop

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection, or none, without a task: the cancellation of a task would lose the connection."""
        try:
            connection, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # the peer is gone already
        except OSError as error:
            self._owner.log.warning("cannot accept connections on port %d: %s", self.port, error.strerror)
            self._loop.remove_reader(listening)
            self._pauses[listening] = self._loop.call_later(
                ACCEPT_RETRY_S, self._loop.add_reader, listening, self._accept, listening
            )
            return
        try:
            connection.setblocking(False)
            channel = self._make_channel()
            channel.peer = peer_name(address)
            accepted = self._owner.accept(channel)
        except Exception:
            connection.close()
            logger.critical(
                "accepting a connection on port %d has failed for an unforeseen reason", self.port, exc_info=True
            )
            return
        if not accepted:
            connection.close()
            return
        self._connections[channel] = connection
        task = self._loop.create_task(self._shake_hands(channel, connection), name=f"handshake with {channel.peer}")
        task.add_done_callback(partial(self._handshake_over, channel, connection))
        self._handshakes.add(task)

    async def _shake_hands(self, channel: C, connection: socket.socket) -> None:
        with suppress(OSError):  # the peer may be gone already
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = present(self._context)
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast("asyncio.Protocol", channel),
                connection,
                ssl=context,
                ssl_handshake_timeout=self._handshake_timeout_s,
                ssl_shutdown_timeout=self._shutdown_timeout_s,
            )
        except OSError as error:  # with errors of TLS and time-outs
            if channel in self._connections:
                self.failed_handshakes += not isinstance(error, ConnectionResetError)
                self._owner.log.warning("no TLS connection with %s: %s", channel.peer, _reason(error))
        else:
            if context is not present(self._context):
                self._on_renewed()

    def _handshake_over(self, channel: C, connection: socket.socket, task: asyncio.Task[None]) -> None:
        """The end of a handshake's task."""
        self._handshakes.discard(task)
        given_up = self._connections.pop(channel, None) is None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a handshake failed for an unforeseen reason", exc_info=error)
        if not channel.connected:
            connection.close()
            channel.abort()
            self._owner.release(channel)
        elif given_up:  # at the moment of its completion
            channel.abort()


async def _addresses(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, address[:2]) for family, _, _, _, address in found))  # type: ignore[misc]


def _listening_socket(family: int, address: tuple[str, int]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({untrusted(error)})"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason
    return str(error) or type(error).__name__
