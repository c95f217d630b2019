"""The databases that :mod:`waltz.client.database` works on: any DB-API 2 module, and any SQLAlchemy engine."""

import importlib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

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
        "executescript",  # of sqlite3: it commits first
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
    """What DB-API and SQLAlchemy connections have in common."""

    def commit(self) -> None:
        """Commit."""
        ...

    def rollback(self) -> None:
        """Roll back."""
        ...

    def close(self) -> None:
        """Close, or give back to its pool."""
        ...


class ForbiddenDatabaseCallError(ClientError):
    """The application tried to end, or to bend, the database transaction in which it applies a transaction."""

    def __init__(self, method_name: str) -> None:
        super().__init__(f"{method_name} is not allowed while a transaction is being applied")
        self.method_name = method_name


class Database(Protocol[C]):
    """The statements about high-water marks."""

    errors: tuple[type[Exception], ...]
    """What the database raises: worth another attempt."""

    def connect(self) -> C:
        """A connection at the beginning of a database transaction."""
        ...

    def create_table(self, connection: C) -> None:
        """Create the table, unless it is there."""
        ...

    def read_mark(self, connection: C, partition_id: int) -> int | None:
        """The high-water mark."""
        ...

    def insert_mark(self, connection: C, partition_id: int) -> None:
        """Set it to -1 for the first time."""
        ...

    def advance_mark(self, connection: C, partition_id: int, transaction_id: int) -> bool:
        """Set it to ``transaction_id`` if it is the one before; whether that was so."""
        ...

    def guarded(self, connection: C) -> C:
        """The connection for the application."""
        ...


def batch_mover(database: Database[C]) -> "Callable[[C, int, int, int], bool] | None":
    """What sets a mark from a first to a last transaction: ``move_mark(connection, partition_id, before, after)``.

    ``None`` where there is none, or where it cannot know what it has to do: a class that changes ``advance_mark`` and
    inherits ``move_mark``. Transactions are applied one by one there.
    """
    for owner in type(database).__mro__:
        if "move_mark" in vars(owner):
            mover: Callable[[C, int, int, int], bool] = database.move_mark  # type: ignore[attr-defined]  # it is there
            return mover
        if "advance_mark" in vars(owner):
            return None
    return None


class GuardedConnection:
    """A connection without what would end its transaction; everything else passes through."""

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


