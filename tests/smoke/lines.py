"""A cluster whose nodes are reached through proxies: lines between them can be slow, cut, or lose connections.

Nodes listen on 127.0.0.2, and everybody reaches them through proxies on 127.0.0.1. ZooKeeper has one proxy for the
servers and one for the clients.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.smoke.faults import ZOOKEEPER
from tests.smoke.proxy import Proxy
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node, Overrides
from waltz.local.ports import HOST

BEHIND = "127.0.0.2"
"""Where nodes listen; on the ordinary loopback address there are the proxies."""


class Lines:
    """The cluster and the proxies; made by :meth:`running`, or by itself for a cluster that is run elsewhere."""

    def __init__(
        self,
        directory: Path,
        *,
        storages: int = 3,
        servers: int = 2,
        partitions: int = 1,
        plaintext: bool | None = None,
        server_overrides: Overrides | None = None,
        kind: type[LocalCluster] = LocalCluster,
        storages_too: bool = False,
    ) -> None:
        """With ``storages_too`` storages, which need ZooKeeper at their start, find it through the servers' proxy."""
        self.zookeeper_of_servers = Proxy(HOST, 0, HOST)
        self.zookeeper_of_clients = Proxy(HOST, 0, HOST)
        self.zookeeper_for_clients = f"{HOST}:{self.zookeeper_of_clients.port}"
        """Where clients whose line to ZooKeeper matters are to look for it."""
        zookeeper = f"{HOST}:{self.zookeeper_of_servers.port}"
        self.cluster = kind(
            directory,
            storages=storages,
            servers=servers,
            partitions=partitions,
            plaintext=plaintext,
            server_overrides={
                "server.bindAddress": BEHIND,
                "zookeeper.connectString": zookeeper,
                **(server_overrides or {}),
            },
            storage_overrides={
                "storage.bindAddress": BEHIND,
                **({"zookeeper.connectString": zookeeper} if storages_too else {}),
            },
        )
        layout = self.cluster.layout
        self._proxies = {
            (node.name, port): Proxy(HOST, port, BEHIND)
            for node in (*layout.storages, *layout.servers)
            for port in (node.port, node.admin_port)
            if port
        }
        for proxy in (self.zookeeper_of_servers, self.zookeeper_of_clients):
            proxy.node = (HOST, layout.zookeeper_port)
        self._opening: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        directory: Path,
        *,
        servers: int = 2,
        partitions: int = 1,
        server_overrides: Overrides | None = None,
    ) -> "AsyncIterator[Lines]":
        """Start everything; all lines are fast at first."""
        lines = cls(directory, servers=servers, partitions=partitions, server_overrides=server_overrides)
        async with lines, lines.cluster:
            await lines.opened()
            yield lines

    def to(self, node: Node) -> Proxy:
        """The line over which a node is worked with."""
        return self._proxies[node.name, node.port]

    def to_admin(self, storage: Node) -> Proxy:
        """The line to a storage's administration port."""
        return self._proxies[storage.name, storage.admin_port]

    def all_to(self, node: str) -> list[Proxy]:
        """The lines to all ports of the node of that name."""
        if node == ZOOKEEPER:
            return [self.zookeeper_of_servers, self.zookeeper_of_clients]
        return [proxy for (name, _), proxy in self._proxies.items() if name == node]

    async def opened(self) -> None:
        """Return when all nodes can be reached."""
        await asyncio.gather(*self._opening)

    async def __aenter__(self) -> "Lines":
        """Begin to open the proxies: each listens as soon as its node does."""
        everything = (*self._proxies.values(), self.zookeeper_of_servers, self.zookeeper_of_clients)
        self._opening = [asyncio.create_task(proxy.open()) for proxy in everything]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for proxy in (*self._proxies.values(), self.zookeeper_of_servers, self.zookeeper_of_clients):
            await proxy.close()
