"""One connection to a peer: hello, frames in, frames out, back pressure, and a bounded end.

A channel is a thin driver around :class:`~waltz.common.wire.connection.WireConnection`. The wire connection knows the
protocol and does no I/O. The channel knows asyncio: it writes frames, passes received frames to its handler, and
bounds every wait (hello time-out, close deadline, TCP keep-alive).

Frames sent in one turn of the loop leave in one transport write: all of them together cost one system call and one TLS
record. If there are hundreds of frames, the first ones leave before the end of the turn, so the peer can work on them
meanwhile.
"""

import asyncio
import logging
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from waltz.common.access import Proof, Source, principal_of
from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    TlsRefusedError,
    TokenRefusedError,
    WaltzError,
)
from waltz.common.ids import Endpoint
from waltz.common.net.guard import TrafficGuard
from waltz.common.net.kernel import unacknowledged_bytes
from waltz.common.net.limits import HELLO_TIMEOUT_S, MAX_PAYLOAD_BYTES
from waltz.common.net.revocation import untrusted, verified_chain
from waltz.common.net.tls_renewal import files_of, present, token_of
from waltz.common.net.token_sender import TokenSender
from waltz.common.quiet_log import QuietLog
from waltz.common.wire.connection import WireConnection
from waltz.common.wire.frames import Bounds, Family

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""Time limit for the last bytes of a closing channel."""

FAREWELL_S = 1.0
"""Time limit for the peer's part of a TLS shutdown, from the last moved byte on. A live peer answers within a round
trip; nothing depends on the answer of a dead one."""

KEEP_ALIVE_INTERVAL_S = 600.0
"""Clients of the protocol send a keep-alive after this time without writing."""

WRITE_HIGH_BYTES = 1 << 20
WRITE_LOW_BYTES = 256 << 10
"""A channel is not writable above the first number of unsent bytes, and writable again below the second."""

MIN_EARLY_FRAMES = 192
"""From this number of gathered frames on, two thirds of them are written at once. The rest, with later frames of the
same turn, is worth another write. Otherwise a client that appends hundreds at a time would wait while its server works,
and the server would wait while the client works."""

_JOIN_BYTES = 64 << 10
"""Frames of at least this average size are written as separate buffers. Copying smaller ones into one costs less."""

_PORTION_BYTES = 1 << 20
"""Maximum bytes passed to a transport at a time. A TLS transport hides the unsent bytes of the transport below. With
portions there are few of them, and the encryption of a large frame does not block the loop."""

_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's name of the error for an answer without TLS."""

_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
"""Parts of the names of alerts from a peer that misses this side's certificate, or does not trust it."""

_WANTS_TLS = "is this the right port? Does it use TLS? (ssl.plaintext turns TLS off on this side)"
_WANTS_CERTIFICATE = (
    "does the server require a trusted certificate? A client's is set by client.ssl.keyStore.location, that of "
    "commands by ssl.keyStore.location"
)

_TCP_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Detects within two minutes that the peer's machine is gone, even if nothing is sent."""


class ChannelHandler(Protocol):
    """The user of a channel. All calls come on the event loop and must not block."""

    def channel_ready(self, channel: "Channel") -> None:
        """Both hellos are exchanged; ``channel.version`` is the negotiated version and frames may be sent."""

    def frames_received(self, channel: "Channel", buffer: bytes, bounds: Bounds) -> None:
        """A read has completed frames: ``bounds`` has ``(start, end)`` of every payload in ``buffer``.

        A raised ``ProtocolError`` closes the channel. So does any other exception, and the log reports it as a defect.
        """

    def channel_writable(self, channel: "Channel") -> None:
        """``channel.writable`` is true again: the unsent bytes fell below the low limit."""

    def channel_closed(self, channel: "Channel", error: Exception | None) -> None:
        """The channel has ended; called exactly once if ``channel_ready`` was called.

        ``error`` is ``None`` if one of the sides closed the connection in order.
        """


class ChannelOwner(Protocol):
    """The owner of accepted channels, responsible for closing them: a listener."""

    @property
    def guard(self) -> TrafficGuard:
        """Limits the unfinished work of the channel's peer."""

    @property
    def log(self) -> QuietLog:
        """The log for errors of peers."""

    def accept(self, channel: "Channel") -> bool:
        """Take the channel in; ``False`` refuses it. ``True`` for a channel that was taken in before."""

    def greeted(self, channel: "Channel") -> None:
        """The peer has said hello."""

    def release(self, channel: "Channel") -> None:
        """The channel has ended."""


