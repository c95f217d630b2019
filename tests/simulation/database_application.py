"""Applications with `DatabaseCallbacks`, on a real database in memory that outlives their runs."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.application import ApplicationError, ClientHost
from tests.simulation.checker import Entry
from waltz.client.context import WaltzClientCallbacks
from waltz.client.databases.callbacks import DatabaseCallbacks
from waltz.client.databases.kinds import DbApiDatabase
from waltz.client.transaction import Transaction
from waltz.common.errors import WaltzError

T = TypeVar("T")


class DatabaseHost(ClientHost):
    """An application with a database, which must hold exactly the applied transactions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._place = f"file:{id(self)}?mode=memory&cache=shared"
        self._anchor = self.open_database()
        """A database in memory lives as long as it has a connection."""
        self._anchor.execute("CREATE TABLE applied (partition_id, transaction_id, req_id, header)")
        self._anchor.commit()

    def open_database(self) -> sqlite3.Connection:
        """Another connection to the database."""
        return sqlite3.connect(self._place, uri=True)

    def close_database(self) -> None:
        """Compare the database with what was seen to be applied, and drop it."""
        for partition_id, entries in enumerate(self.database):
            rows = self._anchor.execute(
                "SELECT transaction_id, req_id, header FROM applied WHERE partition_id = ? ORDER BY transaction_id",
                (partition_id,),
            )
            if [*rows] != [(number, *entry) for number, entry in enumerate(entries)]:
                self.world.fail(f"the database of {self.name} does not hold what was applied of {partition_id}")
        self._anchor.close()

    def callbacks(self) -> WaltzClientCallbacks:
        """See the base class."""
        return InDatabase(self)


class InDatabase(DatabaseCallbacks[sqlite3.Connection]):
    """Its threads are delays: what they do is done at once between two of them."""

    def __init__(self, host: DatabaseHost) -> None:
        self._host = host
        self._staged: list[tuple[int, int, Entry]] = []
        super().__init__(DbApiDatabase(host.open_database, sqlite3), random_source=host.draw, clock=lambda: 0.0)
        self.create_table()

    def apply(self, transaction: Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        """See the base class."""
        draw = self._host.draw.random()
        if draw < 0.001:
            raise ApplicationError("on purpose")
        if draw < 0.003:
            raise sqlite3.OperationalError("on purpose")
        self._host.checker.read(self._host.name, transaction.partition_id, transaction.header, data)
        entry = Entry(bytes(transaction.req_id), transaction.header)
        connection.execute(
            "INSERT INTO applied VALUES (?, ?, ?, ?)", (transaction.partition_id, transaction.transaction_id, *entry)
        )
        self._staged.append((transaction.partition_id, transaction.transaction_id, entry))

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """See the base class."""
        if not isinstance(error, ApplicationError | WaltzError):
            self._host.world.fail(f"applying {transaction_id} of partition {partition_id} failed: {error!r}")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        pause_s = self._host.world.options.database_pause_s
        await asyncio.sleep(pause_s * self._host.draw.random())
        self._staged.clear()
        result = work()
        for entered in self._staged:
            self._host.enter(*entered)
            self._host.together[entered[0]] = len(self._staged)
        await asyncio.sleep(pause_s * self._host.draw.random())
        return result
