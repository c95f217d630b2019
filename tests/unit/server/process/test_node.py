"""A server in a cluster of one ZooKeeper in memory, with logs that commit when they are told to."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.server.fakes import FakeLog
from waltz.common import daemon
from waltz.common.config.schemas import ServerConfig, TlsConfig
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.replica_states import REMEDIES, ReplicaStatus
from waltz.common.zk import store_admin
from waltz.server.process import node, replica_rounds
from waltz.server.process.node import WaltzServer
from waltz.server.store.connections import ConnectFunction, StorageRpc
from waltz.server.store.interface import LogListener, StoreOptions
from waltz.server.store.memory import MemoryAccount
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.serving.console import ServerConsole

ROOT = "/cluster"
PARTITIONS = 3


class NodeLog(FakeLog):
    """Made the way the node makes real logs."""

    made: ClassVar[list["NodeLog"]] = []

    def __init__(
        self,
        partition_id: int,
        generation: int,
        replicas: frozenset[str],
        connections: object,
        zookeeper: object,
        root: str,
        listener: LogListener,
        options: StoreOptions,
        ring_memory: MemoryAccount,
    ) -> None:
        super().__init__(listener)
        self.partition_id = partition_id
        self.generation = generation
        self.replicas = replicas
        self.options = options
        self.ring_memory = ring_memory
        NodeLog.made.append(self)


def no_storage(*_: object) -> ConnectFunction:
    async def refuse(storage: str) -> StorageRpc:
        raise WaltzError(f"{storage} is not there")

    return refuse


def config(**settings: object) -> ServerConfig:
    values: dict[str, object] = {
        "zookeeper_connect_string": "memory",
        "zookeeper_session_timeout_ms": 10_000,
        "cluster_root": ROOT,
        "server_port": 0,
        "server_host": "localhost",
        "server_bind_address": "127.0.0.1",
        "tls": TlsConfig(plaintext=True),
    }
    return ServerConfig.model_validate(values | settings)


class Cluster:
    def __init__(self, tree: MemoryZooKeeperServer, admin: MemoryZooKeeper) -> None:
        self.tree = tree
        self.admin = admin
        self.servers: list[WaltzServer] = []
        self.clients: list[MemoryZooKeeper] = [admin]

    async def server(self, *, start: bool = True, **settings: object) -> WaltzServer:
        self.clients.append(await self.tree.connect())
        self.servers.append(
            WaltzServer(config(**settings), self.clients[-1], make_connector=no_storage, make_console=ServerConsole)
        )
        if start:
            await self.servers[-1].start()
        return self.servers[-1]


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(node, "ReplicatedLog", NodeLog)
    NodeLog.made = []
    tree = MemoryZooKeeperServer()
    made = Cluster(tree, await tree.connect())
    await store_admin.create_cluster(made.admin, ROOT, "test", PARTITIONS)
    await store_admin.add_storage_node(made.admin, ROOT, "s1:6000", 1, 6100)
    await store_admin.assign_partitions(made.admin, ROOT, "s1:6000", range(PARTITIONS))
    yield made
    for server in made.servers:
        await server.close()
    for client in made.clients:
        await client.close()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_server_joins_when_its_port_listens_and_gets_the_partitions(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: set(server.partitions) == {0, 1, 2})
    (descriptor,) = await store_admin.read_server_descriptors(cluster.admin, ROOT)
    assert descriptor.server_id == server.server_id == 1
    assert descriptor.endpoint == server.endpoint == Endpoint("localhost", server.endpoint.port)
    _, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
    writer.close()
    assert server.cluster_name == "test"
    assert all(log.generation == 1 and log.replicas == {"s1:6000"} and log.started for log in NodeLog.made)


async def test_settings_reach_partitions_and_logs(cluster: Cluster) -> None:
    await cluster.server(
        storage_max_batch_size=7,
        storage_initial_retry_interval_ms=50,
        storage_max_retry_interval_ms=3000,
        storage_checkpoint_interval=99,
    )
    await until(lambda: len(NodeLog.made) == PARTITIONS)
    options = NodeLog.made[0].options
    assert (options.max_batch_size, options.checkpoint_interval) == (7, 99)
    assert (options.initial_retry_interval_s, options.max_retry_interval_s) == (0.05, 3.0)


async def test_partitions_are_shared_and_handed_over_when_a_server_closes(cluster: Cluster) -> None:
    first = await cluster.server()
    await until(lambda: len(first.partitions) == PARTITIONS)
    second = await cluster.server()
    await until(lambda: first.partitions.keys() | second.partitions.keys() == {0, 1, 2})
    await until(lambda: not first.partitions.keys() & second.partitions.keys() and second.partitions)
    await first.close()
    await until(lambda: set(second.partitions) == {0, 1, 2})
    assert first.partitions == {}
    (descriptor,) = await store_admin.read_server_descriptors(cluster.admin, ROOT)
    assert descriptor.server_id == second.server_id


async def test_leaving_the_cluster_comes_before_closing_partitions(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)
    members_at_close: list[int] = []

    for log in NodeLog.made:

        async def close() -> None:
            members_at_close.append(len(await store_admin.read_server_descriptors(cluster.admin, ROOT)))

        log.close = close  # type: ignore[method-assign]  # a log that looks around while it is closed
    await server.close()
    assert members_at_close == [0] * PARTITIONS


async def test_a_partition_that_does_not_close_does_not_keep_the_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "CLOSE_STEP_TIMEOUT_S", 0.05)
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)

    async def close() -> None:
        await asyncio.Event().wait()

    NodeLog.made[0].close = close  # type: ignore[method-assign]  # a log that never ends
    await server.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.endpoint.port)


async def test_replica_changes_reach_only_whom_they_concern(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)
    await store_admin.add_storage_node(cluster.admin, ROOT, "s2:6000", 1, 6100)
    await store_admin.assign_partitions(cluster.admin, ROOT, "s2:6000", [1])
    logs = {log.partition_id: log for log in NodeLog.made}
    await until(lambda: logs[1].replicas == {"s1:6000", "s2:6000"})
    assert logs[0].replicas == logs[2].replicas == {"s1:6000"}
    gauge = {metric.name: read() for metric, read in server.registry.gauges.items() if metric.group == "waltz-server"}
    assert gauge["replica-info"] == {0: ["s1:6000"], 1: ["s1:6000", "s2:6000"], 2: ["s1:6000"]}
    assert gauge["waltz-server-num-partitions"] == PARTITIONS
    assert gauge["cluster-name"] == "test"
    assert gauge["server-id"] == 1
    assert gauge["endpoint"] == str(server.endpoint)
    assert gauge["is-closed"] is False


async def test_replica_changes_are_seen_after_zookeeper_was_away(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)
    cluster.tree.disconnect(cluster.clients[-1])
    await store_admin.add_storage_node(cluster.admin, ROOT, "s2:6000", 1, 6100)
    await store_admin.assign_partitions(cluster.admin, ROOT, "s2:6000", [0])
    cluster.tree.reconnect(cluster.clients[-1])
    logs = {log.partition_id: log for log in NodeLog.made}
    await until(lambda: logs[0].replicas == {"s1:6000", "s2:6000"})


async def test_health_is_that_of_zookeeper_and_the_partitions(cluster: Cluster) -> None:
    server = await cluster.server(zookeeper_session_timeout_ms=1)
    await until(lambda: len(server.partitions) == PARTITIONS)
    healthy = {"healthy": True, "zookeeper": True, "partitions": {"0": True, "1": True, "2": True}}
    assert server.health() == (True, {"server-health-check": healthy})
    next(log for log in NodeLog.made if log.partition_id == 1).healthy = False
    sick = healthy | {"healthy": False, "partitions": {"0": True, "1": False, "2": True}}
    assert server.health() == (False, {"server-health-check": sick})
    cluster.tree.disconnect(cluster.clients[-1])
    away = sick | {"zookeeper": False}
    await until(lambda: server.health() == (False, {"server-health-check": away}))
    cluster.tree.reconnect(cluster.clients[-1])


async def test_warnings_of_partitions_are_told_beside_their_health(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)
    next(log for log in NodeLog.made if log.partition_id == 2).trouble = "session 7 waits"
    healthy, document = server.health()
    assert healthy
    assert isinstance(document, dict)
    assert document["server-health-check"]["warnings"] == {"2": ["session 7 waits"]}


async def test_replicas_that_do_not_follow_are_shown_and_logged(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replica_rounds, "ROUND_S", 0.01)
    caplog.set_level("INFO")
    server = await cluster.server()
    await until(lambda: len(server.partitions) == PARTITIONS)
    log = next(log for log in NodeLog.made if log.partition_id == 1)
    log.replica_views = (
        ReplicaView("s1:6000", ReplicaStatus.CURRENT, 0),
        ReplicaView("s2:6000", ReplicaStatus.LAGGING, 812),
    )
    healthy, document = server.health()
    assert healthy
    assert isinstance(document, dict)
    assert document["server-health-check"]["underReplicated"] == {
        "1": {
            "s1:6000": {"state": "current", "lag": 0},
            "s2:6000": {"state": "lagging", "lag": 812, "do": str(REMEDIES[ReplicaStatus.LAGGING])},
        }
    }
    text = prometheus_text(server.registry)
    for line in (
        "waltz_server_under_replicated_partitions 1",
        "waltz_server_unhealthy_partitions 0",
        "waltz_server_zookeeper_connected 1",
        'waltz_server_partition_replica_lag_transactions{partition="1",storage="s2:6000"} 812',
        'waltz_server_partition_feed_lag_seconds{partition="1"} 0.0',
        'waltz_server_partition_replica_state_info{partition="1",storage="s2:6000",value="lagging"} 1',
        'waltz_server_partition_replicas{partition="1"} 2',
        'waltz_server_partition_current_replicas{partition="1"} 1',
    ):
        assert f"{line}\n" in text
    await until(lambda: "partition 1: replica s2:6000 is lagging, 812 transactions behind" in caplog.text)
    log.replica_views = (ReplicaView("s2:6000", ReplicaStatus.CURRENT, 0),)
    await until(lambda: "partition 1: replica s2:6000 is current (was lagging)" in caplog.text)


async def test_a_short_absence_of_zookeeper_is_healthy(cluster: Cluster) -> None:
    server = await cluster.server()
    cluster.tree.disconnect(cluster.clients[-1])
    assert server.health()[0]
    cluster.tree.reconnect(cluster.clients[-1])


async def test_without_its_zookeeper_session_a_server_is_in_doubt(cluster: Cluster) -> None:
    server = await cluster.server()
    await until(lambda: server.partitions)
    for _ in range(2):
        cluster.tree.disconnect(cluster.clients[-1])
        assert not any(partition.in_doubt for partition in server.partitions.values()), "it may come back in time"
        cluster.tree.expire(cluster.clients[-1])
        assert all(partition.in_doubt for partition in server.partitions.values())
        cluster.tree.reconnect(cluster.clients[-1])
        assert not any(partition.in_doubt for partition in server.partitions.values())


async def test_http(cluster: Cluster) -> None:
    server = await cluster.server(server_jetty_port=0)
    assert server.http_port
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"server-health-check" in answer


async def test_preferred_partitions_move(cluster: Cluster) -> None:
    first = await cluster.server()
    second = await cluster.server()
    await until(lambda: len(first.partitions) + len(second.partitions) == PARTITIONS)
    await second._set_preferred([0, 1, 2])
    await until(lambda: set(second.partitions) == {0, 1, 2})


async def test_preferred_partitions_of_a_server_that_is_no_member_are_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It listens before it joins, and while it leaves."""
    server = await cluster.server()
    assert server._manager is not None
    assert server._service is not None
    await server._manager.unmanage_server(server)
    assert await server._service._change_preferred([0], add=True) is False
    assert "is not a member of the cluster" in caplog.text


