"""Watches: what is committed to a table from a transaction on, as lines of JSON or as Server-Sent Events.

A watch reads the log at the pace of its reader, so that it misses nothing and costs little memory. A reader that does
not take what was sent is told, as far as that goes, and cut; it can go on from the last transaction that it has got.
"""

import asyncio
import logging
from contextlib import aclosing
from typing import Final

from aiohttp import web

from waltz.client.errors import ClientClosedError
from waltz.client.plain.feed import BatchFeed
from waltz.common.access import Right
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import Json
from waltz.table.served.answers import Event, watched
from waltz.table.served.problems import Refused, refused
from waltz.table.served.questions import bytes_in, number
from waltz.table.served.texts import line_of
from waltz.view.exchange import Exchange, Handle, streaming
from waltz.view.routes import EVENTS, NDJSON
from waltz.view.view_metrics import ViewMetrics

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 10.0
"""Within this time a reader must take what was sent."""
PROGRESS_S: Final = 5
"""Default time after which a watch without rows says how far it is."""
MAX_PROGRESS_S: Final = 60


class _Stream:
    """The lines or events of one watch."""

    def __init__(self, exchange: Exchange, *, as_events: bool) -> None:
        self._request = exchange.request
        self._as_events = as_events
        content_type = EVENTS if as_events else NDJSON
        self.response = web.StreamResponse(headers=exchange.headers() | {"Content-Type": content_type})

    def line(self, event: Event) -> bytes:
        """One event. Its id is the transaction from which a browser resumes by itself."""
        if not self._as_events:
            return line_of(event.message)
        return b"id: %d\nevent: %s\ndata: %s\n" % (event.transaction_id, event.kind.encode(), line_of(event.message))

    async def send(self, data: bytes) -> None:
        """Send events. Raises ``TimeoutError`` for a reader that takes nothing."""
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self.response.write(data)

    async def end(self, transaction_id: int, reason: str, detail: str) -> None:
        """Say why the watch ends."""
        end: dict[str, Json] = {"transaction": transaction_id, "reason": reason, "detail": detail}
        line = self.line(Event("end", transaction_id, {"end": end}))
        transport = self._request.transport
        try:
            async with asyncio.timeout(1.0):
                await self.response.write(line)
                await self.response.write_eof()
        except (TimeoutError, ConnectionError):
            if transport is not None:
                transport.abort()


def watch_with(metrics: ViewMetrics, open_feeds: set[BatchFeed]) -> Handle:
    """``GET .../watch``: the handler, which counts in ``metrics``; who closes ``open_feeds`` ends all watches."""

    async def watch(exchange: Exchange) -> web.StreamResponse:
        after = _after(exchange)
        progress_s = number(exchange.query.get("progress_s", str(PROGRESS_S)), "progress_s", 1, MAX_PROGRESS_S)
        if exchange.query.get("log", exchange.served.log) != exchange.served.log:
            raise refused(409, "other-log", "this cluster has another log than that of the watch: begin a new watch")
        prefix = bytes_in(exchange.query, "prefix") if "prefix" in exchange.query else None
        as_events = EVENTS in exchange.request.headers.get("Accept", "")
        stream = _Stream(exchange, as_events=as_events)
        view = exchange.served.view
        async with view.client.library_feed(exchange.partition_id, after=after) as feed:
            open_feeds.add(feed)
            metrics.watches = len(open_feeds)
            try:
                async with asyncio.timeout_at(exchange.deadline_s):
                    await feed.begin()
                async with streaming(exchange.request, stream.response):
                    await _follow(exchange, stream, feed, prefix, progress_s, metrics)
            finally:
                open_feeds.discard(feed)
                metrics.watches = len(open_feeds)
        return stream.response

    return watch


def _after(exchange: Exchange) -> int:
    """The transaction after which the watch begins: by default the last one of the view."""
    given = exchange.request.headers.get("Last-Event-ID") or exchange.query.get("after")
    return exchange.served.applied if given is None else number(given, "after", NO_TRANSACTION)


async def _follow(
    exchange: Exchange,
    stream: _Stream,
    feed: BatchFeed,
    prefix: bytes | None,
    progress_s: int,
    metrics: ViewMetrics,
) -> None:
    told = feed.position
    try:
        async with aclosing(watched(exchange.served, feed, prefix, progress_s)) as watch:
            async for events, last in watch:
                exchange.caller.check(Right.READ, exchange.partition_id, noted=True)
                await stream.send(b"".join(map(stream.line, events)))
                told = last  # not before: a reader that goes on from there has everything up to it
    except ConnectionError:
        return  # the reader has gone
    except TimeoutError:
        reason, detail = "slow", "the reader has not taken what was sent: go on from its last transaction"
    except Refused as error:
        reason, detail = "forbidden", str(error)
    except ClientClosedError:
        reason, detail = "closed", "the view node is ending: go on at another one"
    except WaltzError as error:
        reason, detail = "failed", str(error)
    metrics.ended(reason)
    await stream.end(told, reason, detail)
