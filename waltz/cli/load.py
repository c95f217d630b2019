"""Runs and measures a load of appends, in a closed or an open loop.

A closed loop measures the capacity of the cluster: a producer keeps a fixed number of transactions under way, and sends
the next one after each commit. An open loop measures the waiting time of independent users: transactions are due at
random times, independent of earlier ones. A latency counts from the time at which its transaction was due.
"""

import asyncio
import itertools
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from waltz.client.builder import Append
from waltz.client.decisions import Basis
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain.client import Client

LOCK_NAME = "performance-lock"


class Load(NamedTuple):
    """Size and shape of a load."""

    transactions: int
    """Number of transactions of each producer."""
    size_bytes: int
    partitions: int
    """Number of partitions; each transaction goes to a random one."""
    in_flight: int
    """Number of transactions that a producer keeps under way in a closed loop."""
    interval_s: float
    """Mean time between two transactions of a producer in an open loop; 0: a closed loop."""
    lock_pool_size: int
    """Number of locks; each transaction writes one of them. 0: no locks."""


class Measured(NamedTuple):
    """Result of a load."""

    latencies_s: "array[float]"
    """Latency of each transaction, in the order of their commits."""
    committed_s: "array[float]"
    """Time of each commit since the beginning of the load."""
    duration_s: float
    retries: int
    """Number of decisions that were repeated because a lock had changed."""


async def produce(
    clients: Sequence[Client], load: Load, chance: random.Random, done: Callable[[int], object]
) -> Measured:
    """Append from all clients side by side; ``done`` is called for each commit. Raises ``WaltzError``."""
    run = _Run(load, chance, done)
    work: list[asyncio.Future[None]] = []
    for client in clients:
        if load.interval_s:
            work.append(asyncio.ensure_future(run.keep_to_times(client)))
        else:
            turns = iter(range(load.transactions))
            workers = min(load.in_flight, load.transactions)
            work += [asyncio.ensure_future(run.take_turns(client, turns)) for _ in range(workers)]
    try:
        await asyncio.gather(*work)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    return run.measured()


class _Run:
    """The common state of all producers."""

    def __init__(self, load: Load, chance: random.Random, done: Callable[[int], object]) -> None:
        self._load = load
        self._chance = chance
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._data = chance.randbytes(load.size_bytes)
        self._latencies_s = array("d")
        self._committed_s = array("d")
        self._retries = 0
        self._began_s = self._loop.time()

    def measured(self) -> Measured:
        return Measured(self._latencies_s, self._committed_s, self._loop.time() - self._began_s, self._retries)

    async def take_turns(self, client: Client, turns: Iterator[int]) -> None:
        """Run one worker of a closed loop; the workers share ``turns``."""
        for _ in turns:
            await self._append(client, self._loop.time())

    async def keep_to_times(self, client: Client) -> None:
        """Send transactions in an open loop."""
        due_s = self._began_s
        under_way: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            under_way.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                failures.append(error)

        try:
            for _ in range(self._load.transactions):
                due_s += self._chance.expovariate(1 / self._load.interval_s)
                if (early_s := due_s - self._loop.time()) > 0:
                    await asyncio.sleep(early_s)
                if failures:
                    break
                task = asyncio.ensure_future(self._append(client, due_s))
                under_way.add(task)
                task.add_done_callback(ended)
            await asyncio.gather(*under_way, return_exceptions=True)
            if failures:
                raise failures[0]
        finally:
            for task in under_way:
                task.cancel()

    async def _append(self, client: Client, due_s: float) -> None:
        partition_id = self._chance.randrange(self._load.partitions)
        if self._load.lock_pool_size:
            lock_id = self._chance.randrange(self._load.lock_pool_size)
            self._retries += await _append_locked(client, partition_id, self._data, lock_id)
        else:
            await client.append(partition_id, self._data)
        now_s = self._loop.time()
        self._latencies_s.append(now_s - due_s)
        self._committed_s.append(now_s - self._began_s)
        self._done(1)


async def _append_locked(client: Client, partition_id: int, data: bytes, lock_id: int) -> int:
    """Append under a lock; returns the number of repeated decisions."""
    attempts = 0
    lock = PartitionLocalLock(LOCK_NAME, lock_id)

    def decide(basis: Basis) -> Append:
        nonlocal attempts
        attempts = basis.attempt
        return Append(data, write_locks=(lock,))

    await client.transact(partition_id, decide, reads_log=True)
    return attempts - 1


class Read(NamedTuple):
    """Result of reading a log."""

    transactions: int
    data_bytes: int
    duration_s: float
    """Seconds from the first batch to the last."""


async def consume(client: Client, begins: list[int], ends: list[int], done: Callable[[int], object]) -> Read:
    """Read partitions 0, 1, ... side by side, each after the id in ``begins`` up to the one in ``ends``.

    Raises ``WaltzError``.
    """
    loop = asyncio.get_running_loop()
    count = data_bytes = 0
    first_s: float | None = None

    async def read(partition_id: int, after: int, until: int) -> None:
        nonlocal count, data_bytes, first_s
        async for batch in client.feed_batches(partition_id, after=after, until=until):
            if first_s is None:
                first_s = loop.time()
            count += len(batch)
            data_bytes += sum(len(record.data) for record in batch)
            done(len(batch))

    await asyncio.gather(*map(read, itertools.count(), begins, ends))
    return Read(count, data_bytes, 0.0 if first_s is None else loop.time() - first_s)
