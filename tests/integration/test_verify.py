"""``waltz cluster verify`` finds each fault that is planted in a cluster of real nodes, and nothing when it is gone."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.integration.spare import SpareCluster
from tests.integration.test_storage_tools import Result, done
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import (
    PartitionAssignment,
    PartitionGeneration,
    PartitionMetadata,
    ReplicaId,
    ReplicaState,
)
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node
from waltz.operations.storages import connection
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 60.0
EAGER = {"storage.maxRetryInterval": 1000}
"""Servers try lost storages again after at most this number of milliseconds."""

PATHS = ClusterPaths.of(ROOT)

ASSIGNMENT = "PARTITION_ASSIGNMENT_ZK_VALIDITY"
SERVER = "PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY"
CONNECTIVITY = "SERVER_STORAGE_CONNECTIVITY"
STORAGE = "PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY"
QUORUM = "PARTITION_QUORUM_STATUS"
RECOVERY = "REPLICA_RECOVERY_STATUS"
HEALTH = "SERVER_PARTITION_HEALTH_CHECK"
NODE = "NODE_HEALTH"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three storages hold the partition, a fourth one does not."""
    with (
        SpareCluster(
            tmp_path_factory.mktemp("verified"), storages=4, servers=1, plaintext=True, server_overrides=EAGER
        ) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        yield running


def until_found(cluster: LocalCluster, expected: dict[str, str]) -> None:
    """Verify until the checks that fail are exactly these, each with a reason that has the text in it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        result: Result = run("cluster", "verify", "--exit-code", "--json", "-t", "5")
        failures = json.loads(result.stdout)["failures"]
        found = {each["check"]: "\n".join(each["reasons"]) for each in failures}
        if found.keys() == expected.keys() and all(text in found[check] for check, text in expected.items()):
            assert result.returncode == (1 if expected else 0)
            return
        assert time.monotonic() < deadline_s, (expected, found)
        cluster.check()
        time.sleep(0.2)


Change = Callable[[bytes | None], bytes]


def rewrite(cluster: LocalCluster, path: str, change: Change) -> bytes | None:
    """Change a node of ZooKeeper by force, and return its former data."""

    async def at(zookeeper: ZooKeeper) -> bytes | None:
        data, stat = await zookeeper.get(path)
        await zookeeper.set(path, change(data), stat.version)
        return data

    async def connected(work: Callable[[ZooKeeper], Awaitable[bytes | None]]) -> bytes | None:
        zookeeper = await cluster.zookeeper()
        try:
            return await work(zookeeper)
        finally:
            await zookeeper.close()

    return asyncio.run(connected(at))


@contextmanager
def off(node: Node) -> Iterator[None]:
    """The partition is switched off there."""
    switch = ("storage", "availability", "-s", f"localhost:{node.admin_port}", "-p", "0", "-o")
    done(*switch, "false")
    try:
        yield
    finally:
        done(*switch, "true")


def owned_by(*server_ids: int) -> Change:
    """An assignment that gives the partition to servers which do not exist, or to none."""

    def change(data: bytes | None) -> bytes:
        stored = PartitionAssignment.decode(data)
        assert stored.cversion >= 0
        return stored._replace(servers=dict.fromkeys(server_ids, (PartitionGeneration(0, 1_000_000),))).encode()

    return change


@pytest.mark.parametrize(
    ("server_ids", "expected"),
    [
        (
            (98, 99),
            {
                ASSIGNMENT: "the assignment gives it to servers 98, 99",
                SERVER: "there is not exactly one server to be asked",
                CONNECTIVITY: "there is not exactly one server to be asked",
                HEALTH: "there is not exactly one server to be asked",
            },
        ),
        ((99,), {SERVER: "server 99 is gone", CONNECTIVITY: "server 99 is gone", HEALTH: "server 99 is gone"}),
    ],
)
def test_a_wrong_assignment_to_servers(
    cluster: LocalCluster, server_ids: tuple[int, ...], expected: dict[str, str]
) -> None:
    until_found(cluster, {})
    before = rewrite(cluster, PATHS.server_descriptors, owned_by(*server_ids))
    try:
        until_found(cluster, expected)
    finally:
        rewrite(cluster, PATHS.server_descriptors, lambda _: before or b"")
    until_found(cluster, {})


def test_a_storage_that_has_not_what_it_is_to_have_and_one_that_has_what_it_is_not_to_have(
    cluster: LocalCluster,
) -> None:
    *_, third, spare = cluster.layout.storages
    for node, there, back, expected in (
        (spare, "add-partition", "remove-partition", {STORAGE: f"{spare.connect_string} holds it and is not to"}),
        (
            third,
            "remove-partition",
            "add-partition",
            {STORAGE: f"{third.connect_string} is to hold it and does not"},
        ),
    ):
        where = ("-s", f"localhost:{node.admin_port}", "-p", "0")
        done("storage", there, *where)
        done("append", "-p", "0", "notices who does not answer")
        until_found(cluster, expected)
        done("storage", back, *where)
        until_found(cluster, {})


def test_a_replica_that_is_switched_off(cluster: LocalCluster) -> None:
    node = cluster.layout.storages[0]
    with off(node):
        done("append", "-p", "0", "without it")
        until_found(cluster, {RECOVERY: f"storage {node.connect_string} has it switched off"})
        assert f"2 of 3 current, {node.connect_string} offline" in done("status", "--interval", "0")
    until_found(cluster, {})


def test_a_replica_that_lags(cluster: LocalCluster) -> None:
    """Though it takes full part by all that ZooKeeper and the servers know."""
    node = cluster.layout.storages[0]

    async def cut() -> None:
        zookeeper = await cluster.zookeeper()
        handle = ClusterHandle(zookeeper, ROOT, None)
        admin_port, port = Endpoint("localhost", node.admin_port), Endpoint("localhost", node.port)
        async with (
            connection(StorageAdminClient, handle, admin_port) as admin,
            connection(StorageClient, handle, port) as data,
        ):
            session_id = (await admin.last_session_info(0)).session_id
            last_id = await data.max_transaction_id(session_id, 0, timeout_s=TIMEOUT_S)
            await data.truncate(session_id, 0, last_id - 1, timeout_s=TIMEOUT_S)
        await zookeeper.close()

    done("append", "-p", "0", "one that is lost there")
    until_found(cluster, {})
    asyncio.run(cut())
    until_found(cluster, {RECOVERY: f"storage {node.connect_string} lacks 1 committed transaction"})
    done("append", "-p", "0", "one that does not fit there")
    until_found(cluster, {})


def test_a_partition_that_is_not_healthy(cluster: LocalCluster) -> None:
    first, second, *_ = cluster.layout.storages
    with off(first), off(second):
        assert run("append", "-p", "0", "nobody takes it", "-t", "1").returncode == 1
        until_found(
            cluster,
            {QUORUM: "1 of 3 replicas are online", RECOVERY: "has it switched off", HEALTH: "calls it unhealthy"},
        )
    until_found(cluster, {})


def test_metadata_that_diverge_from_the_assignment(cluster: LocalCluster) -> None:
    first, *_, spare = cluster.layout.storages

    def swap(data: bytes | None) -> bytes:
        stored = PartitionMetadata.decode(data)
        replicas = dict(stored.replicas)
        state = replicas.pop(ReplicaId(0, first.connect_string))
        other = ReplicaId(0, spare.connect_string)
        replicas[other] = ReplicaState(other, state.session_id - 1, 3)
        return stored._replace(replicas=replicas).encode()

    before = rewrite(cluster, PATHS.partition(0), swap)
    until_found(cluster, {RECOVERY: f"the metadata do not list storage {first.connect_string}, which is to hold it"})
    until_found(cluster, {RECOVERY: f"the metadata list storage {spare.connect_string}, which is not to hold it"})
    until_found(cluster, {RECOVERY: f"storage {spare.connect_string} was left in session "})
    rewrite(cluster, PATHS.partition(0), lambda _: before or b"")
    until_found(cluster, {})


def test_a_dead_replica_and_a_dead_owner(cluster: LocalCluster) -> None:
    node = cluster.layout.storages[0]
    cluster.kill(node)
    done("append", "-p", "0", "without it")
    until_found(
        cluster,
        {
            CONNECTIVITY: f"does not reach storage {node.connect_string}",
            STORAGE: f"storage {node.connect_string} did not report its partitions: ",
            NODE: "it does not answer: ",
        },
    )
    cluster.kill(cluster.layout.servers[0])
    silent = {**dict.fromkeys((SERVER, CONNECTIVITY, HEALTH), "server "), NODE: "it does not answer: "}
    until_found(cluster, {**silent, STORAGE: f"storage {node.connect_string} did not report its partitions: "})
