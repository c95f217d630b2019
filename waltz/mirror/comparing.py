"""The first difference between the log of a source and that of its mirror.

Headers and data are compared. Request ids are not: they name the client that appended, and its view of the partition's
owner, which are others in each cluster.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from waltz.common.records import Record

BATCH_RECORDS = 1000


class Difference(NamedTuple):
    """A transaction that is not the same in both logs."""

    transaction_id: int
    what: str

    def __str__(self) -> str:
        return f"transaction {self.transaction_id}: {self.what}"


class ReadsLog(Protocol):
    """The log of one partition."""

    def batches(self, first: int, until: int) -> AsyncIterator[Sequence[Record]]:
        """The transactions of a range, in order."""


def difference_of(source: Record, target: Record) -> Difference | None:
    """How two records with the same id differ, if they do."""
    if source.header != target.header:
        what = f"the header is {source.header} in the source, and {target.header} in the target"
    elif source.data != target.data:
        what = (
            f"the data is {_described(source)} in the source, and {_described(target)} in the target"
            if _described(source) != _described(target)
            else "the data differs, with equal size and checksum"
        )
    else:
        return None
    return Difference(source.transaction_id, what)


def first_difference(source: Iterable[Record], target: Iterable[Record]) -> Difference | None:
    """The first difference of the same range of both logs."""
    for ours, theirs in zip(source, target, strict=True):
        assert ours.transaction_id == theirs.transaction_id, "the ranges are the same"
        found = difference_of(ours, theirs)
        if found is not None:
            return found
    return None


async def compare_range(source: ReadsLog, target: ReadsLog, first: int, until: int) -> Difference | None:
    """The first difference of a range, read whole."""
    sources, targets = _Records(source.batches(first, until)), _Records(target.batches(first, until))
    while first <= until:
        ours, theirs = await sources.some(), await targets.some()
        count = min(len(ours), len(theirs))
        found = first_difference(ours[:count], theirs[:count])
        if found is not None:
            return found
        sources.drop(count)
        targets.drop(count)
        first += count
    return None


async def bisected(differs: Callable[[int], Awaitable[Difference | None]], last: Difference) -> Difference:
    """A difference whose predecessor is equal, found with few reads.

    That is the first one if all transactions behind the first difference differ, as they do where two logs have grown
    apart. ``last`` is a known difference.
    """
    low, high = 0, last  # all before low is equal, as far as was looked
    while low < high.transaction_id:
        middle = (low + high.transaction_id) // 2
        found = await differs(middle)
        if found is None:
            low = middle + 1
        else:
            high = found
    return high


def _described(record: Record) -> str:
    return f"{len(record.data)} bytes with CRC-32 {record.checksum & 0xFFFFFFFF:08x}"


class _Records:
    """Batches of any size, taken in parts."""

    def __init__(self, batches: AsyncIterator[Sequence[Record]]) -> None:
        self._batches = batches
        self._left: Sequence[Record] = ()

    async def some(self) -> Sequence[Record]:
        """What is left of the last batch, or the next one."""
        while not self._left:
            self._left = await anext(self._batches)
        return self._left

    def drop(self, count: int) -> None:
        self._left = self._left[count:]
