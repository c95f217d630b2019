"""Cases of the cluster manager that hold on any ZooKeeper, and the servers and clients they use."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest

from tests.unit.common.zk.conformance import Ensemble
from waltz.common.cluster.manager import ClusterManager
from waltz.common.ids import Endpoint
from waltz.common.zk import store_admin
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import create_cluster, read_partition_assignment, read_server_descriptors
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration, ServerDescriptor

_numbers = itertools.count()
_TIMEOUT_S = 30.0


class Observer:
    """Something that is called back, and awaited until it has seen enough."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def called(self) -> None:
        self._called.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            while not condition():
                self._called.clear()
                await self._called.wait()


class FakeServer(Observer):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.endpoint = Endpoint(name, 8000)
        self.joined: list[tuple[str, int]] = []
        self.calls: list[list[PartitionGeneration]] = []

    @property
    def server_id(self) -> int:
        return self.joined[0][1]

    @property
    def partitions(self) -> dict[int, int]:
        return dict(self.calls[-1]) if self.calls else {}

    def cluster_joined(self, cluster_name: str, server_id: int) -> None:
        assert not self.calls
        self.joined.append((cluster_name, server_id))

    def set_partitions(self, partitions: list[PartitionGeneration]) -> None:
        self.calls.append(partitions)
        self.called()

    async def until_owns(self, count: int) -> None:
        await self.until(lambda: len(self.partitions) == count and bool(self.calls))

    async def until_told(self, assignment: PartitionAssignment) -> None:
        await self.until(lambda: self.partitions == dict(assignment.servers[self.server_id]))

    async def until_prefers(self, partition_id: int) -> None:
        await self.until(lambda: partition_id in self.partitions)


class FakeClient(Observer):
    def __init__(self) -> None:
        super().__init__()
        self.joined: list[tuple[str, int, int]] = []
        self.endpoints: dict[Endpoint, dict[int, int]] = {}
        self.removed: list[Endpoint] = []

    def cluster_joined(self, cluster_name: str, client_id: int, partition_count: int) -> None:
        self.joined.append((cluster_name, client_id, partition_count))

    def set_endpoints(self, endpoints: dict[Endpoint, list[PartitionGeneration]]) -> None:
        assert self.joined
        self.endpoints = {endpoint: dict(owned) for endpoint, owned in endpoints.items()}
        self.called()

    def remove_server(self, endpoint: Endpoint) -> None:
        self.removed.append(endpoint)
        self.endpoints.pop(endpoint, None)
        self.called()

    async def until_sees(self, servers: Iterable[FakeServer], partition_count: int) -> None:
        """All servers, and all partitions at them as the servers themselves say."""

        def settled() -> bool:
            if self.endpoints != {server.endpoint: server.partitions for server in servers}:
                return False
            return sum(map(len, self.endpoints.values())) == (partition_count if self.endpoints else 0)

        # Servers are told before clients in a process, but processes are told in any order.
        async with asyncio.timeout(_TIMEOUT_S):
            while not settled():
                await asyncio.sleep(0.001)


class Process:
    """A ZooKeeper client with a cluster manager."""

    def __init__(self, zookeeper: ZooKeeper, manager: ClusterManager) -> None:
        self.zookeeper = zookeeper
        self.manager = manager

    async def add_server(self, name: str) -> FakeServer:
        server = FakeServer(name)
        assert await self.manager.manage_server(server) == server.server_id
        return server

    async def add_client(self) -> FakeClient:
        client = FakeClient()
        await self.manager.manage_client(client)
        return client


