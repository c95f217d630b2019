"""How fast an application that is behind catches up with the log, into SQLite on a disk.

    python -m benchmarks.database [--transactions 100000] [--directory DIR]

The log is the mock driver's, in this process; its transactions are orders in JSON of some 100 bytes, and a row of five
columns is made of each. What is printed is transactions per second, and the CPU time of this process for each: one
database transaction for each (as at the end of the log), with callbacks, and with ``apply_to_database``.
"""

import argparse
import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import uvloop

import waltz
from waltz.client.mock import MockDriver, MockServerPartition

ONE_BY_ONE = 500
"""As many are enough where each is committed by itself."""


def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
    """A row for each order."""
    order = json.loads(data)
    values = (transaction.partition_id, transaction.transaction_id, order["customer"], order["amount"], order["note"])
    connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", values)


class Orders(waltz.DatabaseCallbacks[sqlite3.Connection]):
    """The same for clients with callbacks."""

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        """See above."""
        apply(transaction, data, connection)


def log_of(count: int) -> list[MockServerPartition]:
    """A log of orders."""
    partitions = MockServerPartition.create(1)
    for number in range(count):
        order = {"customer": f"customer-{number % 1000}", "amount": number, "note": "n" * 50}
        partitions[0].add(json.dumps(order).encode())
    return partitions


async def called_back(orders: Orders, driver: MockDriver) -> None:
    """Until everything is applied."""
    async with await waltz.open_client(orders, driver) as client:
        while client.client_high_water_mark(0) < driver.partitions[0].high_water_mark:
            await asyncio.sleep(0.001)
    orders.close()


async def one_by_one(database: waltz.DbApiDatabase, driver: MockDriver) -> None:
    """Without batches."""
    await called_back(Orders(database, max_batch=1), driver)


async def with_callbacks(database: waltz.DbApiDatabase, driver: MockDriver) -> None:
    """As it is by default."""
    await called_back(Orders(database), driver)


async def in_one_call(database: waltz.DbApiDatabase, driver: MockDriver) -> None:
    """Over bulk reads."""
    async with waltz.connect(driver) as client:
        await client.apply_to_database(database, apply, follow=False)


async def measure(
    name: str, count: int, directory: str | None, work: Callable[[waltz.DbApiDatabase, MockDriver], Awaitable[None]]
) -> None:
    """Print what ``work`` cost, on a database of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = Path(folder) / "orders.sqlite"
        database = waltz.DbApiDatabase(lambda: sqlite3.connect(path), sqlite3)
        with closing(sqlite3.connect(path)) as connection:
            columns = "partition INTEGER, id INTEGER, customer TEXT, amount INTEGER, note TEXT"
            connection.execute(f"CREATE TABLE orders ({columns}, PRIMARY KEY (partition, id))")
            database.create_table(connection)
            connection.commit()
            driver = MockDriver(log_of(count))
            cpu, wall = time.process_time(), time.perf_counter()
            await work(database, driver)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            assert connection.execute("SELECT COUNT(*) FROM orders").fetchone() == (count,)
    print(f"{name:<18} {count / wall:10,.0f} transactions/s, {cpu / count * 1e6:8.1f} us of CPU each")


async def run(count: int, directory: str | None) -> None:
    """All measurements."""
    await measure("one by one", min(count, ONE_BY_ONE), directory, one_by_one)
    await measure("callbacks", count, directory, with_callbacks)
    await measure("apply_to_database", count, directory, in_one_call)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--directory", help="where the databases are made; by default that for temporary files")
    options = parser.parse_args()
    uvloop.run(run(options.transactions, options.directory))


if __name__ == "__main__":
    main()
