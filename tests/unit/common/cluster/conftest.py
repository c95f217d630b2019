"""A fake cluster on an in-memory ZooKeeper."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.common.cluster.fakes import FakeCluster

ROOT = "/waltz"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three storages; partition 0 has ten transactions, 1 is empty, 2 has one."""
    zookeeper = await MemoryZooKeeperServer().connect()
    fake = await FakeCluster.start(zookeeper, ROOT, [10, 0, 1])
    yield fake
    await fake.stop()
    await zookeeper.close()