class Cluster:
    """A new cluster and its processes."""

    def __init__(self, ensemble: Ensemble, zookeeper: ZooKeeper, root: str) -> None:
        self.ensemble = ensemble
        self.zookeeper = zookeeper
        self.root = root
        self.paths = ClusterPaths.of(root)
        self.processes: list[Process] = []

    async def process(self) -> Process:
        zookeeper = await self.ensemble.connect()
        process = Process(zookeeper, await ClusterManager.open(zookeeper, self.root))
        self.processes.append(process)
        return process

    async def stop(self, process: Process) -> None:
        self.processes.remove(process)
        await process.manager.close()
        await process.zookeeper.close()

    async def assignment(self) -> PartitionAssignment:
        return await read_partition_assignment(self.zookeeper, self.root)

    async def versions(self) -> tuple[int, int]:
        _, stat = await self.zookeeper.get(self.paths.server_descriptors)
        return stat.version, stat.cversion

    async def servers(self) -> list[ServerDescriptor]:
        return await read_server_descriptors(self.zookeeper, self.root)

    async def until_registered_again(self, process: Process) -> PartitionAssignment:
        """The process has its server in its present session; returns the assignment to the servers that are there.

        Others see the server gone in between, or do not: its process may be quicker than their reading.
        """
        parent = self.paths.server_descriptors
        async with asyncio.timeout(_TIMEOUT_S):
            while True:
                names = await self.zookeeper.children(parent)
                stats = [await self.zookeeper.exists(f"{parent}/{name}") for name in names]
                data, stat = await self.zookeeper.get(parent)
                registered = process.zookeeper.session_id in [node.owner for node in stats if node is not None]
                assignment = PartitionAssignment.decode(data)
                if registered and assignment.cversion == stat.cversion:
                    return assignment
                await asyncio.sleep(0.001)


MakeCluster = Callable[[int], Awaitable[Cluster]]


