"""An operator repairs a replica by the real ``waltz storage repair``, and at one of its steps one thing more fails."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from tests.simulation.cluster import ADMIN_PORT, ROOT, StorageHost
from tests.simulation.courses import end_servers
from tests.simulation.damage import MARK_TIMEOUT_S, damage_file, finish_repairs, scan
from tests.simulation.loop import Process
from tests.simulation.moving_course import NOTICED_S, come_back, until
from tests.simulation.replacement_course import GOES_ON_WITHIN_S, keep_away, takes_appends
from tests.simulation.target import Fault, Target
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.wire.admin_version1 import RepairCommitRequest
from waltz.operations import repair as repairs
from waltz.storage.remote.admin_client import StorageAdminClient

TOOL_MAX_S = 200.0
"""The tool has ended after so long."""
RECORDS_AT_ONCE = 2
"""The tool takes so many records from another replica with a request, so that it makes many steps."""
WHILE_IT_WRITES = "power while it writes"
"""The power fails while the node puts the records in their places."""
KINDS = ("tool", "node", "power", WHILE_IT_WRITES, WHILE_IT_WRITES, "source", "owner")

_Answer = TypeVar("_Answer")


class Failure(NamedTuple):
    """One more failure, some time after a moment in the work of the tool."""

    kind: str
    number: int
    """Of that moment: requests and their answers are counted; 0: when the node is told to put the records in place."""
    delay_s: float
    operations: int
    """The power fails in so many writes, syncs and changes of directories."""

    @classmethod
    def drawn(cls, draw: random.Random) -> "Failure":
        """Any failure."""
        kind, number, operations = draw.choice(KINDS), draw.randint(1, 18), draw.randint(1, 16)
        delay_s = draw.choice((0.0, 0.01, 0.5)) * draw.random()
        return cls(kind, 0, 0.0, operations) if kind == WHILE_IT_WRITES else cls(kind, number, delay_s, operations)

    def __str__(self) -> str:
        if self.kind == WHILE_IT_WRITES:
            return f"{self.kind}, with operation {self.operations}"
        return f"{self.kind} after {self.number} requests and answers and {self.delay_s:.3f} s"


async def repair_by_tool(target: Target, fault: Fault) -> None:
    """Records of a replica decay, and an operator repairs them. At some moment one thing more fails: the tool, the node
    that is repaired, its power, another replica, the owner. The log has to go on, and a further run of the tool ends
    the repair."""
    async with target.world.disk_course:
        await finish_repairs(target)
        draw = random.Random(fault.other)
        partition_id = fault.victim % target.world.options.partitions
        storage = draw.choice(target.cluster.replicas[partition_id])
        course = RepairCourse(target, fault, draw, partition_id, storage)
        try:
            await course.run()
        finally:
            course.end()
        await finish_repairs(target)


class RepairCourse:
    """One repair."""

    def __init__(
        self, target: Target, fault: Fault, draw: random.Random, partition_id: int, storage: StorageHost
    ) -> None:
        self._target = target
        self._fault = fault
        self._draw = draw
        self._partition_id = partition_id
        self._storage = storage
        self._failure = Failure.drawn(draw)
        self._moments = 0
        self._failed = asyncio.Event()
        self._away: list[StorageHost] = []

    async def run(self) -> None:
        """From a partition that is well to one that is, but for a storage that is perhaps still damaged."""
        target, storage, failure = self._target, self._storage, self._failure
        if not (await until(self._goes_on, 10.0) and self._decay()):
            return
        if self._draw.random() < 0.4:  # the node has not found the damage yet, or does not open the partition
            storage.crash(power_loss=False)
            storage.start()
            await asyncio.sleep(1.0)
        if await scan(storage, self._partition_id):
            target.say(self._fault, storage.name, f"is to be repaired; fails: {failure}")
            await self._tool()
        if not self._failed.is_set():
            return
        await asyncio.sleep(NOTICED_S)
        if failure.kind != "source" and not await until(self._goes_on, GOES_ON_WITHIN_S - NOTICED_S):
            why = f"while {storage.name} is repaired and {failure.kind} failed"
            target.checker.unavailable(self._partition_id, why)

    def end(self) -> None:
        """Nothing stays away."""
        self._storage.disk.operations_until_crash = None
        for storage in self._away:
            come_back(storage)
        if not self._storage.running:
            self._storage.start_in(0.2)

    def _goes_on(self) -> bool:
        return takes_appends(self._target, self._partition_id)

    def _decay(self) -> bool:
        """Damage some records; whether there were any."""
        newest = self._draw.choice((6, 40, 200))
        found = [
            damage_file(self._target, self._draw, self._storage, self._partition_id, "record", newest)
            for _ in range(self._draw.randint(1, 5))
        ]
        return any(where is not None for where in found)

    # The tool

    async def _tool(self) -> None:
        """Run ``waltz storage repair``."""
        world = self._target.world
        process = Process(world.loop, "operator")

        def counted(request: object) -> None:
            self._moments += 1
            writes = isinstance(request, RepairCommitRequest) and self._failure.kind == WHILE_IT_WRITES
            if writes or self._moments == self._failure.number:
                world.loop.call_later(self._failure.delay_s, self._fail, process, context=world.network.context)

        with (
            mock.patch.object(repairs, "StorageAdminClient", _counting(counted)),
            mock.patch.object(repairs, "FETCH_RECORDS", RECORDS_AT_ONCE),
        ):
            task = process.run(self._work(process))
            try:
                if not await until(lambda: task.done() or not process.alive, TOOL_MAX_S):
                    world.fail(f"the tool that repairs {self._storage.name} has not ended after {TOOL_MAX_S} s")
            finally:
                process.kill(power_loss=False)
        if task.done() and isinstance(error := task.exception(), WaltzError):
            world.trace.line("operator", f"fails: {error}")
        elif task.done():
            task.result()
            if self._moments >= self._failure.number > 0:  # what is done has to outlast what comes then
                await until(self._failed.is_set, self._failure.delay_s + 0.1)

    async def _work(self, process: Process) -> None:
        world, partition_id, storage = self._target.world, self._partition_id, self._storage
        zookeeper = await world.ensemble.connect(process, world.options.session_timeout_s)
        try:
            cluster = ClusterHandle(zookeeper, ROOT, None)
            deadline_s = world.loop.now_s + MARK_TIMEOUT_S
            marks: dict[int, int] = {}
            try:
                marks = await read_committed_marks(cluster, [partition_id], deadline_s=deadline_s)
            except WaltzError as error:
                world.trace.line("operator", f"goes on without a mark: {error}")
            node = Endpoint(storage.name, ADMIN_PORT)
            repair = repairs.Repair(cluster, node, partition_id, lambda line: world.trace.line("operator", line))
            done = await repair.run(marks.get(partition_id))
            world.trace.line("operator", f"has repaired partition {partition_id} of {storage.name}: {done}")
            world.storage_checks.repaired(storage.name, partition_id)
        finally:
            await zookeeper.close()

    # The failure

    def _fail(self, tool: Process) -> None:
        kind, storage = self._failure.kind, self._storage
        if self._failed.is_set() or not storage.running or (kind == "tool" and not tool.alive):
            return
        self._failed.set()
        self._target.world.trace.line("FAULT", f"now fails: {kind}")
        if kind == "tool":
            tool.kill(power_loss=False)
        elif kind == "node":
            storage.crash(power_loss=False)
            storage.start_in(1.0)
        elif kind == "power":
            storage.crash(power_loss=True)
            storage.start_in(1.0)
        elif kind == WHILE_IT_WRITES:
            storage.disk.operations_until_crash = self._failure.operations
        elif kind == "source":
            others = [each for each in self._target.cluster.replicas[self._partition_id] if each is not storage]
            lost = self._draw.choice(others)
            keep_away(lost)
            self._away.append(lost)
        else:
            end_servers(self._target)


def _counting(counted: Callable[[object], None]) -> type[StorageAdminClient]:
    """A client that tells of its requests and of their answers."""

    class CountingClient(StorageAdminClient):
        async def _request(self, request: Any, response_type: type[_Answer], timeout_s: float | None = None) -> _Answer:
            counted(request)
            answer = await super()._request(request, response_type, timeout_s)
            counted(answer)
            return answer

        async def _long_request(self, request: Any, response_type: type[_Answer]) -> _Answer:
            counted(request)
            answer = await super()._long_request(request, response_type)
            counted(answer)
            return answer

    return CountingClient
