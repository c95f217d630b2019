"""What engines are opened in."""

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.client.application import config
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Environment, ZooKeeperCluster, environment_of
from waltz.client.mock import MockDriver
from waltz.client.options import ClientOptions
from waltz.common.errors import WaltzError
from waltz.common.zk.store_admin import create_cluster

OPTIONS = ClientOptions(close_grace_s=1.0)


async def test_the_members_of_a_cluster_share_a_session_that_stays_open() -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, "/waltz", "bank", 2)
    cluster = ZooKeeperCluster(config(), zookeeper)
    environment = Environment(config(), cluster)
    one, other = await Engine.open(environment), await Engine.open(environment)
    assert one.cluster_name == other.cluster_name == "bank"
    assert one.client_id != other.client_id
    assert len(one.partitions) == 2
    await one.close()
    await one.close()
    await other.close()
    await cluster.close()
    assert await zookeeper.exists("/waltz") is not None
    await zookeeper.close()


async def test_a_cluster_that_is_not_there_cannot_be_joined() -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    with pytest.raises(WaltzError):
        await Engine.open(Environment(config(), ZooKeeperCluster(config(), zookeeper)))
    await zookeeper.close()


def test_configurations_come_in_many_shapes() -> None:
    given = config()
    assert environment_of(given, None, OPTIONS).config is given
    assert environment_of(given, None, OPTIONS).options is OPTIONS
    driver = MockDriver(3)
    assert environment_of(driver, None, OPTIONS).options is OPTIONS
    with pytest.raises(TypeError, match="not 5"):
        environment_of(5, None, None)  # type: ignore[arg-type]  # what an application may do
