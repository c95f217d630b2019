"""Reads: rows by key, parts of values, scans, and the state of a table."""

import asyncio
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import web

from waltz.common.metrics.registry import Json
from waltz.table.face.partition import close_in_pages
from waltz.table.rows import TableRow, row_key
from waltz.table.served.problems import refused, refused_now
from waltz.table.served.questions import (
    GetQuestion,
    Place,
    ScanQuestion,
    bytes_in,
    flag,
    get_question,
    number,
    read_mode,
    scan_of_query,
    scan_question,
)
from waltz.table.served.texts import line_of, row_text, text_of, version_text
from waltz.table.view import Reading
from waltz.view.exchange import Exchange, streaming

NDJSON: Final = "application/x-ndjson"

SNAPSHOT_S = 60.0
"""How long a scan may keep the state of its beginning; then it ends with a token."""
SEND_TIMEOUT_S = 30.0
"""Within this time a reader must take a page of a scan."""
MAX_ANSWER_BYTES = 64 << 20
"""Most bytes of the values of one get."""


async def caught_up(exchange: Exchange, at_least: int = -1) -> None:
    """Return when the view has what the read demands.

    Raises :class:`~waltz.table.served.problems.Refused` at the deadline, and the errors of
    :meth:`~waltz.table.face.partition.TablePartition.refresh`.
    """
    mode = read_mode(exchange.query)
    view = exchange.served.view
    wanted = max(at_least, mode.at_least)
    try:
        async with asyncio.timeout_at(exchange.deadline_s) as limit:
            await view.catch_up_to(wanted)
            if mode.fresh:
                await view.refresh()
    except TimeoutError:
        if not limit.expired():
            raise
        what = "everything committed" if mode.fresh else f"transaction {wanted}"
        raise refused_now(
            503, "late", f"the view has not applied {what} in time; it has applied {exchange.served.applied}"
        ) from None


async def get(exchange: Exchange) -> web.StreamResponse:
    """``POST .../get``: rows of keys."""
    async with exchange.message() as message:
        question = get_question(message)
    await caught_up(exchange)
    applied, rows = _rows(exchange, question)
    found: list[Json] = [None if row is None else row_text(row) for row in rows]
    return exchange.answer({"applied": applied, "rows": found}, applied=applied)


async def get_row(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows/KEY``: one row, with its version as ``ETag``."""
    row, applied = await _one(exchange, raw=flag(exchange.query, "raw"))
    response = exchange.answer(row_text(row), applied=applied)
    response.headers["ETag"] = f'"{version_text(row.version)}"'
    return response


async def get_value(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows/KEY/value``: the bytes of a value, or a part of them."""
    offset = number(exchange.query.get("offset", "0"), "offset")
    size = number(exchange.query["size"], "size") if "size" in exchange.query else None
    row, applied = await _one(exchange, end="/value")
    if row.value is None:
        raise refused(404, "no-value", "the value of the row is null")
    part = row.value[offset : None if size is None else offset + size]
    headers = exchange.headers(applied) | {"ETag": f'"{version_text(row.version)}"'}
    return web.Response(body=part, content_type="application/octet-stream", headers=headers)


async def scan(exchange: Exchange) -> web.StreamResponse:
    """``POST .../scan``: rows of ranges of keys, as lines of JSON, all of one state."""
    async with exchange.message() as message:
        question = scan_question(message)
    return await _scanned(exchange, question)


async def scan_by_query(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows``: the same for one range."""
    return await _scanned(exchange, scan_of_query(exchange.query))


async def state(exchange: Exchange) -> web.StreamResponse:
    """``GET /v1/tables/P``: how far the view is, and how large."""
    await caught_up(exchange)
    progress = exchange.served.view.store.progress
    message: dict[str, Json] = {
        "partition": exchange.partition_id,
        "log": exchange.served.log,
        "applied": progress.applied,
        "rows": progress.rows - progress.tombstones,
        "tombstones": progress.tombstones,
        "skipped": progress.skipped,
    }
    return exchange.answer(message, applied=progress.applied)


def key_of(exchange: Exchange, end: str = "") -> bytes:
    """The key in the path, whose percent-encoding may stand for any bytes."""
    path = exchange.request.rel_url.raw_path.removesuffix(end)
    return unquote_to_bytes(path.split("/rows/", 1)[1])


def _rows(exchange: Exchange, question: GetQuestion) -> tuple[int, list[TableRow | None]]:
    """The rows of keys, all of one state, and what that is. In one turn of the loop: nothing is applied meanwhile."""
    view = exchange.served.view
    reading = view.reading_of(view.store, question.raw)
    rows: list[TableRow | None] = []
    size = 0
    for key in question.keys:
        rows += reading.get(question.prefix, [key])
        size += len((rows[-1] and rows[-1].value) or b"")
        if size > MAX_ANSWER_BYTES:
            raise refused(
                413, "too-large", f"these values have more than {MAX_ANSWER_BYTES} bytes: get fewer at a time"
            )
    return view.store.progress.applied, rows


async def _one(exchange: Exchange, *, raw: bool = False, end: str = "") -> tuple[TableRow, int]:
    question = GetQuestion(bytes_in(exchange.query, "prefix"), [key_of(exchange, end)], raw)
    await caught_up(exchange)
    applied, (row,) = _rows(exchange, question)
    if row is None:
        raise refused(404, "no-row", "there is no such row")
    return row, applied


async def _scanned(exchange: Exchange, question: ScanQuestion) -> web.StreamResponse:
    after = question.after
    if after is not None and after.log != exchange.served.log:
        raise refused(409, "other-log", "the token is of another log: begin the scan again")
    await caught_up(exchange, -1 if after is None else after.applied)
    view = exchange.served.view
    with exchange.limits.scans.taken():
        snapshot = view.store.snapshot()
        try:
            reading = view.reading_of(snapshot, question.raw)
            return await _stream(exchange, question, reading)
        finally:
            await close_in_pages(snapshot)


async def _stream(exchange: Exchange, question: ScanQuestion, reading: Reading) -> web.StreamResponse:
    applied = reading.rows.progress.applied
    response = web.StreamResponse(headers=exchange.headers(applied) | {"Content-Type": NDJSON})
    loop = asyncio.get_running_loop()
    end_s = loop.time() + SNAPSHOT_S
    async with streaming(exchange.request, response):
        count, next_place, reason = 0, None, "done"
        for range_index, page in _pages(question, reading):
            rows = page[: None if question.limit is None else question.limit - count]
            count += len(rows)
            if rows:
                last = rows[-1]
                next_place = Place(exchange.served.log, applied, range_index, row_key(last.prefix, last.key))
                data = b"".join(line_of(_line(row, question)) for row in rows)
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await response.write(data)
            await asyncio.sleep(0)
            if question.limit is not None and count >= question.limit:
                reason = "limit"
                break
            if loop.time() >= end_s and next_place is not None:
                reason = "time"
                break
        token = next_place.token() if reason != "done" and next_place is not None else None
        end: dict[str, Json] = {"applied": applied, "count": count, "reason": reason, "next": token}
        await response.write(line_of({"end": end}))
        await response.write_eof()
    return response


def _pages(question: ScanQuestion, reading: Reading) -> Iterator[tuple[int, list[TableRow]]]:
    for bounds in question.bounds():
        for page in reading.within(bounds.start, bounds.end, reverse=question.reverse):
            yield bounds.range_index, page


def _line(row: TableRow, question: ScanQuestion) -> Json:
    return {"prefix": text_of(row.prefix), "key": text_of(row.key)} if question.keys_only else row_text(row)
