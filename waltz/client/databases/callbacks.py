"""Callbacks for applications that keep their state in a relational database, together with the high-water marks.

Each transaction is applied exactly once, by any number of processes that share the database: one database transaction
advances the high-water mark of the partition by a conditional update and makes the application's changes. The process
whose update finds the expected mark holds the row, and applies; the updates of all others find nothing, and they
continue with the next transaction. Waiting transactions are applied together, in one database transaction.
"""

import asyncio
import logging
import random
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from waltz.client.context import WaltzClientCallbacks
from waltz.client.databases.batches import MAX_BATCH, DatabaseBatches
from waltz.client.databases.kinds import Connection, Database
from waltz.client.databases.marks import Mark
from waltz.client.errors import ClientClosedError, OtherLogError
from waltz.client.transaction import Transaction

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar as TypeVarWithDefault,
    )  # type checkers know it without an installation

    C = TypeVarWithDefault("C", bound=Connection, default=Any)
else:
    C = TypeVar("C", bound=Connection)
T = TypeVar("T")

_THREADS = 4


class DatabaseCallbacks(WaltzClientCallbacks, Generic[C]):
    """Implement :meth:`apply`. To be closed after its client.

    Transactions that wait, because the application is starting or was delayed, are applied together: at most
    ``max_batch`` in one database transaction of about a quarter of a second. At the end of the log each transaction has
    its own.

    After errors of the database, which may be down, the work is repeated for ever, with growing delays. After any other
    exception of :meth:`apply` the database transaction is rolled back, the error goes to ``uncaught_exception``, and
    the transaction is applied again; the same holds for a :class:`StoredMarkError`, when the database lacks
    transactions that it had applied. A batch that was rolled back is applied again in smaller batches, so that only a
    transaction that fails on its own is reported.

    Examples:
        ```python
        from typing import Any


        class Mails(waltz.DatabaseCallbacks):
            def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
                connection.execute("INSERT INTO mails VALUES (?)", (data.decode(),))


        mails = Mails(waltz.DbApiDatabase(lambda: sqlite3.connect(f"{directory}/mails.sqlite"), sqlite3))
        mails.create_table()
        async with waltz.open_client(mails, cluster) as client:
            await client.transact(0, lambda basis: b"hello")
        mails.close()
        ```
    """

    def __init__(
        self,
        database: Database[C],
        *,
        threads: int = _THREADS,
        max_batch: int = MAX_BATCH,
        random_source: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The database is used on ``threads`` threads, for that number of partitions side by side.

        If ``apply_transaction`` is overridden, or the database's ``advance_mark`` without its ``move_mark``,
        ``max_batch`` is 1. ``clock`` returns seconds. Raises ``ValueError`` when ``max_batch`` is less than 1.
        """
        self._database = database
        self._standing: dict[int, Mark] = {}
        """Marks whose transactions have not been compared with the log's."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="waltz-database")
        one_by_one = type(self).apply_transaction is not DatabaseCallbacks.apply_transaction
        self._batches = DatabaseBatches(
            database,
            self.apply,
            self._in_thread,
            max_batch=min(max_batch, 1) if one_by_one else max_batch,
            random_source=random_source or random.Random(),
            clock=clock,
        )

    # The application's part

    @abstractmethod
    def apply(self, transaction: Transaction, data: bytes, connection: C) -> None:
        """Change the database for ``transaction``, through ``connection`` only; called on a thread of its own.

        The connection is in a database transaction that already has the high-water mark of the partition, and perhaps
        the changes of earlier transactions. The caller commits, rolls back and closes it: an attempt to do so raises
        :class:`ForbiddenDatabaseCallError`. Rolled back transactions are applied again: keep no state elsewhere.
        """

    def on_error_getting_high_water_mark(self, attempt: int, error: Exception) -> None:
        """The database failed while the client was starting; attempts are counted from 1. Raise to give up."""

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """Logs; override to do more."""
        if isinstance(error, ClientClosedError):
            logger.warning(
                "transaction %d of partition %d was not applied, because the client was closed meanwhile",
                transaction_id,
                partition_id,
            )
            return
        logger.error(
            "applying transaction %d of partition %d failed; it will be tried again",
            transaction_id,
            partition_id,
            exc_info=error,
        )

    def create_table(self) -> None:
        """Create the table of the high-water marks, unless it exists. Blocks; for the set-up of an application."""
        connection = self._database.connect()
        try:
            self._database.create_table(connection)
            connection.commit()
        finally:
            connection.close()

    def close(self) -> None:
        """Wait for the end of the work in the database."""
        self._threads.shutdown(wait=True)

    # The client's part

    async def client_high_water_mark(self, partition_id: int) -> int:
        """The mark of the partition; a missing mark is set to -1.

        If the stored mark knows its transaction, the result is one less: that transaction is fed once more, and
        compared.
        """
        mark = await self._batches.read_mark(partition_id, self.on_error_getting_high_water_mark)
        if not mark.request_id:
            self._standing.pop(partition_id, None)
            return mark.transaction_id
        self._standing[partition_id] = mark
        return mark.transaction_id - 1

    async def apply_transaction(self, transaction: Transaction) -> None:
        """Apply the transaction and waiting ones after it, unless another process has applied it.

        Raises :class:`StoredMarkError` when the database lacks earlier transactions that it had applied, and
        ``OtherLogError`` when the last applied one is not of this log.
        """
        mark = self._standing.get(transaction.partition_id)
        if mark is not None:
            if mark.transaction_id == transaction.transaction_id and mark.request_id != transaction.req_id:
                raise OtherLogError(transaction.partition_id, transaction.transaction_id)
            del self._standing[transaction.partition_id]
        batches = self._batches
        if batches.marks[transaction.partition_id] < transaction.transaction_id:
            batch = await transaction.batch(batches.count(transaction.partition_id))
            await batches.apply_first([(each, await each.data_bytes()) for each in batch])

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
