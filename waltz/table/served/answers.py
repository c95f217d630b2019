"""The answers to requests, by a table with a view in this process: that of a view node, or of a test.

An answer is JSON, and what the view had applied; or a stream of lines of JSON. Errors are those of
:func:`~waltz.table.served.problems.problem_of`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from waltz.client.errors import ConfirmedMarkNotSupportedError, NotAppendedError
from waltz.client.plain.feed import BatchFeed
from waltz.common.consistency import level_from_commit
from waltz.common.errors import DeadlineExceededError
from waltz.common.metrics.registry import Json
from waltz.common.records import Record
from waltz.table.envelope import Truncate
from waltz.table.errors import VersionConflict
from waltz.table.face.decoding import decoded
from waltz.table.face.leasing import Leasing
from waltz.table.face.levels import Present
from waltz.table.face.partition import TablePartition, close_in_pages
from waltz.table.face.table import Table
from waltz.table.face.takes import taken_parts
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow, row_key
from waltz.table.served.problems import ServedConflict, refused, refused_now
from waltz.table.served.questions import (
    GetQuestion,
    Place,
    ScanQuestion,
    TakeQuestion,
    WriteQuestion,
    get_question,
    lease_question,
    read_mode,
    sweep_question,
    write_question,
)
from waltz.table.served.texts import MessageError, row_text, text_of, version_text
from waltz.table.taking import rows_in
from waltz.table.view import Reading

SNAPSHOT_S = 60.0
"""How long a scan may keep the state of its beginning; then it ends with a token."""
TAKE_S = 30.0
"""How long a take may read the log; then it ends with a cursor."""
MAX_ANSWER_BYTES = 64 << 20
"""Most bytes of the values of one get."""


class Served(NamedTuple):
    """A table that is served."""

    table: Table
    """For writes, which wait for the earlier writes of this process."""
    view: TablePartition
    """For reads."""
    log: str
    """Tells the logs of clusters apart."""
    leasing: Leasing
    """Its leases, as they are seen here."""

    @property
    def applied(self) -> int:
        """The last transaction that the view has applied."""
        return self.view.store.progress.applied


class Asked(NamedTuple):
    """What every request has."""

    served: Served
    query: Mapping[str, str]
    """The parameters, as of :func:`~waltz.table.served.questions.query_of`."""
    deadline_s: float
    """By the time of the loop."""

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return max(self.deadline_s - asyncio.get_running_loop().time(), 0.0)


class Told(NamedTuple):
    """An answer."""

    message: dict[str, Json]
    applied: int
    stale: bool = False
    """Whether the view does not have what the read demanded."""


class Stream(NamedTuple):
    """An answer in lines of JSON, page by page."""

    applied: int
    """What the view had applied at the beginning."""
    pages: AsyncGenerator[list[Json], None]
    stale: bool = False


Answer = Callable[[Asked, object], Awaitable[Told]]
"""Answers a message."""


async def caught_up(asked: Asked, at_least: int = -1) -> bool:
    """Return when the view has what the read demands; true if it has not, and the read takes what there is.

    Raises :class:`~waltz.table.served.problems.Refused` at the deadline, ``ConsistencyRefusedError``, and the errors of
    :meth:`~waltz.table.face.partition.TablePartition.refresh`.
    """
    mode = read_mode(asked.query)
    view = asked.served.view
    try:
        read = view.read_of(mode.fresh, mode.consistency)
    except ValueError as error:
        raise MessageError(str(error)) from None
    wanted = max(at_least, mode.at_least)
    end_s = asked.deadline_s
    if mode.stale_ok_ms is not None:
        end_s = min(end_s, asyncio.get_running_loop().time() + mode.stale_ok_ms / 1000)
    try:
        async with asyncio.timeout_at(end_s) as limit:
            await view.catch_up_to(wanted)
            if read is Present.FRESH:
                await view.refresh()
    except (DeadlineExceededError, ConfirmedMarkNotSupportedError):
        if mode.stale_ok_ms is None:
            raise
        return True
    except TimeoutError:
        if not limit.expired():
            raise
        if mode.stale_ok_ms is not None:
            return True
        what = "everything committed" if read is Present.FRESH else f"transaction {wanted}"
        raise refused_now(
            503, "late", f"the view has not applied {what} in time; it has applied {asked.served.applied}"
        ) from None
    return False


def age_ms(served: Served) -> int | None:
    """How long ago the view was last known to have all that was committed; ``None`` if it is not known."""
    age_s = served.view.age_s
    return None if age_s is None else math.ceil(1000 * age_s)


# Reads


async def state(asked: Asked, _message: object = None) -> Told:
    """How far the view is, and how large."""
    stale = await caught_up(asked)
    progress = asked.served.view.store.progress
    message: dict[str, Json] = {
        "partition": asked.served.view.partition_id,
        "log": asked.served.log,
        "applied": progress.applied,
        "rows": progress.rows - progress.tombstones,
        "tombstones": progress.tombstones,
        "skipped": progress.skipped,
    }
    return Told(message, progress.applied, stale)


async def get(asked: Asked, message: object) -> Told:
    """Rows of keys."""
    question = get_question(message)
    stale = await caught_up(asked)
    applied, rows = rows_of(asked.served, question)
    found: list[Json] = [None if row is None else row_text(row) for row in rows]
    return Told({"applied": applied, "rows": found, "stale": stale, "age_ms": age_ms(asked.served)}, applied, stale)


def rows_of(served: Served, question: GetQuestion) -> tuple[int, list[TableRow | None]]:
    """The rows of keys, all of one state, and what that is. In one turn of the loop: nothing is applied meanwhile."""
    view = served.view
    reading = view.reading_of(view.store, question.raw)
    rows: list[TableRow | None] = []
    size = 0
    for prefix, key in question.pairs:
        rows += reading.get(prefix, [key])
        size += len((rows[-1] and rows[-1].value) or b"")
        if size > MAX_ANSWER_BYTES:
            raise refused(
                413, "too-large", f"these values have more than {MAX_ANSWER_BYTES} bytes: get fewer at a time"
            )
    return view.store.progress.applied, rows


@asynccontextmanager
async def scanned(asked: Asked, question: ScanQuestion) -> AsyncIterator[Stream]:
    """Rows of ranges of keys, all of one state; the last line is the end."""
    after = question.after
    if after is not None and after.log != asked.served.log:
        raise refused(409, "other-log", "the token is of another log: begin the scan again")
    stale = await caught_up(asked, -1 if after is None else after.applied)
    if stale and after is not None and asked.served.applied < after.applied:
        raise refused_now(503, "late", "the view has not applied the state of the page before in time")
    view = asked.served.view
    snapshot = view.store.snapshot()
    try:
        reading = view.reading_of(snapshot, question.raw)
        async with aclosing(_scan_pages(asked.served.log, question, reading)) as pages:
            yield Stream(snapshot.progress.applied, pages, stale)
    finally:
        await close_in_pages(snapshot)


async def _scan_pages(log: str, question: ScanQuestion, reading: Reading) -> AsyncGenerator[list[Json], None]:
    applied = reading.rows.progress.applied
    loop = asyncio.get_running_loop()
    end_s = loop.time() + SNAPSHOT_S
    count, next_place, reason = 0, None, "done"
    for range_index, page in _pages(question, reading):
        rows = page[: None if question.limit is None else question.limit - count]
        count += len(rows)
        if rows:
            last = rows[-1]
            next_place = Place(log, applied, range_index, row_key(last.prefix, last.key))
            yield [_line(row, question) for row in rows]
        await asyncio.sleep(0)
        if question.limit is not None and count >= question.limit:
            reason = "limit"
            break
        if loop.time() >= end_s and next_place is not None:
            reason = "time"
            break
    token = next_place.token() if reason != "done" and next_place is not None else None
    yield [{"end": {"applied": applied, "count": count, "reason": reason, "next": token}}]


def _pages(question: ScanQuestion, reading: Reading) -> Iterator[tuple[int, list[TableRow]]]:
    for bounds in question.bounds():
        for page in reading.within(bounds.start, bounds.end, reverse=question.reverse):
            yield bounds.range_index, page


def _line(row: TableRow, question: ScanQuestion) -> Json:
    return {"prefix": text_of(row.prefix), "key": text_of(row.key)} if question.keys_only else row_text(row)


@asynccontextmanager
async def taken(asked: Asked, question: TakeQuestion) -> AsyncIterator[Stream]:
    """Rows in the order of the log, a line for each transaction that has some; the last line is the end."""
    parts = taken_parts(asked.served.view, question.after, question.limit, question.prefix)
    async with aclosing(parts):
        try:
            async with asyncio.timeout_at(asked.deadline_s) as limit:
                first = await anext(parts)
        except TimeoutError:
            if not limit.expired():
                raise
            raise refused_now(503, "late", "the log could not be read in time") from None

        async def pages() -> AsyncGenerator[list[Json], None]:
            end_s = asyncio.get_running_loop().time() + TAKE_S
            count, part = 0, first
            while True:
                count += len(part.rows)
                if part.rows:
                    yield _by_transaction(part.rows)
                if part.at_end or count >= question.limit or asyncio.get_running_loop().time() >= end_s:
                    break
                try:
                    async with asyncio.timeout_at(end_s) as limit:
                        part = await anext(parts)
                except StopAsyncIteration:
                    break
                except TimeoutError:
                    if not limit.expired():
                        raise
                    break
            yield [{"end": {"cursor": part.cursor, "at_end": part.at_end, "count": count}}]

        async with aclosing(pages()) as found:
            yield Stream(asked.served.applied, found)


def _by_transaction(rows: Sequence[TableRow]) -> list[Json]:
    lines: dict[int, list[Json]] = {}
    for row in rows:
        lines.setdefault(row.version.transaction_id, []).append(row_text(row))
    return [{"transaction": transaction_id, "rows": texts} for transaction_id, texts in lines.items()]


class Event(NamedTuple):
    """A line of a watch."""

    kind: str
    transaction_id: int
    message: dict[str, Json]


def progress_event(transaction_id: int) -> Event:
    """Tells how far a watch is."""
    return Event("progress", transaction_id, {"progress": {"transaction": transaction_id}})


async def watched(
    served: Served, feed: BatchFeed, prefix: bytes | None, progress_s: float
) -> AsyncGenerator[tuple[list[Event], int], None]:
    """The events of a watch, and up to which transaction they are all of them; without an end."""
    told = feed.position
    yield [progress_event(told)], told
    while True:
        records = await feed.next_batch(timeout_s=progress_s)
        events = await _events(served.view, records, prefix)
        told = records[-1].transaction_id if records else told
        yield events or [progress_event(told)], told


async def _events(view: TablePartition, records: Sequence[Record], prefix: bytes | None) -> list[Event]:
    """The events of transactions with rows of the prefix, or with a truncation."""
    found: list[Event] = []
    max_body_bytes = view.properties.max_body_bytes
    for record in records:
        transaction_id = record.transaction_id
        envelope = await decoded(transaction_id, record.data, max_body_bytes)
        if isinstance(envelope, Truncate):
            found.append(Event("truncate", transaction_id, {"transaction": transaction_id, "truncate": True}))
            continue
        rows = rows_in(transaction_id, envelope)
        texts: list[Json] = [row_text(row) for row in rows if prefix is None or row.prefix == prefix]
        if texts:
            found.append(Event("rows", transaction_id, {"transaction": transaction_id, "rows": texts}))
    return found


# Writes


async def write(asked: Asked, message: object) -> Told:
    """Rows in one transaction, if all conditions hold."""
    return await written(asked, write_question(message))


async def written(asked: Asked, question: WriteQuestion) -> Told:
    """Write rows; raises the errors of :meth:`~waltz.table.face.table.Table.batch`."""
    consistency = asked.query.get("consistency")
    if question.conditions is not None:
        if consistency is not None:
            raise MessageError("a write with conditions has the level of the partition")
        return _appended(asked, await _write_if(asked, question))
    if consistency is not None:
        try:
            level_from_commit(consistency)
        except ValueError as error:
            raise MessageError(str(error)) from None
    transaction_id = await asked.served.table.batch(
        question.rows, any_timestamp=question.any_timestamp, timeout_s=asked.left_s, consistency=consistency
    )
    return _appended(asked, transaction_id)


async def truncate(asked: Asked, message: object) -> Told:
    """Void all rows."""
    _empty(message)
    return _appended(asked, await asked.served.table.truncate(timeout_s=asked.left_s))


async def sweep(asked: Asked, message: object) -> Told:
    """Remove the rows that have reached their age; if asked for only if that is due."""
    table = asked.served.table
    if sweep_question(message):
        return _appended(asked, await table.sweep_if_due(timeout_s=asked.left_s))
    return _appended(asked, await table.sweep(timeout_s=asked.left_s))


async def check_sweep(asked: Asked, _message: object = None) -> Told:
    """Count the rows that a sweep would remove."""
    stale = await caught_up(asked)
    try:
        async with asyncio.timeout_at(asked.deadline_s) as limit:
            check = await asked.served.table.check_sweep()
    except TimeoutError:
        if not limit.expired():
            raise
        raise refused_now(503, "late", "the rows could not be looked at in time") from None
    return Told({"aged": check.aged, "due": check.due}, asked.served.applied, stale)


async def lease(asked: Asked, message: object) -> Told:
    """Grant a lease that nobody else has."""
    each = lease_question(message, granted=False)
    leasing = asked.served.leasing
    try:
        term = await leasing.grant(each.key, each.prefix, each.holder, each.duration_ms, asked.left_s)
    except ValueError as error:
        raise refused(409, "no-lease", str(error)) from None
    return Told({"term": term}, asked.served.applied)


async def renew(asked: Asked, message: object) -> Told:
    """Renew a lease."""
    each = lease_question(message, granted=True)
    leasing = asked.served.leasing
    return _appended(asked, await leasing.renew(each.key, each.prefix, each.holder, each.term, asked.left_s))


async def release(asked: Asked, message: object) -> Told:
    """End a lease, unless it has ended."""
    each = lease_question(message, granted=True)
    leasing = asked.served.leasing
    return _appended(asked, await leasing.release(each.key, each.prefix, each.holder, each.term, asked.left_s))


def _empty(message: object) -> None:
    if message not in ({}, None):
        raise MessageError("the body must be empty, or {}")


def _appended(asked: Asked, transaction_id: int | None) -> Told:
    return Told({"transaction": transaction_id}, asked.served.applied)


async def _write_if(asked: Asked, question: WriteQuestion) -> int:
    """Write by a transaction; a conflict counts only after the view has caught up with the owner.

    Raises :class:`~waltz.table.served.problems.ServedConflict`, and the errors of
    :meth:`~waltz.table.face.table.Table.put_if`.
    """
    table, view = asked.served.table, asked.served.view

    def work(transaction: TableTransaction) -> None:
        for each in question.conditions or ():
            there = transaction.get(each.key, prefix=each.prefix)
            present = None if there is None else there.version
            if present != each.version:
                found = "no row is there" if present is None else f"the row has the version {version_text(present)}"
                wanted = "none" if each.version is None else version_text(each.version)
                raise VersionConflict(f"{found}, and the condition wants {wanted}")
        for row in question.rows:
            if row.tombstone:
                transaction.delete(row.key, prefix=row.prefix)
            else:
                transaction.put(row.key, row.value, prefix=row.prefix)

    try:
        transaction_id = await table.transaction(work, timeout_s=asked.left_s)
    except VersionConflict:
        try:
            async with asyncio.timeout_at(asked.deadline_s):
                await view.refresh(strict=False)
        except TimeoutError:
            raise NotAppendedError("the condition cannot be checked in time; nothing is written") from None
        try:
            transaction_id = await table.transaction(work, timeout_s=asked.left_s)
        except VersionConflict as error:
            raise ServedConflict(str(error), asked.served.applied) from None
    assert transaction_id is not None, "there are rows"
    return transaction_id


ANSWERS: Final[Mapping[tuple[str, str], Answer]] = {
    ("GET", ""): state,
    ("POST", "/get"): get,
    ("POST", "/batch"): write,
    ("POST", "/truncate"): truncate,
    ("POST", "/lease"): lease,
    ("POST", "/lease/renew"): renew,
    ("POST", "/lease/release"): release,
    ("GET", "/sweep"): check_sweep,
    ("POST", "/sweep"): sweep,
}
"""By method and path below that of the table."""
