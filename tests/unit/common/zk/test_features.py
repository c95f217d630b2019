"""The features of a cluster in ZooKeeper."""

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.errors import WaltzError
from waltz.common.zk.features import TRIM, read_features, write_features

ROOT = "/waltz"
PATH = "/waltz/ext/features"


@pytest.fixture
async def zookeeper() -> MemoryZooKeeper:
    return await MemoryZooKeeperServer().connect()


async def test_features_are_kept(zookeeper: MemoryZooKeeper) -> None:
    before = await read_features(zookeeper, ROOT)
    assert (before.names, before.node_version) == (frozenset(), None)
    await write_features(zookeeper, ROOT, frozenset({TRIM}), before)
    found = await read_features(zookeeper, ROOT)
    assert found.names == {TRIM}
    await write_features(zookeeper, ROOT, frozenset(), found)
    assert (await read_features(zookeeper, ROOT)).names == frozenset()


async def test_nothing_is_written_over_a_change_of_another(zookeeper: MemoryZooKeeper) -> None:
    absent = await read_features(zookeeper, ROOT)
    await write_features(zookeeper, ROOT, frozenset({TRIM}), absent)
    old = await read_features(zookeeper, ROOT)
    await write_features(zookeeper, ROOT, frozenset({TRIM, "other"}), old)
    for before in (absent, old):
        with pytest.raises(WaltzError, match="changed meanwhile"):
            await write_features(zookeeper, ROOT, frozenset(), before)
    assert (await read_features(zookeeper, ROOT)).names == {TRIM, "other"}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"features": 7}', b'{"features": [7]}', b"\xff"])
async def test_something_else_is_refused(zookeeper: MemoryZooKeeper, data: bytes) -> None:
    await zookeeper.create(PATH, data, make_path=True)
    with pytest.raises(WaltzError, match="does not hold the features"):
        await read_features(zookeeper, ROOT)
