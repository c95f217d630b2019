"""Positions in SQLite, by itself and through SQLAlchemy, and in PostgreSQL where it is installed."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.unit.client.postgres import PostgresServer, find_postgres
from waltz.client.databases.kinds import SqlAlchemyDatabase
from waltz.client.databases.marks import Mark, MarkTable
from waltz.client.errors import InvalidOperationError, PositionConflictError, PositionsError
from waltz.client.positions.interface import Move
from waltz.client.positions.sql import TABLE, SqlAlchemyPositions, SqlitePositions
from waltz.common.ids import ReqId
from waltz.common.records import Record

Store = SqlitePositions | SqlAlchemyPositions


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg")
    binaries = find_postgres()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries (Debian's package postgresql)")
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", "sqlalchemy", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlalchemy.Engine | Path]:
    """A database: its path for SQLite alone, else its engine."""
    path = tmp_path / "positions.sqlite"
    if request.param == "sqlite":
        yield path
        return
    if request.param == "sqlalchemy":
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        fields = dict(field.split("=") for field in server.connect_string.split())
        url = sqlalchemy.URL.create("postgresql+psycopg", fields["user"], database=fields["dbname"])
        engine = sqlalchemy.create_engine(url, connect_args={"host": fields["host"]})
    yield engine
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"DROP TABLE {TABLE}"))
    engine.dispose()


def store(engine: sqlalchemy.Engine | Path, group: str = "mails") -> Store:
    if isinstance(engine, Path):
        return SqlitePositions(engine, group)
    return SqlAlchemyPositions(engine, group)


def records(partition_id: int, first: int, count: int) -> list[Record]:
    req_id = ReqId.of(1, 0, partition_id, 0)
    return [Record(each, req_id, 0, b"", 0) for each in range(first, first + count)]


async def test_what_was_saved_is_loaded(engine: sqlalchemy.Engine | Path) -> None:
    positions = store(engine)
    assert await positions.load("key", [0, 1]) == {}
    await positions.save("key", {0: Move(None, -1), 7: Move(None, 12)})
    await positions.save("key", {0: Move(-1, 1 << 40)})
    again = store(engine)
    assert await again.load("key", [0, 1, 7]) == {0: 1 << 40, 7: 12}
    assert await again.load("key", [1]) == {}
    assert await store(engine, "others").load("another key", [0]) == {}
    await positions.close()


async def test_of_two_that_move_a_position_one_is_told(engine: sqlalchemy.Engine | Path) -> None:
    positions = store(engine)
    await positions.load("key", [])
    await positions.save("key", {each: Move(None, 5) for each in range(3)})
    with pytest.raises(PositionConflictError, match="of partitions 1-2 were moved by another consumer") as conflict:
        await positions.save("key", {0: Move(5, 6), 1: Move(4, 6), 2: Move(None, 3)})
    assert conflict.value.partition_ids == [1, 2]
    assert await positions.load("key", [0, 1, 2]) == dict.fromkeys(range(3), 5), "nothing was saved"
    await positions.save("key", {0: Move(5, 6), 1: Move(4, 5), 2: Move(None, 5)})  # some were made already
    assert await positions.load("key", [0, 1, 2]) == {0: 6, 1: 5, 2: 5}


async def test_positions_of_another_cluster_are_refused(engine: sqlalchemy.Engine | Path) -> None:
    positions = store(engine)
    await positions.load("key", [])
    await positions.save("key", {0: Move(None, 5)})
    with pytest.raises(PositionsError, match="group 'mails' are those of cluster key, and this is cluster other"):
        await store(engine).load("other", [0])


async def test_the_position_moves_in_the_transaction_of_the_application(tmp_path: Path) -> None:
    path = tmp_path / "application.sqlite"
    positions = SqlitePositions(path, "mails")
    with closing(sqlite3.connect(path)) as connection:
        with pytest.raises(InvalidOperationError, match="open a consumer with them first"):
            positions.advance(connection, records(0, 0, 1))
        await positions.load("key", [])
        await positions.save("key", {0: Move(None, -1)})
        positions.advance(connection, records(0, 0, 1)[0])
        connection.rollback()
        assert await positions.load("key", [0]) == {0: -1}
        with connection:
            positions.advance(connection, records(0, 0, 1)[0])
            positions.advance(connection, records(0, 1, 10))
        assert await positions.load("key", [0]) == {0: 10}
        for again in (records(0, 10, 1), records(0, 12, 1), records(1, 0, 1)):
            with pytest.raises(PositionConflictError):
                positions.advance(connection, again)
            connection.rollback()
        for wrong in ([*records(0, 11, 1), *records(0, 13, 1)], [*records(0, 11, 1), *records(1, 12, 1)]):
            with pytest.raises(ValueError, match="not those of one partition without gaps"):
                positions.advance(connection, wrong)


async def test_a_commit_moves_nothing_that_advance_has_not_moved(engine: sqlalchemy.Engine | Path) -> None:
    positions = store(engine)
    await positions.load("key", [])
    await positions.save("key", {0: Move(None, -1)})

    def advance(first: int, count: int, *, commit: bool = True) -> None:
        if isinstance(positions, SqlitePositions):
            assert isinstance(engine, Path)
            with closing(sqlite3.connect(engine)) as database:
                positions.advance(database, records(0, first, count))
                if commit:
                    database.commit()
        else:
            assert isinstance(engine, sqlalchemy.Engine)
            with engine.connect() as connection:
                positions.advance(connection, records(0, first, count))
                if commit:
                    connection.commit()

    async def stored() -> int:
        return (await store(engine).load("key", [0]))[0]

    advance(0, 10)
    await positions.save("key", {0: Move(-1, 4)})
    assert await stored() == 9, "nothing goes back"
    await positions.save("key", {0: Move(4, 19)})
    assert await stored() == 19, "moved on from where it was advanced to"
    with pytest.raises(PositionConflictError):
        await positions.save("key", {0: Move(9, 15)})
    advance(20, 10, commit=False)
    await positions.save("key", {0: Move(19, 29)})
    assert await stored() == 19, "what was rolled back is not passed by"
    other = store(engine)
    await other.load("key", [0])
    await other.save("key", {0: Move(19, 22)})
    with pytest.raises(PositionConflictError):
        advance(20, 10)
    assert positions.take_conflicts() == {0}
    assert not positions.take_conflicts()
    await positions.save("key", {0: Move(29, 35)})
    assert await stored() == 22
    await other.save("key", {0: Move(22, 40)})
    with pytest.raises(PositionConflictError):
        await positions.save("key", {0: Move(29, 35)})
    assert await positions.load("key", [0]) == {0: 40}
    await positions.save("key", {0: Move(40, 41)})
    assert await stored() == 41


async def test_of_two_that_begin_at_the_same_moment_one_may_be_told(engine: sqlalchemy.Engine | Path) -> None:
    async def begin(position: int) -> int | None:
        positions = store(engine)
        await positions.load("key", [0, 1])
        together.wait()
        try:
            await positions.save("key", {0: Move(None, position), 1: Move(None, position)})
        except PositionConflictError:
            return None
        return position

    together = threading.Barrier(2)
    outcomes = await asyncio.gather(*(asyncio.to_thread(asyncio.run, begin(position)) for position in (3, 4)))
    (winner,) = [position for position in outcomes if position is not None]
    assert await store(engine).load("key", [0, 1]) == {0: winner, 1: winner}


async def test_a_row_that_somebody_else_has_made_meanwhile(
    engine: sqlalchemy.Engine | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case of databases in which reading a missing row locks nothing."""
    if isinstance(engine, Path):
        pytest.skip("one at a time changes the database")
    positions, other = store(engine), store(engine)
    for each in (positions, other):
        await each.load("key", [])
    await other.save("key", {0: Move(None, 5)})
    read, seen = MarkTable.read, 0

    def before_it_was_there(self: MarkTable[Any], connection: Any, key: Any) -> Mark | None:
        nonlocal seen
        seen += 1
        return None if seen % 2 else read(self, connection, key)

    monkeypatch.setattr(MarkTable, "read", before_it_was_there)
    with pytest.raises(PositionConflictError):
        await positions.save("key", {0: Move(None, 4)})
    await positions.save("key", {0: Move(None, 5)})


