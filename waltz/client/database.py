"""Callbacks for applications that keep their state in a relational database, together with the high-water marks.

Each transaction is applied exactly once, by any number of processes that share the database: in one database
transaction, the high-water mark of the partition is advanced by a conditional update and the application's changes are
made. Whoever's update finds the mark where it was expected holds the row, and applies; for all others the update finds
nothing, and they go on with the next transaction.
"""

import asyncio
import inspect
import logging
import random
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from waltz.client.context import WaltzClientCallbacks
from waltz.client.databases import Connection, Database
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # for type checkers, which know it without installing

    C = TypeVarWithDefault("C", bound=Connection, default=Any)
else:
    C = TypeVar("C", bound=Connection)
T = TypeVar("T")

_INITIAL_DELAY_S = 0.01
_MAXIMUM_DELAY_S = 10.0
_THREADS = 4


class _NoRowError(Exception):
    """A row could neither be read nor made; the next attempt may succeed, or tell why."""


class StoredMarkError(WaltzError):
    """The high-water mark in the database went back, or its row is gone: transactions would be left out.

    Perhaps the database was restored from a backup while a client was running. Once the client takes part in the
    partition anew (in this process or another one), it goes on behind the mark that is stored.
    """


class DatabaseCallbacks(WaltzClientCallbacks, Generic[C]):
    """Implement :meth:`apply`. To be closed after its client.

    Errors of the database are tried again for ever, with growing delays: the database may be down. Any other exception
    of :meth:`apply` rolls back, goes to ``uncaught_exception``, and has the transaction applied again; so does a
    :class:`StoredMarkError`, when the database does not know of transactions that it had applied.
    """

    def __init__(
        self, database: Database[C], *, threads: int = _THREADS, random_source: random.Random | None = None
    ) -> None:
        """The database is used on ``threads`` threads; that many partitions are applied at a time."""
        self._database = database
        self._temporary_errors: tuple[type[Exception], ...] = (*database.errors, _NoRowError)
        self._marks: dict[int, int] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="waltz-database")
        self._random = random_source or random.Random()

    # The application's part

    @abstractmethod
    def apply(self, transaction: Transaction, data: bytes, connection: C) -> None:
        """Change the database for ``transaction``, through ``connection`` only; called on a thread of its own.

        The connection is in a database transaction that already holds the high-water mark of the partition. It is
        committed, rolled back and closed by the caller: trying to raises :class:`ForbiddenDatabaseCallError`.
        """

    def on_error_getting_high_water_mark(self, attempt: int, error: Exception) -> None:
        """The database failed while the client was starting; attempts are counted from 1. Raise to give up."""

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """Logs; override to do more."""
        logger.error(
            "applying transaction %d of partition %d failed; it will be tried again",
            transaction_id,
            partition_id,
            exc_info=error,
        )

    def create_table(self) -> None:
        """Create the table of the high-water marks, unless it is there. Blocks; for the set-up of an application."""
        connection = self._database.connect()
        try:
            self._database.create_table(connection)
            connection.commit()
        finally:
            connection.close()

    def close(self) -> None:
        """Wait for what is being done in the database."""
        self._threads.shutdown(wait=True)

    # The client's part

    async def client_high_water_mark(self, partition_id: int) -> int:
        """The mark of the partition; it is set to -1 where there is none."""
        backoff = self._backoff()
        attempt = 0
        while True:
            attempt += 1
            try:
                mark = await self._in_thread(lambda: self._read_or_create(partition_id))
            except self._temporary_errors as error:
                logger.warning("the high-water mark of partition %d cannot be read: %s", partition_id, error)
                self.on_error_getting_high_water_mark(attempt, error)
                await asyncio.sleep(backoff.next_delay_s())
                continue
            self._marks[partition_id] = mark
            return mark

    async def apply_transaction(self, transaction: Transaction) -> None:
        """Apply it here, unless somebody else has applied it.

        Raises :class:`StoredMarkError` when transactions before it are not applied in the database any more.
        """
        partition_id = transaction.partition_id
        backoff = self._backoff()
        data: bytes | None = None
        while self._marks[partition_id] < transaction.transaction_id:
            if data is None:
                data = await transaction.data_bytes()
            try:
                mark = await self._in_thread(self._applying(transaction, data))
            except self._database.errors as error:
                logger.warning(
                    "transaction %d of partition %d cannot be applied, it will be tried again: %s",
                    transaction.transaction_id,
                    partition_id,
                    error,
                )
                await asyncio.sleep(backoff.next_delay_s())
                continue
            if mark is None or mark < transaction.transaction_id - 1:
                raise _went_back(transaction, mark)
            self._marks[partition_id] = mark
            if mark < transaction.transaction_id:  # whoever had the row before us has rolled back
                await asyncio.sleep(backoff.next_delay_s())

    def _backoff(self) -> Backoff:
        return Backoff(_INITIAL_DELAY_S, _MAXIMUM_DELAY_S, self._random)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _read_or_create(self, partition_id: int) -> int:
        database = self._database
        connection = database.connect()
        try:
            mark = database.read_mark(connection, partition_id)
            if mark is None:
                try:
                    database.insert_mark(connection, partition_id)
                    connection.commit()
                except database.errors:
                    connection.rollback()  # another process was faster; if not, there is nothing to be read below
                mark = database.read_mark(connection, partition_id)
            connection.rollback()
        finally:
            connection.close()
        if mark is None:
            raise _NoRowError(f"no row for partition {partition_id} could be made")
        return mark

    def _applying(self, transaction: Transaction, data: bytes) -> Callable[[], int | None]:
        return lambda: self._apply_in_thread(transaction, data)

    def _apply_in_thread(self, transaction: Transaction, data: bytes) -> int | None:
        """One database transaction; returns the mark as it is now, ``None`` if there is none."""
        database = self._database
        partition_id, transaction_id = transaction.partition_id, transaction.transaction_id
        connection = database.connect()
        try:
            if database.advance_mark(connection, partition_id, transaction_id):
                result: Any = self.apply(transaction, data, database.guarded(connection))
                if inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    raise TypeError("apply must be a plain function: it runs on a thread without an event loop")
                connection.commit()
                return transaction_id
            mark = database.read_mark(connection, partition_id)
            connection.rollback()
            return mark
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            connection.close()


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
    except Exception as error:  # the connection may be broken, and what broke it is about to be raised
        logger.debug("roll back failed: %s", error)
