"""ZooKeeper in memory: one tree, any number of clients, and every failure on command.

For tests and simulation. :class:`MemoryZooKeeperServer` has the tree; its clients obey the rules of
:mod:`waltz.common.zk.client` exactly as the real one does (one conformance suite runs on both).
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from waltz.common.zk.client import (
    ANY_VERSION,
    ConnectionLossError,
    Listener,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Stat,
    State,
    Watch,
)
from waltz.common.zk.tree import Tree, parent_of

_T = TypeVar("_T")


def _no_latency() -> float:
    return 0.0


class _Watches:
    """Watches of one kind: path to client to callables. A callable is there once, however often it was installed."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[MemoryZooKeeper, dict[Watch, None]]] = {}

    def add(self, path: str, client: "MemoryZooKeeper", watch: Watch) -> None:
        self._by_path.setdefault(path, {}).setdefault(client, {})[watch] = None

    def fire(self, path: str) -> None:
        for client, watches in self._by_path.pop(path, {}).items():
            client.call_watches(watches)

    def drop(self, client: "MemoryZooKeeper") -> list[Watch]:
        """Take all watches of one client away."""
        dropped: list[Watch] = []
        for path in list(self._by_path):
            clients = self._by_path[path]
            dropped.extend(clients.pop(client, {}))
            if not clients:
                del self._by_path[path]
        return dropped


class MemoryZooKeeperServer:
    """The tree and its sessions.

    :param latency_s: seconds from a call to its effect, and again from the effect to the answer; called for each
    """

    def __init__(self, latency_s: Callable[[], float] = _no_latency) -> None:
        self.latency_s = latency_s
        self._last_session_id = 0x100000000
        self._sessions: dict[int, MemoryZooKeeper] = {}
        self._data_watches = _Watches()
        self._child_watches = _Watches()
        self._tree = Tree(self._data_watches.fire, self._child_watches.fire)

    async def connect(self, *, operation_timeout_s: float = 10.0) -> "MemoryZooKeeper":
        """A new client with a new session."""
        return MemoryZooKeeper(self, operation_timeout_s)

    def disconnect(self, client: "MemoryZooKeeper") -> None:
        """Break the client's connection; it stays suspended until :meth:`reconnect`."""
        if client.state is State.CONNECTED:
            client.change_state(State.SUSPENDED)
            self.release_watches(client)

    def reconnect(self, client: "MemoryZooKeeper") -> None:
        """Let a disconnected client connect again: in its old session if that is still alive, else in a new one."""
        if client.closed or client.state is State.CONNECTED:
            return
        if client.session_id not in self._sessions:
            if client.state is not State.LOST:
                client.end_session()
            client.begin_session()
        client.change_state(State.CONNECTED)

    def expire(self, client: "MemoryZooKeeper") -> None:
        """End the client's session and delete its ephemeral nodes.

        A connected client is told at once and gets a new session; a disconnected one finds out by its own clock.
        """
        was_connected = client.state is State.CONNECTED
        self.disconnect(client)
        if client.session_id is not None:
            self.end_session(client.session_id)
            client.session_is_over()
        if was_connected:
            self.reconnect(client)

    def dump(self) -> dict[str, bytes | None]:
        """Every path with its data."""
        return self._tree.data()

    def begin_session(self, client: "MemoryZooKeeper") -> int:
        """For :class:`MemoryZooKeeper`: a new session id."""
        self._last_session_id += 1
        self._sessions[self._last_session_id] = client
        return self._last_session_id

    def end_session(self, session_id: int) -> None:
        """For :class:`MemoryZooKeeper`: forget a session and what it owns."""
        self._sessions.pop(session_id, None)
        for path in self._tree.owned_by(session_id):
            self.delete(path, ANY_VERSION)

    def release_watches(self, client: "MemoryZooKeeper") -> None:
        """For :class:`MemoryZooKeeper`: a lost connection fires every watch of the client."""
        dropped = self._data_watches.drop(client) + self._child_watches.drop(client)
        client.call_watches(dict.fromkeys(dropped))

    def get(self, path: str, client: "MemoryZooKeeper", watch: Watch | None) -> tuple[bytes | None, Stat]:
        """For :class:`MemoryZooKeeper`: what ``get`` does once it has arrived."""
        found = self._tree.get(path)
        if watch is not None:
            self._data_watches.add(path, client, watch)
        return found

    def exists(self, path: str, client: "MemoryZooKeeper", watch: Watch | None) -> Stat | None:
        """For :class:`MemoryZooKeeper`."""
        if watch is not None:
            self._data_watches.add(path, client, watch)
        return self._tree.exists(path)

    def children(self, path: str, client: "MemoryZooKeeper", watch: Watch | None) -> list[str]:
        """For :class:`MemoryZooKeeper`."""
        names = self._tree.children(path)
        if watch is not None:
            self._child_watches.add(path, client, watch)
        return names

    def sync(self, path: str) -> None:
        """For :class:`MemoryZooKeeper`: one tree serves all clients, so nothing is behind."""
        self._tree.get(path)

    def create(self, path: str, data: bytes | None, owner: int, sequential: bool) -> str:
        """For :class:`MemoryZooKeeper`; ``owner`` 0 makes a persistent node."""
        return self._tree.create(path, data, owner, sequential=sequential)

    def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """For :class:`MemoryZooKeeper`."""
        return self._tree.set(path, data, version)

    def delete(self, path: str, version: int) -> None:
        """For :class:`MemoryZooKeeper`."""
        self._tree.delete(path, version)


