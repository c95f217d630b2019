"""Writes: handed to the owner of the partition as appends with the locks of tables.

Nothing is answered with 2xx that is not committed.
"""

import asyncio
from typing import Final

from aiohttp import web

from waltz.client.errors import NotAppendedError
from waltz.table.envelope import Row
from waltz.table.errors import VersionConflict
from waltz.table.face.transaction import TableTransaction
from waltz.table.served.questions import Condition, WriteQuestion, bytes_in, number, write_question
from waltz.table.served.texts import MessageError, version_of, version_text
from waltz.view.exchange import Exchange
from waltz.view.reading import key_of

_ANY: Final = "*"


async def write(exchange: Exchange) -> web.StreamResponse:
    """``POST .../batch``: rows in one transaction, if all conditions hold."""
    async with exchange.message() as message:
        question = write_question(message)
        return await _written(exchange, question)


async def put_row(exchange: Exchange) -> web.StreamResponse:
    """``PUT .../rows/KEY``: one row, whose value is the body."""
    async with exchange.body() as value:
        return await _written(exchange, _question(exchange, value))


async def delete_row(exchange: Exchange) -> web.StreamResponse:
    """``DELETE .../rows/KEY``: one row, whether it exists or not."""
    return await _written(exchange, _question(exchange, None))


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
    question = WriteQuestion([row], conditions)
    if conditions and timestamp_ms is not None:
        raise MessageError("a row with a condition has no timestamp of its own: it wins over what it replaces")
    return question


async def _written(exchange: Exchange, question: WriteQuestion) -> web.StreamResponse:
    table = exchange.served.table
    if question.conditions:
        transaction_id = await _write_if(exchange, question)
    else:
        transaction_id = await table.batch(
            question.rows, any_timestamp=question.any_timestamp, timeout_s=exchange.left_s
        )
    return exchange.answer({"transaction": transaction_id})


async def _write_if(exchange: Exchange, question: WriteQuestion) -> int:
    """Write by a transaction; a conflict counts only after the view has caught up with the owner.

    Raises like :meth:`~waltz.table.face.table.Table.put_if`.
    """
    table = exchange.served.table

    def work(transaction: TableTransaction) -> None:
        for each in question.conditions:
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
        transaction_id = await table.transaction(work, timeout_s=exchange.left_s)
    except VersionConflict:
        try:
            async with asyncio.timeout_at(exchange.deadline_s):
                await exchange.served.view.refresh(strict=False)
        except TimeoutError:
            raise NotAppendedError("the condition cannot be checked in time; nothing is written") from None
        transaction_id = await table.transaction(work, timeout_s=exchange.left_s)
    assert transaction_id is not None, "there are rows"
    return transaction_id
