"""Properties that servers set: like those that tools set themselves, but never the trim point."""

import asyncio
import json

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.errors import WaltzError
from waltz.common.wire.partition_properties import SetPropertiesStatus
from waltz.common.zk.trim_points import raise_trim_point, read_trim_point
from waltz.server.process.property_setting import MAX_PROPERTIES_BYTES, PropertiesSet, set_properties
from waltz.table.errors import PropertiesError
from waltz.table.properties import Replaced, change_properties, change_properties_by, read_properties

ROOT = "/waltz"
PATH = "/waltz/ext/partition/3"

DONE, CHANGED, FAILED = SetPropertiesStatus


@pytest.fixture
async def zookeeper() -> MemoryZooKeeper:
    return await MemoryZooKeeperServer().connect()


async def set_at(zookeeper: MemoryZooKeeper, change: int, **fields: object) -> PropertiesSet:
    return await set_properties(zookeeper, ROOT, 3, change, json.dumps(fields))


async def test_the_first_and_later_properties(zookeeper: MemoryZooKeeper) -> None:
    assert await set_at(zookeeper, 0, format="table") == (DONE, 1, None)
    assert await set_at(zookeeper, 0, format="table") == (CHANGED, 1, None)
    assert await set_at(zookeeper, 1, disabled=True) == (DONE, 2, None)
    found = await read_properties(zookeeper, ROOT, 3)
    assert (found.change, found.properties.disabled, found.properties.format) == (2, True, "raw")


async def test_the_trim_point_stays(zookeeper: MemoryZooKeeper) -> None:
    await raise_trim_point(zookeeper, ROOT, 3, 10)
    assert await set_at(zookeeper, 1, format="table") == (DONE, 2, None)
    assert await read_trim_point(zookeeper, ROOT, 3) == 10
    for value in (0, 20):
        outcome = await set_at(zookeeper, 2, trimPoint=value)
        assert outcome == (FAILED, -1, "trimPoint is no property that can be set")
    assert await read_trim_point(zookeeper, ROOT, 3) == 10


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "more than"),
        ("[" * 10_000, "no JSON"),
        ("[]", "no object"),
        ('{"disabled": 1}', "has another value"),
        ('{"consistency": "most"}', "most"),
        ('{"consistency": 3}', "3"),
        ('{"change": 7}', "change is no property"),
        ('{"a": "' + "x" * MAX_PROPERTIES_BYTES + '"}', "more than"),
    ],
)
async def test_what_a_server_could_not_obey_is_refused(zookeeper: MemoryZooKeeper, text: str, error: str) -> None:
    outcome = await set_properties(zookeeper, ROOT, 3, 0, text)
    assert (outcome.status, outcome.change) == (FAILED, -1)
    assert error in str(outcome.error)
    assert await zookeeper.exists(PATH) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"change": "1"}', b'{"change": 1, "disabled": 5}'])
async def test_a_node_of_something_else_is_left_alone(zookeeper: MemoryZooKeeper, content: bytes) -> None:
    await zookeeper.create(PATH, content, make_path=True)
    with pytest.raises(WaltzError, match=f"{PATH} does not hold properties"):
        await set_at(zookeeper, 1, disabled=True)
    assert (await zookeeper.get(PATH))[0] == content


async def test_many_at_once_by_servers_by_tools_and_by_trims_lose_nothing(zookeeper: MemoryZooKeeper) -> None:
    keys = ["maxTimestampSkewInMillis", "maxDecompressedSizeInBytes", "ttlTimestampAgeInMillis"]

    async def replace(partition_id: int, change: int, text: str) -> Replaced:
        done = await set_properties(zookeeper, ROOT, partition_id, change, text)
        return Replaced(done.status is DONE, done.change)

    await asyncio.gather(
        *(change_properties_by(zookeeper, ROOT, 3, {key: 5}, replace) for key in keys),
        change_properties(zookeeper, ROOT, 3, {"format": "table"}),
        raise_trim_point(zookeeper, ROOT, 3, 9),
    )
    properties = (await read_properties(zookeeper, ROOT, 3)).properties.model_dump(by_alias=True)
    assert [properties[key] for key in (*keys, "format", "trimPoint")] == [5, 5, 5, "table", 9]


async def test_who_is_always_too_late_gives_up(zookeeper: MemoryZooKeeper) -> None:
    await zookeeper.create(ROOT, b"")

    async def replace(partition_id: int, change: int, text: str) -> Replaced:
        return Replaced(done=False, change=change + 1)

    with pytest.raises(PropertiesError, match="others keep changing"):
        await change_properties_by(zookeeper, ROOT, 3, {"format": "table"}, replace)
    unchanged = await change_properties_by(zookeeper, ROOT, 3, {"format": "raw"}, replace)
    assert unchanged.change == 0
