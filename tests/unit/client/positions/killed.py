"""A consumer in a process of its own that is killed, over a log in memory that is the same in each process."""

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy

import waltz
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.client.positions.interface import PositionStore
from waltz.client.positions.sql import SqlAlchemyPositions, SqlitePositions

PARTITIONS = 3
TRANSACTIONS = 150

DONE = "done"
"""The file, or table, of what was done: a line or row for each transaction, as often as its effects are there."""


def log() -> MockDriver:
    """The log, as each process finds it."""
    nodes = MockNodes()
    nodes.key = "the same in each process"
    partitions = [MockServerPartition(partition_id, nodes) for partition_id in range(PARTITIONS)]
    for partition in partitions:
        for number in range(TRANSACTIONS):
            partition.add(b"%d" % number)
    return MockDriver(partitions)


def consume(kind: str, directory: Path, lifetime_s: float) -> None:
    """Consume to the end, or until the process ends without having been asked; 0: nothing ends it."""
    if lifetime_s:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # nobody gets to tidy up, as with SIGKILL
        signal.setitimer(signal.ITIMER_REAL, lifetime_s)
    asyncio.run(_consume(kind, directory, for_ever=lifetime_s > 0))


async def _consume(kind: str, directory: Path, *, for_ever: bool) -> None:
    path = directory / "positions"
    store: PositionStore
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.NullPool)
    match kind:
        case "file":
            store = waltz.FilePositions(path)
        case "sqlite":
            store = SqlitePositions(path)
        case _:
            store = SqlAlchemyPositions(engine)
    async with waltz.connect(log()) as client, client.consume(store) as consumer:
        while for_ever or any(position < TRANSACTIONS - 1 for position in consumer.handed_out.values()):
            if kind == "file":
                record = await anext(consumer)
                _write_line(directory / DONE, record)
                await consumer.commit()
                continue
            batch = [await anext(consumer)]
            rows = [(record.partition_id, record.transaction_id) for record in batch]
            if isinstance(store, SqlitePositions):
                with closing(sqlite3.connect(path)) as connection, connection:
                    connection.executemany(f"INSERT INTO {DONE} VALUES (?, ?)", rows)
                    store.advance(connection, batch)
            else:
                assert isinstance(store, SqlAlchemyPositions)
                with engine.begin() as transaction:
                    values = [{"partition": partition, "id": number} for partition, number in rows]
                    transaction.execute(sqlalchemy.text(f"INSERT INTO {DONE} VALUES (:partition, :id)"), values)
                    store.advance(transaction, batch)


def _write_line(path: Path, record: waltz.Record) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, b"%d %d\n" % (record.partition_id, record.transaction_id))
    finally:
        os.close(descriptor)
