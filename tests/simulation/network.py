"""A simulated TCP network: bytes arrive late, in order within a connection, or not at all.

Both layers are there. The kernel's: a connection is two directions of bytes with a window; it outlives a killed process
by what was already sent, it answers bytes for a connection that it does not know with a reset, and it knows nothing any
more after a loss of power. asyncio's: transports with write limits, ``pause_reading``, ``close`` that flushes and
``abort`` that does not, exactly as the selector event loop has them.
"""

import asyncio
import contextvars
import errno
import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from tests.simulation.lines import IDLE_S, SEGMENT_BYTES, SLOW_START_BYTES, WINDOW_BYTES, Condition, Line
from tests.simulation.loop import Process, SimulatedLoop, current_process
from tests.simulation.trace import Trace

READ_BYTES = 256 << 10
"""The most that one read takes, as in asyncio."""

SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""A connection request without an answer is sent again after these times, and then given up."""

KEEP_ALIVE_S = 105.0
"""A connection whose other end is gone is noticed after this time of silence (what the channels set)."""

RETRANSMISSION_MAX_S = 2.0
"""After a cut has healed, what was lost is sent again within this time."""


_BYTES = (bytes, bytearray, memoryview)

_Item = tuple[float, bytes, str | None]
"""An item on its way: time of arrival, and bytes or the end of the connection."""


FIN = "FIN"
RESET = "RESET"


class SimulatedSocket:
    """What asyncio's servers show of their sockets."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._name

    def fileno(self) -> int:
        """As of a closed socket: there is no file."""
        return -1


