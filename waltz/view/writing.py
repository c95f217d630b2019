"""Writes of one row, whose value is the body. Nothing is answered with 200 that is not committed."""

from typing import Final

from aiohttp import web

from waltz.table.envelope import Row
from waltz.table.served.answers import written
from waltz.table.served.questions import Condition, WriteQuestion, bytes_in, number
from waltz.table.served.texts import MessageError, version_of
from waltz.view.exchange import Exchange
from waltz.view.reading import key_of

_ANY: Final = "*"


async def put_row(exchange: Exchange) -> web.StreamResponse:
    """``PUT .../rows/KEY``: one row, whose value is the body."""
    async with exchange.body() as value:
        return exchange.answer(await written(exchange.asked, _question(exchange, value)))


async def delete_row(exchange: Exchange) -> web.StreamResponse:
    """``DELETE .../rows/KEY``: one row, whether it exists or not."""
    async with exchange.body():
        return exchange.answer(await written(exchange.asked, _question(exchange, None)))


def _question(exchange: Exchange, value: bytes | None) -> WriteQuestion:
    """The write of one row; ``If-Match`` and ``If-None-Match`` are its condition."""
    prefix, key = bytes_in(exchange.query, "prefix"), key_of(exchange)
    timestamp = exchange.query.get("timestamp_ms")
    timestamp_ms = None if timestamp is None else number(timestamp, "timestamp_ms", 1)
    row = Row(prefix, key, value, timestamp_ms, tombstone=value is None)
    conditions: list[Condition] = []
    if_match, if_none_match = (exchange.request.headers.get(name) for name in ("If-Match", "If-None-Match"))
    if if_match is not None and if_none_match is not None:
        raise MessageError("If-Match and If-None-Match exclude each other")
    if if_none_match is not None:
        if if_none_match != _ANY:
            raise MessageError('If-None-Match must be "*"')
        conditions.append(Condition(prefix, key, None))
    if if_match is not None:
        conditions.append(Condition(prefix, key, version_of(if_match.strip().strip('"'), "If-Match")))
    question = WriteQuestion([row], conditions or None)
    if conditions and timestamp_ms is not None:
        raise MessageError("a row with a condition has no timestamp of its own: it wins over what it replaces")
    return question
