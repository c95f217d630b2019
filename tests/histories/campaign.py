"""A campaign: a cluster of real processes, clients that write down what they do, faults, and the history of it all."""

import asyncio
import collections
import contextlib
import functools
import itertools
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import waltz
from tests.histories import workloads
from tests.histories.events import EffectLine, FaultLine, Header, OwnerLine, RecordLine, merge, text_of
from tests.histories.faults import MEAN_PAUSE_S, ZOOKEEPER, Fault, Kind, schedule
from tests.histories.pairs import Pairs
from tests.histories.planted import command
from tests.histories.view_nodes import ViewNodes
from tests.histories.worker import BEGIN_NOTHING, END, STRIKE, arguments
from tests.histories.worker import Options as WorkerOptions
from tests.integration.spare import SpareCluster
from tests.smoke.journal import Journal
from tests.smoke.lines import Lines
from tests.smoke.replicas import Replicas
from tests.smoke.smoke import Worker
from tests.smoke.trial import client_config, committed_marks
from tests.smoke.workload import Application
from waltz.client.callbacks import WaltzClient
from waltz.common.errors import WaltzError
from waltz.common.records import Record
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_partition_assignment, read_replica_assignments
from waltz.local.layout import ROOT, Node
from waltz.local.processes import Child, Children
from waltz.table.envelope import Batch, decode

STORAGES = 4
"""The last one is there to take replicas."""
REGISTERS, LISTS, FENCES, LEDGER = 0, 1, 2, [3, 4]
PARTITIONS = 5
OPS_OF_A_PROCESS = 10_000_000
TICK_S = 0.1
OWNER_INTERVAL_S = 0.05
SHOW_INTERVAL_S = 5.0
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 240.0
TOOL_TIMEOUT_S = 180.0
STRIKE_TIMEOUT_S = 10.0
"""A consumer that has no share of the partitions does nothing within which it could be struck."""
STUCK_S = 180.0
"""After so long without a finished operation a campaign is given up."""
ATTEMPTS = 5
"""Of an operator's tool, which fails while the wrong nodes are away."""
NO_ZOOKEEPER = "no ZooKeeper server answers"
"""Nodes end with this error at their start, for their supervisor to start them again."""
EAGER = {"storage.maxRetryInterval": 1000}
"""Servers try a storage that is back again so often at least (in milliseconds)."""


class Options(NamedTuple):
    """What to run."""

    operations: int
    """After so many it ends."""
    seed: int
    servers: int = 2
    clients: int = 3
    views: int = 2
    faults: int = 0
    """It does not end before so many have ended."""
    pause_s: float = MEAN_PAUSE_S
    """Mean time between two faults."""
    planted: str = ""
    """Bugs that processes have (see :mod:`tests.histories.planted`), with commas between them."""


