"""Tables in memory of several machines, whose transactions and reads are compared with the log, one after the other."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

from tests.simulation.application import hashes_of
from tests.simulation.checker import Attempt, Checker, Outcome, Submitted
from tests.simulation.clients import client_environment
from tests.simulation.cluster import Host, World
from tests.simulation.loop import Process
from waltz.client.engine.environment import Environment
from waltz.client.errors import AppendError, LockConflict
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain import feed, reader
from waltz.client.plain.client import Client
from waltz.common.errors import WaltzError
from waltz.table.errors import VersionConflict
from waltz.table.face import transacting
from waltz.table.face.table import Table
from waltz.table.face.transaction import TableTransaction
from waltz.table.properties import PartitionProperties

PARTITION = 0
"""The one that is a table; to its views, what applications append there is nothing."""

KEYS = [b"counter-%d" % number for number in range(4)]

EPOCH_MS = 1_700_000_000_000

QUIET_S = 3.0
"""How long before the end of the load the last transactions begin."""

State = dict[bytes, bytes | None]


class Decision(NamedTuple):
    """The rows that a transaction has read, and the rows that it writes."""

    reads: Mapping[bytes, bytes | None]
    writes: Mapping[bytes, bytes]


_deciding: ContextVar[Decision] = ContextVar("deciding")


class Seen(NamedTuple):
    """What a view had of the keys when it had come so far."""

    who: str
    applied: int
    rows: Mapping[bytes, bytes | None]


class RecordedClient(Client):
    """Tells the checker of each append of the table."""

    def __init__(self, environment: Environment, host: "TableHost") -> None:
        super().__init__(environment)
        self._host = host

    async def append(  # type: ignore[override]  # as tables call it
        self,
        partition_id: int,
        data: bytes,
        *,
        write_locks: Iterable[PartitionLocalLock] = (),
        read_locks: Iterable[PartitionLocalLock] = (),
        append_locks: Iterable[PartitionLocalLock] = (),
        high_water_mark: int,
        timeout_s: float,
        consistency: str | None = None,
    ) -> int:
        """See the base class."""
        locks = [[*each] for each in (write_locks, read_locks, append_locks)]
        hashes = [hashes_of(each) for each in locks]
        submitted = self._host.begin(
            Attempt(self._host.name, partition_id, high_water_mark, hashes[0], hashes[1], hashes[2], bytes(data))
        )
        outcome = Outcome.UNKNOWN
        try:
            transaction_id = await super().append(
                partition_id,
                data,
                header=submitted.number,
                write_locks=locks[0],
                read_locks=locks[1],
                append_locks=locks[2],
                high_water_mark=high_water_mark,
                timeout_s=timeout_s,
                consistency=consistency,
            )
            self._host.checker.appended(submitted, transaction_id)
            outcome = Outcome.COMMITTED
        except LockConflict as conflict:
            self._host.checker.lock_failure(self._host.name, submitted, conflict.transaction_id)
            outcome = Outcome.FAILED
            raise
        except AppendError as error:
            outcome = Outcome.FAILED if error.outcome_known else Outcome.UNKNOWN
            raise
        finally:
            self._host.ended(submitted, outcome)
        return transaction_id


class TableHost(Host):
    """Reads and writes a few rows; its view is rebuilt in each run."""

    def __init__(self, world: World, number: int, checker: Checker, tables: "Tables") -> None:
        super().__init__(world, f"table-{number}")
        self.checker = checker
        self.last_seen = -1
        """How far its view was when it was looked at last."""
        self._tables = tables
        self._draw = world.random(self.name)
        self._ahead_ms = self._draw.randint(-2_000, 2_000)
        self._pending: dict[int, Submitted] = {}

    @property
    def up(self) -> bool:
        return False  # nothing of it ends in order

    @property
    def pending(self) -> list[int]:
        """Transactions that have not ended."""
        return [*self._pending]

    def crash(self, *, power_loss: bool) -> None:
        for submitted in self._pending.values():
            submitted.outcome = Outcome.UNKNOWN
        self._pending.clear()
        super().crash(power_loss=power_loss)

    def begin(self, attempt: Attempt) -> Submitted:
        """The table appends what the present task has decided."""
        submitted = self.checker.submit(self.name, attempt.partition_id)
        submitted.attempts.append(attempt)
        self._pending[submitted.number] = submitted
        self._tables.decisions[submitted.number] = _deciding.get()
        return submitted

    def ended(self, submitted: Submitted, outcome: Outcome) -> None:
        """Unless that was in an earlier run."""
        if self._pending.pop(submitted.number, None) is not None:
            self.checker.decided(submitted, outcome)

    async def program(self, process: Process) -> None:
        self.last_seen = -1
        zookeeper = await self.connect_zookeeper(process)
        run = f"{self.name} run {self.runs}"
        properties = PartitionProperties(format="table")
        async with (
            RecordedClient(client_environment(self.world, run, zookeeper), self) as client,
            Table(client, PARTITION, properties, store="memory", clock=self._now_ms) as table,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(3):
                group.create_task(self._write(table))
            for fresh in (True, False):
                group.create_task(self._read(table, fresh=fresh))

    def _now_ms(self) -> int:
        return EPOCH_MS + self._ahead_ms + round(1000 * (self.world.loop.now_s + self.clock_error_s))

    async def _write(self, table: Table) -> None:
        while self.world.loop.now_s < self.world.options.duration_s - QUIET_S:
            await asyncio.sleep(0.2 * self._draw.random())
            try:
                if self._draw.random() < 0.3:
                    await self._put_if(table)
                else:
                    await table.transaction(self._decide, timeout_s=10.0)
            except (WaltzError, VersionConflict) as error:
                self.world.trace.line(self.name, f"writes nothing: {error}")

    def _decide(self, transaction: TableTransaction) -> None:
        """Read some rows, and write some of these, perhaps, and perhaps another one."""
        read, written = self._draw.sample(KEYS, self._draw.randint(1, 2)), self._draw.sample(KEYS, 1)
        rows = {key: transaction.get(key) for key in read}
        reads = {key: None if row is None else row.value for key, row in rows.items()}
        writes = {key: self._next(reads.get(key)) for key in written}
        for key, value in writes.items():
            transaction.put(key, value)
        _deciding.set(Decision(reads, writes))

    async def _put_if(self, table: Table) -> None:
        key = self._draw.choice(KEYS)
        (row,) = await table.get([key])
        value = None if row is None else row.value
        following = self._next(value)
        _deciding.set(Decision({key: value}, {key: following}))
        await table.put_if(key, following, None if row is None else row.version, timeout_s=10.0)

    def _next(self, value: bytes | None) -> bytes:
        """A counter, and which increment it is."""
        count = 0 if value is None else int(value.split()[0])
        return b"%d %s" % (count + 1, self._draw.randbytes(6).hex().encode())

    async def _read(self, table: Table, *, fresh: bool) -> None:
        while True:
            await asyncio.sleep(0.3 * self._draw.random())
            committed = self.checker.marks[PARTITION]
            try:
                rows = await table.get(KEYS, fresh=fresh)
            except WaltzError as error:
                self.world.trace.line(self.name, f"reads nothing: {error}")
                continue
            if fresh and table.applied < committed:
                self.world.fail(
                    f"{self.name} is given rows as of {table.applied} for fresh; {committed} was committed before it "
                    "asked"
                )
            self.last_seen = table.applied
            values = {key: None if row is None else row.value for key, row in zip(KEYS, rows, strict=True)}
            self._tables.seen.append(Seen(self.name, table.applied, values))


class Tables:
    """The machines, and what is checked."""

    def __init__(self, world: World, checker: Checker) -> None:
        self.decisions: dict[int, Decision] = {}
        """By the numbers of transactions."""
        self.seen: list[Seen] = []
        self._world = world
        self._checker = checker
        self.hosts = [TableHost(world, number, checker, self) for number in range(world.options.tables)]

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    def left(self) -> list[str]:
        """The differences from the state that must be reached at the end."""
        last_id = len(self._checker.log[PARTITION]) - 1
        pending = [f"{host.name} waits for {host.pending}" for host in self.hosts if host.pending]
        return pending + [
            f"{host.name} has applied {host.last_seen} of {last_id}" for host in self.hosts if host.last_seen < last_id
        ]

    def check(self) -> None:
        """At the end: each transaction of the log has read what those before it have written, and so has each view."""
        log = self._checker.log[PARTITION]
        state: State = dict.fromkeys(KEYS)
        states: dict[int, State] = {-1: state}
        for transaction_id in range(len(log)):
            decision = self.decisions.get(log[transaction_id].header)
            if decision is not None:
                for key, value in decision.reads.items():
                    if state[key] != value:
                        self._world.fail(
                            f"transaction {transaction_id} of the table has read {value!r} at {key!r}, where "
                            f"{state[key]!r} was written before it"
                        )
                state = {**state, **decision.writes}
            states[transaction_id] = state
        for who, applied, rows in self.seen:
            if states.get(applied) != rows:
                self._world.fail(f"the view of {who} as of {applied} has {rows}, and not {states.get(applied)}")
        if all(value is None for value in state.values()):
            self._world.fail("no transaction of a table was committed")

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Pauses of transactions that were overtaken, of bulk reads and of views come from the seed."""
        source = SimpleNamespace(
            random=self._world.random("tables").random, Random=lambda: self._world.random("readers of tables")
        )
        with (
            mock.patch.object(transacting, "random", source),
            mock.patch.object(reader, "random", source),
            mock.patch.object(feed, "random", source),
        ):
            yield
