"""Positions in a table of a database, where they can be changed in the transaction that has the effects."""

import asyncio
import importlib
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

from waltz.client.databases import check_engine
from waltz.client.errors import InvalidOperationError, PositionConflictError, PositionsError
from waltz.client.positions.file import foreign
from waltz.client.positions.interface import Move, PositionStore
from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record

TABLE = "waltz_positions"

C = TypeVar("C")


class _SqlPositions(PositionStore, Generic[C]):
    """What the databases have in common; connections of type ``C`` are the application's own, too."""

    def __init__(self, group: str, where: str) -> None:
        if not group or len(group) > 190:
            raise ValueError(f"the name of a group of consumers has 1 to 190 characters: {group!r}")
        self.group = group
        """Whose positions these are."""
        self._where = where
        self._cluster_key: str | None = None
        self._advanced: dict[int, int] = {}

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The positions in these partitions, where there are any; makes the table if there is none.

        Raises ``PositionsError`` when they are of another cluster, and what the database raises.
        """
        rows = await asyncio.to_thread(self._load)
        others = {key for key, _, _ in rows} - {cluster_key}
        if others:
            raise PositionsError(foreign(f"{self._where}, group {self.group!r}", others.pop(), cluster_key))
        self._cluster_key = cluster_key
        return {partition_id: position for _, partition_id, position in rows if partition_id in partition_ids}

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, all or none, in one database transaction.

        One that :meth:`advance` has moved meanwhile is as good, and is moved on from there, but never back. Raises
        ``PositionConflictError`` when one of them is not what it is expected to be, and what the database raises.
        """
        await asyncio.to_thread(self._save, cluster_key, moves)

    def advance(self, connection: C, records: Record | Sequence[Record]) -> None:
        """Say, within a database transaction of the application, that ``records`` are done with.

        That is one transaction, or several of one partition without gaps, such as a batch. When the database
        transaction is committed, so is the position; then each of them has its effects exactly once.

        Raises ``PositionConflictError`` when they are not the next ones, because they were applied before: roll back,
        and go on. Raises ``ValueError`` when they have gaps or are of several partitions, ``InvalidOperationError``
        before a consumer was opened with these positions, and what the database raises.
        """
        several = [records] if isinstance(records, Record) else records
        first, last = several[0], several[-1]
        partition_id = first.partition_id
        if last.transaction_id - first.transaction_id != len(several) - 1 or last.partition_id != partition_id:
            raise ValueError("the transactions are not those of one partition without gaps")
        if self._cluster_key is None:
            raise InvalidOperationError("the positions were not loaded; open a consumer with them first")
        move = Move(first.transaction_id - 1, last.transaction_id)
        if not self._update(connection, self._values(self._cluster_key, partition_id, move)):
            raise PositionConflictError([partition_id], self._where)
        self._advanced[partition_id] = max(last.transaction_id, self._advanced.get(partition_id, NO_TRANSACTION))

    def _values(self, cluster_key: str, partition_id: int, move: Move) -> dict[str, object]:
        return {
            "consumer": self.group,
            "partition": partition_id,
            "cluster": cluster_key,
            "before": move.before,
            "after": move.after,
        }

    @abstractmethod
    def _load(self) -> list[tuple[str, int, int]]:
        """Cluster key, partition and position."""

    @abstractmethod
    def _save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """In one transaction, by :meth:`_move_all`."""

    @abstractmethod
    def _insert(self, connection: C, values: Mapping[str, object]) -> None:
        """A row."""

    @abstractmethod
    def _update(self, connection: C, values: Mapping[str, object]) -> bool:
        """Whether there was such a row."""

    @abstractmethod
    def _stored(self, connection: C, values: Mapping[str, object]) -> int | None:
        """The position of a partition."""

    def _move_all(self, connection: C, cluster_key: str, moves: Mapping[int, Move]) -> None:
        conflicting = []
        for partition_id, move in moves.items():
            values = self._values(cluster_key, partition_id, move)
            if move.before is not None and self._update(connection, values):
                continue
            stored = self._stored(connection, values)
            if stored is None and move.before is None:
                self._insert(connection, values)
            elif stored is not None and self._has_advanced(partition_id, move, stored):
                if stored < move.after and not self._update(connection, {**values, "before": stored}):
                    conflicting.append(partition_id)
            elif stored != move.after:
                conflicting.append(partition_id)
        if conflicting:
            raise PositionConflictError(conflicting, self._where)

    def _has_advanced(self, partition_id: int, move: Move, stored: int) -> bool:
        """Whether the position is where :meth:`advance` may have left it.

        Which of its database transactions have been committed is not known here, so this is anywhere up to the last.
        """
        return move.before is not None and move.before < stored <= self._advanced.get(partition_id, NO_TRANSACTION)


