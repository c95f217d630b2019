"""Turns: the waiting changes of all partitions go into the journal as one group, and are durable with one sync."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

from waltz.common.tasks import owned
from waltz.storage.disk.journal.entries import Entry
from waltz.storage.disk.journal.ring import JournalFullError
from waltz.storage.disk.log.log import Prepared
from waltz.storage.errors import OverCapacityError, ReadOnlyError
from waltz.storage.node import without_journal
from waltz.storage.node.durability import Member
from waltz.storage.node.journal_jobs import Append, Job, nothing
from waltz.storage.node.journal_state import JournalState, either

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TURN_BYTES = 256 << 10
"""The largest size of the appends that go into the journal together."""
FULL_S = 10.0
"""Time limit of appends that wait for room in a full journal. Afterwards they are refused."""


class Turns:
    """Takes the changes that partitions hand in, in one turn after the other."""

    def __init__(self, state: JournalState) -> None:
        """Nothing begins before :meth:`start`."""
        self.max_bytes = min(MAX_TURN_BYTES, state.journal.group_limit_bytes // 2)
        """The largest size of the appends of a turn; a single group may be larger."""
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._enlisted: list[Member] = []
        self._waiting: list[Job[object]] = []
        self._taken: list[Job[object]] = []
        """The jobs of the turn that is under way."""
        self._handed_in = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_jobs(self) -> bool:
        """Whether jobs wait for the next turn."""
        return bool(self._waiting)

    def start(self, on_defect: Callable[[Exception], None]) -> asyncio.Task[None]:
        """Begin. ``on_defect`` is called when the task dies. The task ends when the node ends and no job waits."""
        self._task = owned(self._run(), "the journal of the storage node", on_defect)
        return self._task

    def wake(self) -> None:
        """Make the task look for jobs and for the end of the node."""
        self._handed_in.set()

    def enlist(self, member: Member) -> None:
        """Make the next turn take up the waiting appends of a partition."""
        if not self._enlisted:
            self._handed_in.set()
        self._enlisted.append(member)

    async def hand_in(
        self,
        partition_id: int,
        begin: Callable[[], list[Entry]],
        end: Callable[[], T],
        take_back: Callable[[], None] | None = None,
        size_bytes: int = 0,
    ) -> T:
        """Wait for the turn that makes a change durable, and for the end of the change.

        Args:
            partition_id: The partition.
            begin: See :class:`Job`.
            end: See :class:`Job`.
            take_back: See :class:`Job`.
            size_bytes: The share of the change in the size of the turn.

        Returns:
            What ``end`` returns.

        Raises:
            ReadOnlyError: The journal has failed or is closed, and no change is acknowledged any more.
            OverCapacityError: The journal is full.
            Exception: The error of ``begin`` or ``end``.
        """
        self._state.check_alive()
        if self._task is None or self._task.done():
            raise ReadOnlyError("the journal of the storage node is closed")
        future: asyncio.Future[None] = self._loop.create_future()

        def ended(_job: Job[T]) -> None:
            if not future.done():
                future.set_result(None)

        job = Job(partition_id, ended, begin, end, take_back, size_bytes)
        self._waiting.append(job)  # type: ignore[arg-type]  # jobs with whatever result
        self._handed_in.set()
        await future
        if job.error is not None:
            raise job.error
        return job.result[0]

    def give_up(self) -> None:
        """After a defect, when no change is acknowledged any more: end the wait of all callers.

        The present turn ends by itself, unless the defect is in it.
        """
        jobs, self._waiting = self._waiting, []
        if self._task is None or self._task.done():
            jobs = [*self._taken, *jobs]
        enlisted, self._enlisted = self._enlisted, []
        without_journal.carry_out(self._state, jobs)
        for job in jobs:
            job.tell()
        for member in enlisted:
            member.release()

    async def _run(self) -> None:
        while True:
            if not self._waiting and not self._enlisted:
                if self._state.ending.is_set():
                    return
                self._handed_in.clear()
                await self._handed_in.wait()
            await asyncio.sleep(
                0
            )  # answered requesters, and other requests of the same read, hand in their changes, too
            self._taken = self._take()
            await self._take_turn(self._taken)
            self._taken = []

    def _take(self) -> list[Job[object]]:
        enlisted, self._enlisted = self._enlisted, []
        for member in enlisted:
            self._take_up(member)
        size_bytes = 0
        for count, job in enumerate(self._waiting):
            size_bytes += job.size_bytes
            if count and size_bytes > self.max_bytes:
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
            self._state.groups_alone[partition_id] = 0
            self._state.logs[partition_id] = log
            group = Append(log, batches)
            ended = partial(_append_ended, member)
            self._waiting.append(Job(partition_id, ended, group.begin, group.end, group.take_back, size_bytes))

    async def _take_turn(self, jobs: list[Job[object]]) -> None:
        state = self._state
        try:
            if state.failure is None:
                state.completed = number = await self._append(jobs)
                for job in jobs:
                    state.note(job.partition_id, job.entries, number)
            else:
                await state.files.run(partial(without_journal.carry_out, state, jobs))
        except OSError as error:
            await self._outlive(error, jobs)
        for job in jobs:
            job.tell()

    async def _append(self, jobs: list[Job[object]]) -> int:
        """Begin jobs and make their entries durable. While the journal is full, the jobs wait; appends wait up to a
        limit.

        Returns the number of the group.
        """
        state = self._state
        deadline_s = self._loop.time() + FULL_S
        begin: Callable[[], None] = partial(_begin, jobs)
        while True:
            state.has_room.clear()
            try:
                number = await state.on_disk("turn", partial(self._begin_and_append, begin, jobs))
            except JournalFullError as error:
                full, begin = str(error), nothing
            else:
                state.full = False
                return number
            if not state.full:
                state.full = True
                logger.warning("appends wait: %s", full)
            state.checkpoint_wanted.set()
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                await state.files.run(partial(without_journal.refuse, state, jobs, OverCapacityError(full)))
                return state.completed
            await either(state.has_room, left_s)

    def _begin_and_append(self, begin: Callable[[], None], jobs: list[Job[object]]) -> int:
        begin()
        entries = [entry for job in jobs if job.error is None for entry in job.entries]
        return self._append_entries(entries, jobs)

    def _append_entries(self, entries: list[Entry], jobs: list[Job[object]]) -> int:
        number = self._state.journal.append(entries) if entries else self._state.completed
        for job in jobs:
            job.finish()
        return number

    async def _outlive(self, error: OSError, jobs: list[Job[object]]) -> None:
        state = self._state
        async with AsyncExitStack() as alone:
            for partition_id in sorted({*state.segments.by_age(), *without_journal.changed_segments(jobs)}):
                await alone.enter_async_context(state.syncing[partition_id])
            second = await state.on_disk("turn", partial(without_journal.outlive, state, error, jobs))
            state.dead = second is not None
            state.failure = str(error)
            state.segments.clear()
            state.notes.clear()
        state.checkpoint_wanted.set()


def _begin(jobs: list[Job[object]]) -> None:
    for job in jobs:
        job.begin()


def _append_ended(member: Member, job: Job[Prepared | None]) -> None:
    member.ended(None if job.error is not None else job.result[0], job.error)
