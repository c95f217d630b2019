"""A table of marks in a database: the progress in each partition, with the request id of the last transaction.

The statements are plain SQL; an :data:`Execute` runs them, with a DB-API module or with SQLAlchemy. Tables of former
versions lack the column :data:`LAST`: they are read and moved, too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import uuid4

from waltz.common.ids import ReqId

C = TypeVar("C")

Key = Mapping[str, object]
"""The values of the key's columns."""

LAST = "LAST_TRANSACTION"
"""The column that identifies a mark's transaction: its id and its request id, or a claim.

The id is there because programs of former versions move the mark without this column.
"""

_LAST_TYPE = "VARCHAR(80)"
_CLAIMS = "~%"
_PARAMETER = re.compile(r":(\w+)")


class Mark(NamedTuple):
    """The last transaction that is done."""

    transaction_id: int
    request_id: bytes = b""
    """Request id of the transaction; empty if it is not known."""
    claimed: bool = False
    """Whether a database transaction that its caller was to end was committed in the middle by other code."""


class Answer(NamedTuple):
    """The result of a statement."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    changed: int
    """Number of changed rows."""


Execute = Callable[[C, str, Mapping[str, object]], Answer]
"""Executes a statement, in which ``:name`` is the place of a value."""


class MarkTable(Generic[C]):
    """The statements about one table of marks."""

    def __init__(
        self, name: str, columns: Mapping[str, str], primary_key: Sequence[str], mark: str, execute: Execute[C]
    ) -> None:
        """``columns`` are the key's columns with their types, and ``mark`` is the column of the mark.

        ``primary_key`` may have fewer columns than the key.
        """
        self.name = name
        self.knows_last = True
        """Whether the table has the column :data:`LAST`; :meth:`look` finds out."""
        self._columns = columns
        self._primary_key = primary_key
        self._mark = mark
        self._execute = execute

    def execute(self, connection: C, statement: str) -> None:
        """Execute another statement on such a connection."""
        self._execute(connection, statement, {})

    def create(self, connection: C) -> None:
        """Create or complete the table, unless that has been done."""
        columns = {**self._columns, self._mark: "BIGINT NOT NULL", LAST: _LAST_TYPE}
        defined = [f"{name} {kind}" for name, kind in columns.items()]
        defined.append(f"PRIMARY KEY ({', '.join(self._primary_key)})")
        self._execute(connection, f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(defined)})", {})
        self.complete(connection)

    def complete(self, connection: C) -> None:
        """Add the column :data:`LAST` to a table of a former version."""
        if not self.look(connection):
            self._execute(connection, f"ALTER TABLE {self.name} ADD {LAST} {_LAST_TYPE}", {})
            self.knows_last = True

    def look(self, connection: C) -> bool:
        """Whether the table is complete."""
        columns = self._execute(connection, f"SELECT * FROM {self.name} WHERE 1 = 0", {}).columns  # noqa: S608
        self.knows_last = LAST in map(str.upper, columns)
        return self.knows_last

    def read(self, connection: C, key: Key) -> Mark | None:
        """The mark of a key."""
        marks = self.read_all(connection, key)
        return marks[0][-1] if marks else None

    def read_all(self, connection: C, key: Key, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """The marks of all rows with these key values, by the values of these columns."""
        last = [LAST] if self.knows_last else []
        names = ", ".join([*columns, self._mark, *last])
        statement = f"SELECT {names} FROM {self.name} WHERE {_where(key)}"  # noqa: S608
        width = len(columns)
        return [
            (*row[:width], _mark(int(row[width]), row[width + 1] if last else None))
            for row in self._execute(connection, statement, key).rows
        ]

    def insert(self, connection: C, key: Key, mark: Mark) -> None:
        """Insert a mark; the database raises its own error if there is one."""
        values = {**key, self._mark: mark.transaction_id}
        if self.knows_last:
            values[LAST] = _last(mark)
        names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        self._execute(connection, f"INSERT INTO {self.name} ({names}) VALUES ({places})", values)  # noqa: S608

    def delete(self, connection: C, key: Key) -> None:
        """Remove marks."""
        self._execute(connection, f"DELETE FROM {self.name} WHERE {_where(key)}", key)  # noqa: S608

    def move(self, connection: C, key: Key, before: int, after: Mark) -> bool:
        """Set a mark to ``after`` if it is ``before``; returns whether it was."""
        return self._move(connection, key, before, after.transaction_id, _last(after), "", {})

    def claim(self, connection: C, key: Key, before: int, first_id: int) -> str | None:
        """Set a mark to the first of the transactions that are about to be applied, if it is ``before``.

        Returns the claim that :meth:`finish` has to find, unique to this database transaction; ``None`` if the mark is
        another one, or claimed by a database transaction that did not come to its end.
        """
        claim = f"~{uuid4().hex}"
        unclaimed = f" AND ({LAST} IS NULL OR {LAST} NOT LIKE :claims)" if self.knows_last else ""
        moved = self._move(connection, key, before, first_id, claim, unclaimed, {"claims": _CLAIMS})
        return claim if moved else None

    def finish(self, connection: C, key: Key, first_id: int, claim: str, after: Mark) -> bool:
        """Set a claimed mark to the last transaction that was applied; returns whether the claim was still there."""
        if not self.knows_last:
            return after.transaction_id == first_id or self.move(connection, key, first_id, after)
        claimed = f" AND {LAST} = :claim"
        return self._move(connection, key, first_id, after.transaction_id, _last(after), claimed, {"claim": claim})

    def _move(
        self, connection: C, key: Key, before: int, after: int, last: str | None, condition: str, more: Key
    ) -> bool:
        values = {**key, "after": after, "before": before}
        changed = f"{self._mark} = :after"
        if self.knows_last:
            changed += f", {LAST} = :last"
            values.update(last=last, **more)
        where = f"{_where(key)} AND {self._mark} = :before{condition}"
        return self._execute(connection, f"UPDATE {self.name} SET {changed} WHERE {where}", values).changed == 1  # noqa: S608


def bound(style: str, statement: str, values: Mapping[str, object]) -> tuple[Any, ...]:
    """A statement with the placeholders of a DB-API module (its ``paramstyle``), and its values."""
    if not values:
        return (statement,)
    if style == "named":
        return statement, dict(values)
    names = _PARAMETER.findall(statement)
    numbers = iter(range(1, len(names) + 1))
    match style:
        case "qmark":
            text = _PARAMETER.sub("?", statement)
        case "numeric":
            text = _PARAMETER.sub(lambda _: f":{next(numbers)}", statement)
        case _:
            text = _PARAMETER.sub("%s", statement)
    return text, tuple(values[name] for name in names)


def execute_with(style: str) -> Execute[Any]:
    """Executes statements with cursors of a DB-API module with this ``paramstyle``."""

    def execute(connection: Any, statement: str, values: Mapping[str, object]) -> Answer:
        cursor = connection.cursor()
        try:
            cursor.execute(*bound(style, statement, values))
            described = cursor.description or ()
            return Answer([each[0] for each in described], cursor.fetchall() if described else (), cursor.rowcount)
        finally:
            cursor.close()

    return execute


def execute_text(alchemy: Any) -> Execute[Any]:
    """Executes statements on connections of SQLAlchemy; ``alchemy`` is its module."""
    text = alchemy.text

    def execute(connection: Any, statement: str, values: Mapping[str, object]) -> Answer:
        if hasattr(connection, "run_sync"):
            raise TypeError(
                f"a {type(connection).__name__} is asynchronous; with a connection of that kind the call is "
                "`await connection.run_sync(positions.advance, records)`"
            )
        result = connection.execute(text(statement), dict(values))
        if result.returns_rows:
            return Answer(list(result.keys()), result.fetchall(), -1)
        return Answer((), (), result.rowcount)

    return execute


def _where(key: Key) -> str:
    return " AND ".join(f"{name} = :{name}" for name in key)


def _last(mark: Mark) -> str | None:
    return f"{mark.transaction_id}:{mark.request_id.hex()}" if mark.request_id else None


def _mark(transaction_id: int, last: str | None) -> Mark:
    if last is None:
        return Mark(transaction_id)
    if last.startswith(_CLAIMS[0]):
        return Mark(transaction_id, claimed=True)
    number, _, request_id = last.partition(":")
    return Mark(transaction_id, request_id_of(request_id) if number == str(transaction_id) else b"")


def request_id_of(text: object) -> bytes:
    """A request id that was stored as hexadecimal digits; empty for what is none."""
    if not isinstance(text, str) or len(text) != 2 * ReqId.SIZE_BYTES:
        return b""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
