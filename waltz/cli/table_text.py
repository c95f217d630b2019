"""Rows of tables as text: in arguments, on the terminal, and in files of JSON lines and CSV. Pure.

Bytes are written as text if they are UTF-8. Other bytes, and text that begins like the following forms, are written in
Base64 after ``base64:``, or in hexadecimal digits after ``hex:``. So the text alone is enough for a reader.
"""

import base64
import binascii
import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from waltz.common.errors import WaltzError
from waltz.table.envelope import Row
from waltz.table.rows import TableRow

ENCODINGS = ("utf-8", "base64", "hex")
FORMATS = ("jsonl", "csv")

_BASE64, _HEX = "base64:", "hex:"
_COLUMNS = ("prefix", "key", "value", "timestamp", "tombstone", "null")
_BOOLEANS = {"true": True, "false": False, "": False}


class TextError(WaltzError):
    """A line of a file, or an argument, is malformed."""


class NumberedRow(NamedTuple):
    """A row of a file."""

    line: int
    """Number of its last line, counted from 1."""
    row: Row


def to_text(data: bytes, encoding: str = "utf-8", *, printable: bool = False) -> str:
    """Bytes as text. With ``printable``, text that a terminal would change is written in Base64, too."""
    if encoding == "hex":
        return _HEX + data.hex()
    if encoding == "utf-8":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if not text.startswith((_BASE64, _HEX)) and (text.isprintable() or not printable):
                return text
    return _BASE64 + base64.b64encode(data).decode()


def to_bytes(text: str) -> bytes:
    """The bytes of a text of :func:`to_text`.

    Raises:
        TextError: The text cannot be decoded.
    """
    try:
        if text.startswith(_HEX):
            return bytes.fromhex(text.removeprefix(_HEX))
        if text.startswith(_BASE64):
            return base64.b64decode(text.removeprefix(_BASE64), validate=True)
        return text.encode()
    except UnicodeEncodeError:
        raise TextError(f"{text!r} is not Unicode text; write the bytes as {_BASE64}... or {_HEX}...") from None
    except (ValueError, binascii.Error) as error:
        raise TextError(f"{text[:100]!r} cannot be decoded: {error}") from None


def to_json(row: TableRow, encoding: str = "utf-8") -> str:
    """A row as one line of JSON."""
    fields = {
        "prefix": to_text(row.prefix, encoding) if row.prefix else "",
        "key": to_text(row.key, encoding),
        "value": None if row.value is None else to_text(row.value, encoding),
        "timestamp": row.timestamp_ms,
        "tombstone": row.tombstone,
        "transaction_id": row.version.transaction_id,
        "row": row.version.row,
        "written_at": row.written_at_ms,
    }
    return json.dumps(fields, ensure_ascii=False)


def to_line(row: TableRow, encoding: str = "utf-8") -> str:
    """A row as a line of text: prefix, key and value, separated by tabs."""
    value = "(null)" if row.value is None else to_text(row.value, encoding, printable=True)
    prefix, key = (to_text(part, encoding, printable=True) if part else "" for part in (row.prefix, row.key))
    return f"{prefix}\t{key}\t{'(deleted)' if row.tombstone else value}"


def row_writer(file: IO[str], file_format: str, encoding: str = "utf-8") -> Callable[[TableRow], object]:
    """A writer of rows in one of the :data:`FORMATS`; CSV begins with the names of its columns."""
    if file_format == "jsonl":
        return lambda row: file.write(to_json(row, encoding) + "\n")
    writer = csv.writer(file)
    writer.writerow(_COLUMNS)
    return lambda row: writer.writerow(
        (
            to_text(row.prefix, encoding) if row.prefix else "",
            to_text(row.key, encoding),
            "" if row.value is None else to_text(row.value, encoding),
            row.timestamp_ms,
            str(row.tombstone).lower(),
            str(row.value is None and not row.tombstone).lower(),
        )
    )


def read_rows(lines: Iterable[str], file_format: str) -> Iterator[NumberedRow]:
    """Read the rows of a file in one of the :data:`FORMATS`; ``lines`` have their line breaks.

    Raises:
        TextError: A line is malformed; the text names the line. The rows before it were yielded.
    """
    return _read_json_lines(lines) if file_format == "jsonl" else _read_csv(lines)


class _Line(BaseModel):
    """A line of JSON. The row's place in a log is optional, and is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str
    prefix: str = ""
    value: str | None = None
    timestamp: int | None = None
    tombstone: bool = False
    transaction_id: int | None = None
    row: int | None = None
    written_at: int | None = None


def _read_json_lines(lines: Iterable[str]) -> Iterator[NumberedRow]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _Line.model_validate_json(text)
            row = _row(line.prefix, line.key, line.value, line.timestamp, line.tombstone)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise TextError(f"line {number}: {where}{': ' if where else ''}{problem['msg']}") from None
        except TextError as error:
            raise TextError(f"line {number}: {error}") from None
        yield NumberedRow(number, row)


def _read_csv(lines: Iterable[str]) -> Iterator[NumberedRow]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(lines, strict=True)
    names = tuple(reader.fieldnames or ())
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown or "key" not in names or len(set(names)) < len(names):
        raise TextError(
            f"line 1: the columns are {', '.join(_COLUMNS)}, each once, with at least the key; not {', '.join(names)}"
        )
    while True:
        try:
            fields = next(reader, None)
            if fields is None:
                return
            row = _csv_row(fields)
        except (csv.Error, TextError) as error:
            raise TextError(f"line {reader.reader.line_num}: {error}") from None
        yield NumberedRow(reader.line_num, row)


def _field_count(values: Iterable[object]) -> int:
    """The number of fields of a line from the CSV reader; its values are ``None`` for a missing field, and a list for
    surplus ones."""
    return sum(len(value) if isinstance(value, list) else value is not None for value in values)


def _csv_row(fields: dict[str, str]) -> Row:
    expected, found = len(fields) - (None in fields), _field_count(fields.values())
    if found != expected:
        raise TextError(f"expected {expected} fields, found {found}")
    flags = {name: _BOOLEANS.get(fields.get(name, "")) for name in ("tombstone", "null")}
    for name, flag in flags.items():
        if flag is None:
            raise TextError(f"{name}: true or false, not {fields[name]!r}")
    try:
        timestamp_ms = int(text) if (text := fields.get("timestamp", "")) else None
    except ValueError:
        raise TextError(f"timestamp: milliseconds since the epoch, not {text!r}") from None
    value = fields.get("value", "")
    nothing = flags["null"] or "value" not in fields or (flags["tombstone"] and not value)
    return _row(
        fields.get("prefix", ""), fields["key"], None if nothing else value, timestamp_ms, flags["tombstone"] is True
    )


def _row(prefix: str, key: str, value: str | None, timestamp_ms: int | None, tombstone: bool) -> Row:
    if tombstone and value is not None:
        raise TextError("a tombstone has no value")
    return Row(to_bytes(prefix), to_bytes(key), None if value is None else to_bytes(value), timestamp_ms, tombstone)
