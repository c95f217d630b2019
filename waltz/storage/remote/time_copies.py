"""Copies times of commits from the time index of one storage to that of another, which has got the records."""

from collections.abc import Awaitable, Callable, Sequence

from waltz.common.wire.storage_times import MAX_TIMES, CommitTime

ReadTimes = Callable[[int, int], Awaitable[list[CommitTime]]]
"""Reads entries from a transaction on, at most a number; fewer, and fewer than ``MAX_TIMES``: there are no more."""

EnterTimes = Callable[[Sequence[CommitTime]], Awaitable[object]]
"""Enters times at the other storage."""


async def copy_times(read: ReadTimes, enter: EnterTimes, first: int, last: int) -> int:
    """Copy the times of the transactions ``first`` to ``last``, which both storages hold and are committed.

    The last one gets the time of the entry that covers it: as late as it may have been. Returns the number of entries
    that were copied; raises the errors of ``read`` and ``enter``, and then some may have been copied.
    """
    count = 0
    while first <= last:
        found = await read(first, MAX_TIMES)
        times = [entry for entry in found if entry.transaction_id <= last]
        if len(times) < len(found) and (not times or times[-1].transaction_id < last):
            times.append(CommitTime(last, found[len(times)].time_ms))
        for start in range(0, len(times), MAX_TIMES):
            await enter(times[start : start + MAX_TIMES])
        count += len(times)
        if len(found) < MAX_TIMES:
            break
        first = max(first, found[-1].transaction_id) + 1
    return count
