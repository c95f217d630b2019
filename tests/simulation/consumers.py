"""Consumers with stored positions, some of which share the partitions, and the databases that they work into.

There are two databases with positions. In the *exact* one the effects of a transaction and its position are one
database transaction (``advance``); in the other one the effects come first and the position some time later.
"""

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TypeVar
from unittest import mock

from tests.simulation.checker import Checker, Entry
from tests.simulation.clients import client_environment
from tests.simulation.cluster import Host, World
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target
from waltz.client import sharing
from waltz.client.errors import PositionConflictError
from waltz.client.plain.client import Client
from waltz.client.plain.consumer import Consumer
from waltz.client.positions import sql
from waltz.client.positions.sql import TABLE, SqlitePositions
from waltz.common.errors import WaltzError
from waltz.common.records import Record

T = TypeVar("T")

FAILING = 0.01
"""Share of the database transactions whose commit fails, and as many again that are committed, and seem to fail."""


class Ledger:
    """A database in memory, which outlives the runs of its consumers."""

    def __init__(self, world: World, checker: Checker, name: str, *, exact: bool) -> None:
        self.name = name
        self.exact = exact
        """Whether effects and positions are committed together."""
        self.effects: list[list[Entry]] = [[] for _ in range(world.options.partitions)]
        """What was worked into it, by partition and in order; that something was done again does not show."""
        self.draw = world.random(f"ledger {name}")
        self.share = name if self.draw.random() < 0.6 else None
        """The name by which its consumers share the partitions; ``None``: each of them reads all."""
        self._world = world
        self._checker = checker
        self._connection = sqlite3.connect(":memory:")
        self._staged: list[Record] = []

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A database transaction. When its commit fails, nobody is told whether it was made."""
        fate = self.draw.random()
        try:
            yield self._connection
            if fate < FAILING:
                raise sqlite3.OperationalError("on purpose: nothing is committed")
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            self._staged.clear()
            raise
        self._committed()
        if fate > 1 - FAILING:
            raise sqlite3.OperationalError("on purpose: the answer to a commit is lost")

    def work(self, records: Sequence[Record]) -> None:
        """Effects of transactions, within a database transaction."""
        self._staged += records

    def left(self) -> list[str]:
        """The transactions of the log that the database lacks."""
        return [
            f"{self.name} has {len(effects)} of {len(log)} of partition {partition_id}"
            for partition_id, (effects, log) in enumerate(zip(self.effects, self._checker.log, strict=True))
            if len(effects) < len(log)
        ]

    def check(self) -> None:
        """At the end: its effects are the log."""
        for partition_id, (effects, log) in enumerate(zip(self.effects, self._checker.log, strict=True)):
            if effects != [log.get(transaction_id) for transaction_id in range(len(log))]:
                self._world.fail(f"the effects in {self.name} are not the log of partition {partition_id}")
        self._connection.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What is done in the database takes a moment before and after."""
        pause_s = self._world.options.database_pause_s
        await asyncio.sleep(pause_s * self.draw.random())
        result = work()
        await asyncio.sleep(pause_s * self.draw.random())
        return result

    def _committed(self) -> None:
        for record in self._staged:
            effects, number = self.effects[record.partition_id], record.transaction_id
            entry = Entry(bytes(record.req_id), record.header)
            self._checker.certain(self.name, record.partition_id, number, entry)
            self._checker.read(self.name, record.partition_id, record.header, record.data)
            if number > len(effects) or (self.exact and number < len(effects)):
                self._world.fail(
                    f"{self.name} has effects of {number} of partition {record.partition_id}; {len(effects)} is next"
                )
            if number == len(effects):
                effects.append(entry)
        self._staged.clear()
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (TABLE,)).fetchall():
            return
        for partition_id, position in self._connection.execute(f"SELECT PARTITION_ID, TRANSACTION_ID FROM {TABLE}"):
            last_id = len(self.effects[partition_id]) - 1
            if position > last_id or (self.exact and position < last_id):
                self._world.fail(
                    f"{self.name} has position {position} in partition {partition_id}, and effects up to {last_id}"
                )


