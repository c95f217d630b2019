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
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from waltz.spark.filters import NOTHING_PUSHED, push
from waltz.spark.offsets import OffsetRange

P, T, H = ("partition",), ("transaction_id",), ("header",)


def test_partitions_are_left_out() -> None:
    pushed, left = push([EqualTo(P, 3)])
    assert left == []
    assert [partition_id for partition_id in range(6) if pushed.wants(partition_id)] == [3]
    pushed, _ = push([In(P, (1, 4)), Not(EqualTo(P, 4))])
    assert [partition_id for partition_id in range(6) if pushed.wants(partition_id)] == [1]


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([EqualTo(T, 30)], 30, 31),
        ([EqualNullSafe(T, 30)], 30, 31),
        ([GreaterThan(T, 30)], 31, 50),
        ([GreaterThanOrEqual(T, 30), LessThan(T, 40)], 30, 40),
        ([LessThanOrEqual(T, 30)], 10, 31),
        ([LessThan(T, 10)], 10, 10),
        ([GreaterThan(T, 60)], 50, 50),
        ([LessThan(T, -5)], 10, 10),
        ([EqualTo(T, 2**63 - 1)], 50, 50),
        ([EqualTo(T, 20), EqualTo(T, 30)], 30, 30),
    ],
)
def test_ranges_become_shorter(filters: list[Filter], start: int, end: int) -> None:
    pushed, left = push(filters)
    assert left == []
    assert pushed.shorten(OffsetRange(0, 10, 50)) == OffsetRange(0, start, end)


def test_what_is_not_understood_is_given_back_as_the_same_object() -> None:
    strange: list[Filter] = [
        In(T, (1, 2)),
        Not(EqualTo(T, 1)),
        EqualTo(("data",), b"x"),
        EqualTo(("header", "inner"), 1),
        EqualTo(H, True),
        EqualTo(H, 1.5),
        In(H, (1, None)),
        IsNull(H),
        IsNotNull(("data",)),
        IsNotNull(("other",)),
        StringStartsWith(("data",), "x"),
        Not(IsNotNull(H)),
    ]
    pushed, left = push([*strange, EqualTo(H, 1)])
    assert [id(item) for item in left] == [id(item) for item in strange]
    assert pushed.header_tests[0].passes(1)
    assert len(pushed.header_tests) == 1


def test_columns_of_the_log_are_never_null() -> None:
    assert push([IsNotNull(H), IsNotNull(T), IsNotNull(P)]) == (NOTHING_PUSHED, [])


NUMBERS = st.integers(-5, 5)
FILTERS = st.recursive(
    st.one_of(
        *(st.builds(kind, st.just(H), NUMBERS) for kind in (EqualTo, GreaterThan, GreaterThanOrEqual)),
        *(st.builds(kind, st.just(H), NUMBERS) for kind in (LessThan, LessThanOrEqual, EqualNullSafe)),
        st.builds(In, st.just(H), st.lists(NUMBERS, max_size=3).map(tuple)),
    ),
    lambda inner: st.builds(Not, inner),
    max_leaves=3,
)


def passes(item: Filter, number: int) -> bool:
    match item:
        case Not(child):
            return not passes(child, number)
        case In(_, values):
            return number in values
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return bool(number == value)
        case GreaterThan(_, value):
            return bool(number > value)
        case GreaterThanOrEqual(_, value):
            return bool(number >= value)
        case LessThan(_, value):
            return bool(number < value)
        case LessThanOrEqual(_, value):
            return bool(number <= value)
    raise AssertionError(item)


@given(st.lists(FILTERS, max_size=4), NUMBERS)
def test_headers_are_tested_as_spark_would(filters: list[Filter], number: int) -> None:
    pushed, left = push(filters)
    assert left == []
    assert all(test.passes(number) for test in pushed.header_tests) == all(passes(item, number) for item in filters)
