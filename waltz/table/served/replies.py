"""What view nodes answer, read with all checks: whatever else comes is refused as ``ViewUnavailableError``. Pure."""

from waltz.client.errors import NotAuthorizedError
from waltz.common.ids import NO_TRANSACTION
from waltz.table.errors import TableError, ViewUnavailableError
from waltz.table.rows import TableRow
from waltz.table.served.texts import Fields, MessageError, bytes_of, integer_of, row_of


def check_end(end: Fields) -> None:
    """Raise for an end of a watch after which another one would end in the same way."""
    if end.get("reason") == "forbidden":
        raise NotAuthorizedError(str(end.get("detail")))
    if end.get("reason") == "failed":
        raise TableError(f"a view node cannot go on with its watch: {end.get('detail')}")


def foreign(what: str) -> ViewUnavailableError:
    """The error for an answer that is none of a view node."""
    return ViewUnavailableError(f"a view node has answered with {what}")


def fields_of(value: object) -> Fields:
    """An object."""
    if not isinstance(value, dict):
        raise foreign("something else than an object")
    return value


def number_of(value: object) -> int:
    """A transaction id or a number of rows."""
    try:
        return integer_of(value, "a number", NO_TRANSACTION)
    except MessageError as error:
        raise foreign(str(error)) from error


def bytes_in(fields: Fields, name: str) -> bytes:
    """Bytes of an object."""
    try:
        return bytes_of(fields.get(name), name)
    except MessageError as error:
        raise foreign(str(error)) from error


def rows_in(fields: Fields, prefix: bytes | None) -> list[TableRow]:
    """The rows of a transaction, or those of a prefix."""
    listed = fields.get("rows", [])
    if not isinstance(listed, list):
        raise foreign("rows that are no list")
    return [row for row in map(row_in, listed) if prefix is None or row.prefix == prefix]


def row_in(value: object) -> TableRow:
    """A row."""
    try:
        return row_of(value)
    except MessageError as error:
        raise foreign(str(error)) from error
