"""The feed into a database, in one call: with SQLite, over the mock."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import waltz
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver

Apply = Callable[[waltz.Transaction, bytes, sqlite3.Connection], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE ledger (partition INTEGER, id INTEGER, data TEXT, PRIMARY KEY (partition, id))"
        )
        connection.commit()
    return path


@pytest.fixture
def database(path: Path) -> waltz.DbApiDatabase:
    made = waltz.DbApiDatabase(lambda: sqlite3.connect(path), sqlite3)
    with closing(made.connect()) as connection:
        made.create_table(connection)
        connection.commit()
    return made


def rows(path: Path, partition_id: int = 0) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT data FROM ledger WHERE partition = ? ORDER BY id", (partition_id,))
        return [data for (data,) in found]


def write(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
    values = (transaction.partition_id, transaction.transaction_id, data.decode())
    connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", values)


def fill(driver: MockDriver, count: int, partition_id: int = 0) -> None:
    log = driver.partitions[partition_id]
    for _ in range(count):
        log.add(b"%d" % (log.high_water_mark + 1))


async def test_all_partitions_up_to_their_ends_and_on_from_there(path: Path, database: waltz.DbApiDatabase) -> None:
    driver = MockDriver(3)
    fill(driver, 2500, 0)
    fill(driver, 3, 2)
    async with waltz.connect(driver) as client:
        await client.apply_to_database(database, write, follow=False)
        assert [len(rows(path, each)) for each in range(3)] == [2500, 0, 3]
        fill(driver, 10, 0)
        fill(driver, 1, 1)
        await client.apply_to_database(database, write, follow=False, partition_ids=[0])
        assert [len(rows(path, each)) for each in range(3)] == [2510, 0, 3]
    assert rows(path) == [str(number) for number in range(2510)]


async def test_it_follows_until_it_is_cancelled(path: Path, database: waltz.DbApiDatabase) -> None:
    driver = MockDriver()
    async with waltz.connect(driver) as client:
        following = asyncio.create_task(client.apply_to_database(database, write))
        fill(driver, 5)
        await until(lambda: len(rows(path)) == 5)
        await client.append(0, b"5")
        await until(lambda: len(rows(path)) == 6)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
    assert rows(path) == [str(number) for number in range(6)]


async def test_what_apply_raises_comes_out_behind_everything_before(path: Path, database: waltz.DbApiDatabase) -> None:
    poisoned = {700}

    def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        write(transaction, data, connection)
        if transaction.transaction_id in poisoned:
            raise KeyError(transaction.transaction_id)

    driver = MockDriver(2)
    fill(driver, 2000)
    async with waltz.connect(driver) as client:
        for _ in range(2):
            with pytest.raises(KeyError, match="700"):
                await client.apply_to_database(database, apply)
            assert len(rows(path)) == 700
        poisoned.clear()
        await client.apply_to_database(database, apply, follow=False)
    assert rows(path) == [str(number) for number in range(2000)]


async def test_several_at_a_time_apply_each_once(path: Path, database: waltz.DbApiDatabase) -> None:
    driver = MockDriver()
    fill(driver, 3000)
    async with waltz.connect(driver) as client, waltz.connect(MockDriver(driver.partitions)) as other:
        calls = [each.apply_to_database(database, write, follow=False, max_batch=100) for each in (client, other)]
        await asyncio.gather(*calls)
    assert rows(path) == [str(number) for number in range(3000)]


async def test_a_database_of_another_log_is_refused(path: Path, database: waltz.DbApiDatabase) -> None:
    driver = MockDriver()
    fill(driver, 5)
    async with waltz.connect(driver) as client:
        await client.apply_to_database(database, write, follow=False)
    shorter = MockDriver()
    fill(shorter, 2)
    options = waltz.ClientOptions(ahead_retry_initial_s=0.01)
    async with waltz.connect(shorter, options=options) as client:
        for follow in (True, False):
            with pytest.raises(waltz.ClientAheadError):
                await client.apply_to_database(database, write, follow=follow)


def test_for_threads(path: Path, database: waltz.DbApiDatabase) -> None:
    driver = MockDriver()
    fill(driver, 50)
    with waltz.blocking.connect(driver) as client:
        client.apply_to_database(database, write, follow=False)
    assert rows(path) == [str(number) for number in range(50)]
