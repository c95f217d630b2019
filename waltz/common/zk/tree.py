"""A tree of nodes in memory, for stand-ins of an ensemble, which add sessions and watches."""

from collections.abc import Callable
from dataclasses import dataclass, field

from waltz.common.zk.client import (
    ANY_VERSION,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    ZooKeeperError,
)


@dataclass(slots=True)
class _Node:
    data: bytes | None
    czxid: int
    mzxid: int
    owner: int
    mtime_ms: int
    version: int = 0
    created_children: int = 0
    deleted_children: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            version=self.version,
            cversion=self.created_children + self.deleted_children,
            czxid=self.czxid,
            mzxid=self.mzxid,
            owner=self.owner,
            data_length=len(self.data or b""),
            children_count=len(self.children),
            mtime_ms=self.mtime_ms,
        )


class Tree:
    """A tree whose calls raise like those of :class:`~waltz.common.zk.client.ZooKeeper`."""

    def __init__(
        self,
        changed: Callable[[str], None],
        children_changed: Callable[[str], None],
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """``changed`` is called when watches of a node have to fire, ``children_changed`` for those of its children."""
        self._changed = changed
        self._children_changed = children_changed
        self._now_ms = now_ms
        self._nodes: dict[str, _Node] = {"/": _Node(None, 0, 0, 0, 0)}
        self._zxid = 0

    def data(self) -> dict[str, bytes | None]:
        """Every path with its data."""
        return {path: node.data for path, node in sorted(self._nodes.items()) if path != "/"}

    def owned_by(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session."""
        return [path for path, node in self._nodes.items() if node.owner == session_id]

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """Data and state of a node."""
        node = self._node(path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        """The state of a node, if there is one."""
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        """Names of the nodes below a node."""
        return list(self._node(path).children)

    def create(self, path: str, data: bytes | None, owner: int = 0, *, sequential: bool = False) -> str:
        """Add a node; ``owner`` is the session of an ephemeral one. Returns its path."""
        parent_path = parent_of(path)
        parent = self._node(parent_path)
        if parent.owner:
            raise ZooKeeperError(f"{parent_path} is ephemeral: it cannot have children")
        if sequential:
            path = f"{path}{parent.created_children:010d}"
        if path in self._nodes:
            raise NodeExistsError(f"{path} exists already")
        self._zxid += 1
        self._nodes[path] = _Node(data, self._zxid, self._zxid, owner, self._now_ms())
        parent.created_children += 1
        parent.children.add(path.rpartition("/")[2])
        self._changed(path)
        self._children_changed(parent_path)
        return path

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data of a node."""
        node = self._node(path, version)
        self._zxid += 1
        node.data, node.mzxid, node.mtime_ms = data, self._zxid, self._now_ms()
        node.version += 1
        self._changed(path)
        return node.stat()

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node."""
        if self._node(path, version).children:
            raise NotEmptyError(f"{path} has children")
        self._zxid += 1
        del self._nodes[path]
        parent_path = parent_of(path)
        parent = self._nodes[parent_path]
        parent.deleted_children += 1
        parent.children.discard(path.rpartition("/")[2])
        self._changed(path)
        self._children_changed(path)
        self._children_changed(parent_path)

    def _node(self, path: str, version: int = ANY_VERSION) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(f"{path} does not exist")
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")
        return node


def parent_of(path: str) -> str:
    """The path of the node above."""
    return path.rpartition("/")[0] or "/"
