"""A cluster is put back from a backup, and goes on: what stands behind transactions notices that they are others."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import waltz
from tests.unit.client.fake_server import until
from waltz.asynchronous import Client
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.client.options import ClientOptions
from waltz.client.plain.feed import BatchFeed
from waltz.client.positions.interface import PositionStore

pytestmark = pytest.mark.timeout(60)

VERSIONS = [(0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)]
OPTIONS = ClientOptions(ahead_retry_initial_s=0.001, apply_retry_initial_s=0.001, apply_retry_maximum_s=0.001)

OTHER_LOG = "transaction 3 of partition 0 is another one than the last that was applied before: the log was put back"


class Cluster:
    """One partition, and the nodes in ZooKeeper; its key stays the same."""

    def __init__(self, versions: tuple[int, ...] = VERSIONS[-1]) -> None:
        self.nodes = MockNodes()
        self.partition = MockServerPartition(0, self.nodes)
        self.versions = versions

    def connect(self) -> Client:
        return waltz.connect(MockDriver([self.partition], versions=self.versions), options=OPTIONS)

    def put_back(self, count: int) -> None:
        """The backup has only the first transactions."""
        kept = self.partition.transactions[:count]
        self.partition = MockServerPartition(0, self.nodes)
        self.partition._records.extend(kept)

    async def append(self, *data: bytes) -> None:
        async with self.connect() as client:
            await client.append_many(0, list(data))


@pytest.fixture(params=VERSIONS, ids=["version 4", "version 5"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.param)


Make = Callable[[waltz.Client], PositionStore]


@pytest.fixture(params=["file", "sqlite", "sqlalchemy", "zookeeper"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/alchemy.sqlite", poolclass=sqlalchemy.NullPool)
    kinds: dict[str, Make] = {
        "file": lambda client: waltz.FilePositions(tmp_path / "positions"),
        "sqlite": lambda client: waltz.SqlitePositions(tmp_path / "positions.sqlite", "mails"),
        "sqlalchemy": lambda client: waltz.SqlAlchemyPositions(engine, "mails"),
        "zookeeper": lambda client: waltz.ZooKeeperPositions(client, "mails"),
    }
    return kinds[request.param]


# Positions


@pytest.mark.parametrize("committing", ["commit", "part", "by itself"])
async def test_a_consumer_does_not_go_on(cluster: Cluster, make: Make, committing: str) -> None:
    await cluster.append(b"0", b"1", b"2", b"3")
    async with cluster.connect() as client:
        every_s = 3600 if committing == "by itself" else None
        async with client.consume(make(client), commit_every_s=every_s) as consumer:
            ids = [(await anext(consumer)).transaction_id for _ in range(4)]
            assert ids == [0, 1, 2, 3]
            match committing:
                case "commit":
                    await consumer.commit()
                case "part":
                    await consumer.commit({0: 3})
                case _:
                    assert await consumer.poll(0.01) is None
        async with client.consume(make(client)) as consumer:
            assert consumer.committed == {0: 3}
            assert await consumer.poll(0.01) is None
            await cluster.append(b"4")
            assert (await anext(consumer)).data == b"4", "it is the same log"
    cluster.put_back(2)
    await cluster.append(b"x", b"y", b"z")
    async with cluster.connect() as client, client.consume(make(client)) as consumer:
        with pytest.raises(waltz.OtherLogError, match=OTHER_LOG) as raised:
            await anext(consumer)
        assert (raised.value.partition_id, raised.value.transaction_id) == (0, 3)


async def test_a_log_that_was_put_back_behind_a_position_is_the_same(cluster: Cluster, make: Make) -> None:
    await cluster.append(b"0", b"1", b"2")
    async with cluster.connect() as client, client.consume(make(client)) as consumer:
        for _ in range(2):
            await anext(consumer)
        await consumer.commit()
    cluster.put_back(2)
    await cluster.append(b"x", b"y")
    async with cluster.connect() as client, client.consume(make(client)) as consumer:
        assert [(await anext(consumer)).data for _ in range(2)] == [b"x", b"y"]


async def test_effects_in_the_database_of_the_positions(tmp_path: Path) -> None:
    cluster = Cluster()
    await cluster.append(b"0", b"1", b"2", b"3")
    path = tmp_path / "application.sqlite"
    async with cluster.connect() as client:
        positions = waltz.SqlitePositions(path)
        async with client.consume(positions) as consumer:
            with closing(sqlite3.connect(path)) as database, database:
                positions.advance(database, await consumer.next_batch())
    cluster.put_back(2)
    await cluster.append(b"x", b"y", b"z")
    async with cluster.connect() as client, client.consume(waltz.SqlitePositions(path)) as consumer:
        with pytest.raises(waltz.OtherLogError):
            await consumer.next_batch()


async def test_the_transaction_of_a_position_in_any_place_of_a_turn(make: Make) -> None:
    cluster = Cluster()
    await cluster.append(*(b"%d" % number for number in range(200)))
    async with cluster.connect() as client:
        for position in (5, 63, 64, 100, 190):
            async with client.consume(make(client)) as consumer:
                while consumer.handed_out[0] < position:
                    await anext(consumer)
                await consumer.commit({0: position})
            positions = make(client)
            assert await positions.load(await client.cluster_key(), [0]) == {0: position}
            assert positions.request_id(0) == cluster.partition.transactions[position].req_id
            await positions.close()


async def test_what_is_handed_over_says_which_transaction_it_is() -> None:
    cluster = Cluster()
    await cluster.append(*(b"%d" % number for number in range(200)))
    async with cluster.connect() as client:
        async with client.consume(waltz.ZooKeeperPositions(client, "m"), share="m", commit_every_s=3600) as consumer:
            async for record in consumer:
                if record.transaction_id == 100:
                    break
        positions = waltz.ZooKeeperPositions(client, "m")
        assert await positions.load("", [0]) == {0: 99}
        assert positions.request_id(0) == cluster.partition.transactions[99].req_id


# Databases


@pytest.fixture
def database(tmp_path: Path) -> waltz.DbApiDatabase:
    made = waltz.DbApiDatabase(lambda: sqlite3.connect(tmp_path / "database.sqlite"), sqlite3)
    with closing(made.connect()) as connection:
        connection.execute("CREATE TABLE rows (text TEXT)")
        made.create_table(connection)
        connection.commit()
    return made


def insert(transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
    connection.execute("INSERT INTO rows VALUES (?)", (data.decode(),))


def rows(database: waltz.DbApiDatabase) -> list[str]:
    with closing(database.connect()) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM rows ORDER BY rowid")]


async def test_a_database_does_not_go_on(cluster: Cluster, database: waltz.DbApiDatabase) -> None:
    await cluster.append(b"0", b"1", b"2", b"3")
    async with cluster.connect() as client:
        await client.apply_to_database(database, insert, follow=False)
        await client.apply_to_database(database, insert, follow=False)
    cluster.put_back(2)
    await cluster.append(b"x", b"y", b"z")
    async with cluster.connect() as client:
        for follow in (False, True):
            with pytest.raises(waltz.OtherLogError, match=OTHER_LOG):
                await client.apply_to_database(database, insert, follow=follow)
    assert rows(database) == ["0", "1", "2", "3"]


class Rows(waltz.DatabaseCallbacks[Any]):
    def __init__(self, database: waltz.DbApiDatabase) -> None:
        super().__init__(database)
        self.uncaught: list[BaseException] = []

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: Any) -> None:
        insert(transaction, data, connection)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.uncaught.append(error)


async def test_callbacks_do_not_go_on(cluster: Cluster, database: waltz.DbApiDatabase) -> None:
    await cluster.append(b"0", b"1")
    for more in (b"2", b"3"):
        callbacks = Rows(database)
        driver = MockDriver([cluster.partition], versions=cluster.versions)
        async with await driver.open_client(callbacks, options=OPTIONS) as client:
            last = cluster.partition.add(more)
            await until(lambda: client.client_high_water_mark(0) == last)  # noqa: B023 - it is awaited here
        callbacks.close()
        assert not callbacks.uncaught
    assert rows(database) == ["0", "1", "2", "3"]
    cluster.put_back(2)
    await cluster.append(b"x", b"y", b"z")
    callbacks = Rows(database)
    driver = MockDriver([cluster.partition], versions=cluster.versions)
    async with await driver.open_client(callbacks, options=OPTIONS):
        await until(lambda: len(callbacks.uncaught) > 1)
    callbacks.close()
    assert {type(error) for error in callbacks.uncaught} == {waltz.OtherLogError}
    assert rows(database) == ["0", "1", "2", "3"]


# Views


async def view(cluster: Cluster, store: str, directory: Path, *written: tuple[bytes, bytes]) -> list[tuple[bytes, Any]]:
    async with cluster.connect() as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        async with waltz.table.Table(client, 0, store=store, directory=directory) as table:
            for key, value in written:
                await table.put(key, value)
            if store == "memory":
                await table.refresh(strict=False)
            return [(row.key, row.value) async for row in table.scan()]


@pytest.mark.parametrize("store", ["sqlite", "lmdb", "rocksdb"])
@pytest.mark.parametrize("written", [1, 2, 3])
async def test_a_view_is_rebuilt(
    cluster: Cluster, store: str, written: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the log is shorter than it was, as long, or longer; also by who only reads what the view has."""
    kept = tmp_path / "kept"
    await view(cluster, store, kept, (b"a", b"1"), (b"b", b"1"), (b"b", b"2"), (b"c", b"1"))
    assert await view(cluster, store, kept) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"1")]
    assert "is rebuilt" not in caplog.text
    cluster.put_back(2)
    await view(cluster, "memory", tmp_path, *[(b"x", b"new"), (b"y", b"new"), (b"z", b"new")][:written])
    async with cluster.connect() as client:
        async with waltz.table.Table(client, 0, store=store, directory=kept) as table:
            await table.refresh(strict=False)
            found = [(row.key, row.value) async for row in table.scan()]
        assert found == await view(cluster, "memory", tmp_path / "none")
    assert "the view of partition 0 is rebuilt from the log: " in caplog.text