async def test_a_table_from_before_positions_had_request_ids(engine: sqlalchemy.Engine | Path) -> None:
    made = (
        f"CREATE TABLE {TABLE} (CONSUMER VARCHAR(190) NOT NULL, PARTITION_ID INTEGER NOT NULL, CLUSTER_KEY "
        "VARCHAR(64) NOT NULL, TRANSACTION_ID BIGINT NOT NULL, PRIMARY KEY (CONSUMER, PARTITION_ID))"
    )
    row = f"INSERT INTO {TABLE} VALUES ('mails', 0, 'key', 5)"
    if isinstance(engine, Path):
        with closing(sqlite3.connect(engine)) as database, database:
            database.execute(made)
            database.execute(row)
    else:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(made))
            connection.execute(sqlalchemy.text(row))
    positions = store(engine)
    assert await positions.load("key", [0]) == {0: 5}
    assert positions.request_id(0) == b""
    await positions.save("key", {0: Move(5, 6, b"0123456789abcdef")})
    again = store(engine)
    assert await again.load("key", [0, 1]) == {0: 6}
    assert (again.request_id(0), again.request_id(1)) == (b"0123456789abcdef", b"")


async def test_the_same_with_sqlalchemy(engine: sqlalchemy.Engine | Path) -> None:
    if isinstance(engine, Path):
        pytest.skip("not through SQLAlchemy")
    positions = SqlAlchemyPositions(engine, "mails")
    await positions.load("key", [])
    await positions.save("key", {0: Move(None, -1)})
    with engine.connect() as connection:
        positions.advance(connection, records(0, 0, 5))
        connection.rollback()
    with engine.begin() as connection:
        positions.advance(connection, records(0, 0, 5))
    with pytest.raises(PositionConflictError), engine.begin() as connection:
        positions.advance(connection, records(0, 4, 1))
    assert await positions.load("key", [0]) == {0: 4}


