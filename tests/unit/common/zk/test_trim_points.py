"""Trim points in ZooKeeper: they only grow, and leave the other properties alone."""

import asyncio
import json

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.errors import WaltzError
from waltz.common.zk.trim_points import raise_trim_point, read_trim_point
from waltz.table.errors import PropertiesError
from waltz.table.properties import change_properties, read_properties

ROOT = "/waltz"
PATH = "/waltz/ext/partition/3"


@pytest.fixture
async def zookeeper() -> MemoryZooKeeper:
    return await MemoryZooKeeperServer().connect()


async def test_a_trim_point_only_grows(zookeeper: MemoryZooKeeper) -> None:
    assert await read_trim_point(zookeeper, ROOT, 3) == 0
    assert await raise_trim_point(zookeeper, ROOT, 3, 10) == 10
    assert await raise_trim_point(zookeeper, ROOT, 3, 7) == 10
    assert await raise_trim_point(zookeeper, ROOT, 3, 12) == 12
    assert await read_trim_point(zookeeper, ROOT, 3) == 12
    assert await read_trim_point(zookeeper, ROOT, 2) == 0


async def test_many_at_once_end_with_the_highest(zookeeper: MemoryZooKeeper) -> None:
    await asyncio.gather(*(raise_trim_point(zookeeper, ROOT, 3, each) for each in range(1, 20)))
    assert await read_trim_point(zookeeper, ROOT, 3) == 19


async def test_the_properties_and_their_changes_stay(zookeeper: MemoryZooKeeper) -> None:
    before = await change_properties(zookeeper, ROOT, 3, {"format": "table", "rowType": "zlib"})
    await raise_trim_point(zookeeper, ROOT, 3, 10)
    after = await read_properties(zookeeper, ROOT, 3)
    assert after.change == before.change, "what was made from the log before stays true"
    assert after.properties == before.properties.model_copy(update={"trim_point": 10})
    await change_properties(zookeeper, ROOT, 3, {"disabled": True})
    assert await read_trim_point(zookeeper, ROOT, 3) == 10


@pytest.mark.parametrize("value", [0, 5, None])
async def test_nobody_else_changes_it(zookeeper: MemoryZooKeeper, value: int | None) -> None:
    await raise_trim_point(zookeeper, ROOT, 3, 10)
    with pytest.raises(PropertiesError, match="waltz partition trim"):
        await change_properties(zookeeper, ROOT, 3, {"trimPoint": value})
    assert await read_trim_point(zookeeper, ROOT, 3) == 10


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b'{"trimPoint": -1}', b'{"trimPoint": "1"}', b"\xff"])
async def test_a_node_with_something_else_is_left_alone(zookeeper: MemoryZooKeeper, data: bytes) -> None:
    await zookeeper.create(PATH, data, make_path=True)
    for call in (read_trim_point(zookeeper, ROOT, 3), raise_trim_point(zookeeper, ROOT, 3, 5)):
        with pytest.raises(WaltzError, match="does not hold properties"):
            await call
    assert (await zookeeper.get(PATH))[0] == data


async def test_the_node_is_one_of_properties(zookeeper: MemoryZooKeeper) -> None:
    await raise_trim_point(zookeeper, ROOT, 3, 10)
    assert json.loads((await zookeeper.get(PATH))[0] or b"") == {"change": 1, "trimPoint": 10}
    assert (await read_properties(zookeeper, ROOT, 3)).properties.trim_point == 10
