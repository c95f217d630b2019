"""The kinds of databases: any DB-API 2 module, and any SQLAlchemy engine."""

import importlib
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar, cast

from waltz.client.databases.marks import Execute, Mark, MarkTable, execute_text, execute_with
from waltz.client.errors import ClientError
from waltz.common.errors import ConfigError
from waltz.common.ids import NO_TRANSACTION

C = TypeVar("C", bound="Connection")

TABLE = "waltz_high_water_marks"

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")

_FORBIDDEN = frozenset(
    (
        "autocommit",
        "begin",
        "close",
        "commit",
        "connection",
        "detach",
        "driver_connection",
        "executescript",  # of sqlite3, which commits first
        "invalidate",
        "isolation_level",
        "rollback",
        "set_autocommit",
        "set_isolation_level",
        "set_read_only",
        "set_session",
        "tpc_begin",
        "tpc_commit",
        "tpc_prepare",
        "tpc_rollback",
    )
)


class Connection(Protocol):
    """The common part of DB-API and SQLAlchemy connections."""

    def commit(self) -> None:
        """Commit."""
        ...

    def rollback(self) -> None:
        """Roll back."""
        ...

    def close(self) -> None:
        """Close the connection, or return it to its pool."""
        ...


class ForbiddenDatabaseCallError(ClientError):
    """The application tried to end or change the database transaction in which it applies a transaction."""

    def __init__(self, method_name: str) -> None:
        super().__init__(f"{method_name} is not allowed while a transaction is being applied")
        self.method_name = method_name


class Database(Protocol[C]):
    """The statements about high-water marks."""

    errors: tuple[type[Exception], ...]
    """The errors of the database, after which another attempt is made."""

    def connect(self) -> C:
        """Open a connection at the beginning of a database transaction."""
        ...

    def create_table(self, connection: C) -> None:
        """Create the table, unless it exists."""
        ...

    def read_mark(self, connection: C, partition_id: int) -> int | None:
        """The high-water mark."""
        ...

    def insert_mark(self, connection: C, partition_id: int) -> None:
        """Set it to -1 for the first time."""
        ...

    def advance_mark(self, connection: C, partition_id: int, transaction_id: int) -> bool:
        """Set the mark to ``transaction_id`` if it is the one before; returns whether it was."""
        ...

    def guarded(self, connection: C) -> C:
        """The connection for the application."""
        ...


class Marks(ABC, Generic[C]):
    """High-water marks, and their changes by database transactions."""

    batches: bool
    """Whether several transactions can be applied in one database transaction."""

    def prepare(self, connection: C) -> None:
        """Check that this database can keep the marks. Raises ``ConfigError``."""

    @abstractmethod
    def read(self, connection: C, partition_id: int) -> Mark | None:
        """The mark of a partition."""

    @abstractmethod
    def insert(self, connection: C, partition_id: int) -> None:
        """Set it to -1 for the first time."""

    @abstractmethod
    def claim(self, connection: C, partition_id: int, first_id: int) -> str | None:
        """Hold the mark in this database transaction, if ``first_id`` is next; returns the claim for :meth:`finish`."""

    @abstractmethod
    def finish(self, connection: C, partition_id: int, first_id: int, claim: str, last: Mark) -> bool:
        """Set the mark to the last applied transaction; returns whether the claim was still in force."""


def marks_of(database: Database[C]) -> Marks[C]:
    """The marks of a database: by its table, or by the application's own statements."""
    for owner in type(database).__mro__:
        if owner is TableDatabase:
            return _TableMarks(cast("TableDatabase[C]", database).marks, database.errors)
        if not vars(owner).keys().isdisjoint(_STATEMENTS):
            break
    return _OwnMarks(database)


_SAVEPOINT = "waltz_apply"
"""A savepoint, which is gone when its database transaction is over."""

_STATEMENTS = ("read_mark", "insert_mark", "advance_mark", "move_mark")


