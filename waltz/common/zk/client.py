"""The narrow asyncio interface to ZooKeeper that the whole package uses.

:mod:`waltz.common.zk.kazoo_client` implements it for a real ensemble; the tests have a tree in memory. Both obey the
same rules:

* Everything runs on one asyncio loop; watches and listeners are called on it and must not block.
* A watch fires at most once: at the first matching change, or when the connection is lost. After that it has to be
  installed again. Installing an equal callable again on the same path does not make it fire twice.
* Reads are repeated inside their deadline when the connection breaks. Writes are never repeated: after
  :class:`ConnectionLossError` a write may have happened, may not have, or may still happen.
* When a session expires a new one is made automatically. The listener sees ``LOST``, then ``CONNECTED``; ephemeral
  nodes of the old session are gone, and all watches have fired.
* Null data (``None``) and empty data (``b""``) are different values, as they are for the original's nodes.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol

from waltz.common.errors import WaltzError

Watch = Callable[[], None]
"""Called on the loop, at most once per installation, when the node or the children may have changed."""

ANY_VERSION = -1
"""The version that matches every data version in :meth:`ZooKeeper.set` and :meth:`ZooKeeper.delete`."""


class ZooKeeperError(WaltzError):
    """Root of all errors of ZooKeeper operations."""


class NoNodeError(ZooKeeperError):
    """The node (or, for a creation, its parent) does not exist."""


class NodeExistsError(ZooKeeperError):
    """A node of that path exists already."""


class NotEmptyError(ZooKeeperError):
    """The node to be deleted has children."""


class BadVersionError(ZooKeeperError):
    """Compare-and-set failed: the data version is not the expected one; nothing was written."""


class ConnectionLossError(ZooKeeperError):
    """No answer in time, or the connection broke before it; whether a write happened is unknown."""


class SessionExpiredError(ZooKeeperError):
    """The session of the operation has ended; nothing was written by it."""


class NotPermittedError(ZooKeeperError):
    """The access control list of the node refuses the operation to this process, or the server takes no users; nothing
    was written.

    Examples:
        ```python
        try:
            client = await waltz.connect(zookeeper_connect_string="localhost:2181", cluster_root="/protected")
        except waltz.NotPermittedError as error:
            print(error)
        ```
    """


class ZooKeeperUnreachableError(ZooKeeperError):
    """No server of the connect string answered in time, or the string itself is wrong.

    Examples:
        ```python
        try:
            client = await waltz.connect(
                zookeeper_connect_string="localhost:1", cluster_root="/waltz", zookeeper_connect_timeout_ms=100
            )
        except waltz.ZooKeeperUnreachableError as error:
            print(error)
        ```
    """


class State(enum.Enum):
    """State of the connection."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; the session may or may not be alive."""
    LOST = "lost"
    """The session has ended (expired or closed), or the ensemble may have ended it, after the session time-out without
    an answer. Ephemeral nodes are gone or going; if the session turns out to be alive, it is connected again."""


Listener = Callable[[State], None]
"""Called on the loop at every change of state, in order."""


class Stat(NamedTuple):
    """Metadata of a node."""

    version: int
    """Number of data changes; the version for compare-and-set."""
    cversion: int
    """Number of creations and deletions of children."""
    czxid: int
    """Transaction that created the node; differs between a node and its successor of the same path."""
    mzxid: int
    """Transaction that changed its data last."""
    owner: int
    """Session id of an ephemeral node's owner, 0 for a persistent node."""
    data_length: int
    children_count: int
    mtime_ms: int = 0
    """Time of the last change of its data, by the clock of the ensemble's leader; 0 if it is unknown."""


class Nodes(Protocol):
    """Data in nodes, by compare-and-set: the part of :class:`ZooKeeper` for users that only store data."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """Data and stat. The watch fires on a data change or deletion. :class:`NoNodeError` (no watch is left)."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Stat or ``None``. The watch fires on creation, data change or deletion, and is set in either case."""
        ...

    async def sync(self, path: str) -> None:
        """Make later reads of this session at least as new as every write that any client was told before.

        A member of the ensemble that lags may answer a plain read. ``path`` is a readable node; the promise holds for
        the whole tree. :class:`NoNodeError`.
        """
        ...

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        """Create a node and return its path. ``make_path`` creates missing ancestors with null data.

        :class:`NodeExistsError`; :class:`NoNodeError` when the parent is missing.
        """
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data if ``version`` matches. :class:`NoNodeError`, :class:`BadVersionError`."""
        ...


class ZooKeeper(Nodes, Protocol):
    """One client of a ZooKeeper ensemble.

    Paths are absolute. Every call has a deadline (:class:`ConnectionLossError`); after :meth:`close` every call raises
    :class:`SessionExpiredError`.
    """

    @property
    def state(self) -> State:
        """The last state reported to the listeners."""
        ...

    @property
    def session_id(self) -> int | None:
        """Id of the present session, also while suspended; ``None`` when lost."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names (not paths), unordered. The watch fires when a child comes or goes, or the node itself is deleted.

        :class:`NoNodeError` (no watch is left).
        """
        ...

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_path: bool = False,
    ) -> str:
        """Create a node and return its path (with ten digits appended when sequential).

        It is open to all, unless the tree is protected: then it has the list of
        :mod:`waltz.common.zk.protection`.
        ``make_path`` creates missing ancestors with null data. :class:`NodeExistsError`; :class:`NoNodeError` when the
        parent is missing.
        """
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node if ``version`` matches.

        :class:`NoNodeError`, :class:`BadVersionError`, :class:`NotEmptyError`.
        """
        ...

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for every later change of state; returns a function that removes it."""
        ...

    async def close(self) -> None:
        """End the session (its ephemeral nodes go at once). Nothing is called afterwards. May be called again."""
        ...
