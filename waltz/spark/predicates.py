"""What the filters that Spark pushes down have in common: a column, an operator and a literal. Pure."""

from collections.abc import Collection
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

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    StringStartsWith: "starts with",
}


class Predicate(NamedTuple):
    """What a filter asks of one column."""

    column: str
    operator: str
    values: tuple[object, ...]
    """What it is compared with: one literal, but for ``in``."""


def predicate_of(item: Filter) -> Predicate | None:
    """A filter taken apart, if it compares a column, not a field within one, with literals."""
    operator = _OPERATORS.get(type(item))
    attribute: tuple[str, ...] = getattr(item, "attribute", ())
    if operator is None or len(attribute) != 1:
        return None
    values = item.value if isinstance(item, In) else (item.value,)  # type: ignore[attr-defined]  # all these have one
    return Predicate(attribute[0], operator, tuple(values))


def is_always_true(item: Filter, never_null: Collection[str]) -> bool:
    """Whether it asks only for what is so anyway: that a column is not null which never is."""
    return isinstance(item, IsNotNull) and len(item.attribute) == 1 and item.attribute[0] in never_null
