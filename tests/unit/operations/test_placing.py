"""New replicas: which storages get them, and what is refused before anything is written."""

from collections.abc import Mapping

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.cli.main import parser
from waltz.cli.session import Session
from waltz.cli.zookeeper import _auto_assign
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import Ring, change_labels, read_rings, write_ring
from waltz.common.zk.store_admin import add_storage_node, create_cluster, read_replica_assignments
from waltz.operations import placing
from waltz.operations.placing import NewReplicas, place_replicas
from waltz.operations.survey.replica_judgement import StorageFacts

ROOT = "/waltz"
STORAGES = [f"s{number}:1" for number in range(6)]
SPREAD = ("datacenter", "rack")
ALL = NewReplicas(0, 3, SPREAD, None, None, False)
FREE: dict[str, int] = {}


@pytest.fixture(autouse=True)
def free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_cluster: object, storages: list[str], _timeout_s: float) -> dict[str, StorageFacts | str]:
        return {each: StorageFacts({}, FREE[each]) if each in FREE else "silent" for each in storages}

    monkeypatch.setattr(placing, "ask_storages", ask)
    FREE.clear()


@pytest.fixture
async def cluster() -> ClusterHandle:
    """Six storages in three zones of two datacenters, and one of another group."""
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "demo", 6)
    for number, storage in enumerate(STORAGES):
        await add_storage_node(zookeeper, ROOT, storage, 0, 2)
        zone = number // 2
        await change_labels(zookeeper, ROOT, storage, {"datacenter": "ab"[zone // 2], "rack": str(zone)})
    await add_storage_node(zookeeper, ROOT, "other:1", 1, 2)
    return ClusterHandle(zookeeper, ROOT, None)


async def assigned(cluster: ClusterHandle) -> Mapping[int, frozenset[str]]:
    return (await read_replica_assignments(cluster.zookeeper, ROOT)).storages_by_partition()


async def refused(cluster: ClusterHandle, wanted: NewReplicas, text: str) -> None:
    before, rings = await assigned(cluster), await read_rings(cluster.zookeeper, ROOT)
    with pytest.raises(WaltzError, match=text):
        await place_replicas(cluster, wanted)
    assert await assigned(cluster) == before
    assert await read_rings(cluster.zookeeper, ROOT) == rings


async def test_replicas_are_in_different_zones_and_evenly_spread(cluster: ClusterHandle) -> None:
    await place_replicas(cluster, ALL)
    held = await assigned(cluster)
    assert held.keys() == set(range(6))
    for storages in held.values():
        assert sorted(STORAGES.index(each) // 2 for each in storages) == [0, 1, 2]
    partitions = (await read_replica_assignments(cluster.zookeeper, ROOT)).partitions
    assert [len(partitions[each]) for each in STORAGES] == [3] * 6
    assert partitions["other:1"] == ()


async def test_partitions_with_replicas_are_refused_and_others_added_beside_them(cluster: ClusterHandle) -> None:
    await place_replicas(cluster, ALL._replace(partition_ids=[0]))
    await refused(cluster, ALL, "partition 0 already has replicas in group 0: name the others by -p")
    await place_replicas(cluster, ALL._replace(partition_ids=range(1, 6)))
    assert {len(held) for held in (await assigned(cluster)).values()} == {3}


async def test_what_is_refused(cluster: ClusterHandle) -> None:
    await refused(cluster, ALL._replace(group=7), "group 7 has no storage node")
    await refused(
        cluster, ALL._replace(size=4), "4 replicas in different zones need 4 zones; there are 3: a/0, a/1, b/2"
    )
    await refused(cluster, ALL._replace(size=7, force=True), "7 replicas need 7 storage nodes; there are 6")
    await refused(cluster, ALL._replace(partition_ids=[6]), "there is no partition 6")
    await refused(cluster, ALL._replace(spread=("disk",)), "storage s0:1 has no label disk: waltz storage label s0:1")
    await refused(cluster, ALL._replace(ring="gold"), "there is no ring 'gold': waltz storage ring gold HOST:PORT")
    path = ClusterPaths.of(ROOT).storage_labels("s0:1")
    await cluster.zookeeper.set(path, b"{")
    await refused(cluster, ALL, f"{path} does not hold a JSON object of labels")


async def test_forced_replicas_share_zones_evenly(cluster: ClusterHandle) -> None:
    await place_replicas(cluster, ALL._replace(size=4, force=True))
    for storages in (await assigned(cluster)).values():
        assert sorted(STORAGES.index(each) // 4 for each in storages) == [0, 0, 1, 1]


async def test_a_ring_gets_the_replicas_and_keeps_the_partitions(cluster: ClusterHandle) -> None:
    ring = [STORAGES[number] for number in (0, 2, 4)]
    await write_ring(cluster.zookeeper, ROOT, "gold", ring)
    await write_ring(cluster.zookeeper, ROOT, "iron", STORAGES[:2])
    await place_replicas(cluster, ALL._replace(ring="gold", partition_ids=[0, 3]))
    assert await assigned(cluster) == dict.fromkeys((0, 3), frozenset(ring))
    assert (await read_rings(cluster.zookeeper, ROOT))["gold"] == Ring(tuple(ring), (0, 3))
    await refused(cluster, ALL._replace(ring="iron", partition_ids=[1]), "3 replicas need 3 storage nodes; there are 2")
    await refused(cluster, ALL._replace(ring="iron", size=2, partition_ids=[3]), "partition 3 is already in ring gold")


async def test_free_space_decides_between_equal_storages(cluster: ClusterHandle) -> None:
    FREE.update({"s1:1": 10, "s3:1": 10, "s4:1": 10})
    await place_replicas(cluster, ALL._replace(partition_ids=[0]))
    assert await assigned(cluster) == {0: frozenset({"s1:1", "s3:1", "s4:1"})}


async def test_the_command(cluster: ClusterHandle) -> None:
    session = Session(cluster.zookeeper, ROOT, None)

    async def run(*arguments: str) -> None:
        await _auto_assign(parser().parse_args(["zookeeper", "auto-assign", "-c", "unused.yml", *arguments]), session)

    with pytest.raises(WaltzError, match="need --size"):
        await run("-g", "0", "--spread", "datacenter,rack")
    await run("-g", "0", "--size", "3", "--spread", "datacenter,rack", "-p", "0-2")
    assert {len(storages) for storages in (await assigned(cluster)).values()} == {3}
    await run("-g", "1")
    assert (await read_replica_assignments(cluster.zookeeper, ROOT)).partitions["other:1"] == tuple(range(6))
