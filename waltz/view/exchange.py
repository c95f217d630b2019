"""The common part of all requests: who asks, the body, the deadline, answers and problems."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import web

from waltz.common.access import Right, Rights
from waltz.common.net.channel import peer_name
from waltz.common.net.http import HttpError, Reader, Readers, bearer_token
from waltz.common.wall_clock import now_ms
from waltz.table.served.answers import Asked, Served, Told, age_ms
from waltz.table.served.problems import CONTENT_TYPE, Problem, over_quota, problem_of, refused
from waltz.table.served.questions import query_of, timeout_ms
from waltz.table.served.texts import MessageError, line_of, parsed
from waltz.view.limits import Limits
from waltz.view.partitions import Partitions
from waltz.view.routes import Route
from waltz.view.view_metrics import ViewMetrics

logger = logging.getLogger(__name__)

BODY_TIMEOUT_S = 30.0
"""Time limit for the body of a request."""

APPLIED_HEADER: Final = "Waltz-Applied"
LOG_HEADER: Final = "Waltz-Log"
AGE_HEADER: Final = "Waltz-Age-Ms"
STALE_HEADER: Final = "Waltz-Stale"


class Caller(NamedTuple):
    """Who asks, and what they may do."""

    rights: Rights
    peer: str
    expires_s: float | None = None
    """When the caller's token expires."""

    def check(self, right: Right, partition_id: int, *, noted: bool = False) -> None:
        """Raise :class:`~waltz.table.served.problems.Refused` without the right, or with an expired token."""
        if self.expires_s is not None and now_ms() >= 1000 * self.expires_s:
            raise refused(401, "token-expired", "the token has expired")
        refusal = self.rights.refusal(right, partition_id, self.peer, noted=noted)
        if refusal is not None:
            raise refused(403, "forbidden", refusal)


class Exchange(NamedTuple):
    """One request that may be answered."""

    request: web.Request
    caller: Caller
    query: dict[str, str]
    limits: Limits
    partition_id: int
    served: Served
    deadline_s: float
    """By the time of the loop."""
    writes: bool = False

    @property
    def asked(self) -> Asked:
        """What is asked, without HTTP."""
        return Asked(self.served, self.query, self.deadline_s)

    @contextlib.asynccontextmanager
    async def body(self) -> AsyncIterator[bytes]:
        """The body, for which memory is taken meanwhile."""
        if not self.request.body_exists:
            self._count(0)
            yield b""
            return
        with self.limits.body(self.request.content_length):
            content = await _body(self.request)
            self._count(len(content))
            yield content

    def _count(self, size_bytes: int) -> None:
        """Count a write for the caller's quota, before anything is written. Raises
        :class:`~waltz.table.served.problems.Refused` if the quota is used up."""
        throttle = self.caller.rights.throttle
        if self.writes and throttle is not None:
            now_s = asyncio.get_running_loop().time()
            passage = throttle.take(self.partition_id, [size_bytes], self.caller.peer, now_s)
            if passage is not None and not passage.admitted:
                raise over_quota(passage.text, passage.delay_s)

    @contextlib.asynccontextmanager
    async def message(self) -> AsyncIterator[object]:
        """The body, which is JSON or empty."""
        async with self.body() as data:
            yield parsed(data) if data else None

    def headers(self, applied: int | None = None, *, stale: bool = False) -> dict[str, str]:
        """The headers of all answers about the table: of which state of which log they are, and how old that is."""
        age = age_ms(self.served)
        return {
            AGE_HEADER: "unknown" if age is None else str(age),
            STALE_HEADER: "true" if stale else "false",
            APPLIED_HEADER: str(self.served.applied if applied is None else applied),
            LOG_HEADER: self.served.log,
            "Cache-Control": "no-store",
        }

    def answer(self, told: Told) -> web.Response:
        """An answer in JSON."""
        headers = self.headers(told.applied, stale=told.stale)
        return web.Response(body=line_of(told.message), content_type="application/json", headers=headers)


