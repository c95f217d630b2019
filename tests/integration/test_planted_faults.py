"""Faults planted in a cluster of real nodes: status, verify, the console and the nodes' health say the same of each."""

import asyncio
import json
import resource
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_storage_tools import admin_of, done, until_healthy
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node
from waltz.operations.storages import connection
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(600)]

TIMEOUT_S = 60.0
EAGER = {"storage.maxRetryInterval": 1000}
"""Servers try lost storages again after at most this number of milliseconds."""

RECORD = ClusterPaths.of(ROOT).partition(0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with (
        LocalCluster(
            tmp_path_factory.mktemp("planted"), servers=1, partitions=1, plaintext=True, server_overrides=EAGER
        ) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        for number in range(20):
            done("append", "-p", "0", f"transaction {number}")
        yield running


def fetch(node: Node, path: str) -> Any:
    """A page of a node's HTTP port, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://localhost:{node.http_port}{path}") as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())


def said(cluster: LocalCluster) -> dict[str, str]:
    """All that the four say, as text."""
    server = cluster.layout.servers[0]
    fetch(server, "/console/cluster.json?after=0")
    return {
        "status": run("status", "--exit-code", "-t", "5").stdout,
        "verify": run("cluster", "verify", "--exit-code", "-t", "5").stdout,
        "console": json.dumps(fetch(server, "/console/cluster.json?after=0").get("cluster"), ensure_ascii=False),
        "server": json.dumps(fetch(server, "/health")),
    }


def until_said(cluster: LocalCluster, **wanted: str) -> None:
    """Ask until each says what is wanted of it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        found = said(cluster)
        if all(text in found[who] for who, text in wanted.items()):
            return
        assert time.monotonic() < deadline_s, {who: (text, found[who]) for who, text in wanted.items()}
        cluster.check()
        time.sleep(0.2)


def until_well(cluster: LocalCluster) -> None:
    until_said(
        cluster,
        status="1 partition, all well, ",
        verify="Passed: all 11 checks",
        console='"problems": []',
        server='"partitions": {"0": true}}}',
    )


def health(node: Node) -> Any:
    return fetch(node, "/health")["storage"]


def test_a_replica_that_is_switched_off(cluster: LocalCluster) -> None:
    until_well(cluster)
    node = cluster.layout.storages[2]
    switch = ("storage", "availability", "-s", admin_of(node), "-p", "0", "-o")
    done(*switch, "false")
    do = f"waltz storage availability -s {admin_of(node)} -p 0 -o true"
    done("append", "-p", "0", "without it")
    until_said(
        cluster,
        status=f"do: {do}",
        verify=f"storage {node.connect_string} has it switched off ({do})",
        console=do,
        server='"state": "away"',
    )
    assert health(node)["healthy"]
    done(*switch, "true")
    until_well(cluster)


def test_a_storage_that_is_killed(cluster: LocalCluster) -> None:
    until_well(cluster)
    node = cluster.layout.storages[2]
    cluster.kill(node)
    done("append", "-p", "0", "without it")
    silent = f"storage {node.connect_string} does not answer, and holds 1 replica"
    until_said(
        cluster,
        status=f"2 of 3 current, {node.connect_string} away",
        verify=f"storage {node.connect_string} did not report its partitions: ",
        console=silent,
        server='"do": "start the storage, or mend the network to it (docs/runbook.md#storage-down)"',
    )
    assert all(silent in text for who, text in said(cluster).items() if who != "server")
    cluster.start_storage(node)
    until_well(cluster)


def test_a_replica_that_is_behind(cluster: LocalCluster) -> None:
    """Though it takes full part by all that ZooKeeper and the server know."""
    until_well(cluster)
    node = cluster.layout.storages[2]

    async def cut() -> None:
        zookeeper = await cluster.zookeeper()
        handle = ClusterHandle(zookeeper, ROOT, None)
        async with (
            connection(StorageAdminClient, handle, Endpoint("localhost", node.admin_port)) as admin,
            connection(StorageClient, handle, Endpoint("localhost", node.port)) as data,
        ):
            session_id = (await admin.last_session_info(0)).session_id
            last_id = await data.max_transaction_id(session_id, 0, timeout_s=TIMEOUT_S)
            await data.truncate(session_id, 0, last_id - 2, timeout_s=TIMEOUT_S)
        await zookeeper.close()

    for text in ("one that is lost there", "another one"):
        done("append", "-p", "0", text)
    until_well(cluster)
    asyncio.run(cut())
    until_said(
        cluster,
        status=f"2 of 3 current, {node.connect_string} lagging -2",
        verify=f"storage {node.connect_string} lacks 2 committed transactions",
        console='"lagging", 2]',
    )
    done("append", "-p", "0", "one that does not fit there")
    until_well(cluster)


def test_a_damaged_record(cluster: LocalCluster) -> None:
    until_well(cluster)
    node = cluster.layout.storages[2]
    cluster.terminate(node)
    (segment,) = (cluster.layout.data_directory(node) / "0").glob("*.seg")
    damage(segment, 200)
    cluster.start_storage(node)
    until_healthy(cluster, node, 500)  # the HTTP port is the last one to be opened
    do = f"waltz storage repair -s {admin_of(node)} -p 0"
    damaged = f"storage {node.connect_string}: damaged records in partition 0: transactions "
    until_said(cluster, status=damaged, verify=damaged, console=damaged)
    assert all(do in text for who, text in said(cluster).items() if who != "server")
    (problem,) = health(node)["problems"]
    assert problem["do"] == do.replace("localhost", "HOST")
    done("storage", "repair", "-s", admin_of(node), "-p", "0")
    until_well(cluster)


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@contextmanager
def full(cluster: LocalCluster, node: Node) -> Iterator[None]:
    """The node can write no file any further."""
    pid = cluster.processes()[node.name]
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    (segment,) = (cluster.layout.data_directory(node) / "0").glob("*.seg")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (segment.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full(cluster: LocalCluster) -> None:
    until_well(cluster)
    node = cluster.layout.storages[2]
    with full(cluster, node):
        done("append", "-p", "0", "x" * 100_000)
        out = f"storage {node.connect_string}: partition 0 out of service: "
        until_said(
            cluster,
            status=out,
            verify=f"storage {node.connect_string} has it out of service: ",
            console=out,
            server='"state": "away"',
        )
        assert all("waltz storage sync-partitions" in text for who, text in said(cluster).items() if who != "server")
        (problem,) = health(node)["problems"]
        assert problem["partitions"] == [0]
        assert problem["do"].endswith("waltz storage sync-partitions")
    done("storage", "sync-partitions")
    until_well(cluster)


def test_a_record_that_is_missing_in_zookeeper(cluster: LocalCluster) -> None:
    """The last one: the cluster is not well again after it."""
    until_well(cluster)

    async def delete() -> None:
        zookeeper = await cluster.zookeeper()
        await zookeeper.delete(RECORD)
        await zookeeper.close()

    asyncio.run(delete())
    until_said(
        cluster,
        status="record missing",
        verify="its record in ZooKeeper (store/partition/0) is missing, though it has had store sessions",
        console="partition 0 has no record in ZooKeeper any more",
    )
    done("append", "-p", "0", "the session goes on")
    for name in ("assignment", "connection"):

        async def remove(path: str = f"{ROOT}/store/{name}") -> bytes | None:
            zookeeper = await cluster.zookeeper()
            data, _ = await zookeeper.get(path)
            await zookeeper.delete(path)
            await zookeeper.close()
            return data

        async def restore(data: bytes | None, path: str = f"{ROOT}/store/{name}") -> None:
            zookeeper = await cluster.zookeeper()
            await zookeeper.create(path, data)
            await zookeeper.close()

        data = asyncio.run(remove())
        create = ("cluster", "create", "-n", "local", "-p", "1", "-s", "localhost:1:2")
        for command in (("status",), ("cluster", "verify"), create):
            result = run(*command)
            assert result.returncode == 1
            assert f"is damaged: {ROOT}/store/{name} is missing" in result.stderr
        asyncio.run(restore(data))
