"""The interface of a view node: its routes, and the port that serves them."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from waltz.client.plain.feed import BatchFeed
from waltz.common.access import Right
from waltz.common.metrics.registry import Json
from waltz.common.net.http import HttpError
from waltz.common.net.listener import listening_errors
from waltz.common.quiet_log import QuietLog
from waltz.common.version import installed_version
from waltz.table.served.answers import ANSWERS
from waltz.table.served.problems import Problem
from waltz.table.served.texts import line_of
from waltz.view import reading, writing
from waltz.view.exchange import Exchanges, Handle, problem_response
from waltz.view.openapi import LIST_PATH, PATH, document
from waltz.view.routes import ROUTES, ROW, TABLE
from waltz.view.watching import watch_with

logger = logging.getLogger(__name__)

_quiet = QuietLog(logger)


def _told_quietly(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    _quiet.warning("%s: %.200s", record.getMessage(), error)
    return False


_HTTP_LOG: Final = logging.getLogger(f"{__name__}.http")
"""What the library says of requests that are no HTTP. Whoever reaches the port can make any number of them."""
_HTTP_LOG.addFilter(_told_quietly)

HANDSHAKE_TIMEOUT_S: Final = 10.0
FIRST_REQUEST_S: Final = 10.0
"""Within this time after its begin a connection must have sent the head of a request."""
KEEP_ALIVE_S: Final = 75.0
"""How long a connection may be idle between requests."""
CLOSE_S: Final = 5.0
"""How long requests under way may go on when the node ends."""


def make_application(exchanges: Exchanges, watches: set[BatchFeed]) -> web.Application:
    """All routes. Everything that goes wrong is answered with problem JSON."""
    handles: dict[tuple[str, str], Handle] = {
        (method, TABLE + path): reading.answered(answer, looks_at_rows=path == "/sweep")
        for (method, path), answer in ANSWERS.items()
    } | {
        ("GET", ROW): reading.get_row,
        ("GET", ROW + "/value"): reading.get_value,
        ("POST", TABLE + "/scan"): reading.scan,
        ("GET", TABLE + "/rows"): reading.scan_by_query,
        ("GET", TABLE + "/take"): reading.take,
        ("GET", TABLE + "/watch"): watch_with(exchanges.metrics, watches),
        ("PUT", ROW): writing.put_row,
        ("DELETE", ROW): writing.delete_row,
    }

    @web.middleware
    async def without_route(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            allow = ", ".join(sorted(error.allowed_methods))
            return problem_response(Problem(405, "method", f"only {allow} is allowed here"), (("Allow", allow),))
        except web.HTTPNotFound:
            return problem_response(Problem(404, "no-path", "there are /openapi.json, and paths below /v1/tables"))

    application = web.Application(middlewares=[without_route], client_max_size=exchanges.limits.max_body_bytes)
    for route in ROUTES:
        handler = exchanges.handler(route, handles[route.method, route.path])
        application.router.add_route(route.method, route.path, handler)

    async def tables(request: web.Request) -> web.StreamResponse:
        """``GET /v1/tables``: the partitions that the caller may read."""
        try:
            caller = exchanges.caller(request)
        except HttpError as error:
            return problem_response(Problem(error.status, "unauthorized", str(error)), error.headers)
        served = exchanges.partitions.all()
        shown = caller.rights.filtered(Right.READ, served, "list tables", caller.peer)
        message: dict[str, Json] = {
            "tables": [{"partition": each, "applied": served[each].applied, "log": served[each].log} for each in shown]
        }
        exchanges.metrics.answered("list", 200, 0.0)
        return web.Response(body=line_of(message), content_type="application/json")

    description = line_of(document(installed_version() or "unknown"))

    async def described(_request: web.Request) -> web.StreamResponse:
        """``GET /openapi.json``: the description, for everybody."""
        exchanges.metrics.answered("description", 200, 0.0)
        return web.Response(body=description, content_type="application/json")

    application.router.add_get(LIST_PATH, tables)
    application.router.add_get(PATH, described)
    return application


class Port:
    """The port of the interface, from :meth:`open` to :meth:`close`."""

    def __init__(self, exchanges: Exchanges, max_connections: int) -> None:
        self._exchanges = exchanges
        self._max_connections = max_connections
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """Young connections without a request, and what ends them."""
        self._watches: set[BatchFeed] = set()
        self.application = make_application(exchanges, self._watches)
        self.application.middlewares.insert(0, self._first_request())
        self._runner = web.AppRunner(
            self.application,
            keepalive_timeout=KEEP_ALIVE_S,
            access_log=None,
            logger=_HTTP_LOG,
            shutdown_timeout=CLOSE_S,
            handle_signals=False,
            max_line_size=64 << 10,
        )
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; returns the port. Raises ``WaltzError`` when it cannot be used."""
        await self._runner.setup()
        handshake_s = None if tls is None else HANDSHAKE_TIMEOUT_S
        with listening_errors(host, port):
            self._server = await asyncio.get_running_loop().create_server(
                self._connection, host, port, ssl=tls, ssl_handshake_timeout=handshake_s, backlog=1024
            )
        self._exchanges.metrics.connections = lambda: len(self._connections)
        self._exchanges.port = int(self._server.sockets[0].getsockname()[1])
        return self._exchanges.port

    async def close(self) -> None:
        """Accept nothing more, and end what is under way: watches at once, and they are told."""
        if self._server is not None:
            self._server.close()
        for feed in list(self._watches):
            await feed.aclose()
        await self._runner.cleanup()
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    @property
    def _connections(self) -> list[web.RequestHandler]:
        server = self._runner.server
        return [] if server is None else server.connections

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None or len(self._connections) >= self._max_connections:
            return _Refused()
        connection = server()
        self._silent[connection] = asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._end_silent, connection)
        return connection

    def _end_silent(self, connection: web.RequestHandler) -> None:
        del self._silent[connection]
        connection.force_close()

    def _first_request(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def note(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            return await handler(request)

        return note


class _Refused(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
