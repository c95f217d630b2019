"""A cluster's ZooKeeper nodes in memory, for tests of applications: properties, cursors, shares of consumers."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from waltz.common.zk.client import (
    ANY_VERSION,
    Listener,
    Nodes,
    Stat,
    State,
    Watch,
    ZooKeeper,
)
from waltz.common.zk.tree import Tree, parent_of

_Watches = dict[str, dict[Watch, asyncio.AbstractEventLoop]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MockNodes(Nodes):
    """The nodes. Missing parents of a new node are created, too. May be used from any thread."""

    def __init__(self) -> None:
        self.key = str(uuid4())
        """Of the cluster whose nodes these are."""
        self._watches: _Watches = {}
        self._child_watches: _Watches = {}
        self._tree = Tree(partial(_fire, self._watches), partial(_fire, self._child_watches), _now_ms)
        self._sessions = 0
        self._mutex = threading.Lock()

    def session(self) -> "MockSession":
        """Begin a session for one client."""
        with self._mutex:
            self._sessions += 1
            return MockSession(self, self._sessions)

    def end_session(self, session_id: int) -> None:
        """End a session, with its ephemeral nodes."""
        with self._mutex:
            for path in self._tree.owned_by(session_id):
                self._tree.delete(path)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        with self._mutex:
            found = self._tree.get(path)
            _watch(self._watches, path, watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._mutex:
            _watch(self._watches, path, watch)
            return self._tree.exists(path)

    async def sync(self, path: str) -> None:
        """Nothing: no member ever lags."""

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        return self.create_for(0, path, data)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        with self._mutex:
            return self._tree.set(path, data, version)

    def children(self, path: str, watch: Watch | None) -> list[str]:
        """Names of the children; the watch fires when a child comes or goes."""
        with self._mutex:
            names = self._tree.children(path)
            _watch(self._child_watches, path, watch)
        return names

    def create_for(self, owner: int, path: str, data: bytes | None) -> str:
        """Create a node, ephemeral for a session or persistent (0)."""
        with self._mutex:
            above = parent_of(path)
            missing = []
            while self._tree.exists(above) is None:
                missing.append(above)
                above = parent_of(above)
            for each in reversed(missing):
                self._tree.create(each, None)
            return self._tree.create(path, data, owner)

    def delete(self, path: str, version: int) -> None:
        """Remove a node."""
        with self._mutex:
            self._tree.delete(path, version)


class MockSession(ZooKeeper):
    """The nodes as one client sees them; the connection is never lost."""

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
        """Create a node with its parents. Sequential nodes are not needed here."""
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
