"""The client library as simulated applications use it: it draws from the seed, and may be of an older version."""

from typing import Any, TypeVar

from tests.simulation.cluster import ROOT, World
from tests.simulation.zookeeper import ProcessZooKeeper
from waltz.client.callbacks import WaltzClient
from waltz.client.context import WaltzClientCallbacks
from waltz.client.engine.links import Connector
from waltz.client.plain.core import FollowingClient, Nobody
from waltz.common.config import ClientConfig, from_mapping
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, ChannelHandler, connect
from waltz.common.wire.frames import CLIENT_SERVER, Family

NEWEST = CLIENT_SERVER.versions[-1]

C = TypeVar("C", bound=WaltzClient)


class SimulatedClients:
    """Opens the clients of one run of one application."""

    def __init__(
        self, world: World, name: str, zookeeper: ProcessZooKeeper, version: int = NEWEST, **settings: object
    ) -> None:
        """``version`` is the newest of the protocol that they offer; ``settings`` replace those of all clients."""
        self._random = world.random(f"client {name}")
        self._zookeeper = zookeeper
        self._config = client_config(world, **settings)
        self._connector = _connector(version)
        self._readers: list[WaltzClient] = []

    async def open(self, callbacks: WaltzClientCallbacks) -> WaltzClient:
        """A client with callbacks."""
        return await self._open(WaltzClient, callbacks)

    async def _open(self, kind: type[C], callbacks: WaltzClientCallbacks) -> C:
        source = self._random

        class Seeded(kind):  # type: ignore[valid-type, misc]  # `open` passes no source on, so the class has to
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "random_source": source})

        client: C = await Seeded.open(callbacks, self._config, zookeeper=self._zookeeper, connector=self._connector)
        return client

    # What the plain face asks for: it implements Cores

    async def open_core(self) -> FollowingClient:
        """See :class:`waltz.client.plain.core.Cores`."""
        return await self._open(FollowingClient, Nobody())

    async def open_reader(self, callbacks: WaltzClientCallbacks) -> WaltzClient:
        """See :class:`waltz.client.plain.core.Cores`."""
        reader = await self.open(callbacks)
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        """See :class:`waltz.client.plain.core.Cores`."""
        for reader in self._readers:
            await reader.close()


def client_config(world: World, **settings: object) -> ClientConfig:
    """The configuration of all clients, but for ``settings``."""
    options = world.options
    return from_mapping(
        {
            "zookeeper.connectString": "zookeeper",
            "zookeeper.sessionTimeout": round(options.session_timeout_s * 1000),
            "cluster.root": ROOT,
            "client.maxConcurrentTransactions": options.concurrent_transactions,
            "client.maxTransactionSize": options.max_transaction_bytes,
            "client.ssl.plaintext": True,
            **settings,
        },
        ClientConfig,
    )


def _connector(version: int) -> Connector:
    """Makes connections on which no version above ``version`` is offered."""

    async def connect_with(
        endpoint: Endpoint, family: Family, hello_text: str, handler: ChannelHandler, **options: Any
    ) -> Channel:
        offered = family._replace(versions=tuple(each for each in family.versions if each <= version))
        return await connect(endpoint, offered, hello_text, handler, **options)

    return connect_with
