"""Exactly once into a database: SQLite always, PostgreSQL and SQLAlchemy where they are installed."""

import asyncio
import importlib.util
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import waltz
from tests.unit.client.fake_server import until
from tests.unit.client.postgres import PostgresServer, find_postgres
from tests.unit.quick_files import quick_directory
from waltz.client.databases.batches import StoredMarkError
from waltz.client.databases.callbacks import DatabaseCallbacks
from waltz.client.databases.kinds import DbApiDatabase, ForbiddenDatabaseCallError, SqlAlchemyDatabase
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.options import ClientOptions

pytestmark = pytest.mark.timeout(120)

Connect = Callable[[], Any]


class Ledger(DatabaseCallbacks[Any]):
    """Writes down what it applies."""

    def __init__(self, database: Any, name: str = "one") -> None:
        super().__init__(database)
        self.name = name
        self.uncaught: list[BaseException] = []
        self.executions = 0
        self.before: Callable[[Any], None] = lambda connection: None
        self.attempts: list[int] = []
        self.give_up_after: int | None = None

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        self.executions += 1
        self.before(connection)
        cursor = connection.cursor()
        values = f"{transaction.transaction_id}, '{data.decode()}', '{self.name}'"
        cursor.execute(f"INSERT INTO ledger (id, data, name) VALUES ({values})")
        cursor.close()

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.uncaught.append(error)

    def on_error_getting_high_water_mark(self, attempt: int, error: Exception) -> None:
        self.attempts.append(attempt)
        if attempt == self.give_up_after:
            raise RuntimeError("given up")


def set_up(connect: Connect) -> None:
    with closing(connect()) as connection:
        connection.cursor().execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY, data TEXT, name TEXT)")
        connection.commit()


def rows(connect: Connect) -> list[tuple[int, str, str]]:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT id, data, name FROM ledger ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


@pytest.fixture
def path() -> Iterator[Path]:
    with quick_directory() as directory:
        yield Path(directory) / "ledger.sqlite"


@pytest.fixture
def connect_sqlite(path: Path) -> Connect:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0.05)

    set_up(connect)
    return connect


@pytest.fixture
def database(connect_sqlite: Connect) -> DbApiDatabase:
    return DbApiDatabase(connect_sqlite, sqlite3)


@pytest_asyncio.fixture
async def ledger(database: DbApiDatabase) -> AsyncIterator[Ledger]:
    callbacks = Ledger(database)
    callbacks.create_table()
    callbacks.create_table()
    yield callbacks
    callbacks.close()


async def test_what_is_committed_is_applied_once(ledger: Ledger, connect_sqlite: Connect) -> None:
    driver = MockDriver()
    for number in range(20):
        driver.partitions[0].add(b"%d" % number)
    async with await driver.open_client(ledger):
        await until(lambda: len(rows(connect_sqlite)) == 20)
    assert [(number, data) for number, data, _ in rows(connect_sqlite)] == [(n, str(n)) for n in range(20)]
    driver.partitions[0].add(b"20")
    again = Ledger(DbApiDatabase(connect_sqlite, sqlite3), "two")
    async with await driver.open_client(again):
        await until(lambda: len(rows(connect_sqlite)) == 21)
    again.close()
    assert again.executions == 1


async def test_errors_of_the_database_are_tried_again(ledger: Ledger, connect_sqlite: Connect) -> None:
    """Two SQL errors, then success: three executions, and nobody else hears of it."""
    failures = 2

    def fail(connection: Any) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise sqlite3.OperationalError("disk I/O error")

    ledger.before = fail
    driver = MockDriver()
    driver.partitions[0].add(b"a")
    async with await driver.open_client(ledger) as client:
        await until(lambda: client.client_high_water_mark(0) == 0)
    assert (ledger.executions, ledger.uncaught) == (3, [])
    assert rows(connect_sqlite) == [(0, "a", "one")]


