"""The applications of a simulated cluster: what they submit, and the databases that they keep.

A database outlives the runs of its application; a transaction is applied to it at once or not at all.
"""

import asyncio
import contextlib
import math
import random
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from tests.simulation.checker import Attempt, Checker, Entry, Outcome, Submitted
from tests.simulation.clients import NEWEST, client_environment
from tests.simulation.cluster import Host, World
from tests.simulation.loop import Process
from tests.simulation.options import SimulationOptions
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.errors import ClientClosedError, PartitionInactiveError
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError
from waltz.common.wire.versions import FIRST_WITH_APPEND_LOCKS, FIRST_WITH_READ_LOCKS

DATA_PREFIX = struct.Struct(">ii")

UP_AFTER_S = 10.0
"""By then the cluster has come up, and every client is mounted."""

LARGE_FACTOR = 50
"""Size of the largest transactions, as a multiple of the mean size."""

BURSTS = (1, 1, 2, 4, 8, 16)
"""Transactions that are submitted at once."""


class ApplicationError(Exception):
    """An application fails now and then."""


class ApplicationHost(Host):
    """Runs an application with a client inside."""

    def __init__(self, world: World, name: str, checker: Checker, quota: int) -> None:
        super().__init__(world, name)
        self.checker = checker
        self.quota = quota
        """Transactions still to be submitted: another one for each that is not known to be committed."""
        self.database: list[list[Entry]] = [[] for _ in range(world.options.partitions)]
        self.together = [1] * world.options.partitions
        """How many transactions of each partition came to the database at the same moment last."""
        self.client: WaltzClient | None = None
        """The client with callbacks of the present run, if there is one."""
        self.draw = world.random(f"application {name}")
        versions = world.random(f"version of {name}")
        self.version = versions.randrange(NEWEST) if versions.random() < world.options.old_clients else NEWEST
        """The newest version of the protocol that it speaks."""
        self._locks = [PartitionLocalLock("account", number) for number in range(world.options.lock_names)]
        self._outstanding: dict[int, Submitted] = {}
        self.closed_run = 0
        """The last run whose client was closed in order."""

    @property
    def idle(self) -> bool:
        """Whether everything was submitted, and has ended."""
        return self.quota <= 0 and not self._outstanding

    @property
    def outstanding(self) -> list[Submitted]:
        """The transactions that have not ended, oldest first."""
        return list(self._outstanding.values())

    def crash(self, *, power_loss: bool) -> None:
        if self.running:
            self._forget_outstanding()
        super().crash(power_loss=power_loss)

    def _forget_outstanding(self) -> None:
        for submitted in self._outstanding.values():
            submitted.outcome = Outcome.UNKNOWN
        self.quota += len(self._outstanding)
        self._outstanding.clear()

    async def submit_all(self, submit: Callable[[int], object]) -> None:
        """Have some transactions submitted at a time, for ever."""
        while True:
            await asyncio.sleep(self._pause_s())
            room = self.world.options.outstanding_max - len(self._outstanding)
            if (count := min(self.draw.choice(BURSTS), self.quota, room)) > 0:
                submit(count)

    def _pause_s(self) -> float:
        """A pause that makes the quota last until shortly before the end."""
        left_s = max(self.world.options.duration_s - 4.0 - self.world.loop.now_s, 2.0)
        mean_s = sum(BURSTS) / len(BURSTS) * left_s / max(self.quota, 1)
        return min(self.draw.expovariate(1 / mean_s), 2.0)

    def begin(self, partition_id: int) -> Submitted:
        """Another transaction is under way."""
        self.quota -= 1
        submitted = self.checker.submit(self.name, partition_id)
        submitted.since_s = self.world.loop.now_s
        self._outstanding[submitted.number] = submitted
        return submitted

    def applied(self, partition_id: int) -> int:
        """The high-water mark of the database."""
        return len(self.database[partition_id]) - 1

    def ended(self, submitted: Submitted, outcome: Outcome, reason: str = "") -> None:
        """A transaction of this run has ended."""
        self.checker.decided(submitted, outcome, reason)
        waited_s = self.world.loop.now_s - submitted.since_s
        limit_s = math.inf if submitted.partition_id in self.world.excused else self.world.options.decision_max_s
        if waited_s > limit_s and submitted.since_s > UP_AFTER_S:
            self.world.fail(f"{self.name} has waited {waited_s:.3f} s for the decision of {submitted.number}")
        self._outstanding.pop(submitted.number, None)
        if outcome is not Outcome.COMMITTED:
            self.quota += 1
            self.world.trace.line(self.name, f"transaction {submitted.number} {outcome.value}: {reason}")

    def some_locks(self, most: int, fewest: int = 0) -> list[PartitionLocalLock]:
        """Locks, some more often than others."""
        count = self.draw.randint(fewest, most)
        return [self._locks[int(len(self._locks) * self.draw.random() ** 2)] for _ in range(count)]

    def apply(self, transaction: Transaction) -> None:
        """Apply to the database, atomically."""
        entry = Entry(bytes(transaction.req_id), transaction.header)
        self.enter(transaction.partition_id, transaction.transaction_id, entry)

    def enter(self, partition_id: int, transaction_id: int, entry: Entry) -> None:
        """A transaction has come to the database."""
        if self.closed_run == self.runs:
            self.world.fail(f"{self.name} applies {transaction_id} of partition {partition_id} after it was closed")
        database = self.database[partition_id]
        self.checker.applied(self.name, partition_id, len(database), transaction_id, entry)
        database.append(entry)

    def stood_still_since(self, since_s: float) -> bool:
        """Whether its process was stopped for some time since then."""
        return self.process is None or self.process.resumed_at_s >= since_s


