"""Replicas move from node to node under load, while processes are killed."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.integration.spare import SpareCluster
from tests.integration.test_operator_tools import Writer, start
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import CliConfig, load
from waltz.common.ids import Endpoint
from waltz.common.net.tls import client_context
from waltz.common.records import Record
from waltz.common.wire.storage_times import CommitTime
from waltz.common.zk.store_admin import read_partition_metadata
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node
from waltz.operations.storages import connection
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

PARTITIONS = 2
EAGER = {"storage.maxRetryInterval": 1000}
"""Servers try a storage that is back again so often at least (in milliseconds)."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The tests leave replicas where they have moved them: each begins where the one before has ended."""
    with (
        SpareCluster(
            tmp_path_factory.mktemp("moving"), storages=4, partitions=PARTITIONS, server_overrides=EAGER
        ) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        done("performance", "test-producers", "-s", "4000", "-p", "500", "-t", "2", "-i", "0", "-ap", "2")
        yield running


def until(cluster: LocalCluster, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, run("status")
        cluster.check()
        time.sleep(0.2)


def until_well(cluster: LocalCluster) -> None:
    until(cluster, lambda: run("cluster", "verify", "--exit-code").returncode == 0)


def read(process: "subprocess.Popen[str]", text: str) -> None:
    """Read what it prints until that is in a line."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, process.communicate()


async def is_listed(cluster: LocalCluster, node: Node, partition_id: int) -> bool:
    """Whether the metadata of a partition have a replica there."""
    zookeeper = await cluster.zookeeper()
    try:
        metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
    finally:
        await zookeeper.close()
    return metadata is not None and node.connect_string in {each.connect_string for each in metadata.replicas}


def held(node: Node) -> dict[str, object]:
    document = json.loads(done("storage", "list", "-s", f"localhost:{node.admin_port}", "--json"))
    assert isinstance(document, dict)
    partitions = document[f"localhost:{node.admin_port}"]
    assert isinstance(partitions, dict)
    return partitions


async def sequences(cluster: LocalCluster, nodes: list[Node], partition_id: int) -> list[list[Record]]:
    """The records that each of the nodes holds."""
    tls = client_context(load(cluster.layout.cli_config_path, CliConfig).tls)
    zookeeper = await cluster.zookeeper()
    found = []
    for node in nodes:
        records: list[Record] = []
        async with connection(
            StorageAdminClient, ClusterHandle(zookeeper, ROOT, tls), Endpoint("localhost", node.admin_port)
        ) as admin:
            while more := await admin.records(partition_id, len(records), 1000):
                records += more
        found.append(records)
    await zookeeper.close()
    return found


async def times_of(cluster: LocalCluster, node: Node, partition_id: int) -> list[CommitTime]:
    """The first entries of a node's time index."""
    tls = client_context(load(cluster.layout.cli_config_path, CliConfig).tls)
    zookeeper = await cluster.zookeeper()
    try:
        metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
        assert metadata is not None
        endpoint = Endpoint.parse(node.connect_string)
        async with connection(StorageClient, ClusterHandle(zookeeper, ROOT, tls), endpoint) as data:
            return await data.times(metadata.session_id, partition_id, 0, 10, timeout_s=TIMEOUT_S)
    finally:
        await zookeeper.close()


def check_moved(cluster: LocalCluster, left: Node, holding: list[Node]) -> None:
    """One node holds nothing, not even files, and the others hold the same."""
    until_well(cluster)
    assert held(left) == {}
    assert list(cluster.layout.data_directory(left).rglob("*.seg*")) == []
    for partition_id in range(PARTITIONS):
        first, *others = asyncio.run(sequences(cluster, holding, partition_id))
        assert len(first) > 100
        assert others == [first] * len(others)


def test_replicas_move_under_load_though_the_tool_and_a_storage_are_killed(cluster: LocalCluster) -> None:
    source, second, third, spare = cluster.layout.storages
    move = ("storage", "move", "-s", source.connect_string, "-d", spare.connect_string)
    plan = json.loads(done(*move, "--plan", "--json"))
    assert plan["applied"] is False
    assert plan["partitions"] == [
        {"partition": each, "steps": ["EXCHANGE", "LEAVE", "JOIN", "CLEAR"]} for each in range(PARTITIONS)
    ]
    assert (
        failed(*move, "--apply") == "Error: nothing was done: there is no terminal for a question; give --yes to agree"
    )
    assert held(spare) == {}
    appended = [len(asyncio.run(sequences(cluster, [source], each))[0]) for each in range(PARTITIONS)]
    # The owner tells the storages once a second what is committed.
    until(cluster, lambda: all(asyncio.run(times_of(cluster, source, each)) for each in range(PARTITIONS)))
    with Writer(cluster) as writer:
        with start(*move, "--apply", "--yes", "--rate", "1") as moving:
            read(moving, "partition 0: copying transactions 0 to ")
            until(cluster, lambda: json.dumps(held(spare).get("0")).find('"low_water_mark": -1') < 0)
            moving.kill()
            moving.stdout.read() if moving.stdout else None
        assert "Warning: a replica of partition 0 is being moved from " in done("cluster", "verify")
        with start(*move, "--apply", "--yes", "--rate", "4") as moving:
            read(moving, "partition 0: copying transactions ")
            cluster.kill(second)
            until(cluster, lambda: f"{second.connect_string} away" in done("status", "--interval", "0"))
            cluster.start_storage(second)
            read(moving, "partition 1: done: the partition's files on ")
            assert moving.stdout is not None
            assert moving.stdout.read() == f"{source.connect_string} holds nothing of partitions 0-1\n"
        assert moving.returncode == 0
    writer.check()
    check_moved(cluster, source, [second, third, spare])
    for partition_id in range(PARTITIONS):
        times = asyncio.run(times_of(cluster, spare, partition_id))
        assert times[0].transaction_id < appended[partition_id], "times of what was committed before the move"
    assert done(*move, "--plan", "-p", "0-1").startswith(f"nothing is to be done: {source.connect_string} holds none")
    assert "Warning" not in done("cluster", "verify")


def test_a_move_that_ctrl_c_has_ended_is_taken_back(cluster: LocalCluster) -> None:
    spare, second, third, source = cluster.layout.storages
    move = ("storage", "move", "-s", f"localhost:{source.admin_port}", "-d", f"localhost:{spare.admin_port}")
    for is_assigned in (False, True):
        with start(*move, "--apply", "--yes", "-p", "1", "--rate", "1") as moving:
            read(moving, "copying transactions ")
            moving.send_signal(signal.SIGINT)
            assert moving.stderr is not None
            assert moving.stderr.read().splitlines() == [
                "nothing is lost: run it again to continue, or with --cancel to undo the move",
                "interrupted",
            ]
        assert moving.returncode == 130
        if is_assigned:  # as it is when the next step has been done, too
            done("storage", "availability", "-s", f"localhost:{spare.admin_port}", "-p", "1", "-o", "true")
            done("zookeeper", "assign-partition", "-s", spare.connect_string, "-p", "1")
            until(cluster, lambda: asyncio.run(is_listed(cluster, spare, 1)))
        document = json.loads(done(*move, "--cancel", "--yes", "--json"))
        (canceled,) = document["partitions"]
        if is_assigned:  # the server may have begun a session without it before the tool looks
            assert canceled["steps"] in (["UNASSIGN", "LEAVE", "CLEAR"], ["UNASSIGN", "CLEAR"])
        else:
            assert canceled["steps"] == ["CLEAR"]
        assert canceled["partition"] == 1
        check_moved(cluster, spare, [second, third, source])
    assert done(*move, "--cancel", "--yes").startswith("nothing is to be done")


def test_what_must_not_be_moved(cluster: LocalCluster) -> None:
    spare, second, _, source = (each.connect_string for each in cluster.layout.storages)
    for arguments, text in (
        (("-s", source, "-d", source), "cannot be both source and destination"),
        (("-s", "localhost:1", "-d", spare), "there is no storage node localhost:1 in the cluster; there are: "),
        (("-s", source, "-d", second), "both storages hold it, and nothing was being moved"),
        (("-s", second, "-d", spare), f"{spare} is in group 1, {second} in group 2, and replicas stay in their group"),
        (("-s", source, "-d", spare, "-p", "1-2"), "there is no partition 2; the cluster has 2"),
        (("-s", spare, "-d", spare.replace(":", ".:"), "-p", "0"), "there is no storage node localhost.:"),
    ):
        for what in (("--plan",), ("--apply", "--yes")):
            assert text in failed("storage", "move", *arguments, *what)
    assert run("storage", "move", "-s", source, "-d", spare).returncode == 2


def test_a_dead_replica_is_replaced_and_no_majority_is_given_away(cluster: LocalCluster) -> None:
    spare, second, third, dead = cluster.layout.storages
    cluster.kill(dead)
    done("append", "-p", "0", "behind")
    done("append", "-p", "1", "behind")
    until(cluster, lambda: done("status", "--interval", "0").count(f"{dead.connect_string} away") == PARTITIONS)
    # It is replaced by an empty node of its group first: moving another replica would leave two of four.
    other = ("storage", "move", "-s", second.connect_string, "-d", spare.connect_string, "--plan")
    assert "cannot be moved" in failed(*other)
    move = ("storage", "move", "-s", dead.connect_string, "-d", spare.connect_string)
    until(cluster, lambda: run(*move, "--plan").returncode == 0)
    text = done(*move, "--apply", "--yes")
    assert text.endswith(
        f"{dead.connect_string} does not answer: when it is back, delete its files of partitions 0-1 "
        "(waltz storage remove-partition -d)\n"
    )
    cluster.start_storage(dead)
    admin = f"localhost:{dead.admin_port}"
    until(cluster, lambda: run("storage", "list", "-s", admin).returncode == 0)
    done("storage", "remove-partition", "-s", admin, "-p", "0-1", "-d")
    check_moved(cluster, dead, [spare, second, third])
