"""The feed of one partition: committed transactions, applied strictly in order.

While all callbacks are plain functions, a transaction is applied in the call that has received it. When a callback has
to be awaited, one task per partition continues, and later transactions are queued. The queue is bounded: no more of the
feed is requested and, if that is not enough, the connection is not read.

A transaction with a failed callback stays at the head and is applied again after a delay. (The original drops the
connection and is fed the same transaction again.) The guarantees are those of the original: order is kept, and the
submission is told once of the commit and once of the application. Any exception of a callback counts as a failure, even
if it is no ``Exception``; only ``KeyboardInterrupt`` and ``SystemExit`` leave the event loop. If the feed is stopped
before the transaction is applied, the submission ends with an error.

Any other early end of the handling of a transaction (a cancellation of its task by other code, a defect) is logged, and
the feed begins again after the last applied transaction.
"""

import asyncio
import inspect
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from waltz.client.engine.partition.deferred import DeferredDecisions
from waltz.client.engine.partition.probe import LatencyProbe
from waltz.client.engine.reads.prefetch import Prefetcher
from waltz.client.engine.submission import Submission, tell_failure
from waltz.client.engine.tasks import STOPS_THE_LOOP, Signal, is_being_cancelled
from waltz.client.errors import PartitionInactiveError
from waltz.client.options import ClientOptions
from waltz.client.transaction import Transaction
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.wire.client_server import MountResponse
from waltz.common.wire.mark_feed import MarkAdvanced

logger = logging.getLogger(__name__)

Fed = tuple[bytes, int, int]
"""The fields of a :class:`~waltz.common.wire.client_server.FeedData`: request id, transaction id, header."""


@dataclass(frozen=True, slots=True)
class Applier:
    """The handling of committed transactions by a face. Awaitable results of the functions are awaited."""

    apply: Callable[[Transaction], Awaitable[None] | None]
    """Called strictly in order within a partition, one at a time. After an exception the call is repeated for the
    transaction."""
    failed: Callable[[int, int, BaseException], Awaitable[None] | None]
    """Called when a function of the application has raised an error during a transaction of a partition."""