class ClientHost(ApplicationHost):
    """An application with callbacks."""

    @property
    def up(self) -> bool:
        return self.running and self.client is not None

    async def stop(self) -> None:
        if self.client is not None:
            await self.client.close()
            self.closed_run = self.runs
        if self.zookeeper is not None:
            await self.zookeeper.close()

    async def program(self, process: Process) -> None:
        self.client = None
        zookeeper = await self.connect_zookeeper(process)
        wandering = self.world.options.wandering
        run = f"{self.name} run {self.runs}"
        environment = client_environment(self.world, run, zookeeper, self.version, **self.settings())
        client = await WaltzClient.open_in(environment, self.callbacks())
        if wandering:
            await client.set_partitions(range(self.world.options.partitions))
        self.client = client
        self.world.trace.line(self.name, f"is client {client.client_id}")

        def submit(count: int) -> None:
            for _ in range(count):
                group.create_task(self._submit(client))

        async with asyncio.TaskGroup() as group:
            if wandering:
                group.create_task(self._wander(client))
            for work in self.beside(client):
                group.create_task(work)
            await self.submit_all(submit)

    def settings(self) -> dict[str, object]:
        """The configuration of its clients, where it is not that of all."""
        return {"client.autoMount": not self.world.options.wandering}

    def beside(self, client: WaltzClient) -> list[Coroutine[Any, Any, None]]:
        """The application's work beside submitting."""
        return []

    def callbacks(self) -> WaltzClientCallbacks:
        """The callbacks for the client of a run."""
        return Callbacks(self)

    def context(self, submitted: Submitted) -> TransactionContext:
        """The context of one transaction."""
        return Context(self, submitted)

    async def _submit(self, client: WaltzClient) -> None:
        submitted = self.begin(self.draw.randrange(self.world.options.written_partitions))
        with contextlib.suppress(WaltzError):  # the context was told before
            await client.submit(self.context(submitted))

    async def _wander(self, client: WaltzClient) -> None:
        """Leave partitions and join them again; sometimes without the patience to wait until that is done."""
        everything = range(self.world.options.partitions)
        while self.world.loop.now_s < self.world.options.duration_s:
            await asyncio.sleep(self.draw.choice((0.5, 3.0, 8.0)) * self.draw.random())
            some = [partition_id for partition_id in everything if self.draw.random() < 0.5]
            await self._take_part_in(client, some, self.draw.choice((0.01, 1.0, 100.0)))
            await asyncio.sleep(self.draw.choice((0.0, 0.1, 2.0)))
            await self._take_part_in(client, everything, 100.0)
        while client.partitions != frozenset(everything):
            await self._take_part_in(client, everything, 100.0)

    async def _take_part_in(self, client: WaltzClient, partition_ids: Sequence[int], patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await client.set_partitions(partition_ids)
        except TimeoutError:
            self.world.trace.line(self.name, f"did not wait until it takes part in {list(partition_ids)}")
        except WaltzError as error:
            self.world.trace.line(self.name, f"does not take part in {list(partition_ids)}: {error}")


class Callbacks(WaltzClientCallbacks):
    """The callbacks of the client."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host

    def client_high_water_mark(self, partition_id: int) -> int:
        """See the base class."""
        return self._host.applied(partition_id)

    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        """See the base class."""
        draw = self._host.draw
        if draw.random() < 0.001:
            raise ApplicationError("on purpose")
        options = self._host.world.options
        if draw.random() < options.read_share:
            return self._read_and_apply(transaction)
        if options.apply_pause_s and draw.random() < 0.1:
            return self._apply_slowly(transaction, draw.random() * options.apply_pause_s)
        self._host.apply(transaction)
        return None

    async def _apply_slowly(self, transaction: Transaction, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        self._host.apply(transaction)

    async def _read_and_apply(self, transaction: Transaction) -> None:
        data = await transaction.data_bytes()
        self._host.checker.read(self._host.name, transaction.partition_id, transaction.header, data)
        self._host.apply(transaction)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """See the base class."""
        if not isinstance(error, ApplicationError | WaltzError):
            self._host.world.fail(f"applying {transaction_id} of partition {partition_id} failed: {error!r}")


class Context(TransactionContext):
    """One transaction."""

    __slots__ = ("_completed", "_host", "_over", "_submitted")

    def __init__(self, host: ClientHost, submitted: Submitted) -> None:
        self._host = host
        self._submitted = submitted
        self._completed = False
        self._over = False

    def partition_id(self, partition_count: int) -> int:
        """See the base class."""
        return self._submitted.partition_id

    def execute(self, builder: TransactionBuilder) -> bool:
        """See the base class."""
        host, submitted, options = self._host, self._submitted, self._host.world.options
        attempts = len(submitted.attempts)
        if attempts and host.draw.random() < 0.02:
            return False
        size = random_size(host.draw, options)
        data = DATA_PREFIX.pack(submitted.number, attempts) + bytes(options.zero_bytes) + host.draw.randbytes(size)
        write_locks = host.some_locks(2, options.fewest_write_locks)
        read_locks = host.some_locks(1 if host.version >= FIRST_WITH_READ_LOCKS else 0)
        append_locks = host.some_locks(1 if host.version >= FIRST_WITH_APPEND_LOCKS else 0)
        builder.set_header(submitted.number)
        builder.set_data(data)
        builder.set_write_locks(write_locks)
        builder.set_read_locks(read_locks)
        builder.set_append_locks(append_locks)
        attempt = Attempt(
            host.name,
            submitted.partition_id,
            builder.client_high_water_mark,
            hashes_of(write_locks),
            hashes_of(read_locks),
            hashes_of(append_locks),
            data,
        )
        host.checker.attempted(
            submitted, attempt, host.applied(submitted.partition_id), host.together[submitted.partition_id]
        )
        return True

    def on_completion(self, committed: bool) -> None:
        """See the base class."""
        if committed:
            self._completed = True
            self._host.ended(self._submitted, Outcome.COMMITTED)
        else:
            self._host.ended(self._submitted, Outcome.FAILED, "given up")

    def on_application(self) -> None:
        """See the base class."""
        if not self._completed:
            self._host.world.fail(f"transaction {self._submitted.number} is applied and was not completed")
        self._end()

    def on_lock_conflict(self, transaction_id: int) -> None:
        """See the base class."""
        self._host.checker.lock_failure(self._host.name, self._submitted, transaction_id)

    def on_exception(self, error: Exception) -> None:
        """See the base class."""
        self._end()
        if self._completed and isinstance(error, ClientClosedError | PartitionInactiveError):
            return  # it is committed, and not applied here
        outcome = Outcome.UNKNOWN if isinstance(error, ClientClosedError) else Outcome.FAILED
        self._host.ended(self._submitted, outcome, str(error))
        if not isinstance(error, WaltzError):
            self._host.world.fail(f"transaction {self._submitted.number} ended with {error!r}")

    def _end(self) -> None:
        if self._over:
            self._host.world.fail(f"transaction {self._submitted.number} has ended twice")
        self._over = True


def hashes_of(locks: Iterable[PartitionLocalLock]) -> tuple[int, ...]:
    """The hashes by which the checker knows locks."""
    return tuple(lock.hash for lock in locks)


def random_size(draw: random.Random, options: SimulationOptions) -> int:
    """Of the random part of a transaction's data: around the mean, now and then much larger, up to what is allowed."""
    if draw.random() < options.large_share:
        size = draw.randint(0, LARGE_FACTOR * options.data_size_bytes)
    else:
        size = draw.randint(0, 2 * options.data_size_bytes)
    return min(size, options.max_transaction_bytes - DATA_PREFIX.size - options.zero_bytes)
