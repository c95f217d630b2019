"""An instance of an application that shares partitions, in a process of its own.

``python -m tests.integration.sharing_worker CONFIG.yml DATABASE`` adds a row for each transaction, in the database
transaction that moves the position. It leaves in order on SIGTERM.
"""

import asyncio
import contextlib
import signal
import sqlite3
import sys
from contextlib import closing

import waltz

TABLE = "done"


async def run(config: str, path: str) -> None:
    """The life of the process."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with waltz.connect(config) as client:
        positions = waltz.SqlitePositions(path, "workers")
        async with client.consume(positions, share="workers") as consumer:
            print("consuming", flush=True)
            with closing(sqlite3.connect(path, timeout=60)) as database:
                while not stopping.is_set():
                    batch = await consumer.next_batch(0.05)
                    if not batch:
                        continue
                    rows = [(record.partition_id, record.transaction_id) for record in batch]
                    with contextlib.suppress(waltz.PositionConflictError), database:
                        database.execute("BEGIN IMMEDIATE")
                        database.executemany(f"INSERT INTO {TABLE} VALUES (?, ?)", rows)
                        positions.advance(database, batch)
                    await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2]))