@contextlib.asynccontextmanager
async def streaming(request: web.Request, response: web.StreamResponse) -> AsyncIterator[None]:
    """Begin an answer whose body follows. What fails from then on cuts the connection: it is too late for a problem.

    Raises ``ConnectionError`` then.
    """
    await response.prepare(request)
    try:
        yield
    except ConnectionError:
        raise  # the reader has gone
    except Exception as error:
        if problem_of(error) is None:
            logger.exception("an answer could not be ended")
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError(f"the answer was cut: {error}") from error


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise refused(408, "slow-request", f"the body has not come within {BODY_TIMEOUT_S:g} s") from None


def problem_response(problem: Problem, headers: tuple[tuple[str, str], ...] = ()) -> web.Response:
    """A problem as an answer."""
    more = dict(headers)
    if problem.retry_s is not None:
        more["Retry-After"] = str(problem.retry_s)
    return web.Response(body=line_of(problem.message()), status=problem.status, content_type=CONTENT_TYPE, headers=more)


Handle = Callable[[Exchange], Awaitable[web.StreamResponse]]


class Exchanges:
    """Makes an :class:`Exchange` of each request, and a problem of each error."""

    def __init__(self, partitions: Partitions, limits: Limits, metrics: ViewMetrics, readers: Readers) -> None:
        self.partitions = partitions
        self.limits = limits
        self.metrics = metrics
        self.port = 0
        """The port of the interface."""
        self._readers = readers

    def caller(self, request: web.Request) -> Caller:
        """Who asks. Raises ``HttpError`` for a token that is refused."""
        authorizations = request.headers.getall("Authorization", [])
        if len(authorizations) > 1:
            raise HttpError(400, "there are two Authorization headers")
        transport = request.transport
        if transport is None:
            raise HttpError(400, "the connection is gone")
        peer = peer_name(transport.get_extra_info("peername"))
        over_tls = transport.get_extra_info("ssl_object") is not None
        reader = Reader(peer, transport.get_extra_info("peercert"), over_tls)
        known = self._readers.known(bearer_token("".join(authorizations)), reader, self.port)
        return Caller(known.rights, peer, known.expires_s)

    def handler(self, route: Route, handle: Handle) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of a route at a partition, for callers with its right."""
        operation = route.operation
        watches = operation == "watch"

        async def handled(request: web.Request) -> web.StreamResponse:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            try:
                response = await self._handle(request, route, handle, watches=watches)
            except HttpError as error:
                response = problem_response(Problem(error.status, "unauthorized", str(error)), error.headers)
            except (web.HTTPRequestEntityTooLarge, web.HTTPBadRequest) as error:
                response = problem_response(Problem(error.status, "bad-request", error.reason))
            except ConnectionError:
                raise  # nobody is there to be answered
            except Exception as error:
                problem = problem_of(error)
                if problem is None:
                    logger.exception("%s could not be answered", operation)
                    problem = Problem(500, "defect", "internal error; see the log")
                response = problem_response(problem)
            self.metrics.answered(operation, response.status, None if watches else loop.time() - began_s)
            return response

        return handled

    async def _handle(self, request: web.Request, route: Route, handle: Handle, *, watches: bool) -> web.StreamResponse:
        caller = self.caller(request)
        partition_id = int(request.match_info["partition"])
        caller.check(route.right, partition_id)
        room = self.limits.watches if watches else self.limits.requests
        with room.taken():
            query = query_of(request.rel_url.raw_query_string)
            unknown = sorted(query.keys() - set(route.parameters))
            if unknown:
                raise MessageError(f"there is no parameter {unknown[0][:40]!r} here")
            served = self.partitions.of(partition_id)
            deadline_s = asyncio.get_running_loop().time() + timeout_ms(query) / 1000
            writes = route.right is Right.APPEND
            return await handle(Exchange(request, caller, query, self.limits, partition_id, served, deadline_s, writes))