class ManagerCases:
    """The cases; subclasses give the ``ensemble`` fixture."""

    @pytest.fixture
    async def make_cluster(self, ensemble: Ensemble) -> AsyncIterator[MakeCluster]:
        clusters: list[Cluster] = []

        async def make(partition_count: int) -> Cluster:
            root = f"/manager/{next(_numbers)}"
            zookeeper = await ensemble.connect()
            await create_cluster(zookeeper, root, "demo", partition_count)
            clusters.append(Cluster(ensemble, zookeeper, root))
            return clusters[-1]

        yield make
        for cluster in clusters:
            for process in list(cluster.processes):
                await cluster.stop(process)
            assert await cluster.servers() == []
            await store_admin.delete_cluster(cluster.zookeeper, cluster.root, "demo")
            await cluster.zookeeper.close()

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
    async def test_servers_come_and_go(self, make_cluster: MakeCluster, count: int) -> None:
        cluster = await make_cluster(count)
        watching = await cluster.process()
        client = await watching.add_client()
        assert client.joined == [("demo", 1, count)]
        assert client.endpoints == {}
        one, two = await cluster.process(), await cluster.process()
        for _ in range(2):
            first = await one.add_server("h1")
            await first.until_owns(count)
            await client.until_sees([first], count)
            second = await two.add_server("h2")
            await second.until_owns(count // 2)
            await first.until_owns(count - count // 2)
            await client.until_sees([first, second], count)
            await one.manager.unmanage_server(first)
            await second.until_owns(count)
            await client.until_sees([second], count)
            await two.manager.unmanage_server(second)
            await client.until_sees([], count)
        assert client.removed == [Endpoint("h1", 8000), Endpoint("h2", 8000)] * 2

    async def test_versions_and_generations(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(2)
        process = await cluster.process()
        first = await process.add_server("h1")
        await first.until_owns(2)
        assert first.joined == [("demo", 1)]
        assert first.partitions == {0: 1, 1: 1}
        assert await cluster.versions() == (1, 1)
        second = await process.add_server("h2")
        await second.until_owns(1)
        assert second.joined == [("demo", 2)]
        assert (first.partitions, second.partitions) == ({0: 1}, {1: 2})
        assert await cluster.versions() == (2, 2)
        assert (await cluster.assignment()).cversion == 2
        await process.manager.unmanage_server(first)
        await second.until_owns(2)
        await process.manager.unmanage_server(second)
        assert await cluster.versions() == (3, 4)
        assert (await cluster.assignment()).cversion == 3

    async def test_generations_survive_the_absence_of_all(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(3)
        process = await cluster.process()
        first = await process.add_server("h1")
        await first.until_owns(3)
        await cluster.stop(process)
        process = await cluster.process()
        second = await process.add_server("h1")
        await second.until_owns(3)
        assert second.server_id == first.server_id + 1
        assert second.partitions == {0: 2, 1: 2, 2: 2}

    async def test_preferred_partitions(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(3)
        process = await cluster.process()
        client = await process.add_client()
        first = await process.add_server("h1")
        await first.until_owns(3)
        await process.manager.set_preferred_partitions(first, [1, 1])
        await first.until(lambda: len(first.calls) == 2)
        assert await cluster.versions() == (2, 1)
        assert first.partitions == {0: 1, 1: 1, 2: 1}
        assert [s.preferred_partitions for s in await cluster.servers()] == [(1,)]
        second = await process.add_server("h2")
        await second.until_owns(1)
        assert first.partitions.keys() == {0, 1}
        assert await cluster.versions() == (3, 2)
        await process.manager.set_preferred_partitions(second, [0])
        await second.until(lambda: second.partitions.keys() == {0, 2})
        assert second.partitions == {0: 2, 2: 2}
        assert first.partitions == {1: 1}
        await client.until_sees([first, second], 3)

    async def test_expiry(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(10)
        one, two = await cluster.process(), await cluster.process()
        first = await one.add_server("h1")
        await first.until_owns(10)
        client = await two.add_client()
        await cluster.ensemble.expire(one.zookeeper)
        await cluster.until_registered_again(one)
        await client.until_sees([first], 10)
        servers = await cluster.servers()
        assert servers == [ServerDescriptor(first.server_id, first.endpoint)]
        assert first.partitions == dict.fromkeys(range(10), 1)
        second = await two.add_server("h2")
        await second.until_owns(5)
        await first.until_owns(5)
        await cluster.ensemble.expire(one.zookeeper)
        assignment = await cluster.until_registered_again(one)
        await first.until_told(assignment)
        await second.until_told(assignment)
        await client.until_sees([first, second], 10)
        assert (len(first.partitions), len(second.partitions)) == (5, 5)
        assert sorted(s.server_id for s in await cluster.servers()) == [1, 2]

    async def test_everybody_at_once(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(7)
        processes = [await cluster.process() for _ in range(3)]
        registered = await asyncio.gather(
            *(process.add_server(f"h{index}") for index, process in enumerate(processes)),
            *(process.add_client() for process in processes),
        )
        servers = [item for item in registered if isinstance(item, FakeServer)]
        clients = [item for item in registered if isinstance(item, FakeClient)]
        assert sorted(server.server_id for server in servers) == [1, 2, 3]
        assert sorted(client.joined[0][1] for client in clients) == [1, 2, 3]
        for client in clients:
            await client.until_sees(servers, 7)
        assert sorted(len(server.partitions) for server in servers) == [2, 2, 3]
        await asyncio.gather(
            *(
                p.manager.set_preferred_partitions(s, [i])
                for i, (p, s) in enumerate(zip(processes, servers, strict=True))
            )
        )
        for index, server in enumerate(servers):
            await server.until_prefers(index)
        for client in clients:
            await client.until_sees(servers, 7)

    async def test_foreign_children_freeze_nothing(self, make_cluster: MakeCluster) -> None:
        cluster = await make_cluster(4)
        parent = cluster.paths.server_descriptors
        await cluster.zookeeper.create(f"{parent}/foreign", None)
        await cluster.zookeeper.create(f"{parent}/s_corrupt", b"\x07")
        process = await cluster.process()
        client = await process.add_client()
        server = await process.add_server("h1")
        await server.until_owns(4)
        await client.until_sees([server], 4)
        await cluster.zookeeper.delete(f"{parent}/foreign")
        await cluster.zookeeper.delete(f"{parent}/s_corrupt")
        second = await process.add_server("h2")
        await second.until_owns(2)