class SqlitePositions(_SqlPositions[sqlite3.Connection]):
    """Positions in a SQLite database: ``SqlitePositions("mails.sqlite", "mails")``.

    Consumers of different names share the table. :meth:`advance` takes a connection of the application's.

    Examples:
        ```python
        from contextlib import closing

        positions = waltz.SqlitePositions(f"{directory}/mails.sqlite", "mails")
        async with client.consume(positions) as consumer:
            batch = await consumer.next_batch()
            with closing(sqlite3.connect(f"{directory}/mails.sqlite")) as database, database:
                database.executemany("INSERT INTO mails VALUES (?)", [(each.data.decode(),) for each in batch])
                positions.advance(database, batch)  # both in one database transaction
        ```
    """

    def __init__(self, path: str | os.PathLike[str], group: str = "default") -> None:
        super().__init__(group, f"table {TABLE} of {os.fspath(path)}")
        self._path = path

    def _load(self) -> list[tuple[str, int, int]]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (CONSUMER VARCHAR(190) NOT NULL, PARTITION_ID INTEGER NOT NULL, "
                "CLUSTER_KEY VARCHAR(64) NOT NULL, TRANSACTION_ID BIGINT NOT NULL, "
                "PRIMARY KEY (CONSUMER, PARTITION_ID))"
            )
            return connection.execute(
                f"SELECT CLUSTER_KEY, PARTITION_ID, TRANSACTION_ID FROM {TABLE} WHERE CONSUMER = ?",  # noqa: S608
                (self.group,),
            ).fetchall()

    def _save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            self._move_all(connection, cluster_key, moves)

    def _insert(self, connection: sqlite3.Connection, values: Mapping[str, object]) -> None:
        statement = f"INSERT INTO {TABLE} VALUES (:consumer, :partition, :cluster, :after)"  # noqa: S608
        connection.execute(statement, values)

    def _update(self, connection: sqlite3.Connection, values: Mapping[str, object]) -> bool:
        statement = (
            f"UPDATE {TABLE} SET TRANSACTION_ID = :after WHERE CONSUMER = :consumer "  # noqa: S608
            "AND PARTITION_ID = :partition AND CLUSTER_KEY = :cluster AND TRANSACTION_ID = :before"
        )
        return connection.execute(statement, values).rowcount == 1

    def _stored(self, connection: sqlite3.Connection, values: Mapping[str, object]) -> int | None:
        statement = (
            f"SELECT TRANSACTION_ID FROM {TABLE} WHERE CONSUMER = :consumer "  # noqa: S608
            "AND PARTITION_ID = :partition AND CLUSTER_KEY = :cluster"
        )
        row = connection.execute(statement, values).fetchone()
        return None if row is None else int(row[0])


class SqlAlchemyPositions(_SqlPositions[Any]):
    """Positions in a table of any database that SQLAlchemy (2.0 or later) knows, by its engine.

    The engine is one of ``create_engine``: positions are loaded and saved on threads. :meth:`advance` takes a
    ``Connection`` of SQLAlchemy, or that of a ``Session`` (``session.connection()``). With an ``AsyncConnection``, of
    an asynchronous engine for the same database, it is ``await connection.run_sync(positions.advance, records)``.

    Examples:
        ```python
        engine = sqlalchemy.create_engine(f"sqlite:///{directory}/mails.sqlite")
        positions = waltz.SqlAlchemyPositions(engine, "mails")
        async with client.consume(positions) as consumer:
            batch = await consumer.next_batch()
            with engine.begin() as connection:
                connection.execute(sqlalchemy.text("INSERT INTO mails VALUES ('...')"))
                positions.advance(connection, batch)  # both in one database transaction
        ```
    """

    def __init__(self, engine: Any, group: str = "default", *, schema: str | None = None) -> None:
        """``schema`` is where the table is, if not in the default one.

        Raises ``TypeError`` for asynchronous engines.
        """
        alchemy = importlib.import_module("sqlalchemy")  # an optional dependency, which the application has
        check_engine(alchemy, engine)
        super().__init__(group, f"table {TABLE} of {engine.url.render_as_string()}")
        self._alchemy = alchemy
        self._engine = engine
        self._table = alchemy.Table(
            TABLE,
            alchemy.MetaData(schema=schema),
            alchemy.Column("consumer", alchemy.String(190), primary_key=True),
            alchemy.Column("partition_id", alchemy.Integer, primary_key=True, autoincrement=False),
            alchemy.Column("cluster_key", alchemy.String(64), nullable=False),
            alchemy.Column("transaction_id", alchemy.BigInteger, nullable=False),
        )

    def _load(self) -> list[tuple[str, int, int]]:
        self._table.metadata.create_all(self._engine)
        columns = self._table.c
        query = self._alchemy.select(columns.cluster_key, columns.partition_id, columns.transaction_id)
        with self._engine.connect() as connection:
            rows = connection.execute(query.where(columns.consumer == self.group)).all()
        return [(str(key), int(partition_id), int(position)) for key, partition_id, position in rows]

    def _save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        with self._engine.begin() as connection:
            self._move_all(connection, cluster_key, moves)

    def _insert(self, connection: Any, values: Mapping[str, object]) -> None:
        row = self._table.insert().values(
            consumer=values["consumer"],
            partition_id=values["partition"],
            cluster_key=values["cluster"],
            transaction_id=values["after"],
        )
        connection.execute(row)

    def _update(self, connection: Any, values: Mapping[str, object]) -> bool:
        if hasattr(connection, "run_sync"):
            raise TypeError(
                f"a {type(connection).__name__} is asynchronous; with a connection of that kind the call is "
                "`await connection.run_sync(positions.advance, records)`"
            )
        update = (
            self._table.update()
            .where(self._row(values), self._table.c.transaction_id == values["before"])
            .values(transaction_id=values["after"])
        )
        return bool(connection.execute(update).rowcount == 1)

    def _stored(self, connection: Any, values: Mapping[str, object]) -> int | None:
        query = self._alchemy.select(self._table.c.transaction_id).where(self._row(values))
        position = connection.execute(query).scalar()
        return None if position is None else int(position)

    def _row(self, values: Mapping[str, object]) -> Any:
        columns = self._table.c
        return self._alchemy.and_(
            columns.consumer == values["consumer"],
            columns.partition_id == values["partition"],
            columns.cluster_key == values["cluster"],
        )
