"""What expressions of PromQL ask for, and the values of the simple ones on samples."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    Matchers,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
)

labels_of_targets = frozenset({"job", "instance", "cluster"})
"""What Prometheus adds to every sample, by the configuration of the scrape."""


class Sample(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str, **target: str) -> list[Sample]:
    """The samples of a scrape of a target, whose labels they have as well."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            found.append(Sample(match[1], {**dict(_LABEL.findall(match[2] or "")), **target}, float(match[3])))
    return found


def selectors(expression: Expr, grouped: frozenset[str] = frozenset()) -> Iterator[tuple[str, frozenset[str]]]:
    """Every name that is selected, with the labels that are asked of it: by matchers and by aggregations around it."""
    match expression:
        case VectorSelector(name=str(name), matchers=matchers):
            yield name, grouped | {each.name for each in matchers.matchers}
        case MatrixSelector(vector_selector=selector):
            yield from selectors(selector, grouped)
        case AggregateExpr(expr=inner, modifier=modifier):
            if modifier is not None:
                assert modifier.type == AggModifierType.By, "which labels are left is not to be seen"
                grouped = grouped | frozenset(modifier.labels)
            yield from selectors(inner, grouped)
        case Call(args=arguments):
            for each in arguments:
                yield from selectors(each, grouped)
        case BinaryExpr(lhs=left, rhs=right):
            yield from selectors(left, grouped)
            yield from selectors(right, grouped)
        case ParenExpr(expr=inner) | UnaryExpr(expr=inner) | SubqueryExpr(expr=inner):
            yield from selectors(inner, grouped)
        case _:
            assert not isinstance(expression, VectorSelector)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {">": operator.gt, "==": operator.eq, "<": operator.lt}


def matching(expression: str, found: list[Sample]) -> list[Sample] | None:
    """The samples for which a comparison with a number is true; ``None`` when it is anything else."""
    parsed = parse(expression)
    if not isinstance(parsed, BinaryExpr) or not isinstance(parsed.lhs, VectorSelector):
        return None
    limit, compare = _number(parsed.rhs), _COMPARISONS.get(str(parsed.op))
    if limit is None or compare is None:
        return None
    selector = parsed.lhs
    return [
        sample
        for sample in found
        if sample.name == selector.name and _selects(selector.matchers, sample) and compare(sample.value, limit)
    ]


def _number(expression: Expr) -> float | None:
    match expression:
        case NumberLiteral(val=value):
            return float(value)
        case BinaryExpr(lhs=left, op=op, rhs=right) if str(op) == "*":
            first, second = _number(left), _number(right)
            return None if first is None or second is None else first * second
    return None


def _selects(matchers: Matchers, sample: Sample) -> bool:
    for matcher in matchers.matchers:
        value = sample.labels.get(matcher.name, "")
        equal = (
            re.fullmatch(matcher.value, value) is not None
            if matcher.op in (MatchOp.Re, MatchOp.NotRe)
            else value == matcher.value
        )
        if equal is (matcher.op in (MatchOp.NotEqual, MatchOp.NotRe)):
            return False
    return True
