"""A storage node of a running cluster on several disks: one of them is moved away, comes back, and is lost for good."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import waltz as waltz_library
from tests.integration.test_storage_tools import admin_of, done, failed, until_healthy
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(300)]

PARTITIONS = 4
COUNT = 30


class Disks(NamedTuple):
    """A cluster of which one storage has a second disk with half of the partitions."""

    cluster: LocalCluster
    node: Node
    first: Path
    second: Path
    has_journals: bool

    @property
    def config(self) -> tuple[str, str]:
        return "-c", str(self.cluster.layout.cli_config_path)

    def append(self) -> None:
        asyncio.run(self._append())

    async def _append(self) -> None:
        config = load(self.cluster.layout.client_config_path, ClientConfig)
        async with waltz_library.connect(config) as client:
            for partition_id in range(PARTITIONS):
                await client.append_many(partition_id, [b"%d" % each for each in range(COUNT)])

    def restart(self, *, healthy: bool) -> dict[str, object]:
        """Start the node again, and wait until it serves; what its health says."""
        self.cluster.start_storage(self.node)
        return until_healthy(self.cluster, self.node, 200 if healthy else 500)


@pytest.fixture
def disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disks]:
    with LocalCluster(
        tmp_path / "cluster",
        servers=1,
        partitions=PARTITIONS,
        plaintext=True,
        storage_overrides={"storage.journal.enabled": request.param},
    ) as cluster:
        node = cluster.layout.storages[1]
        disks = Disks(cluster, node, cluster.layout.data_directory(node), tmp_path / "second", request.param)
        disks.append()
        cluster.terminate(node)
        disks.second.mkdir()
        path = cluster.layout.config_path(node.name)
        keys = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**keys, "storage.directories": f"{disks.first}, {disks.second}"}))
        disks.restart(healthy=True)
        cluster.terminate(node)
        for partition_id in (1, 3):
            where = (str(disks.first), "-p", str(partition_id), "--to", str(disks.second))
            text = f"partition {partition_id} is moved from {disks.first} to {disks.second}\n"
            assert done("disk", "move-partition", *where) == text
        disks.restart(healthy=True)
        yield disks


def volume_of(disks: Disks, *, drained: bool = True) -> str:
    listed = json.loads(done("disk", "volumes", str(disks.first), "--json"))["volumes"]
    assert [each["partitions"] for each in listed] == [[], [1, 3]]
    assert [each["drained"] for each in listed] == [drained, drained]
    return str(listed[1]["volume"])


def missing(message: dict[str, object]) -> list[str]:
    """The partitions that are out of service, all for the same reason."""
    reasons = message["outOfService"]
    assert isinstance(reasons, dict)
    assert all("is missing" in reason for reason in reasons.values())
    return sorted(reasons)


def rebalance_running(disks: Disks) -> None:
    """Partitions move between the disks of the running node."""
    rebalance = ("storage", "rebalance-disks", *disks.config, "-s", admin_of(disks.node))
    plan = json.loads(done(*rebalance, "--plan", "--json"))
    assert [sorted(each["partitions"]) for each in plan["directories"]] == [["0", "2"], ["1", "3"]]
    for to in (disks.first, disks.second):
        text = f"partition 1 is in {to}\n1 partition moved\n"
        assert done(*rebalance, "-p", "1", "--to", str(to), "--apply", "--yes").endswith(text)
        assert (disks.first / "1").resolve().parent == to
        disks.append()
    assert "is none of the directories of the node" in failed(*rebalance, "-p", "1", "--to", "/", "--apply", "--yes")


@pytest.mark.parametrize("disks", [False, True], ids=["no journal", "journal"], indirect=True)
def test_a_disk_that_is_lost_costs_the_node_only_its_partitions(disks: Disks) -> None:
    cluster, node = disks.cluster, disks.node
    disks.append()

    rebalance_running(disks)

    # It is away for a while, and comes back with what it had.
    cluster.terminate(node)
    away = disks.second.rename(disks.second.with_name("away"))
    disks.second.mkdir()
    assert missing(disks.restart(healthy=False)) == ["1", "3"]
    disks.append()
    cluster.terminate(node)
    assert "is missing" in failed("disk", "move-partition", str(disks.first), "-p", "1", "--to", str(disks.first))
    disks.second.rmdir()
    away.rename(disks.second)
    volume = volume_of(disks)
    assert "is not missing" in failed("disk", "forget-volume", str(disks.first), "--volume", volume)
    disks.restart(healthy=True)

    # The node is killed, and started without the disk: what only the journal there has comes back with the disk.
    disks.append()
    cluster.kill(node)
    volume_of(disks, drained=not disks.has_journals)
    away = disks.second.rename(disks.second.with_name("away"))
    disks.second.mkdir()
    assert missing(disks.restart(healthy=False)) == ["1", "3"]
    disks.append()
    cluster.kill(node)
    if disks.has_journals:
        assert "are missing" in failed("disk", "drain", str(disks.first))
    disks.second.rmdir()
    away.rename(disks.second)
    if disks.has_journals:
        move = ("disk", "move-partition", str(disks.first), "-p", "1", "--to", str(disks.first))
        assert "run waltz disk drain first" in failed(*move)
        assert "is drained" in done("disk", "drain", str(disks.first))
    volume_of(disks)
    disks.restart(healthy=True)

    # It is lost for good.
    cluster.kill(node)
    shutil.rmtree(disks.second)
    disks.second.mkdir()
    assert missing(disks.restart(healthy=False)) == ["1", "3"]
    disks.append()
    cluster.terminate(node)
    forget = ("disk", "forget-volume", str(disks.first), "--volume", volume)
    assert done(*forget).startswith(f"volume {volume} is forgotten; its partitions: 1, 3\n")
    reasons = disks.restart(healthy=False)["outOfService"]
    assert isinstance(reasons, dict)
    assert all(f"volume {volume} is lost, and all records of" in reason for reason in reasons.values())
    for partition_id in sorted(reasons):
        done("storage", "remove-partition", *disks.config, "-s", admin_of(node), "-p", partition_id, "-d")
    done("storage", "sync-partitions", *disks.config)
    until_healthy(cluster, node, 200)
    disks.append()
