"""``python -m tests.simulation.scale``: a large cluster, idle and after failures, and what it uses.

No checks of single transactions, and no faults but two: a server dies, and a third of the storages, one replica of each
partition. All that is counted is the same in every run of a size; processor time and memory are measured.
"""

import argparse
import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator
from unittest import mock

from tests.simulation.clients import client_environment
from tests.simulation.cluster import Host, ServerHost, SimulatedCluster, World, logs_in_trace
from tests.simulation.hashes import reproducible_hashes
from tests.simulation.liveness import Watch
from tests.simulation.loop import Process, SimulatedLoop, close_silently
from tests.simulation.meter import CountingTrace, Meter, connections, watches
from tests.simulation.network import unacknowledged_bytes
from tests.simulation.options import SimulationOptions
from tests.simulation.scale_report import Report, Size
from waltz.client.builder import Append
from waltz.client.callbacks import WaltzClient
from waltz.client.context import WaltzClientCallbacks
from waltz.client.engine.partition.mount_states import State
from waltz.client.transaction import Transaction
from waltz.common.net import channel
from waltz.common.replica_states import ReplicaStatus

GROUPS = 3
"""Replicas of a partition: one in each group of storages."""

IDLE_S = 60.0
"""How long the idle cluster is looked at."""

PATIENCE_S = 600.0
"""Simulated time after which something that has to come about is taken for impossible."""

LOOK_INTERVAL_S = 0.25
SESSION_TIMEOUT_S = 6.0


