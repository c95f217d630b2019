"""Two tables of one cluster that are merged as if they were those of two clusters: partition 0 and the last one.

The real code of ``waltz-mirror`` merges them in both directions, while applications write both, often with equal
timestamps. Its processes are killed, and some run without the lock that keeps two of them apart. At the end both tables
have the same rows, and what was written to one is in the other one, in order.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

from tests.simulation.application import hashes_of
from tests.simulation.checker import Attempt, Checker, Outcome
from tests.simulation.clients import client_environment
from tests.simulation.cluster import ROOT, Host, World
from tests.simulation.loop import Process, running_process
from waltz.asynchronous import Client
from waltz.client.engine.environment import Environment
from waltz.client.errors import AppendError
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain import feed, reader
from waltz.client.plain.feed import BatchFeed
from waltz.common.errors import WaltzError
from waltz.common.zk import mutex as locks
from waltz.common.zk.client import NodeExistsError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror import attempts
from waltz.mirror.attempts import Target
from waltz.mirror.mirror_metrics import MirrorState
from waltz.mirror.origins import PREFIX, origins_in
from waltz.mirror.table_mirror import TableMirror
from waltz.mirror.window import WindowLimit
from waltz.table.envelope import Batch, Row, encode, envelope_of
from waltz.table.face import configured
from waltz.table.properties import PartitionProperties

UNLOCKED_SHARE = 0.5
"""Share of the runs of mirrors that take no lock."""
QUIET_S = 3.0
"""How long before the end of the load the last rows are written."""
Written = tuple[bytes, int, bytes | None]


class RecordedClient(Client):
    """Tells the checker of each append, and reads the other table where it is the source."""

    def __init__(self, environment: Environment, name: str, checker: Checker, other: dict[int, int]) -> None:
        super().__init__(environment)
        self._name = name
        self._checker = checker
        self._other = other

    def feed_batches(
        self, partition_id: int, *, after: int | None = None, since: datetime | None = None, until: int | None = None
    ) -> BatchFeed:
        """See the base class."""
        return super().feed_batches(self._other.get(partition_id, partition_id), after=after, since=since, until=until)

    async def append(  # type: ignore[override]  # as mirrors call it
        self,
        partition_id: int,
        data: bytes,
        *,
        header: int = 0,
        write_locks: Iterable[PartitionLocalLock] = (),
        append_locks: Iterable[PartitionLocalLock] = (),
        high_water_mark: int = -1,
        timeout_s: float,
    ) -> int:
        """See the base class. The header is the number that the checker knows."""
        submitted = self._checker.submit(self._name, partition_id)
        write, other = [*write_locks], [*append_locks]
        submitted.attempts.append(
            Attempt(self._name, partition_id, high_water_mark, hashes_of(write), (), hashes_of(other), data)
        )
        submitted.outcome = Outcome.UNKNOWN
        try:
            transaction_id = await super().append(
                partition_id,
                data,
                header=submitted.number,
                write_locks=write,
                append_locks=other,
                high_water_mark=high_water_mark,
                timeout_s=timeout_s,
            )
        except AppendError as error:
            if error.outcome_known:
                submitted.outcome = Outcome.PENDING
                self._checker.decided(submitted, Outcome.FAILED)
            raise
        self._checker.appended(submitted, transaction_id)
        submitted.outcome = Outcome.COMMITTED
        return transaction_id


class MergingHost(Host):
    """Runs a mirror in one direction."""

    def __init__(self, world: World, number: int, checker: Checker) -> None:
        super().__init__(world, f"merging-{number}")
        self._checker = checker
        self._draw = world.random(self.name)
        last = world.options.partitions - 1
        self._source, self._target = (0, last) if number % 2 else (last, 0)
        self.locks = True
        """Whether the present run takes the lock."""

    @property
    def up(self) -> bool:
        return False  # nothing of it ends in order

    async def program(self, process: Process) -> None:
        self.locks = self._draw.random() >= UNLOCKED_SHARE
        zookeeper = await self.connect_zookeeper(process)
        with contextlib.suppress(NodeExistsError):
            await zookeeper.create(ClusterPaths.of(ROOT).mirrors, None, make_path=True)
        run, state = f"{self.name} run {self.runs}", MirrorState()
        other = {self._target: self._source}
        source = RecordedClient(
            client_environment(self.world, f"{run}/source", zookeeper), self.name, self._checker, other
        )
        target = RecordedClient(client_environment(self.world, run, zookeeper), self.name, self._checker, {})
        async with source, target:
            mirror = TableMirror(
                self._target,
                source,
                f"table {self._source}",
                target,
                f"table {self._target}",
                Target(zookeeper, ROOT, None, target.client_id),
                WindowLimit(self._draw.choice((1, 10, 1000)), self._draw.choice((200, 1 << 20))),
                state,
                now_ms=lambda: int(self.world.loop.now_s * 1000),
            )
            await mirror.run()
            self.world.fail(f"{self.name} has given up: {state.partitions[self._target].reason}")


class WritingHost(Host):
    """Writes both tables."""

    def __init__(self, world: World, number: int, checker: Checker) -> None:
        super().__init__(world, f"writing-{number}")
        self._checker = checker
        self._draw = world.random(self.name)

    @property
    def up(self) -> bool:
        return False  # nothing of it ends in order

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        environment = client_environment(self.world, f"{self.name} run {self.runs}", zookeeper)
        async with RecordedClient(environment, self.name, self._checker, {}) as client:
            while self.world.loop.now_s < self.world.options.duration_s - QUIET_S:
                await asyncio.sleep(0.4 * self._draw.random())
                partition_id = self._draw.choice((0, self.world.options.partitions - 1))
                second = 1 + int(self.world.loop.now_s) // 10  # so that many are equal
                rows = [
                    Row(
                        b"",
                        b"key %d" % self._draw.randrange(5),
                        self._draw.randbytes(6),
                        self._draw.choice((1, second)),
                    )
                    for _ in range(self._draw.randint(1, 3))
                ]
                with contextlib.suppress(WaltzError):
                    await client.append(partition_id, encode(Batch(second, rows)), timeout_s=5.0)
            await asyncio.Event().wait()


class MergedTables:
    """The processes, what happens to them, and what is checked."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._checker = checker
        self._merging = [MergingHost(world, number, checker) for number in range(world.options.merging)]
        self.hosts: list[Host] = [*self._merging, *(WritingHost(world, number, checker) for number in range(2))]
        self._numbers = itertools.count()

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    async def trouble(self) -> None:
        """From the beginning of the faults to their end mirrors are killed."""
        draw = self._world.random("troubles of merging")
        while True:
            await asyncio.sleep(draw.choice((0.1, 1.0, 5.0)) * draw.random())
            host = draw.choice(self._merging)
            host.crash(power_loss=False)
            host.start_in(draw.choice((0.0, 1.0, 4.0)) * draw.random())

    def left(self) -> list[str]:
        """The differences from the state that must be reached at the end."""
        return [
            text
            for source, target in itertools.permutations((0, self._world.options.partitions - 1))
            for text in self._missing(source, target)
        ] or self._differences()

    def _missing(self, source: int, target: int) -> list[str]:
        own, copied = self._rows(source, copied=False), self._rows(target, copied=True)
        return (
            [f"table {target} has {len(copied)} of {len(own)} rows of table {source}"] if len(copied) < len(own) else []
        )

    def check(self) -> None:
        """At the end: everything is in the other table, in order."""
        for source, target in itertools.permutations((0, self._world.options.partitions - 1)):
            own = self._rows(source, copied=False)
            if not own or self._rows(target, copied=True) != own:
                self._world.fail(f"what table {target} has of table {source} is not what was written there")
        for text in self._differences():
            self._world.fail(text)

    def _batches(self, partition_id: int) -> Iterator[Batch]:
        log = self._checker.log[partition_id]
        for transaction_id in range(len(log)):
            entry = log.get(transaction_id)
            if entry is None:
                return
            batch = envelope_of(transaction_id, self._checker.submitted[entry.header].attempts[-1].data)
            if isinstance(batch, Batch):
                yield batch

    def _rows(self, partition_id: int, *, copied: bool) -> list[Written]:
        """Rows that applications have written, or those of the other table, without those that only let rows win."""
        found: list[Written] = []
        position = -1
        for batch in self._batches(partition_id):
            origins = origins_in(batch)
            if (origins is not None) == copied and (origins is None or origins.position > position):
                position = position if origins is None else origins.position
                found += _written(batch)
        return found

    def _differences(self) -> list[str]:
        """Views of both tables: of equal timestamps the later row wins."""
        views: list[dict[bytes, tuple[int, bytes | None]]] = []
        for partition_id in (0, self._world.options.partitions - 1):
            view: dict[bytes, tuple[int, bytes | None]] = {}
            for key, timestamp_ms, value in itertools.chain.from_iterable(map(_written, self._batches(partition_id))):
                if timestamp_ms >= view.get(key, (timestamp_ms, None))[0]:
                    view[key] = timestamp_ms, value
            views.append(view)
        return [] if views[0] == views[1] else [f"the tables have different rows: {views[0]} and {views[1]}"]

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """While this lasts, both partitions are tables, and all that mirrors draw is drawn from the seed."""
        draw = self._world.random("merging")
        numbered = SimpleNamespace(uuid4=lambda: UUID(int=next(self._numbers)))
        chance = SimpleNamespace(Random=lambda: random.Random(draw.random()), random=draw.random)
        real = locks.mutex

        def mutex(zookeeper: ZooKeeper, path: str, **options: Any) -> AbstractAsyncContextManager[ZooKeeper]:
            process = running_process()
            host = next(host for host in self._merging if process is not None and host.name == process.host)
            return real(zookeeper, path, **options) if host.locks else contextlib.nullcontext(zookeeper)

        async def tables(*_: object) -> SimpleNamespace:
            return SimpleNamespace(properties=PartitionProperties(format="table"))

        with (
            mock.patch.object(attempts, "random", chance),
            mock.patch.object(reader, "random", chance),
            mock.patch.object(feed, "random", chance),
            mock.patch.object(locks, "uuid", numbered),
            mock.patch.object(attempts, "mutex", mutex),
            mock.patch.object(configured, "read_properties", tables),
        ):
            yield


def _written(batch: Batch) -> list[Written]:
    return [
        (row.key, batch.written_at_ms if row.timestamp_ms is None else row.timestamp_ms, row.value)
        for row in batch.rows
        if row.prefix != PREFIX
    ]
