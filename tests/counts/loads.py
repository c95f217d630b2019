"""Fixed loads on a simulated cluster of one server and three storages, and what they cost it.

All delays are fixed, and a little different for each storage: the same code does the same in every run.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.callbacks import NothingApplied
from tests.counts.instrument import CountingLoop, counting, instrumented, sum_of
from tests.simulation.clients import client_environment
from tests.simulation.cluster import Host, SimulatedCluster, World
from tests.simulation.hashes import reproducible_hashes
from tests.simulation.loop import Process
from tests.simulation.options import SimulationOptions
from tests.simulation.trace import Trace
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext
from waltz.client.errors import ClientClosedError
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain import reader
from waltz.client.plain.client import Client
from waltz.common.net import channel

DATA = bytes(range(128))
PAUSE_S = 0.2
"""Simulated time in which what is under way comes to its end."""
TRIAL_MAX_S = 300.0
"""Simulated time after which a trial will never end."""
COUNTED_AT_S = 60.0
"""Counting begins at this time: which periodic timers end while it goes on does not depend on what went before."""
WARM_UP = 32
"""Batches of appends, at least, that go before: what is learnt from the first ones is known by then."""


@dataclass(frozen=True, slots=True)
class Load:
    """Appends of one application, always so many of them under way."""

    in_flight: int
    appends: int
    """That are counted; others have gone before."""
    write_locks: int = 1
    read_locks: int = 0
    plain: bool = False
    """Whether it awaits `append`, or uses callbacks."""
    follows: bool = False
    """Whether it reads the feed as well, with the same client."""
    readers: int = 0
    """Other clients, at the end of the feed."""
    partitions: int = 1
    disk_delay_factor: float = 0.2
    """How slow the disks are; 1: a millisecond for a write and sync."""
    journal: bool = False
    """Whether storages have one."""


LOADS = {
    "1 in flight": Load(1, 100),
    "16 in flight": Load(16, 800),
    "256 in flight": Load(256, 2_560),
    "1 in flight, 2 write locks, 1 read lock": Load(1, 100, write_locks=2, read_locks=1),
    "256 in flight, 2 write locks, 1 read lock": Load(256, 2_560, write_locks=2, read_locks=1),
    "1 in flight, await append": Load(1, 100, plain=True),
    "256 in flight, await append": Load(256, 2_560, plain=True),
    "16 in flight, await append and a feed": Load(16, 800, plain=True, follows=True),
    "16 in flight, slow disks": Load(16, 800, disk_delay_factor=20.0),
    "64 in flight, 8 partitions": Load(64, 1_600, partitions=8),
    "256 in flight, 64 partitions": Load(256, 2_560, partitions=64),
    "256 in flight, 64 partitions, journal": Load(256, 2_560, partitions=64, journal=True),
    "16 in flight, 1 reader": Load(16, 800, readers=1),
    "16 in flight, 10 readers": Load(16, 800, readers=10),
}
"""Those with bounds."""

ROLES = {"client": 1, "server": 1, "storage": 3, "reader": 0}
"""Of processes; counts are those of one of them, on average."""

Counts = dict[str, dict[str, float]]
"""By role and kind, for each 1,000 appends."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load has cost, for each 1,000 appends."""

    counts: Counts
    functions: Counts
    """By role and function of Python: calls."""


class _Steady(random.Random):
    """Chance without any."""

    def random(self) -> float:
        return 0.5


class _SteadyWorld(World):
    """Delays never change."""

    def random(self, name: str) -> random.Random:
        if name in ("network", "zookeeper") or name.startswith("disk of"):
            return _Steady()
        return super().random(name)


class _Application(Host):
    """Submits when it is told to."""

    def __init__(self, world: World, load: Load) -> None:
        super().__init__(world, "client")
        self.load = load
        self.ready = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._marks = [-1] * load.partitions
        self.client: Client | WaltzClient
        self.append: Callable[[int], Awaitable[object]]
        """Append a transaction of this number; returns when it is applied, or with `append` when it is committed."""

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        settings = {"client.maxConcurrentTransactions": max(self.load.in_flight, 1)}
        environment = client_environment(self.world, self.name, zookeeper, **settings)
        if self.load.plain:
            self.client = await Client(environment).open()
            self.append = partial(self._append, self.client)
        else:
            self.client = await WaltzClient.open_in(environment, NothingApplied())
            self.append = partial(self._submit, self.client)
        self.ready.set()
        if isinstance(self.client, Client) and self.load.follows:
            await _follow(self.client, 0)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await self.client.close()

    def locks(self, number: int) -> list[PartitionLocalLock]:
        """Locks of a transaction's own: they are checked, and never conflict."""
        count = self.load.write_locks + self.load.read_locks
        return [PartitionLocalLock("lock", each) for each in range(number * count, (number + 1) * count)]

    async def _append(self, client: Client, number: int) -> None:
        locks, writes = self.locks(number), self.load.write_locks
        partition_id = number % self.load.partitions
        mark = self._marks[partition_id] if locks else None
        self._marks[partition_id] = await client.append(
            partition_id, DATA, write_locks=locks[:writes], read_locks=locks[writes:], high_water_mark=mark
        )

    async def _submit(self, client: WaltzClient, number: int) -> None:
        context = _Context(number % self.load.partitions, self.locks(number), self.load.write_locks)
        await client.submit(context)
        await context.applied

    async def run(self, numbers: Iterable[int]) -> None:
        """Append all of these; inside of the process."""
        left = iter(numbers)

        async def work() -> None:
            for number in left:
                await self.append(number)

        workers = [asyncio.create_task(work()) for _ in range(self.load.in_flight)]
        self._workers += workers  # what ends with them is no part of the load
        for worker in workers:
            await worker


