"""Operations on the rows of a bot, by several clients, each reported to the journal at its begin and end."""

import asyncio
import random
import string
from collections.abc import Mapping, Sequence

from waltz.bot.clock import Clock
from waltz.bot.history import ReadCall, ScanCall, SwapCall, WriteCall
from waltz.bot.journal import Journal
from waltz.bot.troubles import Troubles
from waltz.client.errors import AppendError
from waltz.table.envelope import Row
from waltz.table.errors import TableError, VersionConflict
from waltz.table.face.table import Table
from waltz.table.rows import TableRow, Version
from waltz.table.view import KeyRange

READ_TIMEOUT_S = 30.0
ROWS_PER_DELETION = 1000


class Prover:
    """The rows of one bot: the rows without a prefix whose keys begin with the ``space`` and a slash."""

    def __init__(self, space: str, tables: Sequence[Table], journal: Journal, troubles: Troubles) -> None:
        """Each table belongs to another client. Operations name a table by its index."""
        self.journal = journal
        self.troubles = troubles
        self.scans = 0
        self._space = f"{space}/".encode()
        self._tables = tables
        self._clock = Clock()
        self._values = 0

    @property
    def processes(self) -> int:
        """The number of clients."""
        return len(self._tables)

    def new_value(self, size: int) -> str:
        """A unique value of about ``size`` characters."""
        self._values += 1
        start = f"{self.journal.run}.{self._values:x}."
        return start + "".join(random.choices(string.ascii_letters, k=max(0, size - len(start))))

    async def write(self, process: int, rows: Mapping[str, str | None]) -> None:
        """Write rows in one transaction. The value ``None`` deletes. Raises the errors of the table."""
        timestamp_ms = self._clock.now_ms()
        op = self.journal.begin(process, WriteCall(f="write", rows=dict(rows), timestamp_ms=timestamp_ms))
        batch = [
            Row(b"", self._row_key(key), None if value is None else value.encode(), timestamp_ms, value is None)
            for key, value in rows.items()
        ]
        try:
            transaction_id = await self._tables[process].batch(batch, any_timestamp=True)
        except BaseException as error:
            self.journal.end(op, "fail" if _is_absent(error) else "info", error=error)
            raise
        self.journal.end(op, "ok", transaction=transaction_id)

    async def swap(self, process: int, key: str, expected: str | None, version: Version | None, value: str) -> bool:
        """Write a row if the present row has that version and the expected value. Returns whether it was written.

        Raises the errors of the table.
        """
        op = self.journal.begin(process, SwapCall(f="swap", key=key, expected=expected, value=value))
        bounds = self._clock.watch()
        try:
            async with asyncio.timeout(2 * READ_TIMEOUT_S):
                transaction_id = await self._tables[process].put_if(self._row_key(key), value.encode(), version)
        except VersionConflict:
            self.journal.end(op, "ok", conflict=True)
            return False
        except BaseException as error:
            self.journal.end(op, "fail" if _is_absent(error) else "info", stamp_ms=bounds(), error=error)
            raise
        self.journal.end(op, "ok", transaction=transaction_id, stamp_ms=bounds())
        return True

    async def read(self, process: int, key: str) -> tuple[str | None, Version | None]:
        """The value and the version of the newest row of a key. Raises the errors of the table, and
        ``TimeoutError``."""
        op = self.journal.begin(process, ReadCall(f="read", keys=[key]))
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._tables[process].refresh(strict=False)
                (row,) = await self._tables[process].get([self._row_key(key)])
        except BaseException as error:
            self.journal.end(op, "fail", error=error)
            raise
        self.journal.end(op, "ok", rows={} if row is None else {key: _history_row(row)})
        return (None, None) if row is None else (_value(row), row.version)

    async def scan(self, process: int) -> None:
        """Read all rows. Raises the errors of :meth:`read`."""
        op = self.journal.begin(process, ScanCall(f="scan"))
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._tables[process].refresh(strict=False)
                rows = [row async for row in self._tables[process].scan([self._range])]
        except BaseException as error:
            self.journal.end(op, "fail", error=error)
            raise
        self.journal.end(op, "ok", rows={self._key(row): _history_row(row) for row in rows})
        self.scans += 1

    async def scan_all(self) -> None:
        """Let every client read all rows, until each has succeeded."""
        for process in range(self.processes):
            await self.troubles.insist(self.scan, process)

    async def delete_all(self, keys: Sequence[str]) -> None:
        """Delete these rows and all other rows. Late writes of former runs lose against the deletions."""
        rows = await self.troubles.insist(self._rows)
        self._clock.pass_by(max((row.timestamp_ms for row in rows), default=0))
        left = list(dict.fromkeys([*keys, *(self._key(row) for row in rows if not row.tombstone)]))
        for begin in range(0, len(left), ROWS_PER_DELETION):
            await self.troubles.insist(self.write, 0, dict.fromkeys(left[begin : begin + ROWS_PER_DELETION]))

    async def sweep(self) -> None:
        """Remove the tombstones that have reached their age."""
        await self.troubles.insist(self._sweep)

    async def _sweep(self) -> None:
        async with asyncio.timeout(2 * READ_TIMEOUT_S):
            await self._tables[0].sweep_if_due()

    async def _rows(self) -> list[TableRow]:
        async with asyncio.timeout(READ_TIMEOUT_S):
            await self._tables[0].refresh(strict=False)
            return [row async for row in self._tables[0].scan([self._range], raw=True)]

    @property
    def _range(self) -> KeyRange:
        return KeyRange(start=self._space, end=self._space[:-1] + b"0")

    def _row_key(self, key: str) -> bytes:
        return self._space + key.encode()

    def _key(self, row: TableRow) -> str:
        return row.key[len(self._space) :].decode("utf-8", "backslashreplace")


def _history_row(row: TableRow) -> tuple[str, int, int]:
    """The row in the format of the history."""
    return _value(row), row.timestamp_ms, row.version.transaction_id


def _value(row: TableRow) -> str:
    return (row.value or b"").decode("utf-8", "backslashreplace")


def _is_absent(error: BaseException) -> bool:
    """Whether, according to the error, the transaction is not in the log and never will be."""
    return isinstance(error, TableError) or (isinstance(error, AppendError) and error.outcome_known)
