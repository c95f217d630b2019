"""The requests of the interface of view nodes: read from JSON with all checks, and written. Pure.

Everything that a caller can make long has a limit.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import Json
from waltz.table.envelope import Row
from waltz.table.errors import EnvelopeError
from waltz.table.leases import MAX_DURATION_MS, MAX_HOLDER_CHARACTERS, MIN_DURATION_MS
from waltz.table.rows import Version
from waltz.table.served.texts import (
    MessageError,
    bytes_of,
    integer_of,
    object_of,
    text_of,
    truth_of,
    version_of,
    version_text,
)
from waltz.table.view import KeyRange

MAX_KEYS = 1000
"""Most keys of one get."""
MAX_RANGES = 100
"""Most ranges of one scan."""
MAX_ROWS = 10_000
"""Most rows of one batch, and most conditions."""
MAX_TAKEN = 10_000
"""Most rows of one take, but for those of its last transaction."""
DEFAULT_TAKEN = 1000
MAX_PARAMETERS = 16
"""Most parameters of a URL."""
MAX_TOKEN_CHARACTERS = 1 << 20

MAX_TIMEOUT_MS = 60_000
DEFAULT_TIMEOUT_MS = 10_000


class ReadMode(NamedTuple):
    """What a read demands of the view, and until when."""

    at_least: int = NO_TRANSACTION
    """The view has applied this transaction."""
    fresh: bool = False
    """The view has applied all that was committed before the request."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    consistency: str | None = None
    """The level of the read, by its name."""
    stale_ok_ms: int | None = None
    """When the view does not have that in so many milliseconds, the answer is of what it has."""

    def query(self) -> dict[str, str]:
        """The mode as parameters of a URL."""
        found = {"timeout_ms": str(self.timeout_ms)}
        if self.fresh:
            found["fresh"] = "true"
        if self.at_least > NO_TRANSACTION:
            found["at_least"] = str(self.at_least)
        if self.consistency is not None:
            found["consistency"] = self.consistency
        if self.stale_ok_ms is not None:
            found["stale_ok_ms"] = str(self.stale_ok_ms)
        return found


class GetQuestion(NamedTuple):
    """Rows to get, all of one state."""

    pairs: Sequence[tuple[bytes, bytes]]
    """Prefixes and keys."""
    raw: bool = False

    def message(self) -> Json:
        """The question in JSON."""
        found: dict[str, Json] = {"raw": self.raw}
        if len({prefix for prefix, _ in self.pairs}) == 1:
            found["prefix"] = text_of(self.pairs[0][0])
            found["keys"] = [text_of(key) for _, key in self.pairs]
        else:
            found["rows"] = [{"prefix": text_of(prefix), "key": text_of(key)} for prefix, key in self.pairs]
        return found


class Place(NamedTuple):
    """Where a scan has ended: the paging token."""

    log: str
    """The log of the view; a page of another log would be of another table."""
    applied: int
    """What the view had applied; the next page is not of an older state."""
    range_index: int
    key: bytes
    """The last joined key."""

    def token(self) -> str:
        """The place as text for a URL."""
        fields = [self.log, self.applied, self.range_index, base64.b64encode(self.key).decode()]
        return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()


class Bounds(NamedTuple):
    """A range of joined keys, with its place among the ranges of a scan."""

    range_index: int
    start: bytes
    end: bytes | None
    """``None`` is open."""


class ScanQuestion(NamedTuple):
    """Ranges of keys; ``None`` is the whole table."""

    ranges: Sequence[KeyRange] | None = None
    reverse: bool = False
    limit: int | None = None
    raw: bool = False
    keys_only: bool = False
    after: Place | None = None
    """The end of the page before."""

    def message(self) -> Json:
        """The question in JSON."""
        found: dict[str, Json] = {"reverse": self.reverse, "raw": self.raw, "keys_only": self.keys_only}
        if self.ranges is not None:
            found["ranges"] = [_range_text(each) for each in self.ranges]
        if self.limit is not None:
            found["limit"] = self.limit
        if self.after is not None:
            found["token"] = self.after.token()
        return found

    def bounds(self) -> Iterator[Bounds]:
        """The ranges that are left after :attr:`after`, as joined keys."""
        pairs: list[tuple[bytes, bytes | None]]
        pairs = [(b"", None)] if self.ranges is None else [each.bounds() for each in self.ranges]
        first = 0 if self.after is None else self.after.range_index
        for index, (start, end) in enumerate(pairs):
            if index < first:
                continue
            if self.after is not None and index == first:
                if self.reverse:
                    end = self.after.key if end is None else min(end, self.after.key)
                else:
                    start = max(start, self.after.key + b"\x00")
            yield Bounds(index, start, end)


