"""Reads over HTTP: rows by key, parts of values, and answers in lines."""

import asyncio
from contextlib import AbstractAsyncContextManager
from urllib.parse import unquote_to_bytes

from aiohttp import web

from waltz.table.rows import TableRow
from waltz.table.served.answers import Answer, Stream, Told, caught_up, rows_of, scanned, taken
from waltz.table.served.problems import refused
from waltz.table.served.questions import (
    GetQuestion,
    bytes_in,
    flag,
    number,
    scan_of_query,
    scan_question,
    take_of_query,
)
from waltz.table.served.texts import line_of, row_text, version_text
from waltz.view.exchange import Exchange, Handle, streaming
from waltz.view.routes import NDJSON

SEND_TIMEOUT_S = 30.0
"""Within this time a reader must take a page of a scan or take."""


def answered(answer: Answer, *, looks_at_rows: bool = False) -> Handle:
    """The handler of requests and answers in JSON. With ``looks_at_rows`` a request counts as a scan."""

    async def handled(exchange: Exchange) -> web.StreamResponse:
        async with exchange.message() as message:
            if not looks_at_rows:
                return exchange.answer(await answer(exchange.asked, message))
            with exchange.limits.scans.taken():
                return exchange.answer(await answer(exchange.asked, message))

    return handled


async def get_row(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows/KEY``: one row, with its version as ``ETag``."""
    row, applied, stale = await _one(exchange, raw=flag(exchange.query, "raw"))
    response = exchange.answer(Told(row_text(row), applied, stale))
    response.headers["ETag"] = f'"{version_text(row.version)}"'
    return response


async def get_value(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows/KEY/value``: the bytes of a value, or a part of them."""
    offset = number(exchange.query.get("offset", "0"), "offset")
    size = number(exchange.query["size"], "size") if "size" in exchange.query else None
    row, applied, stale = await _one(exchange, end="/value")
    if row.value is None:
        raise refused(404, "no-value", "the value of the row is null")
    part = row.value[offset : None if size is None else offset + size]
    headers = exchange.headers(applied, stale=stale) | {"ETag": f'"{version_text(row.version)}"'}
    return web.Response(body=part, content_type="application/octet-stream", headers=headers)


async def scan(exchange: Exchange) -> web.StreamResponse:
    """``POST .../scan``: rows of ranges of keys, as lines of JSON, all of one state."""
    async with exchange.message() as message:
        question = scan_question(message)
    return await _streamed(exchange, scanned(exchange.asked, question))


async def scan_by_query(exchange: Exchange) -> web.StreamResponse:
    """``GET .../rows``: the same for one range."""
    return await _streamed(exchange, scanned(exchange.asked, scan_of_query(exchange.query)))


async def take(exchange: Exchange) -> web.StreamResponse:
    """``GET .../take``: rows in the order of the log, as lines of JSON, up to its present end."""
    return await _streamed(exchange, taken(exchange.asked, take_of_query(exchange.query)))


def key_of(exchange: Exchange, end: str = "") -> bytes:
    """The key in the path, whose percent-encoding may stand for any bytes."""
    path = exchange.request.rel_url.raw_path.removesuffix(end)
    return unquote_to_bytes(path.split("/rows/", 1)[1])


async def _one(exchange: Exchange, *, raw: bool = False, end: str = "") -> tuple[TableRow, int, bool]:
    question = GetQuestion([(bytes_in(exchange.query, "prefix"), key_of(exchange, end))], raw)
    stale = await caught_up(exchange.asked)
    applied, (row,) = rows_of(exchange.served, question)
    if row is None:
        raise refused(404, "no-row", "there is no such row")
    return row, applied, stale


async def _streamed(exchange: Exchange, opening: AbstractAsyncContextManager[Stream]) -> web.StreamResponse:
    with exchange.limits.scans.taken():
        async with opening as stream:
            headers = exchange.headers(stream.applied, stale=stream.stale) | {"Content-Type": NDJSON}
            response = web.StreamResponse(headers=headers)
            async with streaming(exchange.request, response):
                async for page in stream.pages:
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await response.write(b"".join(map(line_of, page)))
                await response.write_eof()
            return response
