"""The HTTP endpoints of a node: ``/ping``, ``/buildinfo``, ``/metrics`` and ``/health``.

A deliberately small server: no bodies in requests, one request per connection, limits for all. Paths, status codes and
bodies are the original's. Extensions of this implementation are ``/metrics/prometheus``, the choice by ``Accept``
header, and TLS. A process may add pages. :mod:`waltz.common.net.page_rules` has the right for each page.
"""

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Self, cast
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from waltz.common.access import ALLOW_ALL, EVERYTHING, Access, Proof, Rights, principal_of
from waltz.common.metrics.exposition import http_pieces, prometheus_pieces, to_json
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.channel import peer_name
from waltz.common.net.listener import bound_port, close_server, listening_errors, start_server
from waltz.common.net.page_rules import page_rule
from waltz.common.net.tls_acceptor import TlsAcceptor
from waltz.common.net.token_gate import Identities
from waltz.common.net.token_problems import NO_TLS_TEXT, TokenProblem, TokenRefusal, counted_problems
from waltz.common.pieces import Pieces
from waltz.common.quiet_log import QuietLog
from waltz.common.version import installed_version

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 16 << 10
"""Limit of the size of request line and headers together."""

MAX_CONNECTIONS = 64
"""Limit of connections. Above the limit the oldest one is closed, so a complete request is always answered."""

DEADLINE_S = 10.0
"""Time limit of the TLS handshake, and again of request and response together."""

MAX_READERS = 100
"""Maximum number of principals whose rights are kept for their next request."""

Health = Callable[[], tuple[bool, Json]]
"""Whether the node is healthy, and the body of ``/health``. Called on the loop; must be quick."""

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}


class Request(NamedTuple):
    """The part of a request that this server needs."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    accept: str
    token: SecretStr | None = None
    """The token of ``Authorization: Bearer``."""
    rights: Rights = EVERYTHING
    """The rights of the reader, for pages that show only what the reader may see."""
    peer: str = ""
    """The reader's address."""


class Reader(NamedTuple):
    """The identity of a reader according to the connection."""

    peer: str = ""
    certificate: Mapping[str, object] | None = None
    """The verified certificate."""
    over_tls: bool = False


NOBODY: Final = Reader()
"""An unknown reader."""


class Response(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: str | Iterator[str]
    """The whole body, or an iterator of its pieces, with turns of other work in between."""
    allow: str = "GET"
    """The methods of the path, sent with status 405."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional response headers."""

    def encode(self) -> bytes:
        """The bytes to send; the connection is closed after them."""
        assert isinstance(self.body, str)
        body = self.body.encode()
        allow = f"Allow: {self.allow}\r\n" if self.status == 405 else ""
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Cache-Control: must-revalidate,no-cache,no-store\r\n"
            f"{allow}{more}Connection: close\r\n\r\n"
        )
        return head.encode() + body


Page = Callable[[Request], Response]
"""Answers a request at once, or raises :class:`HttpError`; called on the loop."""


