"""Storages are lost for good: the new one of a move, and a majority."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.spare import SpareCluster
from tests.integration.test_operator_tools import start
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionMetadata, ReplicaAssignments
from waltz.local.layout import ROOT, Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

EAGER = {"storage.maxRetryInterval": 1000}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpareCluster]:
    """Three storages hold one partition, and the fourth nothing yet."""
    running = SpareCluster(tmp_path / "lost", storages=4, partitions=1, plaintext=True, server_overrides=EAGER)
    with running:
        monkeypatch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        append("first")
        yield running


def append(data: str) -> None:
    done("append", "-p", "0", data, "-t", "60")


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, run("status")
        time.sleep(0.05)


async def listed(cluster: SpareCluster) -> tuple[set[str], set[str]]:
    """The storages in the assignment, and those in the metadata."""
    zookeeper = await cluster.zookeeper()
    paths = ClusterPaths.of(ROOT)
    assignments = ReplicaAssignments.decode((await zookeeper.get(paths.assignment))[0])
    metadata = PartitionMetadata.decode((await zookeeper.get(paths.partition(0)))[0])
    await zookeeper.close()
    return set(assignments.storages_of(0)), {each.connect_string for each in metadata.replicas}


def answers(node: Node) -> bool:
    return run("storage", "list", "-s", f"localhost:{node.admin_port}").returncode == 0


def names(*nodes: Node) -> set[str]:
    return {node.connect_string for node in nodes}


@pytest.mark.parametrize("early", [True, False], ids=["before it joins", "when it has joined"])
def test_the_new_node_of_a_move_dies_and_appends_go_on(cluster: SpareCluster, early: bool) -> None:
    dead, second, third, new = cluster.layout.storages
    cluster.kill(dead)
    append("two of three")
    move = ("storage", "move", "-s", dead.connect_string, "-d", new.connect_string)
    with start(*move, "--apply", "--yes", "-t", "5") as moving:
        until(lambda: new.connect_string in asyncio.run(listed(cluster))[0 if early else 1])
        cluster.kill(new)
        append("the new one is dead, too")
        output, errors = moving.communicate()
        assert moving.returncode in (0, 1), output + errors
    append("after the move")
    run(*move, "--cancel", "--yes", "-t", "5")
    run(*move, "--apply", "--yes", "-t", "5", "-p", "0")
    append("after both")
    assigned, known = asyncio.run(listed(cluster))
    assert names(second, third) < assigned
    assert names(second, third) < known
    assert len(assigned) == len(known) == 3


def test_a_partition_goes_on_when_two_of_four_are_lost(cluster: SpareCluster) -> None:
    lost, second, third, fourth = cluster.layout.storages
    done("storage", "add-partition", "-s", f"localhost:{fourth.admin_port}", "-p", "0")
    done("zookeeper", "assign-partition", "-p", "0", "-s", fourth.connect_string)
    until(lambda: run("cluster", "verify", "--exit-code").returncode == 0)
    append("on all four")
    accept = ("storage", "accept-loss", "-p", "0", "--lost")
    both = (lost.connect_string, fourth.connect_string)
    assert failed(*accept, *both, "--plan").endswith(": not lost")
    for node in (lost, fourth):
        cluster.kill(node)
    assert run("append", "-p", "0", "not now", "-t", "5").returncode == 1
    until(lambda: run(*accept, *both, "--plan").returncode == 0)  # the server says that the partition is not well
    assert f"not named as lost, but silent: {fourth.connect_string}" in failed(*accept, lost.connect_string, "--plan")
    assert "without the lost replicas" in done(*accept, *both, "--plan")
    assert asyncio.run(listed(cluster))[1] == names(*cluster.layout.storages)
    assert "there is no terminal for a question" in failed(*accept, *both, "--apply")
    assert "partition 0 goes on behind transaction " in done(*accept, *both, "--apply", "--yes")
    append("with two of two")
    assert asyncio.run(listed(cluster)) == (names(second, third), names(second, third))
    for node in (lost, fourth):
        cluster.start_storage(node)
    append("and nobody else")
    assert asyncio.run(listed(cluster)) == (names(second, third), names(second, third))
    for node in (lost, fourth):
        until(partial(answers, node))
    done("zookeeper", "assign-partition", "-p", "0", "-s", lost.connect_string)
    until(lambda: asyncio.run(listed(cluster))[1] == names(lost, second, third))
    done("storage", "sync-partitions")
    until(lambda: run("cluster", "verify", "--exit-code").returncode == 0)
    maxima = {
        done("storage", "max-transaction-id", "-s", f"localhost:{node.admin_port}", "-sp", str(node.port), "-p", "0")
        for node in (lost, second, third)
    }
    assert len(maxima) == 1
