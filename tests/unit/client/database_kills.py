"""Processes that apply the log to a database and are killed: at each step that they make in it, and at any time.

    python -m tests.unit.client.database_kills [--kills 200] [--seed 1]

The log is the same for all of them. After each kill the database has to hold exactly the transactions up to its
high-water mark; in the end all of them. A process applies with callbacks or with ``apply_to_database``, alone or beside
another one; of those that are killed at a step, the first are killed at the steps 1, 2, 3 ... of a process.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import waltz
from waltz.client.mock import MockDriver

BATCH = 10
AT_LEAST = 40
"""Transactions that are left for the end, when nobody is killed."""


class Dying:
    """Counts the steps of this process, and kills it at one."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def connection_type(dying: Dying) -> type[sqlite3.Connection]:
    """Connections that make a step before and after each call."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *arguments: Any) -> Any:
            dying.step()
            try:
                return super().execute(*arguments)
            finally:
                dying.step()

    class Connection(sqlite3.Connection):
        def cursor(self, *arguments: Any) -> Any:
            return super().cursor(Cursor)

        def commit(self) -> None:
            dying.step()
            super().commit()
            dying.step()

        def close(self) -> None:
            dying.step()
            super().close()
            dying.step()

    return Connection


def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
    """A row, and a change of what is there: doing it twice, or not at all, is seen."""
    cursor = connection.cursor()
    cursor.execute("INSERT INTO ledger VALUES (?, ?)", (transaction.transaction_id, int(data)))
    cursor.execute("UPDATE total SET amount = amount + ?", (int(data),))


class Ledger(waltz.DatabaseCallbacks[sqlite3.Connection]):
    """The same for clients with callbacks."""

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        """See above."""
        apply(transaction, data, connection)


async def consume(path: Path, count: int, dying: Dying, *, callbacks: bool) -> None:
    """Apply the whole log, of ``count`` transactions."""
    driver = MockDriver()
    for number in range(count):
        driver.partitions[0].add(b"%d" % number)
    kind = connection_type(dying)
    database = waltz.DbApiDatabase(lambda: sqlite3.connect(path, factory=kind), sqlite3)
    if callbacks:
        ledger = Ledger(database, max_batch=BATCH)
        async with await waltz.open_client(ledger, driver) as client:
            while client.client_high_water_mark(0) < count - 1:
                await asyncio.sleep(0.001)
        ledger.close()
    else:
        async with waltz.connect(driver) as plain:
            await plain.apply_to_database(database, apply, follow=False, max_batch=BATCH)


def fork(path: Path, count: int, die_at: int, *, callbacks: bool) -> int:
    """Start a consumer; returns its process id."""
    process_id = os.fork()
    if process_id:
        return process_id
    status = 1
    try:
        logging.disable(logging.CRITICAL)
        asyncio.run(consume(path, count, Dying(die_at), callbacks=callbacks))
        status = 0
    finally:
        os._exit(status)


def wait(process_id: int) -> bool:
    """Whether it was killed; raises if it failed otherwise."""
    _, status = os.waitpid(process_id, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "a consumer failed"
    return False


def check(path: Path) -> int:
    """The high-water mark, to which everything else has to fit."""
    with closing(sqlite3.connect(path)) as connection:
        marks = connection.execute("SELECT HIGH_WATER_MARK FROM waltz_high_water_marks").fetchall()
        ids = connection.execute("SELECT id, amount FROM ledger ORDER BY rowid").fetchall()
        ((total,),) = connection.execute("SELECT amount FROM total").fetchall()
    mark: int = marks[0][0] if marks else -1
    assert ids == [(number, number) for number in range(mark + 1)], f"behind mark {mark}: {ids}"
    assert total == sum(range(mark + 1))
    return mark


def run(kills: int, seed: int) -> None:
    """Raises ``AssertionError`` when anything is lost or doubled."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY, amount INTEGER)")
            connection.execute("CREATE TABLE total (amount INTEGER)")
            connection.execute("INSERT INTO total VALUES (0)")
            waltz.DbApiDatabase(lambda: connection, sqlite3).create_table(connection)
            connection.commit()
        killed = steps = 0
        mark = -1
        count = AT_LEAST
        while killed < kills:
            count = mark + 1 + 40 * BATCH
            by_step = draw.random() < 0.7
            steps += by_step
            die_at = 0 if not by_step else steps if steps <= 80 else draw.randrange(1, 200)
            workers = [fork(path, count, die_at, callbacks=draw.random() < 0.5)]
            if draw.random() < 0.25:
                workers.append(fork(path, count, draw.randrange(1, 200), callbacks=draw.random() < 0.5))
            if not by_step:
                time.sleep(0.1 * draw.random())
                os.kill(workers[0], signal.SIGKILL)
            killed += sum(wait(worker) for worker in workers)
            mark = check(path)
        wait(fork(path, count, 0, callbacks=True))
        wait(fork(path, count + AT_LEAST, 0, callbacks=False))
        assert check(path) == count + AT_LEAST - 1
        print(f"{killed} kills, {count + AT_LEAST} transactions, each exactly once (seed {seed})")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(options.kills, options.seed)


if __name__ == "__main__":
    main()