class HttpError(Exception):
    """An error of a request; becomes a response with an error status."""

    def __init__(self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    @property
    def response(self) -> Response:
        """The response with the error's status."""
        return Response(self.status, _TEXT, f"{self}\n", headers=self.headers)


_FAILED = HttpError(500, "internal error; see the log")

_CHALLENGE: Final = ("WWW-Authenticate", 'Bearer error="invalid_token"')
"""The response header for a refused token, by RFC 6750."""


class RequestParser:
    """Reads one request; no I/O."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Request | None:
        """Take the bytes of one read.

        Returns:
            The request, when its headers are complete; else ``None``.

        Raises:
            HttpError: The request is malformed or too large.
        """
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if max(end, 0) > MAX_REQUEST_BYTES or (end < 0 and len(self._received) > MAX_REQUEST_BYTES):
            raise HttpError(431, "request headers too large")
        return None if end < 0 else _parse(self._received[:end].decode("latin-1"))


def _parse(head: str) -> Request:
    request_line, *header_lines = head.split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[1]:
        raise HttpError(400, "malformed request line")
    method, target, version = parts
    if not version.startswith("HTTP/"):
        raise HttpError(400, "malformed request line")
    if not version.startswith("HTTP/1."):
        raise HttpError(505, "only HTTP/1 is supported")
    if method not in ("GET", "POST"):
        raise HttpError(405, "only GET is allowed")
    headers: dict[str, str] = {}
    for line in header_lines:
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise HttpError(400, "malformed header")
        if name.lower() == "authorization" and "authorization" in headers:
            raise HttpError(400, "there are two Authorization headers")
        headers[name.lower()] = value.strip()
    try:
        url = urlsplit(target)
        query = parse_qs(url.query, max_num_fields=16)
    except ValueError:
        raise HttpError(400, "malformed request target") from None
    return Request(method, url.path, query, headers.get("accept", ""), bearer_token(headers.get("authorization", "")))


def bearer_token(authorization: str) -> SecretStr | None:
    """The bearer token of an ``Authorization`` header. Other schemes are ignored: they may be for a proxy."""
    scheme, _, token = authorization.partition(" ")
    return SecretStr(token.strip()) if scheme.lower() == "bearer" else None


def prefers_prometheus(accept: str) -> bool:
    """Whether an ``Accept`` header prefers plain text to JSON. The default is JSON."""
    quality = {"text/plain": 0.0, _JSON: 0.0}
    for choice in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in choice.split(";"))
        if media_type in quality:
            quality[media_type] = max(quality[media_type], _quality(parameters))
    return quality["text/plain"] > quality[_JSON]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


class Pages:
    """Answers requests; no I/O."""

    def __init__(
        self, registry: Registry, health: Health | None, version: str | None, more: Mapping[str, Page] | None = None
    ) -> None:
        """``more`` pages by method and path, such as ``POST /reset``."""
        self._registry = registry
        self._health = health
        self._version = version
        self._pages: dict[str, Page] = {
            "GET /ping": self._ping,
            "GET /buildinfo": self._build_info,
            "GET /metrics": self._metrics,
            "GET /metrics/prometheus": self._prometheus,
            "GET /health": self._check_health,
            **(more or {}),
        }

    def answer(self, request: Request) -> Response:
        """The response to a request. If a page fails, the response has status 500, and the log reports a defect."""
        path = request.path.rstrip("/")
        page = self._pages.get(f"{request.method} {path}")
        if page is None:
            methods = [method for method in ("GET", "POST") if f"{method} {path}" in self._pages]
            if methods:
                allow = ", ".join(methods)
                return Response(405, _TEXT, f"only {allow} is allowed here\n", allow)
            paths = ", ".join(key.partition(" ")[2] for key in self._pages)
            return HttpError(404, f"not found; the pages are {paths}").response
        try:
            return page(request)
        except HttpError as error:
            return error.response
        except Exception:
            logger.exception("%s could not be answered", request.path)
            return _FAILED.response

    def _ping(self, _: Request) -> Response:
        return Response(200, _TEXT, "pong\n")

    def _build_info(self, _: Request) -> Response:
        return Response(200, _JSON, to_json({"version": self._version, "service_name": "Waltz"}) + "\n")

    def _metrics(self, request: Request) -> Response:
        if prefers_prometheus(request.accept):
            return self._prometheus(request)
        return Response(200, _JSON, http_pieces(self._registry, pretty=_pretty(request)))

    def _prometheus(self, _: Request) -> Response:
        return Response(200, _PROMETHEUS, prometheus_pieces(self._registry))

    def _check_health(self, request: Request) -> Response:
        if self._health is None:
            return Response(501, _JSON, "{}")
        healthy, body = self._health()
        return Response(200 if healthy else 500, _JSON, to_json(body, pretty=_pretty(request)))


def json_page(body: Json, request: Request) -> Response:
    """A page of JSON; ``?pretty=true`` indents it."""
    return Response(200, _JSON, to_json(body, pretty=_pretty(request)) + "\n")


def _pretty(request: Request) -> bool:
    return request.query.get("pretty") == ["true"]


class Known(NamedTuple):
    """A reader, identified by a token or a certificate."""

    rights: Rights
    """The rights, which follow changes of the rules."""
    expires_s: float | None = None
    """End of validity of the token, in seconds since 1970; ``None`` for a certificate."""


class Readers:
    """The rights of readers at an HTTP port, identified by a token or else by a certificate."""

    def __init__(self, access: Access, identities: Identities | None, log: QuietLog) -> None:
        """Without ``identities`` tokens are ignored; ``log`` is for errors of peers."""
        self.refused_tokens = counted_problems(asked=identities is not None)
        """Number of refused tokens, by problem."""
        self._identities = identities
        self._log = log
        self._rights_of = functools.lru_cache(MAX_READERS)(access.rights_of)

    def known(self, presented: SecretStr | None, reader: Reader, port: int) -> Known:
        """Identify a reader at a port of this node.

        Raises:
            HttpError: The token is refused.
        """
        if self._identities is None:
            return Known(self._rights_of(principal_of(reader.certificate)))
        if presented is None:
            return Known(self._rights_of(principal_of(reader.certificate, self._identities.sources)))
        token = presented.get_secret_value()
        try:
            if not reader.over_tls:
                raise TokenRefusal(TokenProblem.NO_TLS, NO_TLS_TEXT)
            found = self._identities.verify(token)
        except TokenRefusal as refusal:
            self.refused_tokens[refusal.problem] += 1
            self._log.warning("the token of %s is refused: %s", reader.peer, refusal)
            self._identities.refused(token, reader.peer, port, refusal)
            raise HttpError(401, str(refusal), (_CHALLENGE,)) from None
        return Known(self._rights_of(found.principal, Proof.TOKEN), found.expires_s)


class HttpServer:
    """Serves the pages of one node until it is closed."""

    def __init__(
        self,
        pages: Pages,
        access: Access,
        *,
        identities: Identities | None = None,
        open_paths: Collection[str] = (),
    ) -> None:
        """Use :meth:`open`."""
        self.port: int = 0
        """The listening port; for a requested port of 0, the one that the operating system chose."""
        self.pieces = Pieces()
        """Assembles responses that are made in pieces."""
        self.log = QuietLog(logger)
        """The log for errors of peers."""
        self._readers = Readers(access, identities, self.log)
        self.refused_tokens = self._readers.refused_tokens
        """Number of refused tokens, by problem."""
        self._pages = pages
        self._open_paths = frozenset(open_paths)
        self._server: asyncio.Server | None = None
        self._acceptor: TlsAcceptor[_Connection] | None = None
        self._connections: dict[_Connection, None] = {}
        self._closed = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        registry: Registry,
        *,
        health: Health | None = None,
        more: Mapping[str, Page] | None = None,
        access: Access = ALLOW_ALL,
        tls: ssl.SSLContext | None = None,
        identities: Identities | None = None,
        open_paths: Collection[str] = (),
    ) -> Self:
        """Listen on all addresses that ``host`` resolves to.

        Args:
            host: A name or an address.
            port: The port; 0 for any.
            registry: The metrics.
            health: Tells whether the node is healthy.
            more: Further pages by method and path, such as ``POST /reset``.
            access: The access rules for all pages except open ones.
            tls: The context of HTTPS, which follows its files; ``None`` for plain HTTP.
            identities: Identifies readers; without it tokens are ignored.
            open_paths: Paths that everybody may read, besides ``/ping``.

        Raises:
            WaltzError: The port cannot be used; the text has a remedy.
        """
        pages = Pages(registry, health, installed_version(), more)
        server = cls(pages, access, identities=identities, open_paths=open_paths)
        if tls is None:
            server._server = await start_server(lambda: _Connection(server), host, port)
            server.port = bound_port(server._server)
        else:
            with listening_errors(host, port):
                server._acceptor = await TlsAcceptor.open(
                    host,
                    port,
                    tls,
                    server,
                    lambda: _Connection(server),
                    handshake_timeout_s=DEADLINE_S,
                    shutdown_timeout_s=DEADLINE_S,
                )
            server.port = server._acceptor.port
        return server

    async def close(self) -> None:
        """Stop accepting and close open connections. May be called twice."""
        if self._server is not None:
            await close_server(self._server)
        self._closed = True
        if self._acceptor is not None:
            await self._acceptor.close()
        for connection in list(self._connections):
            connection.abort()
            await connection.lost.wait()
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def failed_handshakes(self) -> int:
        """Number of failed TLS handshakes."""
        return 0 if self._acceptor is None else self._acceptor.failed_handshakes

    @property
    def unusable_stores(self) -> bool:
        """Whether a changed file of TLS cannot be used (the former one is in use), or a revocation list has expired."""
        return self._acceptor is not None and self._acceptor.unusable_stores

    def accept(self, connection: "_Connection") -> bool:
        """Take a connection in, with TLS twice; ``False`` refuses it."""
        if connection in self._connections:
            return True
        if self._closed:
            return False
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            self.release(oldest)
            if self._acceptor is None or not self._acceptor.cancel(oldest):
                oldest.abort()
        self._connections[connection] = None
        return True

    def release(self, connection: "_Connection") -> None:
        """The connection has ended."""
        self._connections.pop(connection, None)

    def answer(self, request: Request, reader: Reader = NOBODY) -> Response:
        """The response to a request.

        Raises:
            HttpError: The request is wrong, or the reader may not read the page.
        """
        path = request.path.rstrip("/")
        rule = page_rule(request.method, path)
        if rule.right is not None and (request.method != "GET" or path not in self._open_paths):
            rights = self._readers.known(request.token, reader, self.port).rights
            request = request._replace(rights=rights, peer=reader.peer)
            if rule.filtered:
                refusal = rights.refusal_anywhere(rule.right, reader.peer)
            elif rule.everywhere:
                refusal = rights.refusal_everywhere(rule.right, reader.peer)
            else:
                refusal = rights.refusal(rule.right, None, reader.peer)
            if refusal is not None:
                raise HttpError(403, refusal)
        return self._pages.answer(request)


class _Connection(asyncio.Protocol):
    """One request and its response."""

    def __init__(self, server: HttpServer) -> None:
        self.lost = asyncio.Event()
        self.peer = ""
        self._server = server
        self._parser: RequestParser | None = RequestParser()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether there is, or was, a connection: with TLS one whose handshake was completed."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = self.peer or peer_name(transport.get_extra_info("peername"))
        if not self._server.accept(self):
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(DEADLINE_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._transport is None:
            return  # ignore a second request: the first response announces the end of the connection
        try:
            request = self._parser.feed(data)
            if request is None:
                return
            over_tls = self._transport.get_extra_info("ssl_object") is not None
            reader = Reader(self.peer, self._transport.get_extra_info("peercert"), over_tls)
            response = self._server.answer(request, reader)
        except HttpError as error:
            response = error.response
        self._parser = None
        if isinstance(response.body, str):
            self._finish(response)
        else:
            self._answering = asyncio.create_task(self._answer(response, response.body))

    async def _answer(self, response: Response, pieces: Iterator[str]) -> None:
        try:
            response = response._replace(body=await self._server.pieces.join(pieces))
        except Exception:
            logger.exception("a page could not be made")
            response = _FAILED.response
        self._finish(response)

    def _finish(self, response: Response) -> None:
        assert self._transport is not None
        self._transport.write(response.encode())
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._server.release(self)
        self.lost.set()

    def abort(self) -> None:
        """End the connection at once, if there is one."""
        if self._transport is not None:
            self._transport.abort()