async def test_a_missing_cluster_is_one_clear_line(cluster: Cluster) -> None:
    server = await cluster.server(start=False, cluster_root="/elsewhere")
    with pytest.raises(WaltzError, match=r"there is no cluster at /elsewhere"):
        await server.start()


async def test_a_taken_port_is_one_clear_line_and_nothing_stays(cluster: Cluster) -> None:
    first = await cluster.server()
    second = await cluster.server(start=False, server_port=first.endpoint.port)
    with pytest.raises(WaltzError, match="in use"):
        await second.start()
    (descriptor,) = await store_admin.read_server_descriptors(cluster.admin, ROOT)
    assert descriptor.server_id == first.server_id


async def test_run_ends_on_sigterm_and_leaves_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: object, **__: object) -> MemoryZooKeeper:
        return await cluster.tree.connect()

    monkeypatch.setattr(node, "connect_configured", connect)
    running = asyncio.create_task(node.run(config()))
    await until(lambda: len(NodeLog.made) == PARTITIONS)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await running
    assert await store_admin.read_server_descriptors(cluster.admin, ROOT) == []
    assert all(log.closed == 1 for log in NodeLog.made)


async def test_run_ends_on_sigterm_while_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = asyncio.Event()

    async def connect(*_: object, **__: object) -> MemoryZooKeeper:
        connecting.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(node, "connect_configured", connect)
    running = asyncio.create_task(node.run(config()))
    await connecting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await running


async def test_run_raises_what_keeps_it_from_starting(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: object, **__: object) -> MemoryZooKeeper:
        return await cluster.tree.connect()

    monkeypatch.setattr(node, "connect_configured", connect)
    with pytest.raises(WaltzError, match="no cluster"):
        await node.run(config(cluster_root="/elsewhere"))