async def test_other_errors_go_to_the_application(ledger: Ledger, connect_sqlite: Connect) -> None:
    """Two SQL errors, then another one, then success: four executions, one uncaught exception."""
    failures: list[Exception] = [sqlite3.Error("1"), sqlite3.Error("2"), KeyError("3")]

    def fail(connection: Any) -> None:
        connection.execute("INSERT INTO ledger VALUES (77, 'half', 'state')")
        if failures:
            raise failures.pop(0)
        connection.execute("DELETE FROM ledger WHERE id = 77")

    ledger.before = fail
    driver = MockDriver()
    driver.partitions[0].add(b"a")
    async with await driver.open_client(ledger) as client:
        await until(lambda: client.client_high_water_mark(0) == 0)
    assert ledger.executions == 4
    assert [type(error) for error in ledger.uncaught] == [KeyError]
    assert rows(connect_sqlite) == [(0, "a", "one")]


async def test_two_clients_apply_each_transaction_once_together(
    database: DbApiDatabase, connect_sqlite: Connect
) -> None:
    partitions = MockServerPartition.create(1)
    ledgers = [Ledger(database, name) for name in ("one", "two")]
    ledgers[0].create_table()
    clients = [await MockDriver(partitions).open_client(each) for each in ledgers]
    for number in range(300):
        partitions[0].add(b"%d" % number)
        if number % 20 == 0:
            await asyncio.sleep(0)
    await until(lambda: all(client.client_high_water_mark(0) == 299 for client in clients))
    for client, each in zip(clients, ledgers, strict=True):
        await client.close()
        each.close()
    assert [(number, data) for number, data, _ in rows(connect_sqlite)] == [(n, str(n)) for n in range(300)]
    assert sum(each.executions for each in ledgers) == 300
    assert not ledgers[0].uncaught
    assert not ledgers[1].uncaught


async def test_a_database_that_is_down_is_waited_for(connect_sqlite: Connect) -> None:
    down = 3

    def connect() -> sqlite3.Connection:
        nonlocal down
        if down:
            down -= 1
            raise sqlite3.OperationalError("unable to open database file")
        connection: sqlite3.Connection = connect_sqlite()
        return connection

    with closing(connect_sqlite()) as connection:
        connection.execute(
            "CREATE TABLE waltz_high_water_marks (partition_id INTEGER PRIMARY KEY, high_water_mark BIGINT)"
        )
    ledger = Ledger(DbApiDatabase(connect, sqlite3))
    assert await ledger.client_high_water_mark(5) == -1
    assert ledger.attempts == [1, 2, 3]
    ledger.close()


async def test_the_error_hook_may_give_up(connect_sqlite: Connect) -> None:
    ledger = Ledger(DbApiDatabase(connect_sqlite, sqlite3, table="not_there"))
    ledger.give_up_after = 2
    with pytest.raises(RuntimeError, match="given up"):
        await MockDriver().open_client(ledger)
    assert ledger.attempts == [1, 2]
    ledger.close()


async def test_the_connection_is_guarded(ledger: Ledger) -> None:
    forbidden: list[str] = []
    changes = 0

    def try_all(connection: Any) -> None:
        nonlocal changes
        for name in ("commit", "rollback", "close", "executescript", "isolation_level", "set_autocommit"):
            with pytest.raises(ForbiddenDatabaseCallError) as raised:
                getattr(connection, name)
            forbidden.append(raised.value.method_name)
        with pytest.raises(ForbiddenDatabaseCallError), connection:
            pass
        with pytest.raises(ForbiddenDatabaseCallError):
            connection.isolation_level = None
        connection.row_factory = sqlite3.Row  # everything else passes through
        connection.execute("SAVEPOINT here")
        connection.execute("ROLLBACK TO here")
        changes = connection.total_changes

    ledger.before = try_all
    driver = MockDriver()
    driver.partitions[0].add(b"a")
    async with await driver.open_client(ledger) as client:
        await until(lambda: client.client_high_water_mark(0) == 0)
    assert forbidden == ["commit", "rollback", "close", "executescript", "isolation_level", "set_autocommit"]
    assert changes >= 1
    assert not ledger.uncaught