class TakeQuestion(NamedTuple):
    """Rows in the order of the log."""

    after: int
    limit: int = DEFAULT_TAKEN
    prefix: bytes | None = None

    def query(self) -> dict[str, str | bytes]:
        """The question as parameters of a URL."""
        found: dict[str, str | bytes] = {"after": str(self.after), "limit": str(self.limit)}
        if self.prefix is not None:
            found["prefix"] = self.prefix
        return found


class Condition(NamedTuple):
    """The version that a row must have; ``None``: readers must see no row."""

    prefix: bytes
    key: bytes
    version: Version | None


class WriteQuestion(NamedTuple):
    """Rows to write together, if all conditions hold."""

    rows: Sequence[Row]
    conditions: Sequence[Condition] | None = None
    """``None``: the greatest timestamp wins. Otherwise, even without any, the rows win over what they replace."""
    any_timestamp: bool = False

    def message(self) -> Json:
        """The question in JSON."""
        found: dict[str, Json] = {"rows": [_row_text(row) for row in self.rows]}
        if self.any_timestamp:
            found["any_timestamp"] = True
        if self.conditions is not None:
            found["if"] = [
                {
                    "prefix": text_of(each.prefix),
                    "key": text_of(each.key),
                    "version": None if each.version is None else version_text(each.version),
                }
                for each in self.conditions
            ]
        return found


class LeaseQuestion(NamedTuple):
    """A lease to grant for a duration, or a term of one to renew or release."""

    key: bytes
    prefix: bytes
    holder: str
    duration_ms: int = 0
    term: int = NO_TRANSACTION

    def message(self) -> Json:
        """The question in JSON."""
        found: dict[str, Json] = {"prefix": text_of(self.prefix), "key": text_of(self.key), "holder": self.holder}
        if self.duration_ms:
            return found | {"duration_ms": self.duration_ms}
        return found | {"term": self.term}


def query_of(raw: str) -> dict[str, str]:
    """The parameters of the query of a URL, as it was received; bytes that are no text become surrogates.

    Raises :class:`MessageError` for a parameter that comes twice, and for too many.
    """
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="surrogateescape", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise MessageError(f"more than {MAX_PARAMETERS} parameters") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MessageError("a parameter comes twice")
    return found


def bytes_in(query: Mapping[str, str], name: str) -> bytes:
    """The bytes of a parameter of :func:`query_of`, percent-decoded; none are empty bytes."""
    return query.get(name, "").encode(errors="surrogateescape")


def read_mode(query: Mapping[str, str]) -> ReadMode:
    """The mode of a read, by the parameters of its URL. Raises :class:`MessageError`."""
    at_least = query.get("at_least")
    return ReadMode(
        NO_TRANSACTION if at_least is None else number(at_least, "at_least", NO_TRANSACTION),
        flag(query, "fresh"),
        timeout_ms(query),
        query.get("consistency"),
        number(query["stale_ok_ms"], "stale_ok_ms", 0, MAX_TIMEOUT_MS) if "stale_ok_ms" in query else None,
    )


def timeout_ms(query: Mapping[str, str]) -> int:
    """The time limit of a request. Raises :class:`MessageError`."""
    return number(query.get("timeout_ms", str(DEFAULT_TIMEOUT_MS)), "timeout_ms", 1, MAX_TIMEOUT_MS)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A parameter that is ``true`` or ``false``, the default. Raises :class:`MessageError`."""
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise MessageError(f"{name} must be true or false")
    return value == "true"


def number(text: str, name: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """A number of a parameter. Raises :class:`MessageError`."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise MessageError(f"{name} must be an integer from {low} to {high}")
    return integer_of(int(text), name, low, high)


