"""What makes the changes of partitions durable.

A partition decides which changes come in which order, what readers see and what is answered. The object here decides
how the bytes reach the disk: today each group of appends is written into its segment, and the segment is synced.
Whatever changes files of a partition goes through it: appends, truncations, marks, fences, deletions.
"""

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Protocol, TypeVar

from waltz.common.records import Record
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog, Prepared

Result = TypeVar("Result")

MAX_BRIEF_BYTES = 64 << 10
"""A write and sync of this size takes hardly longer than the least; the event loop may wait for it when no other
partition has anything to do."""


class Durability(Protocol):
    """Makes changes durable. All methods belong to the event loop's thread.

    The changes of one partition do not overlap, with one exception: a group of appends may be written while groups
    before it are being synced. Nothing is visible to readers before the partition publishes it.
    """

    async def write(
        self,
        log: PartitionLog,
        batches: Sequence[Sequence[Record]],
        size_bytes: int,
        *,
        ahead: bool,
        after: Prepared | None = None,
    ) -> Prepared:
        """Encode a group of appends, and make it durable.

        Args:
            log: The log of the partition.
            batches: The records of each append.
            size_bytes: The size of all of them.
            ahead: Return before the group is durable; :meth:`sync` makes it so.
            after: The group written ahead behind which this one goes; ``None``: what is published.

        Raises:
            OSError: A write or sync has failed; nothing of it is tried again.
            ReadOnlyError: A write or sync had failed before.
        """
        ...

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        """Make a group durable that was written ahead; groups in the order of their writes.

        Raises:
            OSError: A write or sync has failed; nothing of it is tried again.
            ReadOnlyError: A write or sync had failed before.
        """
        ...

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Do what is not an append: ``function`` may block, and has made its change durable when it returns."""
        ...


class SyncEach:
    """Every group of every partition is a write to its segment and a sync of its own."""

    def __init__(self, files: Files, busy: Set[int]) -> None:
        """``busy`` holds the partitions of the node that have something to do."""
        self._files = files
        self._busy = busy

    async def write(
        self,
        log: PartitionLog,
        batches: Sequence[Sequence[Record]],
        size_bytes: int,
        *,
        ahead: bool,
        after: Prepared | None = None,
    ) -> Prepared:
        """A group that begins another segment is not written ahead; it is when it is synced."""
        if ahead:
            return await self._files.run(partial(_write, log, batches, after))
        run = self._files.run_brief if size_bytes <= MAX_BRIEF_BYTES and len(self._busy) == 1 else self._files.run
        return await run(partial(_write_and_sync, log, batches))

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        await self._files.run(partial(log.write_and_sync if prepared.view is None else log.sync, prepared))

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)


def _write(log: PartitionLog, batches: Sequence[Sequence[Record]], after: Prepared | None) -> Prepared:
    prepared = log.prepare(batches, after)
    log.write(prepared, after)
    return prepared


def _write_and_sync(log: PartitionLog, batches: Sequence[Sequence[Record]]) -> Prepared:
    prepared = log.prepare(batches)
    log.write_and_sync(prepared)
    return prepared