class _TableMarks(Marks[C]):
    """Marks in a table, which show whether the database transaction that applies is the one that commits."""

    batches = True

    def __init__(self, table: MarkTable[C], errors: tuple[type[Exception], ...]) -> None:
        self._table = table
        self._errors = errors
        self._has_savepoints = False

    def prepare(self, connection: C) -> None:
        """Check the columns of the table, savepoints, and the effect of a rollback."""
        table = self._table
        table.look(connection)
        partition_id = -random.randrange(2, 1 << 31)  # a key of no partition and of no other check
        self.insert(connection, partition_id)
        self._has_savepoints = self._finds_savepoints(connection)
        connection.rollback()
        if self.read(connection, partition_id) is not None:
            table.delete(connection, _key(partition_id))
            raise ConfigError(
                f"the connections of the database commit each statement by themselves (what was rolled back is in "
                f"{table.name}), so that high-water marks and effects cannot change together: give connections that "
                "are not in autocommit mode"
            )

    def read(self, connection: C, partition_id: int) -> Mark | None:
        return self._table.read(connection, _key(partition_id))

    def insert(self, connection: C, partition_id: int) -> None:
        self._table.insert(connection, _key(partition_id), Mark(NO_TRANSACTION))

    def claim(self, connection: C, partition_id: int, first_id: int) -> str | None:
        claim = self._table.claim(connection, _key(partition_id), first_id - 1, first_id)
        if claim is not None and self._has_savepoints:
            self._table.execute(connection, f"SAVEPOINT {_SAVEPOINT}")
        return claim

    def finish(self, connection: C, partition_id: int, first_id: int, claim: str, last: Mark) -> bool:
        if self._has_savepoints and not self._released(connection):
            connection.rollback()
            self.read(connection, partition_id)  # if that succeeds, the connection was not the reason
            return False
        return self._table.finish(connection, _key(partition_id), first_id, claim, last)

    def _finds_savepoints(self, connection: C) -> bool:
        """Whether the use of a missing savepoint is an error, as after the end of its database transaction."""
        try:
            self._table.execute(connection, f"SAVEPOINT {_SAVEPOINT}")
        except self._errors:
            return False
        return self._released(connection) and not self._released(connection)

    def _released(self, connection: C) -> bool:
        try:
            self._table.execute(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except self._errors:
            return False
        return True


class _OwnMarks(Marks[C]):
    """Marks by the statements of an application's class.

    A class that overrides ``advance_mark`` may lack a fitting ``move_mark``: transactions are then applied one by one.
    """

    def __init__(self, database: Database[C]) -> None:
        self._database = database
        self._move: Callable[[C, int, int, int], bool] | None = None
        for owner in type(database).__mro__:
            if "move_mark" in vars(owner):
                self._move = database.move_mark  # type: ignore[attr-defined]  # it is there
                break
            if "advance_mark" in vars(owner):
                break
        self.batches = self._move is not None

    def read(self, connection: C, partition_id: int) -> Mark | None:
        mark = self._database.read_mark(connection, partition_id)
        return None if mark is None else Mark(mark)

    def insert(self, connection: C, partition_id: int) -> None:
        self._database.insert_mark(connection, partition_id)

    def claim(self, connection: C, partition_id: int, first_id: int) -> str | None:
        return "" if self._database.advance_mark(connection, partition_id, first_id) else None

    def finish(self, connection: C, partition_id: int, first_id: int, claim: str, last: Mark) -> bool:
        if last.transaction_id == first_id:
            return True
        assert self._move is not None
        return self._move(connection, partition_id, first_id, last.transaction_id)


class GuardedConnection:
    """A connection whose calls that would end its transaction are forbidden; all others pass through."""

    __slots__ = ("_waltz_connection",)

    def __init__(self, connection: object) -> None:
        object.__setattr__(self, "_waltz_connection", connection)

    def __getattr__(self, name: str) -> Any:
        if name in _FORBIDDEN:
            raise ForbiddenDatabaseCallError(name)
        return getattr(self._waltz_connection, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FORBIDDEN:
            raise ForbiddenDatabaseCallError(name)
        setattr(self._waltz_connection, name, value)

    def __enter__(self) -> Any:
        raise ForbiddenDatabaseCallError("with connection")

    def __exit__(self, *error: object) -> None:
        raise ForbiddenDatabaseCallError("with connection")


def _checked_table(table: str) -> str:
    if not _TABLE_NAME.fullmatch(table):
        raise ConfigError(f"not the name of a table: {table!r}")
    return table


class TableDatabase(Generic[C]):
    """The common part of the kinds of databases: a table of marks."""

    def __init__(self, table: str, execute: Execute[C]) -> None:
        columns = {"PARTITION_ID": "INTEGER NOT NULL"}
        self.marks = MarkTable(_checked_table(table), columns, tuple(columns), "HIGH_WATER_MARK", execute)

    def create_table(self, connection: C) -> None:
        self.marks.create(connection)

    def read_mark(self, connection: C, partition_id: int) -> int | None:
        mark = self.marks.read(connection, _key(partition_id))
        return None if mark is None else mark.transaction_id

    def insert_mark(self, connection: C, partition_id: int) -> None:
        self.marks.insert(connection, _key(partition_id), Mark(NO_TRANSACTION))

    def advance_mark(self, connection: C, partition_id: int, transaction_id: int) -> bool:
        return self.move_mark(connection, partition_id, transaction_id - 1, transaction_id)

    def move_mark(self, connection: C, partition_id: int, before: int, after: int) -> bool:
        """Set the mark of a partition to ``after`` if it is ``before``; returns whether it was.

        Raises the errors of the database.
        """
        return self.marks.move(connection, _key(partition_id), before, Mark(after))

    def guarded(self, connection: C) -> Any:
        return GuardedConnection(connection)


def _key(partition_id: int) -> dict[str, object]:
    return {"PARTITION_ID": partition_id}


class DbApiDatabase(TableDatabase[Any]):
    """A DB-API 2 module and a function that gives connections of it.

    ``connect`` may open a connection or take one from a pool; it is closed after each database transaction. It has to
    be in the usual mode, in which the first statement begins a database transaction. ``begin`` has the first statements
    of each database transaction, such as ``SET TRANSACTION ISOLATION LEVEL SERIALIZABLE``; thanks to the conditional
    update each transaction is applied exactly once at the lower levels, too.

    Examples:
        ```python
        from contextlib import closing

        database = waltz.DbApiDatabase(lambda: sqlite3.connect(f"{directory}/mails.sqlite"), sqlite3)
        with closing(database.connect()) as connection:  # when the application is set up
            database.create_table(connection)
            connection.commit()


        def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO mails VALUES (?)", (data.decode(),))


        async with waltz.connect(cluster) as client:
            await client.apply_to_database(database, apply, follow=False)  # what is committed by now
        ```
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        module: ModuleType,
        *,
        table: str = TABLE,
        begin: Sequence[str] = (),
    ) -> None:
        super().__init__(table, execute_with(module.paramstyle))
        self.errors: tuple[type[Exception], ...] = (cast("type[Exception]", module.Error),)
        self._open = connect
        self._begin = tuple(begin)

    def connect(self) -> Any:
        connection = self._open()
        try:
            for statement in self._begin:
                with closing(connection.cursor()) as cursor:
                    cursor.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection


def check_engine(alchemy: Any, engine: object) -> None:
    """Raise ``TypeError`` for anything but an engine of ``sqlalchemy.create_engine``, such as an asynchronous one."""
    if not isinstance(engine, alchemy.Engine):
        raise TypeError(
            f"the engine must be one that sqlalchemy.create_engine made, not {type(engine).__name__}: the database is "
            "used on threads beside the event loop, for which asynchronous engines are not. Make one for the same "
            "database, with a driver that is not asynchronous"
        )


class SqlAlchemyDatabase(TableDatabase[Any]):
    """A SQLAlchemy engine (2.0 or later); database transactions are serializable unless another level is given.

    Raises ``TypeError`` for asynchronous engines: ``apply`` is called on threads.

    Examples:
        ```python
        database = waltz.SqlAlchemyDatabase(sqlalchemy.create_engine(f"sqlite:///{directory}/mails.sqlite"))
        with database.connect() as connection:  # when the application is set up
            database.create_table(connection)
            connection.commit()


        def apply(transaction: waltz.Transaction, data: bytes, connection: sqlalchemy.Connection) -> None:
            connection.execute(sqlalchemy.text("INSERT INTO mails VALUES (:text)"), {"text": data.decode()})


        async with waltz.connect(cluster) as client:
            await client.apply_to_database(database, apply, follow=False)  # what is committed by now
        ```
    """

    def __init__(self, engine: Any, *, table: str = TABLE, isolation_level: str = "SERIALIZABLE") -> None:
        sqlalchemy = importlib.import_module("sqlalchemy")  # an optional dependency of the application
        check_engine(sqlalchemy, engine)
        super().__init__(table, execute_text(sqlalchemy))
        self.errors: tuple[type[Exception], ...] = (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError)
        self._engine = engine.execution_options(isolation_level=isolation_level)

    def connect(self) -> Any:
        return self._engine.connect()