def get_question(message: object) -> GetQuestion:
    """Keys to get. Raises :class:`MessageError`."""
    fields = object_of(message, "the question", ("prefix", "keys", "rows", "raw"))
    raw = truth_of(fields.get("raw", False), "raw")
    if "rows" not in fields:
        prefix = bytes_of(fields.get("prefix", ""), "prefix")
        return GetQuestion(
            [(prefix, bytes_of(key, "a key")) for key in _listed(fields.get("keys"), "keys", MAX_KEYS)], raw
        )
    if "keys" in fields or "prefix" in fields:
        raise MessageError("there are rows, or keys of a prefix")
    rows = [object_of(each, "a row", ("prefix", "key")) for each in _listed(fields["rows"], "rows", MAX_KEYS)]
    pairs = [(bytes_of(row.get("prefix", ""), "prefix"), bytes_of(row.get("key"), "key")) for row in rows]
    return GetQuestion(pairs, raw)


def scan_question(message: object) -> ScanQuestion:
    """A scan. Raises :class:`MessageError`."""
    fields = object_of(message, "the question", ("ranges", "prefix", "reverse", "limit", "raw", "keys_only", "token"))
    ranges: list[KeyRange] | None = None
    if fields.get("ranges") is not None:
        if fields.get("prefix") is not None:
            raise MessageError("there are ranges or a prefix: a range has its own prefix")
        ranges = [_range_of(each) for each in _listed(fields["ranges"], "ranges", MAX_RANGES)]
    elif fields.get("prefix") is not None:
        ranges = [KeyRange(bytes_of(fields["prefix"], "prefix"))]
    limit = fields.get("limit")
    token = fields.get("token")
    return ScanQuestion(
        ranges,
        truth_of(fields.get("reverse", False), "reverse"),
        None if limit is None else integer_of(limit, "limit", 1),
        truth_of(fields.get("raw", False), "raw"),
        truth_of(fields.get("keys_only", False), "keys_only"),
        None if token is None else place_of(token, 1 if ranges is None else len(ranges)),
    )


def scan_of_query(query: Mapping[str, str]) -> ScanQuestion:
    """The scan of at most one range, by the parameters of a URL. Raises :class:`MessageError`."""
    ranges = None
    if not query.keys().isdisjoint(("prefix", "start", "end")):
        end = bytes_in(query, "end") if "end" in query else None
        ranges = [KeyRange(bytes_in(query, "prefix"), bytes_in(query, "start"), end)]
    return ScanQuestion(
        ranges,
        flag(query, "reverse"),
        number(query["limit"], "limit", 1) if "limit" in query else None,
        flag(query, "raw"),
        flag(query, "keys_only"),
        place_of(query["token"], 1) if "token" in query else None,
    )


def take_of_query(query: Mapping[str, str]) -> TakeQuestion:
    """A take, by the parameters of a URL. Raises :class:`MessageError`."""
    return TakeQuestion(
        number(query.get("after", str(NO_TRANSACTION)), "after", NO_TRANSACTION),
        number(query.get("limit", str(DEFAULT_TAKEN)), "limit", 1, MAX_TAKEN),
        bytes_in(query, "prefix") if "prefix" in query else None,
    )


def lease_question(message: object, *, granted: bool) -> LeaseQuestion:
    """A lease to grant, or one that was ``granted``. Raises :class:`MessageError`."""
    fields = object_of(message, "the question", ("prefix", "key", "holder", "term" if granted else "duration_ms"))
    holder = fields.get("holder")
    if not isinstance(holder, str) or not 0 < len(holder) <= MAX_HOLDER_CHARACTERS:
        raise MessageError(f"holder must be text of 1 to {MAX_HOLDER_CHARACTERS} characters")
    prefix, key = bytes_of(fields.get("prefix", ""), "prefix"), bytes_of(fields.get("key"), "key")
    if granted:
        return LeaseQuestion(key, prefix, holder, term=integer_of(fields.get("term"), "term"))
    duration_ms = integer_of(fields.get("duration_ms"), "duration_ms", MIN_DURATION_MS, MAX_DURATION_MS)
    return LeaseQuestion(key, prefix, holder, duration_ms)


def sweep_question(message: object) -> bool:
    """Whether a sweep is to be made only if it is due. Raises :class:`MessageError`."""
    fields = object_of(message, "the question", ("if_due",))
    return truth_of(fields.get("if_due", False), "if_due")


