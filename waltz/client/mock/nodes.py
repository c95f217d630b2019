"""What a cluster keeps in ZooKeeper, in memory: properties, cursors, shares of consumers, for tests of applications."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from waltz.common.zk.client import (
    ANY_VERSION,
    BadVersionError,
    Listener,
    NodeExistsError,
    Nodes,
    NoNodeError,
    Stat,
    State,
    Watch,
    ZooKeeper,
)


class _Node(NamedTuple):
    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    owner: int
    mtime_ms: int


_Watches = dict[str, dict[Watch, asyncio.AbstractEventLoop]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MockNodes(Nodes):
    """Nodes without a tree: what is above a node need not be there. May be used from any thread."""

    def __init__(self) -> None:
        self.key = str(uuid4())
        """Of the cluster whose nodes these are."""
        self._nodes: dict[str, _Node] = {}
        self._watches: _Watches = {}
        self._child_watches: _Watches = {}
        self._zxid = 0
        self._sessions = 0
        self._mutex = threading.Lock()

    def session(self) -> "MockSession":
        """For one client."""
        with self._mutex:
            self._sessions += 1
            return MockSession(self, self._sessions)

    def end_session(self, session_id: int) -> None:
        """Its ephemeral nodes go."""
        with self._mutex:
            for path in [path for path, node in self._nodes.items() if node.owner == session_id]:
                self._remove(path)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        with self._mutex:
            node = self._node(path)
            _watch(self._watches, path, watch)
        return node.data, _stat(node)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._mutex:
            _watch(self._watches, path, watch)
            node = self._nodes.get(path)
        return None if node is None else _stat(node)

    async def sync(self, path: str) -> None:
        """Nothing is ever behind."""

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        return self.create_for(0, path, data)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        with self._mutex:
            node = self._node(path)
            if version not in (ANY_VERSION, node.version):
                raise BadVersionError(path)
            return _stat(
                self._put(path, _Node(data, node.version + 1, node.czxid, self._zxid + 1, node.owner, _now_ms()))
            )

    def children(self, path: str, watch: Watch | None) -> list[str]:
        """Names; the watch fires when one comes or goes."""
        with self._mutex:
            self._node(path)
            _watch(self._child_watches, path, watch)
            return [name for above, _, name in (each.rpartition("/") for each in self._nodes) if above == path]

    def create_for(self, owner: int, path: str, data: bytes | None) -> str:
        """A node that goes with a session, or stays (0)."""
        with self._mutex:
            if path in self._nodes:
                raise NodeExistsError(path)
            self._put(path, _Node(data, 0, self._zxid + 1, self._zxid + 1, owner, _now_ms()))
            _fire(self._child_watches, path.rpartition("/")[0])
        return path

    def delete(self, path: str, version: int) -> None:
        """Remove a node."""
        with self._mutex:
            node = self._node(path)
            if version not in (ANY_VERSION, node.version):
                raise BadVersionError(path)
            self._remove(path)

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _put(self, path: str, node: _Node) -> _Node:
        self._zxid = node.mzxid
        self._nodes[path] = node
        _fire(self._watches, path)
        return node

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._zxid += 1
        _fire(self._watches, path)
        _fire(self._child_watches, path.rpartition("/")[0])


class MockSession(ZooKeeper):
    """What a client has of the nodes; it never loses its connection."""

    def __init__(self, nodes: MockNodes, session_id: int) -> None:
        self._nodes = nodes
        self._session_id = session_id
        self._closed = False

    @property
    def state(self) -> State:
        return State.LOST if self._closed else State.CONNECTED

    @property
    def session_id(self) -> int | None:
        return None if self._closed else self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        return await self._nodes.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._nodes.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._nodes.children(path, watch)

    async def sync(self, path: str) -> None:
        await self._nodes.sync(path)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        """As if there were all nodes above it. Nobody asks for sequential ones."""
        assert not sequential
        if ephemeral:
            return self._nodes.create_for(self._session_id, path, data)
        return await self._nodes.create(path, data, make_path=make_path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return await self._nodes.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._nodes.delete(path, version)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        return lambda: None

    async def close(self) -> None:
        self._closed = True
        self._nodes.end_session(self._session_id)


def _watch(watches: _Watches, path: str, watch: Watch | None) -> None:
    if watch is not None:
        watches.setdefault(path, {})[watch] = asyncio.get_running_loop()


def _fire(watches: _Watches, path: str) -> None:
    for watch, loop in watches.pop(path, {}).items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(watch)


def _stat(node: _Node) -> Stat:
    return Stat(node.version, 0, node.czxid, node.mzxid, node.owner, len(node.data or b""), 0, node.mtime_ms)
