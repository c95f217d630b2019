"""Positions in a table of a database, which can be changed in the transaction that makes the effects."""

import asyncio
import importlib
import logging
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Generic, TypeVar

from waltz.client.databases.kinds import check_engine
from waltz.client.databases.marks import LAST, Execute, Mark, MarkTable, execute_text, execute_with
from waltz.client.errors import InvalidOperationError, PositionConflictError, PositionsError
from waltz.client.positions.file import foreign
from waltz.client.positions.interface import Move, PositionStore
from waltz.common.records import Record

logger = logging.getLogger(__name__)

TABLE = "waltz_positions"

C = TypeVar("C")

_COLUMNS = {
    "CONSUMER": "VARCHAR(190) NOT NULL",
    "PARTITION_ID": "INTEGER NOT NULL",
    "CLUSTER_KEY": "VARCHAR(64) NOT NULL",
}
_PRIMARY_KEY = ("CONSUMER", "PARTITION_ID")


class _SqlPositions(PositionStore, Generic[C]):
    """The common part of the databases; connections of type ``C`` are also those of the application."""

    _errors: tuple[type[Exception], ...]
    """The errors of the database."""
    _twice: tuple[type[Exception], ...]
    """The errors for a row that exists already."""

    def __init__(self, group: str, table: str, where: str, execute: Execute[C]) -> None:
        if not group or len(group) > 190:
            raise ValueError(f"the name of a group of consumers has 1 to 190 characters: {group!r}")
        self.group = group
        """Whose positions these are."""
        self._where = where
        self._cluster_key: str | None = None
        self._marks = MarkTable(table, _COLUMNS, _PRIMARY_KEY, "TRANSACTION_ID", execute)
        self._loaded: dict[int, Mark] = {}
        self._advanced: dict[int, int] = {}
        self._conflicts: set[int] = set()

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The stored positions in these partitions; creates a missing table.

        Raises ``PositionsError`` when they are of another cluster, and the errors of the database.
        """
        rows = await asyncio.to_thread(self._load)
        others = {key for _, key, _ in rows} - {cluster_key}
        if others:
            raise PositionsError(foreign(f"{self._where}, group {self.group!r}", others.pop(), cluster_key))
        self._cluster_key = cluster_key
        for partition_id in partition_ids:
            self._advanced.pop(partition_id, None)
            self._conflicts.discard(partition_id)
            self._loaded.pop(partition_id, None)
        loaded = {partition_id: mark for partition_id, _, mark in rows if partition_id in partition_ids}
        self._loaded.update(loaded)
        return {partition_id: mark.transaction_id for partition_id, mark in loaded.items()}

    def request_id(self, partition_id: int) -> bytes:
        return self._loaded[partition_id].request_id if partition_id in self._loaded else b""

    def take_conflicts(self) -> Collection[int]:
        conflicts, self._conflicts = self._conflicts, set()
        return conflicts

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, all or none, in one database transaction.

        In partitions with calls of :meth:`advance`, which moves the position itself, the position is only moved on from
        the last transaction of these calls, and stays unchanged if that is not stored (yet). Raises
        ``PositionConflictError`` when a position is not the expected one, and the errors of the database.
        """
        await asyncio.to_thread(self._save, cluster_key, moves)

    def advance(self, connection: C, records: Record | Sequence[Record]) -> None:
        """Record, within a database transaction of the application, that ``records`` are done.

        The records are one transaction, or several of one partition without gaps, such as a batch. The position is
        committed with the database transaction, so each of them has its effects exactly once.

        Raises ``PositionConflictError`` when they are not the next ones, because some of them were applied before: roll
        back, and continue; the consumer reads the partition anew after the stored position. Raises ``ValueError`` when
        they have gaps or are of several partitions, ``InvalidOperationError`` before a consumer was opened with these
        positions, and the errors of the database.
        """
        several = [records] if isinstance(records, Record) else records
        first, last = several[0], several[-1]
        partition_id = first.partition_id
        if last.transaction_id - first.transaction_id != len(several) - 1 or last.partition_id != partition_id:
            raise ValueError("the transactions are not those of one partition without gaps")
        if self._cluster_key is None:
            raise InvalidOperationError("the positions were not loaded; open a consumer with them first")
        key = self._key(self._cluster_key, partition_id)
        after = Mark(last.transaction_id, bytes(last.req_id))
        self._advanced[partition_id] = max(last.transaction_id, self._advanced.get(partition_id, last.transaction_id))
        if not self._marks.move(connection, key, first.transaction_id - 1, after):
            self._conflicts.add(partition_id)
            raise PositionConflictError([partition_id], self._where)

    def _key(self, cluster_key: str, partition_id: int) -> dict[str, object]:
        return {"CONSUMER": self.group, "PARTITION_ID": partition_id, "CLUSTER_KEY": cluster_key}

    @abstractmethod
    def _begin(self, *, writing: bool = False) -> AbstractContextManager[C]:
        """Open a connection in a database transaction, which is committed at the end."""

    @abstractmethod
    def _create(self) -> None:
        """Create or complete the table, unless that has been done."""

    def _load(self) -> list[tuple[int, str, Mark]]:
        try:
            self._create()
        except self._errors as error:  # another consumer was faster, or this one may not change tables
            with self._begin() as connection:
                if not self._marks.look(connection):
                    logger.warning("the %s cannot say which transactions positions are: %s", self._where, error)
        with self._begin() as connection:
            return self._marks.read_all(connection, {"CONSUMER": self.group}, ("PARTITION_ID", "CLUSTER_KEY"))

    def _save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        for _ in range(len(moves) + 1):
            try:
                with self._begin(writing=True) as connection:
                    moved_on = self._move_all(connection, cluster_key, moves)
            except self._twice:
                continue  # another consumer has just begun with one of them, and made its row
            for partition_id in moved_on:
                self._advanced.pop(partition_id, None)
            return
        raise PositionConflictError(moves, self._where)

    def _move_all(self, connection: C, cluster_key: str, moves: Mapping[int, Move]) -> list[int]:
        """Change positions; returns the partitions whose positions were changed."""
        outcomes = {each: self._move(connection, cluster_key, each, move) for each, move in moves.items()}
        conflicting = [each for each, moved in outcomes.items() if moved is None]
        if conflicting:
            raise PositionConflictError(conflicting, self._where)
        return [each for each, moved in outcomes.items() if moved]

    def _move(self, connection: C, cluster_key: str, partition_id: int, move: Move) -> bool | None:
        """Change a position; returns whether it was changed, ``None`` for a conflict."""
        key, after = self._key(cluster_key, partition_id), Mark(move.after, move.request_id)
        advanced = self._advanced.get(partition_id)
        own = move.before if advanced is None else advanced
        if own is not None and own != move.after and (advanced is None or own < move.after):  # noqa: SIM102
            if self._marks.move(connection, key, own, after):
                return True
        mark = self._marks.read(connection, key)
        if mark is None:
            if move.before is not None:
                return None
            self._marks.insert(connection, key, after)
            return True
        stored = mark.transaction_id
        if stored == move.after or (advanced is not None and (stored < advanced or stored == advanced > move.after)):
            return False  # below: the advanced position is not committed, and may have been rolled back
        return None


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

    _errors = (sqlite3.Error,)
    _twice = (sqlite3.IntegrityError,)

    def __init__(self, path: str | os.PathLike[str], group: str = "default") -> None:
        super().__init__(group, TABLE, f"table {TABLE} of {os.fspath(path)}", execute_with(sqlite3.paramstyle))
        self._path = path

    @contextmanager
    def _begin(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            if writing:
                connection.execute("BEGIN IMMEDIATE")
            yield connection

    def _create(self) -> None:
        with self._begin() as connection:
            self._marks.create(connection)


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
        """``schema`` is the table's schema, if it is not the default one.

        Raises ``TypeError`` for asynchronous engines.
        """
        alchemy = importlib.import_module("sqlalchemy")  # an optional dependency, which the application has installed
        check_engine(alchemy, engine)
        self._engine = engine
        self._errors = (alchemy.exc.DBAPIError,)
        self._twice = (alchemy.exc.IntegrityError,)
        self._table = alchemy.Table(
            TABLE,
            alchemy.MetaData(schema=schema),
            alchemy.Column("consumer", alchemy.String(190), primary_key=True),
            alchemy.Column("partition_id", alchemy.Integer, primary_key=True, autoincrement=False),
            alchemy.Column("cluster_key", alchemy.String(64), nullable=False),
            alchemy.Column("transaction_id", alchemy.BigInteger, nullable=False),
            alchemy.Column(LAST.lower(), alchemy.String(80)),
        )
        name = engine.dialect.identifier_preparer.format_table(self._table)
        super().__init__(group, name, f"table {TABLE} of {engine.url.render_as_string()}", execute_text(alchemy))

    def _begin(self, *, writing: bool = False) -> AbstractContextManager[Any]:
        begun: AbstractContextManager[Any] = self._engine.begin()
        return begun

    def _create(self) -> None:
        self._table.metadata.create_all(self._engine)
        with self._begin() as connection:
            self._marks.complete(connection)