class Channel(asyncio.Protocol):
    """A connection over plain TCP or TLS, on asyncio's own loop, uvloop or a simulated one.

    Made by :func:`connect` and by listeners. ``version`` is -1 until the channel is ready. ``closed`` is true from the
    beginning of the close on: from then on no frame is delivered, or accepted for sending. ``writable`` is advice:
    frames sent while it is false are kept and sent. So a sender that ignores it needs other limits.
    """

    __slots__ = (
        "_close_timer",
        "_error",
        "_flush_scheduled",
        "_gathered",
        "_gathered_bytes",
        "_handler",
        "_hello_timeout_s",
        "_hello_timer",
        "_keep_alive_interval_s",
        "_keep_alive_timer",
        "_last_write_s",
        "_left_bytes",
        "_loop",
        "_lost",
        "_owner",
        "_partial_frame",
        "_paused",
        "_receive",
        "_settled",
        "_transport",
        "_transport_full",
        "_waiting",
        "_waiting_bytes",
        "_wire",
        "_write_high_bytes",
        "_write_low_bytes",
        "_written_bytes",
        "closed",
        "early_frames",
        "peer",
        "principal_from",
        "received_bytes",
        "taken_bytes",
        "token_principal",
        "version",
        "writable",
    )

    def __init__(
        self,
        family: Family,
        hello_text: str,
        handler: ChannelHandler,
        *,
        owner: ChannelOwner | None = None,
        peer: str = "",
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        opening_payload_bytes: int | None = None,
        abridged_type: int | None = None,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        keep_alive_interval_s: float | None = None,
        write_high_bytes: int = WRITE_HIGH_BYTES,
        write_low_bytes: int = WRITE_LOW_BYTES,
    ) -> None:
        self.version: int = -1
        self.peer: str = peer
        self.writable: bool = True
        self.closed: bool = False
        self.early_frames: int = MIN_EARLY_FRAMES
        """From this number of gathered frames on, most of them are written before the end of the turn of the loop."""
        self.received_bytes: int = 0
        """Number of bytes ever read from the peer."""
        self.taken_bytes: int = 0
        """Number of bytes that :meth:`send` ever took. After a call, this is the end of its frame in the stream."""
        self.principal_from: Sequence[Source] = (Source.SUBJECT,)
        """The places of the peer's name in its certificate, in order of preference."""
        self.token_principal: str | None = None
        """The principal of the peer's token, if the peer has presented one."""
        self._partial_frame = None if owner is None else owner.guard.partial_frame(self)
        self._wire = WireConnection(
            family,
            hello_text,
            max_payload_bytes=max_payload_bytes,
            opening_payload_bytes=opening_payload_bytes,
            abridged_type=abridged_type,
            watcher=self._partial_frame,
        )
        self._receive: Callable[[bytes], tuple[bytes, Bounds]] = self._wire.receive
        self._handler = handler
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._left_bytes = 0
        self._written_bytes = 0
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self._transport_full = False
        self._flush_scheduled = False
        self._paused = False
        self._error: Exception | None = None
        self._settled = asyncio.Event()
        self._lost = asyncio.Event()
        self._hello_timeout_s = hello_timeout_s
        self._hello_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._keep_alive_interval_s = keep_alive_interval_s
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._last_write_s = 0.0
        self._write_high_bytes = write_high_bytes
        self._write_low_bytes = write_low_bytes

    def __repr__(self) -> str:
        return f"<Channel {self.peer} version {self.version}{' closed' if self.closed else ''}>"

    # Sending

    def send(self, frame: bytes, *, flush_soon: bool = True) -> None:
        """Send a frame, several frames in one ``bytes``, or the next piece of a frame. Order is kept.

        A closed channel drops the frame. The frame is written in the next turn of the loop, or earlier. Without
        ``flush_soon``, the caller has to call :meth:`flush` in this turn.
        """
        if self.closed or self.version < 0:
            return
        gathered = self._gathered
        gathered.append(frame)
        size_bytes = len(frame)
        self._gathered_bytes += size_bytes
        self.taken_bytes += size_bytes
        if self._gathered_bytes > self._write_high_bytes:
            self.flush()  # now, so that the transport's limits, and `writable` with them, include these bytes
        elif flush_soon and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_scheduled_frames)
        elif len(gathered) >= self.early_frames:
            self._flush_most()

    def send_keep_alive(self) -> None:
        """Send a frame without payload; the peer skips it."""
        self.send(self._wire.keep_alive())

    def flush(self) -> None:
        """Write the gathered frames now instead of at the end of this turn of the loop."""
        gathered = self._gathered
        if not gathered or self._transport is None:
            return
        size_bytes = self._gathered_bytes
        self._gathered = []
        self._gathered_bytes = 0
        self._last_write_s = self._loop.time()
        if self._waiting or size_bytes > _PORTION_BYTES:
            self._waiting.extend(gathered)
            self._waiting_bytes += size_bytes
            self._write_waiting()
            return
        self._written_bytes += size_bytes
        if len(gathered) == 1:
            self._transport.write(gathered[0])
        elif size_bytes < _JOIN_BYTES * len(gathered):
            self._transport.write(b"".join(gathered))
        else:
            self._transport.writelines(gathered)

    def _flush_most(self) -> None:
        kept = self._gathered[2 * len(self._gathered) // 3 :]
        kept_bytes = sum(map(len, kept))
        del self._gathered[-len(kept) :]
        self._gathered_bytes -= kept_bytes
        self.flush()
        self._gathered, self._gathered_bytes = kept, kept_bytes

    def _write_waiting(self, *, all_of_it: bool = False) -> None:
        """Pass portions of the waiting bytes to the transport while the transport has room."""
        assert self._transport is not None
        while self._waiting and (all_of_it or not self._transport_full):
            portion: list[bytes | memoryview] = []
            room_bytes = _PORTION_BYTES
            while self._waiting and room_bytes:
                piece = self._waiting.popleft()
                if len(piece) > room_bytes:
                    view = memoryview(piece)
                    piece = view[:room_bytes]
                    self._waiting.appendleft(view[room_bytes:])
                portion.append(piece)
                room_bytes -= len(piece)
            size_bytes = _PORTION_BYTES - room_bytes
            self._waiting_bytes -= size_bytes
            self._written_bytes += size_bytes
            self._transport.write(portion[0] if len(portion) == 1 else b"".join(portion))

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that :meth:`send` has taken, but the operating system has not."""
        if self._transport is None:
            return self._gathered_bytes
        return self._gathered_bytes + self._waiting_bytes + self._transport.get_write_buffer_size()

    @property
    def sent_bytes(self) -> int:
        """Number of bytes of frames that the operating system has taken; 0 before the first answer."""
        if self._transport is None:
            return 0
        return max(self._written_bytes - self._transport.get_write_buffer_size(), 0)

    @property
    def written_bytes(self) -> int:
        """Number of bytes of frames that the operating system has taken, or will take next."""
        return self._written_bytes

    def left_bytes(self) -> int:
        """The part of :attr:`taken_bytes` that the peer's operating system has acknowledged, by the local kernel.

        Costs a system call. Bytes in a relay on the way count as acknowledged; so do up to two megabytes below TLS. The
        number never falls. (The kernel's queue includes the overhead of TLS: its growth would look like bytes that
        return.)
        """
        if self._transport is not None:
            in_kernel_bytes = unacknowledged_bytes(self._transport.get_extra_info("socket"))
            self._left_bytes = max(self._left_bytes, self.taken_bytes - self.unsent_bytes - in_kernel_bytes)
        return self._left_bytes

    @property
    def receiving(self) -> bool:
        """Whether a frame is incomplete: its beginning has arrived, its rest has not."""
        return self._wire.receiving

    def receiving_head(self, size_bytes: int) -> bytes:
        """The first payload bytes of the incomplete frame, ``size_bytes`` at most."""
        return self._wire.receiving_head(size_bytes)

    @property
    def connected(self) -> bool:
        """Whether there is, or was, a connection; with TLS: a completed handshake."""
        return self._transport is not None

    @property
    def principal(self) -> str:
        """The principal of the peer.

        This is the principal of the peer's token; without a token, a name in its verified certificate, by default the
        subject; else :data:`~waltz.common.access.ANONYMOUS`.
        """
        if self.token_principal is not None:
            return self.token_principal
        certificate = None if self._transport is None else self._transport.get_extra_info("peercert")
        return principal_of(certificate, self.principal_from)

    @property
    def proof(self) -> Proof:
        """The proof of :attr:`principal`."""
        if self.token_principal is not None:
            return Proof.TOKEN
        shown = self._transport is not None and bool(self._transport.get_extra_info("peercert"))
        return Proof.NONE if self.over_tls and not shown else Proof.CERTIFICATE

    @property
    def over_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def certificates(self) -> list[bytes]:
        """The peer's verified certificates in DER, its own first; empty without any."""
        connection = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return [] if connection is None else verified_chain(connection)

    def hand_over(self, handler: ChannelHandler) -> None:
        """Replace the handler from now on."""
        self._handler = handler

    @property
    def answered(self) -> bool:
        """Whether any frame besides the hello was ever sent."""
        return self._written_bytes > 0

    def _flush_scheduled_frames(self) -> None:
        self._flush_scheduled = False
        self.flush()

    # Receiving

    def pause_reading(self) -> None:
        """Stop reading; TCP then holds the peer back. Frames that were read already are still delivered."""
        if not self._paused and not self.closed and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused and not self.closed and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    @property
    def reading_paused(self) -> bool:
        """Whether reading is paused."""
        return self._paused

    def allow_large_frames(self) -> None:
        """Lift the opening limit, since the peer's request makes large frames plausible."""
        if self._wire.allow_large_frames():
            self._loop.call_soon(self.data_received, b"")

    # Ending

    def close(self) -> None:
        """Send the gathered frames, then close, within :data:`CLOSE_TIMEOUT_S` even if the peer reads nothing.

        With TLS, the close ends when no byte has moved for :data:`FAREWELL_S`.
        """
        if self.closed:
            return
        self.flush()
        if self._transport is not None:
            self._write_waiting(all_of_it=True)
        self.resume_reading()  # further frames are dropped, but TLS has to see the peer's farewell
        self._stop()
        if self._transport is not None:
            if self._transport.get_extra_info("ssl_object") is None:
                self._transport.close()
                self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
            elif not self._transport.is_closing():  # else the connection is lost, and connection_lost follows
                self._transport.close()
                self._await_farewell(self._loop.time() + CLOSE_TIMEOUT_S)

    def _await_farewell(
        self, until_s: float, moved_bytes: tuple[int, int] = (-1, -1), moved_at_s: float = -math.inf
    ) -> None:
        """Continue the close while bytes leave; ``moved_bytes`` is the last progress seen, at ``moved_at_s``."""
        assert self._transport is not None
        now_s = self._loop.time()
        found_bytes = (self.left_bytes(), unacknowledged_bytes(self._transport.get_extra_info("socket")))
        if found_bytes != moved_bytes:
            moved_at_s = now_s
        if now_s >= min(until_s, moved_at_s + FAREWELL_S):
            self._transport.abort()
            return
        self._close_timer = self._loop.call_later(
            FAREWELL_S / 4, self._await_farewell, until_s, found_bytes, moved_at_s
        )

    def abort(self, error: Exception | None = None) -> None:
        """Close at once and drop unsent bytes; ``error`` is passed to ``channel_closed``."""
        if self._lost.is_set():
            return
        if not self.closed:
            self._error = error
        self._stop()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._settled.set()

    def give_up(self, error: Exception) -> None:
        """Abort because of an error of the peer, and log the error."""
        if not self.closed:
            log = logger if self._owner is None else self._owner.log
            log.warning("closing the connection with %s: %s", self.peer, error)
        self.abort(error)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and ``channel_closed`` was called."""
        if self._transport is not None:
            await self._lost.wait()

    async def close_within(self, timeout_s: float) -> None:
        """Close, and wait for the end of the connection; after ``timeout_s`` abort, dropping unsent bytes."""
        self.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_closed()
        except TimeoutError:
            self.abort(None)
            await self.wait_closed()

    def _stop(self) -> None:
        self.closed = True
        self.writable = False
        self._gathered = []
        self._gathered_bytes = 0
        self._waiting.clear()
        self._waiting_bytes = 0
        for timer in (self._hello_timer, self._keep_alive_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._hello_timer = self._keep_alive_timer = self._close_timer = None
        if self._partial_frame is not None:
            self._partial_frame.ended()
        if self._owner is not None:
            self._owner.guard.read_again(self)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello at once, as the protocol demands of both sides."""
        self._transport = cast("asyncio.Transport", transport)
        if not self.peer:
            self.peer = peer_name(transport.get_extra_info("peername"))
        if self.closed or (self._owner is not None and not self._owner.accept(self)):
            self._owner = None
            self.abort()
            return
        _set_tcp_keep_alive(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=self._write_high_bytes, low=self._write_low_bytes)
        self._hello_timer = self._loop.call_later(self._hello_timeout_s, self._hello_timed_out)
        self._last_write_s = self._loop.time()
        self._transport.write(self._wire.hello)

    def data_received(self, data: bytes) -> None:
        """Pass the frames that are complete now to the handler."""
        if self.closed:
            return
        self.received_bytes += len(data)
        try:
            buffer, bounds = self._receive(data)
            if self.version < 0 and not self._hello_received():
                return
            if bounds and not self.closed:
                self._handler.frames_received(self, buffer, bounds)
        except ProtocolError as error:
            self.give_up(error)
        except Exception as error:
            logger.exception("closing the connection with %s: its frames could not be handled", self.peer)
            self.abort(error)

    def pause_writing(self) -> None:
        """The unsent bytes exceed the high limit."""
        self._transport_full = True
        if not self.writable:
            return
        self.writable = False
        if self._owner is not None and not self.closed:
            self._owner.guard.not_read(self)

    def resume_writing(self) -> None:
        """The unsent bytes fell below the low limit."""
        self._transport_full = False
        if self.closed or self.writable:
            return
        self._write_waiting()
        if self._transport_full:
            return
        self.writable = True
        if self._owner is not None:
            self._owner.guard.read_again(self)
        if self.version >= 0:
            self._handler.channel_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, for any reason."""
        if not self.closed:
            self._error = exc
        self._stop()
        if self._owner is not None:
            self._owner.release(self)
        try:
            if self.version >= 0:
                self._handler.channel_closed(self, self._error)
        finally:
            self._lost.set()
            self._settled.set()

    def _hello_received(self) -> bool:
        version = self._wire.version
        if version is None:
            return False
        self.version = version
        self._receive = self._wire.split
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None
        if self._keep_alive_interval_s is not None:
            self._keep_alive_timer = self._loop.call_later(self._keep_alive_interval_s, self._keep_alive)
        self._settled.set()
        if self._owner is not None:
            self._owner.greeted(self)
        self._handler.channel_ready(self)
        return True

    def _hello_timed_out(self) -> None:
        self.give_up(DeadlineExceededError(f"no hello within {self._hello_timeout_s:g} s"))

    def _keep_alive(self) -> None:
        assert self._keep_alive_interval_s is not None
        due_s = self._last_write_s + self._keep_alive_interval_s
        if self._loop.time() >= due_s:
            self.send_keep_alive()
            due_s = self._loop.time() + self._keep_alive_interval_s
        self._keep_alive_timer = self._loop.call_at(due_s, self._keep_alive)

    async def wait_ready(self) -> None:
        """Wait until the hellos are exchanged.

        Raises:
            ProtocolError: There is no common version, or the peer speaks another protocol.
            ConnectionClosedError: The connection was closed before.
            DeadlineExceededError: The peer's hello did not arrive in time.
            OSError: The connection failed before.
        """
        await self._settled.wait()
        if self.version < 0:
            raise self._error or ConnectionClosedError("closed before the hello")


async def connect(
    endpoint: Endpoint,
    family: Family,
    hello_text: str,
    handler: ChannelHandler,
    *,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    keep_alive_interval_s: float | None = None,
    write_high_bytes: int = WRITE_HIGH_BYTES,
    write_low_bytes: int = WRITE_LOW_BYTES,
) -> Channel:
    """Connect to a peer; leaves nothing behind on failure.

    Args:
        endpoint: The address of the peer.
        family: The protocol.
        hello_text: The text of the hello, for logs of the peer.
        handler: The user of the channel.
        tls: The TLS context, perhaps with a token; ``None`` for plain TCP.
        timeout_s: Time limit of the whole: name look-up, TCP, TLS, hello, and the answer to the token.
        max_payload_bytes: Limit of received payloads.
        keep_alive_interval_s: Interval of keep-alives while nothing is written; ``None`` for none.
        write_high_bytes: Number of unsent bytes above which the channel is not writable.
        write_low_bytes: Number of unsent bytes below which the channel is writable again.

    Returns:
        The channel, after ``handler.channel_ready`` was called.

    Raises:
        ConnectFailedError: The text is one line with the endpoint and the reason.
    """
    sender = await _token_sender(endpoint, family, handler, tls, timeout_s)
    channel = Channel(
        family,
        hello_text,
        sender or handler,
        peer=str(endpoint),
        max_payload_bytes=max_payload_bytes,
        hello_timeout_s=timeout_s,
        keep_alive_interval_s=keep_alive_interval_s,
        write_high_bytes=write_high_bytes,
        write_low_bytes=write_low_bytes,
    )
    try:
        async with asyncio.timeout(timeout_s):
            await _open(channel, endpoint, tls, timeout_s)
            await channel.wait_ready()
            if sender is not None:
                await sender.accepted()
    except (OSError, OverflowError, UnicodeError, WaltzError) as error:  # OverflowError: no such port
        opened = channel.connected
        channel.abort()
        await channel.wait_closed()
        if isinstance(error, TimeoutError):
            reason = f"not ready within {timeout_s:g} s"
        else:
            reason = connect_failure(error, uses_tls=tls is not None, opened=opened)
        kind: type[ConnectFailedError] = TlsRefusedError if is_tls_refusal(error) else ConnectFailedError
        if isinstance(error, TokenRefusedError):
            kind = TokenRefusedError
        raise kind(f"cannot connect to {endpoint}: {reason}") from error
    except BaseException:
        channel.abort()
        raise
    return channel


async def _token_sender(
    endpoint: Endpoint, family: Family, handler: ChannelHandler, tls: ssl.SSLContext | None, timeout_s: float
) -> "TokenSender[Channel] | None":
    """The sender of the token of ``tls``; ``None`` without a token.

    Raises:
        ConnectFailedError: The source of the token fails.
    """
    source = token_of(tls)
    if source is None:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            token = await source.read()
    except TimeoutError:
        raise ConnectFailedError(f"cannot connect to {endpoint}: {source} gave none within {timeout_s:g} s") from None
    except WaltzError as error:
        raise ConnectFailedError(f"cannot connect to {endpoint}: {error}") from error
    return TokenSender(handler, family, source, token)


async def _open(channel: Channel, endpoint: Endpoint, tls: ssl.SSLContext | None, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.create_connection(lambda: channel, endpoint.host, endpoint.port)
    else:
        if (files := files_of(tls)) is not None:
            await files.check_if_due()
        await loop.create_connection(
            lambda: channel,
            endpoint.host,
            endpoint.port,
            ssl=present(tls),
            ssl_handshake_timeout=timeout_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )


def connect_failure(error: Exception, *, uses_tls: bool, opened: bool) -> str:
    """A short text: why a connection failed, and what to check.

    ``opened``: there was a connection; with TLS, the handshake was complete on this side. With TLS 1.3 the handshake is
    complete here before the peer has checked this side's certificate.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = untrusted(error)
        return f"TLS failure: the peer's certificate is not trusted ({reason}); see ssl.trustStore.location"
    if isinstance(error, ssl.SSLError):
        if error.reason == _NO_TLS:
            return "TLS failure: the peer does not use TLS; is this the right port? Should TLS be on?"
        reason = f"TLS failure: {error.reason or error}"
        return f"{reason}; {_WANTS_CERTIFICATE}" if is_tls_refusal(error) else reason
    if isinstance(error, socket.gaierror):
        return f"host name cannot be resolved ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is it running?"
    if isinstance(error, ConnectionError | ConnectionClosedError):
        what = "closed before the hello" if opened else "closed in the TLS handshake"
        return f"{what}; {_WANTS_CERTIFICATE if uses_tls else _WANTS_TLS}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def is_tls_refusal(error: Exception) -> bool:
    """Whether another attempt to connect would probably fail in the same way."""
    if not isinstance(error, ssl.SSLError):
        return False
    reason = f"{error.reason or error}"
    return (
        isinstance(error, ssl.SSLCertVerificationError)
        or reason == _NO_TLS
        or any(name in reason for name in _CERTIFICATE_ALERTS)
    )


def peer_name(address: object) -> str:
    """``host:port`` of a socket's address."""
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return "unknown peer"


def _set_tcp_keep_alive(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_KEEP_ALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError as error:  # the peer may have reset the connection already; a read will report that
        logger.debug("TCP keep-alive could not be set: %s", error)
