"""Properties: what is accepted, what is refused and how, and changes beside changes of others."""

import asyncio
import json

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.table.ages import Ages
from waltz.table.codecs import Codec
from waltz.table.errors import PropertiesError
from waltz.table.properties import (
    PartitionProperties,
    change_properties,
    changed,
    decode_properties,
    encode_properties,
    read_properties,
)

ROOT = "/waltz"
PATH = "/waltz/ext/partition/3"
RAW = PartitionProperties()


@pytest.fixture
async def server() -> MemoryZooKeeperServer:
    return MemoryZooKeeperServer()


@pytest.fixture
async def zk(server: MemoryZooKeeperServer) -> MemoryZooKeeper:
    return await server.connect()


def test_the_node_holds_what_is_not_the_default() -> None:
    properties = changed(RAW, {"format": "table", "rowType": "zstd", "ttlTimestampAgeInMillis": 5})
    data = encode_properties(properties, 7)
    assert json.loads(data) == {"change": 7, "format": "table", "rowType": "zstd", "ttlTimestampAgeInMillis": 5}
    assert decode_properties(data, PATH) == (properties, 7)
    assert properties.codec is Codec.ZSTD
    assert changed(properties, {"rowType": None, "ttlTimestampAgeInMillis": None}).codec is Codec.NONE


def test_ages_have_their_places() -> None:
    keys = ("tombstoneTimestamp", "tombstoneVersion", "ttlTimestamp", "ttlVersion")
    properties = changed(RAW, {f"{key}AgeInMillis": number for number, key in enumerate(keys, 1)})
    assert properties.ages == Ages(1, 2, 3, 4)
    properties = changed(RAW, {f"{key}IntervalMillis": number for number, key in enumerate(keys, 1)})
    assert properties.intervals == Ages(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"colour": "red"}, "no property 'colour'"),
        ({"colour": None}, "no property 'colour'"),
        ({"max_key_bytes": 5}, "no property 'max_key_bytes'"),
        ({"format": "json"}, "format: "),
        ({"rowType": "brotli"}, "rowType: "),
        ({"ttlTimestampAgeInMillis": -1}, "ttlTimestampAgeInMillis: "),
        ({"ttlTimestampAgeInMillis": True}, "ttlTimestampAgeInMillis: "),
        ({"ttlTimestampAgeInMillis": "1d"}, "ttlTimestampAgeInMillis: "),
        ({"disabled": 1}, "disabled: "),
        ({"durability": "fsync_never"}, "durability: only fsync_always is possible: storages know"),
        ({"consistency": "most"}, "consistency: Input should be 'leader', 'leader_plus_one', 'leader_quorum',"),
        ({"requireConsistency": 1}, "requireConsistency: "),
        ({"refuseLegacyWriters": "yes"}, "refuseLegacyWriters: "),
        ({"retentionAgeInMillis": -1}, "retentionAgeInMillis: "),
        ({"retentionSizeInBytes": "500G"}, "retentionSizeInBytes: "),
        ({"replicated": False}, "replicated: only True is possible"),
        ({"maxValueSizeInIndex": 8}, "maxValueSizeInIndex: only -1 is possible"),
        ({"view": "server"}, "view: only client is possible"),
        ({"indexClassName": "berkeleydb"}, "indexClassName berkeleydb holds keys of at most 499 bytes"),
        ({"indexClassName": "lmdb", "maxKeySizeInBytes": 500}, "set maxKeySizeInBytes to that or less"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(changes: dict[str, object], text: str) -> None:
    with pytest.raises(PropertiesError) as raised:
        changed(RAW, changes)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_holds_anyway_may_be_said() -> None:
    assert changed(RAW, {"durability": "fsync_always", "consistency": "leader_quorum", "view": "client"}) == RAW
    assert changed(RAW, {"indexClassName": "lmdb", "maxKeySizeInBytes": 499}).max_key_bytes == 499
    assert changed(changed(RAW, {"disabled": True}), {"disabled": None}) == RAW


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b"5",
        b"\xff",
        b"[" * 100_000,
        b'{"change":0}',
        b'{"change":true}',
        b'{"change":1,"new":2}',
    ],
)
def test_what_is_no_node_of_properties_is_refused(data: bytes | None) -> None:
    with pytest.raises(PropertiesError, match=PATH):
        decode_properties(data, PATH)


async def test_a_partition_without_a_node_is_raw(zk: MemoryZooKeeper) -> None:
    assert await read_properties(zk, ROOT, 3) == (RAW, 0, None)
    assert await change_properties(zk, ROOT, 3, {"format": "raw"}) == (RAW, 0, None)
    assert await zk.exists(PATH) is None


async def test_changes_are_counted(zk: MemoryZooKeeper) -> None:
    first = await change_properties(zk, ROOT, 3, {"format": "table"})
    assert first == await read_properties(zk, ROOT, 3)
    assert (first.properties.format, first.change) == ("table", 1)
    assert await change_properties(zk, ROOT, 3, {"format": "table"}) == first
    second = await change_properties(zk, ROOT, 3, {"rowType": "zlib"})
    assert second == await read_properties(zk, ROOT, 3)
    assert (second.properties.format, second.properties.row_type, second.change) == ("table", "zlib", 2)
    with pytest.raises(PropertiesError):
        await change_properties(zk, ROOT, 3, {"format": "json"})
    assert await read_properties(zk, ROOT, 3) == second


async def test_changes_of_others_are_kept(server: MemoryZooKeeperServer) -> None:
    keys = ["tombstoneTimestampAgeInMillis", "tombstoneVersionAgeInMillis", "ttlTimestampAgeInMillis"]
    clients = [await server.connect() for _ in keys]
    await asyncio.gather(
        *(
            change_properties(client, ROOT, 3, {key: number})
            for client, key in zip(clients, keys, strict=True)
            for number in range(1, 6)
        )
    )
    stored = await read_properties(clients[0], ROOT, 3)
    assert stored.change == 15
    assert all(stored.properties.ages[:3])


async def test_a_watch_is_left_with_and_without_a_node(zk: MemoryZooKeeper) -> None:
    fired: list[int] = []
    await read_properties(zk, ROOT, 3, lambda: fired.append(1))
    await change_properties(zk, ROOT, 3, {"format": "table"})
    await asyncio.sleep(0)
    assert fired == [1]
    await read_properties(zk, ROOT, 3, lambda: fired.append(2))
    await change_properties(zk, ROOT, 3, {"rowType": "zlib"})
    await asyncio.sleep(0)
    assert fired == [1, 2]