class PartitionFeed:
    """Applies transactions, and has the client's high-water mark. Inactive before :meth:`start`.

    ``take_committed`` returns the submission of a committed transaction, if it is an undecided one of this client;
    ``is_own`` returns whether it is. ``settle_deferred`` is called when the mark reaches a transaction that
    ``deferred`` decisions wait for; ``mount_reached`` when all transactions before a mount response are applied;
    ``backlog_changed`` with the number of waiting transactions, when it crosses one of its limits; ``broke_off`` when
    received transactions were dropped before they were applied, and have to be fed again.
    """

    def __init__(
        self,
        partition_id: int,
        applier: Applier | None,
        prefetcher: Prefetcher,
        applying: asyncio.Semaphore,
        *,
        take_committed: Callable[[bytes], Submission | None],
        is_own: Callable[[bytes], bool],
        deferred: DeferredDecisions,
        settle_deferred: Callable[[int], None],
        mount_reached: Callable[[bytes], None],
        backlog_changed: Callable[[int], None],
        broke_off: Callable[[], None],
        probe: LatencyProbe,
        options: ClientOptions,
        random_source: random.Random,
    ) -> None:
        self.applied = NO_TRANSACTION
        """The client's high-water mark: the id of the last applied transaction."""
        self.received = NO_TRANSACTION
        """The id of the last received transaction. Transactions after ``applied`` are queued."""
        self.active = False
        self.advanced = Signal()
        """Without an applier, notified when ``applied`` has advanced."""
        self._partition_id = partition_id
        self._take_committed = take_committed
        self._is_own = is_own
        self._deferred = deferred
        self._settle_deferred = settle_deferred
        self._mount_reached = mount_reached
        self._backlog_changed = backlog_changed
        self._broke_off = broke_off
        self._probe = probe
        self._counted = 0
        self._counted_from = NO_TRANSACTION  # transactions received after it are not in _counted
        if applier is None:
            self._step: Callable[[Fed], Coroutine[Any, Any, None] | None] = self._follow
        else:
            self._step = self._apply
            self._apply_transaction = applier.apply
            self._application_failed = applier.failed
        self._applied_elsewhere = NO_TRANSACTION
        self._applier = applier
        self._prefetcher = prefetcher
        self._applying = applying
        self._options = options
        self._random = random_source
        self._queue: deque[Fed | MountResponse] = deque()
        self._task: asyncio.Task[None] | None = None
        self._under_way: tuple[Transaction, Submission | None] | None = None
        self._stopped = asyncio.Event()
        self._stop_error: Exception = PartitionInactiveError(partition_id)

    def start(self, high_water_mark: int, applied_elsewhere: int = NO_TRANSACTION) -> None:
        """Expect the transaction after ``high_water_mark``.

        Transactions up to ``applied_elsewhere`` count as applied, and are not applied here.
        """
        assert self._task is None, "the feed is still running"
        self._applied_elsewhere = applied_elsewhere
        if self._applier is not None:
            known = high_water_mark < applied_elsewhere
            self._apply_transaction = self._apply_unless_elsewhere if known else self._applier.apply
        self._go_back(high_water_mark)
        self.applied = high_water_mark
        self._stopped.clear()
        self.active = True

    async def stop(
        self, error: Exception, grace_s: float | None = None, caller: asyncio.Task[Any] | None = None
    ) -> None:
        """Drop the queue, and wait up to ``grace_s`` for the end of the transaction that is being applied; then cancel
        it.

        If the transaction is not applied then, its submission ends with ``error``. ``caller`` is the task on whose
        behalf the call is made. The call does not wait for ``caller``, even if that task is applying.
        """
        self.active = False
        self._stop_error = error
        self._stopped.set()
        self._queue.clear()
        self._prefetcher.clear()
        self._probe.forget()
        self.advanced.notify()
        task = self._task
        if task is not None:
            if task is caller:
                return
            done, _ = await asyncio.wait((task,), timeout=grace_s)
            if not done:
                task.cancel()
                await asyncio.wait((task,))
        await self._give_up()

    async def _give_up(self) -> None:
        """End the submissions of committed transactions that this feed will not apply."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None and under_way[1] is not None:
            await tell_failure(under_way[1], self._stop_error)

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task is applying transactions at present."""
        return task is not None and task is self._task

    @property
    def received_count(self) -> int:
        """The number of received transactions. Repeated transactions count again."""
        return self._counted + self.received - self._counted_from

    def _go_back(self, transaction_id: int) -> None:
        self._counted = self.received_count
        self.received = self._counted_from = transaction_id

    @property
    def backlog(self) -> int:
        """The number of queued items."""
        return len(self._queue)

    def read(self, transaction_id: int, timeout_s: float) -> Coroutine[Any, Any, bytes]:
        """The data of a received transaction. Raises like :meth:`Prefetcher.read`."""
        return self._prefetcher.read(transaction_id, timeout_s)

    async def read_batch(self, first: Transaction, max_count: int, timeout_s: float) -> list[Transaction]:
        """The transaction ``first``, and the following transactions in the queue up to the first one of this client,
        with their data."""
        next_id = first.transaction_id + 1
        fields: list[Fed] = [(first.req_id, first.transaction_id, first.header)]
        for item in self._queue:
            if isinstance(item, MountResponse):
                continue
            if len(fields) >= max_count or item[1] != next_id or self._is_own(item[0]):
                break
            fields.append(item)
            next_id += 1
        if len(fields) == 1:
            data = [await first.data_bytes(timeout_s=timeout_s)]
        else:
            data = await self._prefetcher.read_many(first.transaction_id, len(fields), timeout_s)
        return [Transaction(*each, known, self) for each, known in zip(fields, data, strict=False)]

    def offer(self, item: Fed) -> None:
        """Take a transaction. Ignored unless it is the next one."""
        transaction_id = item[1]
        if transaction_id != self.received + 1 or not self.active:
            return
        self.received = transaction_id
        if self._task is None:
            try:
                rest = self._step(item)
            except BaseException:
                self._forget_received()  # the connection ends here, and the next one begins at this transaction
                raise
            if rest is not None:
                self._begin(rest)
            return
        self._queue.append(item)
        self._prefetcher.queued(transaction_id, own=self._is_own(item[0]))
        if len(self._queue) == self._options.feed_queue_high:
            self._backlog_changed(len(self._queue))

    def mark_advanced(self, message: MarkAdvanced) -> None:
        """All transactions up to a mark are committed; none of them is of this client. Called without an applier
        only."""
        mark = message.transaction_id
        if mark <= self.received or not self.active:
            return
        self.received = self.applied = mark
        if self._deferred.due_at <= mark:
            self._settle_deferred(mark)
        if self.advanced.waited_for:
            self.advanced.notify()

    def offer_mounted(self, item: MountResponse) -> None:
        """Queue the answer to a mount: the partition is mounted when all earlier transactions are applied."""
        if self._task is None:
            self._mount_reached(item.req_id)
        else:
            self._queue.append(item)

    def _begin(self, rest: Coroutine[Any, Any, None]) -> None:
        self._task = task = asyncio.get_running_loop().create_task(self._run(rest))

        def done(task: asyncio.Task[None]) -> None:
            rest.close()  # a task that is cancelled before its begin never awaits the coroutine
            self._ended(task)

        task.add_done_callback(done)

    async def _run(self, rest: Coroutine[Any, Any, None]) -> None:
        queue = self._queue
        low = self._options.feed_queue_low
        next_step: Coroutine[Any, Any, None] | None = rest
        while True:
            if next_step is not None:
                await next_step
            if not queue:
                self._task = None
                return
            item = queue.popleft()
            if len(queue) == low:
                self._backlog_changed(low)
            next_step = self._take(item)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task has ended. If its work was not done, the rest is fed again."""
        if self._task is not task:
            return  # the queue was empty
        self._task = None
        if not self.active:
            if not task.cancelled():
                task.exception()
            return
        logger.error(
            "the feed of partition %d broke off behind transaction %d and begins again there",
            self._partition_id,
            self.applied,
            exc_info=None if task.cancelled() else task.exception(),
        )
        self._forget_received()
        self._broke_off()

    def _forget_received(self) -> None:
        self._queue.clear()
        self._prefetcher.clear()
        self._go_back(self.applied)

    def _take(self, item: Fed | MountResponse) -> Coroutine[Any, Any, None] | None:
        if isinstance(item, MountResponse):
            self._mount_reached(item.req_id)
            return None
        return self._step(item)

    # One transaction. Everything that needs no wait is done; the rest is returned as a coroutine.

    def _follow(self, item: Fed) -> None:
        """Without an applier the high-water mark moves immediately."""
        req_id, transaction_id, _ = item
        own = self._take_committed(req_id)
        self.applied = transaction_id
        if own is not None:
            own.committed(transaction_id)
            if own is self._probe.submission:
                self._probe.followed()
        if self._deferred.due_at <= transaction_id:
            self._settle_deferred(transaction_id)
        if self.advanced.waited_for:
            self.advanced.notify()

    def _apply(self, item: Fed) -> Coroutine[Any, Any, None] | None:
        req_id, transaction_id, header = item
        own = self._take_committed(req_id)
        if own is None:
            if self._under_way is not None:  # repeated after a break: the submission is not told of the commit again
                return self._apply_slowly(*self._under_way)
            transaction = Transaction(req_id, transaction_id, header, None, self)
        else:
            if own is self._probe.submission:
                self._probe.committed()
            transaction = Transaction(req_id, transaction_id, header, own.sent, self)
            try:
                telling = own.committed(transaction_id)
            except STOPS_THE_LOOP:
                raise
            except BaseException as error:
                telling = self._report(transaction, error)
            if telling is not None and inspect.isawaitable(telling):
                return self._begin_slowly(transaction, own, telling=telling)
        try:
            applying = self._apply_transaction(transaction)
        except STOPS_THE_LOOP:
            raise
        except BaseException as error:
            return self._begin_slowly(transaction, own, failure=error)
        if applying is not None and inspect.isawaitable(applying):
            return self._begin_slowly(transaction, own, applying=applying)
        return self._finish(transaction, own)

    def _apply_unless_elsewhere(self, transaction: Transaction) -> Awaitable[None] | None:
        if transaction.transaction_id <= self._applied_elsewhere:
            return None
        assert self._applier is not None
        return self._applier.apply(transaction)

    def _finish(self, transaction: Transaction, own: Submission | None) -> Coroutine[Any, Any, None] | None:
        transaction_id = transaction.transaction_id
        self.applied = transaction_id
        if self._task is not None:
            self._prefetcher.applied(transaction_id)
        if own is not None:
            if own is self._probe.submission:
                self._probe.applied()
            try:
                telling = own.applied(transaction_id)
            except STOPS_THE_LOOP:
                raise
            except BaseException as error:
                telling = self._report(transaction, error)
            if telling is not None and inspect.isawaitable(telling):
                return self._finish_slowly(transaction, telling)
        if self._deferred.due_at <= transaction_id:
            self._settle_deferred(transaction_id)
        return None

    def _begin_slowly(
        self,
        transaction: Transaction,
        own: Submission | None,
        *,
        telling: Awaitable[None] | None = None,
        applying: Awaitable[None] | None = None,
        failure: BaseException | None = None,
    ) -> Coroutine[Any, Any, None]:
        self._under_way = transaction, own
        return self._apply_slowly(transaction, own, telling=telling, applying=applying, failure=failure)

    async def _apply_slowly(
        self,
        transaction: Transaction,
        own: Submission | None,
        *,
        telling: Awaitable[None] | None = None,
        applying: Awaitable[None] | None = None,
        failure: BaseException | None = None,
    ) -> None:
        if telling is not None:
            await self._guard(transaction, telling)
        backoff: Backoff | None = None
        while True:
            if failure is None:
                failure = await self._try_to_apply(transaction, applying)
                applying = None
            if failure is None:
                break
            await self._report(transaction, failure)
            failure = None
            if backoff is None:
                options = self._options
                backoff = Backoff(options.apply_retry_initial_s, options.apply_retry_maximum_s, self._random)
            if await self._stopped_within(backoff.next_delay_s()):
                await self._give_up()
                return
        self._under_way = None
        rest = self._finish(transaction, own)
        if rest is not None:
            await rest

    async def _finish_slowly(self, transaction: Transaction, telling: Awaitable[None]) -> None:
        await self._guard(transaction, telling)
        self._settle_deferred(transaction.transaction_id)

    async def _try_to_apply(self, transaction: Transaction, applying: Awaitable[None] | None) -> BaseException | None:
        try:
            await self._applying.acquire()
        except asyncio.CancelledError:
            if inspect.iscoroutine(applying):
                applying.close()
            raise
        try:
            if applying is None:
                applying = self._apply_transaction(transaction)
            if applying is not None and inspect.isawaitable(applying):
                await applying
        except STOPS_THE_LOOP:
            raise
        except asyncio.CancelledError as cancelled:
            if is_being_cancelled():
                raise
            return cancelled  # the application has cancelled a task of its own
        except BaseException as error:
            return error
        finally:
            self._applying.release()
        return None

    async def _stopped_within(self, delay_s: float) -> bool:
        try:
            async with asyncio.timeout(delay_s):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    # Callbacks; a failure must not stop the feed

    async def _guard(self, transaction: Transaction, awaitable: Awaitable[None]) -> None:
        try:
            await awaitable
        except STOPS_THE_LOOP:
            raise
        except asyncio.CancelledError as cancelled:
            if is_being_cancelled():
                raise
            await self._report(transaction, cancelled)
        except BaseException as error:
            await self._report(transaction, error)

    async def _report(self, transaction: Transaction, error: BaseException) -> None:
        try:
            result = self._application_failed(self._partition_id, transaction.transaction_id, error)
            if result is not None and inspect.isawaitable(result):
                await result
        except STOPS_THE_LOOP:
            raise
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError) and is_being_cancelled():
                raise
            logger.exception(
                "uncaught_exception failed for transaction %d of partition %d",
                transaction.transaction_id,
                self._partition_id,
            )
