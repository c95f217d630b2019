"""The hosts of a simulated cluster and the real programs that run on them."""

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from tests.simulation.disk import SimulatedDisk, SimulatedFiles
from tests.simulation.election_checks import ElectionChecks
from tests.simulation.loop import Process, SimulatedLoop, running_process
from tests.simulation.network import Network
from tests.simulation.options import SimulationOptions
from tests.simulation.session_checks import SessionChecks
from tests.simulation.storage_checks import StorageChecks
from tests.simulation.trace import Trace
from tests.simulation.zookeeper import ProcessZooKeeper, SimulatedEnsemble
from waltz.common.config.schemas import AclConfig, ServerConfig, StorageConfig, from_mapping
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Registry
from waltz.common.wire.frames import STORAGE
from waltz.common.zk.store_admin import add_storage_node, assign_partitions, create_cluster, unassign_partitions
from waltz.server.process.node import WaltzServer
from waltz.server.process.property_watch import PropertyWatch
from waltz.storage.disk.draining import drain
from waltz.storage.node.node import StorageNode
from waltz.storage.node.request_queue import QueueLimits
from waltz.storage.remote.admin_client import StorageAdminClient

ROOT = "/waltz"
CLUSTER_KEY = uuid.UUID(int=0x5EED)
STORAGE_PORT, ADMIN_PORT, SERVER_PORT = 55280, 55281, 55180
DIRECTORY = "/data"
BULK_READER = "reader-0"
"""The machine that reads in bulk, where there is one."""
MARK_READER = "asker-0"
"""The machine that asks for marks, where there is one."""
OPERATOR = "operator"
"""The machine of operators, to which nothing ever happens."""
SUPERVISOR_PAUSE_S = 1.0
"""After so long a program that ended by itself is started again."""


def principal_of(host: str) -> str:
    """The principal of a machine, by its certificate."""
    return f"CN={host}"


ACCESS_RULES = AclConfig.model_validate({"enabled": True, "superPrincipals": principal_of(OPERATOR)})
"""The configuration of a node with access rules. A node's file would also have to turn TLS on, which is not simulated;
the network says whose certificates it would have verified."""


