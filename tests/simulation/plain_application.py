"""Applications on the plain face of the client: appends with deadlines, many at once, cancelled ones, and feeds."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.application import DATA_PREFIX, ApplicationHost, hashes_of, random_size
from tests.simulation.checker import Attempt, Entry, Outcome, Submitted
from tests.simulation.clients import client_environment
from tests.simulation.levels import Levels, drawn_level
from tests.simulation.loop import Process
from waltz.client.builder import Append
from waltz.client.errors import (
    AppendError,
    AppendManyError,
    ClientClosedError,
    LockConflict,
    NotAuthorizedError,
    NotGuaranteedError,
)
from waltz.client.plain.client import Client
from waltz.common.errors import WaltzError
from waltz.common.wire.versions import FIRST_WITH_APPEND_LOCKS, FIRST_WITH_READ_LOCKS

LATE_MAX_S = 0.5
"""How much longer than its deadline an append may take."""

_NOT_SENT = "not in the log"
"""Text of the note on a cancelled append that is known not to be in the log."""


class PlainHost(ApplicationHost):
    """Appends without callbacks; what its feeds give is its database."""

    plain: Client | None = None
    levels: Levels | None = None

    async def program(self, process: Process) -> None:
        self.plain = None
        self._draw_level = drawn_level(self.world, f"{self.name} run {self.runs}")
        zookeeper = await self.connect_zookeeper(process)
        run = f"{self.name} run {self.runs}"
        async with Client(client_environment(self.world, run, zookeeper, self.version, **self.settings())) as client:
            self.world.trace.line(self.name, f"is client {client.client_id}")
            self.plain = client
            async with asyncio.TaskGroup() as group:
                for partition_id in range(self.world.options.partitions):
                    group.create_task(self._follow(client, partition_id))
                for work in self.beside(client):
                    group.create_task(work)
                await self.submit_all(lambda count: group.create_task(self._submit_some(client, count)))

    def settings(self) -> dict[str, object]:
        """The configuration of its clients, where it is not that of all."""
        return {}

    def beside(self, client: Client) -> list[Coroutine[Any, Any, None]]:
        """The application's work beside appending and following."""
        return []

    @property
    def up(self) -> bool:
        return self.running and self.plain is not None

    async def stop(self) -> None:
        if self.plain is not None:
            await self.plain.close()
            self.closed_run = self.runs
        if self.zookeeper is not None:
            await self.zookeeper.close()

    async def _follow(self, client: Client, partition_id: int) -> None:
        """Apply what the feed gives; begin another one behind it now and then."""
        while True:
            try:
                async for record in client.feed(partition_id, after=self.applied(partition_id)):
                    self.checker.read(self.name, partition_id, record.header, record.data)
                    self.enter(partition_id, record.transaction_id, Entry(bytes(record.req_id), record.header))
                    if self.draw.random() < 0.01:
                        break
            except ClientClosedError:
                return
            except WaltzError as error:
                self.world.trace.line(self.name, f"its feed of partition {partition_id} has ended: {error}")
                await asyncio.sleep(0.5)

    async def _submit_some(self, client: Client, count: int) -> None:
        partition_id = self.draw.randrange(self.world.options.written_partitions)
        all_submitted = [self.begin(partition_id) for _ in range(count)]
        appends = [self._append(submitted) for submitted in all_submitted]
        mark = self.applied(partition_id)
        for submitted, append in zip(all_submitted, appends, strict=True):
            self._attempted(submitted, append, mark)
        timeout_s = self.draw.choice((0.2, 5.0, 30.0, 30.0))
        since_s = self.world.loop.now_s
        if count > 1:
            await self._append_many(client, partition_id, all_submitted, appends, timeout_s)
        else:
            await self._append_one(client, partition_id, all_submitted[0], appends[0], timeout_s)
        took_s = self.world.loop.now_s - since_s
        if took_s > self.world.by_slow_clocks_s(timeout_s) + LATE_MAX_S and not self.stood_still_since(since_s):
            self.world.fail(f"{self.name} waited {took_s:.1f} s for an append with a deadline of {timeout_s:g} s")

    async def _append_one(
        self, client: Client, partition_id: int, submitted: Submitted, append: Append, timeout_s: float
    ) -> None:
        level = self._draw_level()
        work = client.append(
            partition_id,
            append.data,
            header=append.header,
            write_locks=append.write_locks,
            read_locks=append.read_locks,
            append_locks=append.append_locks,
            high_water_mark=submitted.attempts[-1].high_water_mark,
            consistency=level,
            timeout_s=timeout_s,
        )
        if self.draw.random() < 0.05:
            await self._cancelled(submitted, work)
            return
        try:
            transaction_id = await work
        except WaltzError as error:
            self._ended_with(submitted, error)
        else:
            if self.levels is not None:
                self.levels.appended(self.name, partition_id, transaction_id, level)
            self._committed(submitted, transaction_id)

    async def _cancelled(self, submitted: Submitted, work: Coroutine[Any, Any, int]) -> None:
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=0.05 * self.draw.random())
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            try:
                task.result()
            except asyncio.CancelledError as cancelled:
                known = any(_NOT_SENT in note for note in getattr(cancelled, "__notes__", ()))
                self.ended(submitted, Outcome.FAILED if known else Outcome.UNKNOWN, "cancelled")
        elif (error := task.exception()) is None:
            self._committed(submitted, task.result())
        else:
            self._ended_with(submitted, error)

    async def _append_many(
        self, client: Client, partition_id: int, all_submitted: list[Submitted], appends: list[Append], timeout_s: float
    ) -> None:
        mark = all_submitted[0].attempts[-1].high_water_mark
        outcomes: list[int | Exception]
        try:
            outcomes = [*await client.append_many(partition_id, appends, high_water_mark=mark, timeout_s=timeout_s)]
        except AppendManyError as error:
            outcomes = error.outcomes
        except WaltzError as error:
            outcomes = [error] * len(appends)
        for submitted, outcome in zip(all_submitted, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._ended_with(submitted, outcome)
            else:
                self._committed(submitted, outcome)

    def _append(self, submitted: Submitted) -> Append:
        options = self.world.options
        size = random_size(self.draw, options)
        return Append(
            DATA_PREFIX.pack(submitted.number, 0) + self.draw.randbytes(size),
            submitted.number,
            self.some_locks(2, options.fewest_write_locks),
            self.some_locks(1 if self.version >= FIRST_WITH_READ_LOCKS else 0),
            self.some_locks(1 if self.version >= FIRST_WITH_APPEND_LOCKS else 0),
        )

    def _attempted(self, submitted: Submitted, append: Append, mark: int) -> None:
        locks = (hashes_of(append.write_locks), hashes_of(append.read_locks), hashes_of(append.append_locks))
        attempt = Attempt(self.name, submitted.partition_id, mark, *locks, bytes(append.data))
        self.checker.attempted(submitted, attempt, self.applied(submitted.partition_id))

    def _committed(self, submitted: Submitted, transaction_id: int) -> None:
        self.checker.appended(submitted, transaction_id)
        self.ended(submitted, Outcome.COMMITTED)

    def _ended_with(self, submitted: Submitted, error: BaseException) -> None:
        if isinstance(error, NotGuaranteedError):
            self._committed(submitted, error.transaction_id)
            return
        if isinstance(error, LockConflict):
            self.checker.lock_failure(self.name, submitted, error.transaction_id)
        known = isinstance(error, NotAuthorizedError) or (isinstance(error, AppendError) and error.outcome_known)
        if not isinstance(error, AppendError | ClientClosedError | NotAuthorizedError):
            self.world.fail(f"{self.name}: the append of {submitted.number} ended with {error!r}")
        self.ended(submitted, Outcome.FAILED if known else Outcome.UNKNOWN, str(error))
