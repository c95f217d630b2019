"""Applies transactions to a database: many in one database transaction, and fewer after failures.

After a failure the batch shrinks to the transactions before the failed one, and doubles with every success. So a
transaction that cannot be applied is finally alone in its database transaction, after everything before it; only then
is its error reported.
"""

import asyncio
import inspect
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from waltz.client.databases.kinds import Connection, Database, marks_of
from waltz.client.databases.marks import Mark
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Connection)
T = TypeVar("T")

MAX_BATCH = 1000

_INITIAL_DELAY_S = 0.01
_MAXIMUM_DELAY_S = 10.0
_BATCH_S = 0.25
"""A database transaction, for which others may wait, takes no further transaction after this time."""

Entry = tuple[Transaction, bytes]


class InThread(Protocol):
    """Runs blocking work on a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """The result of ``work``; raises its errors."""
        ...


class _NoRowError(Exception):
    """A row could neither be read nor inserted; the next attempt may succeed, or show the reason."""


class _BrokenBatchError(Exception):
    """A batch was rolled back because of ``cause``; one of ``next_count`` may succeed."""

    def __init__(self, next_count: int, cause: BaseException) -> None:
        super().__init__(next_count, cause)
        self.next_count = next_count
        self.cause = cause


class StoredMarkError(WaltzError):
    """The high-water mark in the database cannot be continued; the text says why, and what to do.

    It went back, or its row is gone: transactions would be left out. Perhaps the database was restored from a backup
    while a client was running. When a client joins the partition anew (in this process or another one), it continues
    after the stored mark. Or the database transaction that applied a transaction was committed before its end, so that
    a part of the effects may be stored.

    Examples:
        ```python
        try:
            await client.apply_to_database(database, apply, follow=False)
        except waltz.StoredMarkError as error:
            print("the database has to be looked at:", error)
        ```
    """


class DatabaseBatches(Generic[C]):
    """The high-water marks of a database, and their moves. Work is repeated for ever after errors of the database."""

    def __init__(
        self,
        database: Database[C],
        apply: Callable[[Transaction, bytes, C], object],
        in_thread: InThread,
        *,
        max_batch: int,
        random_source: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``max_batch`` limits the transactions of one database transaction."""
        if max_batch < 1:
            raise ValueError(f"max_batch must be at least 1, not {max_batch}")
        self.marks: dict[int, int] = {}
        """The stored mark of each partition, as far as it is known."""
        self._database = database
        self._apply = apply
        self._in_thread = in_thread
        self._stored = marks_of(database)
        self._prepared = False
        self._max_batch = max_batch if self._stored.batches else 1
        self._counts: dict[int, int] = {}
        self._random = random_source
        self._clock = clock
        self._temporary_errors: tuple[type[Exception], ...] = (*database.errors, _NoRowError)

    def count(self, partition_id: int) -> int:
        """Number of transactions for the next database transaction."""
        return self._counts.get(partition_id, self._max_batch)

    async def read_mark(self, partition_id: int, told: Callable[[int, Exception], None] | None = None) -> Mark:
        """The mark of a partition; a missing mark is set to -1.

        ``told`` is called with the number of the attempt and the error when the database fails; its own errors pass
        through. Raises ``ConfigError`` for connections that commit by themselves, and :class:`StoredMarkError` when
        a database transaction was committed before its end.
        """
        backoff = self._backoff()
        attempt = 0
        while True:
            attempt += 1
            try:
                mark = await self._in_thread(lambda: self._read_or_create(partition_id))
            except self._temporary_errors as error:
                logger.warning("the high-water mark of partition %d cannot be read: %s", partition_id, error)
                if told is not None:
                    told(attempt, error)
                await asyncio.sleep(backoff.next_delay_s())
                continue
            self.marks[partition_id] = mark.transaction_id
            self._counts.pop(partition_id, None)
            return mark

    async def apply_first(self, entries: Sequence[Entry]) -> None:
        """Return when at least the first of ``entries`` is applied, here or elsewhere; :attr:`marks` has the new mark.

        The entries are transactions of one partition without gaps. Raises the error of ``apply`` for the first of them,
        and :class:`StoredMarkError` when the database lacks transactions before it that it had applied.
        """
        first = entries[0][0]
        partition_id, first_id = first.partition_id, first.transaction_id
        backoff = self._backoff()
        while self.marks[partition_id] < first_id:
            count = min(self.count(partition_id), len(entries))
            try:
                mark = await self._in_thread(self._applying(partition_id, entries[:count]))
            except _BrokenBatchError as broken:
                self._counts[partition_id] = broken.next_count
                logger.debug("%d transactions from %d on were rolled back: %r", count, first_id, broken.cause)
                if isinstance(broken.cause, self._database.errors):
                    self._warn(partition_id, first_id, count, broken.cause)
                    await asyncio.sleep(backoff.next_delay_s())
                continue
            except self._database.errors as error:
                self._warn(partition_id, first_id, count, error)
                await asyncio.sleep(backoff.next_delay_s())
                continue
            if mark is None or mark < first_id - 1:
                raise _went_back(first, mark)
            self.marks[partition_id] = mark
            if mark < first_id:  # the former owner of the row has rolled back
                await asyncio.sleep(backoff.next_delay_s())
            else:
                self._counts[partition_id] = min(2 * self.count(partition_id), self._max_batch)

    def _backoff(self) -> Backoff:
        return Backoff(_INITIAL_DELAY_S, _MAXIMUM_DELAY_S, self._random)

    def _warn(self, partition_id: int, first_id: int, count: int, error: BaseException) -> None:
        which = f"transaction {first_id}" if count == 1 else f"transactions {first_id} to {first_id + count - 1}"
        tried = "it will be tried again" if count == 1 else "they will be tried again"
        logger.warning("%s of partition %d cannot be applied, %s: %s", which, partition_id, tried, error)

    # On a thread: one database transaction each

    def _read_or_create(self, partition_id: int) -> Mark:
        database, stored = self._database, self._stored
        connection = database.connect()
        try:
            if not self._prepared:
                stored.prepare(connection)
                self._prepared = True
            mark = stored.read(connection, partition_id)
            if mark is None:
                try:
                    stored.insert(connection, partition_id)
                    connection.commit()
                except database.errors:
                    connection.rollback()  # another process was faster; if not, the read below finds nothing
                mark = stored.read(connection, partition_id)
            connection.rollback()
        finally:
            connection.close()
        if mark is None:
            raise _NoRowError(f"no row for partition {partition_id} could be made")
        return _finished(partition_id, mark)

    def _applying(self, partition_id: int, entries: Sequence[Entry]) -> Callable[[], int | None]:
        return lambda: self._apply_in_thread(partition_id, entries)

    def _apply_in_thread(self, partition_id: int, entries: Sequence[Entry]) -> int | None:
        """Run one database transaction; returns the present mark, ``None`` if there is none."""
        stored = self._stored
        first_id = entries[0][0].transaction_id
        next_count = 0
        connection = self._database.connect()
        try:
            claim = stored.claim(connection, partition_id, first_id)
            if claim is None:
                mark = stored.read(connection, partition_id)
                connection.rollback()
                return None if mark is None else _finished(partition_id, mark).transaction_id
            next_count = len(entries) // 2  # in case the commit fails
            applied = self._apply_all(entries, connection)
            last = entries[applied - 1][0]
            if not stored.finish(
                connection, partition_id, first_id, claim, Mark(last.transaction_id, bytes(last.req_id))
            ):
                raise RuntimeError(
                    f"the database transaction in which transaction {first_id} of partition {partition_id} was applied "
                    "is over before its end: apply must neither commit nor roll back, nor move high-water marks"
                )
            connection.commit()
            return last.transaction_id
        except _BrokenBatchError:
            _roll_back(connection)
            raise
        except Exception as error:
            _roll_back(connection)
            if next_count:
                raise _BrokenBatchError(next_count, error) from error
            raise
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            connection.close()

    def _apply_all(self, entries: Sequence[Entry], connection: C) -> int:
        """Apply transactions as long as there is time; returns their number."""
        apply = self._apply
        guarded = self._database.guarded(connection)
        ends_at_s = self._clock() + _BATCH_S
        applied = 0
        for transaction, data in entries:
            try:
                result = apply(transaction, data, guarded)
                if result is not None and inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    raise TypeError("apply must be a plain function: it runs on a thread without an event loop")
            except (Exception, asyncio.CancelledError) as error:
                if len(entries) == 1:
                    raise
                raise _BrokenBatchError(max(applied, 1), error) from error
            applied += 1
            if self._clock() > ends_at_s:
                break
        return applied


def _finished(partition_id: int, mark: Mark) -> Mark:
    if not mark.claimed:
        return mark
    first_id = mark.transaction_id
    raise StoredMarkError(
        f"partition {partition_id} cannot be gone on with: the database transaction in which transaction {first_id} "
        "was to be applied, perhaps with some behind it, was committed before its end, by apply or something that it "
        "calls, so that a part of the effects may be stored. Mend that, look at what is stored, set LAST_TRANSACTION "
        f"of the partition to NULL and HIGH_WATER_MARK to the last one that is applied ({first_id - 1} or more), and "
        "restart"
    )


def _went_back(transaction: Transaction, mark: int | None) -> StoredMarkError:
    stored = "is gone from the database" if mark is None else f"in the database is {mark}"
    return StoredMarkError(
        f"transaction {transaction.transaction_id} of partition {transaction.partition_id} cannot be applied: the "
        f"stored high-water mark of the partition {stored}, although it was at least {transaction.transaction_id - 1}. "
        "Was the database restored while the client was running? Restart the client to go on behind the stored mark"
    )


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except Exception as error:  # the connection may be broken, and the cause is about to be raised
        logger.debug("roll back failed: %s", error)
