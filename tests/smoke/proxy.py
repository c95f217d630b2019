"""A relay before a node's port, through which all others reach it; it can be slow, be cut, and lose connections."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Coroutine

from tests.smoke.line import Line, Shape

CHUNK_SIZE_BYTES = 16 << 10
SOCKET_BUFFER_BYTES = 32 << 10
"""Of the relay's own sockets, in the kernel: a sender must feel the line, not the relay's memory."""
POLL_INTERVAL_S = 0.05
FREE = Shape()
"""A line that holds nothing up."""


class Direction:
    """The bytes from ``source`` to ``sink``, each of which comes out when the line lets it."""

    def __init__(self, source: socket.socket, sink: socket.socket, line: Line, *whole: asyncio.Event) -> None:
        """Bytes come out while all of ``whole`` are set."""
        self.passed_bytes = 0
        """What has come out."""
        self.longest_queue_bytes = 0
        """The most that was held at a time."""
        self._source = source
        self._sink = sink
        self._line = line
        self._whole = whole
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Return when the end of the stream has been passed on. Raises ``OSError`` when a side is gone."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take())
            group.create_task(self._give())

    @property
    def held_bytes(self) -> int:
        """What has been taken and has not come out."""
        return self._held_bytes

    def lose(self) -> None:
        """From now on nothing comes out."""
        self._whole = (asyncio.Event(),)

    async def _take(self) -> None:
        data = b"first"
        while data:
            while self._held_bytes >= self._line.shape.in_flight_bytes:
                await self._change()
            data = await self._next()
            self._held.append((self._line.put(len(data), self._loop.time()), data))
            self._held_bytes += len(data)
            self.longest_queue_bytes = max(self.longest_queue_bytes, self._held_bytes)
            self._changed.set()

    async def _next(self) -> bytes:
        """What has come and could not be passed on at once; empty at the end of the stream."""
        found: asyncio.Future[bytes] = self._loop.create_future()
        self._loop.add_reader(self._source, self._pass_on, found)
        try:
            return await found
        finally:
            self._loop.remove_reader(self._source)

    def _pass_on(self, found: asyncio.Future[bytes]) -> None:
        """Pass on what has come if nothing holds it up: without a task's turn, of which a relay has very many."""
        if found.done():
            return
        try:
            data = self._source.recv(CHUNK_SIZE_BYTES)
            if data and not self._held and self._line.shape == FREE and all(each.is_set() for each in self._whole):
                with contextlib.suppress(BlockingIOError):
                    sent = self._sink.send(data)
                    self.passed_bytes += sent
                    data = data[sent:]
                if not data:
                    return
        except BlockingIOError:
            return
        except OSError as error:
            found.set_exception(error)
            return
        found.set_result(data)

    async def _give(self) -> None:
        while True:
            while not self._held:
                await self._change()
            due_s, data = self._held[0]
            if (early_s := due_s - self._loop.time()) > 0:
                await asyncio.sleep(early_s)
            while not all(each.is_set() for each in self._whole):
                for each in self._whole:
                    await each.wait()
            if not data:
                self._sink.shutdown(socket.SHUT_WR)
                return
            await self._loop.sock_sendall(self._sink, data)
            self._held.popleft()
            self._held_bytes -= len(data)
            self.passed_bytes += len(data)
            self._changed.set()

    async def _change(self) -> None:
        """Wait until bytes were taken or given. Only one of the two tasks can have to wait at a time."""
        self._changed.clear()
        await self._changed.wait()


class Connection:
    """One connection through a proxy."""

    def __init__(self, near: socket.socket, far: socket.socket, proxy: "Proxy", whole: asyncio.Event) -> None:
        """``whole`` is set while bytes come through between the two processes."""
        self.to_node = Direction(near, far, proxy.to_node, proxy.whole, whole)
        self.from_node = Direction(far, near, proxy.from_node, proxy.whole, whole)
        self.dead = False
        """Nothing comes through in either direction, for good; to both sides it seems to be open."""
        self._sockets = (near, far)
        self._task: asyncio.Task[None] | None = None

    @property
    def passed_bytes(self) -> int:
        """In both directions together."""
        return self.to_node.passed_bytes + self.from_node.passed_bytes

    async def run(self) -> None:
        """Return when both directions have ended, one of the sides is gone, or nothing comes through any more."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.to_node.run())
                group.create_task(self.from_node.run())
        except* OSError:
            pass  # whoever is left is disconnected
        finally:
            if not self.dead:
                self.close()

    def reset(self) -> None:
        """End it, for both sides."""
        if self._task is not None:
            self._task.cancel()

    def blackhole(self) -> None:
        """Let nothing through any more, for good, without a word to either side."""
        self.dead = True
        self.to_node.lose()  # at once; the tasks end in their turn
        self.from_node.lose()
        self.reset()

    def close(self) -> None:
        """Free the sockets."""
        for each in self._sockets:
            each.close()


class Proxy:
    """Listens on ``host``:``port`` for a node that listens on ``behind``:``behind_port`` (by default the same port)."""

    def __init__(self, host: str, port: int, behind: str, behind_port: int | None = None) -> None:
        self.to_node = Line()
        self.from_node = Line()
        self.whole = asyncio.Event()
        self.whole.set()
        self.whole_from: Callable[[int], asyncio.Event] = lambda port: self.whole
        """By the port of who connects, what is set while bytes come through between this process and the node."""
        self.connections: list[Connection] = []
        """Those that are open, those that are dead included, in the order in which they were accepted."""
        self.node = (behind, port if behind_port is None else behind_port)
        """Where new connections are led to."""
        self._listening = _socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind((host, port))  # at once, so that nobody else takes the port
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen as soon as the node does, so that nobody takes the proxy for the node."""
        while True:
            try:
                _, writer = await asyncio.open_connection(*self.node)
            except OSError:
                await asyncio.sleep(POLL_INTERVAL_S)
                continue
            writer.close()
            break
        self._listening.listen(100)
        self._own(self._accept())

    @property
    def port(self) -> int:
        """Where it listens, when it was made with port 0."""
        port: int = self._listening.getsockname()[1]
        return port

    def shape(self, shape: Shape) -> None:
        """From now on the line to the node is such a one, for all connections together."""
        self.to_node.shape = self.from_node.shape = shape

    def cut(self) -> None:
        """Let nothing through."""
        self.whole.clear()

    def mend(self) -> None:
        """Let everything through, what waited included."""
        self.whole.set()

    def reset(self) -> None:
        """End all connections."""
        for connection in list(self.connections):
            if not connection.dead:
                connection.reset()

    def blackhole(self) -> None:
        """Let nothing through the connections that there are, for good; new ones work."""
        for connection in self.connections:
            connection.blackhole()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self._listening.close()

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listening)
            near.setblocking(False)
            self._own(self._relay(near))

    async def _relay(self, near: socket.socket) -> None:
        far = _socket()
        try:
            whole = self.whole_from(near.getpeername()[1])
            await self.whole.wait()
            await whole.wait()
            await asyncio.get_running_loop().sock_connect(far, self.node)
        except BaseException as error:
            near.close()
            far.close()
            if isinstance(error, OSError):
                return  # the node is down: whoever connected is disconnected
            raise
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(near, far, self, whole)
        self.connections.append(connection)
        with contextlib.suppress(asyncio.CancelledError):
            await connection.run()
        if not connection.dead and connection in self.connections:
            self.connections.remove(connection)


def _socket() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    return made