class ScaleClient(Host):
    """An application that applies transactions by forgetting them."""

    client: WaltzClient | None = None

    async def program(self, process: Process) -> None:
        self.client = None
        zookeeper = await self.connect_zookeeper(process)
        environment = client_environment(self.world, f"{self.name} run {self.runs}", zookeeper)
        self.client = await WaltzClient.open_in(environment, _Callbacks())
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Close the client in order, for it complains otherwise."""
        assert self.client is not None
        assert self.process is not None
        await self.process.run(self.client.close())

    @property
    def mounted(self) -> bool:
        """Whether it can append to all partitions."""
        return self.client is not None and all(
            partition.mount.state is State.MOUNTED for partition in self.client._engine.partitions
        )


class _Callbacks(WaltzClientCallbacks):
    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction) -> None:
        pass

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        pass


class Scale:
    """Runs a cluster of one size."""

    def __init__(self, size: Size, say: Callable[[str], None] = lambda _: None, *, measured: bool = False) -> None:
        """``say`` is told how far it is; ``measured``: beside what is counted, processor time and memory."""
        self.report = Report(size)
        self._say = say
        options = SimulationOptions(
            partitions=size.partitions,
            servers=size.servers,
            storages=size.storages,
            replicas=GROUPS,
            clients=size.clients,
            session_timeout_s=SESSION_TIMEOUT_S,
            lock_table_size=100,
        )
        self._loop = SimulatedLoop(lambda context: self._fail(str(context)))
        self._trace = CountingTrace(self._loop.time)
        self._world = World(0, options, self._loop, self._trace, self._fail)
        self._cluster = SimulatedCluster(self._world)
        self._clients = [ScaleClient(self._world, f"client-{number}") for number in range(size.clients)]
        self._watch = Watch(self._world, self._cluster)
        self._meter = Meter(self._world, self._trace, measured=measured)

    def run(self) -> Report:
        """Run to the end, or to the first failure."""
        gc.disable()
        try:
            with (
                mock.patch.object(channel, "unacknowledged_bytes", unacknowledged_bytes),
                logs_in_trace(self._world),
                reproducible_hashes(),
                self._meter.watching(),
            ):
                self._loop.run_until_complete(self._main())
        except (RuntimeError, TimeoutError):  # the loop was stopped, or something has not come about
            if not self.report.failures:
                raise
        finally:
            close_silently(self._loop)
            gc.enable()
        self.report.digest = self._trace.digest
        return self.report

    def _fail(self, reason: str) -> None:
        self.report.failures.append(reason)
        self._loop.stop()

    async def _main(self) -> None:
        with self._phase("storages"):
            await self._cluster.set_up_storages()
        with self._phase("servers start"):
            for server in self._cluster.servers:
                server.start()
            await self._until("every partition has an owner", self._owned)
        with self._phase("clients start"):
            for client in self._clients:
                client.start()
            await self._until("every client has mounted every partition", self._mounted)
        with self._phase("an append to each partition"):
            await self._append_everywhere()
        await asyncio.sleep(5.0)
        with self._phase("idle"):
            await asyncio.sleep(IDLE_S)
        self._look_around()
        with self._phase("a server dies"):
            await self._lose_server(self._cluster.servers[-1])
        with self._phase("a third of the storages dies"):
            await self._lose_storages()
            await self._until("every server has noticed the death of a third of the storages", self._lacking)
        with self._phase("the storages come back"):
            for storage in self._cluster.group(0):
                storage.start()
            await self._until("all replicas are current", self._current)
        await asyncio.gather(*(client.close() for client in self._clients))

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        with self._meter.phase(name) as phase:
            yield
        self.report.phases[name] = phase
        self._say(
            f"{name}: {phase.simulated_s:.1f} s simulated in {time.monotonic() - began_s:.0f} s; "
            f"{phase.operations.total()} ZooKeeper operations; {phase.memory_bytes / 1e6:+.0f} MB"
        )

    async def _until(self, what: str, reached: Callable[[], bool]) -> None:
        began_s = self._loop.time()
        while not reached():
            if self._loop.time() > began_s + PATIENCE_S:
                self._fail(f"not within {PATIENCE_S:.0f} s: {what}")
                raise TimeoutError
            await asyncio.sleep(LOOK_INTERVAL_S)
        self.report.converged_s[what] = self._loop.time() - began_s

    def _owned(self) -> bool:
        return len(self._watch.owned()) == self.report.size.partitions

    def _mounted(self) -> bool:
        return all(client.mounted for client in self._clients)

    def _current(self) -> bool:
        return self._with_replicas(GROUPS) == self.report.size.partitions

    def _lacking(self) -> bool:
        return self._with_replicas(GROUPS - 1) == self.report.size.partitions

    def _with_replicas(self, count: int) -> int:
        """Number of partitions with the given number of current replicas."""
        return sum(
            sum(view.status is ReplicaStatus.CURRENT for view in partition.replica_views) == count
            for host in self._cluster.servers
            if host.server is not None and host.running
            for partition in host.server.partitions.values()
        )

    async def _append_everywhere(self) -> None:
        """One transaction to each partition, by one client after the other; all of them at a time."""
        began_s = self._loop.time()
        tasks = []
        for partition_id in range(self.report.size.partitions):
            host = self._clients[partition_id % len(self._clients)]
            assert host.process is not None
            tasks.append(host.process.run(_append(host, partition_id)))
        await asyncio.gather(*tasks)
        self.report.converged_s.setdefault("appends", self._loop.time() - began_s)

    async def _lose_server(self, server: ServerHost) -> None:
        server.crash(power_loss=True)
        await self._until("every partition has an owner after the death of a server", self._owned)
        await self._until("every client has mounted every partition after the death of a server", self._mounted)
        await self._append_everywhere()

    async def _lose_storages(self) -> None:
        for storage in self._cluster.group(0):
            storage.crash(power_loss=True)
        began_s = self._loop.time()
        await self._append_everywhere()
        self.report.converged_s["an append to each partition with two replicas of three"] = self._loop.time() - began_s

    def _look_around(self) -> None:
        report = self.report
        report.connections = connections(self._world.network)
        report.watches = watches(self._world)
        sizes = {path: len(data or b"") for path, data in self._world.ensemble.server.dump().items()}
        report.node_bytes = dict(sorted(sizes.items(), key=lambda item: -item[1])[:3])


async def _append(host: ScaleClient, partition_id: int) -> None:
    assert host.client is not None
    await host.client.transact(partition_id, lambda _: Append(b"x"), timeout_s=PATIENCE_S)


def main() -> int:
    """The exit code: 1 if the cluster did not converge."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scale", description=__doc__)
    for name, default in (("partitions", 100), ("servers", 3), ("storages", 3), ("clients", 30)):
        parser.add_argument(f"--{name}", type=int, metavar="N", default=default, help=f"{default}")
    parsed = parser.parse_args()
    size = Size(parsed.partitions, parsed.servers, parsed.storages, parsed.clients)
    gc.collect()
    gc.freeze()
    report = Scale(size, lambda text: print(text, file=sys.stderr, flush=True), measured=True).run()
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
