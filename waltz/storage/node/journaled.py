"""One journal makes the changes of all partitions of a disk durable with one sync; their segments are synced later.

A turn takes the waiting changes of all partitions. Records are written to segments, which are not synced, and also to
the journal, together with fences, low-water marks and truncations. One sync of the journal makes all of these changes
durable. A checkpoint syncs segments in the background, the oldest debt first, and writes fences and marks to their
files. Then the files of the journal can be used again.

Some changes are not written to the journal: large groups, the groups of a partition that is alone, and the begin or
removal of segments. Before such a change the partition is *settled*: its segment is synced, and the journal gets an
entry about that. A replay leaves out all entries of the partition before that entry.

With several disks each has a journal of its own, for the segments of the partitions there. Control file and fence file
are on the first disk: the fences and marks of all partitions go into the journal of the first disk.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import TypeVar

from waltz.common.records import Record
from waltz.common.tasks import owned
from waltz.storage.disk.control_file import ControlFile, Marks
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.entries import Dropped, Entry, Fenced, Marked, Settled
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import Contents
from waltz.storage.disk.journal.replay import replay_partition
from waltz.storage.disk.journal_set import OneOf
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.errors import StorageError
from waltz.storage.node.checkpoints import Checkpoints
from waltz.storage.node.durability import Member, SyncEach, local_low_water_mark
from waltz.storage.node.journal_jobs import Append, Truncation, nothing, settled
from waltz.storage.node.journal_state import JournalState
from waltz.storage.node.turns import Turns

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_JOURNALED_BYTES = 64 << 10
"""For a larger group of one partition the segment is synced: such a group is not written twice, and delays no other
group."""
ALONE_TURNS = 16
"""After this number of groups without another partition, a partition is settled, and syncs its own segment from then
on."""


class Journaled(SyncEach):
    """Durability by a journal. After a failure every partition syncs its own files, until there is a new journal."""

    def __init__(
        self,
        files: Files,
        busy: Set[int],
        path: str,
        journal: Journal,
        control_file: ControlFile,
        fence_file: FenceFile,
        standing: OneOf,
        another: Callable[[Contents], Journal],
        notes: "Journaled | None" = None,
        *,
        alone: bool = True,
    ) -> None:
        """Take over an open journal that counts; see :meth:`close_all`.

        Args:
            files: The file system.
            busy: The partitions of the disk with requests to carry out.
            path: The storage directory.
            journal: The journal.
            control_file: The control file of the storage directory.
            fence_file: The fence file of the storage directory.
            standing: Tells whether the journal counts.
            another: Opens a journal behind the remains of a failed journal, and lets it count. Blocks.
            notes: The journal that gets fences and marks; ``None``: this one.
            alone: Whether the node has no other disk.
        """
        super().__init__(files, busy, alone=alone)
        self.state = JournalState(
            files, journal, control_file, fence_file, standing.withdraw, keeps_notes=notes is None
        )
        """The content of the journal, and whether the journal is in use."""
        self._path = path
        self._standing = standing
        self._notes = notes or self
        self._turns = Turns(self.state)
        self._checkpoints = Checkpoints(self.state, another)
        self.max_gathered_bytes = min(MAX_JOURNALED_BYTES, self._turns.max_bytes)
        self._tasks = (
            self._turns.start(self._died),
            owned(self._checkpoints.run(), "the checkpoints of the storage node", self._died),
        )

    # Requests of partitions

    def enlist(self, member: Member) -> bool:
        """As the base class says; a partition that is alone is refused."""
        if self.state.failure is not None or len(self._busy) < 2:
            return False
        self._turns.enlist(member)
        return True

    async def write(
        self,
        log: PartitionLog,
        batches: Sequence[Sequence[Record]],
        size_bytes: int,
        *,
        ahead: bool,
        after: Prepared | None = None,
    ) -> Prepared:
        partition_id = log.partition_id
        if not ahead and self._goes_through_journal(partition_id, size_bytes):
            self.state.logs[partition_id] = log
            group = Append(log, batches)
            prepared = await self._turns.hand_in(partition_id, group.begin, group.end, group.take_back, size_bytes)
            if prepared is not None:
                return prepared
        await self._settle(log)
        return await super().write(log, batches, size_bytes, ahead=ahead, after=after)

    async def raise_fence(self, fence_file: FenceFile, partition_id: int, session_id: int) -> None:
        notes = self._notes
        if notes.state.failure is None and not notes.state.full:
            begin = partial(notes._begin_fence, partition_id, session_id)
            await notes._turns.hand_in(partition_id, begin, partial(notes.state.keep_fence, partition_id, session_id))
        else:
            await super().raise_fence(fence_file, partition_id, session_id)

    async def set_low_water_mark(
        self,
        control_file: ControlFile,
        log: PartitionLog,
        session_id: int,
        low_water_mark: int,
        directly: Callable[[], None],
    ) -> None:
        partition_id, notes = log.partition_id, self._notes
        self.state.check_alive()
        if notes.state.failure is None and not notes.state.full:
            marks = Marks(session_id, low_water_mark, local_low_water_mark(log, low_water_mark))
            begin = partial(notes._begin_marks, partition_id, marks)
            await notes._turns.hand_in(
                partition_id, begin, partial(control_file.keep_low_water_mark, partition_id, marks)
            )
            return
        notes.state.check_alive()
        await self._files.run(partial(control_file.write_kept, [partition_id]))
        await super().set_low_water_mark(control_file, log, session_id, low_water_mark, directly)

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        """Truncate. The partition is settled first, unless the truncation is an entry of the journal or removes
        nothing."""
        if log.max_transaction_id > transaction_id:
            if self._goes_through_journal(log.partition_id, 0):
                self.state.logs[log.partition_id] = log
                truncation = Truncation(log, transaction_id)
                maximum = await self._turns.hand_in(log.partition_id, truncation.begin, truncation.end, nothing)
                if maximum is not None:
                    return maximum
            await self._settle(log)
        return await super().truncate(log, transaction_id)

    async def trim(self, log: PartitionLog, change: Callable[[], Result]) -> Result:
        """Trim after the partition is settled: a replay must not look for records in segments that are gone."""
        await self._settle(log)
        return await super().trim(log, change)

    async def close(self, log: PartitionLog) -> None:
        state, partition_id = self.state, log.partition_id
        covered = state.completed
        async with state.syncing[partition_id]:
            await super().close(log)
            if log.read_only_reason is not None:
                return  # the changes that the segment lacks stay in the journal
            state.logs.pop(partition_id, None)
            state.segments.paid(partition_id, covered)
        if state.is_unsettled(partition_id):
            await self._turns.hand_in(partition_id, partial(settled, log), nothing)

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        await self.make_openable(partition_id)
        return await super().replace(partition_id, function)

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        journals = (self,) if self._notes is self else (self, self._notes)
        await self._files.run(partial(self._notes.state.write_notes, [partition_id]))
        for each in journals:
            if each.state.holds_entries_of(partition_id):
                await each._turns.hand_in(partition_id, lambda: [Dropped(partition_id)], nothing)
            each.state.check_alive()
        for each in journals:
            each.state.forget(partition_id)
        return await super().drop(partition_id, function)

    async def make_openable(self, partition_id: int) -> None:
        self.state.check_alive()
        notes = self._notes.state
        notes.check_alive()
        try:
            if partition_id in self.state.segments:
                await self._replay(partition_id)
            if partition_id in notes.notes:
                covered = notes.completed
                await self._files.run(partial(notes.write_notes, [partition_id]))
                notes.notes.paid(partition_id, covered)
        except (OSError, StorageError) as error:
            raise StorageError(
                f"partition {partition_id} has changes in the journal that could not be written to its own files "
                f"({error}); check the disk, then run waltz storage sync-partitions"
            ) from error

    async def _replay(self, partition_id: int) -> None:
        """Write the changes in the journal to segments that could not be synced, then settle the partition."""
        state = self.state
        covered = state.completed
        async with state.syncing[partition_id]:
            if partition_id not in state.segments:
                return
            first = state.segments.oldest(partition_id)
            end = await self._files.run(partial(self._replay_groups, partition_id, first, covered))
            state.logs.pop(partition_id, None)
            state.segments.paid(partition_id, covered)
        if end is not None:
            await self._turns.hand_in(partition_id, lambda: [end], nothing)

    def _replay_groups(self, partition_id: int, first: int, last: int) -> Settled | None:
        places = self.state.journal.read(first, last)
        cluster_key = self.state.control_file.cluster_key
        return replay_partition(self._files, self._path, cluster_key, partition_id, places)

    async def close_all(self) -> None:
        """Make all changes durable in their own files, if possible, and let the journal not count any more.

        All partitions are closed. A journal that still counts is replayed by the next start.
        """
        state = self.state
        state.ending.set()
        self._turns.wake()
        state.checkpoint_wanted.set()
        await asyncio.wait(self._tasks)
        try:
            await self._files.run(self._close_journal if state.failure is None else state.journal.close)
        except (OSError, StorageError) as error:
            logger.warning("the changes stay in the journal, and the next start replays them: %s", error)

    def _close_journal(self) -> None:
        state = self.state
        state.write_notes(state.notes.by_age())
        if not state.segments.by_age():
            state.journal.release(state.journal.next_number)
        if state.journal.close():
            self._standing.end()

    def _goes_through_journal(self, partition_id: int, size_bytes: int) -> bool:
        state = self.state
        if state.failure is not None or size_bytes > self.max_gathered_bytes:
            return False
        if len(self._busy) > 1 or self._turns.has_jobs:
            state.groups_alone[partition_id] = 0
            return True
        groups = state.groups_alone[partition_id] = state.groups_alone.get(partition_id, 0) + 1
        return groups <= ALONE_TURNS and state.is_unsettled(partition_id)

    async def _settle(self, log: PartitionLog) -> None:
        """Make a replay leave out the entries of the partition so far. No change of the partition may be under way."""
        state = self.state
        if not state.is_unsettled(log.partition_id):
            return
        self.state.check_alive()
        covered = state.completed
        async with state.syncing[log.partition_id]:
            await self._files.run(log.flush)
            state.segments.paid(log.partition_id, covered)
        await self._turns.hand_in(log.partition_id, partial(settled, log), nothing)

    def _begin_fence(self, partition_id: int, session_id: int) -> list[Entry]:
        return [Fenced(partition_id, session_id)] if self.state.fence(partition_id) < session_id else []

    def _begin_marks(self, partition_id: int, marks: Marks) -> list[Entry]:
        self.state.control_file.check_low_water_mark(partition_id, marks)
        return [Marked(partition_id, *marks)]

    def _died(self, error: Exception) -> None:
        """A task has ended by a defect. No change that needs the journal is acknowledged any more, and no caller is
        left waiting."""
        self.state.failure = self.state.failure or f"of a defect: {error!r}"
        self.state.dead = True
        logger.critical("the journal is not used any more because of a defect", exc_info=error)
        self._turns.give_up()
