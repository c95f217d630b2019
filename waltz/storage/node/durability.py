"""The interface by which the changes of partitions become durable.

A partition decides the order of changes, the view of readers and the answers. A :class:`Durability` decides how the
bytes reach the disk: either each group of appends is written to a segment and the segment is synced, or one journal is
synced for all partitions (:mod:`waltz.storage.node.journaled`). All changes of a partition's files go through the
:class:`Durability`: appends, truncations, marks, fences, deletions.
"""

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Protocol, TypeVar

from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.errors import StorageError

Result = TypeVar("Result")

MAX_BRIEF_BYTES = 64 << 10
"""A write with sync of up to this size takes hardly longer than the smallest write. The event loop may wait for such a
write when no other partition has work, and the node has one disk only."""


class Member(Protocol):
    """The part of a partition that turns of the journal use."""

    @property
    def log(self) -> PartitionLog:
        """The log to which the partition appends."""
        ...

    def take_up(self) -> tuple[list[list[Record]], int] | None:
        """Take a small group of appends, with its size in bytes, for the turn that begins; :meth:`ended` follows.

        ``None``: no such group is left, and :meth:`ended` does not follow. Raises nothing.
        """
        ...

    def ended(self, prepared: Prepared | None, error: Exception | None) -> None:
        """The turn has ended: the group is durable (``prepared``), or the turn has failed (``error``).

        If both are ``None``, nothing was written, and the partition has to write and sync the group. Raises nothing.
        """
        ...

    def release(self) -> None:
        """The turn is cancelled: the partition has to write its appends itself."""
        ...


class Durability(Protocol):
    """Makes changes durable. All methods belong to the event loop's thread.

    The changes of one partition do not overlap, with one exception: a group of appends may be written while earlier
    groups are being synced. Readers see a change when the partition publishes the change.
    """

    @property
    def max_gathered_bytes(self) -> int:
        """The size of the largest group of appends for which :meth:`enlist` may be called; 0: there are no turns."""
        ...

    def enlist(self, member: Member) -> bool:
        """Ask the next turn to take up the waiting appends of a partition. Returns whether a turn will do so.

        After that, the partition neither calls this again nor makes another change, until the turn has ended or has
        released the partition.
        """
        ...

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
            size_bytes: The size of all records.
            ahead: Return before the group is durable; :meth:`sync` makes the group durable.
            after: The group, written ahead, that this group follows; ``None``: this group follows the published end of
                the log.

        Raises:
            OSError: A write or sync has failed. No part of the write is tried again.
            ReadOnlyError: A write or sync had failed before.
            OverCapacityError: The journal has no room now; nothing has changed.
        """
        ...

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        """Make a group that was written ahead durable. Groups are synced in the order of their writes.

        Raises:
            OSError: A write or sync has failed. No part of the write is tried again.
            ReadOnlyError: A write or sync had failed before.
        """
        ...

    async def raise_fence(self, fence_file: FenceFile, partition_id: int, session_id: int) -> None:
        """Keep older sessions from a partition, durably. Raises as :meth:`write`."""
        ...

    async def set_low_water_mark(
        self,
        control_file: ControlFile,
        log: PartitionLog,
        session_id: int,
        low_water_mark: int,
        directly: Callable[[], None],
    ) -> None:
        """Make the log durable, and after that a session and its marks.

        Args:
            control_file: The control file that records session and marks.
            log: The log of the partition.
            session_id: The session.
            low_water_mark: The low-water mark of the session.
            directly: A function that makes all of this durable by syncs of the partition's files; it blocks.

        Raises:
            StorageError: The marks are not allowed. Nothing has changed.
            ConcurrentUpdateError: A newer session has set its marks.
            OSError: As for :meth:`write`.
        """
        ...

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        """Remove all records behind ``transaction_id``, durably; the new maximum. Raises as :meth:`write`."""
        ...

    async def trim(self, log: PartitionLog, change: Callable[[], Result]) -> Result:
        """Take the first records away by ``change``, which changes the log, durably, and may block.

        Raises what ``change`` raises, and as :meth:`write`.
        """
        ...

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Change flags, or data that can be computed from records.

        ``function`` may block, and returns when the change is durable. May run beside other changes of the partition.
        """
        ...

    async def close(self, log: PartitionLog) -> None:
        """Make everything durable, unless the log is read-only, and close it. Raises ``OSError``."""
        ...

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Change the files of a partition that is not open, by ``function``, which makes its changes durable and may
        block.

        Raises what ``function`` raises, and ``StorageError`` when the files lack acknowledged records.
        """
        ...

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Forget a partition that is not open, by ``function``, which makes its changes durable and may block. Raises
        ``OSError``."""
        ...

    async def make_openable(self, partition_id: int) -> None:
        """Bring the files of a partition that is not open up to date with all acknowledged changes.

        Raises ``StorageError`` when that is not possible; a later call may succeed.
        """
        ...


class SyncEach:
    """Each group of appends is a write to a segment of the partition and a sync of that segment."""

    max_gathered_bytes = 0

    def __init__(self, files: Files, busy: Set[int], *, alone: bool = True) -> None:
        """``busy`` has the partitions of the disk with requests to carry out. ``alone``: the node has no other disk.

        The event loop never waits for one of several disks: partitions on the others would wait as well.
        """
        self._files = files
        self._busy = busy
        self._alone = alone

    def enlist(self, member: Member) -> bool:
        """There are no turns."""
        return False

    async def write(
        self,
        log: PartitionLog,
        batches: Sequence[Sequence[Record]],
        size_bytes: int,
        *,
        ahead: bool,
        after: Prepared | None = None,
    ) -> Prepared:
        """Write a group. A group that begins another segment is not written ahead, but at its sync."""
        if ahead:
            return await self._files.run(partial(_write, log, batches, after))
        is_brief = size_bytes <= MAX_BRIEF_BYTES and len(self._busy) == 1 and self._alone
        run = self._files.run_brief if is_brief else self._files.run
        return await run(partial(_write_and_sync, log, batches))

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        await self._files.run(partial(log.write_and_sync if prepared.view is None else log.sync, prepared))

    async def raise_fence(self, fence_file: FenceFile, partition_id: int, session_id: int) -> None:
        await self._files.run(partial(fence_file.raise_to, partition_id, session_id))

    async def set_low_water_mark(
        self,
        control_file: ControlFile,
        log: PartitionLog,
        session_id: int,
        low_water_mark: int,
        directly: Callable[[], None],
    ) -> None:
        await self._files.run(directly)

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        return await self._files.run(partial(log.truncate, transaction_id))

    async def trim(self, log: PartitionLog, change: Callable[[], Result]) -> Result:
        return await self._files.run(change)

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def close(self, log: PartitionLog) -> None:
        await self._files.run(log.close)

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def make_openable(self, partition_id: int) -> None:
        """Do nothing: all acknowledged changes are in the files."""


def local_low_water_mark(log: PartitionLog, low_water_mark: int) -> int:
    """The local low-water mark, which is the maximum of the log. Raises ``StorageError`` for a log beyond the mark."""
    maximum = log.max_transaction_id
    if maximum > low_water_mark:
        raise StorageError("low-water mark is lower than the max transaction id")
    return maximum


def _write(log: PartitionLog, batches: Sequence[Sequence[Record]], after: Prepared | None) -> Prepared:
    prepared = log.prepare(batches, after)
    log.write(prepared, after)
    return prepared


def _write_and_sync(log: PartitionLog, batches: Sequence[Sequence[Record]]) -> Prepared:
    prepared = log.prepare(batches)
    log.write_and_sync(prepared)
    return prepared