class LedgerPositions(SqlitePositions):
    """The positions beside the effects."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.name, ledger.name)
        self._ledger = ledger

    @contextlib.contextmanager
    def _begin(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        with self._ledger.transaction() as connection:
            if writing:
                connection.execute("BEGIN IMMEDIATE")
            yield connection


class ConsumerHost(Host):
    """One instance of each consumer."""

    def __init__(self, world: World, number: int, ledgers: Sequence[Ledger]) -> None:
        super().__init__(world, f"consumer-{number}")
        self._ledgers = ledgers
        self._draw = world.random(self.name)
        self._asked_to_end: asyncio.Event | None = None
        self._closed = asyncio.Event()

    @property
    def up(self) -> bool:
        return False  # its program goes on, with nothing to do, when all is closed

    async def program(self, process: Process) -> None:
        self._asked_to_end = asked_to_end = asyncio.Event()
        self._closed = closed = asyncio.Event()
        zookeeper = await self.connect_zookeeper(process)
        run = f"{self.name} run {self.runs}"
        async with Client(client_environment(self.world, run, zookeeper)) as client:
            consuming = [asyncio.create_task(self._consume(client, ledger)) for ledger in self._ledgers]
            ended = asyncio.create_task(asked_to_end.wait())
            await asyncio.wait([*consuming, ended], return_when=asyncio.FIRST_COMPLETED)
            for task in [*consuming, ended]:
                task.cancel()
            outcomes = await asyncio.gather(*consuming, ended, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
        await zookeeper.close()
        closed.set()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._asked_to_end is not None:
            self._asked_to_end.set()
            await self._closed.wait()

    async def _consume(self, client: Client, ledger: Ledger) -> None:
        while True:
            commit_every_s = None if ledger.exact or self._draw.random() < 0.3 else 0.3
            positions = LedgerPositions(ledger)
            try:
                async with client.consume(positions, share=ledger.share, commit_every_s=commit_every_s) as consumer:
                    if ledger.exact:
                        await self._work_exactly(consumer, positions, ledger)
                    else:
                        await self._work_first(consumer, ledger, by_hand=commit_every_s is None)
            except (WaltzError, sqlite3.Error) as error:
                self.world.trace.line(self.name, f"begins anew with {ledger.name}: {error}")
            await asyncio.sleep(0.3 * self._draw.random())

    async def _work_exactly(self, consumer: Consumer, positions: LedgerPositions, ledger: Ledger) -> None:
        """Whoever comes second is told, by the database."""

        def commit(batch: list[Record]) -> None:
            with ledger.transaction() as connection:
                ledger.work(batch)
                positions.advance(connection, batch)

        while True:
            batch = await consumer.next_batch(timeout_s=2.0)
            if batch:
                try:
                    await self._until_done(ledger, lambda batch=batch: commit(batch))  # type: ignore[misc]  # its default
                except PositionConflictError:
                    continue  # read anew behind the stored position
            if self._draw.random() < 0.2:
                with contextlib.suppress(PositionConflictError):
                    await consumer.commit()

    async def _until_done(self, ledger: Ledger, commit: Callable[[], None]) -> None:
        """Again after some failures; after others the consumer is opened anew."""
        while True:
            try:
                await ledger.in_thread(commit)
            except sqlite3.Error:
                if self._draw.random() < 0.5:
                    raise
            else:
                return

    async def _work_first(self, consumer: Consumer, ledger: Ledger, *, by_hand: bool) -> None:
        """Effects first, and the position behind them later, at the latest when nothing comes any more."""

        def commit(record: Record) -> None:
            with ledger.transaction():
                ledger.work([record])

        async for record in consumer:
            await ledger.in_thread(lambda record=record: commit(record))  # type: ignore[misc]  # its default
            if by_hand and self._draw.random() < 0.1:
                with contextlib.suppress(PositionConflictError):
                    await consumer.commit()


class Consumers:
    """The instances, and what is checked."""

    def __init__(self, world: World, checker: Checker) -> None:
        self.ledgers = [Ledger(world, checker, "exact", exact=True), Ledger(world, checker, "later", exact=False)]
        self.hosts = [ConsumerHost(world, number, self.ledgers) for number in range(world.options.consumers)]
        self._numbers = itertools.count()

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    def left(self) -> list[str]:
        """The transactions of the log that the databases lack."""
        return [each for ledger in self.ledgers for each in ledger.left()]

    def check(self) -> None:
        """At the end."""
        for ledger in self.ledgers:
            ledger.check()

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Threads are delays, and names of members come from no other source of chance."""
        numbered = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(self._numbers):032x}"))

        async def to_thread(work: Callable[..., T], *arguments: object) -> T:
            return await self.ledgers[0].in_thread(lambda: work(*arguments))

        with (
            mock.patch.object(sharing, "uuid", numbered),
            mock.patch.object(sql, "asyncio", SimpleNamespace(to_thread=to_thread)),
        ):
            yield


async def kill_consumer(target: Target, fault: Fault) -> None:
    """An instance ends at once; it is started again later."""
    hosts = [host for host in target.others if isinstance(host, ConsumerHost)]
    if hosts:
        host = hosts[fault.victim % len(hosts)]
        target.say(fault, host.name, "is killed")
        host.crash(power_loss=False)
        host.start_in(fault.duration_s)
