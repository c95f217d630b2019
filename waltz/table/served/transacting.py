"""Transactions over view nodes: the work runs on rows of one state that were got before, and says what it lacks."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from waltz.client.errors import LockConflict, NotAppendedError
from waltz.table.errors import ViewUnavailableError
from waltz.table.face.partition import system_clock
from waltz.table.face.transacting import PACE
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow
from waltz.table.served.problems import ServedConflict
from waltz.table.served.questions import MAX_KEYS, Condition, WriteQuestion

Pair = tuple[bytes, bytes]
"""Prefix and key."""

Got = Callable[[Sequence[Pair], float], Awaitable[list[TableRow | None]]]
"""Gets rows of one state, within so many seconds."""
Written = Callable[[WriteQuestion, float], Awaitable[int]]
"""Writes, within so many seconds."""


class RowNotReadError(Exception):
    """A row has to be got first; the work is called again. Nobody but the transaction sees it."""


class KnownRows:
    """The state of a transaction: some rows, and what it asked for."""

    def __init__(self, rows: Mapping[Pair, TableRow | None], now_ms: int) -> None:
        self.now_ms = now_ms
        self.read: set[Pair] = set()
        """What the work has asked for."""
        self._rows = rows

    @property
    def lacking(self) -> set[Pair]:
        """What was asked for, and is not known."""
        return self.read - self._rows.keys()

    def visible(self, prefix: bytes, key: bytes) -> TableRow | None:
        self.read.add((prefix, key))
        try:
            return self._rows[prefix, key]
        except KeyError:
            raise RowNotReadError("this row is being read; the work is called again") from None

    def newest_ms(self, prefix: bytes, key: bytes) -> int | None:
        return None  # the view node has its rows win


class ServedTransacting:
    """The attempts of one transaction: rows are got, the work runs, and what it read is the condition of its writes.

    The work is called again for each row that it lacks; all rows of a call are then got anew, of one state.
    """

    def __init__(
        self, partition_id: int, got: Got, written: Written, timeout_s: float, max_attempts: int | None
    ) -> None:
        self.deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.transaction_id: int | None = None
        self._partition_id = partition_id
        self._got = got
        self._written = written
        self._max_attempts = max_attempts
        self._conflicts = 0
        self._wanted: set[Pair] = set()
        self._rows: dict[Pair, TableRow | None] = {}
        self._state: KnownRows
        self._attempt: TableTransaction

    @property
    def lacks_rows(self) -> bool:
        """Whether the work has asked for rows that are not known: whatever it did counts for nothing."""
        return bool(self._state.lacking)

    async def begin(self) -> TableTransaction:
        """Get the rows that the work is known to read.

        Raises ``NotAppendedError`` at the deadline, and ``ValueError`` for too many rows.
        """
        if len(self._wanted) > MAX_KEYS:
            raise ValueError(f"a transaction over view nodes reads at most {MAX_KEYS} rows")
        if self._wanted:
            pairs = sorted(self._wanted)
            try:
                self._rows = dict(zip(pairs, await self._got(pairs, self._left_s()), strict=True))
            except ViewUnavailableError as error:
                raise NotAppendedError(f"{error}; nothing is written") from error
        self._state = KnownRows(self._rows, system_clock())
        self._attempt = TableTransaction(self._state)
        return self._attempt

    def end(self) -> None:
        """Nothing: no state is kept meanwhile."""

    async def commit(self) -> bool:
        """Write if all rows that were read are as they were; false for another attempt.

        Raises like :meth:`~waltz.table.served.table.ServedTable.transaction`.
        """
        self._wanted = self._state.read
        if self.lacks_rows:
            return False
        intent = self._attempt.intent()
        if intent is None:
            return True
        read = [(pair, self._rows[pair]) for pair in sorted(self._state.read)]
        conditions = [Condition(*pair, None if row is None else row.version) for pair, row in read]
        try:
            self.transaction_id = await self._written(WriteQuestion(intent.rows, conditions), self._left_s())
        except ServedConflict as conflict:
            self._conflicts += 1
            if self._conflicts == self._max_attempts:
                raise LockConflict(self._partition_id, conflict.applied) from conflict
            delay_s = PACE.delay_s(self._conflicts, random.random())
            if delay_s >= self._left_s():
                raise NotAppendedError("the rows have changed, and there is no time for another attempt") from conflict
            await asyncio.sleep(delay_s)
            return False
        return True

    def _left_s(self) -> float:
        return max(self.deadline_s - asyncio.get_running_loop().time(), 0.0)
