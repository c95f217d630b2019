"""One journal makes the changes of all partitions durable with one sync; their segments are synced later.

A turn takes what all partitions wait for. Records are written to their segments, not synced, and once more to the
journal, together with fences, low-water marks and truncations; one sync of the journal makes all of it durable. A
checkpoint syncs segments in the background, the oldest debt first, and writes fences and marks to their files; then the
journal's files are used again.

What is not written through the journal (large groups, a partition that is alone, segments that are begun or taken away)
needs a partition that is *settled*: its segment was synced, and the journal says so, so that a replay leaves out what
it holds of the partition before.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Generic, TypeVar

from waltz.common.records import Record
from waltz.common.tasks import owned
from waltz.storage.disk.control_file import ControlFile, Marks
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.entries import Dropped, Entry, Fenced, Marked, Records, Settled, Truncated
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import Contents
from waltz.storage.disk.journal.replay import replay_partition
from waltz.storage.disk.journal.ring import JournalFullError
from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.errors import OverCapacityError, ReadOnlyError, StorageError
from waltz.storage.node.checkpoint import Debts
from waltz.storage.node.durability import Member, SyncEach, local_low_water_mark

logger = logging.getLogger(__name__)

T = TypeVar("T")
Result = TypeVar("Result")

MAX_TURN_BYTES = 256 << 10
"""Appends that go into the journal together."""
MAX_JOURNALED_BYTES = 64 << 10
"""A larger group of one partition syncs its own file: it would be written twice, and delay the others."""
ALONE_TURNS = 16
"""A partition that was alone for this number of groups is settled, and syncs its own file from then on."""
CHECKPOINT_S = 5.0
"""One round of syncs through all partitions is spread over this time."""
IDLE_S = 1.0
FULL_S = 10.0
"""Time limit of appends that wait for room in a full journal; afterwards they are refused."""
RENEWALS_S = (10.0, 60.0, 600.0)
"""The pauses before attempts to replace a failed journal by a new one. A process makes no more attempts than these."""

_NO_SESSION = -1


class _Job(Generic[T]):
    """A change of a partition on its way through the journal."""

    __slots__ = ("begin", "end", "ended", "entries", "error", "partition_id", "result", "size_bytes", "take_back")

    def __init__(
        self,
        partition_id: int,
        ended: Callable[["_Job[T]"], None],
        begin: Callable[[], list[Entry]],
        end: Callable[[], T],
        take_back: Callable[[], None] | None = None,
        size_bytes: int = 0,
    ) -> None:
        """``begin`` writes to the segment and returns the entries; ``end`` follows the sync of the entries. Both block.

        ``ended`` is called in the event loop after ``end``, or after a failure.
        ``take_back`` undoes ``begin``; only jobs that have it may be refused.
        """
        self.partition_id = partition_id
        self.ended = ended
        self.begin = begin
        self.end = end
        self.take_back = take_back
        self.size_bytes = size_bytes
        self.entries: list[Entry] = []
        self.error: Exception | None = None
        self.result: list[T] = []

    def finish(self) -> None:
        """For the thread: what follows the sync."""
        if self.error is None:
            try:
                self.result.append(self.end())
            except Exception as error:
                self.error = error


class _Append:
    """A group of appends on its way through the journal."""

    __slots__ = ("_batches", "_log", "prepared")

    def __init__(self, log: PartitionLog, batches: Sequence[Sequence[Record]]) -> None:
        self._log = log
        self._batches = batches
        self.prepared: Prepared | None = None

    def begin(self) -> list[Entry]:
        log = self._log
        prepared = log.prepare(self._batches)
        if not log.write(prepared):
            return []
        self.prepared = prepared
        segment_first_id = prepared.start.segment_first_id
        return [
            Records(log.partition_id, _NO_SESSION, segment_first_id, offset, first_id, len(record_offsets), chunks)
            for first_id, _starts_segment, offset, chunks, record_offsets, _end_offset, _checkpoint in prepared.writes
        ]

    def end(self) -> Prepared | None:
        """``None`` when nothing was written, because the group begins another segment."""
        if self.prepared is not None:
            self._log.index_written(self.prepared)
        return self.prepared

    def take_back(self) -> None:
        if self.prepared is not None:
            self._log.take_back(self.prepared)


class _Truncation:
    """A truncation within the current segment on its way through the journal, which knows of it before the files do."""

    __slots__ = ("_behind", "_log", "_transaction_id")

    def __init__(self, log: PartitionLog, transaction_id: int) -> None:
        self._log = log
        self._transaction_id = transaction_id
        self._behind: LogEnd | None = None

    def begin(self) -> list[Entry]:
        behind = self._log.end_behind(self._transaction_id)
        if behind.segment_first_id != self._log.end.segment_first_id:
            return []
        self._behind = behind
        return [
            Truncated(self._log.partition_id, _NO_SESSION, self._transaction_id, behind.segment_first_id, behind.offset)
        ]

    def end(self) -> int | None:
        """The new maximum; ``None`` when nothing was cut, because it takes away segments."""
        if self._behind is None:
            return None
        self._log.cut(self._behind)
        return self._log.max_transaction_id


class Journaled(SyncEach):
    """Durability by a journal. After a failure every partition syncs its own files, until there is a new journal."""

    def __init__(
        self,
        files: Files,
        busy: set[int],
        path: str,
        journal: Journal,
        control_file: ControlFile,
        fence_file: FenceFile,
        lost: Callable[[], Sequence[int]],
        another: Callable[[Contents], Journal],
    ) -> None:
        """Take over an open journal, and a control file that is guarded; see :meth:`close_all`.

        ``path`` is the storage directory. ``lost``, which blocks, tells which partitions lack what was acknowledged.
        ``another``, which blocks, opens a journal behind what remains of one that has failed, and guards the control
        file.
        """
        super().__init__(files, busy)
        self.failure: str | None = None
        """Why the journal is not used."""
        self.full = False
        """Whether appends wait for room."""
        self._dead = False
        self._path = path
        self._journal = journal
        self._control_file = control_file
        self._fence_file = fence_file
        self._lost = lost
        self._another = another
        self._renewals = iter(RENEWALS_S)
        self._max_turn_bytes = min(MAX_TURN_BYTES, journal.group_limit_bytes // 2)
        self.max_gathered_bytes = min(MAX_JOURNALED_BYTES, self._max_turn_bytes)
        self._loop = asyncio.get_running_loop()
        self._logs: dict[int, PartitionLog] = {}
        self._segments = Debts()
        self._notes = Debts()
        self._fences: dict[int, int] = {}
        self._last_records: dict[int, int] = {}
        self._last_entry: dict[int, int] = {}
        self._alone: dict[int, int] = {}
        self._completed = journal.next_number - 1
        self._enlisted: list[Member] = []
        self._waiting: list[_Job[object]] = []
        self._taken: list[_Job[object]] = []
        """The jobs of the turn that is under way."""
        self._syncing: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Of two syncs of a segment side by side only one learns of a failure: there is one at a time."""
        self._handed_in = asyncio.Event()
        self._wanted = asyncio.Event()
        self._room = asyncio.Event()
        self._ending = asyncio.Event()
        self._calls_begun_s: dict[int | str, float] = {}
        self._turns = owned(self._run_turns(), "the journal of the storage node", self._died)
        self._checkpoints = owned(self._run_checkpoints(), "the checkpoints of the storage node", self._died)

    @property
    def free_bytes(self) -> int:
        """What may be appended to the journal before a checkpoint has to make room."""
        return self._journal.free_bytes

    @property
    def owing(self) -> list[int]:
        """Partitions of which the journal holds what is not durable where it belongs."""
        return self._segments.by_age()

    @property
    def syncing_s(self) -> dict[int, float]:
        """Partitions of which a checkpoint syncs the segment, and for how long it has waited for the disk."""
        now_s = self._loop.time()
        return {what: now_s - begun_s for what, begun_s in self._calls_begun_s.items() if isinstance(what, int)}

    @property
    def waiting_for_disk_s(self) -> float:
        """For how long the journal, or what takes fences and marks from it, has waited for the disk."""
        begun_s = min((at_s for what, at_s in self._calls_begun_s.items() if isinstance(what, str)), default=None)
        return 0.0 if begun_s is None else self._loop.time() - begun_s

    async def _on_disk(self, what: int | str, function: Callable[[], T]) -> T:
        """Run what blocks: of a partition's segment (by its id), or of files that all partitions share (named)."""
        self._calls_begun_s[what] = self._loop.time()
        try:
            return await self._files.run(function)
        finally:
            del self._calls_begun_s[what]

    # What partitions ask for

    def enlist(self, member: Member) -> bool:
        """Not a partition that is alone."""
        if self.failure is not None or len(self._busy) < 2:
            return False
        if not self._enlisted:
            self._handed_in.set()
        self._enlisted.append(member)
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
            self._logs[partition_id] = log
            group = _Append(log, batches)
            prepared = await self._hand_in(partition_id, group.begin, group.end, group.take_back, size_bytes)
            if prepared is not None:
                return prepared
        await self._settle(log)
        return await super().write(log, batches, size_bytes, ahead=ahead, after=after)

    async def raise_fence(self, fence_file: FenceFile, partition_id: int, session_id: int) -> None:
        if self.failure is None and not self.full:
            begin = partial(self._begin_fence, partition_id, session_id)
            await self._hand_in(partition_id, begin, partial(self._keep_fence, partition_id, session_id))
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
        partition_id = log.partition_id
        if self.failure is None and not self.full:
            marks = Marks(session_id, low_water_mark, local_low_water_mark(log, low_water_mark))
            begin = partial(self._begin_marks, partition_id, marks)
            await self._hand_in(partition_id, begin, partial(control_file.keep_low_water_mark, partition_id, marks))
            return
        self._check_alive()
        await self._files.run(partial(control_file.write_kept, [partition_id]))
        await super().set_low_water_mark(control_file, log, session_id, low_water_mark, directly)

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        """Without effect on the files when there is nothing to remove; then nothing need be settled."""
        if log.max_transaction_id > transaction_id:
            if self._goes_through_journal(log.partition_id, 0):
                self._logs[log.partition_id] = log
                truncation = _Truncation(log, transaction_id)
                maximum = await self._hand_in(log.partition_id, truncation.begin, truncation.end, _nothing)
                if maximum is not None:
                    return maximum
            await self._settle(log)
        return await super().truncate(log, transaction_id)

    async def close(self, log: PartitionLog) -> None:
        partition_id, covered = log.partition_id, self._completed
        async with self._syncing[partition_id]:
            await super().close(log)
            if log.read_only_reason is not None:
                return  # what it owes stays in the journal
            self._logs.pop(partition_id, None)
            self._segments.paid(partition_id, covered)
        if self._is_unsettled(partition_id):
            await self._hand_in(partition_id, partial(_settled, log), _nothing)

    async def replace(self, partition_id: int, function: Callable[[], Result]) -> Result:
        await self.make_openable(partition_id)
        return await super().replace(partition_id, function)

    async def drop(self, partition_id: int, function: Callable[[], Result]) -> Result:
        await self._files.run(partial(self._write_notes, [partition_id]))
        if self.failure is None and self._last_entry.get(partition_id, -1) >= self._journal.oldest_number:
            await self._hand_in(partition_id, lambda: [Dropped(partition_id)], _nothing)
        self._check_alive()
        self._segments.forgive(partition_id)
        self._notes.forgive(partition_id)
        for known in (self._fences, self._last_records, self._last_entry, self._alone, self._logs, self._syncing):
            known.pop(partition_id, None)
        return await super().drop(partition_id, function)

    async def make_openable(self, partition_id: int) -> None:
        self._check_alive()
        try:
            if partition_id in self._segments:
                await self._replay(partition_id)
            if partition_id in self._notes:
                covered = self._completed
                await self._files.run(partial(self._write_notes, [partition_id]))
                self._notes.paid(partition_id, covered)
        except (OSError, StorageError) as error:
            raise StorageError(
                f"partition {partition_id} has changes in the journal that could not be written where they belong "
                f"({error}); check the disk, then run waltz storage sync-partitions"
            ) from error

    async def _replay(self, partition_id: int) -> None:
        """Write what the journal holds of segments that could not be synced, and settle."""
        covered = self._completed
        async with self._syncing[partition_id]:
            if partition_id not in self._segments:
                return
            first = self._segments.oldest(partition_id)
            end = await self._files.run(partial(self._replay_groups, partition_id, first, covered))
            self._logs.pop(partition_id, None)
            self._segments.paid(partition_id, covered)
        if end is not None:
            await self._hand_in(partition_id, lambda: [end], _nothing)

    def _replay_groups(self, partition_id: int, first: int, last: int) -> Settled | None:
        places = self._journal.read(first, last)
        return replay_partition(self._files, self._path, self._control_file.cluster_key, partition_id, places)

    async def close_all(self) -> None:
        """Write everything where it belongs, if that is possible, and say so in the control file.

        All partitions are closed. A control file that stays guarded makes the next start replay the journal.
        """
        self._ending.set()
        self._handed_in.set()
        self._wanted.set()
        await asyncio.wait((self._turns, self._checkpoints))
        try:
            await self._files.run(self._close_journal if self.failure is None else self._journal.close)
        except (OSError, StorageError) as error:
            logger.warning("the journal keeps what it holds, and the next start replays it: %s", error)

    def _close_journal(self) -> None:
        self._write_notes(self._notes.by_age())
        if not self._segments.by_age():
            self._journal.release(self._journal.next_number)
        if self._journal.close() and not self._lost():
            self._control_file.unguard()

    def _goes_through_journal(self, partition_id: int, size_bytes: int) -> bool:
        if self.failure is not None or size_bytes > self.max_gathered_bytes:
            return False
        if len(self._busy) > 1 or self._waiting:
            self._alone[partition_id] = 0
            return True
        turns = self._alone[partition_id] = self._alone.get(partition_id, 0) + 1
        return turns <= ALONE_TURNS and self._is_unsettled(partition_id)

    def _is_unsettled(self, partition_id: int) -> bool:
        """Whether a replay would write records of the partition."""
        return (
            self.failure is None and self._last_records.get(partition_id, -1) >= self._journal.oldest_number
        ) or self._dead

    async def _settle(self, log: PartitionLog) -> None:
        """Have a replay leave out what the journal holds of the partition; nothing of it is under way."""
        if not self._is_unsettled(log.partition_id):
            return
        self._check_alive()
        covered = self._completed
        async with self._syncing[log.partition_id]:
            await self._files.run(log.flush)
            self._segments.paid(log.partition_id, covered)
        await self._hand_in(log.partition_id, partial(_settled, log), _nothing)

    def _begin_fence(self, partition_id: int, session_id: int) -> list[Entry]:
        known = max(self._fence_file.get(partition_id), self._fences.get(partition_id, _NO_SESSION))
        return [Fenced(partition_id, session_id)] if known < session_id else []

    def _keep_fence(self, partition_id: int, session_id: int) -> None:
        self._fences[partition_id] = max(session_id, self._fences.get(partition_id, _NO_SESSION))

    def _begin_marks(self, partition_id: int, marks: Marks) -> list[Entry]:
        self._control_file.check_low_water_mark(partition_id, marks)
        return [Marked(partition_id, *marks)]

    def _write_notes(self, partition_ids: Collection[int]) -> None:
        """Write fences and marks of partitions where they belong, with one sync for all; blocking."""
        self._fence_file.raise_all({each: self._fences[each] for each in partition_ids if each in self._fences})
        self._control_file.write_kept(partition_ids)

    def _check_alive(self) -> None:
        if self._dead:
            raise ReadOnlyError(
                f"the journal of the storage node and a file of a partition have failed ({self.failure}); check the "
                "disk, then restart the storage node"
            )

    # Turns

    async def _hand_in(
        self,
        partition_id: int,
        begin: Callable[[], list[Entry]],
        end: Callable[[], T],
        take_back: Callable[[], None] | None = None,
        size_bytes: int = 0,
    ) -> T:
        """Wait for the turn that makes it durable, and for its end. Raises what it raises."""
        self._check_alive()
        if self._turns.done():
            raise ReadOnlyError(f"the journal is not used any more: {self.failure}")
        future: asyncio.Future[None] = self._loop.create_future()

        def ended(_job: _Job[T]) -> None:
            if not future.done():
                future.set_result(None)

        job = _Job(partition_id, ended, begin, end, take_back, size_bytes)
        self._waiting.append(job)  # type: ignore[arg-type]  # jobs with whatever result
        self._handed_in.set()
        await future
        if job.error is not None:
            raise job.error
        return job.result[0]

    async def _run_turns(self) -> None:
        while True:
            if not self._waiting and not self._enlisted:
                if self._ending.is_set():
                    return
                self._handed_in.clear()
                await self._handed_in.wait()
            await asyncio.sleep(0)  # who was answered, or has got something in the same read, hands in as well
            self._taken = self._take()
            await self._take_turn(self._taken)
            self._taken = []

    def _take(self) -> list[_Job[object]]:
        enlisted, self._enlisted = self._enlisted, []
        for member in enlisted:
            self._take_up(member)
        size_bytes = 0
        for count, job in enumerate(self._waiting):
            size_bytes += job.size_bytes
            if count and size_bytes > self._max_turn_bytes:
                jobs, self._waiting = self._waiting[:count], self._waiting[count:]
                return jobs
        jobs, self._waiting = self._waiting, []
        return jobs

    def _take_up(self, member: Member) -> None:
        taken = member.take_up()
        if taken is not None:
            batches, size_bytes = taken
            log = member.log
            partition_id = log.partition_id
            self._alone[partition_id] = 0
            self._logs[partition_id] = log
            group = _Append(log, batches)
            ended = partial(_append_ended, member)
            self._waiting.append(_Job(partition_id, ended, group.begin, group.end, group.take_back, size_bytes))

    async def _take_turn(self, jobs: list[_Job[object]]) -> None:
        number = None
        try:
            if self.failure is None:
                number = await self._append(jobs)
            if number is None:
                await self._files.run(partial(self._carry_out_without, jobs))
        except OSError as error:
            await self._go_on_without(error, jobs)
        if number is not None:
            self._completed = number
            for job in jobs:
                self._note(job, number)
        for job in jobs:
            job.ended(job)

    async def _append(self, jobs: list[_Job[object]]) -> int | None:
        """Begin jobs and make their entries durable; while the journal is full they wait, appends not for ever."""
        deadline_s = self._loop.time() + FULL_S
        begin: Callable[[], None] = partial(_begin, jobs)
        while True:
            self._room.clear()
            try:
                number = await self._on_disk("turn", partial(self._begin_and_append, begin, jobs))
            except JournalFullError as error:
                full, begin = str(error), _nothing
            else:
                self.full = False
                return number
            if not self.full:
                self.full = True
                logger.warning("appends wait: %s", full)
            self._wanted.set()
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                await self._files.run(partial(self._refuse, jobs, OverCapacityError(full)))
                return self._completed
            await _either(self._room, left_s)

    def _begin_and_append(self, begin: Callable[[], None], jobs: list[_Job[object]]) -> int:
        begin()
        entries = [entry for job in jobs if job.error is None for entry in job.entries]
        return self._append_entries(entries, jobs)

    def _append_entries(self, entries: list[Entry], jobs: list[_Job[object]]) -> int:
        number = self._journal.append(entries) if entries else self._completed
        for job in jobs:
            job.finish()
        return number

    def _refuse(self, jobs: Sequence[_Job[object]], error: OverCapacityError) -> None:
        """Take back appends; fences and marks go where they belong, and what else needs the journal is refused too."""
        for job in jobs:
            if job.error is not None:
                continue
            try:
                if job.take_back is not None:
                    job.take_back()
                    raise error
                if not all(isinstance(entry, Fenced | Marked) for entry in job.entries):
                    raise error
                job.finish()
                self._write_notes([job.partition_id])
            except Exception as failure:
                job.error = failure
            job.entries = []

    def _note(self, job: _Job[object], number: int) -> None:
        """Keep account of what the journal holds now."""
        partition_id = job.partition_id
        for entry in job.entries:
            self._last_entry[partition_id] = number
            if isinstance(entry, Records | Truncated):
                self._segments.owe(partition_id, number)
                self._last_records[partition_id] = number
            elif isinstance(entry, Fenced | Marked):
                self._notes.owe(partition_id, number)
            elif isinstance(entry, Settled):
                self._last_records.pop(partition_id, None)

    # Without the journal

    async def _go_on_without(self, error: OSError, jobs: list[_Job[object]]) -> None:
        appending = {job.partition_id for job in jobs if job.take_back is not None and job.error is None}
        async with AsyncExitStack() as alone:
            for partition_id in sorted({*self._segments.by_age(), *appending}):
                await alone.enter_async_context(self._syncing[partition_id])
            second = await self._on_disk("turn", partial(self._survive, error, jobs, appending))
            self._dead = second is not None
            self.failure = str(error)
            self._segments.clear()
            self._notes.clear()
        self._wanted.set()

    def _survive(self, error: OSError, jobs: list[_Job[object]], appending: set[int]) -> Exception | None:
        """After a failed write or sync of the journal: make everything durable where it belongs. Blocking.

        Returns what has failed as well: then nothing is acknowledged any more, and the next start replays the journal.
        """
        logger.critical("the journal has failed (%s); all partitions sync their own files", error)
        try:
            for partition_id in {*self._segments.by_age(), *appending}:
                self._logs[partition_id].flush()
            for job in jobs:
                job.finish()
                if job.error is None and any(isinstance(entry, Truncated) for entry in job.entries):
                    self._logs[job.partition_id].flush()
            self._write_notes({*self._notes.by_age(), *(job.partition_id for job in jobs)})
            if not self._lost():
                self._control_file.unguard()
            else:
                raise StorageError("there are partitions that lack what was acknowledged")
        except Exception as second:
            text = "after the journal a file of a partition has failed (%s): no partition takes appends any more"
            logger.critical(text, second)
            for job in jobs:
                job.error = second
            return second
        return None

    def _carry_out_without(self, jobs: list[_Job[object]]) -> None:
        """For what was handed in before the journal failed: it is not written, but for what concerns the journal."""
        for job in jobs:
            if self._dead:
                job.error = ReadOnlyError(f"the journal has failed: {self.failure}")
            elif job.take_back is not None:
                job.result.append(None)  # as if it began another segment: its own file is synced
            else:
                try:
                    job.begin()
                    job.finish()
                    self._write_notes([job.partition_id])
                except Exception as error:
                    job.error = error

    def _died(self, error: Exception) -> None:
        """One of the tasks has, by a defect: nothing is acknowledged that needs the journal, and nobody waits for it.

        If it was that of the checkpoints, the turn under way ends by itself.
        """
        self.failure = self.failure or f"of a defect: {error!r}"
        self._dead = True
        logger.critical("the journal is not used any more because of a defect", exc_info=error)
        jobs = [*self._taken, *self._waiting] if self._turns.done() else self._waiting
        enlisted, self._enlisted, self._waiting = self._enlisted, [], []
        for job in jobs:
            job.error = job.error or ReadOnlyError(f"the journal is not used any more: {self.failure}")
            job.ended(job)
        for member in enlisted:
            member.release()

    # Checkpoints

    async def _run_checkpoints(self) -> None:
        while not self._ending.is_set():
            await _either(self._wanted, IDLE_S)
            self._wanted.clear()  # behind the wait: a journal that becomes full during a checkpoint wants another one
            if self._ending.is_set():
                return
            if self.failure is None:
                await self._checkpoint()
            elif not self._dead:
                await self._renew()

    async def _renew(self) -> None:
        """After a failure: begin another journal after a pause; when there were enough attempts, wait for the end."""
        pause_s = next(self._renewals, None)
        await _either(self._ending, pause_s)
        if self._ending.is_set():
            return
        failed = self._journal
        try:
            journal = await self._on_disk("checkpoint", partial(self._another, failed.remains()))
        except (OSError, StorageError) as error:
            logger.warning("there is no new journal in place of the one that has failed: %s", error)
            return
        # No await from here on: the next group of every partition finds the new journal.
        self._journal = journal
        self._completed = journal.next_number - 1
        for known in (self._last_records, self._last_entry, self._alone):
            known.clear()
        self.failure = None
        logger.warning("a new journal is used in place of the one that has failed")
        await self._files.run(failed.close)

    async def _checkpoint(self) -> None:
        """Sync every segment that owes something, then write fences and marks, then let go of what nobody needs."""
        owing = self._segments.by_age()
        for partition_id in owing:
            if self._ending.is_set() or self.failure is not None:
                return
            async with self._syncing[partition_id]:
                log = self._logs.get(partition_id)
                if log is not None and log.read_only_reason is None and partition_id in self._segments:
                    await self._sync_segment(partition_id, log)
            if not self.full and 2 * self._journal.free_bytes > self._journal.size_bytes:
                await _either(self._wanted, CHECKPOINT_S / len(owing))
        if noted := self._notes.by_age():
            await self._checkpoint_notes(noted)
        self._release()
        try:
            await self._on_disk("checkpoint", self._journal.extend)
        except OSError as error:
            logger.warning("the journal cannot have a further file: %s", error)

    async def _checkpoint_notes(self, partition_ids: list[int]) -> None:
        """Write fences and marks of partitions together; if that fails, each alone: one of them may be damaged."""
        covered = self._completed
        try:
            await self._on_disk("checkpoint", partial(self._write_notes, partition_ids))
        except (StorageError, OSError) as error:
            if len(partition_ids) == 1:
                logger.error("fence and marks of partition %d stay in the journal: %s", partition_ids[0], error)
                return
            for partition_id in partition_ids:
                await self._checkpoint_notes([partition_id])
        else:
            for partition_id in partition_ids:
                self._notes.paid(partition_id, covered)

    async def _sync_segment(self, partition_id: int, log: PartitionLog) -> None:
        covered = self._completed  # taken before the sync: of what is written meanwhile it says nothing
        try:
            await self._on_disk(partition_id, log.flush)
        except OSError as error:
            text = "partition %d: its segment could not be synced (%s); its records stay in the journal"
            logger.critical(text, partition_id, error)
        except ReadOnlyError:
            logger.debug("partition %d has just gone out of service", partition_id)
        else:
            self._segments.paid(partition_id, covered)
            self._release()

    def _release(self) -> None:
        next_number = self._completed + 1
        self._journal.release(min(self._segments.floor(next_number), self._notes.floor(next_number)))
        self._room.set()


def _append_ended(member: Member, job: _Job[Prepared | None]) -> None:
    member.ended(None if job.error is not None else job.result[0], job.error)


def _begin(jobs: Sequence[_Job[object]]) -> None:
    for job in jobs:
        try:
            job.entries = job.begin()
        except Exception as error:
            job.error = error


def _settled(log: PartitionLog) -> list[Entry]:
    return [Settled(log.partition_id, *log.end)]


def _nothing() -> None:
    """There is nothing to be done behind the sync."""


async def _either(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait for an event, but not longer."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
