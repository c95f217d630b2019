"""Bytes, versions and rows in JSON. Pure.

Bytes that are text in UTF-8 are a string, others an object: ``{"base64": "AP8="}``. Text has no control characters but
tabs and ends of lines: in JSON each would take six bytes. Readers accept both forms of any bytes.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from waltz.common.metrics.registry import Json
from waltz.table.rows import TableRow, Version

Fields: TypeAlias = Mapping[str, object]
"""A JSON object that was read."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_LONG_MAX = (1 << 63) - 1


class MessageError(ValueError):
    """A message has another form than it should have."""


def text_of(data: bytes | None) -> Json:
    """Bytes in JSON; null is null."""
    if data is None:
        return None
    try:
        text = None if _CONTROL.search(data) else data.decode()
    except UnicodeDecodeError:
        text = None
    return {"base64": base64.b64encode(data).decode()} if text is None else text


def bytes_of(value: object, name: str) -> bytes:
    """Bytes from JSON. Raises :class:`MessageError`, which names the value."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
            return base64.b64decode(value["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        pass
    raise MessageError(f'{name} must be text, or {{"base64": "..."}}')


def integer_of(value: object, name: str, low: int = 0, high: int = _LONG_MAX) -> int:
    """An integer within bounds. Raises :class:`MessageError`."""
    if type(value) is not int or not low <= value <= high:
        raise MessageError(f"{name} must be an integer from {low} to {high}")
    return value


def truth_of(value: object, name: str) -> bool:
    """True or false. Raises :class:`MessageError`."""
    if not isinstance(value, bool):
        raise MessageError(f"{name} must be true or false")
    return value


def object_of(value: object, name: str, known: Iterable[str]) -> Fields:
    """An object with no other than ``known`` fields. Raises :class:`MessageError`."""
    if not isinstance(value, dict):
        raise MessageError(f"{name} must be an object")
    unknown = sorted(value.keys() - set(known))
    if unknown:
        raise MessageError(f"{name} has no field {unknown[0][:40]!r}")
    return value


def parsed(data: bytes | str) -> object:
    """The JSON of a body. Raises :class:`MessageError`."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        raise MessageError("the body is no JSON") from None
    return found


def line_of(message: Json) -> bytes:
    """A message as a line of JSON, with its end."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def version_text(version: Version) -> str:
    """A version as text: ``12.0`` is the first row of transaction 12."""
    return f"{version.transaction_id}.{version.row}"


def version_of(value: object, name: str) -> Version:
    """A version from its text. Raises :class:`MessageError`."""
    first, dot, second = value.partition(".") if isinstance(value, str) else ("", "", "")
    if dot and all(part.isascii() and part.isdigit() and len(part) < 20 for part in (first, second)):
        return Version(int(first), int(second))
    raise MessageError(f'{name} must be a version such as "12.0"')


def row_text(row: TableRow) -> dict[str, Json]:
    """A row in JSON."""
    found: dict[str, Json] = {
        "prefix": text_of(row.prefix),
        "key": text_of(row.key),
        "value": text_of(row.value),
        "version": version_text(row.version),
        "timestamp_ms": row.timestamp_ms,
        "written_at_ms": row.written_at_ms,
    }
    if row.tombstone:
        found["tombstone"] = True
    return found


def row_of(value: object) -> TableRow:
    """A row from JSON. Raises :class:`MessageError`."""
    known = ("prefix", "key", "value", "version", "timestamp_ms", "written_at_ms", "tombstone")
    fields = object_of(value, "a row", known)
    least = -_LONG_MAX - 1
    return TableRow(
        bytes_of(fields.get("prefix"), "prefix"),
        bytes_of(fields.get("key"), "key"),
        None if fields.get("value") is None else bytes_of(fields["value"], "value"),
        integer_of(fields.get("timestamp_ms"), "timestamp_ms", least),
        version_of(fields.get("version"), "version"),
        integer_of(fields.get("written_at_ms"), "written_at_ms", least),
        truth_of(fields.get("tombstone", False), "tombstone"),
    )
