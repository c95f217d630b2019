"""Loads: a client of Waltz that appends in a closed or an open loop, with callbacks or with ``await append``."""

import asyncio
import itertools
import os
import struct
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator

from benchmarks.cluster.pace import TICK_S, Pace, Ticker
from benchmarks.cluster.scenarios import Scenario
from waltz import (
    Client,
    LockConflict,
    PartitionLocalLock,
    Transaction,
    TransactionBuilder,
    TransactionContext,
    WaltzClient,
    WaltzClientCallbacks,
)

STAMP = struct.Struct(">d")
"""When a transaction was due, at the beginning of its data where readers measure how late they see it."""

OPEN_LOOP_WINDOW = 100_000
"""How many transactions a client may have under way in an open loop: no bound that is meant to be met."""


class Load(ABC):
    """Keeps transactions under way between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self.latencies_s = array("d")
        """Of each transaction that has ended, since somebody took them."""
        self.conflicts = 0

    def take_latencies(self) -> "array[float]":
        """What has come together since the last call."""
        taken, self.latencies_s = self.latencies_s, array("d")
        return taken

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    async def stop(self) -> None:
        """Begin nothing more, and return when all that was begun has ended. Raises what went wrong on the way."""


class Transactions:
    """Data, partition and locks of each transaction; the locks are checked, and never conflict."""

    def __init__(self, scenario: Scenario, numbers: Iterator[int]) -> None:
        self.write_locks = range(scenario.write_locks)
        self.read_locks = range(scenario.read_locks)
        self._numbers = numbers
        self._partitions = itertools.cycle(range(scenario.partitions))
        self._data = os.urandom(scenario.size_bytes)
        self._stamped = scenario.readers > 0

    def partition(self) -> int:
        return next(self._partitions)

    def data(self, due_s: float) -> bytes:
        return STAMP.pack(due_s) + self._data[STAMP.size :] if self._stamped else self._data

    def locks(self, count: range) -> list[PartitionLocalLock]:
        locks: list[PartitionLocalLock] = []
        for _ in count:  # a comprehension would be called like a function, and what that takes is not the client's
            locks.append(PartitionLocalLock("bench", next(self._numbers) * 2654435761))  # noqa: PERF401
        return locks


class Callbacks(WaltzClientCallbacks):
    """An application that applies nothing: what is measured is the log."""

    def __init__(self, marks: list[int]) -> None:
        self._marks = marks

    def client_high_water_mark(self, partition_id: int) -> int:
        return self._marks[partition_id]

    def apply_transaction(self, transaction: Transaction) -> None:
        pass

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise error


class CallbackLoad(Load):
    """Contexts with callbacks. One task submits, whatever has become free or due since it looked last."""

    def __init__(self, client: WaltzClient, scenario: Scenario, numbers: Iterator[int]) -> None:
        super().__init__()
        self.transactions = Transactions(scenario, numbers)
        self._client = client
        self._scenario = scenario
        self._free = scenario.in_flight
        self._under_way = 0
        self._wake: asyncio.Future[None] | None = None
        self._failed: Exception | None = None
        self._running = False

    def start(self) -> None:
        self._running = True
        self._driver = asyncio.ensure_future(self._open_loop() if self._scenario.rate else self._closed_loop())

    async def stop(self) -> None:
        self._running = False
        self._wake_up()
        await self._driver
        while self._under_way and self._failed is None:
            await self._woken()
        self._free = self._scenario.in_flight
        if self._failed is not None:
            raise self._failed

    async def _closed_loop(self) -> None:
        submit = self._client.submit
        while self._running:
            while self._free and self._running:
                self._free -= 1
                self._under_way += 1
                await submit(Context(self, time.perf_counter()))
            if self._running:
                await self._woken()

    async def _open_loop(self) -> None:
        pace = Pace(self._scenario.rate, time.perf_counter())
        ticker = Ticker(TICK_S, self._wake_up)
        try:
            while self._running:
                for due_s in pace.due(time.perf_counter()):
                    self._under_way += 1
                    await self._client.submit(Context(self, due_s))
                await self._woken()
        finally:
            ticker.close()

    async def _woken(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set_result(None)

    def applied(self, latency_s: float) -> None:
        """A transaction has ended well."""
        self.latencies_s.append(latency_s)
        self._under_way -= 1
        if not self._scenario.rate or not self._running:
            self._free += 1
            if self._wake is not None:
                self._wake_up()

    def failed(self, error: Exception) -> None:
        """One has not."""
        self._failed = error
        self._running = False
        self._wake_up()


class Context(TransactionContext):
    """One transaction."""

    __slots__ = ("_due_s", "_load", "_read_locks", "_write_locks")

    def __init__(self, load: CallbackLoad, due_s: float) -> None:
        self._load = load
        self._due_s = due_s
        transactions = load.transactions
        self._write_locks = transactions.locks(transactions.write_locks)
        self._read_locks = transactions.locks(transactions.read_locks) if transactions.read_locks else ()

    def partition_id(self, partition_count: int) -> int:
        return self._load.transactions.partition()

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(self._load.transactions.data(self._due_s))
        builder.set_write_locks(self._write_locks)
        if self._read_locks:
            builder.set_read_locks(self._read_locks)
        return True

    def on_lock_failure(self) -> None:
        self._load.conflicts += 1

    def on_application(self) -> None:
        self._load.applied(time.perf_counter() - self._due_s)

    def on_exception(self, error: Exception) -> None:
        self._load.failed(error)


class AwaitLoad(Load):
    """Tasks that ``await append``: as many as are to be in flight, each one after the other, or one for each due."""

    def __init__(self, client: Client, scenario: Scenario, numbers: Iterator[int]) -> None:
        super().__init__()
        self._transactions = Transactions(scenario, numbers)
        self._client = client
        self._scenario = scenario
        self._marks = [-1] * scenario.partitions
        self._running = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    def start(self) -> None:
        self._running = True
        for _ in range(self._scenario.in_flight):
            self._begin(self._one_after_the_other())
        if self._scenario.rate:
            self._pace = Pace(self._scenario.rate, time.perf_counter())
            self._ticker = Ticker(TICK_S, self._begin_due)

    async def stop(self) -> None:
        self._running = False
        if self._scenario.rate:
            self._ticker.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._failed is not None:
            raise self._failed

    def _begin(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._failed = task.exception() or self._failed

    def _begin_due(self) -> None:
        for due_s in self._pace.due(time.perf_counter()):
            self._begin(self._append(due_s))

    async def _one_after_the_other(self) -> None:
        while self._running:
            await self._append(time.perf_counter())

    async def _append(self, due_s: float) -> None:
        transactions = self._transactions
        partition_id = transactions.partition()
        try:
            self._marks[partition_id] = await self._client.append(
                partition_id,
                transactions.data(due_s),
                write_locks=transactions.locks(transactions.write_locks),
                read_locks=transactions.locks(transactions.read_locks) if transactions.read_locks else (),
                high_water_mark=self._marks[partition_id],
            )
        except LockConflict as conflict:
            self.conflicts += 1
            self._marks[partition_id] = conflict.transaction_id
        else:
            self.latencies_s.append(time.perf_counter() - due_s)
