"""An application that appends with all kinds of locks, and keeps a journal of what it is told."""

import asyncio
import contextlib
import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.smoke.journal import Journal, Outcome, Sample, Submitted
from tests.smoke.payload import Payload, digest
from tests.smoke.sessions import PATIENCE_S, Sessions
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.errors import ClientClosedError, SessionFencedError
from waltz.client.locks import PartitionLocalLock
from waltz.client.retry_policy import RetryPolicy
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError

_BLOCK_BYTES = 64 << 10

_ONE_ATTEMPT = RetryPolicy(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Load:
    """What one client does."""

    in_flight: int = 16
    """Transactions at a time. The client must be configured for at least as many in each partition."""
    rate: float = 500.0
    """Transactions begun per second, as long as there are fewer than ``in_flight``; what was missed is made up for."""
    size_bytes: int = 64
    """Mean size of the random part of the data."""
    locks: int = 2000
    """Different locks per partition; the first hundredth of them is wanted as often as all others."""
    impatient: float = 0.05
    """Share of the transactions that give up after one attempt."""
    large: float = 0.0
    """Share of the transactions that are large."""
    large_bytes: int = 0
    """Size of the data of those."""


@dataclass(slots=True)
class Application(WaltzClientCallbacks):
    """Applies transactions by remembering their digests, in the journal."""

    journal: Journal
    partitions: int
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal.applied = [array("Q") for _ in range(self.partitions)]

    def client_high_water_mark(self, partition_id: int) -> int:
        """See the base class."""
        return len(self.journal.applied[partition_id]) - 1

    async def apply_transaction(self, transaction: Transaction) -> None:
        """See the base class."""
        data = await transaction.data_bytes()
        applied = self.journal.applied[transaction.partition_id]
        if transaction.transaction_id != len(applied):
            self.journal.violations.append(
                f"was given {transaction.transaction_id} of partition {transaction.partition_id} after "
                f"{len(applied) - 1}"
            )
        applied.append(digest(transaction.header, data))

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """The data could not be read for a long time, or there is a defect here; the client tries again."""
        self.errors.append(error)
        if not isinstance(error, WaltzError):
            self.journal.violations.append(f"applying {transaction_id} of partition {partition_id} failed: {error!r}")


class Workload:
    """Submits transactions and writes down what becomes of them."""

    def __init__(
        self,
        client: WaltzClient,
        application: Application,
        load: Load,
        draw: random.Random,
        sessions: Sessions | None = None,
    ) -> None:
        """``sessions`` are those that its appends belong to."""
        self.pending = 0
        """Transactions under way."""
        self.on_commit: Callable[[int], None] = lambda partition_id: None
        """Called with the partition of each committed transaction."""
        self.journal = application.journal
        self.application = application
        self._client = client
        self._load = load
        self._draw = draw
        self._sessions = sessions
        self._locks = [PartitionLocalLock("smoke", number) for number in range(load.locks)]
        self._stopped = asyncio.Event()
        self._wanted: float = 0

    @property
    def load(self) -> Load:
        """What it does."""
        return self._load

    async def run(self, transactions: float = float("inf")) -> None:
        """Submit so many, or until :meth:`stop`, and return when all have ended."""
        self._wanted = transactions
        started_at_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(self._load.in_flight):
                # Each to a partition of its own, so that one that waits does not hold up the others.
                group.create_task(self._one_after_the_other(number % self.application.partitions, started_at_s))

    def stop(self) -> None:
        """Submit nothing any more."""
        self._stopped.set()

    async def _one_after_the_other(self, partition_id: int, started_at_s: float) -> None:
        submitted = self.journal.submitted
        while not self._stopped.is_set() and len(submitted) < self._wanted:
            one = Submitted(len(submitted), partition_id)
            submitted.append(one)
            await self._wait_until(started_at_s + one.number / self._load.rate)
            size_bytes = self._load.large_bytes if self._draw.random() < self._load.large else 0
            await self._submit(one, size_bytes)

    async def append_large(self, partition_id: int, size_bytes: int) -> None:
        """Beside everything else append a transaction of this size, and return when it has been applied."""
        one = Submitted(len(self.journal.submitted), partition_id)
        self.journal.submitted.append(one)
        await self._submit(one, size_bytes)
        assert one.outcome is Outcome.COMMITTED, f"{size_bytes} bytes: {one.outcome.value} ({one.reason})"

    async def _submit(self, one: Submitted, large_bytes: int) -> None:
        context = Context(self, one, self._draw, large_bytes)
        self.pending += 1
        with contextlib.suppress(WaltzError):  # the context was told before
            await self._client.submit(context)
        await context.ended.wait()
        self.pending -= 1
        if context.fenced:  # whatever comes next would end like that, too
            await (asyncio.sleep(PATIENCE_S) if self._sessions is None else self._sessions.regain(one.partition_id))

    def session(self, partition_id: int) -> int:
        """The number that appends carry at this moment, or -1."""
        number = self._client.write_session(partition_id)
        return -1 if number is None else number

    async def _wait_until(self, at_s: float) -> None:
        delay_s = at_s - time.monotonic()
        if delay_s > 0:
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopped.wait()
            except TimeoutError:
                return

    def some_locks(self, most: int) -> list[PartitionLocalLock]:
        """Up to ``most`` different locks."""
        draw, locks = self._draw, self._locks
        hot = max(1, len(locks) // 100)
        return list({locks[draw.randrange(draw.choice((hot, len(locks))))] for _ in range(draw.randint(0, most))})

    def ended(self, one: Submitted, outcome: Outcome, reason: str = "") -> None:
        """What the client library says in the end."""
        if one.outcome is not Outcome.PENDING:
            self.journal.violations.append(
                f"transaction {one.number} is {outcome.value} ({reason}) after it was {one.outcome.value}"
            )
        one.outcome = outcome
        one.reason = reason


class Context(TransactionContext):
    """One transaction. One that is large has this size and no locks: it would be sent again and again for them."""

    __slots__ = (
        "_completed",
        "_draw",
        "_large_bytes",
        "_one",
        "_started_at_s",
        "_workload",
        "ended",
        "fenced",
        "retry_policy",
    )

    def __init__(self, workload: Workload, one: Submitted, draw: random.Random, large_bytes: int) -> None:
        self.ended = asyncio.Event()
        self.fenced = False
        """The write session was over, or another client held an exclusive one."""
        impatient = not large_bytes and draw.random() < workload.load.impatient
        self.retry_policy = _ONE_ATTEMPT if impatient else None
        self._large_bytes = large_bytes
        self._workload = workload
        self._one = one
        self._draw = draw
        self._completed = False
        self._started_at_s = time.monotonic()

    def partition_id(self, partition_count: int) -> int:
        """See the base class."""
        return self._one.partition_id

    def execute(self, builder: TransactionBuilder) -> bool:
        """Other locks and other data at each attempt, so that attempts can be told apart in the log."""
        one, workload = self._one, self._workload
        most = 0 if self._large_bytes else 1
        write_locks, read_locks = workload.some_locks(2 * most), workload.some_locks(most)
        append_locks = workload.some_locks(most)
        builder.set_header(one.number)
        builder.set_write_locks(write_locks)
        builder.set_read_locks(read_locks)
        builder.set_append_locks(append_locks)
        payload = Payload(
            workload.journal.client,
            one.number,
            one.attempts,
            builder.client_high_water_mark,
            workload.session(one.partition_id),
            *(tuple(lock.hash for lock in locks) for locks in (write_locks, read_locks, append_locks)),
        )
        if self._large_bytes:
            # Drawing megabytes takes long, and nobody else in this process, proxies for example, goes on meanwhile.
            block = self._draw.randbytes(_BLOCK_BYTES)
            filling = (block * (self._large_bytes // _BLOCK_BYTES + 1))[: self._large_bytes - len(payload.encode(b""))]
        else:
            filling = self._draw.randbytes(self._draw.randint(0, 2 * workload.load.size_bytes))
        data = payload.encode(filling)
        builder.set_data(data)
        workload.journal.retries += one.attempts > 0
        one.attempts += 1
        one.digest = digest(one.number, data)
        return True

    def on_completion(self, committed: bool) -> None:
        """See the base class."""
        if committed:
            self._completed = True
        else:
            self._workload.ended(self._one, Outcome.FAILED, "given up")
            self.ended.set()

    def on_application(self) -> None:
        """The transaction that was applied last is this one."""
        workload, one = self._workload, self._one
        applied = workload.journal.applied[one.partition_id]
        one.transaction_id = len(applied) - 1
        if not self._completed or not applied or applied[-1] != one.digest:
            workload.journal.violations.append(
                f"transaction {one.number} is said to be applied at {one.transaction_id}, which is something else"
            )
        workload.ended(one, Outcome.COMMITTED)
        workload.journal.samples.append(Sample(one.partition_id, self._started_at_s, time.monotonic()))
        workload.on_commit(one.partition_id)
        self.ended.set()

    def on_exception(self, error: Exception) -> None:
        """See the base class."""
        self.fenced = isinstance(error, SessionFencedError)
        outcome = Outcome.UNKNOWN if isinstance(error, ClientClosedError) else Outcome.FAILED
        self._workload.ended(self._one, outcome, str(error))
        if not isinstance(error, WaltzError):
            self._workload.journal.violations.append(f"transaction {self._one.number} ended with {error!r}")
        self.ended.set()

    def on_lock_failure(self) -> None:
        """See the base class."""
        self._workload.journal.lock_failures += 1