class _Context(TransactionContext):
    __slots__ = ("_locks", "_partition_id", "_write_locks", "applied")

    def __init__(self, partition_id: int, locks: list[PartitionLocalLock], write_locks: int) -> None:
        self._partition_id = partition_id
        self._locks = locks
        self._write_locks = write_locks
        self.applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def partition_id(self, partition_count: int) -> int:
        return self._partition_id

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(DATA)
        builder.set_write_locks(self._locks[: self._write_locks])
        builder.set_read_locks(self._locks[self._write_locks :])
        return True

    def on_application(self) -> None:
        self.applied.set_result(None)

    def on_exception(self, error: Exception) -> None:
        self.applied.set_exception(error)


class _Reader(Host):
    """Follows the feed of every partition."""

    records = 0
    client: Client

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        self.client = await Client(client_environment(self.world, self.name, zookeeper)).open()
        partition_ids = range(self.world.options.partitions)
        await asyncio.gather(*(_follow(self.client, each, self._count) for each in partition_ids))
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await self.client.close()

    def _count(self) -> None:
        self.records += 1


async def _follow(client: Client, partition_id: int, received: Callable[[], None] = lambda: None) -> None:
    """Read a feed until the client is closed."""
    with contextlib.suppress(ClientClosedError):
        async for _ in client.feed(partition_id, after=-1):
            received()


class _FailureHandler(logging.Handler):
    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        self._failures.append(record.getMessage())


async def _inside(host: Host, work: Coroutine[Any, Any, None]) -> None:
    """Run something in the process of a host."""
    assert host.process is not None
    await host.process.run(work)


class Trial:
    """A load on a cluster of its own."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._failures: list[str] = []
        self._loop = CountingLoop(lambda context: self._failures.append(str(context)))
        options = SimulationOptions(
            servers=1,
            partitions=load.partitions,
            session_timeout_s=30.0,
            segment_size_bytes=1_000_000_000,
            lock_table_size=30_000,
            feed_cache_bytes=64 << 20,
            transaction_cache_bytes=128 << 20,
            checkpoint_interval=250_000,
            journal_share=float(load.journal),
            network_delay_factor=0.1,
            disk_delay_factor=load.disk_delay_factor,
        )
        self._world = _SteadyWorld(1, options, self._loop, Trace(self._loop.time), self._failures.append)
        self._cluster = SimulatedCluster(self._world)
        self._application = _Application(self._world, load)
        self._readers = [_Reader(self._world, f"reader-{number}") for number in range(load.readers)]

    def run(self, conditions: contextlib.AbstractContextManager[None]) -> Cost:
        """Count, with these conditions on top of all others."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            with instrumented(self._loop), reproducible_hashes(), self._conditions(), conditions:
                self._loop.run_until_complete(asyncio.wait_for(self._main(), TRIAL_MAX_S))
        finally:
            self._loop.close()
            gc.collect()
            if collecting:
                gc.enable()
        assert not self._failures, self._failures
        return self._cost()

    async def _main(self) -> None:
        for number, storage in enumerate(self._cluster.storages):
            storage.disk.slowness = 1.0 + 0.2 * number
        await self._cluster.set_up()
        self._application.start()
        for reader_host in self._readers:
            reader_host.start()
        await self._application.ready.wait()
        warm_up = max(WARM_UP * min(self.load.in_flight, 100), self.load.in_flight)
        await _inside(self._application, self._application.run(range(warm_up)))
        while any(each.records < warm_up for each in self._readers):
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(COUNTED_AT_S - self._loop.time())
        with counting(self._loop):
            await _inside(self._application, self._application.run(range(warm_up, warm_up + self.load.appends)))
            await asyncio.sleep(PAUSE_S)
        assert {each.records for each in self._readers} <= {warm_up + self.load.appends}
        for host in (self._application, *self._readers, *self._cluster.servers, *self._cluster.storages):
            await _inside(host, host.stop())

    @contextlib.contextmanager
    def _conditions(self) -> Iterator[None]:
        """What simulations replace; and everything has to go well."""
        logger, handler = logging.getLogger("waltz"), _FailureHandler(self._failures)
        feeds = SimpleNamespace(Random=lambda: random.Random(1))
        propagate, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        try:
            with (
                mock.patch.object(reader, "random", feeds),
                mock.patch.object(channel, "unacknowledged_bytes", attrgetter("unacknowledged_bytes")),
            ):
                yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate

    def _cost(self) -> Cost:
        cost = Cost({}, {})
        for role, processes in (ROLES | {"reader": self.load.readers}).items():
            hosts = [host for host in self._loop.tallies if host.startswith(role)]
            assert len(hosts) == processes, hosts
            if hosts:
                counts, functions = sum_of(self._loop.tallies[host] for host in hosts)
                cost.counts[role] = self._each(counts, processes)
                cost.functions[role] = self._each(functions, processes)
        return cost

    def _each(self, counts: dict[str, int], processes: int) -> dict[str, float]:
        return {kind: round(count * 1000 / self.load.appends / processes, 1) for kind, count in counts.items()}


def cost_of(load: Load, conditions: contextlib.AbstractContextManager[None] | None = None) -> Cost:
    """Run a load, under these conditions."""
    return Trial(load).run(conditions or contextlib.nullcontext())


@functools.cache
def standard_cost(name: str) -> Cost:
    """What one of :data:`LOADS` costs, run once."""
    return cost_of(LOADS[name])
