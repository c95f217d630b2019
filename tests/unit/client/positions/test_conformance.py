"""All keepers of positions and marks against naive models: two instances, answers that get lost, roll-backs."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st

import waltz
from tests.unit.client.positions.test_sql import records
from tests.unit.quick_files import quick_directory
from waltz.client.databases.batches import DatabaseBatches
from waltz.client.databases.kinds import DbApiDatabase
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.client.positions import file
from waltz.client.positions.interface import Move, PositionStore
from waltz.client.positions.sql import SqlAlchemyPositions, SqlitePositions
from waltz.common.ids import ReqId
from waltz.common.zk.client import ANY_VERSION, ConnectionLossError, Stat

T = TypeVar("T")

Fault = Literal["none", "request", "answer"]
"""What gets lost of a change."""


class LostError(Exception):
    """What a keeper raises for a change of which it does not know the outcome."""


class Faults:
    """The next change loses this."""

    def __init__(self) -> None:
        self.next: Fault = "none"

    @contextmanager
    def around(self, error: type[Exception] = LostError) -> Iterator[None]:
        """A change."""
        fault, self.next = self.next, "none"
        if fault == "request":
            raise error("lost")
        yield
        if fault == "answer":
            raise error("lost")


Make = Callable[[], PositionStore]


class Sqlite(SqlitePositions):
    """May lose a change, or the answer to it."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path, "mails")
        self._faults = faults

    @contextmanager
    def _begin(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        if not writing:
            with super()._begin() as connection:
                yield connection
            return
        with self._faults.around(), super()._begin(writing=True) as connection:
            yield connection


class Alchemy(SqlAlchemyPositions):
    """Positions and effects in a database of SQLAlchemy."""

    def __init__(self, path: Path, faults: Faults) -> None:
        engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.NullPool)
        super().__init__(engine, "mails")
        self._faults = faults

    @contextmanager
    def _begin(self, *, writing: bool = False) -> Iterator[Any]:
        if not writing:
            with super()._begin() as connection:
                yield connection
            return
        with self._faults.around(), super()._begin(writing=True) as connection:
            yield connection


class File(file.FilePositions):
    """Positions in a file, which one consumer has at a time: another consumer waits until the file is closed."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path)
        self._faults = faults

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        loaded = await super().load(cluster_key, partition_ids)
        await self.close()
        return loaded

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        await super().load(cluster_key, moves)
        try:
            with self._faults.around():
                await super().save(cluster_key, moves)
        finally:
            await self.close()


class Nodes(MockNodes):
    """Nodes whose changes may get lost."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        with self._faults.around(ConnectionLossError):
            return await super().create(path, data, make_path=make_path)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        with self._faults.around(ConnectionLossError):
            return await super().set(path, data, version)


@asynccontextmanager
async def in_zookeeper(faults: Faults) -> AsyncIterator[Make]:
    driver = MockDriver([MockServerPartition(number, Nodes(faults)) for number in range(2)])
    async with waltz.connect(driver) as client:
        yield lambda: waltz.ZooKeeperPositions(client, "mails")


@asynccontextmanager
async def in_directory(kind: Callable[[Path, Faults], PositionStore], faults: Faults) -> AsyncIterator[Make]:
    with quick_directory() as directory:
        yield lambda: kind(Path(directory) / "positions", faults)


Keeper = Callable[[Faults], AbstractAsyncContextManager[Make]]

KEEPERS: dict[str, Keeper] = {
    "file": lambda faults: in_directory(File, faults),
    "sqlite": lambda faults: in_directory(Sqlite, faults),
    "sqlalchemy": lambda faults: in_directory(Alchemy, faults),
    "zookeeper": in_zookeeper,
}

instances = st.integers(0, 1)
partitions = st.integers(0, 1)

saves = st.tuples(
    instances,
    st.dictionaries(partitions, st.integers(-1, 3), min_size=1),
    st.sampled_from(["none", "none", "request", "answer"]),
)


@pytest.mark.parametrize("name", KEEPERS)
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.one_of(instances, saves), max_size=12))
def test_nothing_moves_on_from_what_is_not_the_consumers_own(name: str, steps: list[Any]) -> None:
    async def run() -> None:
        faults = Faults()
        async with KEEPERS[name](faults) as make:
            stores = [make(), make()]
            stored: dict[int, tuple[int, bytes]] = {}
            known: list[dict[int, int]] = [{}, {}]
            for store in stores:
                await store.load("key", [0, 1])
            for step in steps:
                if isinstance(step, int):
                    store = stores[step]
                    known[step] = await store.load("key", [0, 1])
                    assert known[step] == {each: position for each, (position, _) in stored.items()}
                    assert all(store.request_id(each) == request_id for each, (_, request_id) in stored.items())
                    continue
                number, lengths, fault = step
                moves = {
                    each: Move(
                        known[number].get(each), max(known[number].get(each, -1) + length, -1), request_id(number, each)
                    )
                    for each, length in lengths.items()
                }
                conflicting = {each for each, move in moves.items() if stored.get(each, (None, b""))[0] not in move[:2]}
                faults.next = fault
                outcome = await asyncio.gather(stores[number].save("key", moves), return_exceptions=True)
                match outcome:
                    case [waltz.PositionConflictError() as error]:
                        assert set(error.partition_ids) == conflicting
                        faults.next = "none"
                    case [LostError() | ConnectionLossError()]:
                        assert fault != "none"
                    case [None]:
                        assert not conflicting
                        known[number].update({each: move.after for each, move in moves.items()})
                    case _:
                        raise AssertionError(outcome)
                present = await make().load("key", [0, 1])
                for each, move in moves.items():
                    if each in conflicting:
                        assert present.get(each) == stored.get(each, (None, b""))[0]
                    elif present.get(each) == move.after and stored.get(each, (None, b""))[0] != move.after:
                        stored[each] = (move.after, move.request_id)
                    else:
                        assert present.get(each) == stored.get(each, (None, b""))[0]

    asyncio.run(run())


