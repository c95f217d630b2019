"""Mirrors within one cluster: the last partition is that of partition 0, and nobody else may write to it.

The real code of ``waltz-mirror`` runs for the one partition: it reads the source as any client does, and appends to the
target in its exclusive session. Processes are killed at each of their steps, one step after the other, beside all other
faults; some run without the lock that keeps two of them apart, as if the ZooKeeper session with it had ended. An
intruder appends to the target while a mirror holds the exclusive session. Each transaction of the target is compared
with that of the source when it is seen for the first time.
"""

import asyncio
import contextlib
import functools
import itertools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID

from tests.simulation.checker import Checker, Entry
from tests.simulation.clients import client_environment
from tests.simulation.cluster import ROOT, Host, World
from tests.simulation.loop import Process, running_process
from tests.simulation.options import SimulationOptions
from waltz.asynchronous import Client
from waltz.client.plain import reader
from waltz.common.cluster.owners import read_owners
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.common.wire.client_server import MountRequest, MountResponse
from waltz.common.zk import mutex as locks
from waltz.common.zk.client import NodeExistsError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror import attempts
from waltz.mirror.attempts import Target
from waltz.mirror.claims import Claims
from waltz.mirror.mirror_metrics import MirrorState
from waltz.mirror.partition_mirror import PartitionMirror
from waltz.mirror.source_log import ClientLog
from waltz.mirror.target_link import TargetLink
from waltz.mirror.window import Window, WindowLimit

T = TypeVar("T")

SOURCE = 0
SOURCE_KEY = "the source"
UNLOCKED_SHARE = 0.5
"""Share of the runs of mirrors that take no lock."""
INTRUDER_CLIENT_ID = 1 << 25
"""Above those that the cluster gives."""

LOOK, FENCE, CLAIM, BEGIN, TAKE, APPEND, COMMIT = "look", "fence", "claim", "begin", "take", "append", "commit"
STEPS = (
    *(f"{when} {step}" for step in (LOOK, FENCE, CLAIM, BEGIN) for when in ("before", "within", "behind")),
    *(f"behind {step}" for step in (TAKE, APPEND, COMMIT)),
)
"""At which processes are killed: questions to the target, and what happens to single transactions."""


def target_of(options: SimulationOptions) -> int:
    """The partition that is a mirror."""
    return options.partitions - 1


class CheckedLog(ClientLog):
    """Tells the checker what the mirror takes from the source."""

    def __init__(self, client: Client, host: "MirrorHost") -> None:
        super().__init__(client, SOURCE)
        self._host = host

    async def following(self, last_id: int) -> AsyncGenerator[Sequence[Record], None]:
        """See the base class."""
        async with contextlib.aclosing(super().following(last_id)) as batches:
            async for records in batches:
                self._host.taken(records)
                yield records
                await self._host.reached(f"behind {TAKE}")


