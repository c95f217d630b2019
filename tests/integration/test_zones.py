"""Replicas in different zones: every partition takes appends while a whole zone is dead, and replicas move."""

import json
from collections.abc import Iterator

import pytest

import waltz
from tests.integration.test_operator_tools import Writer
from tests.integration.test_storage_move import EAGER, held, until_well
from tests.integration.test_storage_tools import TIMEOUT_S, done
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.zk.storage_labels import change_labels
from waltz.common.zk.store_admin import add_storage_node, create_cluster
from waltz.local.cluster import CLUSTER_NAME, LocalCluster
from waltz.local.layout import ROOT, Node
from waltz.operations.placing import NewReplicas, place_replicas

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

PARTITIONS = 6
RACKS = "aabbcc"


class ZonedCluster(LocalCluster):
    """Two storages in each of three racks, all in one group; three replicas of each partition."""

    async def _create(self) -> None:
        zookeeper = await self.zookeeper()
        try:
            await create_cluster(zookeeper, ROOT, CLUSTER_NAME, self.layout.partitions)
            for node, rack in zip(self.layout.storages, RACKS, strict=True):
                await add_storage_node(zookeeper, ROOT, node.connect_string, 0, node.admin_port)
                await change_labels(zookeeper, ROOT, node.connect_string, {"datacenter": "x", "rack": rack})
            wanted = NewReplicas(0, 3, ("datacenter", "rack"), None, None, False)
            await place_replicas(ClusterHandle(zookeeper, ROOT, None), wanted)
        finally:
            await zookeeper.close()

    async def _wait_until_open(self) -> None:
        """Not here: it counts a replica on every storage."""

    def in_rack(self, rack: str) -> list[Node]:
        return [node for node, its in zip(self.layout.storages, RACKS, strict=True) if its == rack]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZonedCluster]:
    directory = tmp_path_factory.mktemp("zones")
    with (
        ZonedCluster(directory, storages=6, partitions=PARTITIONS, server_overrides=EAGER) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        until_well(running)
        yield running


def racks_by_partition(cluster: ZonedCluster) -> dict[int, list[str]]:
    storages = json.loads(done("zookeeper", "list", "--json"))["storages"]
    racks: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}
    for node, rack in zip(cluster.layout.storages, RACKS, strict=True):
        for partition_id in storages[node.connect_string]["partitions"]:
            racks[partition_id].append(rack)
    return racks


def test_a_dead_zone_stops_nothing_and_a_storage_is_emptied_under_load(cluster: ZonedCluster) -> None:
    assert racks_by_partition(cluster) == {each: ["a", "b", "c"] for each in range(PARTITIONS)}
    assert "the death of" not in done("cluster", "verify")
    for node in cluster.in_rack("b"):
        cluster.kill(node)
    with waltz.blocking.connect(cluster.layout.client_config_path) as client:
        for partition_id in range(PARTITIONS):
            client.append(partition_id, b"without a zone", timeout_s=TIMEOUT_S)
    for node in cluster.in_rack("b"):
        cluster.start_storage(node)
    until_well(cluster)

    leaving, staying = cluster.in_rack("a")
    rebalance = ("cluster", "rebalance", "--replicas", "--without", leaving.connect_string)
    plan = json.loads(done(*rebalance, "--plan", "--json"))
    assert {(move["from"], move["to"]) for move in plan["moves"]} == {(leaving.connect_string, staying.connect_string)}
    assert len(plan["moves"]) == PARTITIONS // 2
    with Writer(cluster) as writer:
        done(*rebalance, "--apply", "--yes")
    writer.check()
    until_well(cluster)
    assert held(leaving) == {}
    assert racks_by_partition(cluster) == {each: ["a", "b", "c"] for each in range(PARTITIONS)}
    assert json.loads(done(*rebalance, "--plan", "--json"))["moves"] == []

    back = json.loads(done("cluster", "rebalance", "--replicas", "--plan", "--json"))["moves"]
    assert {(move["from"], move["to"]) for move in back} == {(staying.connect_string, leaving.connect_string)}
    assert len(back) == PARTITIONS // 2


def test_replicas_of_one_zone_are_warned_of_and_parted(cluster: ZonedCluster) -> None:
    first, second = cluster.in_rack("b")
    for node in (first, second):
        done("storage", "label", node.connect_string, "rack=a")
    warned = done("cluster", "verify")
    assert "the death of datacenter=x,rack=a would stop partitions 0-5: add storages in another" in warned
    done("storage", "label", first.connect_string, "rack=b")
    warned = done("cluster", "verify")
    assert "waltz cluster rebalance --replicas --apply (docs/runbook.md#zones)" in warned
    assert run("cluster", "rebalance", "--replicas", "--apply", "--yes").returncode == 0
    until_well(cluster)
    assert "the death of" not in done("cluster", "verify")