class Campaign:
    """One campaign in ``directory``, which stays; the history is in ``history.jsonl`` there."""

    def __init__(self, options: Options, directory: Path, plan: Iterable[Fault] | None = None) -> None:
        """``plan`` are the faults; by default those that follow from the seed."""
        self._options = options
        self._plan = plan
        self._directory = directory
        self._lines = Lines(
            directory,
            storages=STORAGES,
            servers=options.servers,
            partitions=PARTITIONS,
            plaintext=True,
            server_overrides=EAGER,
            kind=SpareCluster,
            storages_too=True,
        )
        self._cluster = self._lines.cluster
        layout = self._cluster.layout
        self._nodes = {node.name: node for node in (*layout.servers, *layout.storages)}
        self._clients = [f"client-{number + 1}" for number in range(options.clients)]
        names = [f"view-{number + 1}" for number in range(options.views)]
        self._views = ViewNodes(names, layout, [REGISTERS], self._lines.zookeeper_for_clients, options.planted)
        self._workers: dict[str, Worker] = {}
        self._histories: list[Path] = []
        self._incarnations = itertools.count(1)
        self._done_before = 0
        self._unwell: collections.Counter[str] = collections.Counter()
        self._locks: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        self._said: list[str] = []
        self._finished = asyncio.Event()
        self._pairs = Pairs(self._processes)
        self._places = [(layout.storages[0], layout.storages[-1])] * PARTITIONS
        """By partition the storage whose replica is moved next, and where it goes."""
        self._half_moved: set[int] = set()
        self._to_move = itertools.cycle(range(PARTITIONS))
        self._children: Children
        self.faults = 0
        """How many have begun."""
        self._ended_faults = 0

    @property
    def history(self) -> Path:
        """The history of the campaign, when it has ended."""
        return self._directory / "history.jsonl"

    async def run(self) -> None:
        """Raises :class:`WaltzError` and :class:`TimeoutError` when it cannot be brought to its end."""
        try:
            with Children() as self._children:
                async with self._lines, self._cluster, self._views.within(self._children):
                    await self._lines.opened()
                    await self._prepare()
                    for client in self._clients:
                        self._start_client(client)
                    await self._until("ready", START_TIMEOUT_S)
                    await self._work()
                    await self._gather()
        finally:
            for worker in self._workers.values():
                if worker.reader is not None:
                    worker.reader.cancel()

    async def _prepare(self) -> None:
        """Relays that know pairs, tables, and the database of the consumers."""
        for name in (*self._nodes, ZOOKEEPER):
            for relay in self._lines.all_to(name):
                relay.whole_from = self._pairs.of(name)
        for name, relay in self._views.relays.items():
            relay.whole_from = self._pairs.of(name)
        async with waltz.connect(self._cluster.layout.client_config_path) as client:
            for partition_id in (REGISTERS, LISTS):
                await waltz.table.configure(client, partition_id, {"format": "table"})
        workloads.create_database(self._database)
        await self._views.start()

    @property
    def _database(self) -> Path:
        return self._directory / "effects.sqlite"

    def _processes(self) -> dict[str, int]:
        clients = {name: worker.child.process_id for name, worker in self._workers.items() if worker.child.running}
        return {**self._cluster.processes(), **self._views.processes(), **clients}

    # Clients

    def _start_client(self, name: str) -> None:
        incarnation = next(self._incarnations)
        process = f"{name}.{incarnation}"
        path = self._directory / f"{process}.jsonl"
        options = WorkerOptions(
            config=self._cluster.layout.client_config_path,
            history=path,
            database=self._database,
            zookeeper=self._lines.zookeeper_for_clients,
            name=process,
            first_op=incarnation * OPS_OF_A_PROCESS,
            registers=REGISTERS,
            lists=LISTS,
            fences=FENCES,
            ledger=LEDGER[0],
            views=",".join(self._views.endpoints),
            seed=self._options.seed,
        )
        log = self._cluster.layout.log_path(name)
        program = command("tests.histories.worker", arguments(options), self._options.planted)
        worker = Worker(self._children.start(process, program, log, piped=True))
        worker.reader = asyncio.create_task(worker.listen())
        for line in self._said:
            _tell(worker, line)
        self._workers[name] = worker
        self._histories.append(path)

    async def _kill_client(self, name: str, *, strike: bool) -> bool:
        """Kill a client, if possible within an effect of its consumer; whether it was."""
        worker = self._workers[name]
        struck = False
        if strike:
            _tell(worker, STRIKE)
            with contextlib.suppress(TimeoutError):
                await asyncio.to_thread(worker.child.wait, STRIKE_TIMEOUT_S)
                struck = True
        await asyncio.to_thread(worker.child.signal, signal.SIGKILL)
        await asyncio.to_thread(worker.child.wait, 10)
        if worker.reader is not None:
            await worker.reader
        self._done_before += worker.number("done")
        self._children.kill(worker.child)
        return struck

    async def _until(self, word: str, timeout_s: float) -> None:
        """Wait until all clients have said it. One that did not find ZooKeeper at its start is started again."""
        async with asyncio.timeout(timeout_s):
            while not all(word in worker.latest for worker in self._workers.values()):
                await asyncio.sleep(TICK_S)
                self._check()

    def _check(self) -> None:
        """Nobody may end unasked, except who did not find ZooKeeper at its start."""
        for name in self._cluster.layout.names:
            with contextlib.suppress(KeyError):  # it was killed
                child = self._cluster.child(name)
                if not child.running:
                    if NO_ZOOKEEPER not in child.log_tail():
                        child.check()
                    self._cluster.bring_back(name)
        self._views.check(self._unwell)
        for name, worker in list(self._workers.items()):
            if self._unwell[name] or "settled" in worker.latest or worker.reader is None or not worker.reader.done():
                continue
            if "ready" in worker.latest or "ended" not in worker.latest:
                worker.child.check()
            else:
                self._start_client(name)

    @property
    def _done(self) -> int:
        return self._done_before + sum(
            worker.number("done") for name, worker in self._workers.items() if not self._unwell[f"{name} is dead"]
        )

    # The campaign

    async def _work(self) -> None:
        """Until there are enough operations, or Ctrl-C."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._finished.set)
        with contextlib.ExitStack() as stack:
            stack.callback(loop.remove_signal_handler, signal.SIGINT)
            faults, owners = [
                stack.enter_context((self._directory / name).open("w", buffering=1))
                for name in ("nemesis.jsonl", "owners.jsonl")
            ]
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until_enough())
                group.create_task(self._have_faults(faults.write))
                group.create_task(self._watch_owners(owners.write))

    async def _until_enough(self) -> None:
        started_at_s = shown_at_s = moved_at_s = time.monotonic()
        before = 0
        try:
            while not self._finished.is_set():
                done = self._done
                if done >= self._options.operations and self._ended_faults >= self._options.faults:
                    break
                await asyncio.sleep(TICK_S)
                self._check()
                now_s = time.monotonic()
                if done > before:
                    before, moved_at_s = done, now_s
                elif now_s - moved_at_s > STUCK_S:
                    raise TimeoutError(f"no operation has ended for {STUCK_S:g} s; unwell: {dict(self._unwell)}")
                if now_s - shown_at_s >= SHOW_INTERVAL_S:
                    shown_at_s = now_s
                    unwell = ", ".join(name for name, count in self._unwell.items() if count) or "nobody"
                    print(
                        f"{now_s - started_at_s:6.1f} s  {done:,} of {self._options.operations:,} operations, "
                        f"{self.faults} faults, unwell: {unwell}",
                        flush=True,
                    )
        finally:
            self._finished.set()

    async def _watch_owners(self, write: Callable[[str], object]) -> None:
        """Write down which server has which partition, until the end."""
        owners: dict[int, int] = {}
        zookeeper: ZooKeeper | None = None
        try:
            while not self._finished.is_set():
                try:
                    if zookeeper is None:
                        zookeeper = await self._cluster.zookeeper()
                    assignment = await read_partition_assignment(zookeeper, ROOT)
                except (WaltzError, TimeoutError):  # ZooKeeper is away
                    if zookeeper is not None:
                        await zookeeper.close()
                        zookeeper = None
                    await asyncio.sleep(OWNER_INTERVAL_S)
                    continue
                for server, owned in assignment.servers.items():
                    for partition_id, _ in owned:
                        if owners.get(partition_id) != server:
                            owners[partition_id] = server
                            write(text_of(OwnerLine(partition=partition_id, server=server, at_ns=time.monotonic_ns())))
                await asyncio.sleep(OWNER_INTERVAL_S)
        finally:
            if zookeeper is not None:
                await zookeeper.close()

    # Faults

    async def _have_faults(self, write: Callable[[str], object]) -> None:
        """Do what is planned until the end; return when everybody is well again."""
        started_at_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in self._schedule() if self._plan is None else self._plan:
                if await self._wait(started_at_s + fault.at_s - time.monotonic()):
                    return
                group.create_task(self._have(fault, write))

    def _schedule(self) -> Iterator[Fault]:
        layout = self._cluster.layout
        names = {
            "server": [node.name for node in layout.servers],
            "storage": [node.name for node in layout.storages],
            "client": self._clients,
            "view": list(self._views.relays),
        }
        return schedule(self._options.seed, names, self._options.pause_s)

    async def _wait(self, delay_s: float) -> bool:
        """Wait so long, or until the end; whether it is the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, delay_s)):
                await self._finished.wait()
        return self._finished.is_set()

    async def _have(self, fault: Fault, write: Callable[[str], object]) -> None:
        # Two faults of one process come one after the other; cuts and operators' tools have nothing to do with that.
        tool = fault.kind in (Kind.MOVE, Kind.DRAIN)
        lock = self._locks[fault.kind.value if tool else " - ".join(fault.targets)]
        async with lock:
            if self._finished.is_set():
                return
            self.faults += 1
            at_ns = time.monotonic_ns()
            kind, targets = fault.kind, list(fault.targets)
            async with self._unwell_meanwhile([] if tool else fault.targets):
                if kind is Kind.MOVE:
                    partition_id = next(self._to_move)
                    targets = [node.name for node in self._places[partition_id]]
                    if not await self._insist(functools.partial(self._move, partition_id)):
                        return
                elif kind is Kind.DRAIN:
                    if not await self._insist(functools.partial(self._drain, targets[0])):
                        return
                elif kind is Kind.CUT:
                    line = self._pairs.line(*fault.targets)
                    line.clear()
                    await self._wait(fault.lasting_s)
                    line.set()
                elif kind is Kind.PAUSE:
                    child = self._child(targets[0])
                    child.signal(signal.SIGSTOP)
                    await self._wait(fault.lasting_s)
                    child.signal(signal.SIGCONT)
                else:
                    kind = await self._kill(targets[0], fault.lasting_s, kind)
            line_ = FaultLine(kind=kind.value, targets=targets, at_ns=at_ns, until_ns=time.monotonic_ns())
            write(text_of(line_))
            self._ended_faults += 1

    async def _insist(self, tool: Callable[[], Awaitable[bool]]) -> bool:
        """Run a tool until it has done its work, but not for ever; whether it has."""
        for _ in range(ATTEMPTS):
            if await tool():
                return True
        return False

    @contextlib.asynccontextmanager
    async def _unwell_meanwhile(self, targets: Sequence[str]) -> AsyncIterator[None]:
        for target in targets:
            self._unwell[target] += 1
        try:
            yield
        finally:
            for target in targets:
                self._unwell[target] -= 1

    def _child(self, name: str) -> Child:
        if name in self._workers:
            return self._workers[name].child
        return self._views.child(name) if name in self._views.relays else self._cluster.child(name)

    async def _kill(self, name: str, lasting_s: float, kind: Kind) -> Kind:
        """Kill a process, and start it again later; whether it was struck, or killed anywhere."""
        if name in self._workers:
            async with self._unwell_meanwhile([f"{name} is dead"]):
                struck = await self._kill_client(name, strike=kind is Kind.STRIKE)
                await self._wait(lasting_s)
                self._start_client(name)
            return Kind.STRIKE if struck else Kind.KILL
        if name in self._views.relays:
            await asyncio.to_thread(self._views.kill, name)
            await self._wait(lasting_s)
            self._views.start_one(name)
            return Kind.KILL
        await asyncio.to_thread(self._cluster.kill, name)
        await self._wait(lasting_s)
        if name == ZOOKEEPER:
            await asyncio.to_thread(self._cluster.start_zookeeper)
        elif self._nodes[name] in self._cluster.layout.servers:
            self._cluster.start_server(self._nodes[name])
        else:
            self._cluster.start_storage(self._nodes[name])
        return Kind.KILL

    async def _move(self, partition_id: int) -> bool:
        """Move the replica of a partition to the other storage; whether that was possible. A later call goes on."""
        source, destination = self._places[partition_id]
        words = ["storage", "move", "-s", source.connect_string, "-d", destination.connect_string]
        done = await self._tool([*words, "-p", str(partition_id), "--apply"], "move")
        if done:
            self._places[partition_id] = destination, source
            self._half_moved.discard(partition_id)
        else:
            self._half_moved.add(partition_id)
        return done

    async def _drain(self, name: str) -> bool:
        """Let other servers have all partitions of a server; whether that was possible."""
        return await self._tool(["server", "drain", "-s", self._nodes[name].connect_string], "drain")

    async def _tool(self, words: Sequence[str], name: str) -> bool:
        """Run a tool of operators; whether it has done its work."""
        config = ["-c", str(self._cluster.layout.cli_config_path)]
        program = [sys.executable, "-m", "waltz.cli.main", *words, *config, "--yes"]
        child = self._children.start(name, program, self._directory / f"{name}.log")
        try:
            code = await asyncio.to_thread(child.wait, TOOL_TIMEOUT_S)
        except TimeoutError:
            code = -1
        self._children.kill(child)
        return code == 0

    # The end

    async def _gather(self) -> None:
        """Let everything come to its end, and write the history."""
        self._say(BEGIN_NOTHING)
        await self._until("finished", END_TIMEOUT_S)
        for partition_id in sorted(self._half_moved):
            await self._insist(functools.partial(self._move, partition_id))
        marks = await self._drained()
        self._say(END)
        await self._until("settled", END_TIMEOUT_S)
        done = workloads.effects(self._database)
        effects = [EffectLine(partition=each[0], transaction=each[1], op=each[2], consumer=each[3]) for each in done]
        for effect in effects:
            marks[effect.partition] = max(marks[effect.partition], effect.transaction)
        latest = await self._marks()
        marks = [mark if each in LEDGER else latest[each] for each, mark in enumerate(marks)]
        records = [record async for record in self._records(marks)]
        header = Header(seed=self._options.seed, registers=REGISTERS, lists=LISTS, fences=FENCES, ledger=LEDGER)
        others = [self._directory / "nemesis.sorted.jsonl", self._directory / "owners.jsonl"]
        _sort(self._directory / "nemesis.jsonl", others[0])
        parts = [path for path in self._histories if path.exists()]  # a process may be killed before it has one
        merge(header, [*parts, *others], itertools.chain(records, effects), self.history)

    def _say(self, line: str) -> None:
        """To all clients; one that is started again is told everything anew."""
        self._said.append(line)
        for worker in self._workers.values():
            _tell(worker, line)

    async def _drained(self) -> list[int]:
        """The marks of all partitions, when the consumers have done everything, or do nothing any more."""
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while True:
            marks = await self._marks()
            wanted = sum(marks[partition_id] + 1 for partition_id in LEDGER)
            while workloads.count_effects(self._database) < wanted and time.monotonic() < deadline_s:
                await asyncio.sleep(TICK_S)
                self._check()
            if marks == await self._marks() or time.monotonic() > deadline_s:
                return marks

    async def _marks(self) -> list[int]:
        config = client_config(self._cluster, 1).model_copy(update={"auto_mount": False})
        async with await WaltzClient.open(Application(Journal(-1), PARTITIONS), config) as client:
            return await committed_marks(client, PARTITIONS)

    async def _records(self, marks: Sequence[int]) -> AsyncIterator[RecordLine]:
        """What the storages hold, all of them the same."""
        for partition_id, mark in enumerate(marks):
            async with Replicas(self._cluster, await self._holders(partition_id)) as replicas:
                async for records in replicas.committed(partition_id, mark):
                    for record in records:
                        yield line_of(partition_id, record)

    async def _holders(self, partition_id: int) -> list[Node]:
        zookeeper = await self._cluster.zookeeper()
        try:
            holding = (await read_replica_assignments(zookeeper, ROOT)).storages_of(partition_id)
        finally:
            await zookeeper.close()
        return [node for node in self._cluster.layout.storages if node.connect_string in holding]