class MirrorHost(Host):
    """Runs the mirror of one partition."""

    def __init__(self, world: World, number: int, checker: Checker, mirrors: "Mirrors") -> None:
        super().__init__(world, f"mirror-{number}")
        self.doom = ""
        """The step at which it is killed, if it is to be."""
        self._checker = checker
        self._mirrors = mirrors
        self._draw = world.random(self.name)
        self._countdown = 0
        self._working: asyncio.Task[None] | None = None
        self.locks = True
        """Whether the present run takes the lock."""

    @property
    def up(self) -> bool:
        return self.running and self._working is not None

    async def program(self, process: Process) -> None:
        self._working = None
        self.locks = self._draw.random() >= UNLOCKED_SHARE
        zookeeper = await self.connect_zookeeper(process)
        with contextlib.suppress(NodeExistsError):
            await zookeeper.create(ClusterPaths.of(ROOT).mirrors, None, make_path=True)
        run, state = f"{self.name} run {self.runs}", MirrorState()
        async with Client(client_environment(self.world, run, zookeeper)) as client:
            mirror = PartitionMirror(
                target_of(self.world.options),
                CheckedLog(client, self),
                SOURCE_KEY,
                Target(zookeeper, ROOT, None, client.client_id),
                WindowLimit(self._draw.choice((3, 30, 1000)), self._draw.choice((2_000, 1 << 20))),
                state,
                itertools.count().__next__,
            )
            self._working = working = asyncio.create_task(mirror.run())
            await asyncio.wait([working])
            if not working.cancelled():
                await working
                self.world.fail(f"{self.name} has given up: {state.partitions[target_of(self.world.options)].reason}")
        await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        if self.zookeeper is not None:
            await self.zookeeper.close()

    def taken(self, records: Sequence[Record]) -> None:
        """What the source has delivered is committed there."""
        for record in records:
            entry = Entry(bytes(record.req_id), record.header)
            self._checker.certain(self.name, SOURCE, record.transaction_id, entry)
            self._checker.read(self.name, SOURCE, record.header, record.data)

    def sentence(self, step: str) -> None:
        """Have it killed when it comes to a step; among single transactions after some of them."""
        self.doom = step
        self._countdown = self._draw.choice((1, 2, 10, 40)) if step in STEPS[-3:] else 1

    def passes(self, step: str) -> bool:
        """The process comes to a step. Returns whether that is its last one: it ends after the present callback."""
        if step != self.doom:
            return False
        self._countdown -= 1
        if self._countdown:
            return False
        self.doom = ""
        self._mirrors.killed_at[step] += 1
        self.world.trace.line(self.name, f"is killed {step}")
        within = step.startswith("within")
        delay_s = 0.02 * self._draw.random() if within else 0.0
        self.world.loop.call_later(delay_s, self._kill, self.process, context=self.world.network.context)
        return not within

    async def reached(self, step: str) -> None:
        """The same, where nothing follows the last step."""
        if self.passes(step):
            await asyncio.Event().wait()

    def _kill(self, process: Process) -> None:
        if process is self.process:
            self.crash(power_loss=False)
            self.start_in(self._draw.choice((0.0, 1.0, 4.0)) * self._draw.random())


class IntruderHost(Host):
    """Appends to the target, by the generations in which a mirror has fenced: only its exclusive session is in the
    way."""

    def __init__(self, world: World, mirrors: "Mirrors") -> None:
        super().__init__(world, "intruder")
        self.refused = 0
        """Connections that have ended with a refusal."""
        self._mirrors = mirrors
        self._draw = world.random(self.name)
        self._numbers = itertools.count()

    @property
    def up(self) -> bool:
        return False  # nothing of it ends in order

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        while True:
            await asyncio.sleep(self._draw.choice((0.05, 0.5, 2.0)) * self._draw.random())
            with contextlib.suppress(WaltzError):
                await self._intrude(zookeeper)

    async def _intrude(self, zookeeper: ZooKeeper) -> None:
        partition_id = target_of(self.world.options)
        owner = (await read_owners(zookeeper, ROOT)).get(partition_id)
        if owner is None or owner.generation not in self._mirrors.fenced:
            return
        client_id = INTRUDER_CLIENT_ID + next(self._numbers)
        link = await TargetLink.open(owner, partition_id, client_id, lambda _: None, 0, tls=None)
        try:
            last_id = await link.last_transaction_id()
            await link._ask(lambda req_id: MountRequest(req_id, last_id, 0), MountResponse)
            for number in range(5):
                req_id = ReqId.of(client_id, owner.generation, partition_id, link.next_number)
                link.append(Record(last_id + 1 + number, req_id, -1, b"an intruder's", 0))
            async with asyncio.timeout(5.0):
                await link.ended
        except TimeoutError:
            pass
        finally:
            self.refused += link.ended.done() and "write session" in str(link.ended.exception())
            await link.close()