async def test_a_view_without_a_request_id_gets_one_with_its_next_write(tmp_path: Path) -> None:
    cluster = Cluster()
    await view(cluster, "sqlite", tmp_path, (b"a", b"1"))
    async with (
        cluster.connect() as client,
        waltz.table.Table(client, 0, store="sqlite", directory=tmp_path) as table,
    ):
        store = table._partition.store
        assert store.progress.request_id == cluster.partition.transactions[0].req_id
        store.progress = store.progress._replace(request_id=b"")
        await table.put(b"b", b"1")
        await table.refresh(strict=False)
        assert store.progress.request_id == cluster.partition.transactions[1].req_id


async def test_a_view_that_is_given_up_before_it_could_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    await view(cluster, "sqlite", tmp_path, (b"a", b"1"))
    comparing = asyncio.Event()

    async def never(self: BatchFeed) -> None:
        comparing.set()
        await asyncio.Event().wait()

    async with cluster.connect() as client:
        with monkeypatch.context() as patched:
            patched.setattr(BatchFeed, "begin", never)
            table = waltz.table.Table(client, 0, store="sqlite", directory=tmp_path)
            opening = asyncio.create_task(table.__aenter__())
            await comparing.wait()
            opening.cancel()
            await asyncio.wait([opening])
    assert await view(cluster, "sqlite", tmp_path) == [(b"a", b"1")], "and what was given up leaves nothing locked"
