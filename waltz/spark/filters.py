"""Filters that Spark pushes down, taken apart into what a read can leave out. Pure.

A partition that fails a test is not read at all, bounds of the transaction id shorten ranges, and the header is looked
at before anything else is done with a record. Whatever is not understood is given back to Spark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql.datasource import Filter, Not

from waltz.spark.columns import DATA, SCHEMA
from waltz.spark.offsets import OffsetRange
from waltz.spark.predicates import is_always_true, predicate_of

PARTITION, TRANSACTION_ID, HEADER = "partition", "transaction_id", "header"

_LARGEST_ID = 2**63 - 1

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_UNDERSTOOD = {*_COMPARISONS, "in"}

_NEVER_NULL = {*SCHEMA.fieldNames()} - {DATA}
"""The log's columns are never null; those made out of payloads, ``data`` among them, may be."""


class ColumnTest(NamedTuple):
    """A test of one integer column; ``operator`` is a comparison, or ``in``."""

    operator: str
    values: tuple[int, ...]
    negated: bool = False

    def passes(self, number: int) -> bool:
        """Whether a value of the column passes."""
        if self.operator == "in":
            return (number in self.values) != self.negated
        return _COMPARISONS[self.operator](number, self.values[0]) != self.negated


@dataclass(frozen=True, slots=True)
class Pushed:
    """All filters that a read has taken over; a row has to pass every one."""

    partition_tests: tuple[ColumnTest, ...] = ()
    first_id: int = 0
    end_id: int = _LARGEST_ID
    header_tests: tuple[ColumnTest, ...] = ()

    def wants(self, partition_id: int) -> bool:
        """Whether any row of a partition can pass."""
        return all(test.passes(partition_id) for test in self.partition_tests)

    def shorten(self, whole: OffsetRange) -> OffsetRange:
        """The part of a range that can pass; empty ranges begin and end at the same id."""
        start = min(max(whole.start, self.first_id), whole.end)
        return OffsetRange(whole.partition_id, start, max(start, min(whole.end, self.end_id)))


NOTHING_PUSHED = Pushed()


def push(filters: Sequence[Filter]) -> tuple[Pushed, list[Filter]]:
    """What can be taken over of ``filters``, and those that Spark has to apply itself (the same objects)."""
    pushed = NOTHING_PUSHED
    left: list[Filter] = []
    for item in filters:
        taken = _take(pushed, item)
        if taken is None:
            left.append(item)
        else:
            pushed = taken
    return pushed, left


def _take(pushed: Pushed, item: Filter) -> Pushed | None:
    if is_always_true(item, _NEVER_NULL):
        return pushed
    named = _test(item)
    if named is None:
        return None
    column, test = named
    if column == PARTITION:
        return replace(pushed, partition_tests=(*pushed.partition_tests, test))
    if column == HEADER:
        return replace(pushed, header_tests=(*pushed.header_tests, test))
    return _bound(pushed, test)


def _bound(pushed: Pushed, test: ColumnTest) -> Pushed | None:
    """A test of the transaction id as bounds, if it is that."""
    if test.negated or test.operator == "in":
        return None
    (value,) = test.values
    first_id, end_id = pushed.first_id, pushed.end_id
    if test.operator in ("=", ">=", ">"):
        first_id = max(first_id, value + 1 if test.operator == ">" else value)
    if test.operator in ("=", "<=", "<"):
        end_id = min(end_id, value if test.operator == "<" else value + 1)
    return replace(pushed, first_id=first_id, end_id=end_id)


def _test(item: Filter) -> tuple[str, ColumnTest] | None:
    """A filter as a test of one of the three columns, if it is one."""
    if isinstance(item, Not):
        inner = _test(item.child)
        return None if inner is None else (inner[0], inner[1]._replace(negated=not inner[1].negated))
    asked = predicate_of(item)
    if asked is None or asked.column not in (PARTITION, TRANSACTION_ID, HEADER) or asked.operator not in _UNDERSTOOD:
        return None
    numbers = tuple(value for value in asked.values if isinstance(value, int) and not isinstance(value, bool))
    return (asked.column, ColumnTest(asked.operator, numbers)) if len(numbers) == len(asked.values) else None
