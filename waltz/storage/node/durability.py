"""What makes the changes of partitions durable.

A partition decides the order of changes, the view of readers and the answers. This object decides how the bytes reach
the disk: each group of appends is written into its segment, and the segment is synced; or one journal is synced for all
partitions (:mod:`waltz.storage.node.journaled`). All changes of a partition's files go through it: appends,
truncations, marks, fences, deletions.
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
"""A write and sync up to this size takes hardly longer than the smallest; the event loop may wait for it when no other
partition has work."""


class Member(Protocol):
    """A partition, as turns for many partitions see it."""

    @property
    def log(self) -> PartitionLog:
        """Where its appends go."""
        ...

    def take_up(self) -> tuple[list[list[Record]], int] | None:
        """A small group of appends, and its size in bytes; ``None``: there is none (any more), and none is expected.

        Raises nothing. :meth:`ended` follows.
        """
        ...

    def ended(self, prepared: Prepared | None, error: Exception | None) -> None:
        """The group is durable, or something has failed; neither: nothing was done, and it needs a sync of its own.

        Raises nothing.
        """
        ...

    def release(self) -> None:
        """There is no turn to come: the partition sees to its appends."""
        ...


class Durability(Protocol):
    """Makes changes durable. All methods belong to the event loop's thread.

    The changes of one partition do not overlap, with one exception: a group of appends may be written while groups
    before it are being synced. Nothing is visible to readers before the partition publishes it.
    """

    @property
    def max_gathered_bytes(self) -> int:
        """Larger groups of appends are not for :meth:`enlist`; 0: none are."""
        ...

    def enlist(self, member: Member) -> bool:
        """Have the next turn for many partitions take up what waits at this one; false: none does.

        Once only until the turn has ended, or the partition is released. Nothing else of it is changed meanwhile.
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
            size_bytes: The size of all of them.
            ahead: Return before the group is durable; :meth:`sync` makes it so.
            after: The group written ahead behind which this one goes; ``None``: what is published.

        Raises:
            OSError: A write or sync has failed; nothing of it is tried again.
            ReadOnlyError: A write or sync had failed before.
            OverCapacityError: There is no room now; nothing has changed.
        """
        ...

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        """Make a group durable that was written ahead; groups in the order of their writes.

        Raises:
            OSError: A write or sync has failed; nothing of it is tried again.
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
        """Make what the log holds durable, then a session and its marks.

        Args:
            control_file: It records them.
            log: The log of the partition.
            session_id: The session.
            low_water_mark: Its mark.
            directly: Does all of it by syncs of the partition's files; blocks.

        Raises:
            StorageError: The marks are not allowed; nothing has changed.
            ConcurrentUpdateError: A newer session has set its marks.
            OSError: As for :meth:`write`.
        """
        ...

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        """Remove all records behind ``transaction_id``, durably; the new maximum. Raises as :meth:`write`."""
        ...

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Change flags, or what can be made anew from records: ``function`` may block, and returns when it is durable.

        May run beside other changes of the partition.
        """
        ...

    async def close(self, log: PartitionLog) -> None:
        """Make everything durable, unless the log is read-only, and close it. Raises ``OSError``."""
        ...

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Change the files of a partition that is not open. ``function`` may block, and returns when that is durable.

        Raises what it raises, and ``StorageError`` when the files lack what has been acknowledged.
        """
        ...

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        """Forget a partition that is not open; ``function``, which may block, does so durably. Raises ``OSError``."""
        ...

    async def make_openable(self, partition_id: int) -> None:
        """Put into the files of a partition that is not open what they lack of what has been acknowledged.

        Raises ``StorageError`` when that is not possible; it may be tried again.
        """
        ...


class SyncEach:
    """Every group of every partition is a write to its segment and a sync of its own."""

    max_gathered_bytes = 0

    def __init__(self, files: Files, busy: Set[int]) -> None:
        """``busy`` holds the partitions of the node that have something to do."""
        self._files = files
        self._busy = busy

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
        """A group that begins another segment is not written ahead; it is when it is synced."""
        if ahead:
            return await self._files.run(partial(_write, log, batches, after))
        run = self._files.run_brief if size_bytes <= MAX_BRIEF_BYTES and len(self._busy) == 1 else self._files.run
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

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def close(self, log: PartitionLog) -> None:
        await self._files.run(log.close)

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        return await self._files.run(function)

    async def make_openable(self, partition_id: int) -> None:
        """All of them always are openable: what was acknowledged is in the files."""


def local_low_water_mark(log: PartitionLog, low_water_mark: int) -> int:
    """What goes with a low-water mark: the maximum of the log. Raises ``StorageError`` when the log goes beyond it."""
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
