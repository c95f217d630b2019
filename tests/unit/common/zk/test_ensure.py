import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.store_admin import (
    StoreAdminError,
    add_storage_node,
    assign_partitions,
    create_cluster,
    read_cluster_params,
    read_connections,
    read_replica_assignments,
)

ROOT = "/waltz"
A, B = StorageAddress("a", 1, 2), StorageAddress("b", 3, 4)


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    return await MemoryZooKeeperServer().connect()


async def assert_as_wanted(zk: MemoryZooKeeper) -> None:
    params = await read_cluster_params(zk, ROOT)
    assert (params.name, params.partition_count) == ("demo", 2)
    assert (await read_connections(zk, ROOT)).admin_ports == {"a:1": 2, "b:3": 4}
    assert {name: set(held) for name, held in (await read_replica_assignments(zk, ROOT)).partitions.items()} == {
        "a:1": {0, 1},
        "b:3": {0, 1},
    }


async def test_everything_is_made_and_then_nothing(zk: MemoryZooKeeper) -> None:
    for _ in range(2):
        await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
        await assert_as_wanted(zk)


async def test_what_is_missing_is_made(zk: MemoryZooKeeper) -> None:
    await create_cluster(zk, ROOT, "demo", 2)
    await add_storage_node(zk, ROOT, "a:1", 1, 2)
    await assign_partitions(zk, ROOT, "a:1", [1])
    await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
    await assert_as_wanted(zk)


@pytest.mark.parametrize(("name", "partitions"), [("other", 2), ("demo", 3)])
async def test_another_cluster_is_left_alone(zk: MemoryZooKeeper, name: str, partitions: int) -> None:
    await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
    with pytest.raises(StoreAdminError, match=r"/waltz holds the cluster 'demo' with 2 partitions, not .*; choose"):
        await ensure_cluster(zk, ROOT, name, partitions, [A, B])
    await assert_as_wanted(zk)


async def test_another_admin_port_is_an_error(zk: MemoryZooKeeper) -> None:
    await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
    with pytest.raises(StoreAdminError, match="storage node b:3 is known with admin port 4, not 5"):
        await ensure_cluster(zk, ROOT, "demo", 2, [A, B._replace(admin_port=5)])


def test_addresses() -> None:
    assert StorageAddress.parse("host:1:2") == StorageAddress("host", 1, 2)
    assert StorageAddress("host", 1, 2).connect_string == "host:1"


@pytest.mark.parametrize("text", ["", "host", "host:1", "host:1:", "host:1:x", "host:1:70000", ":1:2"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form host:port:admin_port: ") as caught:
        StorageAddress.parse(text)
    assert repr(text) in str(caught.value)