class ConnectedSocket:
    """What a transport shows of its socket."""

    family = 0

    def __init__(self, transport: "SimulatedTransport") -> None:
        self._transport = transport

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes that were sent and have not been acknowledged by the kernel on the other side."""
        return self._transport.unacknowledged_bytes


def unacknowledged_bytes(socket: ConnectedSocket) -> int:
    """Stands in for the function of this name in ``waltz.common.net.channel``, which asks the kernel."""
    return socket.unacknowledged_bytes


class SimulatedServer(asyncio.AbstractServer):
    """A listening port; it ends with its process."""

    def __init__(
        self, network: "Network", process: Process, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        self.process = process
        self.factory = factory
        self.sockets: tuple[SimulatedSocket, ...] = (SimulatedSocket(host, port),)
        self._network = network
        self._address = (process.host, port)
        self._number = process.own(self)

    def close(self) -> None:
        """See asyncio."""
        self._network.listeners.pop(self._address, None)
        self.process.disown(self._number)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See asyncio."""
        return self._network.loop

    async def start_serving(self) -> None:
        """See asyncio; it serves from the beginning."""

    async def serve_forever(self) -> None:
        """See asyncio; nobody needs it."""
        raise NotImplementedError

    def is_serving(self) -> bool:
        """See asyncio."""
        return self._network.listeners.get(self._address) is self

    async def wait_closed(self) -> None:
        """See asyncio."""

    def process_died(self, *, power_loss: bool) -> None:
        """The operating system closes the port."""
        self._network.listeners.pop(self._address, None)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection: asyncio's transport and the kernel's socket."""

    def __init__(self, network: "Network", process: Process, protocol: asyncio.BaseProtocol, number: int) -> None:
        super().__init__()
        self.number = number
        self.process = process
        self.host = process.host
        self.peer: SimulatedTransport
        self.way: Condition
        """How bytes get to the peer."""
        self.addresses: tuple[tuple[str, int], tuple[str, int]]
        """Addresses of this end and of the other end."""
        self.socket_open = True
        self._network = network
        self._loop: SimulatedLoop = network.loop
        self._protocol = cast("asyncio.Protocol", protocol)
        self._owned_as = process.own(self)
        # asyncio's side
        self._started = False
        self._closing = False
        self._connection_lost = False
        self._reading_paused = False
        self._buffer = bytearray()
        self._high_bytes = 64 << 10
        self._low_bytes = 16 << 10
        self._writing_paused = False
        # the kernel's side: what arrived
        self._arrived: deque[bytes] = deque()
        self._arrived_end: str | None = None
        self._given_up = False
        self._read_scheduled = False
        # the kernel's side: what is on the way to the peer
        self._on_the_way: deque[_Item] = deque()
        self._lost_on_the_way: list[_Item] = []
        self._last_arrival_s = 0.0
        self._arrival_scheduled = False
        self.unacknowledged_bytes = 0
        """Sent bytes that the kernel of the other side has not acknowledged."""
        self._unread_bytes = 0
        self._withheld_bytes = 0
        self._blackholed = False
        self._heard_at_s = 0.0
        self._started_bytes = SLOW_START_BYTES
        self._last_sent_s = 0.0

    def __repr__(self) -> str:
        (host, port), (peer, peer_port) = self.addresses
        return f"<connection {self.number} {host}:{port} to {peer}:{peer_port}>"

    # What asyncio's users call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        if name == "socket":
            return ConnectedSocket(self)
        if name == "peercert":  # as if every machine had a certificate with its name, and TLS had verified it
            return {"subject": ((("commonName", self.addresses[1][0]),),)}
        return {"sockname": self.addresses[0], "peername": self.addresses[1]}.get(name, default)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See asyncio."""
        return self._protocol

    def is_reading(self) -> bool:
        """See asyncio."""
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        """See asyncio."""
        if not self._closing:
            self._reading_paused = True

    def resume_reading(self) -> None:
        """See asyncio."""
        if not self._closing and self._reading_paused:
            self._reading_paused = False
            self._schedule_read()

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        if high is None:
            high = 64 << 10 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        self._maybe_pause_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio."""
        if not isinstance(data, _BYTES):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if not data or self._connection_lost:
            return
        if not self._buffer:
            if self._arrived_end == RESET:
                self._fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
                return
            room = self._room()
            if room >= len(data):
                self._send(bytes(data))
                return
            if room > 0:
                self._send(bytes(data[:room]))
                data = data[room:]
        self._buffer += data
        self._maybe_pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """See asyncio; nobody needs half-closed connections."""
        return False

    def close(self) -> None:
        """See asyncio: what is buffered is still sent."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._connection_lost = True
            self.process.call_soon(self._call_connection_lost, None)

    def abort(self) -> None:
        """See asyncio: what is buffered is dropped; what the kernel has is on its way."""
        self._force_close(None)

    # asyncio's inside

    def start(self) -> None:
        """Tell the protocol, then begin to read."""
        if not self._connection_lost:
            self._protocol.connection_made(self)
        self._started = True
        self._schedule_read()

    def _maybe_pause_writing(self) -> None:
        if len(self._buffer) > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _maybe_resume_writing(self) -> None:
        if self._writing_paused and len(self._buffer) <= self._low_bytes:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _force_close(self, error: Exception | None) -> None:
        if self._connection_lost:
            return
        self._buffer.clear()
        self._closing = True
        self._connection_lost = True
        self.process.call_soon(self._call_connection_lost, error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": "a protocol raised", "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _call_connection_lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self.close_socket()

    def _read_ready(self) -> None:
        self._read_scheduled = False
        if self._closing or self._reading_paused:
            return
        data = self._take_arrived()
        if data:
            self._network.trace.count(self.number, data)
            try:
                self._protocol.data_received(data)
            except Exception as error:
                self._fail(error)
        elif self._arrived_end == RESET:
            self._fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            return
        elif self._arrived_end is not None:
            self._end_of_file()
            return
        self._schedule_read()

    def _take_arrived(self) -> bytes:
        arrived = self._arrived
        if not arrived:
            return b""
        data = arrived.popleft() if len(arrived) == 1 else b"".join(arrived)
        arrived.clear()
        size = self._network.read_size(len(data))
        if size < len(data):
            arrived.append(data[size:])
            data = data[:size]
        self.peer.acknowledged(len(data))
        return data

    def _end_of_file(self) -> None:
        try:
            keep_open = self._protocol.eof_received()
        except Exception as error:
            self._fail(error)
            return
        assert not keep_open, "half-closed connections are not simulated"
        self.close()

    def _write_ready(self) -> None:
        if self._connection_lost or not self._buffer:
            return
        room = self._room()
        if room <= 0:
            return
        self._send(bytes(self._buffer[:room]))
        del self._buffer[:room]
        self._maybe_resume_writing()
        if not self._buffer and self._closing and not self._connection_lost:
            self._connection_lost = True
            self._call_connection_lost(None)

    # The kernel's inside

    def process_died(self, *, power_loss: bool) -> None:
        """The operating system closes the socket, or is gone itself."""
        if power_loss:
            self.vanish()
        else:
            self.close_socket()

    def close_socket(self) -> None:
        """Close as the kernel does: a reset when something is unread, else an orderly end behind what was sent."""
        if not self.socket_open:
            return
        self._leave()
        if self._blackholed or self.peer._blackholed:
            self._watch_peer()
        if not self._given_up:
            self._put_on_the_way(b"", RESET if self._arrived else FIN)
        self._arrived.clear()

    def vanish(self) -> None:
        """Be forgotten without a word to the peer; what was on the way is lost."""
        if not self.socket_open:
            return
        self._leave()
        self._on_the_way.clear()
        self._lost_on_the_way.clear()
        self._arrived.clear()
        self._watch_peer()

    def break_off(self) -> None:
        """The kernel gives the connection up and tells the application; the peer is not told."""
        if not self.socket_open:
            return
        self._on_the_way.clear()
        self._lost_on_the_way.clear()
        self._given_up = True
        self._arrived.clear()
        self._reset()
        self._watch_peer()

    def blackhole(self) -> None:
        """From here on nothing of this connection gets from this end to the other, for good; nobody is told.

        An end that says nothing, and hears nothing, is told by its kernel in the end: the other one owes it a sign of
        life, and either the question does not get there or the answer does not get back. What was sent and is not
        acknowledged keeps the kernel from asking; it sends it again for longer than simulations take.
        """
        self._blackholed = True
        self._on_the_way.clear()
        self._lost_on_the_way.clear()
        for end in (self, self.peer):
            end._heard_at_s = self._loop.now_s
            end._await_sign_of_life()

    @property
    def blackholed(self) -> bool:
        """Whether nothing gets from this end to the other any more."""
        return self._blackholed

    def _watch_peer(self) -> None:
        """The other end is not told that this one has gone; its kernel notices in the end."""
        self._loop.call_later(KEEP_ALIVE_S, self.peer.keep_alive_failed, context=self._network.context)

    def _await_sign_of_life(self) -> None:
        if not self.socket_open or self.unacknowledged_bytes:
            return
        until_s = max(self._heard_at_s, self._last_sent_s) + KEEP_ALIVE_S
        if self._loop.now_s < until_s:
            self._loop.call_at(until_s, self._await_sign_of_life, context=self._network.context)
        else:
            self._put_on_the_way(b"", RESET)
            self._reset()

    def keep_alive_failed(self) -> None:
        """Nobody answers on the other side."""
        if self.socket_open and not self.peer.socket_open:
            self._reset()

    def _leave(self) -> None:
        self.socket_open = False
        self._network.forget(self)
        self.process.disown(self._owned_as)

    def _schedule_read(self) -> None:
        if self._read_scheduled or not self._started or self._closing or self._reading_paused:
            return
        if self._arrived or self._arrived_end is not None:
            self._read_scheduled = True
            process = self.process
            self._loop.schedule(self._read_ready, (), process.context, process)

    def _room(self) -> int:
        """How many bytes may leave for the window, which grows with what arrives on long lines, as TCP's does."""
        line = self.way.line
        if line is None:
            return WINDOW_BYTES - self._unread_bytes
        if not self._unread_bytes and self._loop.now_s - self._last_sent_s > IDLE_S:
            self._started_bytes = SLOW_START_BYTES
        return min(line.window_bytes, self._started_bytes) - self._unread_bytes

    def _send(self, data: bytes) -> None:
        size_bytes = len(data)
        self._unread_bytes += size_bytes
        self.unacknowledged_bytes += size_bytes
        self._last_sent_s = self._loop.now_s
        way = self.way
        if (way.line is None and way.bytes_per_s is None) or way.rate is None:
            self._put_on_the_way(data, None)
            return
        for start in range(0, len(data), SEGMENT_BYTES):
            self._put_on_the_way(data[start : start + SEGMENT_BYTES], None)

    def _put_on_the_way(self, data: bytes, end: str | None) -> None:
        if self._blackholed:
            return
        way = self.way
        left_at_s = self._loop.now_s
        if way.line is not None or way.bytes_per_s is not None:
            left_at_s = way.left_at_s(left_at_s, self.number, len(data))
        arrival_s = left_at_s + self._network.delay_s(way)
        if arrival_s > self._last_arrival_s:
            self._last_arrival_s = arrival_s
        self._on_the_way.append((self._last_arrival_s, data, end))
        if not self._arrival_scheduled:
            self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        """The next arrival, when something is on the way and none is scheduled."""
        self._arrival_scheduled = True
        self._loop.schedule_at(self._on_the_way[0][0], self._arrive, (), self._network.context, None)

    def _arrive(self) -> None:
        self._arrival_scheduled = False
        on_the_way, peer = self._on_the_way, self.peer
        if self._lost_on_the_way or self._network.loses(self.way, self.host, peer.host):
            self._lost_on_the_way.extend(on_the_way)
            on_the_way.clear()
            return
        now_s = self._loop.now_s
        while on_the_way and on_the_way[0][0] <= now_s:
            _, data, end = on_the_way.popleft()
            if peer.socket_open and not peer._blackholed:
                self.unacknowledged_bytes -= len(data)
            peer.arrived(data, end)
        if on_the_way and not self._arrival_scheduled:
            self._schedule_arrival()

    def arrived(self, data: bytes, end: str | None) -> None:
        """The peer's bytes, or its end."""
        if not self.socket_open:
            if end is None:
                self._put_on_the_way(b"", RESET)  # this connection is not known here
            return
        self._heard_at_s = self._loop.now_s
        if data:
            self._arrived.append(data)
        if end is not None:
            if end == RESET:
                self._reset()
                return
            self._arrived_end = end
        self._schedule_read()

    def _reset(self) -> None:
        """The connection is broken; noticed by the next read, or by a write if nobody reads."""
        self._arrived_end = RESET
        self._schedule_read()
        if self._buffer:
            self.process.call_soon(self._fail, ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def acknowledged(self, size_bytes: int) -> None:
        """The peer has read; acknowledgements travel against the bytes."""
        if self.peer._blackholed:
            return
        if self._network.loses(self.peer.way, self.peer.host, self.host):
            self._withheld_bytes += size_bytes
            return
        self._unread_bytes -= size_bytes
        self._started_bytes += size_bytes
        if self._buffer:
            self._loop.call_later(self._network.delay_s(self.peer.way), self._write_ready, context=self.process.context)

    def healed(self, source: str, target: str) -> None:
        """Bytes pass again from ``source`` to ``target``: send again what was lost."""
        if (self.host, self.peer.host) == (source, target) and self._lost_on_the_way:
            lost, self._lost_on_the_way = self._lost_on_the_way, []
            lost.extend(self._on_the_way)
            self._on_the_way.clear()
            self._last_arrival_s = self._loop.now_s + self._network.retransmission_s()
            self._on_the_way.extend((self._last_arrival_s, data, end) for _, data, end in lost)
            if not self._arrival_scheduled:
                self._schedule_arrival()
        if (self.peer.host, self.host) == (source, target) and self._withheld_bytes:
            withheld, self._withheld_bytes = self._withheld_bytes, 0
            self.acknowledged(withheld)


class Network:
    """All hosts, and how bytes get from one to another."""

    def __init__(
        self, loop: SimulatedLoop, random_source: random.Random, trace: Trace, *, delay_factor: float = 1.0
    ) -> None:
        """``delay_factor``: how slow the network is in ordinary times."""
        self.loop = loop
        self.delay_factor = delay_factor
        self.trace = trace
        self.context = contextvars.Context()
        """What the network does belongs to no process."""
        self.listeners: dict[tuple[str, int], SimulatedServer] = {}
        self.connections = 0
        self._random = random_source
        self._draw = random_source.random
        self._conditions: dict[tuple[str, str], Condition] = {}
        self._without_power: set[str] = set()
        self._transports: dict[tuple[int, str], SimulatedTransport] = {}
        self._next_port = 32768

    # What faults call

    def condition(self, source: str, target: str) -> Condition:
        """How bytes get from ``source`` to ``target``; to be changed at will, except ``cut``: see :meth:`set_cut`."""
        found = self._conditions.get((source, target))
        if found is None:
            found = self._conditions[source, target] = Condition()
        return found

    def set_line(self, one: str, other: str, line: Line) -> None:
        """What the line between two hosts is like, in both directions, for good."""
        self.condition(one, other).line = self.condition(other, one).line = line

    def set_cut(self, source: str, target: str, cut: bool) -> None:
        """Lose everything from ``source`` to ``target``, or let it pass again (what was lost is sent again then)."""
        self.condition(source, target).cut = cut
        if not cut and not self.is_cut(source, target):
            self._heal(source, target)

    def set_power(self, host: str, on: bool) -> None:
        """Without power a host receives nothing and answers nothing."""
        if on:
            self._without_power.discard(host)
            for transport in list(self._transports.values()):
                if transport.peer.host == host:
                    self._heal(transport.host, host)
        else:
            self._without_power.add(host)

    def transports_between(self, one: str, other: str) -> list[SimulatedTransport]:
        """The open ends at host ``one`` of connections with host ``other``, oldest first."""
        return [
            transport
            for transport in self._transports.values()
            if transport.socket_open and transport.host == one and transport.peer.host == other
        ]

    @property
    def transports(self) -> list[SimulatedTransport]:
        """All open ends of connections, oldest first."""
        return [transport for transport in self._transports.values() if transport.socket_open]

    # What transports ask

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from ``source`` to ``target``."""
        return self.loses(self.condition(source, target), source, target)

    def loses(self, way: Condition, source: str, target: str) -> bool:
        """Whether nothing gets on this way, that from ``source`` to ``target``."""
        without_power = self._without_power
        return way.cut or (bool(without_power) and (target in without_power or source in without_power))

    def delay_s(self, way: Condition) -> float:
        """How long a byte is on its way: a fraction of a millisecond mostly, sometimes much longer."""
        draw = self._draw()
        delay_s = (0.0001 + 0.0004 * draw) * self.delay_factor
        if draw > 0.995:
            delay_s += 0.03 * self._draw()
        if way.line is not None:
            delay_s += way.line.delay_s
        if way.extra_delay_s:
            delay_s += way.extra_delay_s * (0.5 + self._draw())
        return delay_s

    def retransmission_s(self) -> float:
        """How long after a cut has healed the lost bytes arrive."""
        return RETRANSMISSION_MAX_S * self._random.random()

    def read_size(self, available_bytes: int) -> int:
        """How many of the bytes that arrived one read returns: all of them mostly, but frames may be cut anywhere."""
        if self._draw() < 0.02:
            return self._random.randint(1, min(available_bytes, READ_BYTES))
        return min(available_bytes, READ_BYTES)

    def forget(self, transport: SimulatedTransport) -> None:
        """A socket was closed."""
        if transport.peer.socket_open:
            return  # what it sent may still have to be sent again
        self._transports.pop((transport.number, transport.host), None)
        self._transports.pop((transport.number, transport.peer.host), None)

    def _heal(self, source: str, target: str) -> None:
        for transport in list(self._transports.values()):
            transport.healed(source, target)

    # What the loop asks

    def create_server(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> SimulatedServer:
        """Listen on a port of the current process's host."""
        process = current_process()
        if port == 0:
            port = self._ephemeral_port()
        if (process.host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = SimulatedServer(self, process, protocol_factory, host, port)
        self.listeners[process.host, port] = server
        return server

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect the current process to a port of another host."""
        process = current_process()
        attempt = _Attempt(self, process, (host, port))
        try:
            transport, remote = await attempt.established
        except asyncio.CancelledError:
            attempt.abandon()
            raise
        protocol = protocol_factory()
        transport.set_protocol(protocol)
        assert remote.peer is transport
        started = self.loop.create_future()
        process.call_soon(_start, transport, started)
        try:
            await started
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def establish(self, process: Process, server: SimulatedServer) -> tuple[SimulatedTransport, SimulatedTransport]:
        """Make both ends of a connection; the server's end starts when its process runs."""
        self.connections += 1
        number = self.connections
        near = SimulatedTransport(self, process, asyncio.Protocol(), number)
        far = SimulatedTransport(self, server.process, asyncio.Protocol(), number)
        near.peer, far.peer = far, near
        near.way, far.way = self.condition(near.host, far.host), self.condition(far.host, near.host)
        local = (process.host, self._ephemeral_port())
        remote = (server.process.host, server.sockets[0].getsockname()[1])
        near.addresses, far.addresses = (local, remote), (remote, local)
        self._transports[number, near.host] = near
        self._transports[number, far.host] = far
        server.process.call_soon(_accept, server, far)
        return near, far

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _accept(server: SimulatedServer, transport: SimulatedTransport) -> None:
    if not server.is_serving():
        transport.close_socket()
        return
    transport.set_protocol(server.factory())
    transport.start()


def _start(transport: SimulatedTransport, started: asyncio.Future[None]) -> None:
    transport.start()
    if not started.done():
        started.set_result(None)


class _Attempt:
    """A connection that is being established."""

    def __init__(self, network: Network, process: Process, address: tuple[str, int]) -> None:
        self.established: asyncio.Future[tuple[SimulatedTransport, SimulatedTransport]] = network.loop.create_future()
        self._network = network
        self._process = process
        self._address = address
        self._retries_s = iter(SYN_RETRIES_S)
        self._retry: asyncio.TimerHandle | None = None
        self._abandoned = False
        self._ends: tuple[SimulatedTransport, SimulatedTransport] | None = None
        self._send_request()

    def abandon(self) -> None:
        """The application does not want it any more."""
        self._abandoned = True
        self._stop_retrying()
        if self._ends is not None:
            self._ends[0].close_socket()

    def _stop_retrying(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def _later(self, delay_s: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self._network.loop.call_later(delay_s, callback, *args, context=self._network.context)

    def _send_request(self) -> None:
        if self._abandoned or not self._process.alive:
            return
        source, target = self._process.host, self._address[0]
        if not self._network.is_cut(source, target):
            self._later(self._network.delay_s(self._network.condition(source, target)), self._request_arrived)
        retry_s = next(self._retries_s, None)
        if retry_s is None:
            self._settle(None, TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            self._retry = self._later(retry_s, self._send_request)

    def _request_arrived(self) -> None:
        source, target = self._process.host, self._address[0]
        if self.established.done():
            return  # one that was sent before was refused: nobody listens to the answer
        if self._abandoned or not self._process.alive or self._network.is_cut(target, source):
            return  # the answer would be lost: the request is sent again
        delay_s = self._network.delay_s(self._network.condition(target, source))
        server = self._network.listeners.get(self._address)
        if server is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            self._later(delay_s, self._settle, None, refused)
        elif self._ends is None:
            self._ends = self._network.establish(self._process, server)
            self._later(delay_s, self._settle, self._ends, None)

    def _settle(self, ends: tuple[SimulatedTransport, SimulatedTransport] | None, error: Exception | None) -> None:
        self._stop_retrying()
        if self._abandoned or self.established.done() or not self._process.alive:
            return
        if ends is not None:
            self.established.set_result(ends)
        else:
            assert error is not None
            self.established.set_exception(error)
            if self._ends is not None:  # an older request was refused, and one that was sent again was not
                self._ends[0].close_socket()
