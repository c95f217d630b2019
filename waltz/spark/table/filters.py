"""Filters of keys that Spark pushes down, as ranges and sets of bytes. Pure.

Rows of other keys can be left out before it is known who wins, since each key is decided by itself. That is not so with
a row's other columns: they are Spark's to look at when the winners are known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from waltz.spark.filters import NOTHING_PUSHED, PARTITION, TRANSACTION_ID, Pushed, push
from waltz.spark.table.columns import SCHEMA

KEY_COLUMNS = ("prefix", "key")


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
        elif not _is_certain(item):
            left.append(item)
    log, not_taken = push(of_numbers)
    return replace(EVERYTHING, log=log, keys=keys), [item for item in filters if item in (*left, *not_taken)]


def _names_one_of(item: Filter, columns: Sequence[str]) -> bool:
    inner = getattr(item, "child", item)  # of a negation
    return getattr(inner, "attribute", None) in [(column,) for column in columns]


def _is_certain(item: Filter) -> bool:
    """No column is ever null but the value."""
    return (
        isinstance(item, IsNotNull)
        and len(item.attribute) == 1
        and item.attribute[0] in SCHEMA.fieldNames()
        and not SCHEMA[item.attribute[0]].nullable
    )


_TESTS: dict[type[Filter], Callable[[bytes], BytesTest]] = {
    EqualTo: lambda value: BytesTest(among=frozenset((value,))),
    EqualNullSafe: lambda value: BytesTest(among=frozenset((value,))),
    GreaterThan: lambda value: BytesTest(value + b"\x00"),
    GreaterThanOrEqual: lambda value: BytesTest(value),
    LessThan: lambda value: BytesTest(end=value),
    LessThanOrEqual: lambda value: BytesTest(end=value + b"\x00"),
    StringStartsWith: lambda value: BytesTest(value, _behind(value)),
}


def _bytes_test(item: Filter) -> tuple[str, BytesTest] | None:
    """A filter as a test of prefix or key, if it is one."""
    attribute = getattr(item, "attribute", None)
    if attribute not in [(column,) for column in KEY_COLUMNS]:
        return None
    if isinstance(item, In):
        among = [_bytes(value) for value in item.value]
        if None in among:
            return None
        return attribute[0], BytesTest(among=frozenset(value for value in among if value is not None))
    make = _TESTS.get(type(item))
    value = None if make is None else _bytes(getattr(item, "value", None))
    return None if make is None or value is None else (attribute[0], make(value))


def _bytes(value: object) -> bytes | None:
    """A literal as bytes: texts compare as their UTF-8 does."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _behind(start: bytes) -> bytes | None:
    """The smallest bytes behind all that begin so; ``None`` if there are none."""
    cut = start.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None
