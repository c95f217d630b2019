"""Labels and rings: what is accepted, what is stored, and what bad nodes lead to."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import (
    LabelsError,
    Ring,
    add_to_ring,
    change_labels,
    check_labels,
    decode_labels,
    default_spread,
    delete_ring,
    labels_text,
    nearness,
    parse_labels,
    read_labels,
    read_rings,
    write_ring,
)

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)
A, B = "a:1", "b:1"


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    client = await MemoryZooKeeperServer().connect()
    await store_admin.create_cluster(client, ROOT, "demo", 4)
    for storage in (A, B):
        await store_admin.add_storage_node(client, ROOT, storage, 0, 2)
    return client


async def test_labels_are_set_changed_and_removed(zk: MemoryZooKeeper) -> None:
    assert await read_labels(zk, ROOT) == ({}, [])
    assert await change_labels(zk, ROOT, A, {"datacenter": "x", "rack": "1"}) == {"datacenter": "x", "rack": "1"}
    assert await change_labels(zk, ROOT, A, {"rack": "2", "disk": "nvme"}) == {
        "datacenter": "x",
        "rack": "2",
        "disk": "nvme",
    }
    assert json.loads((await zk.get(PATHS.storage_labels(A)))[0] or b"") == {
        "datacenter": "x",
        "disk": "nvme",
        "rack": "2",
    }
    await change_labels(zk, ROOT, A, {"rack": None, "disk": None})
    assert (await read_labels(zk, ROOT)).labels == {A: {"datacenter": "x"}}
    assert await change_labels(zk, ROOT, A, {"datacenter": None}) == {}
    assert await zk.exists(PATHS.storage_labels(A)) is None
    assert await change_labels(zk, ROOT, A, {"datacenter": None}) == {}


async def test_a_storage_that_leaves_takes_its_labels_along(zk: MemoryZooKeeper) -> None:
    await change_labels(zk, ROOT, A, {"rack": "1"})
    await store_admin.remove_storage_node(zk, ROOT, A)
    await store_admin.remove_storage_node(zk, ROOT, B)
    assert await read_labels(zk, ROOT) == ({}, [])


async def test_an_unknown_storage_gets_no_labels(zk: MemoryZooKeeper) -> None:
    with pytest.raises(LabelsError, match="there is no storage node c:1 in the cluster; there are: a:1, b:1"):
        await change_labels(zk, ROOT, "c:1", {"rack": "1"})


@pytest.mark.parametrize("labels", [{"": "a"}, {"1": "a"}, {"a b": "c"}, {"a": ""}, {"a": "b,c"}, {"a": "b=c"}])
async def test_bad_labels_are_refused_by_name(zk: MemoryZooKeeper, labels: dict[str, str]) -> None:
    for text in (*labels, *labels.values()):
        if not text.isalpha():
            with pytest.raises(LabelsError, match=repr(text)):
                await change_labels(zk, ROOT, A, labels)
    assert await zk.exists(PATHS.storage_labels(A)) is None


@pytest.mark.parametrize(
    "data", [None, b"", b"\xff", b"[]", b'{"rack": 1}', b'{"rack": ""}', b'{"1": "a"}', b"[" * 9999]
)
async def test_a_node_with_something_else_is_named_and_can_be_written_again(
    zk: MemoryZooKeeper, data: bytes | None
) -> None:
    await zk.create(PATHS.storage_labels(A), data, make_path=True)
    await change_labels(zk, ROOT, B, {"rack": "1"})
    stored = await read_labels(zk, ROOT)
    assert stored.labels == {B: {"rack": "1"}}
    assert len(stored.unreadable) == 1
    assert PATHS.storage_labels(A) in stored.unreadable[0]
    assert "waltz storage label" in stored.unreadable[0]
    await change_labels(zk, ROOT, A, {"rack": "2"})
    assert await read_labels(zk, ROOT) == ({A: {"rack": "2"}, B: {"rack": "1"}}, [])


VALUES = st.text(string.ascii_letters + string.digits + "-._:/äß", min_size=1, max_size=100)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_text_and_node_are_read_back(labels: dict[str, str]) -> None:
    check_labels(labels)
    assert parse_labels(labels_text(labels)) == labels
    assert decode_labels(json.dumps(labels).encode(), "/path") == labels


def test_datacenter_and_rack_come_first() -> None:
    assert labels_text({"a": "1", "rack": "2", "datacenter": "3"}) == "datacenter=3,rack=2,a=1"


def test_the_usual_labels_count_where_any_storage_has_them() -> None:
    assert default_spread([]) == default_spread([{"disk": "1"}]) == []
    assert default_spread([{"rack": "1"}, {}]) == ["rack"]
    assert default_spread([{"rack": "1"}, {"datacenter": "a"}]) == ["datacenter", "rack"]


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ({}, {"rack": "1"}, 0),
        ({"datacenter": "a", "rack": "1"}, {"datacenter": "a", "rack": "1"}, 2),
        ({"datacenter": "a", "rack": "1"}, {"datacenter": "a", "rack": "2"}, 1),
        ({"datacenter": "a", "rack": "1"}, {"datacenter": "b", "rack": "1"}, 0),
        ({"datacenter": "a", "rack": "1"}, {"rack": "1"}, 0),
        ({"rack": "1"}, {"datacenter": "b", "rack": "1"}, 1),
    ],
)
def test_how_near_two_places_are(here: dict[str, str], there: dict[str, str], expected: int) -> None:
    assert nearness(here, there) == expected


@pytest.mark.parametrize("text", ["", "rack", "rack=1,rack=2", "rack=", "=1", "rack=1,"])
def test_text_that_is_no_labels(text: str) -> None:
    with pytest.raises(LabelsError):
        parse_labels(text)


async def test_rings(zk: MemoryZooKeeper) -> None:
    assert await read_rings(zk, ROOT) == {}
    assert await write_ring(zk, ROOT, "gold", [B, A, B]) == Ring((A, B))
    assert await add_to_ring(zk, ROOT, "gold", [3, 1]) == Ring((A, B), (1, 3))
    assert await write_ring(zk, ROOT, "gold", [A]) == Ring((A,), (1, 3))
    await write_ring(zk, ROOT, "iron", [B])
    assert await read_rings(zk, ROOT) == {"gold": Ring((A,), (1, 3)), "iron": Ring((B,))}
    await delete_ring(zk, ROOT, "gold")
    assert await read_rings(zk, ROOT) == {"iron": Ring((B,))}
    with pytest.raises(LabelsError, match="there is no ring 'gold'"):
        await delete_ring(zk, ROOT, "gold")
    with pytest.raises(LabelsError, match="'a/b' is no name of a ring"):
        await write_ring(zk, ROOT, "a/b", [A])
    with pytest.raises(LabelsError, match="no storage node c:1"):
        await write_ring(zk, ROOT, "c", ["c:1"])


@pytest.mark.parametrize("data", [None, b"[]", b'{"storages": []}', b'{"storages": ["a:1"], "partitions": [true]}'])
async def test_a_node_that_is_no_ring(zk: MemoryZooKeeper, data: bytes | None) -> None:
    await zk.create(PATHS.ring("gold"), data, make_path=True)
    for call in (read_rings(zk, ROOT), write_ring(zk, ROOT, "gold", [A])):
        with pytest.raises(LabelsError, match=f"{PATHS.ring('gold')} does not hold a ring: delete the node"):
            await call
