"""Filters that were taken over pass what Python's own comparisons pass, and what was not is given back."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    Not,
    StringStartsWith,
)

from tests.unit.table.strategies import tricky_bytes
from waltz.spark.offsets import OffsetRange
from waltz.spark.table.filters import ANYTHING, push_table
from waltz.spark.table.output import filtered

KINDS: dict[type[Filter], Callable[[bytes, bytes], bool]] = {
    EqualTo: lambda value, literal: value == literal,
    EqualNullSafe: lambda value, literal: value == literal,
    GreaterThan: lambda value, literal: value > literal,
    GreaterThanOrEqual: lambda value, literal: value >= literal,
    LessThan: lambda value, literal: value < literal,
    LessThanOrEqual: lambda value, literal: value <= literal,
    StringStartsWith: lambda value, literal: value.startswith(literal),
}


@given(
    st.lists(st.tuples(st.sampled_from(list(KINDS)), tricky_bytes), max_size=3),
    st.none() | st.lists(tricky_bytes, max_size=4),
    st.lists(tricky_bytes, max_size=8),
)
def test_tests_of_keys(wanted: list[tuple[type[Filter], bytes]], among: list[bytes] | None, keys: list[bytes]) -> None:
    filters = [kind(("key",), literal) for kind, literal in wanted]  # type: ignore[call-arg]  # all these have both
    if among is not None:
        filters.append(In(("key",), tuple(among)))
    pushed, left = push_table(filters, all_versions=False)
    assert left == []
    expected = [
        key
        for key in keys
        if all(KINDS[kind](key, literal) for kind, literal in wanted) and (among is None or key in among)
    ]
    test = pushed.keys.get("key", ANYTHING)
    assert [key for key in keys if test.passes(key)] == expected
    rows = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary())})
    assert filtered(rows, pushed.keys).column("key").to_pylist() == expected


def test_texts_are_their_utf8() -> None:
    pushed, left = push_table([EqualTo(("prefix",), "ä"), StringStartsWith(("key",), "x")], all_versions=False)
    assert left == []
    assert pushed.keys["prefix"].passes("ä".encode())
    assert pushed.keys["key"].passes(b"xyz")
    assert not pushed.keys["key"].passes(b"y")


@pytest.mark.parametrize(
    "item",
    [
        Not(EqualTo(("key",), b"x")),
        EqualTo(("key",), 7),
        EqualTo(("key",), None),
        In(("key",), (b"x", None)),
        EqualTo(("key", "inner"), b"x"),
        EqualTo(("value",), b"x"),
        EqualTo(("tombstone",), False),
        GreaterThan(("timestamp",), 7),
        GreaterThan(("transaction_id",), 7),
        IsNotNull(("value",)),
    ],
)
def test_what_is_given_back(item: Filter) -> None:
    pushed, left = push_table([item], all_versions=False)
    assert [id(found) for found in left] == [id(item)]
    assert pushed.keys == {}
    assert pushed.log.shorten(OffsetRange(0, 0, 100)) == OffsetRange(0, 0, 100)


def test_partitions_and_transactions() -> None:
    """Ids can be left out where every version is read, and nowhere else."""
    filters: list[Filter] = [
        EqualTo(("partition",), 3),
        Not(EqualTo(("partition",), 4)),
        GreaterThan(("transaction_id",), 7),
        IsNotNull(("transaction_id",)),
        IsNotNull(("key",)),
    ]
    pushed, left = push_table(filters, all_versions=True)
    assert left == []
    assert [number for number in range(6) if pushed.log.wants(number)] == [3]
    assert pushed.log.shorten(OffsetRange(3, 0, 100)) == OffsetRange(3, 8, 100)
    pushed, left = push_table(filters, all_versions=False)
    assert left == [filters[2]]
    assert [number for number in range(6) if pushed.log.wants(number)] == [3]
