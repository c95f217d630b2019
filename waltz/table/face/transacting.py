"""Transactions of tables: read, write, and repeat on a newer state after a conflict."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from waltz.client.errors import LockConflict
from waltz.client.retry_policy import RetryPolicy
from waltz.table.envelope import Batch
from waltz.table.face.partition import TablePartition, in_time
from waltz.table.face.transaction import TableTransaction, ViewState
from waltz.table.limits import check_rows
from waltz.table.stores.interface import Snapshot
from waltz.table.view import Reading

PACE = RetryPolicy()
"""Delays between attempts after conflicts."""

Work = Callable[[TableTransaction], Awaitable[None] | None]
"""Reads and writes rows; may be asynchronous."""


async def done(work: Work, transaction: TableTransaction) -> None:
    """Do the work of a transaction."""
    working = work(transaction)
    if inspect.isawaitable(working):
        await working


class Steps(Protocol):
    """The attempts of a transaction, wherever its table is."""

    deadline_s: float
    """By the time of the loop."""
    transaction_id: int | None
    """Of what was committed, if anything was written."""

    @property
    def lacks_rows(self) -> bool:
        """Whether the work has asked for rows that have to be got first: whatever it did counts for nothing."""
        ...

    async def begin(self) -> TableTransaction:
        """Begin an attempt."""
        ...

    def end(self) -> None:
        """End the reads of the attempt."""
        ...

    async def commit(self) -> bool:
        """Write; false if another attempt is needed."""
        ...


async def transacted(steps: Steps, work: Work) -> int | None:
    """Do the work of a transaction until it is committed; returns the transaction's id, if anything was written.

    Raises the errors of the steps and of the work.
    """
    while True:
        attempt = await steps.begin()
        try:
            await in_time(done(work, attempt), steps.deadline_s)
        except Exception:
            if not steps.lacks_rows:
                raise
        finally:
            steps.end()
        if await steps.commit():
            return steps.transaction_id


class Transacting:
    """The attempts of one transaction: each is begun, ended after its work, and committed unless the work failed."""

    lacks_rows = False
    """The rows of the view are all there."""

    def __init__(self, table: TablePartition, timeout_s: float, max_attempts: int | None) -> None:
        self.deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.transaction_id: int | None = None
        """Of what was committed, if anything was written."""
        self._table = table
        self._max_attempts = max_attempts
        self._count = 0
        self._now_ms = 0
        self._snapshot: Snapshot
        self._attempt: TableTransaction

    async def begin(self) -> TableTransaction:
        """Begin an attempt on the present state.

        Raises ``TableError``, also of a store that finds no rows, and ``NotAppendedError`` at the deadline.
        """
        table = self._table
        await in_time(table.catch_up_to_decide("transactions and conditional writes"), self.deadline_s)
        self._count += 1
        self._snapshot = table.store.snapshot()
        self._now_ms = table.write_ms()
        reading = Reading(self._snapshot, self._now_ms, table.configured.ages, raw=True)
        self._attempt = TableTransaction(ViewState(reading))
        return self._attempt

    def end(self) -> None:
        """End the reads of the attempt."""
        self._snapshot.close()

    async def commit(self) -> bool:
        """Append the writes; false after a conflict, which needs another attempt.

        Raises like :meth:`~waltz.table.face.table.Table.transaction`.
        """
        table = self._table
        intent = self._attempt.intent()
        if intent is None:
            return True
        check_rows(intent.rows, max_key_bytes=table.properties.max_key_bytes, latest_ms=None)
        try:
            self.transaction_id = await table.append(
                Batch(self._now_ms, intent.rows),
                write_locks=intent.write_locks,
                read_locks=intent.read_locks,
                high_water_mark=self._snapshot.progress.applied,
                timeout_s=max(self.deadline_s - asyncio.get_running_loop().time(), 0.0),
            )
        except LockConflict as conflict:
            if self._count == self._max_attempts:
                raise
            await in_time(table.follower.reached(conflict.transaction_id), self.deadline_s)
            await in_time(asyncio.sleep(PACE.delay_s(self._count, random.random())), self.deadline_s)
            return False
        return True
