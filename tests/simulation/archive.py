"""Archivers, killed and two at once, over a store with troubles; and what must hold of the archive at every moment.

What is in the store is compared with the log whenever anything is written there: no object may have a transaction that
is not committed, no entry of a manifest may be there without its object, without the entry before it, or in the place
of another. At the end the archive is the log, also for a restore.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from unittest import mock
from uuid import UUID

from tests.simulation.checker import Checker, Entry
from tests.simulation.cluster import CLUSTER_KEY, ROOT, Host, World
from tests.simulation.loop import Process
from tests.simulation.object_store import SimulatedObjectStore
from waltz.archive import manifest
from waltz.archive.chain import Place, read_ranges
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.manifest import MANIFEST_FOLDER, decode_page
from waltz.archive.object_format import Limit, ObjectName, decode_object, parse_name
from waltz.archive.process import archiver as archiver_module
from waltz.archive.process import source
from waltz.archive.process.archive_metrics import ArchiveMetrics
from waltz.archive.process.archiver import Archiver
from waltz.archive.process.daemon import RunningCluster
from waltz.archive.process.due import Policy
from waltz.archive.process.restoring import ArchivedRecords
from waltz.archive.verification import verify_partition
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.zk import mutex
from waltz.common.zk.store_admin import read_store_params
from waltz.storage.disk.segment.segment_format import decode_span

MAX_AGE_MS = 3_000
INTERVAL_S = 0.5
PAGE_RANGES = 3
"""Ranges of a full page of a manifest."""
UNLOCKED_SHARE = 0.4
"""Share of the runs of archivers that take no lock: as if the session with it had ended, and nobody had noticed."""


class ArchivingCluster(RunningCluster):
    """The real one; only the lock may be missing."""

    def __init__(self, cluster: ClusterHandle, store: object, *, locks: bool) -> None:
        super().__init__(cluster, store)  # type: ignore[arg-type]  # parameters of the store, as they were read
        self._locks = locks

    async def alone(self, partition_id: int, work: Callable[[], Awaitable[None]]) -> None:
        if self._locks:
            await super().alone(partition_id, work)
        else:
            await work()


class ArchiverHost(Host):
    """Runs what ``waltz-archive`` runs."""

    def __init__(self, world: World, number: int, store: SimulatedObjectStore) -> None:
        super().__init__(world, f"archiver-{number}")
        self._store = store
        self._draw = world.random(self.name)
        self._working: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self.running and self._working is not None

    async def program(self, process: Process) -> None:
        self._working = None
        zookeeper = await self.connect_zookeeper(process)
        params = await read_store_params(zookeeper, ROOT)
        locks = self._draw.random() >= UNLOCKED_SHARE
        cluster = ArchivingCluster(ClusterHandle(zookeeper, ROOT, None), params, locks=locks)
        await cluster.prepare()
        archiver = Archiver(
            cluster,
            lambda partition_id: Place(self._store, params.key, partition_id),
            Policy(Limit(self._draw.choice((7, 40, 200)), self._draw.choice((2_000, 20_000))), MAX_AGE_MS),
            ArchiveMetrics(self.world.registry(self.name)),
            rate_bytes=10**9,
            at_once=2,
            interval_s=INTERVAL_S,
            wall_clock_ms=lambda: 1_700_000_000_000 + int(process.loop.now_s * 1000),
        )
        self._working = working = asyncio.create_task(archiver.run())
        await asyncio.wait([working])
        if not working.cancelled():
            await working
        await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        if self.zookeeper is not None:
            await self.zookeeper.close()


class ArchiveChecks:
    """Compares what is written into the store with the log."""

    def __init__(self, world: World, checker: Checker) -> None:
        self.store = SimulatedObjectStore(world, self._written)
        self._world = world
        self._checker = checker
        self._ends: set[tuple[int, int]] = {(partition_id, 0) for partition_id in range(world.options.partitions)}
        """Partition and end of every entry."""

    def place(self, partition_id: int) -> Place:
        """The archive of a partition."""
        return Place(self.store, CLUSTER_KEY, partition_id)

    def end(self, partition_id: int) -> int:
        """The end of the archive of a partition."""
        return max(end for each, end in self._ends if each == partition_id)

    def _written(self, path: str, before: bytes | None, data: bytes) -> None:
        key, partition, *folder, name = path.split("/")
        partition_id = int(partition)
        try:
            if UUID(key) != CLUSTER_KEY:
                raise ArchiveDamagedError(f"{path} is of another cluster")
            if folder == [MANIFEST_FOLDER]:
                self._entry_written(partition_id, int(name), path, before, data)
            else:
                found = parse_name(name)
                assert found is not None, path
                self._check_object(partition_id, found, path, data)
        except ArchiveDamagedError as error:
            self._world.fail(f"something else than the log is archived: {error}")

    def _check_object(self, partition_id: int, name: ObjectName, path: str, data: bytes) -> None:
        mark = self._checker.marks[partition_id]
        if name.last > mark:
            self._world.fail(f"{path} has transactions that are not committed: the log is up to {mark}")
        index, blocks = decode_object(data, CLUSTER_KEY, partition_id, name, path)
        for block, records in zip(index.blocks, blocks, strict=True):
            found = decode_span(records.data, [*itertools.accumulate(records.sizes, initial=0)], block.first)
            if len(found) < block.record_count:
                self._world.fail(f"{path} has a damaged record at {block.first + len(found)}")
            for record in found:
                entry = Entry(bytes(record.req_id), record.header)
                self._checker.certain("the archive", partition_id, record.transaction_id, entry)
                self._checker.read("the archive", partition_id, record.header, record.data)

    def _entry_written(self, partition_id: int, first: int, path: str, before: bytes | None, data: bytes) -> None:
        if before is not None:
            self._world.fail(f"{path} is written in the place of another entry")
        added = decode_page(data, CLUSTER_KEY, partition_id, first, path).ranges[-1]
        where = self.place(partition_id).object_path(added)
        stored = self.store.objects.get(where)
        if stored is None:
            self._world.fail(f"{path} counts {where}, which is not there")
        else:
            self._check_object(partition_id, added.name, where, stored)
        if (partition_id, first) not in self._ends:
            self._world.fail(f"{path} begins where no entry ends: there is a gap, or transactions are there twice")
        self._ends.add((partition_id, added.end))

    async def check_end(self) -> None:
        """The archive is the log, and so is what a restore copies out of it."""
        draw = self._world.random("restore")
        for partition_id, log in enumerate(self._checker.log):
            place = self.place(partition_id)
            try:
                ranges = await read_ranges(place)
                problems = (await verify_partition(place)).problems
            except ArchiveDamagedError as error:
                ranges, problems = [], [str(error)]
            if problems:
                self._world.fail(f"the archive of partition {partition_id} is not whole: {problems[0]}")
                return
            records = ArchivedRecords(place, ranges)
            restored: list[Entry] = []
            while found := await records.records(partition_id, len(restored), draw.choice((1, 10, 1000))):
                for record in found:
                    if record.transaction_id != len(restored):
                        self._world.fail(f"{record.transaction_id} of partition {partition_id} is restored too early")
                    self._checker.read("a restore", partition_id, record.header, record.data)
                    restored.append(Entry(bytes(record.req_id), record.header))
            if restored != [log.get(transaction_id) for transaction_id in range(len(log))]:
                self._world.fail(
                    f"{len(restored)} transactions are restored of partition {partition_id}, and they are not its "
                    f"{len(log)}"
                )


class Archiving:
    """The archivers, the troubles of their store, and the checks."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._checker = checker
        self.checks = ArchiveChecks(world, checker)
        self.hosts = [ArchiverHost(world, number, self.checks.store) for number in range(world.options.archivers)]
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """While this lasts, all that archivers draw is drawn from the seed."""
        draw = self._world.random("archivers")
        numbered = SimpleNamespace(uuid4=lambda: UUID(int=next(self._numbers)))
        with (
            mock.patch.object(archiver_module, "random", SimpleNamespace(Random=lambda: random.Random(draw.random()))),
            mock.patch.object(source, "random", SimpleNamespace(sample=draw.sample)),
            mock.patch.object(mutex, "uuid", numbered),
            mock.patch.object(manifest, "PAGE_RANGES", PAGE_RANGES),
        ):
            yield

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    async def trouble(self) -> None:
        """From the beginning of the faults to their end the store has troubles, and archivers are killed."""
        draw, store = self._world.random("troubles of the archive"), self.checks.store
        while True:
            await asyncio.sleep(draw.choice((0.5, 2.0, 5.0)) * (0.5 + draw.random()))
            kind = draw.choice(("away", "slow", "lossy", "lossy", "old", "kill", "kill", "kill"))
            self._world.trace.line("FAULT", f"the archive: {kind}")
            if kind == "kill":
                host = draw.choice(self.hosts)
                host.crash(power_loss=False)
                host.start_in(draw.choice((0.0, 1.0, 4.0)) * draw.random())
                continue
            store.heal()
            store.away = kind == "away"
            store.slowness_s = draw.choice((0.1, 1.0)) if kind == "slow" else 0.0
            store.lost_share = draw.choice((0.1, 0.5)) if kind == "lossy" else 0.0
            store.listing_age_s = draw.choice((1.0, 20.0)) if kind == "old" else 0.0

    def left(self) -> list[str]:
        """What of the log is not archived."""
        return [
            f"the archive has {self.checks.end(partition_id)} of {len(log)} of partition {partition_id}"
            for partition_id, log in enumerate(self._checker.log)
            if self.checks.end(partition_id) < len(log)
        ]
