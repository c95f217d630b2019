"""A worker: does the jobs that are in the log, one after the other in each partition, and notes what came of them.

    python -m examples.worker client.yml jobs.sqlite

Jobs are appended by whoever has some, to the partition of their customer:

    with waltz.blocking.connect("client.yml") as client:
        jobs = client.with_serializer(waltz.JsonSerializer())
        jobs.append(client.partition_for("alice"), {"customer": "alice", "text": "count my words"})

No queue, broker or result store is needed beside the log: what a job changes and how far the worker has come are
committed together, so a worker that is killed goes on behind the last job that counts. Start as many as you like on one
database: each job is done by one of them. SIGTERM and Ctrl-C end a worker behind the job at hand.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel, ValidationError

import waltz
from waltz.client.mock import MockDriver

logger = logging.getLogger("worker")


class Job(BaseModel):
    """What is in the log."""

    customer: str
    text: str


JOBS = waltz.ModelSerializer(Job)


def work(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
    """Do a job, in the database transaction that notes it as done."""
    try:
        job = JOBS.deserialize(data)
    except ValidationError as error:  # it will not be better next time: note it, and go on
        logger.warning("transaction %d of partition %d is no job", transaction.transaction_id, transaction.partition_id)
        outcome, customer = str(error), None
    else:
        outcome, customer = f"{len(job.text.split())} words", job.customer
    connection.execute(
        "INSERT INTO done (partition, id, customer, outcome) VALUES (?, ?, ?, ?)",
        (transaction.partition_id, transaction.transaction_id, customer, outcome),
    )


async def run(cluster: str | Path | MockDriver, path: Path) -> None:
    """Work until cancelled."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path)

    database = waltz.DbApiDatabase(connect, sqlite3)
    with closing(connect()) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS done (partition INTEGER, id INTEGER, customer TEXT, outcome TEXT)"
        )
        database.create_table(connection)
        connection.commit()
    async with waltz.connect(cluster) as client:
        logger.info("at work on %d partitions of %s", client.partition_count, client.cluster_name)
        await client.apply_to_database(database, work)


async def run_until_told(cluster: str | Path | MockDriver, path: Path) -> None:
    """Work until a signal comes."""
    loop = asyncio.get_running_loop()
    working = asyncio.ensure_future(run(cluster, path))
    end: Callable[[], object] = working.cancel
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    with contextlib.suppress(asyncio.CancelledError):
        await working
    logger.info("done")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", type=Path, help="configuration file of a client")
    parser.add_argument("database", type=Path, help="SQLite file, made if it is not there")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(run_until_told(options.cluster, options.database))


if __name__ == "__main__":
    main()