async def test_connections_of_an_asynchronous_engine_for_the_same_database(tmp_path: Path) -> None:
    path = tmp_path / "positions.sqlite"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    asynchronous = create_async_engine(f"sqlite+aiosqlite:///{path}")
    positions = SqlAlchemyPositions(engine, "mails")
    await positions.load("key", [])
    await positions.save("key", {0: Move(None, -1)})
    async with asynchronous.begin() as connection:
        await connection.run_sync(positions.advance, records(0, 0, 5))
    async with AsyncSession(asynchronous) as session, session.begin():
        await (await session.connection()).run_sync(positions.advance, records(0, 5, 1))
    with pytest.raises(PositionConflictError):
        async with asynchronous.begin() as connection:
            await connection.run_sync(positions.advance, records(0, 4, 1))
    assert await positions.load("key", [0]) == {0: 5}
    async with asynchronous.connect() as connection:
        with pytest.raises(TypeError, match=r"AsyncConnection is asynchronous.*run_sync\(positions.advance, records\)"):
            positions.advance(connection, records(0, 6, 1))
    await asynchronous.dispose()
    engine.dispose()


@pytest.mark.parametrize("make", [SqlAlchemyPositions, SqlAlchemyDatabase])
def test_asynchronous_engines_are_refused(make: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"one that sqlalchemy.create_engine made, not AsyncEngine"):
        make(create_async_engine("sqlite+aiosqlite:///x.sqlite"))


@pytest.mark.parametrize("name", ["", "x" * 191])
def test_names_of_groups(name: str) -> None:
    with pytest.raises(ValueError, match="has 1 to 190 characters"):
        SqlitePositions("x.sqlite", name)
