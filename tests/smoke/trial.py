"""Clients with a workload in this process, on a cluster of real processes to which something is going to happen."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence

from tests.smoke.checker import Checker
from tests.smoke.journal import Journal, Outcome, Sample
from tests.smoke.replicas import Replicas
from tests.smoke.workload import Application, Load, Workload
from waltz.client.callbacks import WaltzClient
from waltz.client.engine.rpc import RpcClient
from waltz.client.options import ClientOptions
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.errors import WaltzError
from waltz.common.zk.client import NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionAssignment, ServerDescriptor
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node

POLL_INTERVAL_S = 0.02
SETTLE_TIMEOUT_S = 60.0


def client_config(cluster: LocalCluster, in_flight: int) -> ClientConfig:
    """The configuration of a client with so many transactions in flight per partition."""
    config = load(cluster.layout.client_config_path, ClientConfig)
    return config.model_copy(update={"max_concurrent_transactions": in_flight})


async def committed_marks(client: WaltzClient | RpcClient, partitions: int) -> list[int]:
    """The high-water mark of each partition, asked of its server until it answers."""
    marks: list[int] = []
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while len(marks) < partitions:
            try:
                marks.append(await client.high_water_mark(len(marks)))
            except WaltzError:
                await asyncio.sleep(POLL_INTERVAL_S)
    return marks


async def settle(application: Application, marks: Sequence[int], timeout_s: float = SETTLE_TIMEOUT_S) -> None:
    """Return when everything up to ``marks`` has been applied."""
    async with asyncio.timeout(timeout_s):
        while any(application.client_high_water_mark(each) < mark for each, mark in enumerate(marks)):
            await asyncio.sleep(POLL_INTERVAL_S)


async def check(cluster: LocalCluster, journals: Sequence[Journal], marks: Sequence[int]) -> list[str]:
    """What is wrong, comparing the journals with what all storages hold."""
    checker = Checker(journals, len(marks))
    async with Replicas(cluster) as replicas:
        for partition_id, mark in enumerate(marks):
            async for records in replicas.committed(partition_id, mark):
                checker.take(partition_id, records)
    return checker.violations()


async def owner(cluster: LocalCluster, partition_id: int, timeout_s: float = 60.0) -> Node:
    """The server to which the partition is assigned: of one that is just going, the next."""
    zookeeper = await cluster.zookeeper()
    try:
        async with asyncio.timeout(timeout_s):
            while (node := await _present_owner(zookeeper, cluster, partition_id)) is None:
                await asyncio.sleep(POLL_INTERVAL_S)
            return node
    finally:
        await zookeeper.close()


async def _present_owner(zookeeper: ZooKeeper, cluster: LocalCluster, partition_id: int) -> Node | None:
    """``None`` while the descriptor of the owner is gone and the assignment is not written anew yet."""
    paths = ClusterPaths.of(ROOT)
    assignment = PartitionAssignment.decode((await zookeeper.get(paths.server_descriptors))[0])
    for name in await zookeeper.children(paths.server_descriptors):
        try:
            server = ServerDescriptor.decode((await zookeeper.get(paths.server_descriptor(name)))[0])
        except NoNodeError:
            continue
        if partition_id in [owned.partition_id for owned in assignment.servers.get(server.server_id, ())]:
            return next(node for node in cluster.layout.servers if node.port == server.endpoint.port)
    return None


class Trial:
    """Several clients at work; made by :meth:`running`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.workloads: list[Workload] = []
        self._commits = [0] * cluster.layout.partitions
        self._clients: list[WaltzClient] = []
        self._runs: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        cluster: LocalCluster,
        *,
        clients: int = 3,
        load: Load | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        options: ClientOptions | None = None,
    ) -> "AsyncIterator[Trial]":
        """Start the clients and their workloads; :meth:`finish` is what tells whether all went well.

        ``settings`` replace fields of the clients' configuration.
        """
        trial = cls(cluster)
        load = load or Load()
        try:
            for number in range(clients):
                application = Application(Journal(number), cluster.layout.partitions)
                config = client_config(cluster, load.in_flight).model_copy(update=settings)
                client = await WaltzClient.open(application, config, options=options)
                trial._clients.append(client)
                workload = Workload(client, application, load, random.Random(f"{seed} {number}"))
                workload.on_commit = trial._committed
                trial.workloads.append(workload)
            trial._runs = [asyncio.create_task(workload.run()) for workload in trial.workloads]
            yield trial
        finally:
            for run in trial._runs:
                run.cancel()
            await asyncio.gather(*trial._runs, return_exceptions=True)
            for client in trial._clients:
                await client.close()

    def _committed(self, partition_id: int) -> None:
        self._commits[partition_id] += 1

    @property
    def commits(self) -> int:
        """Transactions applied by the clients that submitted them."""
        return sum(self._commits)

    def applied(self, partition_id: int) -> int:
        """The last transaction of a partition that any client has applied."""
        return max(workload.application.client_high_water_mark(partition_id) for workload in self.workloads)

    @property
    def samples(self) -> list[Sample]:
        """Of all clients, in the order of application."""
        samples = (sample for workload in self.workloads for sample in workload.journal.samples)
        return sorted(samples, key=lambda sample: sample.applied_at_s)

    async def progress(self, commits: int = 200, timeout_s: float = 60) -> None:
        """Return when every partition has so many more commits. Raises :class:`TimeoutError` with the state."""
        wanted = [count + commits for count in self._commits]
        try:
            async with asyncio.timeout(timeout_s):
                while any(count < least for count, least in zip(self._commits, wanted, strict=True)):
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            raise TimeoutError(
                f"commits per partition: {self._commits}, wanted within {timeout_s:g} s: {wanted}"
            ) from None

    async def pending_everywhere(self, timeout_s: float = 60) -> None:
        """Return when nothing is committed any more for half a second."""
        async with asyncio.timeout(timeout_s):
            before = -1
            while before != self.commits:
                before = self.commits
                await asyncio.sleep(0.5)

    async def finish(self, timeout_s: float = 90) -> None:
        """End the load and check everything. Raises :class:`AssertionError` with what is wrong."""
        for workload in self.workloads:
            workload.stop()
        done, pending = await asyncio.wait(self._runs, timeout=timeout_s)
        for run in done:
            run.result()
        left = [workload.journal.count(Outcome.PENDING) for workload in self.workloads]
        assert not pending, f"transactions that have not ended, by client: {left}"
        marks = await committed_marks(self._clients[0], self.cluster.layout.partitions)
        for workload in self.workloads:
            await settle(workload.application, marks)
        violations = await check(self.cluster, [workload.journal for workload in self.workloads], marks)
        assert not violations, "\n".join(violations)