class Mirrors:
    """The processes, what happens to them, and what is checked."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._checker = checker
        self._target = target_of(world.options)
        checker.mirror_of[self._target] = SOURCE
        self.fenced: set[int] = set()
        """The generations of the target in which a mirror has fenced."""
        self.killed_at: Counter[str] = Counter()
        self.mirrors = [MirrorHost(world, number, checker, self) for number in range(world.options.mirrors)]
        self._intruder = IntruderHost(world, self)
        self.hosts: list[Host] = [*self.mirrors, self._intruder]
        self._numbers = itertools.count()

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    async def trouble(self) -> None:
        """From the beginning of the faults to their end mirrors are killed, at one step after the other."""
        draw = self._world.random("troubles of mirrors")
        steps = list(STEPS)
        draw.shuffle(steps)
        for step in itertools.cycle(steps):
            await asyncio.sleep(draw.choice((0.0, 0.3, 1.5)) * draw.random())
            before = self.killed_at[step]
            for host in self.mirrors:
                host.sentence(step)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(6.0):
                    while self.killed_at[step] == before:
                        await asyncio.sleep(0.1)

    def calm_down(self) -> None:
        """From now on nobody is killed."""
        for host in self.mirrors:
            host.doom = ""

    def left(self) -> list[str]:
        """What of the source is not in the target."""
        source, target = self._checker.log[SOURCE], self._checker.log[self._target]
        return [f"the mirror has {len(target)} of {len(source)}"] if len(target) < len(source) else []

    def check(self) -> None:
        """At the end."""
        if not self.killed_at:
            self._world.fail("no mirror was killed")

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """While this lasts, steps of mirrors are seen, and all that mirrors draw is drawn from the seed."""
        draw = self._world.random("mirrors")
        numbered = SimpleNamespace(uuid4=lambda: UUID(int=next(self._numbers)))
        chance = SimpleNamespace(Random=lambda: random.Random(draw.random()))
        real = locks.mutex
        fence, committed, append = TargetLink.fence, Window.committed, TargetLink.append

        async def fenced(link: TargetLink) -> int:
            last_id = await fence(link)
            self.fenced.add(link._owner.generation)
            return last_id

        def appended(link: TargetLink, record: Record) -> None:
            append(link, record)
            self._passes(f"behind {APPEND}")

        def marked(window: Window, transaction_id: int) -> tuple[int, int]:
            counts = committed(window, transaction_id)
            self._passes(f"behind {COMMIT}")
            return counts

        with (
            mock.patch.object(attempts, "random", chance),
            mock.patch.object(reader, "random", chance),
            mock.patch.object(locks, "uuid", numbered),
            mock.patch.object(attempts, "mutex", functools.partial(self._mutex, real)),
            mock.patch.object(TargetLink, "last_transaction_id", self._step(LOOK, TargetLink.last_transaction_id)),
            mock.patch.object(TargetLink, "fence", self._step(FENCE, fenced)),
            mock.patch.object(TargetLink, "begin", self._step(BEGIN, TargetLink.begin)),
            mock.patch.object(Claims, "take", self._step(CLAIM, Claims.take)),
            mock.patch.object(TargetLink, "append", appended),
            mock.patch.object(Window, "committed", marked),
        ):
            yield

    def _host(self) -> MirrorHost | None:
        """The mirror that is running, if any."""
        process = running_process()
        return next((host for host in self.mirrors if process is not None and host.name == process.host), None)

    def _passes(self, step: str) -> None:
        host = self._host()
        if host is not None:
            host.passes(step)

    def _step(self, name: str, work: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def stepping(*arguments: object) -> T:
            host = self._host()
            if host is None:  # the intruder
                return await work(*arguments)
            await host.reached(f"before {name}")
            host.passes(f"within {name}")
            result = await work(*arguments)
            await host.reached(f"behind {name}")
            return result

        return stepping

    def _mutex(
        self,
        real: Callable[..., AbstractAsyncContextManager[ZooKeeper]],
        zookeeper: ZooKeeper,
        path: str,
        **options: Any,
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        host = self._host()
        if host is not None and not host.locks:
            return contextlib.nullcontext(zookeeper)
        return real(zookeeper, path, **options)
