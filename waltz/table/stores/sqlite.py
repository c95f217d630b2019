"""Rows in a file of SQLite, which comes with Python and has no limit on keys."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from waltz.table.errors import StoreDamagedError, StoreError
from waltz.table.stores.engine import Engine, Space

FILE_NAME = "rows.sqlite"
_CACHE_KIB = 64 << 10


class SqliteEngine(Engine):
    """One table for each space, ordered by its primary key.

    The file is consistent after every crash; after a crash of the machine the last write may be missing.
    """

    def __init__(self, directory: Path) -> None:
        """Open, or create, the file in the directory. Raises ``StoreError``."""
        try:
            self._connection = sqlite3.connect(directory / FILE_NAME, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _translated(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise _translated(error) from error

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=NORMAL")
        execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        for space in Space:
            execute(
                f"CREATE TABLE IF NOT EXISTS {space.name} "
                "(key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID"
            )

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        execute = self._connection.execute
        select = f"SELECT value FROM {space.name} WHERE key = ?"  # noqa: S608 - names of our own
        try:
            found = [execute(select, (key,)).fetchone() for key in keys]
        except sqlite3.Error as error:
            raise _translated(error) from error
        return [None if row is None else row[0] for row in found]

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        below, bounds = ("", (start,)) if end is None else (" AND key < ?", (start, end))
        order = "DESC" if reverse else "ASC"
        select = f"SELECT key, value FROM {space.name} WHERE key >= ?{below} ORDER BY key {order} LIMIT {limit:d}"  # noqa: S608
        try:
            return self._connection.execute(select, bounds).fetchall()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        by_space: dict[Space, list[tuple[bytes, bytes]]] = {space: [] for space in Space}
        for space, key, value in puts:
            by_space[space].append((key, value))
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for space, entries in by_space.items():
                    replace = f"INSERT OR REPLACE INTO {space.name} VALUES (?, ?)"  # noqa: S608 - names of our own
                    connection.executemany(replace, entries)
                for space, key in deletes:
                    connection.execute(f"DELETE FROM {space.name} WHERE key = ?", (key,))  # noqa: S608
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _translated(error) from error

    def close(self) -> None:
        self._connection.close()


def _translated(error: sqlite3.Error) -> StoreError:
    """Full disks and the like are no damage."""
    harmless = isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.InterfaceError)
    return StoreError(f"SQLite: {error}") if harmless else StoreDamagedError(f"SQLite: {error}")
