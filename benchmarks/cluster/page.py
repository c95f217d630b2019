"""The part of ``docs/appendix/benchmark-results.md`` that a run fills. Pure."""

import re
from collections.abc import Sequence

from benchmarks.cluster.report import Report
from benchmarks.cluster.tables import tables

BEGIN, END = "<!-- begin: results of the cluster benchmark -->", "<!-- end: results of the cluster benchmark -->"


NOT_ON_THE_PAGE = "Cost of a batch"
"""A table for maintainers, which ``--show`` prints."""

COLUMNS_NOT_ON_THE_PAGE = frozenset({"lean", "p50 by lean", "lag", "growth MiB"})
"""Columns for maintainers, which ``--show`` prints."""

_BEST_ROUND = re.compile(r" \([\d,.]+\)(?= \|)")


class PageError(Exception):
    """The page has no place for results."""


def filled(page: str, report: Report, pictures: Sequence[str]) -> str:
    """The page with the report's tables and pictures in place of what was there. Raises :class:`PageError`."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise PageError(f"it has no line {BEGIN} with a line {END} below it")
    return f"{before}{BEGIN}\n\n{body(report, pictures)}\n\n{END}{after}"


def body(report: Report, pictures: Sequence[str]) -> str:
    """All of it."""
    machine, settings = report.machine, report.settings
    head = (
        f"{machine['when']}, {machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}; "
        f"{settings['starts']:g} x {settings['rounds']:g} rounds of {settings['seconds']:g} s; load {machine['load']}."
    )
    parts = [head, *(f"![{name}]({name})" for name in pictures)]
    for title, table in tables(report).items():
        if title != NOT_ON_THE_PAGE:
            parts += [f"### {title}", for_the_page(table)]
    return "\n\n".join(parts)


def for_the_page(table: str) -> str:
    """The table without what is for maintainers: some columns, and the best rounds in brackets."""
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in table.splitlines()]
    kept = [place for place, name in enumerate(rows[0]) if name not in COLUMNS_NOT_ON_THE_PAGE]
    lines = (f"| {' | '.join(row[place] for place in kept)} |" for row in rows)
    return "\n".join(_BEST_ROUND.sub("", line) for line in lines)
