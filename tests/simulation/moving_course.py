"""An operator moves a replica with the real ``waltz storage move``, and at one of its steps one thing more fails."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.simulation.cluster import ROOT, StorageHost
from tests.simulation.courses import end_servers
from tests.simulation.loop import Process
from tests.simulation.replacement_course import GOES_ON_WITHIN_S, keep_away, takes_appends
from tests.simulation.target import Fault, Target
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaAssignments
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.replica_moving import MoveOptions, ReplicaMover, locked_moves

STEP_MAX_S = 10.0
"""How long the tool waits for the cluster to follow a step."""
TOOL_MAX_S = 200.0
"""The tool has ended after so long."""
NOTICED_S = 6.0
"""After so long a failure has had its effect."""
ATTEMPTS = 5
"""So many runs of the tool bring a move to its end, once nothing fails any more."""
BYTES_PER_S = (20_000, 100_000, 1_000_000)


class Failure(NamedTuple):
    """One more failure, some time after a moment in the work of the tool."""

    kind: str
    after: str
    """Whether its steps are counted, or its writes to ZooKeeper."""
    number: int
    delay_s: float

    @classmethod
    def drawn(cls, draw: random.Random, kinds: Sequence[str]) -> "Failure":
        """A failure of one of these kinds."""
        if draw.random() < 0.5:
            return cls(draw.choice(kinds), "steps", draw.randrange(4), draw.choice((0.0, 0.1, 0.5, 2.0)))
        return cls(draw.choice(kinds), "writes", draw.randint(1, 10), 0.02 * draw.random())

    def __str__(self) -> str:
        return f"{self.kind} after {self.number} {self.after} and {self.delay_s:.3f} s"


class Plan(NamedTuple):
    """What happens to a move."""

    dead: bool
    """Whether the old storage is dead from the beginning."""
    failure: Failure
    back: bool
    """Whether the move is taken back after the failure."""
    at_once: bool = False
    """Whether nobody waits for the effects of the failure before that."""


KINDS = ("tool", "joining", "owner", "joining and owner")
"""What may fail beside a source that is dead: nothing that counts, or what comes back at once."""
KINDS_WITH_SOURCE = (*KINDS, "source", "another", "joining and another")
"""What may fail while the source lives."""


async def move_by_tool(target: Target, fault: Fault) -> None:
    """A replica moves to another storage of its group, in half of the cases because its storage is dead. At some moment
    one thing more fails: the tool, the new storage, the owner, or one of the replicas if all of them live. The log has
    to go on, and then the move is carried on or taken back, without what is dead if it does not count (L7)."""
    draw = random.Random(fault.other)
    dead = draw.random() < 0.5
    failure = Failure.drawn(draw, KINDS if dead else KINDS_WITH_SOURCE)
    await _move(target, fault, draw, Plan(dead, failure, draw.random() < 0.5))


async def exchange_without_majority(target: Target, fault: Fault) -> None:
    """A replica is exchanged, and the new one dies at once together with a third one: the session cannot do without the
    old one, which counts until it is assigned again."""
    failure = Failure("joining and another", "steps", 1, 0.0)
    await _move(target, fault, random.Random(fault.other), Plan(False, failure, True))


async def take_back_at_once(target: Target, fault: Fault) -> None:
    """A replica is exchanged, and at once the operator interrupts the tool and takes the move back: servers that have
    not heard of it yet may begin a session with the new replica."""
    draw = random.Random(fault.other)
    failure = Failure("interrupt", "steps", 1, draw.choice((0.0, 0.1, 0.5, 2.0)) * draw.random())
    await _move(target, fault, draw, Plan(False, failure, True, at_once=True))


async def _move(target: Target, fault: Fault, draw: random.Random, plan: "Plan") -> None:
    async with target.world.disk_course:
        partition_id = fault.victim % target.world.options.partitions
        replicas = target.cluster.replicas[partition_id]
        source = draw.choice(replicas)
        group = target.cluster.group(target.cluster.storages.index(source) % target.world.options.replicas)
        free = [storage for storage in group if storage not in replicas]
        if free:
            course = MovingCourse(target, fault, draw, partition_id, source, draw.choice(free))
            with target.world.storage_checks.deletions_seen_by(course.deleted):
                try:
                    await course.run(plan)
                finally:
                    course.end()


class MovingCourse:
    """One move."""

    def __init__(
        self,
        target: Target,
        fault: Fault,
        draw: random.Random,
        partition_id: int,
        source: StorageHost,
        joining: StorageHost,
    ) -> None:
        self._target = target
        self._fault = fault
        self._draw = draw
        self._partition_id = partition_id
        self._source = source
        self._joining = joining
        self._away: list[StorageHost] = []
        self._failed = False
        self._tool_task: asyncio.Task[None] | None = None

    async def run(self, plan: Plan) -> None:
        """Everything, from a partition that is well to one that is well."""
        target, partition_id, (dead, failure, back, at_once) = self._target, self._partition_id, plan
        if not await until(lambda: self._goes_on() and self._members() == self._assigned(), 10.0):
            return
        state = "dead" if dead else "alive"
        what = f"moves from {self._source.name}, which is {state}, to {self._joining.name}; fails: {failure}"
        target.say(self._fault, f"partition {partition_id}", what)
        if dead:
            self._lose(self._source)
            await asyncio.sleep(3.0)
        await self._tool(back=False, failure=failure)
        if self._failed and not at_once:
            await asyncio.sleep(NOTICED_S)
            if not await until(self._goes_on, GOES_ON_WITHIN_S - NOTICED_S) and self._has_to_go_on(failure):
                why = f"while it moves from {self._source.name} to {self._joining.name} and {failure.kind} failed"
                target.checker.unavailable(partition_id, why)
        if back:
            await self._take_back(without_majority=dead or failure.kind == "joining and another")
        else:
            await self._finish()

    def deleted(self, storage: str, partition_id: int) -> None:
        """A storage is told to delete its files: no session may count them, nor any that is being opened."""
        metadata = self._metadata()
        for replica_id, state in metadata.replicas.items():
            endpoint = Endpoint.parse(replica_id.connect_string)
            has_vote = state.closing_high_water_mark == UNRESOLVED
            if partition_id == self._partition_id and endpoint.host == storage and has_vote:
                self._target.world.fail(
                    f"{storage} is told to delete its files of partition {partition_id}, and session "
                    f"{metadata.session_id} counts them"
                )

    def end(self) -> None:
        """Nothing stays away, and the simulation knows who has the partition."""
        self._let_come_back()
        replicas = self._target.cluster.replicas[self._partition_id]
        names = self._assigned()
        replicas[:] = [storage for storage in self._target.cluster.storages if storage.connect_string in names]

    async def _take_back(self, *, without_majority: bool) -> None:
        """Without what is dead, unless the source's log has ceased to count and too little of the rest is alive."""
        source, fail = self._source.connect_string, self._target.world.fail
        if ClusterPaths.of(ROOT).replica_move(self._partition_id) not in self._nodes():
            if source in self._listed() and source not in self._assigned():
                fail(f"nothing says that partition {self._partition_id} is being moved away from {self._source.name}")
            return  # it is at its end, or has not begun
        if without_majority and source not in self._listed():
            await self._finish()
            return
        for _ in range(ATTEMPTS):
            if await self._tool(back=True):
                break
        else:
            fail(f"the move of partition {self._partition_id} to {self._joining.name} cannot be taken back")
        if self._joining.connect_string in self._assigned():
            fail(f"{self._joining.name} has partition {self._partition_id}, which was taken back")

    async def _finish(self) -> None:
        """With what was dead, unless that is the source."""
        self._away, away = [], self._away
        for storage in away:
            if storage is self._source:
                self._away.append(storage)
            else:
                come_back(storage)
        for _ in range(ATTEMPTS):
            if await self._tool(back=False):
                break
        else:
            self._target.world.fail(f"the move of partition {self._partition_id} comes to no end")
        if self._source.connect_string in self._assigned():
            self._target.world.fail(f"{self._source.name} has partition {self._partition_id}, which has moved away")

    # The tool

    async def _tool(self, *, back: bool, failure: Failure | None = None) -> bool:
        """Run ``waltz storage move``; whether it ended without an error."""
        world = self._target.world
        process = Process(world.loop, "operator")
        counts = Counter[str]()

        def count(what: str) -> None:
            counts[what] += 1
            look(what)

        def look(what: str) -> None:
            if failure is not None and (failure.after, failure.number) == (what, counts[what]):
                world.loop.call_later(failure.delay_s, self._fail, failure, process, context=world.network.context)

        task = process.run(self._work(process, back, count))
        self._tool_task = task
        look("steps")
        try:
            if not await until(lambda: task.done() or not process.alive, TOOL_MAX_S):
                world.fail(f"the tool that moves partition {self._partition_id} has not ended after {TOOL_MAX_S} s")
        finally:
            process.kill(power_loss=False)
        if not task.done() or task.cancelled():
            return False
        if isinstance(error := task.exception(), WaltzError):
            world.trace.line("operator", f"fails: {error}")
            return False
        task.result()
        return True

    async def _work(self, process: Process, back: bool, count: Callable[[str], None]) -> None:
        world = self._target.world

        def report(line: str) -> None:
            world.trace.line("operator", line)
            if ": done: " in line:
                count("steps")

        timeout_s = world.options.session_timeout_s
        zookeeper = await world.ensemble.connect(process, timeout_s)
        zookeeper.before_writes(lambda: count("writes"))
        move = ReplicaMove(self._source.connect_string, self._joining.connect_string)
        options = MoveOptions(back, self._draw.choice(BYTES_PER_S), STEP_MAX_S)
        try:
            async with locked_moves(ClusterHandle(zookeeper, ROOT, None), timeout_s, report) as cluster:
                mover = ReplicaMover(cluster, move, options, report, _no_progress)
                plan = await mover.plan([self._partition_id])
                for line in plan.lines():
                    report(line)
                if plan.steps:
                    report(plan.outcome(await mover.carry_out(plan)))
        finally:
            await zookeeper.close()

    # Failures

    def _fail(self, failure: Failure, tool: Process) -> None:
        """One more failure, if the tool is still at work."""
        if not tool.alive or self._failed:
            return
        self._failed = True
        self._target.world.trace.line("FAULT", f"now fails: {failure.kind}")
        if failure.kind == "tool":
            tool.kill(power_loss=False)
        if failure.kind == "interrupt" and self._tool_task is not None:
            self._tool_task.cancel()
        if "joining" in failure.kind:
            self._lose(self._joining)
        if "owner" in failure.kind:
            end_servers(self._target)
        if failure.kind == "source":
            self._lose(self._source)
        if "another" in failure.kind:
            replicas = self._target.cluster.replicas[self._partition_id]
            self._lose(next(storage for storage in replicas if storage is not self._source))

    def _has_to_go_on(self, failure: Failure) -> bool:
        """Whether no more than one of the replicas that count has failed."""
        return failure.kind != "joining and another" or self._joining.connect_string not in self._listed()

    def _lose(self, storage: StorageHost) -> None:
        keep_away(storage)
        self._away.append(storage)

    def _let_come_back(self) -> None:
        for storage in self._away:
            come_back(storage)
        self._away.clear()

    # The present state

    def _goes_on(self) -> bool:
        return takes_appends(self._target, self._partition_id)

    def _assigned(self) -> frozenset[str]:
        path = ClusterPaths(ROOT).assignment
        return ReplicaAssignments.decode(self._nodes()[path], path).storages_of(self._partition_id)

    def _metadata(self) -> PartitionMetadata:
        path = ClusterPaths(ROOT).partition(self._partition_id)
        return PartitionMetadata.decode(self._nodes()[path], path)

    def _listed(self) -> set[str]:
        return {replica.connect_string for replica in self._metadata().replicas}

    def _members(self) -> set[str]:
        metadata = self._metadata()
        states = metadata.replicas.items()
        return {replica.connect_string for replica, state in states if state.is_member_of(metadata.session_id)}

    def _nodes(self) -> dict[str, bytes | None]:
        return self._target.world.ensemble.server.dump()


def come_back(storage: StorageHost) -> None:
    """Start a storage that was kept away."""
    storage.kept_away = False
    storage.start()


@contextlib.contextmanager
def _no_progress(_title: str, _total: int, _unit: str) -> Iterator[Callable[[int], object]]:
    yield lambda _amount: None


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait for a condition; false when the time is over."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not condition():
        if loop.time() > deadline_s:
            return False
        await asyncio.sleep(0.05)
    return True
