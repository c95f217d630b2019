"""What a cluster keeps in ZooKeeper, in memory: properties of partitions and cursors, for tests of applications."""

import asyncio
import threading
from typing import NamedTuple
from uuid import uuid4

from waltz.common.zk.client import ANY_VERSION, BadVersionError, NodeExistsError, Nodes, NoNodeError, Stat, Watch


class _Node(NamedTuple):
    data: bytes | None
    version: int
    czxid: int
    mzxid: int


class MockNodes(Nodes):
    """Nodes without a tree: what is above a node need not be there. May be used from any thread."""

    def __init__(self) -> None:
        self.key = str(uuid4())
        """Of the cluster whose nodes these are."""
        self._nodes: dict[str, _Node] = {}
        self._watches: dict[str, dict[Watch, asyncio.AbstractEventLoop]] = {}
        self._zxid = 0
        self._mutex = threading.Lock()

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        with self._mutex:
            node = self._nodes.get(path)
            if node is None:
                raise NoNodeError(path)
            self._watch(path, watch)
        return node.data, _stat(node)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._mutex:
            self._watch(path, watch)
            node = self._nodes.get(path)
        return None if node is None else _stat(node)

    async def sync(self, path: str) -> None:
        """Nothing is ever behind."""

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        with self._mutex:
            if path in self._nodes:
                raise NodeExistsError(path)
            self._put(path, data, 0, self._zxid + 1)
        return path

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        with self._mutex:
            node = self._nodes.get(path)
            if node is None:
                raise NoNodeError(path)
            if version not in (ANY_VERSION, node.version):
                raise BadVersionError(path)
            return _stat(self._put(path, data, node.version + 1, node.czxid))

    def _put(self, path: str, data: bytes | None, version: int, czxid: int) -> _Node:
        self._zxid += 1
        node = self._nodes[path] = _Node(data, version, czxid, self._zxid)
        for watch, loop in self._watches.pop(path, {}).items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(watch)
        return node

    def _watch(self, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.setdefault(path, {})[watch] = asyncio.get_running_loop()


def _stat(node: _Node) -> Stat:
    return Stat(node.version, 0, node.czxid, node.mzxid, 0, len(node.data or b""), 0)