def _tell(worker: Worker, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # it has ended, and is started again
        worker.child.pipes[0].write(line.encode() + b"\n")
        worker.child.pipes[0].flush()


def _sort(path: Path, sorted_path: Path) -> None:
    """Faults are written when they end; histories are in the order of begins."""
    lines = path.read_text().splitlines(keepends=True)
    sorted_path.write_text("".join(sorted(lines, key=lambda line: int(json.loads(line)["at_ns"]))))


def line_of(partition_id: int, record: Record) -> RecordLine:
    """A record of a workload as a line of the history. Raises ``ValueError`` for what no workload appends."""
    if partition_id == FENCES:
        op, session = workloads.register_value(record.data)
        return RecordLine(partition=partition_id, transaction=record.transaction_id, op=op, session=session)
    if partition_id in LEDGER:
        return RecordLine(partition=partition_id, transaction=record.transaction_id, op=int(record.data))
    envelope = decode(record.data)
    if not isinstance(envelope, Batch):
        raise ValueError(f"a table of a campaign has no {type(envelope).__name__}")
    values = {row.key.decode(): row.value for row in envelope.rows if row.value is not None}
    if partition_id == REGISTERS:
        ops = {int(value.split(b".")[0]) for value in values.values()}
        rows = {
            row.key.decode(): (
                None if row.value is None else row.value.decode(),
                envelope.written_at_ms if row.timestamp_ms is None else row.timestamp_ms,
            )
            for row in envelope.rows
        }
        return RecordLine(partition=partition_id, transaction=record.transaction_id, op=_only(ops), rows=rows)
    lists = {key: list(_elements(value)) for key, value in values.items()}
    ops = {int(elements[-1].split(".")[0]) for elements in lists.values()}
    return RecordLine(partition=partition_id, transaction=record.transaction_id, op=_only(ops), lists=lists)


def _elements(value: bytes) -> Iterator[str]:
    for element in json.loads(value):
        yield str(element)


def _only(ops: set[int]) -> int | None:
    """The operation of a record. Raises ``ValueError`` for several: a record is of one."""
    if len(ops) > 1:
        raise ValueError(f"one record of several operations: {sorted(ops)}")
    return next(iter(ops), None)
