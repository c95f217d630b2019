"""The nodes of the servers in ZooKeeper. Each is read again only after its watch has fired."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from waltz.common.cluster.decisions import ServerNode
from waltz.common.errors import ProtocolError
from waltz.common.zk.client import NoNodeError, Watch, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import ServerDescriptor

logger = logging.getLogger(__name__)


class ServerNodes:
    """Reads the children of ``serverDescriptors`` for one process.

    Every process of a cluster needs all server nodes whenever a server joins or leaves. Without this memory, the number
    of reads for each such change would be the number of processes times the number of servers.
    """

    def __init__(
        self, zookeeper: ZooKeeper, paths: ClusterPaths, cluster_name: str, changed: Callable[[], None]
    ) -> None:
        """``changed`` is called when a node may have changed since it was read."""
        self._zookeeper = zookeeper
        self._paths = paths
        self._cluster_name = cluster_name
        self._changed = changed
        self._known: dict[str, ServerNode] = {}
        """The nodes with an active watch, by name."""
        self._names: set[str] = set()
        self._reported: set[tuple[str, int]] = set()

    async def read(self, names: set[str]) -> list[ServerNode]:
        """The nodes of these names, without missing ones. Raises ``ZooKeeperError``."""
        for name in self._known.keys() - names:
            del self._known[name]
        self._names = names
        known = dict(self._known)
        return [*known.values(), *await self._read_all(names - known.keys())]

    async def read_again(self) -> list[ServerNode]:
        """The nodes of the last call of :meth:`read`, read again, without missing nodes.

        Nothing is taken from memory, because the event of a watch may still be on the way. Raises ``ZooKeeperError``.
        """
        return await self._read_all(self._names)

    async def _read_all(self, names: Iterable[str]) -> list[ServerNode]:
        nodes: list[ServerNode] = []
        for result in await asyncio.gather(*map(self._read, sorted(names)), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                nodes.append(result)
        return nodes

    async def _read(self, name: str) -> ServerNode | None:
        watching = name in self._known

        def changed() -> None:
            nonlocal watching
            watching = False
            self._known.pop(name, None)
            self._changed()

        if watching:
            node = await self._get(name, None)
            watching = name in self._known
        else:
            watching = True
            node = await self._get(name, changed)
        if watching and node is not None:
            self._known[name] = node
        return node

    async def _get(self, name: str, watch: Watch | None) -> ServerNode | None:
        path = self._paths.server_descriptor(name)
        try:
            data, stat = await self._zookeeper.get(path, watch)
        except NoNodeError:
            return None  # the event of the deletion is on the way
        try:
            return ServerNode(name, stat.owner, ServerDescriptor.decode(data, path))
        except ProtocolError as error:
            if (name, stat.mzxid) not in self._reported:
                self._reported.add((name, stat.mzxid))
                logger.warning("Cluster %s: a node is ignored; delete it: %s", self._cluster_name, error)
            return ServerNode(name, stat.owner, None)