class World:
    """The parts of the simulation that every host needs."""

    def __init__(
        self, seed: int, options: SimulationOptions, loop: SimulatedLoop, trace: Trace, fail: Callable[[str], None]
    ) -> None:
        self.seed = seed
        self.options = options
        self.loop = loop
        self.trace = trace
        self.fail = fail
        """Ends the simulation: something is wrong."""
        self.excused: set[int] = set()
        """Partitions that need not decide in time: they have no quorum, or had none."""
        self.network = Network(loop, self.random("network"), trace, delay_factor=options.network_delay_factor)
        self.ensemble = SimulatedEnsemble(
            loop,
            self.random("zookeeper"),
            delay_factor=options.zookeeper_delay_factor,
            lag_s=options.zookeeper_lag_s,
        )
        self.storage_checks = StorageChecks(fail)
        self.storage_checks.fences_survive = not options.forgetful_storages
        self.session_checks = SessionChecks(fail, options.replicas // 2 + 1)
        self.elections = ElectionChecks(fail, self.ensemble.server._tree.get, ROOT)
        self.everybody_coordinates = False
        """Whether every server takes itself for the coordinator of the cluster."""
        self.disk_course = asyncio.Lock()
        """Held by a fault that takes away what a disk held: one at a time is as much as is bearable."""
        loop.network = self.network

    def random(self, name: str) -> random.Random:
        """A source of its own for everything that draws, so that one does not disturb the other."""
        return random.Random(f"{self.seed}/{name}")

    def by_slow_clocks_s(self, limit_s: float) -> float:
        """How long a limit lasts by the slowest monotonic clock that a machine may have."""
        return limit_s / (1.0 - self.options.clock_drift)

    def registry(self, name: str) -> Registry:
        """Metrics on virtual time."""
        return Registry(self.loop.time)


class Host:
    """A machine that runs one program, again and again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.zookeeper: ProcessZooKeeper | None = None
        self.runs = 0
        self.wanted = False
        """Whether the supervisor starts the program again when it ends by itself."""
        self.kept_away = False
        """Whether nobody starts it at all."""
        self.clock_error_s = 0.0
        """How wrong the wall clock of the machine is."""
        drift = world.options.clock_drift
        self.clock_rate = 1.0 + (2.0 * world.random(f"{name}/clock").random() - 1.0) * drift if drift else 1.0
        """How fast the monotonic clock of the machine is."""
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the program runs (it may be paused)."""
        return self.process is not None and self.process.alive

    @property
    def up(self) -> bool:
        """Whether the program has come up, and would end everything if it were asked to."""
        return self.running

    @property
    def paused(self) -> bool:
        """Whether the program is stopped by SIGSTOP."""
        return self.process is not None and self.process.alive and self.process.stopped

    def start(self) -> None:
        """Start the program, unless it runs."""
        self.wanted = True
        if self.running or self.kept_away:
            return
        self.world.network.set_power(self.name, True)
        self.runs += 1
        self.process = Process(self.world.loop, self.name)
        self.process.clock_rate = self.clock_rate
        self.world.trace.line(self.name, f"starts (run {self.runs})")
        self._task = self.process.run(self._supervised(self.process))
        self._task.add_done_callback(self._ended)

    def crash(self, *, power_loss: bool) -> None:
        """End the program at once; with ``power_loss`` the machine with it."""
        self.wanted = False
        if self.process is None or not self.process.alive:
            if power_loss:
                self.lose_power()
            return
        self.world.trace.line(self.name, "loses power" if power_loss else "is killed")
        if power_loss:
            self.world.network.set_power(self.name, False)
        self.process.kill(power_loss=power_loss)
        if power_loss:
            self.lose_power()

    def lose_power(self) -> None:
        """The effects of a loss of power beside the end of the program."""

    def start_in(self, delay_s: float) -> None:
        """Start the program a little later."""
        self.wanted = True
        self.world.loop.call_later(delay_s, self._start_if_wanted, context=self.world.network.context)

    def _start_if_wanted(self) -> None:
        if self.wanted:
            self.start()

    async def _supervised(self, process: Process) -> None:
        """Run the program; an error message is its last word."""
        self.zookeeper = None
        try:
            await self.program(process)
        except WaltzError as error:
            self.world.trace.line(self.name, f"ends: {error}")

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.world.fail(f"the program on {self.name} failed: {task.exception()!r}")
        if self.process is not None:
            self.process.kill(power_loss=False)
        if self.wanted:
            self.start_in(SUPERVISOR_PAUSE_S)

    async def connect_zookeeper(self, process: Process) -> ProcessZooKeeper:
        """The program's session."""
        timeout_s = self.world.options.session_timeout_s
        self.zookeeper = await self.world.ensemble.connect(process, timeout_s)
        return self.zookeeper

    async def program(self, process: Process) -> None:
        """The program of the host; returns when it ends by itself."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End the program in order, as SIGTERM does. Runs inside of the program's process."""


class StorageHost(Host):
    """Runs a storage node on a disk of its own."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.disk = SimulatedDisk(
            world.random(f"disk of {name}"), DIRECTORY, delay_factor=world.options.disk_delay_factor
        )
        self.disk.crash = lambda: self.crash(power_loss=True)
        world.storage_checks.disks[name] = self.disk
        self.clock_error_s = world.random(f"clock of {name}").uniform(-3600, 3600)
        old = world.random(f"version of {name}").random() < world.options.old_storages
        self.family = STORAGE._replace(versions=STORAGE.versions[:1]) if old else STORAGE
        self.node: StorageNode | None = None
        """The node of the present run, once it is up."""

    @property
    def connect_string(self) -> str:
        """How servers call it."""
        return f"{self.name}:{STORAGE_PORT}"

    @property
    def needs_operator(self) -> bool:
        """Whether only a restart helps: a failing disk put something out of service, or a call never returned."""
        hung = self.process is not None and self.disk.hung is self.process
        return hung or (self.node is not None and bool(self.node.manager.out_of_service()))

    def lose_power(self) -> None:
        self.disk.lose_power()

    def _draw_journal(self) -> random.Random:
        run = f" in run {self.runs}" if self.world.options.journal_switches else ""
        return self.world.random(f"journal of {self.name}{run}")

    def config(self) -> StorageConfig:
        """The configuration of its next start."""
        config = from_mapping(
            {
                "zookeeper.connectString": "zookeeper",
                "zookeeper.sessionTimeout": round(self.world.options.session_timeout_s * 1000),
                "cluster.root": ROOT,
                "storage.port": STORAGE_PORT,
                "storage.admin.port": ADMIN_PORT,
                "storage.bindAddress": self.name,
                "storage.directory": DIRECTORY,
                "storage.segment.size.threshold": self.world.options.segment_size_bytes,
                "storage.segment.cache.capacity": 2,
                "storage.journal.enabled": self._draw_journal().random() < self.world.options.journal_share,
                "storage.ssl.plaintext": True,
            },
            StorageConfig,
        )
        return config.model_copy(update={"acl": ACCESS_RULES}) if self.world.options.access_rules else config

    async def program(self, process: Process) -> None:
        files = SimulatedFiles(self.disk, process, clock_error_s=lambda: self.clock_error_s)
        self.node = None
        zookeeper = await self.connect_zookeeper(process)
        if self.world.options.journal_switches and self.runs > 1 and self.runs % 3 == 0:
            try:
                drained = await files.run(partial(drain, files, DIRECTORY))
                self.world.trace.note(self.name, f"is drained before it starts: {drained}")
            except OSError as error:  # the start replays the journal
                self.world.trace.note(self.name, f"cannot be drained: {error}")
        node = await StorageNode.start(
            self.config(),
            files=files,
            zookeeper=zookeeper,
            metrics=self.world.registry(self.name),
            limits=QueueLimits(write_ahead_bytes=self.world.options.write_ahead_bytes),
            family=self.family,
        )
        if not self.world.options.access_rules:
            await zookeeper.close()
            self.zookeeper = None
        self.node = node
        await asyncio.Event().wait()

    @property
    def up(self) -> bool:
        return self.running and self.node is not None

    async def stop(self) -> None:
        if self.node is not None:
            await self.node.close()
        if self.zookeeper is not None:
            await self.zookeeper.close()


class ServerHost(Host):
    """Runs a server."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.server: WaltzServer | None = None
        """The server of the present run, once it is part of the cluster."""
        self._properties: PropertyWatch | None = None
        options = world.options
        self._config = from_mapping(
            {
                "zookeeper.connectString": "zookeeper",
                "zookeeper.sessionTimeout": round(options.session_timeout_s * 1000),
                "cluster.root": ROOT,
                "server.port": SERVER_PORT,
                "server.host": name,
                "server.optimisticLockTableSize": options.lock_table_size,
                "server.feedCacheSize": options.feed_cache_bytes,
                "server.transactionDataCacheSize": options.transaction_cache_bytes,
                "storage.maxBatchSize": options.max_batch_size,
                "storage.maxRetryInterval": 2000,
                "storage.checkpointInterval": options.checkpoint_interval,
                "server.ssl.plaintext": True,
                "server.maxTransactionSize": options.max_transaction_bytes,
                **({"server.appendMemory": options.append_memory_bytes} if options.append_memory_bytes else {}),
            },
            ServerConfig,
        )
        if options.access_rules:
            self._config = self._config.model_copy(update={"acl": ACCESS_RULES})

    async def program(self, process: Process) -> None:
        self.server = self._properties = None
        zookeeper = await self.connect_zookeeper(process)
        server = WaltzServer(
            self._config,
            zookeeper,
            registry=self.world.registry(self.name),
            random_source=self.world.random(f"{self.name} run {self.runs}"),
            clock_ms=lambda: 1_700_000_000_000 + int(process.loop.now_s * 1000),
        )
        if self.world.options.level_share:
            draw = self.world.random(f"properties of {self.name} run {self.runs}")
            self._properties = PropertyWatch(zookeeper, ROOT, server.set_append_rules, draw)
            await self._properties.start()
        await server.start()
        self.server = server
        await asyncio.Event().wait()

    @property
    def up(self) -> bool:
        return self.running and self.server is not None

    async def stop(self) -> None:
        if self._properties is not None:
            await self._properties.close()
        if self.server is not None:
            await self.server.close()
        if self.zookeeper is not None:
            await self.zookeeper.close()


class LogToTrace(logging.Handler):
    """Log records of the real code become lines of the trace; unforeseen exceptions among them end the simulation."""

    def __init__(self, world: World) -> None:
        super().__init__(world.options.log_level)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        process = running_process()
        who = "-" if process is None else process.host
        module = record.name.removeprefix("waltz.")
        self._world.trace.note(who, f"[{record.levelname.lower()}] {module}: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, WaltzError | OSError) and "on purpose" not in str(error):
            formatted = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            self._world.fail(f"{who} logged an unforeseen exception: {record.getMessage()}\n{formatted}")
        elif "have lost committed transactions" in record.msg:
            self._world.fail(f"{who}: {record.getMessage()}")


@contextlib.contextmanager
def logs_in_trace(world: World) -> Iterator[None]:
    """While this lasts, what the real code logs goes to the trace, and nowhere else."""
    logger = logging.getLogger("waltz")
    handler, level, propagate = LogToTrace(world), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(world.options.log_level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class SimulatedCluster:
    """All hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        options = world.options
        self.storages = [StorageHost(world, f"storage-{number}") for number in range(options.storages)]
        self.servers = [ServerHost(world, f"server-{number}") for number in range(options.servers)]
        self.replicas = [self._replica_hosts(partition_id) for partition_id in range(options.partitions)]
        """The storages that hold each partition: one of every group."""

    def group(self, group_id: int) -> list[StorageHost]:
        """The storages of a group; there are as many groups as a partition has replicas."""
        return self.storages[group_id :: self.world.options.replicas]

    def _replica_hosts(self, partition_id: int) -> list[StorageHost]:
        groups = [self.group(group_id) for group_id in range(self.world.options.replicas)]
        return [group[partition_id % len(group)] for group in groups]

    async def set_up(self) -> None:
        """Create the cluster as an operator does, and start its storages and servers."""
        await self.set_up_storages()
        for server in self.servers:
            server.start()

    async def set_up_storages(self) -> None:
        """Create the cluster as an operator does, and start its storages."""
        await self.as_operator(self._create)
        for storage in self.storages:
            storage.start()
        await asyncio.sleep(1.0)
        while any(storage.node is None for storage in self.storages):  # slow disks
            await asyncio.sleep(0.5)
        await self.as_operator(self._assign)

    async def as_operator(self, work: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
        """Do something from a machine that nothing ever happens to.

        Who is cancelled meanwhile waits for the end of it: ZooKeeper may have the change already, and :attr:`replicas`
        has to say the same.
        """
        process = Process(self.world.loop, OPERATOR)
        task = process.run(work(process))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            process.kill(power_loss=False)
        task.result()

    async def _create(self, process: Process) -> None:
        zookeeper = await self.world.ensemble.connect(process, 30.0)
        await create_cluster(zookeeper, ROOT, "simulated", self.world.options.partitions, CLUSTER_KEY)
        for number, storage in enumerate(self.storages):
            group_id = number % self.world.options.replicas
            await add_storage_node(zookeeper, ROOT, storage.connect_string, group_id, ADMIN_PORT)
            if partition_ids := self._partitions_of(storage):
                await assign_partitions(zookeeper, ROOT, storage.connect_string, partition_ids)
        await zookeeper.close()

    async def _assign(self, process: Process) -> None:
        for storage in self.storages:
            async with self.admin(storage) as admin:
                await admin.set_assigned(self._partitions_of(storage), True)
                await admin.set_available(self._partitions_of(storage), True)

    @contextlib.asynccontextmanager
    async def admin(self, storage: StorageHost) -> AsyncIterator[StorageAdminClient]:
        """A connection to the admin port of a storage, for an operator."""
        client = await StorageAdminClient.connect(
            Endpoint(storage.name, ADMIN_PORT),
            cluster_key=CLUSTER_KEY,
            partition_count=self.world.options.partitions,
            tls=None,
            timeout_s=10.0,
        )
        try:
            yield client
        finally:
            await client.close()

    async def add_replica(self, process: Process, partition_id: int, storage: StorageHost) -> None:
        """Have a storage hold a partition, whatever is left of it there."""
        async with self.admin(storage) as admin:
            await admin.set_assigned([partition_id], True)
            await admin.set_available([partition_id], True)
        zookeeper = await self.world.ensemble.connect(process, 30.0)
        await assign_partitions(zookeeper, ROOT, storage.connect_string, [partition_id])
        self.replicas[partition_id].append(storage)
        await zookeeper.close()

    async def remove_replica(self, process: Process, partition_id: int, storage: StorageHost) -> None:
        """Have a storage hold a partition no more; its files stay."""
        zookeeper = await self.world.ensemble.connect(process, 30.0)
        await unassign_partitions(zookeeper, ROOT, storage.connect_string, [partition_id])
        self.replicas[partition_id].remove(storage)
        await zookeeper.close()

    def _partitions_of(self, storage: StorageHost) -> list[int]:
        return [partition_id for partition_id, hosts in enumerate(self.replicas) if storage in hosts]