async def test_an_async_apply_is_refused(database: DbApiDatabase) -> None:
    class Wrong(Ledger):
        async def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:  # type: ignore[override]
            raise AssertionError

    ledger = Wrong(database)
    ledger.create_table()
    driver = MockDriver()
    driver.partitions[0].add(b"a")
    async with await driver.open_client(ledger):
        await until(lambda: ledger.uncaught)
    assert "apply must be a plain function" in str(ledger.uncaught[0])
    ledger.close()


def test_table_names_are_checked(connect_sqlite: Connect) -> None:
    for table in ("x; DROP TABLE y", "", "a b", "1a", "a.b.c"):
        with pytest.raises(waltz.ConfigError, match="not the name of a table"):
            DbApiDatabase(connect_sqlite, sqlite3, table=table)
    DbApiDatabase(connect_sqlite, sqlite3, table="main.marks")


@pytest.mark.parametrize("how", ["executescript", "connection"])
async def test_an_apply_that_commits_in_the_middle_leaves_nothing_out(
    database: DbApiDatabase, connect_sqlite: Connect, how: str
) -> None:
    """The part that was committed is not taken for the whole."""

    def apply(transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        with closing(connection.cursor()) as cursor:
            if how == "executescript":
                cursor.executescript("CREATE TABLE IF NOT EXISTS other (id INTEGER)")
            else:
                cursor.connection.commit()
            raise sqlite3.OperationalError("away for a moment")

    with closing(connect_sqlite()) as connection:
        database.create_table(connection)
        connection.commit()
    driver = MockDriver(1)
    driver.partitions[0].add(b"a")
    async with waltz.connect(driver) as client:
        for _ in range(2):
            with pytest.raises(StoredMarkError, match="transaction 0 was to be applied.* was committed before its end"):
                await client.apply_to_database(database, apply, follow=False)


async def test_an_apply_that_commits_in_the_middle_is_told_of(database: DbApiDatabase, connect_sqlite: Connect) -> None:
    """Although nothing fails."""

    def apply(transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("INSERT INTO ledger VALUES (1, 'a', 'b')")
            cursor.connection.commit()
            cursor.execute("INSERT INTO ledger VALUES (2, 'a', 'b')")

    with closing(connect_sqlite()) as connection:
        database.create_table(connection)
        connection.commit()
    driver = MockDriver(1)
    driver.partitions[0].add(b"a")
    async with waltz.connect(driver) as client:
        with pytest.raises(RuntimeError, match="is over before its end: apply must neither commit nor roll back"):
            await client.apply_to_database(database, apply, follow=False)
        with pytest.raises(StoredMarkError, match="was committed before its end"):
            await client.apply_to_database(database, apply, follow=False)
    assert [number for number, _, _ in rows(connect_sqlite)] == [1], "what came behind the commit is rolled back"


async def test_an_apply_that_rolls_back_is_told_of(database: DbApiDatabase, connect_sqlite: Connect) -> None:
    """What it changed before is gone, and what it changes afterwards is not committed."""

    def apply(transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.connection.rollback()
            cursor.execute("INSERT INTO ledger VALUES (1, 'a', 'b')")

    with closing(connect_sqlite()) as connection:
        database.create_table(connection)
        connection.commit()
    driver = MockDriver(1)
    driver.partitions[0].add(b"a")
    async with waltz.connect(driver) as client:
        with pytest.raises(RuntimeError, match="is over before its end: apply must neither commit nor roll back"):
            await client.apply_to_database(database, apply, follow=False)
    assert rows(connect_sqlite) == []


async def test_connections_that_commit_by_themselves_are_refused(path: Path, connect_sqlite: Connect) -> None:
    database = DbApiDatabase(lambda: sqlite3.connect(path, isolation_level=None), sqlite3)
    with closing(connect_sqlite()) as connection:
        database.create_table(connection)
        connection.commit()
    async with waltz.connect(MockDriver(1)) as client:
        with pytest.raises(waltz.ConfigError, match="give connections that are not in autocommit mode"):
            await client.apply_to_database(database, lambda *_: None, follow=False)
    with closing(connect_sqlite()) as connection:
        assert connection.execute("SELECT * FROM waltz_high_water_marks").fetchall() == []


async def test_marks_of_an_earlier_version_are_gone_on_with(path: Path, connect_sqlite: Connect) -> None:
    with closing(connect_sqlite()) as connection:
        connection.execute(
            "CREATE TABLE waltz_high_water_marks "
            "(PARTITION_ID INTEGER NOT NULL PRIMARY KEY, HIGH_WATER_MARK BIGINT NOT NULL)"
        )
        connection.execute("INSERT INTO waltz_high_water_marks VALUES (0, 1)")
        connection.commit()
    database = DbApiDatabase(connect_sqlite, sqlite3)
    driver = MockDriver(1)

    def apply(transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        connection.execute("INSERT INTO ledger VALUES (?, '', '')", (transaction.transaction_id,))

    async with waltz.connect(driver) as client:
        for _ in range(2):
            await client.append_many(0, [b"x"] * 5)
            await client.apply_to_database(database, apply, follow=False)
            with closing(connect_sqlite()) as connection:
                database.create_table(connection)
                connection.commit()
    assert [number for number, _, _ in rows(connect_sqlite)] == list(range(2, 10))
    with closing(connect_sqlite()) as connection:
        mark = database.marks.read(connection, {"PARTITION_ID": 0})
    assert mark is not None
    assert mark[:2] == (9, driver.partitions[0].transactions[9].req_id)


WORKER = """
    import asyncio, sqlite3, sys
    import waltz
    from waltz.client.mock import MockDriver

    path, name = sys.argv[1:]

    class Ledger(waltz.DatabaseCallbacks):
        def apply(self, transaction, data, connection):
            connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (transaction.transaction_id, data.decode(), name))

    async def main():
        driver = MockDriver()
        for number in range(100):
            driver.partitions[0].add(b"%d" % number)
        callbacks = Ledger(waltz.DbApiDatabase(lambda: sqlite3.connect(path), sqlite3))
        async with await driver.open_client(callbacks) as client:
            while client.client_high_water_mark(0) < 99:
                await asyncio.sleep(0.01)
        callbacks.close()

    asyncio.run(main())
"""


def test_several_processes(path: Path, database: DbApiDatabase, connect_sqlite: Connect) -> None:
    """They have the same log (here each makes it for itself) and the same database."""
    ledger = Ledger(database)
    ledger.create_table()
    ledger.close()
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(path)]
    workers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in ("one", "two", "three")]
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors.decode()
    assert [(number, data) for number, data, _ in rows(connect_sqlite)] == [(n, str(n)) for n in range(100)]


class Together(Ledger):
    """Notes which transactions were committed together, and waits before the first ones, while others come."""

    def __init__(self, database: Any, **options: Any) -> None:
        super().__init__(database)
        self.together: list[list[int]] = []
        self.poisoned: set[int] = set()
        self.told: list[int] = []
        self._connection: Any = None

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        if connection is not self._connection:
            self._connection = connection
            self.together.append([])
        self.together[-1].append(transaction.transaction_id)
        assert data == b"%d" % transaction.transaction_id
        super().apply(transaction, data, connection)
        if transaction.transaction_id in self.poisoned:
            raise KeyError(transaction.transaction_id)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.told.append(transaction_id)
        self.poisoned.discard(transaction_id)


@pytest.fixture
def together(database: DbApiDatabase) -> Iterator[Together]:
    callbacks = Together(database)
    callbacks.create_table()
    yield callbacks
    callbacks.close()


def prefilled(count: int, **arguments: Any) -> MockDriver:
    driver = MockDriver(1, **arguments)
    for number in range(count):
        driver.partitions[0].add(b"%d" % number)
    return driver


@pytest.mark.parametrize(("versions", "most"), [((5,), 4), ((4,), 12)])
async def test_what_waits_is_applied_together(
    together: Together, connect_sqlite: Connect, versions: tuple[int, ...], most: int
) -> None:
    """Also from servers without bulk reads; at the end of the log it is one by one."""
    driver = prefilled(1200, versions=versions)
    async with await driver.open_client(together) as client:
        await until(lambda: client.client_high_water_mark(0) == 1199)
        batches = len(together.together)
        for number in range(1200, 1203):
            driver.partitions[0].add(b"%d" % number)
            await until(lambda: client.client_high_water_mark(0) == driver.partitions[0].high_water_mark)
    assert batches <= most
    assert together.together[batches:] == [[1200], [1201], [1202]]
    assert [number for number, _, _ in rows(connect_sqlite)] == list(range(1203))
    assert together.executions == 1203
    assert not together.told


async def test_a_transaction_that_fails_among_others_is_the_only_one_told_of(
    together: Together, connect_sqlite: Connect
) -> None:
    together.poisoned = {0, 57, 58, 199}
    async with await prefilled(200).open_client(together) as client:
        await until(lambda: client.client_high_water_mark(0) == 199)
    assert together.told == [0, 57, 58, 199]
    assert [number for number, _, _ in rows(connect_sqlite)] == list(range(200))


async def test_own_transactions_hear_of_their_commit_before_they_are_applied(
    together: Together, connect_sqlite: Connect
) -> None:
    """So a batch ends before one of them."""
    heard: list[tuple[str, int]] = []

    class Context(waltz.TransactionContext):
        def __init__(self, number: int) -> None:
            self.number = number

        def partition_id(self, partition_count: int) -> int:
            return 0

        def execute(self, builder: waltz.TransactionBuilder) -> bool:
            builder.set_data(b"%d" % self.number)
            return True

        def on_completion(self, committed: bool) -> None:
            heard.append(("completed", self.number))
            assert self.number not in [number for number, _, _ in rows(connect_sqlite)]

        def on_application(self) -> None:
            heard.append(("applied", self.number))
            assert self.number in [number for number, _, _ in rows(connect_sqlite)]

    driver = MockDriver(1)
    log = driver.partitions[0]
    own = range(0, 40, 10)
    async with await driver.open_client(together) as client:
        driver.suspend_feed()
        for number in own:
            await client.submit(Context(number))
            await until(lambda: log.high_water_mark == number)  # noqa: B023 - it is awaited here
            for more in range(number + 1, number + 10):
                log.add(b"%d" % more)
        driver.resume_feed()
        await until(lambda: client.client_high_water_mark(0) == 39)
    assert heard == [(what, number) for number in own for what in ("completed", "applied")]
    assert [number for number, _, _ in rows(connect_sqlite)] == list(range(40))
    assert any(len(each) > 1 for each in together.together)
    assert not together.told


async def test_where_apply_transaction_is_overridden_it_is_called_before_each_is_applied(
    database: DbApiDatabase, connect_sqlite: Connect
) -> None:
    class Watching(Together):
        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            self.current = transaction.transaction_id
            await super().apply_transaction(transaction)

        def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
            assert transaction.transaction_id == self.current
            super().apply(transaction, data, connection)

    watching = Watching(database)
    watching.create_table()
    async with await prefilled(30).open_client(watching) as client:
        await until(lambda: client.client_high_water_mark(0) == 29)
    watching.close()
    assert watching.together == [[number] for number in range(30)]


def test_processes_that_are_killed_at_each_step() -> None:
    """Many more with ``python -m tests.unit.client.database_kills --kills 200``."""
    command = [sys.executable, "-m", "tests.unit.client.database_kills", "--kills", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("sqlalchemy") is None, reason="SQLAlchemy is not installed")
async def test_sqlalchemy(path: Path, connect_sqlite: Connect) -> None:
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    class SqlAlchemyLedger(Ledger):
        def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
            with pytest.raises(ForbiddenDatabaseCallError):
                connection.commit()
            with connection.begin_nested():
                values = {"id": transaction.transaction_id, "data": data.decode()}
                connection.execute(sqlalchemy.text("INSERT INTO ledger VALUES (:id, :data, 'one')"), values)

    partitions = MockServerPartition.create(1)
    ledgers = [SqlAlchemyLedger(SqlAlchemyDatabase(engine)) for _ in range(2)]
    ledgers[0].create_table()
    clients = [await MockDriver(partitions).open_client(each) for each in ledgers]
    for number in range(100):
        partitions[0].add(b"%d" % number)
    await until(lambda: all(client.client_high_water_mark(0) == 99 for client in clients))
    for client, each in zip(clients, ledgers, strict=True):
        await client.close()
        each.close()
    engine.dispose()
    assert [(number, data) for number, data, _ in rows(connect_sqlite)] == [(n, str(n)) for n in range(100)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    binaries = find_postgres()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries (Debian's package postgresql)")
    with PostgresServer(binaries) as server:
        yield server


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE"])
async def test_postgres(postgres: PostgresServer, level: str) -> None:
    psycopg: Any = importlib.import_module("psycopg")

    def connect() -> Any:
        return psycopg.connect(postgres.connect_string)

    with closing(connect()) as connection:
        connection.execute("DROP TABLE IF EXISTS ledger")
        connection.execute("DROP TABLE IF EXISTS waltz_high_water_marks")
        connection.commit()
    set_up(connect)
    database = DbApiDatabase(connect, psycopg, begin=[f"SET TRANSACTION ISOLATION LEVEL {level}"])
    partitions = MockServerPartition.create(1)
    ledgers = [Ledger(database, name) for name in ("one", "two", "three")]
    ledgers[0].create_table()
    clients = [await MockDriver(partitions).open_client(each) for each in ledgers]
    for number in range(300):
        partitions[0].add(b"%d" % number)
    await until(lambda: all(client.client_high_water_mark(0) == 299 for client in clients))
    for client, each in zip(clients, ledgers, strict=True):
        await client.close()
        each.close()
        assert not each.uncaught
    assert [(number, data) for number, data, _ in rows(connect)] == [(n, str(n)) for n in range(300)]


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE waltz_high_water_marks SET HIGH_WATER_MARK = -1", "in the database is -1, although .* at least 2"),
        ("DELETE FROM waltz_high_water_marks", "is gone from the database, although"),
    ],
)
async def test_a_stored_mark_that_went_back_is_told_and_not_asked_for_without_end(
    ledger: Ledger, connect_sqlite: Connect, statement: str, text: str
) -> None:
    """The database is restored from a backup, or the row deleted, while a client is running."""
    driver = MockDriver()
    for number in range(3):
        driver.partitions[0].add(b"%d" % number)
    options = ClientOptions(apply_retry_initial_s=0.01, apply_retry_maximum_s=0.01)
    async with await driver.open_client(ledger, auto_mount=False, options=options) as client:
        await client.set_partitions({0})
        await until(lambda: client.client_high_water_mark(0) == 2)
        with closing(connect_sqlite()) as connection:
            connection.execute(statement)
            connection.execute("DELETE FROM ledger")
            connection.commit()
        driver.partitions[0].add(b"3")
        await until(lambda: len(ledger.uncaught) >= 3)
        assert client.client_high_water_mark(0) == 2
        for error in ledger.uncaught:
            assert isinstance(error, StoredMarkError)
            assert re.search("transaction 3 of partition 0 cannot be applied: .*" + text, str(error))
        executions = ledger.executions
        assert executions == 3, "the application is not bothered"
        await client.set_partitions(set())
        await client.set_partitions({0})
        await until(lambda: client.client_high_water_mark(0) == 3)
    assert [number for number, _, _ in rows(connect_sqlite)] == [0, 1, 2, 3]


def test_what_a_closing_client_leaves_unapplied_is_no_error(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    DatabaseCallbacks.uncaught_exception(ledger, 1, 5, waltz.ClientClosedError())
    DatabaseCallbacks.uncaught_exception(ledger, 1, 6, ValueError("a defect"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "transaction 5 of partition 1 was not applied, because the client was closed meanwhile"),
        ("ERROR", "applying transaction 6 of partition 1 failed; it will be tried again"),
    ]