def request_id(number: int, partition_id: int) -> bytes:
    return bytes(ReqId.of(number, 0, partition_id, 0))


applies = st.tuples(st.just("apply"), instances, st.integers(1, 4), st.sampled_from(["commit", "commit", "roll back"]))
others = st.tuples(st.sampled_from(["commit", "load", "go on"]), instances)


@pytest.mark.parametrize("kind", [Sqlite, Alchemy])
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.one_of(applies, others), max_size=15))
def test_effects_are_those_of_the_transactions_up_to_the_position(
    kind: Callable[[Path, Faults], Any], steps: list[Any]
) -> None:
    """Also of consumers that go on where the database has rolled back, and commit then."""

    def apply(path: Path, store: Any, first: int, count: int, *, commit: bool) -> None:
        rows = [(each,) for each in range(first, first + count)]
        if isinstance(store, SqlitePositions):
            with closing(sqlite3.connect(path)) as connection:
                connection.executemany("INSERT INTO effects VALUES (?)", rows)
                store.advance(connection, records(0, first, count))
                if commit:
                    connection.commit()
            return
        with store._engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO effects VALUES (?)", rows)
            store.advance(connection, records(0, first, count))
            if commit:
                connection.commit()

    async def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE effects (id INTEGER)")
        stores = [kind(path, Faults()) for _ in range(2)]
        committed, handed_out = [-1, -1], [-1, -1]
        for store in stores:
            await store.load("key", [0])
            await store.save("key", {0: Move(None, -1)})
        for step in steps:
            number = step[1]
            store = stores[number]
            if step[0] == "load":
                committed[number] = handed_out[number] = (await store.load("key", [0]))[0]
            elif step[0] == "commit" and handed_out[number] > committed[number]:
                try:
                    await store.save("key", {0: Move(committed[number], handed_out[number])})
                except waltz.PositionConflictError:
                    pass
                else:
                    committed[number] = handed_out[number]
            elif step[0] == "apply":
                _, _, count, outcome = step
                first = handed_out[number] + 1
                try:
                    apply(path, store, first, count, commit=outcome == "commit")
                except waltz.PositionConflictError:
                    assert store.take_conflicts() == {0}
                handed_out[number] += count
            with closing(sqlite3.connect(path)) as database:
                effects = [row[0] for row in database.execute("SELECT id FROM effects ORDER BY id")]
            position = (await kind(path, Faults()).load("key", [0]))[0]
            assert effects == list(range(position + 1))

    with quick_directory() as directory:
        asyncio.run(run(Path(directory) / "application.sqlite"))


class Failing(sqlite3.Connection):
    """Fails where it is told to."""

    faults: Faults

    def commit(self) -> None:
        with self.faults.around(sqlite3.OperationalError):
            super().commit()


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(
        st.tuples(instances, st.integers(1, 5), st.sampled_from(["none", "request", "answer", "apply"])), max_size=12
    )
)
def test_callbacks_change_a_database_once_for_each_transaction(steps: list[tuple[int, int, Any]]) -> None:
    async def at_once(work: Callable[[], T]) -> T:
        return work()

    async def run(path: Path) -> None:
        faults = Faults()
        failures = 0

        class Connection(Failing):
            pass

        Connection.faults = faults
        database = DbApiDatabase(lambda: sqlite3.connect(path, factory=Connection), sqlite3)
        with closing(sqlite3.connect(path)) as connection, connection:
            database.create_table(connection)
            connection.execute("CREATE TABLE effects (id INTEGER)")

        def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
            nonlocal failures
            connection.execute("INSERT INTO effects VALUES (?)", (transaction.transaction_id,))
            if failures:
                failures -= 1
                raise sqlite3.OperationalError("apply")

        both = [
            DatabaseBatches(database, apply, at_once, max_batch=4, random_source=random.Random(0)) for _ in range(2)
        ]
        for batches in both:
            await batches.read_mark(0)
        for number, count, fault in steps:
            batches = both[number]
            first = batches.marks[0] + 1
            entries = [
                (waltz.Transaction(ReqId.of(1, 0, 0, each), each, 0, b"", None), b"")
                for each in range(first, first + count)
            ]
            if fault == "apply":
                failures = 1
            else:
                faults.next = fault
            await batches.apply_first(entries)
            faults.next, failures = "none", 0
            with closing(sqlite3.connect(path)) as connection:
                effects = [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY id")]
                (mark,) = connection.execute("SELECT HIGH_WATER_MARK FROM waltz_high_water_marks").fetchone()
            assert effects == list(range(mark + 1))
            assert mark >= batches.marks[0] >= first

    with quick_directory() as directory:
        asyncio.run(run(Path(directory) / "marks.sqlite"))
