"""The processes of a peer: started, awaited, and their processor time."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from waltz.common.errors import WaltzError
from waltz.local.processes import Child

START_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 15
"""Places in /proc/PID/stat behind the name: parent, and user and system time of a process and of its ended children."""


async def until(
    ready: Callable[[], Awaitable[bool]],
    children: Iterable[Child],
    what: str,
    not_yet: type[Exception] = OSError,
) -> None:
    """Wait until ``ready`` returns ``True``; that it raises ``not_yet`` or an ``OSError`` is no answer either.

    Raises ``WaltzError`` when a child ends, and when the time is over.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    failure: Exception | None = None
    while True:
        try:
            if await ready():
                return
        except (OSError, not_yet) as error:
            failure = error
        for child in children:
            child.check()
        if time.monotonic() > deadline:
            raise WaltzError(f"{what}: not ready after {START_TIMEOUT_S:g} s ({failure})")
        await asyncio.sleep(POLL_INTERVAL_S)


def cpu_seconds(process_ids: Iterable[int]) -> float:
    """User and system time of processes and everything they have started."""
    stats = dict(_all_stats())
    times_of = {process_id: sum(map(int, fields[_FIRST_TIME:_LAST_TIME])) for process_id, fields in stats.items()}
    children: dict[int, list[int]] = {}
    for process_id, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(process_id)
    ticks, left = 0, list(process_ids)
    while left:
        process_id = left.pop()
        ticks += times_of.get(process_id, 0)
        left += children.get(process_id, ())
    return ticks / TICKS_PER_S


def _all_stats() -> Iterable[tuple[int, list[str]]]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                text = (path / "stat").read_text()
            except OSError:  # it has ended
                continue
            yield int(path.name), text.rpartition(")")[2].split()
