"""The face of a table that view nodes serve: no state of its own, but for what it has seen."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self

from waltz.client.errors import NotAuthorizedError
from waltz.client.plain.client import Client
from waltz.common.ids import NO_TRANSACTION
from waltz.table.envelope import Row
from waltz.table.errors import TableError, ViewUnavailableError
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges, ranges_of
from waltz.table.rows import TableRow, Version
from waltz.table.served.calls import ViewCalls, Ways
from waltz.table.served.questions import MAX_KEYS, Condition, GetQuestion, ReadMode, ScanQuestion, WriteQuestion
from waltz.table.served.texts import Fields, MessageError, bytes_of, integer_of, row_of
from waltz.table.taking import Taken

IDLE_S = 60.0
"""How long a line of a scan or watch may be waited for."""
_PROGRESS_S = 5


class ServedTable:
    """A table that view nodes serve: ``async with client.table(0, view="served") as table: ...``.

    Used like :class:`~waltz.table.face.table.Table`, without a view in this process. Reads see at least the earlier
    writes through this object, and never less than an earlier read has seen, at whatever view node.

    Reads and writes raise ``ViewUnavailableError`` (writes: ``NotAppendedError``) when no view node answers in time. A
    write whose answer is lost raises ``OutcomeUnknownError``.

    Examples:
        ```python
        async with client.table(0, view="served") as table:
            await table.put(b"alice", b"100")
            (alice,) = await table.get([b"alice"])
            print(alice.value if alice else "no such row")
        ```
    """

    def __init__(self, client: Client, partition_id: int, ways: Ways, *, timeout_s: float = TIMEOUT_S) -> None:
        """``timeout_s`` limits each call that names no limit of its own."""
        self._client = client
        self._partition_id = partition_id
        self._calls = ViewCalls(client, partition_id, ways)
        self._timeout_s = timeout_s
        self._seen = NO_TRANSACTION

    async def __aenter__(self) -> Self:
        await self._calls.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._calls.close()

    @property
    def applied(self) -> int:
        """The last transaction that a read or write through this object has seen; -1 at first."""
        return self._seen

    # Writes

    async def put(
        self, key: bytes, value: bytes | None, *, prefix: bytes = b"", timestamp_ms: int | None = None
    ) -> int:
        """Write one row. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, value, timestamp_ms)])

    async def delete(self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Delete one row, whether it exists or not. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, None, timestamp_ms, tombstone=True)])

    async def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False, timeout_s: float | None = None) -> int:
        """Write rows in one transaction, at the time of the view node's clock.

        Args:
            rows: The rows, at least one.
            any_timestamp: Accept timestamps further ahead than the partition allows.
            timeout_s: Limit of the whole call in seconds.

        Returns:
            The id of the transaction.

        Raises:
            ValueError: There are no rows.
            TimestampError: A timestamp is not positive, or further ahead than the partition allows.
            KeyTooLongError: A key is longer than the partition allows.
            EnvelopeError: The rows do not fit into the envelope.
            NotAppendedError: The write did not come to the log in time, and never will.
            OutcomeUnknownError: The deadline has passed, or the answer was lost; the rows may have been written.
            NotGuaranteedError: They are written, and it is not known that all storages have them.
            NotAuthorizedError: The client lacks a right at the view node; nothing is written.
        """
        if not rows:
            raise ValueError("a batch of no rows")
        return await self._write(WriteQuestion(rows, any_timestamp=any_timestamp), timeout_s)

    async def put_if(
        self,
        key: bytes,
        value: bytes | None,
        version: Version | None,
        *,
        prefix: bytes = b"",
        timeout_s: float | None = None,
    ) -> int:
        """Write a row if the present row has that version; ``None``: if readers see no row.

        Raises:
            VersionConflict: The present row has another version.
            NotAppendedError: The deadline of the whole call has passed.
            OutcomeUnknownError: The same, and the row may have been written.
        """
        question = WriteQuestion([Row(prefix, key, value)], [Condition(prefix, key, version)])
        return await self._write(question, timeout_s)

    async def _write(self, question: WriteQuestion, timeout_s: float | None) -> int:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        message = question.message()
        answer = _fields(await self._calls.ask("POST", "/batch", {}, message, timeout_s=limit_s, writes=True))
        transaction_id = _number(answer.get("transaction"))
        self._seen = max(self._seen, transaction_id)
        return transaction_id

    # Reads

    async def refresh(self) -> None:
        """Have later reads see every transaction that was committed before the call; raises like :meth:`get`."""
        await self._state(fresh=True)

    async def high_water_mark(self) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        return await self._client.high_water_mark(self._partition_id, confirmed=True)

    async def get(
        self, keys: Sequence[bytes], *, prefix: bytes = b"", raw: bool = False, fresh: bool = False
    ) -> list[TableRow | None]:
        """The rows of keys, in the order of the keys. With ``raw``, tombstones and expired rows are returned, too.

        With ``fresh`` the view first catches up with every transaction committed before the call, on any server. More
        than a thousand keys are got by several requests, and may be of several states.

        Raises:
            ViewUnavailableError: No view node has the answer in time.
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark, which ``fresh`` needs.
            NotAuthorizedError: The client lacks the right to read.
        """
        rows: list[TableRow | None] = []
        for first in range(0, len(keys), MAX_KEYS):
            question = GetQuestion(prefix, keys[first : first + MAX_KEYS], raw)
            answer = _fields(
                await self._calls.ask("POST", "/get", self._query(fresh), question.message(), timeout_s=self._timeout_s)
            )
            found = answer.get("rows")
            if not isinstance(found, list) or len(found) != len(question.keys):
                raise _foreign("other rows than were asked for")
            rows += [None if row is None else _row(row) for row in found]
            self._saw(answer)
        return rows

    async def get_slice(
        self, key: bytes, offset: int, size: int, *, prefix: bytes = b"", fresh: bool = False
    ) -> bytes | None:
        """Part of a value; ``None`` for a missing row or a null value. Raises ``ValueError`` for numbers below 0."""
        if offset < 0 or size < 0:
            raise ValueError("offset and size must not be negative")
        (row,) = await self.get([key], prefix=prefix, fresh=fresh)
        return None if row is None or row.value is None else row.value[offset : offset + size]

    async def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> AsyncGenerator[TableRow, None]:
        """The rows of ranges of keys, in order, all of one state of the table.

        Arguments are those of :meth:`~waltz.table.face.table.Table.scan`. Raises like :meth:`get`, and
        ``ViewUnavailableError`` for a scan that the view node could not end within a minute.
        """
        question = ScanQuestion(ranges_of(ranges, prefix), reverse, limit, raw)
        async with aclosing(self._scan(question, fresh=fresh)) as lines:
            async for fields in lines:
                yield _row(fields)

    async def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Prefixes and keys of the rows of :meth:`scan`, without the values on the way."""
        question = ScanQuestion(ranges_of(ranges, prefix), reverse, limit, raw, keys_only=True)
        async with aclosing(self._scan(question, fresh=fresh)) as lines:
            async for fields in lines:
                yield _bytes(fields, "prefix"), _bytes(fields, "key")

    async def _scan(self, question: ScanQuestion, *, fresh: bool) -> AsyncGenerator[Fields, None]:
        if question.limit is not None and question.limit <= 0:
            return
        lines = self._calls.lines(
            "POST", "/scan", self._query(fresh), question.message(), timeout_s=self._timeout_s, idle_s=IDLE_S
        )
        async with aclosing(lines):
            async for line in lines:
                fields = _fields(line)
                if "end" not in fields:
                    yield fields
                    continue
                end = _fields(fields["end"])
                self._saw(end)
                if end.get("reason") == "time":
                    raise ViewUnavailableError(
                        "the scan has taken longer than a view node keeps one state: scan smaller ranges"
                    )
                return
        raise ViewUnavailableError("the answer of the view node has ended before the scan")

    async def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows, expired ones included, tombstones only with ``raw``. Raises like :meth:`get`."""
        state = await self._state(fresh=False)
        return _number(state.get("rows")) + (_number(state.get("tombstones")) if raw else 0)

    async def _state(self, *, fresh: bool) -> Fields:
        state = _fields(await self._calls.ask("GET", "", self._query(fresh), None, timeout_s=self._timeout_s))
        self._saw(state)
        return state

    async def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> AsyncGenerator[Taken, None]:
        """A stream of the rows that are written after a transaction, without an end, or up to ``until``.

        As :meth:`~waltz.table.face.table.Table.follow`, but for ``cursor``: transactions without such rows are told
        together, after some seconds. When a view node fails the stream goes on at the next one, without a gap.

        Raises:
            ViewUnavailableError: No view node has answered in time.
            NotAuthorizedError: The client lacks the right to read.
            TableError: The view node cannot read what was written.
            ClientAheadError: The log ends before ``after``.
        """
        if after > await self._client.high_water_mark(self._partition_id):  # as far as that server knows
            async with self._client.library_feed(self._partition_id, after=after) as feed:
                await feed.begin()
        cursor = after
        while until is None or cursor < until:
            try:
                async with aclosing(self._watch(cursor, prefix)) as events:
                    async for taken in events:
                        cursor = taken.cursor
                        if until is not None and cursor > until:
                            rows = [row for row in taken.rows if row.version.transaction_id <= until]
                            taken = Taken(rows, until, at_end=False)
                        yield taken
                        if until is not None and cursor >= until:
                            return
            except _WatchOverError:
                await asyncio.sleep(0.1)

    async def _watch(self, after: int, prefix: bytes | None) -> AsyncGenerator[Taken, None]:
        query = {"after": str(after), "progress_s": str(_PROGRESS_S)}
        if prefix is not None:
            with suppress(UnicodeDecodeError):  # the library takes text only: other rows are passed over here
                query["prefix"] = prefix.decode()
        lines = self._calls.lines("GET", "/watch", query, None, timeout_s=self._timeout_s, idle_s=IDLE_S)
        began = False
        try:
            async with aclosing(lines):
                async for line in lines:
                    fields = _fields(line)
                    began = True
                    if "end" in fields:
                        _check_end(_fields(fields["end"]))
                        break
                    if "progress" in fields:
                        yield Taken([], _number(_fields(fields["progress"]).get("transaction")), at_end=False)
                        continue
                    listed = fields.get("rows", [])
                    if not isinstance(listed, list):
                        raise _foreign("rows that are no list")
                    rows = [row for row in map(_row, listed) if prefix is None or row.prefix == prefix]
                    yield Taken(rows, _number(fields.get("transaction")), at_end=False)
        except ViewUnavailableError:
            if not began:
                raise
        raise _WatchOverError

    def _query(self, fresh: bool) -> dict[str, str]:
        query = ReadMode(self._seen, fresh).query()
        del query["timeout_ms"]  # the time that is left when the request is sent
        return query

    def _saw(self, fields: Fields) -> None:
        self._seen = max(self._seen, _number(fields.get("applied")))


def _check_end(end: Fields) -> None:
    """Raise for an end of a watch after which another one would end in the same way."""
    if end.get("reason") == "forbidden":
        raise NotAuthorizedError(str(end.get("detail")))
    if end.get("reason") == "failed":
        raise TableError(f"a view node cannot go on with its watch: {end.get('detail')}")


class _WatchOverError(Exception):
    """A watch has ended, and another one can go on."""


def _foreign(what: str) -> ViewUnavailableError:
    return ViewUnavailableError(f"a view node has answered with {what}")


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise _foreign("something else than an object")
    return value


def _number(value: object) -> int:
    try:
        return integer_of(value, "a number", NO_TRANSACTION)
    except MessageError as error:
        raise _foreign(str(error)) from error


def _bytes(fields: Fields, name: str) -> bytes:
    try:
        return bytes_of(fields.get(name), name)
    except MessageError as error:
        raise _foreign(str(error)) from error


def _row(value: object) -> TableRow:
    try:
        return row_of(value)
    except MessageError as error:
        raise _foreign(str(error)) from error
