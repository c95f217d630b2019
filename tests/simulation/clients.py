"""The client library as simulated applications use it: it draws from the seed, and may be of an older version."""

from typing import Any

from tests.simulation.cluster import ROOT, World
from tests.simulation.zookeeper import ProcessZooKeeper
from waltz.client.engine.environment import Environment, ZooKeeperCluster
from waltz.client.engine.links.links import Connector
from waltz.common.config.schemas import ClientConfig, from_mapping
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, ChannelHandler, connect
from waltz.common.wire.frames import CLIENT_SERVER, Family

NEWEST = CLIENT_SERVER.versions[-1]


def client_environment(
    world: World, name: str, zookeeper: ProcessZooKeeper, version: int = NEWEST, **settings: object
) -> Environment:
    """What the clients of one run of one application are opened in.

    ``version`` is the newest of the protocol that they offer; ``settings`` replace those of all clients.
    """
    config = client_config(world, **settings)
    cluster = ZooKeeperCluster(config, zookeeper)
    return Environment(config, cluster, _connector(version), random_source=world.random(f"client {name}"))


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
