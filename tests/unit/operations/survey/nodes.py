"""Servers and storages that tell what the test wants, in a cluster on a ZooKeeper in memory."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.client.fake_server import Connection, FakeServer, Log
from tests.unit.common.cluster.fakes import GENERATION, KEY, SESSION, FakeStorage, make_metadata
from waltz.cli.session import Session
from waltz.common.ids import ReqId
from waltz.common.storage_health import StorageHealth
from waltz.common.wire import admin
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.client_server import CheckStorageConnectivityRequest, CheckStorageConnectivityResponse, Message
from waltz.common.wire.structures import SessionInfo
from waltz.common.wire.write_sessions import (
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
)
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import add_storage_node, assign_partitions, create_cluster
from waltz.common.zk.znodes import UNRESOLVED, PartitionAssignment, PartitionGeneration, ServerDescriptor

ROOT = "/waltz"
WRITE_SESSION = 12
ORIGINAL = (0, 1, 2, 3, 4)
OURS = (*ORIGINAL, 5)
STORAGES = ("127.0.0.1:6000", "127.0.0.1:6001", "127.0.0.1:6002")


class TellingStorage(FakeStorage):
    """Tells which partitions it has, and which are online."""

    def __init__(self, partition_count: int) -> None:
        super().__init__({})
        self.partition_count = partition_count
        self.status = dict.fromkeys(range(partition_count), True)
        self.last_ids = dict.fromkeys(range(partition_count), -1)
        self.session_id = SESSION
        self.confused = False
        """Whether it answers the question for its metrics with something else."""
        self.health: StorageHealth | None = None
        """What it tells of its health; None as a node of the original."""

    def _answer(self, message: admin_wire.Message) -> admin_wire.Message:
        if isinstance(message, admin.AssignedPartitionStatusRequest):
            return admin.AssignedPartitionStatusResponse(message.seq_num, tuple(self.status.items()))
        if isinstance(message, admin.LastSessionInfoRequest):
            info = SessionInfo(self.session_id, -1, -1)
            return admin.LastSessionInfoResponse(message.seq_num, message.partition_id, info)
        if isinstance(message, admin.MetricsRequest):
            if self.confused:
                return admin.MetricsResponse(message.seq_num, "{}")
            gauges: dict[str, dict[str, object]] = {
                f"waltz-storage.partition-{partition_id}.max-transaction-id": {"value": last_id}
                for partition_id, last_id in self.last_ids.items()
            }
            for partition_id, is_online in self.status.items():
                out = self.health is not None and partition_id in self.health.out_of_service
                group = f"waltz-storage.partition-{partition_id}"
                gauges[f"{group}.flags"] = {"value": 5 if is_online or out else 4}
                gauges[f"{group}.session-id"] = {"value": self.session_id}
            if self.health is not None:
                gauges["waltz-storage.waltz-storage-health"] = {"value": self.health.problems()}
            return admin.MetricsResponse(message.seq_num, json.dumps({"gauges": gauges}))
        return super()._answer(message)


class Nodes:
    """A cluster of two partitions, each with a server of its own, server 1 and 2, and all three storages."""

    def __init__(self, zookeeper: ZooKeeper, servers: list[FakeServer], storages: list[TellingStorage]) -> None:
        self.zookeeper = zookeeper
        self.servers = servers
        self.storages = storages
        self.logs: dict[int, Log] = {}
        self.reached = dict.fromkeys(STORAGES, True)
        """Whether servers reach the storages."""
        self.session = Session(zookeeper, ROOT, None)

    async def describe(self) -> None:
        await create_cluster(self.zookeeper, ROOT, "fake", 2, KEY)
        for name, storage in zip(STORAGES, self.storages, strict=True):
            await add_storage_node(self.zookeeper, ROOT, name, 0, storage.admin_port)
            await assign_partitions(self.zookeeper, ROOT, name, [0, 1])
        paths = ClusterPaths.of(ROOT)
        for partition_id, server in enumerate(self.servers):
            path = paths.server_descriptor("s_")
            descriptor = ServerDescriptor(partition_id + 1, server.endpoint)
            await self.zookeeper.create(path, descriptor.encode(), ephemeral=True, sequential=True)
            states = dict.fromkeys(STORAGES, (SESSION, UNRESOLVED))
            await self.zookeeper.create(paths.partition(partition_id), make_metadata(partition_id, states).encode())
            server.filter = self._tell
        await self.assign({1: (0,), 2: (1,)})

    async def assign(self, owned: dict[int, tuple[int, ...]]) -> None:
        """Write which server owns which partitions."""
        servers = {
            server_id: tuple(PartitionGeneration(partition_id, GENERATION) for partition_id in partitions)
            for server_id, partitions in owned.items()
        }
        assignment = PartitionAssignment(1, 2, servers)
        await self.zookeeper.set(ClusterPaths.of(ROOT).server_descriptors, assignment.encode())

    def _tell(self, connection: Connection, message: Message) -> bool:
        if isinstance(message, LastTransactionIdRequest):
            last_id = self.logs[ReqId(message.req_id).partition_id].high_water_mark
            connection.send(LastTransactionIdResponse(message.req_id, LastTransactionStatus.OK, last_id, WRITE_SESSION))
            return True
        if not isinstance(message, CheckStorageConnectivityRequest):
            return False
        connection.send(CheckStorageConnectivityResponse(message.req_id, tuple(self.reached.items())))
        return True


@asynccontextmanager
async def running(*versions: tuple[int, ...]) -> AsyncIterator[Nodes]:
    """Servers with these versions of the protocol."""
    zookeeper = await MemoryZooKeeperServer().connect()
    logs = {partition_id: Log(partition_id) for partition_id in range(2)}
    servers = [
        await FakeServer.open(logs, [partition_id], versions=known) for partition_id, known in enumerate(versions)
    ]
    storages = [TellingStorage(2) for _ in STORAGES]
    for storage in storages:
        await storage.start()
    nodes = Nodes(zookeeper, servers, storages)
    nodes.logs = logs
    await nodes.describe()
    try:
        yield nodes
    finally:
        for server in servers:
            await server.close()
        for storage in storages:
            await storage.stop()
        await zookeeper.close()


async def prefer(nodes: Nodes, *partition_ids: int) -> None:
    """Have all servers prefer these partitions."""
    paths = ClusterPaths.of(ROOT)
    for name in await nodes.zookeeper.children(paths.server_descriptors):
        path = paths.server_descriptor(name)
        descriptor = ServerDescriptor.decode((await nodes.zookeeper.get(path))[0], path)
        await nodes.zookeeper.set(path, descriptor._replace(preferred_partitions=partition_ids).encode())