def place_of(token: object, range_count: int) -> Place:
    """A place from its token, in a scan of so many ranges. Raises :class:`MessageError`."""
    try:
        if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARACTERS:
            raise ValueError("no text")
        log, applied, range_index, key = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
        if not isinstance(log, str) or not isinstance(key, str):
            raise ValueError("no texts")
        return Place(
            log,
            integer_of(applied, "applied", NO_TRANSACTION),
            integer_of(range_index, "range", 0, range_count - 1),
            base64.b64decode(key, validate=True),
        )
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise MessageError("the token does not fit this scan: repeat the first page's parameters") from None


def write_question(message: object) -> WriteQuestion:
    """Rows to write. Raises :class:`MessageError`, and ``EnvelopeError`` for a tombstone with a value."""
    fields = object_of(message, "the question", ("rows", "if", "any_timestamp"))
    rows = [_written_row(each) for each in _listed(fields.get("rows"), "rows", MAX_ROWS)]
    if not rows:
        raise MessageError("there are no rows")
    conditions = [_condition(each) for each in _listed(fields["if"], "if", MAX_ROWS)] if "if" in fields else None
    question = WriteQuestion(rows, conditions, truth_of(fields.get("any_timestamp", False), "any_timestamp"))
    check_write(question)
    return question


def check_write(question: WriteQuestion) -> None:
    """Raise :class:`MessageError` for conditions beside timestamps, and for two conditions or rows of one key."""
    if question.conditions is None:
        return
    if question.any_timestamp or any(row.timestamp_ms is not None for row in question.rows):
        raise MessageError("rows with conditions have no timestamps of their own: they win over what they replace")
    pairs = [(each.prefix, each.key) for each in question.conditions]
    written = [(each.prefix, each.key) for each in question.rows]
    if len(set(pairs)) < len(pairs) or len(set(written)) < len(written):
        raise MessageError("with conditions, each key has at most one row and one condition")


def _listed(value: object, name: str, most: int) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        raise MessageError(f"{name} must be a list of at most {most}")
    return value


def _range_text(key_range: KeyRange) -> Json:
    found: dict[str, Json] = {"prefix": text_of(key_range.prefix), "start": text_of(key_range.start)}
    if key_range.end is not None:
        found["end"] = text_of(key_range.end)
    if key_range.end_prefix is not None:
        found["end_prefix"] = text_of(key_range.end_prefix)
    return found


def _range_of(value: object) -> KeyRange:
    fields = object_of(value, "a range", ("prefix", "start", "end", "end_prefix"))
    end, end_prefix = fields.get("end"), fields.get("end_prefix")
    return KeyRange(
        bytes_of(fields.get("prefix", ""), "prefix"),
        bytes_of(fields.get("start", ""), "start"),
        None if end is None else bytes_of(end, "end"),
        None if end_prefix is None else bytes_of(end_prefix, "end_prefix"),
    )


def _row_text(row: Row) -> Json:
    found: dict[str, Json] = {"prefix": text_of(row.prefix), "key": text_of(row.key)}
    if row.tombstone:
        found["tombstone"] = True
    if row.value is not None or not row.tombstone:
        found["value"] = text_of(row.value)
    if row.timestamp_ms is not None:
        found["timestamp_ms"] = row.timestamp_ms
    return found


def _written_row(value: object) -> Row:
    fields = object_of(value, "a row", ("prefix", "key", "value", "timestamp_ms", "tombstone"))
    tombstone = truth_of(fields.get("tombstone", False), "tombstone")
    if not tombstone and "value" not in fields:
        raise MessageError("a row has a value, which may be null, or a tombstone")
    if tombstone and fields.get("value") is not None:
        raise EnvelopeError("a tombstone with a value")
    timestamp_ms = fields.get("timestamp_ms")
    return Row(
        bytes_of(fields.get("prefix", ""), "prefix"),
        bytes_of(fields.get("key"), "key"),
        None if fields.get("value") is None else bytes_of(fields["value"], "value"),
        None if timestamp_ms is None else integer_of(timestamp_ms, "timestamp_ms", 1),
        tombstone,
    )


def _condition(value: object) -> Condition:
    fields = object_of(value, "a condition", ("prefix", "key", "version"))
    if "version" not in fields:
        raise MessageError('a condition has a version; null is "no row"')
    version = fields["version"]
    return Condition(
        bytes_of(fields.get("prefix", ""), "prefix"),
        bytes_of(fields.get("key"), "key"),
        None if version is None else version_of(version, "version"),
    )
