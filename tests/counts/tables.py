"""Bounds of counts as a table in a file, and what is said when a count leaves its bound."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.counts.instrument import KINDS
from tests.counts.loads import LOADS, Cost, Counts

BOUNDS_PATH = Path(__file__).with_name("bounds.txt")
COMMAND = "python -m tests.counts"

GROWTH_MAX = 0.02
"""By so much of its bound, and by :data:`CHANCE_EVENTS`, a count may be above it."""
CHANCE_EVENTS = 4
"""What happens so often in a trial may be a periodic timer that used to end before it or after it."""
SHRINKAGE_MAX = 0.2
"""A bound that is further above its count than this no longer guards anything."""

_HEAD = f"""\
# Counts for each 1,000 appends, of one process of each kind. Written by `{COMMAND} --write`; never by hand.
# What is counted: tests/counts/instrument.py. The loads: tests/counts/loads.py.
"""

Bounds = Mapping[str, Counts]
"""By name of the load."""


def table(name: str, counts: Counts) -> str:
    """The counts of one load: a row for each kind, a column for each kind of process."""
    lines = [name, " " * 10 + "".join(f"{role:>11}" for role in counts)]
    lines += [f"{kind:10}" + "".join(f"{column[kind]:>11.10g}" for column in counts.values()) for kind in KINDS]
    return "\n".join(lines) + "\n"


def text_of(bounds: Bounds) -> str:
    """What :func:`parse` parses."""
    return "\n".join([_HEAD, *(table(name, counts) for name, counts in bounds.items())])


def parse(text: str) -> dict[str, Counts]:
    """Bounds, by name of the load."""
    bounds: dict[str, Counts] = {}
    for section in text.split("\n\n"):
        name, *lines = [line for line in section.splitlines() if not line.startswith("#")] or [""]
        if lines:
            roles = lines[0].split()
            rows = {kind: map(float, values) for kind, *values in map(str.split, lines[1:])}
            columns = zip(*rows.values(), strict=True)
            bounds[name] = {
                role: dict(zip(rows, column, strict=True)) for role, column in zip(roles, columns, strict=True)
            }
    return bounds


def load_bounds() -> dict[str, Counts]:
    """Those in the file."""
    return parse(BOUNDS_PATH.read_text())


def _changes(name: str, counts: Counts, bounds: Counts) -> Iterable[tuple[str, float, float, float]]:
    """Role and kind in words, the bound, the count, and what events by chance make of it."""
    chance = CHANCE_EVENTS * 1000 / LOADS[name].appends
    assert counts.keys() == bounds.keys(), f"{name}: the bounds are of other processes; `{COMMAND} --write` renews them"
    for role, column in counts.items():
        assert column.keys() == bounds[role].keys(), f"other things are counted; `{COMMAND} --write` renews the bounds"
        for kind, count in column.items():
            yield f"{role}: {kind}", bounds[role][kind], count, chance


def grown(name: str, counts: Counts, bounds: Counts) -> list[str]:
    """What is more expensive than it may be, one line each."""
    return [
        f"{what} {bound:.10g} -> {count:.10g}{_share(bound, count)}"
        for what, bound, count, chance in _changes(name, counts, bounds)
        if count > bound * (1 + GROWTH_MAX) + chance
    ]


def outdated(name: str, counts: Counts, bounds: Counts) -> list[str]:
    """Bounds that are far above what they bound, one line each."""
    return [
        f"{what} {bound:.10g} -> {count:.10g}{_share(bound, count)}"
        for what, bound, count, chance in _changes(name, counts, bounds)
        if count < bound * (1 - SHRINKAGE_MAX) - chance
    ]


def _share(before: float, after: float) -> str:
    return f" ({after / before - 1:+.0%})" if before else ""


def compared(name: str, before: Cost, after: Cost) -> str:
    """All that differs between two commits, down to the functions."""
    lines = [name]
    for role, counts in after.counts.items():
        old = before.counts.get(role, {})
        changes = [
            f"    {what} {was:.10g} -> {now:.10g}{_share(was, now)}" for what, was, now in _differences(old, counts)
        ]
        changes += [
            f"        {what} {was:.10g} -> {now:.10g}"
            for what, was, now in _differences(before.functions.get(role, {}), after.functions[role])
        ]
        if changes:
            lines += [f"  {role}", *changes]
    return "\n".join(lines if len(lines) > 1 else [f"{name}: nothing has changed"])


def _differences(before: Mapping[str, float], after: Mapping[str, float]) -> Iterable[tuple[str, float, float]]:
    """What is not the same, with the kinds in their order, or the greatest difference first."""
    names = [name for name in {**after, **before} if before.get(name, 0) != after.get(name, 0)]
    if not KINDS.keys() >= set(names):
        names.sort(key=lambda name: -abs(after.get(name, 0) - before.get(name, 0)))
    return [(name, before.get(name, 0), after.get(name, 0)) for name in names]
