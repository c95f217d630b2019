"""Finds whether a view has rows to sweep, and makes the sweep mark."""

import asyncio
from typing import NamedTuple

from waltz.table.ages import Ages, due_mark, is_swept, sweep_mark
from waltz.table.envelope import SweepMark
from waltz.table.rows import unpack_head
from waltz.table.stores.interface import Snapshot

SKEW_MARGIN_MS = 1000
"""A sweep spares rows that a reader whose clock is behind by this time does not hide yet."""


class SweepCheck(NamedTuple):
    """The result of a check for a sweep.

    Examples:
        ```python
        check: waltz.table.SweepCheck = await table.check_sweep()
        if check.due:
            print(check.aged, "rows are past their age")
            await table.sweep()
        ```
    """

    aged: int
    """Number of rows that have reached their age: a sweep removes them."""
    due: bool
    """Whether one of them has been past its age for the interval."""


def present_mark(now_ms: int, ages: Ages) -> SweepMark | None:
    """The mark of a sweep at this moment; ``None`` when no age is set."""
    return sweep_mark(now_ms - SKEW_MARGIN_MS, ages)


async def check_sweep(
    snapshot: Snapshot, now_ms: int, ages: Ages, intervals: Ages, *, only_due: bool = False
) -> SweepCheck:
    """Check the rows of a snapshot; with ``only_due``, stop as soon as a sweep is known to be due."""
    mark, past = present_mark(now_ms, ages), due_mark(now_ms - SKEW_MARGIN_MS, ages, intervals)
    aged, due = 0, False
    if mark is None or past is None:
        return SweepCheck(aged, due)
    for page in snapshot.pages(b"", None):
        for _, row in page:
            head = unpack_head(row)
            if is_swept(head, mark):
                aged += 1
                due = due or is_swept(head, past)
        if due and only_due:
            break
        await asyncio.sleep(0)
    return SweepCheck(aged, due)
