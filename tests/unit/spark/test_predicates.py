"""Filters of columns are taken apart; all others are left to Spark."""

import pytest
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In, IsNotNull, IsNull, Not, StringStartsWith

from waltz.spark.predicates import Predicate, is_always_true, predicate_of


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (EqualTo(("a",), 1), Predicate("a", "=", (1,))),
        (EqualNullSafe(("a",), None), Predicate("a", "=", (None,))),
        (In(("a",), (1, 2)), Predicate("a", "in", (1, 2))),
        (EqualTo(("a",), (1, 2)), Predicate("a", "=", ((1, 2),))),
        (StringStartsWith(("a",), "b"), Predicate("a", "starts with", ("b",))),
        (EqualTo(("a", "field"), 1), None),
        (IsNull(("a",)), None),
        (Not(EqualTo(("a",), 1)), None),
    ],
)
def test_taking_apart(item: Filter, expected: Predicate | None) -> None:
    assert predicate_of(item) == expected


def test_what_is_so_anyway() -> None:
    assert is_always_true(IsNotNull(("a",)), {"a"})
    for item in (IsNotNull(("b",)), IsNotNull(("a", "field")), IsNull(("a",)), EqualTo(("a",), 1)):
        assert not is_always_true(item, {"a"})