class DbApiDatabase:
    """A DB-API 2 module and a function that gives connections of it.

    ``connect`` may open a connection or take one from a pool; it is closed after each database transaction. It has to
    be in the usual mode, where the first statement begins a database transaction. ``begin`` are statements to be
    executed first in each, such as ``SET TRANSACTION ISOLATION LEVEL SERIALIZABLE``; thanks to the conditional update
    each transaction is applied exactly once at the lower levels, too.

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
        self.errors: tuple[type[Exception], ...] = (cast("type[Exception]", module.Error),)
        self._open = connect
        self._table = _checked_table(table)
        self._begin = tuple(begin)
        self._style: str = module.paramstyle

    def connect(self) -> Any:
        connection = self._open()
        try:
            for statement in self._begin:
                self._execute(connection, statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def create_table(self, connection: Any) -> None:
        self._execute(connection, _create_table(self._table))

    def read_mark(self, connection: Any, partition_id: int) -> int | None:
        statement = f"SELECT HIGH_WATER_MARK FROM {self._table} WHERE PARTITION_ID = {{}}"  # noqa: S608  # a checked name
        cursor = connection.cursor()
        try:
            cursor.execute(*self._bound(statement, partition_id))
            row = cursor.fetchone()
        finally:
            cursor.close()
        return None if row is None else int(row[0])

    def insert_mark(self, connection: Any, partition_id: int) -> None:
        statement = f"INSERT INTO {self._table} (PARTITION_ID, HIGH_WATER_MARK) VALUES ({{}}, {{}})"  # noqa: S608  # a checked name
        self._execute(connection, statement, partition_id, NO_TRANSACTION)

    def advance_mark(self, connection: Any, partition_id: int, transaction_id: int) -> bool:
        return self.move_mark(connection, partition_id, transaction_id - 1, transaction_id)

    def move_mark(self, connection: Any, partition_id: int, before: int, after: int) -> bool:
        """Set the mark of a partition to ``after`` if it is ``before``; returns whether it was.

        Raises what the database raises.
        """
        statement = (
            f"UPDATE {self._table} SET HIGH_WATER_MARK = {{}} "  # noqa: S608  # a checked name
            "WHERE PARTITION_ID = {} AND HIGH_WATER_MARK = {}"
        )
        return self._execute(connection, statement, after, partition_id, before) == 1

    def guarded(self, connection: Any) -> Any:
        return GuardedConnection(connection)

    def _execute(self, connection: Any, statement: str, *values: int) -> int:
        cursor = connection.cursor()
        try:
            cursor.execute(*self._bound(statement, *values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def _bound(self, statement: str, *values: int) -> tuple[Any, ...]:
        """The statement with the place-holders of the module, and its values."""
        if not values:
            return (statement,)
        names = [f"p{number}" for number in range(1, len(values) + 1)]
        match self._style:
            case "qmark":
                return statement.format(*("?" for _ in values)), values
            case "numeric":
                return statement.format(*(f":{number}" for number in range(1, len(values) + 1))), values
            case "named":
                return statement.format(*(f":{name}" for name in names)), dict(zip(names, values, strict=True))
            case _:
                return statement.format(*("%s" for _ in values)), values


def check_engine(alchemy: Any, engine: object) -> None:
    """Raises ``TypeError`` for what is no engine of ``sqlalchemy.create_engine``, such as an asynchronous one."""
    if not isinstance(engine, alchemy.Engine):
        raise TypeError(
            f"the engine must be one that sqlalchemy.create_engine made, not {type(engine).__name__}: the database is "
            "used on threads beside the event loop, for which asynchronous engines are not. Make one for the same "
            "database, with a driver that is not asynchronous"
        )


class SqlAlchemyDatabase:
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
        sqlalchemy = importlib.import_module("sqlalchemy")  # an optional dependency, which the application has
        check_engine(sqlalchemy, engine)
        self.errors: tuple[type[Exception], ...] = (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError)
        self._engine = engine.execution_options(isolation_level=isolation_level)
        self._text = sqlalchemy.text
        self._table = _checked_table(table)

    def connect(self) -> Any:
        return self._engine.connect()

    def create_table(self, connection: Any) -> None:
        connection.execute(self._text(_create_table(self._table)))

    def read_mark(self, connection: Any, partition_id: int) -> int | None:
        statement = f"SELECT HIGH_WATER_MARK FROM {self._table} WHERE PARTITION_ID = :partition"  # noqa: S608  # a checked name
        row = connection.execute(self._text(statement), {"partition": partition_id}).fetchone()
        return None if row is None else int(row[0])

    def insert_mark(self, connection: Any, partition_id: int) -> None:
        statement = f"INSERT INTO {self._table} (PARTITION_ID, HIGH_WATER_MARK) VALUES (:partition, :mark)"  # noqa: S608  # a checked name
        connection.execute(self._text(statement), {"partition": partition_id, "mark": NO_TRANSACTION})

    def advance_mark(self, connection: Any, partition_id: int, transaction_id: int) -> bool:
        return self.move_mark(connection, partition_id, transaction_id - 1, transaction_id)

    def move_mark(self, connection: Any, partition_id: int, before: int, after: int) -> bool:
        """Set the mark of a partition to ``after`` if it is ``before``; returns whether it was.

        Raises what the database raises.
        """
        statement = (
            f"UPDATE {self._table} SET HIGH_WATER_MARK = :after "  # noqa: S608  # a checked name
            "WHERE PARTITION_ID = :partition AND HIGH_WATER_MARK = :before"
        )
        values = {"after": after, "partition": partition_id, "before": before}
        return int(connection.execute(self._text(statement), values).rowcount) == 1

    def guarded(self, connection: Any) -> Any:
        return GuardedConnection(connection)


def _create_table(table: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {table} "
        "(PARTITION_ID INTEGER NOT NULL PRIMARY KEY, HIGH_WATER_MARK BIGINT NOT NULL)"
    )
