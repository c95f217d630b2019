"""The run: cluster, clients, faults, and the verdict."""

import asyncio
import collections
import contextlib
import itertools
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.smoke.display import Display
from tests.smoke.faults import ZOOKEEPER, Fault, Kind, plan
from tests.smoke.journal import Journal, Outcome
from tests.smoke.line import Shape
from tests.smoke.lines import Lines
from tests.smoke.replicas import ReplicasDifferError
from tests.smoke.trial import check, client_config, committed_marks
from tests.smoke.worker import Options as WorkerOptions
from tests.smoke.worker import command
from tests.smoke.workload import Application
from waltz.client.callbacks import WaltzClient
from waltz.common.errors import WaltzError
from waltz.local.layout import Node
from waltz.local.processes import Child, Children

TICK_S = 0.2
SLOWNESS = 4.0
"""The load may take so many times what it should: faults and slow machines hold it up. Faults go on as long."""
END_TIMEOUT_S = 180.0
"""How much longer than that it may take, and how long clients have to start and to apply the rest."""


WORTH_EXPLAINING_S = 10.0
"""After a longer pause of a partition the report names the faults that overlapped with it."""
BEFORE_S = 1.0
"""A fault may stop a partition a moment after it has begun."""


class Options(NamedTuple):
    """What to run."""

    transactions: int
    seed: int
    rate: float
    """Transactions begun per second by all clients together."""
    clients: int
    servers: int
    storages: int
    partitions: int
    sessions: int
    """So many of the clients append within write sessions."""
    in_flight: int
    """Of each client."""
    large: int
    """So many transactions are large, about."""
    large_bytes: int


class Report(NamedTuple):
    """What came of it."""

    violations: list[str]
    journals: list[Journal]
    faults: list[Fault]
    seconds: float
    started_at_s: float
    """By ``time.monotonic``."""

    def lines(self) -> Iterator[str]:
        """For people."""
        count = collections.Counter(fault.kind.value for fault in self.faults)
        committed = sum(journal.count(Outcome.COMMITTED) for journal in self.journals)
        submitted = sum(len(journal.submitted) for journal in self.journals)
        fences = [fence for journal in self.journals for fence in journal.fences]
        rows = {
            "transactions": f"{submitted:,}",
            "committed": f"{committed:,}",
            "given up": f"{sum(journal.count(Outcome.FAILED) for journal in self.journals):,}",
            "retries": f"{sum(journal.retries for journal in self.journals):,}",
            "lock failures": f"{sum(journal.lock_failures for journal in self.journals):,}",
            "write sessions begun": f"{len(fences):,}, {sum(fence.exclusive for fence in fences):,} exclusive",
            "time": f"{self.seconds:.1f} s, {committed / max(self.seconds, 0.1):,.0f} commits/s",
            "faults": f"{len(self.faults)} ({', '.join(f'{number} {kind}' for kind, number in count.most_common())})",
            "verdict": "nothing lost, doubled, reordered or invented" if not self.violations else "WRONG",
        }
        yield from (f"  {name:<32}{value}" for name, value in rows.items())
        for partition_id in range(len(self.journals[0].applied)):
            begin_s, pause_s = self._longest_pause(partition_id)
            yield f"  {f'longest pause of partition {partition_id}':<32}{pause_s:.1f} s, from {begin_s:.1f} s on"
            if pause_s >= WORTH_EXPLAINING_S:
                during = [fault for fault in self.faults if fault.overlaps(begin_s - BEFORE_S, begin_s + pause_s)]
                yield from (f"    {fault}" for fault in during)
        yield from (f"    {violation}" for violation in self.violations)

    def _longest_pause(self, partition_id: int) -> tuple[float, float]:
        """When it began, since the beginning of the load, and how long there was no commit."""
        commits = sorted(
            sample.applied_at_s
            for journal in self.journals
            for sample in journal.samples
            if sample.partition_id == partition_id
        )
        pauses = ((begin_s - self.started_at_s, end_s - begin_s) for begin_s, end_s in itertools.pairwise(commits))
        return max(pauses, key=lambda pause: pause[1], default=(0.0, 0.0))


