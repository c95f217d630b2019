"""A listening port. Its connections are channels; the close of the port closes them.

When places are short, unused connections give way: first those without a hello, then those without any request, the
oldest first. So idle connections cannot keep out a working peer.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from waltz.common.access import Proof
from waltz.common.errors import WaltzError
from waltz.common.net.channel import CLOSE_TIMEOUT_S, Channel, ChannelHandler
from waltz.common.net.guard import OverloadedError, TrafficGuard
from waltz.common.net.limits import ListenerLimits, TrafficLimits
from waltz.common.net.tls_acceptor import BACKLOG, TlsAcceptor
from waltz.common.net.token_gate import Identities, TokenGate
from waltz.common.net.token_problems import TokenRefusal, counted_problems
from waltz.common.quiet_log import QuietLog
from waltz.common.wire.frames import Family

logger = logging.getLogger(__name__)

_TURNS_OF_ACCEPTING = 2
"""Number of turns of the loop between the transport of an accepted connection and the call of its protocol."""

_CHECKED_PER_TURN = 10
"""Maximum number of connections whose certificates are compared with revocation lists in one turn of the loop."""

NameOf = Callable[[str, Proof], str | None]
"""Maps a name in a certificate or token to the principal for whom the connection counts; ``None``: for nobody."""


class Listener:
    """Accepts connections of one protocol family and owns their channels until it is closed."""

    def __init__(self, limits: ListenerLimits, guard: TrafficGuard, identities: Identities | None) -> None:
        """Use :meth:`open`."""
        self.port: int = 0
        """The listening port; for a requested port of 0, the one that the operating system chose."""
        self.channels: set[Channel] = set()
        """The open channels, including those before the end of handshake or hello."""
        self.guard = guard
        """Limits the unfinished work of peers."""
        self.log = QuietLog(logger)
        """The log for errors of peers."""
        self.accepted_count = 0
        """Number of accepted connections."""
        self.refused_count = 0
        """Number of connections refused for lack of room."""
        self.refused_tokens = counted_problems(asked=identities is not None)
        """Number of tokens that were refused, or have expired on an open connection, by problem."""
        self._limits = limits
        self._greeting: dict[Channel, float] = {}  # with the time of their connection, the oldest first
        self._unused: dict[Channel, None] = {}
        self._addresses: dict[str, int] = {}
        self._identities = identities
        self._name_of: NameOf | None = None
        self._names: dict[Channel, str] = {}
        """The principals of the channels that count for the limit of connections by principal."""
        self._name_counts: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._acceptor: TlsAcceptor[Channel] | None = None
        self._closed = False
        self._received_bytes = 0
        self._sent_bytes = 0
        """Number of bytes sent on ended channels."""

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
        limits: ListenerLimits | None = None,
        guard: TrafficGuard | None = None,
        identities: Identities | None = None,
        name_of: NameOf | None = None,
    ) -> Self:
        """Listen on all addresses that ``host`` resolves to.

        Args:
            host: A name or an address; an empty string for all addresses of this machine.
            port: The port; 0 for any.
            family: The protocol.
            hello_text: The text of the hello, for logs of peers.
            handler_factory: Makes a handler for each connection.
            tls: The TLS context; ``None`` for plain TCP.
            limits: The limits of the port.
            guard: The guard, shared by the listeners of a node. Its maker closes it after the listeners.
            identities: Identifies peers. Without it, all tokens are accepted without a check.
            name_of: Maps names of peers to the principals for whom connections count.

        Raises:
            WaltzError: The port cannot be used; the text has a remedy.
        """
        limits = limits or ListenerLimits()
        listener = cls(limits, guard or TrafficGuard(TrafficLimits()), identities)
        listener._name_of = name_of

        def make_channel() -> Channel:
            return Channel(
                family,
                hello_text,
                TokenGate(handler_factory(), family, identities, listener.token_refused, listener.known),
                owner=listener,
                max_payload_bytes=limits.max_payload_bytes,
                opening_payload_bytes=limits.opening_payload_bytes,
                abridged_type=limits.abridged_type,
                hello_timeout_s=limits.hello_timeout_s,
            )

        if tls is None:
            listener._server = await start_server(make_channel, host, port)
            listener.port = bound_port(listener._server)
        else:
            with listening_errors(host, port):
                listener._acceptor = await TlsAcceptor.open(
                    host,
                    port,
                    tls,
                    listener,
                    make_channel,
                    handshake_timeout_s=limits.hello_timeout_s,
                    on_renewed=lambda: listener.end_revoked(list(listener.channels)),
                )
            listener.port = listener._acceptor.port
        return listener

    def accept(self, channel: Channel) -> bool:
        """Called by a channel when its connection is established, and with TLS once more after the handshake.

        Returns:
            ``False`` to refuse the connection.
        """
        if channel in self.channels:
            return True
        if self._closed:
            return False
        if not self._has_room_for(channel):
            self.refused_count += 1
            return False
        self.accepted_count += 1
        address = _address(channel)
        self._addresses[address] = self._addresses.get(address, 0) + 1
        self.channels.add(channel)
        self._greeting[channel] = asyncio.get_running_loop().time()
        return True

    def greeted(self, channel: Channel) -> None:
        """Called by a channel after the hello of its peer."""
        self._greeting.pop(channel, None)
        self._unused[channel] = None

    def token_refused(self, channel: Channel, token: str, refusal: TokenRefusal) -> None:
        """Called when the token of a channel's peer was refused."""
        self.refused_tokens[refusal.problem] += 1
        self.log.warning("the token of %s is refused: %s", channel.peer, refusal)
        if self._identities is not None:
            self._identities.refused(token, channel.peer, self.port, refusal)

    def known(self, channel: Channel) -> bool:
        """Called when the principal of a channel is known, before its first request.

        Returns:
            ``False`` to refuse the channel.
        """
        most = self._limits.max_per_principal
        name = None if self._name_of is None or most is None else self._name_of(channel.principal, channel.proof)
        if name is None or most is None or channel in self._names:
            return True
        count = self._name_counts.get(name, 0)
        if count >= most:
            self.refused_count += 1
            self.log.warning("refusing %s: principal %r already has %d connections", channel.peer, name, count)
            return False
        self._names[channel] = name
        self._name_counts[name] = count + 1
        return True

    def release(self, channel: Channel) -> None:
        """Called by a channel when its connection has ended."""
        if channel not in self.channels:
            return
        self.channels.discard(channel)
        self._received_bytes += channel.received_bytes
        self._sent_bytes += channel.written_bytes
        self._greeting.pop(channel, None)
        self._unused.pop(channel, None)
        name = self._names.pop(channel, None)
        if name is not None:
            self._name_counts[name] -= 1
            if not self._name_counts[name]:
                del self._name_counts[name]
        address = _address(channel)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    @property
    def received_bytes(self) -> int:
        """Number of bytes read from all peers."""
        return self._received_bytes + sum([channel.received_bytes for channel in self.channels])

    @property
    def sent_bytes(self) -> int:
        """Number of bytes written to all peers."""
        return self._sent_bytes + sum([channel.written_bytes for channel in self.channels])

    @property
    def failed_handshakes(self) -> int:
        """Number of failed TLS handshakes."""
        return 0 if self._acceptor is None else self._acceptor.failed_handshakes

    @property
    def unusable_stores(self) -> bool:
        """Whether a changed file of TLS cannot be used (the former one is in use), or a revocation list has expired."""
        return self._acceptor is not None and self._acceptor.unusable_stores

    def end_revoked(self, channels: list[Channel]) -> None:
        """End those of these channels whose peer has a revoked certificate, a few in each turn of the loop."""
        revocations = None if self._acceptor is None else self._acceptor.revocations
        if revocations is None:
            return
        for channel in channels[:_CHECKED_PER_TURN]:
            subject = revocations.revokes(channel.certificates)
            if subject is not None:
                channel.give_up(WaltzError(f"the certificate {subject} is revoked"))
        if len(channels) > _CHECKED_PER_TURN:
            asyncio.get_running_loop().call_soon(self.end_revoked, channels[_CHECKED_PER_TURN:])

    def _has_room_for(self, channel: Channel) -> bool:
        limits = self._limits
        if self._addresses.get(_address(channel), 0) >= limits.max_per_address:
            text = "refusing %s: there are already %d connections from its address"
            self.log.warning(text, channel.peer, limits.max_per_address)
            return False
        if len(self.channels) >= limits.max_connections:
            victim = next(iter(self._greeting), None) or self._oldest_unused()
            if victim is None:
                self.log.warning(
                    "refusing %s: %d connections are open on port %d", channel.peer, len(self.channels), self.port
                )
                return False
            self._evict(victim)
        elif len(self._greeting) >= limits.max_greeting:
            victim, since_s = next(iter(self._greeting.items()))
            if asyncio.get_running_loop().time() - since_s >= limits.greeting_grace_s:
                self._evict(victim)
        return True

    def _oldest_unused(self) -> Channel | None:
        while self._unused:
            channel = next(iter(self._unused))
            if not channel.answered and not channel.closed:
                return channel
            del self._unused[channel]
        return None

    def _evict(self, channel: Channel) -> None:
        """Free the place of a connection at once; the connection itself ends a little later."""
        self.release(channel)
        if self._acceptor is None or not self._acceptor.cancel(channel):
            channel.give_up(OverloadedError("closed without any request, since its place is needed"))

    async def close(self) -> None:
        """Stop accepting and close all channels; abort those that take too long. May be called twice."""
        if self._server is not None:
            await close_server(self._server)
        self._closed = True
        if self._acceptor is not None:
            await self._acceptor.close()
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


def _address(channel: Channel) -> str:
    """The host part of the peer's name."""
    return channel.peer.rpartition(":")[0]


async def _all_closed(channels: list[Channel]) -> None:
    for channel in channels:
        await channel.wait_closed()


async def start_server(protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server:
    """Like ``loop.create_server``, but errors are ``WaltzError`` with a remedy."""
    with listening_errors(host, port):
        return await asyncio.get_running_loop().create_server(protocol_factory, host, port, backlog=BACKLOG)


async def close_server(server: asyncio.Server) -> None:
    """Stop listening, and wait until all accepted connections have called their protocols.

    asyncio calls the protocol some turns of the loop after the acceptance. Until then the connection is invisible, and
    stays open if the server closes in the first of these turns. After this function the caller ends the connections,
    and waits with ``server.wait_closed()``. May be called twice.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        with suppress(NotImplementedError):  # a loop without readers
            loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()
    for _ in range(_TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)


@contextmanager
def listening_errors(host: str, port: int) -> Iterator[None]:
    """Turn errors of listening into ``WaltzError`` with a remedy."""
    try:
        yield
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
