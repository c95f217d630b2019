"""Whether there is something to sweep in a view, and the mark that does it."""

import asyncio
from typing import NamedTuple

from waltz.table.ages import Ages, due_mark, is_swept, sweep_mark
from waltz.table.envelope import SweepMark
from waltz.table.rows import unpack_head
from waltz.table.stores.interface import Snapshot

SKEW_MARGIN_MS = 1000
"""By so much readers' clocks may be behind that of who sweeps, and still not miss what they do not hide."""


class SweepCheck(NamedTuple):
    """What a sweep would find.

    Examples:
        ```python
        check: waltz.table.SweepCheck = await table.check_sweep()
        if check.due:
            print(check.aged, "rows are past their age")
            await table.sweep()
        ```
    """

    aged: int
    """Rows that have reached their age: a sweep removes these."""
    due: bool
    """Whether one of them has been past it for the interval."""


def present_mark(now_ms: int, ages: Ages) -> SweepMark | None:
    """The mark of a sweep at this moment; ``None`` when no age is set."""
    return sweep_mark(now_ms - SKEW_MARGIN_MS, ages)


async def check_sweep(
    snapshot: Snapshot, now_ms: int, ages: Ages, intervals: Ages, *, only_due: bool = False
) -> SweepCheck:
    """Look at the rows of a snapshot; with ``only_due`` until it is known that a sweep is due."""
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