class Worker:
    """A client process and what it has said last."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.latest: dict[str, object] = {}
        self.reader: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Read what it says, until it ends."""
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), self.child.pipes[1]
        )
        try:
            while line := await stream.readline():
                self.latest.update(json.loads(line))
        finally:
            transport.close()

    def number(self, name: str) -> int:
        """A number that it has told."""
        value = self.latest.get(name, 0)
        assert isinstance(value, int)
        return value

    def check(self) -> None:
        """Raise :class:`WaltzError` if it failed, or ended before it had settled."""
        if "failed" in self.latest:
            raise WaltzError(f"{self.child.name} failed: {self.latest['failed']}")
        if "settled" not in self.latest and self.reader is not None and self.reader.done():
            self.child.check()


class Smoke:
    """One run in ``directory``, which stays."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._lines = Lines(
            directory, storages=options.storages, servers=options.servers, partitions=options.partitions
        )
        self._cluster = self._lines.cluster
        layout = self._cluster.layout
        self._nodes: dict[str, Node] = {node.name: node for node in (*layout.servers, *layout.storages)}
        self._workers: list[Worker] = []
        self._done: list[Fault] = []
        self._unwell: dict[str, Kind] = {}
        self._node_locks: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        self._finished = asyncio.Event()
        self._display = Display(
            [node.name for node in layout.servers], [node.name for node in layout.storages], options.transactions
        )

    async def run(self) -> Report:
        """Raises :class:`WaltzError` and :class:`TimeoutError` when it cannot be brought to its end."""
        try:
            with Children() as children:
                async with self._lines, self._cluster:
                    await self._lines.opened()
                    await self._start_workers(children)
                    started_at_s = time.monotonic()
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._faults(started_at_s))
                        group.create_task(self._until_finished(started_at_s))
                    seconds = time.monotonic() - started_at_s
                    journals, violations = await self._verdict()
        finally:
            for worker in self._workers:
                if worker.reader is not None:
                    worker.reader.cancel()
        return Report(violations, journals, self._done, seconds, started_at_s)

    # Clients

    async def _start_workers(self, children: Children) -> None:
        options, layout = self._options, self._cluster.layout
        for number in range(options.clients):
            worker_options = WorkerOptions(
                config=layout.client_config_path,
                journal=self._journal_path(number),
                number=number,
                partitions=options.partitions,
                transactions=options.transactions // options.clients
                + (number < options.transactions % options.clients),
                rate=options.rate / options.clients,
                in_flight=options.in_flight,
                large=options.large / options.transactions,
                large_bytes=options.large_bytes,
                zookeeper=self._lines.zookeeper_for_clients,
                sessions=int(number < options.sessions),
                seed=options.seed,
            )
            name = f"client-{number + 1}"
            worker = Worker(children.start(name, command(worker_options), layout.log_path(name), piped=True))
            worker.reader = asyncio.create_task(worker.listen())
            self._workers.append(worker)
        await self._until("ready", END_TIMEOUT_S)

    def _journal_path(self, number: int) -> Path:
        return self._directory / f"client-{number + 1}.journal"

    async def _until(self, word: str, timeout_s: float) -> None:
        """Wait until all clients have said it."""
        async with asyncio.timeout(timeout_s):
            while not all(word in worker.latest for worker in self._workers):
                self._check()
                await asyncio.sleep(TICK_S)

    def _check(self) -> None:
        """Nobody may end unasked."""
        self._cluster.check()
        for worker in self._workers:
            worker.check()

    async def _until_finished(self, started_at_s: float) -> None:
        limit_s = self._options.transactions / self._options.rate * SLOWNESS + END_TIMEOUT_S
        try:
            while not all("finished" in worker.latest for worker in self._workers):
                await asyncio.sleep(TICK_S)
                self._check()
                self._display.show(self._unwell, len(self._done), self._progress())
                if time.monotonic() - started_at_s > limit_s:
                    raise TimeoutError(f"not finished after {limit_s:.0f} s: {self._progress()}")
        finally:
            self._finished.set()
            self._display.end()

    def _progress(self) -> dict[str, int]:
        sums = {name: sum(worker.number(name) for worker in self._workers) for name in ("committed", "retries")}
        return {**sums, "pending": sum(worker.number("pending") for worker in self._workers)}

    # Faults

    async def _faults(self, started_at_s: float) -> None:
        """Do what is planned until the load has ended; return when all nodes are well again."""
        duration_s = self._options.transactions / self._options.rate * SLOWNESS
        async with asyncio.TaskGroup() as group:
            for fault in plan(self._options.seed, duration_s, list(self._nodes)):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, started_at_s + fault.at_s - time.monotonic())):
                        await self._finished.wait()
                if self._finished.is_set():
                    return
                group.create_task(self._suffer(fault))

    async def _suffer(self, fault: Fault) -> None:
        async with self._node_locks[fault.node]:  # ending a node may take longer than the plan gives it
            if not self._finished.is_set():
                await self._have(fault)

    async def _have(self, fault: Fault) -> None:
        with (self._directory / "faults.log").open("a") as log:
            print(time.strftime("%H:%M:%S"), fault, file=log)
        self._done.append(fault)
        self._unwell[fault.node] = fault.kind
        try:
            await self._begin(fault)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(fault.lasting_s):
                    await self._finished.wait()
            await self._end(fault)
        finally:
            del self._unwell[fault.node]

    async def _begin(self, fault: Fault) -> None:
        cluster, proxies = self._cluster, self._lines.all_to(fault.node)
        if fault.kind is Kind.KILL:
            await asyncio.to_thread(cluster.kill, fault.node)
        elif fault.kind is Kind.TERMINATE:
            await asyncio.to_thread(cluster.terminate, fault.node)
        elif fault.kind is Kind.PAUSE:
            cluster.child(fault.node).signal(signal.SIGSTOP)
        for proxy in proxies:
            if fault.kind is Kind.CUT:
                proxy.cut()
            elif fault.kind is Kind.RESET:
                proxy.reset()
            elif fault.kind is Kind.SLOW:
                proxy.shape(fault.shape)
            elif fault.kind is Kind.BLACKHOLE:
                proxy.blackhole()

    async def _end(self, fault: Fault) -> None:
        cluster, node = self._cluster, self._nodes.get(fault.node)
        if fault.kind is Kind.PAUSE:
            cluster.child(fault.node).signal(signal.SIGCONT)
        elif fault.kind is Kind.CUT:
            for proxy in self._lines.all_to(fault.node):
                proxy.mend()
        elif fault.kind is Kind.SLOW:
            for proxy in self._lines.all_to(fault.node):
                proxy.shape(Shape())
        elif fault.kind in (Kind.KILL, Kind.TERMINATE):
            if fault.node == ZOOKEEPER:
                await asyncio.to_thread(cluster.start_zookeeper)
            elif node in cluster.layout.servers:
                cluster.start_server(node)
            elif node is not None:
                cluster.start_storage(node)

    # The end

    async def _verdict(self) -> tuple[list[Journal], list[str]]:
        """Have the clients apply the rest, and compare everything with everything."""
        marks = await self._marks()
        for worker in self._workers:
            pipe = worker.child.pipes[0]
            pipe.write(json.dumps(marks).encode() + b"\n")
            pipe.flush()
        await self._until("settled", END_TIMEOUT_S)
        journals = [Journal.read(self._journal_path(number)) for number in range(self._options.clients)]
        try:
            return journals, await check(self._cluster, journals, marks)
        except ReplicasDifferError as error:
            return journals, [str(error)]

    async def _marks(self) -> list[int]:
        partitions = self._options.partitions
        config = client_config(self._cluster, 1).model_copy(update={"auto_mount": False})
        async with await WaltzClient.open(Application(Journal(-1), partitions), config) as client:
            return await committed_marks(client, partitions)
