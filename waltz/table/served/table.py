"""The face of a table that view nodes serve: no state of its own, but for what it has seen."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

from waltz.client.errors import ConfirmedMarkNotSupportedError, NotGuaranteedError
from waltz.client.plain.client import Client
from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import Json
from waltz.table.envelope import Row
from waltz.table.errors import ViewUnavailableError
from waltz.table.face.leasing import acquired, renewed
from waltz.table.face.levels import Answer, AtLeast, Present, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges, ranges_of
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.transacting import Work, transacted
from waltz.table.leases import Lease, duration_ms_of
from waltz.table.rows import TableRow, Version
from waltz.table.served.calls import Calls, ViewCalls, Ways
from waltz.table.served.demands import Demand, demand_of
from waltz.table.served.problems import ServedConflict
from waltz.table.served.questions import (
    MAX_KEYS,
    MAX_TAKEN,
    Condition,
    GetQuestion,
    LeaseQuestion,
    ReadMode,
    ScanQuestion,
    TakeQuestion,
    WriteQuestion,
)
from waltz.table.served.replies import bytes_in, check_end, fields_of, foreign, number_of, row_in, rows_in
from waltz.table.served.stand_in import StandIn
from waltz.table.served.texts import Fields
from waltz.table.served.transacting import Pair, ServedTransacting
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

    def __init__(
        self,
        client: Client,
        partition_id: int,
        ways: Ways,
        *,
        timeout_s: float = TIMEOUT_S,
        stands_in: Callable[[], bool] | None = None,
    ) -> None:
        """``timeout_s`` limits each call that names no limit of its own.

        While ``stands_in`` says so, a view in this process answers where there is no view node.
        """
        self._client = client
        self._partition_id = partition_id
        view_calls = ViewCalls(client, partition_id, ways)
        self._calls: Calls = view_calls
        if stands_in is not None:
            self._calls = StandIn(client, partition_id, view_calls, stands_in)
        self.timeout_s = timeout_s
        """Limit of each call that names no limit of its own, in seconds."""
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
        self,
        key: bytes,
        value: bytes | None,
        *,
        prefix: bytes = b"",
        timestamp_ms: int | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write one row. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, value, timestamp_ms)], consistency=consistency)

    async def delete(
        self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None, consistency: str | None = None
    ) -> int:
        """Delete one row, whether it exists or not. Raises like :meth:`batch`."""
        return await self.batch([Row(prefix, key, None, timestamp_ms, tombstone=True)], consistency=consistency)

    async def batch(
        self,
        rows: Sequence[Row],
        *,
        any_timestamp: bool = False,
        timeout_s: float | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write rows in one transaction, at the time of the view node's clock.

        Args:
            rows: The rows, at least one.
            any_timestamp: Accept timestamps further ahead than the partition allows.
            timeout_s: Limit of the whole call in seconds.
            consistency: The level of the write, as of ``Client.append``. By default that of the partition.

        Returns:
            The id of the transaction.

        Raises:
            ValueError: There are no rows, or no such level.
            ConsistencyRefusedError: The partition demands another level, or the server is too old.
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
        return await self._write(WriteQuestion(rows, any_timestamp=any_timestamp), timeout_s, consistency)

    async def truncate(self, *, timeout_s: float | None = None) -> int:
        """Remove every row written before this transaction. Raises like :meth:`batch`."""
        answer = await self._writing("/truncate", {}, {}, timeout_s)
        return self._appended(answer)

    async def sweep(self, *, timeout_s: float | None = None) -> int | None:
        """Have all views remove the rows that have reached their age; ``None`` when the partition has no ages.

        By the clock of the view node. Raises like :meth:`batch`.
        """
        answer = await self._writing("/sweep", {}, {}, timeout_s)
        return None if answer.get("transaction") is None else self._appended(answer)

    async def sweep_if_due(self, *, timeout_s: float | None = None) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        The view node looks at the rows; ``None`` when there is none. Raises like :meth:`batch`.
        """
        answer = await self._writing("/sweep", {}, {"if_due": True}, timeout_s)
        return None if answer.get("transaction") is None else self._appended(answer)

    async def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove now; the view node reads all rows. Raises like :meth:`get`."""
        query = self._query(Present.OWN)
        check = fields_of(await self._calls.ask("GET", "/sweep", query, None, timeout_s=self.timeout_s))
        due = check.get("due")
        if not isinstance(due, bool):
            raise foreign("no answer to whether a sweep is due")
        return SweepCheck(number_of(check.get("aged")), due)

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

    async def transaction(
        self,
        work: Work,
        *,
        timeout_s: float | None = None,
        max_attempts: int | None = None,
    ) -> int | None:
        """Read and write rows in isolation from all other writers.

        ``work`` is called first without any rows, and again for each row that it turns out to read: all rows of a call
        are of one state, got by one request. At most 1000 rows can be read, and 10,000 written.

        Args:
            work: Reads and writes rows, and has no other effects. It is called again when it needs further rows, or
                when any writer has changed meanwhile the rows that it read. May be asynchronous.
            timeout_s: Limit of the whole call in seconds.
            max_attempts: Maximum number of writes that other writers may spoil.

        Returns:
            The id of the transaction; ``None`` when nothing was written.

        Raises:
            LockConflict: No attempt is left.
            NotAppendedError: The deadline has passed.
            OutcomeUnknownError: The same, and the rows may have been written.
            ValueError: The work reads too many rows.

        Raises the errors of ``work``, too.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return await transacted(self.transacting(timeout_s=limit_s, max_attempts=max_attempts), work)

    def transacting(self, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None) -> ServedTransacting:
        """A transaction step by step, for work that does not run on this loop."""

        async def got(pairs: Sequence[Pair], limit_s: float) -> list[TableRow | None]:
            return await self._got(GetQuestion(pairs), Present.OWN, limit_s)

        return ServedTransacting(self._partition_id, got, self._write, timeout_s, max_attempts)

    async def _write(self, question: WriteQuestion, timeout_s: float | None, consistency: str | None = None) -> int:
        query = {} if consistency is None else {"consistency": consistency}
        try:
            answer = await self._writing("/batch", query, question.message(), timeout_s)
        except ServedConflict as conflict:  # what is read next has what is in the way
            self._seen = max(self._seen, conflict.applied)
            raise
        return self._appended(answer)

    async def _writing(self, path: str, query: dict[str, str], message: Json, timeout_s: float | None) -> Fields:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            answer = await self._calls.ask("POST", path, query, message, timeout_s=limit_s, writes=True)
        except NotGuaranteedError as error:  # it is committed, and reads through this object see it
            self._seen = max(self._seen, error.transaction_id)
            raise
        return fields_of(answer)

    def _appended(self, answer: Fields) -> int:
        transaction_id = number_of(answer.get("transaction"))
        self._seen = max(self._seen, transaction_id)
        return transaction_id

    # Leases

    async def acquire(
        self, key: bytes, holder: str, *, duration_s: float, prefix: bytes = b"", timeout_s: float | None = None
    ) -> Lease:
        """Get a lease, which nobody else has until it is released, or not renewed for its duration.

        The lease is the row of ``key``, which nobody else may write. The same holder gets it again at once, in a new
        term, which ends the term before: after a restart, or when an answer was lost.

        Args:
            key: The name of the lease.
            holder: The name of the process, unlike that of all others.
            duration_s: How long others wait after a grant or renewal, 0.1 to 3600 seconds. The holder counts on nine
                tenths of it.
            prefix: Prefix of the row.
            timeout_s: How long the lease is waited for, in seconds.

        Returns:
            The lease.

        Raises:
            LeaseHeldError: Somebody else has it.
            LeaseLostError: It was granted, but so late that it may be over.
            PropertiesError: Rows of the partition expire.
            ValueError: A duration or a name is out of bounds, or the row is no lease.
            NotAppendedError: The deadline has passed.
            OutcomeUnknownError: The same, and the lease may have been granted.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s

        async def grant(left_s: float) -> int:
            question = LeaseQuestion(key, prefix, holder, duration_ms=duration_ms_of(duration_s))
            answer = await self._writing("/lease", {}, question.message(), left_s)
            term = number_of(answer.get("term"))
            self._seen = max(self._seen, term)
            return term

        return await acquired(grant, key, prefix, holder, duration_s, limit_s)

    async def renew(self, lease: Lease, *, timeout_s: float | None = None) -> Lease:
        """Have a lease from now on for its whole duration again, in the same term. Raises like :meth:`acquire`.

        When it fails for any other reason than :class:`~waltz.table.errors.LeaseLostError`, the lease ends as before,
        and may be renewed by another call.
        """
        limit_s = min(self.timeout_s if timeout_s is None else timeout_s, lease.left_s)
        return await renewed(lambda: self._writing_lease("/lease/renew", lease, limit_s), lease)

    async def release(self, lease: Lease, *, timeout_s: float | None = None) -> int | None:
        """End a lease, so that others need not wait; ``None`` if that term has ended before. Raises like ``batch``."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return await self._writing_lease("/lease/release", lease, limit_s)

    async def _writing_lease(self, path: str, lease: Lease, limit_s: float) -> int | None:
        question = LeaseQuestion(lease.key, lease.prefix, lease.holder, term=lease.term)
        answer = await self._writing(path, {}, question.message(), limit_s)
        return None if answer.get("transaction") is None else self._appended(answer)

    # Reads

    async def refresh(self, *, strict: bool = True) -> None:
        """Have later reads see every transaction that was committed before the call; raises like :meth:`get`.

        Args:
            strict: With ``False``, a server that cannot confirm its mark, such as the original's, may tell its own
                mark: later reads lag then if that server has lost the partition without knowing it yet.
        """
        if strict:
            await self._state(Present.FRESH)
        else:
            self._seen = max(self._seen, await self.high_water_mark(strict=False))

    async def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers every transaction committed before the call; -1 for an empty log.

        Args:
            strict: With ``False``, a server that cannot confirm its mark tells its own.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        try:
            return await self._client.high_water_mark(self._partition_id, confirmed=True)
        except ConfirmedMarkNotSupportedError:
            if strict:
                raise
            return await self._client.high_water_mark(self._partition_id)

    async def get(
        self,
        keys: Sequence[bytes],
        *,
        prefix: bytes = b"",
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
        stale_ok_after_s: float | None = None,
    ) -> Answer:
        """The rows of keys, in the order of the keys. With ``raw``, tombstones and expired rows are returned, too.

        With ``fresh`` the view first catches up with every transaction committed before the call, on any server. More
        than a thousand keys are got by several requests, and may be of several states.

        Args:
            keys: Keys of one prefix.
            prefix: The prefix.
            raw: Whether tombstones and expired rows are returned, too.
            fresh: The same as ``consistency="fresh"``.
            consistency: What the answer has: ``"fresh"``, ``"any"``, ``AtLeast(id)`` or a level by the names of Amza.
                By default at least what was written and read through this object.
            stale_ok_after_s: When no view node has that within so many seconds, the answer is of what the most
                advanced view has: it is ``stale`` then. By default the read waits, and raises.

        Returns:
            The rows, and as ``applied`` the last transaction whose effect is surely in them.

        Raises:
            ViewUnavailableError: No view node has the answer in time.
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark, which ``fresh`` needs.
            ConsistencyRefusedError: The property ``consistency`` of the partition does not go with that level.
            NotAuthorizedError: The client lacks the right to read.
            ValueError: There is no such level, or it is ``AsOf``: view nodes have the present state only.
        """
        demand = demand_of(fresh, consistency)
        answers: list[Answer] = []
        for first in range(0, max(len(keys), 1), MAX_KEYS):
            question = GetQuestion([(prefix, key) for key in keys[first : first + MAX_KEYS]], raw)
            answers.append(await self._got_or_stale(question, demand, stale_ok_after_s))
        ages = [each.age_s for each in answers]
        return Answer(
            [row for each in answers for row in each],
            min(each.applied for each in answers),
            age_s=None if None in ages else max(age for age in ages if age is not None),
            stale=any(each.stale for each in answers),
        )

    async def _got_or_stale(self, question: GetQuestion, demand: Demand, stale_ok_after_s: float | None) -> Answer:
        limit_s = self._limit_s(demand)
        if stale_ok_after_s is None:
            return await self._got(question, demand, limit_s)
        try:
            return await self._got(question, demand, min(stale_ok_after_s, limit_s))
        except (ViewUnavailableError, ConfirmedMarkNotSupportedError):
            answer = await self._got(question, Present.ANY, limit_s, most_advanced=True)
            answer.stale = True
            return answer

    async def _got(
        self, question: GetQuestion, demand: Demand, limit_s: float, *, most_advanced: bool = False
    ) -> Answer:
        """Rows of one state, and what that is."""
        answer = fields_of(
            await self._calls.ask(
                "POST", "/get", self._query(demand), question.message(), timeout_s=limit_s, most_advanced=most_advanced
            )
        )
        found = answer.get("rows")
        if not isinstance(found, list) or len(found) != len(question.pairs):
            raise foreign("other rows than were asked for")
        rows = [None if row is None else row_in(row) for row in found]
        if any(
            row is not None and (row.prefix, row.key) != pair for row, pair in zip(rows, question.pairs, strict=True)
        ):
            raise foreign("rows of other keys")
        self._saw(answer)
        age_ms = answer.get("age_ms")
        return Answer(
            rows, number_of(answer.get("applied")), age_s=None if age_ms is None else number_of(age_ms) / 1000
        )

    async def get_slice(
        self,
        key: bytes,
        offset: int,
        size: int,
        *,
        prefix: bytes = b"",
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> bytes | None:
        """Part of a value; ``None`` for a missing row or a null value. Raises ``ValueError`` for numbers below 0."""
        if offset < 0 or size < 0:
            raise ValueError("offset and size must not be negative")
        (row,) = await self.get([key], prefix=prefix, fresh=fresh, consistency=consistency)
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
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[TableRow, None]:
        """The rows of ranges of keys, in order, all of one state of the table.

        Arguments are those of :meth:`~waltz.table.face.table.Table.scan`. Raises like :meth:`get`, and
        ``ViewUnavailableError`` for a scan that the view node could not end within a minute.
        """
        question = ScanQuestion(ranges_of(ranges, prefix), reverse, limit, raw)
        async with aclosing(self._scan(question, demand_of(fresh, consistency))) as lines:
            async for fields in lines:
                yield row_in(fields)

    async def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Prefixes and keys of the rows of :meth:`scan`, without the values on the way."""
        question = ScanQuestion(ranges_of(ranges, prefix), reverse, limit, raw, keys_only=True)
        async with aclosing(self._scan(question, demand_of(fresh, consistency))) as lines:
            async for fields in lines:
                yield bytes_in(fields, "prefix"), bytes_in(fields, "key")

    async def _scan(self, question: ScanQuestion, demand: Demand) -> AsyncGenerator[Fields, None]:
        if question.limit is not None and question.limit <= 0:
            return
        query, message = self._query(demand), question.message()
        lines = self._calls.lines("POST", "/scan", query, message, timeout_s=self._limit_s(demand), idle_s=IDLE_S)
        async with aclosing(lines):
            async for line in lines:
                fields = fields_of(line)
                if "end" not in fields:
                    yield fields
                    continue
                end = fields_of(fields["end"])
                self._saw(end)
                if end.get("reason") == "time":
                    raise ViewUnavailableError(
                        "the scan has taken longer than a view node keeps one state: scan smaller ranges"
                    )
                return
        raise ViewUnavailableError("the answer of the view node has ended before the scan")

    async def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows, expired ones included, tombstones only with ``raw``. Raises like :meth:`get`."""
        state = await self._state(Present.OWN)
        return number_of(state.get("rows")) + (number_of(state.get("tombstones")) if raw else 0)

    async def _state(self, demand: Demand) -> Fields:
        state = fields_of(await self._calls.ask("GET", "", self._query(demand), None, timeout_s=self.timeout_s))
        self._saw(state)
        return state

    async def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions after ``after``.

        Args:
            after: Id of the transaction before the first one; -1 for all.
            limit: Number of rows at which the take ends, with the end of a transaction.
            prefix: Prefix of the rows.

        Returns:
            The rows; ``at_end`` tells that the log had no later transaction at the last request for them. A take that
            a view node has not ended when it fails goes on at the next one.

        Raises:
            ValueError: The limit is below 1.
            ClientAheadError: The log ends before ``after``.

        Raises the errors of :meth:`get`, too.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        taken = Taken([], after, at_end=False)
        while not taken.at_end and len(taken.rows) < limit:
            question = TakeQuestion(taken.cursor, min(limit - len(taken.rows), MAX_TAKEN), prefix)
            before = taken.cursor
            try:
                async with aclosing(self._take(question)) as parts:
                    async for part in parts:
                        taken = part._replace(rows=taken.rows + part.rows)
            except ViewUnavailableError:
                if taken.cursor == before:
                    raise
        return taken

    async def _take(self, question: TakeQuestion) -> AsyncGenerator[Taken, None]:
        lines = self._calls.lines("GET", "/take", question.query(), None, timeout_s=self.timeout_s, idle_s=IDLE_S)
        async with aclosing(lines):
            async for line in lines:
                fields = fields_of(line)
                if "end" in fields:
                    end = fields_of(fields["end"])
                    yield Taken([], number_of(end.get("cursor")), at_end=end.get("at_end") is True)
                    return
                yield Taken(rows_in(fields, question.prefix), number_of(fields.get("transaction")), at_end=False)
        raise ViewUnavailableError("the answer of the view node has ended before the take")

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
        query: dict[str, str | bytes] = {"after": str(after), "progress_s": str(_PROGRESS_S)}
        if prefix is not None:
            query["prefix"] = prefix
        lines = self._calls.lines("GET", "/watch", query, None, timeout_s=self.timeout_s, idle_s=IDLE_S)
        began = False
        try:
            async with aclosing(lines):
                async for line in lines:
                    fields = fields_of(line)
                    began = True
                    if "end" in fields:
                        check_end(fields_of(fields["end"]))
                        break
                    if "progress" in fields:
                        yield Taken([], number_of(fields_of(fields["progress"]).get("transaction")), at_end=False)
                        continue
                    yield Taken(rows_in(fields, prefix), number_of(fields.get("transaction")), at_end=False)
        except ViewUnavailableError:
            if not began:
                raise
        raise _WatchOverError

    def _limit_s(self, demand: Demand) -> float:
        return demand.timeout_s if isinstance(demand, AtLeast) else self.timeout_s

    def _query(self, demand: Demand) -> dict[str, str]:
        at_least = self._seen
        if isinstance(demand, AtLeast):
            at_least = max(at_least, demand.transaction_id)
        elif isinstance(demand, str) or demand is Present.ANY:
            at_least = NO_TRANSACTION
        level = demand if isinstance(demand, str) else None
        query = ReadMode(at_least, demand is Present.FRESH, consistency=level).query()
        del query["timeout_ms"]  # the time that is left when the request is sent
        return query

    def _saw(self, fields: Fields) -> None:
        self._seen = max(self._seen, number_of(fields.get("applied")))


class _WatchOverError(Exception):
    """A watch has ended, and another one can go on."""