class MemoryZooKeeper:
    """One client of a :class:`MemoryZooKeeperServer`; implements :class:`waltz.common.zk.client.ZooKeeper`."""

    def __init__(self, server: MemoryZooKeeperServer, operation_timeout_s: float) -> None:
        self.closed = False
        self._server = server
        self._operation_timeout_s = operation_timeout_s
        self._loop = asyncio.get_running_loop()
        self._state = State.CONNECTED
        self._connected = asyncio.Event()
        self._connected.set()
        self._session_id: int | None = server.begin_session(self)
        self._connection_number = 0
        self._listeners: list[Listener] = []
        self._lost_answers: defaultdict[str, int] = defaultdict(int)
        self._lost_requests: defaultdict[str, int] = defaultdict(int)

    @property
    def state(self) -> State:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return self._state

    @property
    def session_id(self) -> int | None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return self._session_id

    def lose_answer(self, operation: str, count: int = 1) -> None:
        """Have the next calls of ``operation`` (``"create"``, ``"set"``...) take effect and lose their answer."""
        self._lost_answers[operation] += count

    def lose_request(self, operation: str, count: int = 1) -> None:
        """Have the next calls of ``operation`` lost before they take effect."""
        self._lost_requests[operation] += count

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._read("get", path, lambda: self._server.get(path, self, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._read("exists", path, lambda: self._server.exists(path, self, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._read("children", path, lambda: self._server.children(path, self, watch))

    async def sync(self, path: str) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        await self._read("sync", path, lambda: self._server.sync(path))

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""

        def apply() -> str:
            return self._server.create(path, data, (self._session_id or 0) if ephemeral else 0, sequential)

        try:
            return await self._write("create", path, apply)
        except NoNodeError:
            if not make_path:
                raise
        with contextlib.suppress(NodeExistsError):
            await self.create(parent_of(path), None, make_path=True)
        return await self._write("create", path, apply)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._write("set", path, lambda: self._server.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        return await self._write("delete", path, lambda: self._server.delete(path, version))

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        self._listeners.append(listener)

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return remove

    async def close(self) -> None:
        """See :class:`~waltz.common.zk.client.ZooKeeper`."""
        if self.closed:
            return
        self.closed = True
        self._listeners.clear()
        self._server.release_watches(self)  # they are not called any more: closed
        if self._session_id is not None:
            self._server.end_session(self._session_id)
        self.end_session()
        self._connected.set()  # whoever waits learns that there is nothing to wait for

    def begin_session(self) -> None:
        """For the server: take a new session."""
        self._session_id = self._server.begin_session(self)

    def end_session(self) -> None:
        """For the server: the session is known to have ended."""
        self._session_id = None
        self.change_state(State.LOST)

    def session_is_over(self) -> None:
        """For the server: the client finds out, by its own clock, that its session must have ended."""
        if self._state is not State.LOST:
            self.end_session()

    def change_state(self, state: State) -> None:
        """For the server: change the state and tell the listeners."""
        self._state = state
        if state is State.CONNECTED:
            self._connected.set()
        else:
            self._connection_number += 1
            self._connected.clear()
        for listener in tuple(self._listeners):
            listener(state)

    def call_watches(self, watches: dict[Watch, None]) -> None:
        """For the server: call the watches soon, unless this client is closed by then."""
        self._loop.call_soon(self._fire, tuple(watches))

    def _fire(self, watches: tuple[Watch, ...]) -> None:
        for watch in watches:
            if not self.closed:
                watch()

    async def _read(self, operation: str, path: str, apply: Callable[[], _T]) -> _T:
        async with self._deadline(operation, path):
            while True:
                try:
                    return await self._attempt(operation, path, apply)
                except ConnectionLossError:
                    await asyncio.sleep(0)

    async def _write(self, operation: str, path: str, apply: Callable[[], _T]) -> _T:
        async with self._deadline(operation, path):
            return await self._attempt(operation, path, apply)

    @contextlib.asynccontextmanager
    async def _deadline(self, operation: str, path: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                yield
        except TimeoutError:
            raise ConnectionLossError(f"{operation} {path}: no answer within {self._operation_timeout_s:g} s") from None

    async def _attempt(self, operation: str, path: str, apply: Callable[[], _T]) -> _T:
        await self._connected.wait()
        if self.closed:
            raise SessionExpiredError(f"{operation} {path}: the client is closed")
        connection_number = self._connection_number
        await asyncio.sleep(self._server.latency_s())
        self._check_connection(connection_number, operation, path, self._lost_requests)
        result = apply()
        await asyncio.sleep(self._server.latency_s())
        self._check_connection(connection_number, operation, path, self._lost_answers)
        return result

    def _check_connection(self, number: int, operation: str, path: str, losses: defaultdict[str, int]) -> None:
        if losses[operation]:
            losses[operation] -= 1
            self._server.disconnect(self)
            self._server.reconnect(self)
        if self._connection_number != number:
            raise ConnectionLossError(f"{operation} {path}: the connection broke before the answer")
