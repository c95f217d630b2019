from collections.abc import Awaitable, Callable
from typing import TypeVar
from unittest import mock

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import (
    StoreAdminError,
    add_storage_node,
    assign_partitions,
    read_cluster_params,
    read_connections,
    read_replica_assignments,
    remove_storage_node,
    unassign_partitions,
)

T = TypeVar("T")

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


class Broken(Exception):
    pass


async def test_a_creation_that_was_interrupted_anywhere_is_completed() -> None:
    writes, done = 0, False
    while not done:
        server = MemoryZooKeeperServer()
        zk = await server.connect()
        left = writes = writes + 1

        def breaking(operation: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
            async def counted(path: str, *arguments: object, **options: object) -> T:
                nonlocal left
                if path != ClusterPaths.of(ROOT).admin_lock:
                    left -= 1
                    if left < 0:
                        raise Broken
                return await operation(path, *arguments, **options)

            return counted

        with mock.patch.object(zk, "create", breaking(zk.create)), mock.patch.object(zk, "set", breaking(zk.set)):
            try:
                await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
                done = True
            except Broken:
                pass
        server.expire(zk)
        zk = await server.connect()
        assert await ensure_cluster(zk, ROOT, "demo", 2, [A, B]) == []
        await assert_as_wanted(zk)
    assert writes > 12  # the tree, three writes for each storage, the replicas


async def test_what_has_become_of_a_cluster_since_is_left_as_it_is(zk: MemoryZooKeeper) -> None:
    await ensure_cluster(zk, ROOT, "demo", 2, [A, B])
    await add_storage_node(zk, ROOT, "c:5", 2, 6)
    await assign_partitions(zk, ROOT, "c:5", [0, 1])
    await unassign_partitions(zk, ROOT, "b:3", [0, 1])
    assert await ensure_cluster(zk, ROOT, "demo", 2, [A, B]) == []
    moved = {"a:1": (0, 1), "b:3": (), "c:5": (0, 1)}
    assert (await read_replica_assignments(zk, ROOT)).partitions == moved
    await remove_storage_node(zk, ROOT, "b:3")
    assert await ensure_cluster(zk, ROOT, "demo", 2, [A, B]) == ["b:3"]
    assert (await read_replica_assignments(zk, ROOT)).partitions == {"a:1": (0, 1), "c:5": (0, 1)}
    assert (await read_connections(zk, ROOT)).admin_ports == {"a:1": 2, "c:5": 6}


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
