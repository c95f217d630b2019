"""The journal in use, and the changes that are durable in the journal only.

Turns append to the journal, checkpoints make its changes durable in other files, and partitions ask for their state:
all of them share this object. Methods belong to the event loop's thread, unless they say that they block.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.entries import Entry, Fenced, Marked, Records, Settled, Truncated
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.errors import ReadOnlyError
from waltz.storage.node.debts import Debts
from waltz.storage.node.journal_jobs import NO_SESSION

T = TypeVar("T")

_NO_GROUP = -1


class JournalState:
    """The journal, the partitions with changes that are durable in the journal only, and the signals between turns and
    checkpoints."""

    def __init__(
        self,
        files: Files,
        journal: Journal,
        control_file: ControlFile,
        fence_file: FenceFile,
        withdraw: Callable[[], None],
        *,
        keeps_notes: bool = True,
    ) -> None:
        """Take over an open journal.

        ``withdraw`` lets the journal not count any more, durably; it blocks. ``keeps_notes``: whether fences and marks
        go into this journal.
        """
        self.files = files
        self.journal = journal
        self.control_file = control_file
        self.fence_file = fence_file
        self.withdraw = withdraw
        self._keeps_notes = keeps_notes
        self.completed = journal.next_number - 1
        """The last group that is durable, and whose work after the sync is done."""
        self.failure: str | None = None
        """The reason why the journal is not used."""
        self.dead = False
        """Whether no change that needs the journal is acknowledged any more, until the process is started again."""
        self.full = False
        """Whether appends wait for room."""
        self.logs: dict[int, PartitionLog] = {}
        """The open logs of partitions that have written to the journal."""
        self.segments = Debts()
        """Groups that are durable in the journal only, for the segments."""
        self.notes = Debts()
        """Groups that are durable in the journal only, for fences and marks."""
        self.groups_alone: dict[int, int] = {}
        """For each partition, the number of groups that it has written to the journal since the last turn with another
        partition."""
        self.syncing: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Locks for the syncs of segments: of two concurrent syncs only one would learn of a failure."""
        self.checkpoint_wanted = asyncio.Event()
        """Set when a checkpoint must not wait: the journal is full or has failed, or the node ends."""
        self.has_room = asyncio.Event()
        """Set when groups of the journal were released."""
        self.ending = asyncio.Event()
        """Set when the node ends."""
        self._loop = asyncio.get_running_loop()
        self._fences: dict[int, int] = {}
        self._last_records: dict[int, int] = {}
        self._last_entry: dict[int, int] = {}
        self._calls_begun_s: dict[int | str, float] = {}

    # Calls that block

    async def on_disk(self, what: int | str, function: Callable[[], T]) -> T:
        """Run a blocking call for the segment of a partition (given by id), or for files that all partitions share
        (given by name)."""
        self._calls_begun_s[what] = self._loop.time()
        try:
            return await self.files.run(function)
        finally:
            del self._calls_begun_s[what]

    @property
    def syncing_s(self) -> dict[int, float]:
        """The partitions whose segment a checkpoint is syncing, and the duration of the wait for the disk."""
        now_s = self._loop.time()
        return {what: now_s - begun_s for what, begun_s in self._calls_begun_s.items() if isinstance(what, int)}

    @property
    def waiting_for_disk_s(self) -> float:
        """The duration for which the journal, or a write of fences and marks, has waited for the disk."""
        begun_s = min((at_s for what, at_s in self._calls_begun_s.items() if isinstance(what, str)), default=None)
        return 0.0 if begun_s is None else self._loop.time() - begun_s

    # The content of the journal

    def note(self, partition_id: int, entries: Sequence[Entry], number: int) -> None:
        """Note that entries of a partition are durable in this group of the journal."""
        for entry in entries:
            self._last_entry[partition_id] = number
            if type(entry) is Records or isinstance(entry, Truncated):  # a union would be made anew for each entry
                self.segments.owe(partition_id, number)
                self._last_records[partition_id] = number
            elif isinstance(entry, Fenced | Marked):
                self.notes.owe(partition_id, number)
            elif isinstance(entry, Settled):
                self._last_records.pop(partition_id, None)

    def is_unsettled(self, partition_id: int) -> bool:
        """Whether a replay would write records of the partition."""
        return (
            self.failure is None and self._last_records.get(partition_id, _NO_GROUP) >= self.journal.oldest_number
        ) or self.dead

    def holds_entries_of(self, partition_id: int) -> bool:
        """Whether a replay would meet entries of the partition, of any kind."""
        return self.failure is None and self._last_entry.get(partition_id, _NO_GROUP) >= self.journal.oldest_number

    def forget(self, partition_id: int) -> None:
        """Forget everything about the partition."""
        self.segments.forgive(partition_id)
        self.notes.forgive(partition_id)
        for known in (self._fences, self._last_records, self._last_entry, self.groups_alone, self.logs, self.syncing):
            known.pop(partition_id, None)

    def release(self) -> None:
        """Release the groups of the journal that no partition owes."""
        next_number = self.completed + 1
        self.journal.release(min(self.segments.floor(next_number), self.notes.floor(next_number)))
        self.has_room.set()

    def go_on_with(self, journal: Journal) -> None:
        """Use another journal. All changes in the former journal have to be durable in their own files."""
        self.journal = journal
        self.completed = journal.next_number - 1
        for known in (self._last_records, self._last_entry, self.groups_alone):
            known.clear()
        self.failure = None

    # Fences and marks

    def fence(self, partition_id: int) -> int:
        """The newest session that was admitted; may be called in any thread."""
        return max(self.fence_file.get(partition_id), self._fences.get(partition_id, NO_SESSION))

    def keep_fence(self, partition_id: int, session_id: int) -> None:
        """Remember a fence that is durable in the journal; may be called in any thread."""
        self._fences[partition_id] = max(session_id, self._fences.get(partition_id, session_id))

    def write_notes(self, partition_ids: Collection[int]) -> None:
        """Write fences and marks of partitions to their own files, with one sync for all partitions. Blocking.

        Raises:
            StorageError: The fences or marks of one of the partitions are damaged; nothing was written.
            OSError: A write or sync has failed.
        """
        if self._keeps_notes:
            self.fence_file.raise_all({each: self._fences[each] for each in partition_ids if each in self._fences})
            self.control_file.write_kept(partition_ids)

    def check_alive(self) -> None:
        """Raise ``ReadOnlyError`` when no change is acknowledged any more."""
        if self.dead:
            raise ReadOnlyError(
                f"the journal of the storage node is not used any more, and nothing is acknowledged ({self.failure}); "
                "check the disk, then restart the storage node"
            )


async def either(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait for an event, up to a limit."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
