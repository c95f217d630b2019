"""Filters of keys that Spark pushes down, as ranges and sets of bytes. Pure.

Rows of other keys can be left out before it is known who wins, since each key is decided by itself. That is not so with
a row's other columns: they are Spark's to look at when the winners are known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pyspark.sql.datasource import Filter

from waltz.spark.filters import NOTHING_PUSHED, PARTITION, TRANSACTION_ID, Pushed, push
from waltz.spark.predicates import is_always_true, predicate_of
from waltz.spark.table.columns import SCHEMA

KEY_COLUMNS = ("prefix", "key")

_NEVER_NULL = {column.name for column in SCHEMA if not column.nullable}


class BytesTest(NamedTuple):
    """What values of a column pass: those from ``start`` up to but not including ``end``, of ``among`` if given."""

    start: bytes = b""
    end: bytes | None = None
    among: frozenset[bytes] | None = None

    def passes(self, value: bytes) -> bool:
        """Whether a value does."""
        return (
            value >= self.start
            and (self.end is None or value < self.end)
            and (self.among is None or value in self.among)
        )

    def both(self, other: "BytesTest") -> "BytesTest":
        """What passes this and another one."""
        ends = [end for end in (self.end, other.end) if end is not None]
        sets = [among for among in (self.among, other.among) if among is not None]
        return BytesTest(
            max(self.start, other.start),
            min(ends) if ends else None,
            frozenset.intersection(*sets) if sets else None,
        )


ANYTHING = BytesTest()


@dataclass(frozen=True, slots=True)
class TablePushed:
    """All filters that a read of a table has taken over."""

    log: Pushed = NOTHING_PUSHED
    """Of partition and transaction id."""
    keys: dict[str, BytesTest] = field(default_factory=dict)
    """By column, :data:`KEY_COLUMNS`."""


EVERYTHING = TablePushed()


def push_table(filters: Sequence[Filter], *, all_versions: bool) -> tuple[TablePushed, list[Filter]]:
    """What can be taken over of ``filters``, and those that Spark has to apply itself (the same objects).

    Transaction ids can be left out only where all versions are read: else the rows of others decide who wins.
    """
    of_log = (PARTITION, TRANSACTION_ID) if all_versions else (PARTITION,)
    keys: dict[str, BytesTest] = {}
    of_numbers: list[Filter] = []
    left: list[Filter] = []
    for item in filters:
        named = _bytes_test(item)
        if named is not None:
            column, test = named
            keys[column] = keys.get(column, ANYTHING).both(test)
        elif _names_one_of(item, of_log):
            of_numbers.append(item)
        elif not is_always_true(item, _NEVER_NULL):
            left.append(item)
    log, not_taken = push(of_numbers)
    return replace(EVERYTHING, log=log, keys=keys), [item for item in filters if item in (*left, *not_taken)]


def _names_one_of(item: Filter, columns: Sequence[str]) -> bool:
    inner = getattr(item, "child", item)  # of a negation
    return getattr(inner, "attribute", None) in [(column,) for column in columns]


_TESTS: dict[str, Callable[[bytes], BytesTest]] = {
    "=": lambda value: BytesTest(among=frozenset((value,))),
    ">": lambda value: BytesTest(value + b"\x00"),
    ">=": lambda value: BytesTest(value),
    "<": lambda value: BytesTest(end=value),
    "<=": lambda value: BytesTest(end=value + b"\x00"),
    "starts with": lambda value: BytesTest(value, _behind(value)),
}


def _bytes_test(item: Filter) -> tuple[str, BytesTest] | None:
    """A filter as a test of prefix or key, if it is one."""
    asked = predicate_of(item)
    if asked is None or asked.column not in KEY_COLUMNS:
        return None
    literals = [value for value in map(_bytes, asked.values) if value is not None]
    if len(literals) < len(asked.values):
        return None
    if asked.operator == "in":
        return asked.column, BytesTest(among=frozenset(literals))
    return asked.column, _TESTS[asked.operator](literals[0])


def _bytes(value: object) -> bytes | None:
    """A literal as bytes: texts compare as their UTF-8 does."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _behind(start: bytes) -> bytes | None:
    """The smallest bytes behind all that begin so; ``None`` if there are none."""
    cut = start.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None
