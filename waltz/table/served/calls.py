"""Requests to a view node of a partition, or else to the next one."""

import asyncio
import io
import logging
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol
from urllib.parse import urlencode

from waltz.client.errors import NotAppendedError, OutcomeUnknownError
from waltz.client.plain.client import Client
from waltz.common.errors import ConfigError
from waltz.common.metrics.registry import Json
from waltz.common.net.backoff import Backoff
from waltz.common.net.token_sender import TokenSource
from waltz.common.zk.client import ZooKeeperError
from waltz.table.errors import ViewUnavailableError
from waltz.table.served.hedging import Hedging
from waltz.table.served.nodes import view_nodes
from waltz.table.served.problems import error_of
from waltz.table.served.questions import MAX_TIMEOUT_MS
from waltz.table.served.registration import ViewNode, in_order_of_choice
from waltz.table.served.texts import MessageError, line_of, parsed

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 3.0
"""Time limit of a connection to a view node; then the next one is tried."""
GRACE_S: Final = 5.0
"""How long an answer may come after the deadline that the view node was told."""
MAX_LINE_BYTES: Final = 256 << 20
"""Longest line of a scan or watch: a row, or the rows of a transaction."""

Method = Literal["GET", "POST"]
Query = Mapping[str, str | bytes]
"""Parameters of a URL; bytes are those of the table."""

_HEDGED: Final = ("", "/get")
"""Paths of reads that cost little: when they are late, another view node is asked as well."""

_GROUP: Final = "waltz-client"
"""Of the metrics of clients."""

_NOT_HERE: Final = (404, 429, 503)
"""Statuses after which another view node may do better. Nothing is in the log."""
_FAILED: Final = (500, 502)
"""The same for reads. After a write they tell nothing."""


class Calls(Protocol):
    """Requests about one partition, to whoever answers them. Errors are those of :class:`ViewCalls`."""

    async def open(self) -> None:
        """Get ready."""
        ...

    async def close(self) -> None:
        """End."""
        ...

    async def ask(
        self,
        method: Method,
        path: str,
        query: Query,
        message: Json,
        *,
        timeout_s: float,
        writes: bool = False,
        most_advanced: bool = False,
    ) -> object:
        """An answer."""
        ...

    def lines(
        self, method: Method, path: str, query: Query, message: Json, *, timeout_s: float, idle_s: float
    ) -> AsyncGenerator[object, None]:
        """The lines of an answer."""
        ...


class Ways(NamedTuple):
    """How this process reaches view nodes."""

    tls: ssl.SSLContext | None
    token: TokenSource | None
    zone: str | None


class ViewCalls:
    """Requests about one partition, from :meth:`open` to :meth:`close`."""

    def __init__(self, client: Client, partition_id: int, ways: Ways) -> None:
        self._client = client
        self._partition_id = partition_id
        self._ways = ways
        self._chance = random.Random()
        self._nodes: list[ViewNode] = []
        """In the order in which they are tried. Each reading of ZooKeeper makes them anew."""
        self._hedging = Hedging()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Get ready. Raises ``ConfigError`` if the library is missing."""
        try:
            import aiohttp
        except ImportError:
            raise ConfigError("tables of view nodes need the package aiohttp: pip install 'waltz-log[view]'") from None
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=64)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, read_bufsize=1 << 20, auto_decompress=False
        )

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        method: Method,
        path: str,
        query: Query,
        message: Json,
        *,
        timeout_s: float,
        writes: bool = False,
        most_advanced: bool = False,
    ) -> object:
        """The answer of a view node; with ``most_advanced`` of that which has told ZooKeeper of the last transaction.

        Raises:
            ViewUnavailableError: No view node has answered in time.
            OutcomeUnknownError: A write was sent, and there is no answer.
            NotAppendedError: A write could not be sent in time.

        Raises the errors of :func:`~waltz.table.served.problems.error_of`, too.
        """

        async def answer(first: int) -> object:
            return await self._ask_from(first, method, path, query, message, timeout_s, writes, most_advanced)

        if writes or most_advanced or path not in _HEDGED:
            return await answer(0)
        return await self._hedged(answer)

    async def _hedged(self, answer: Callable[[int], Coroutine[None, None, object]]) -> object:
        """The first answer of one or, when that is late, two view nodes; ``answer`` asks, beginning at that place."""
        loop = asyncio.get_running_loop()
        hedging, began_s = self._hedging, loop.time()
        hedging.began()
        if len(self._nodes) < 2:
            result = await answer(0)
            hedging.answered(loop.time() - began_s)
            return result
        asking = [loop.create_task(answer(0))]
        try:
            await asyncio.wait(asking, timeout=hedging.delay_s)
            if not asking[0].done() and len(self._nodes) > 1 and hedging.may():
                self._client.metrics.counter(_GROUP, "hedged-reads").add()
                asking.append(loop.create_task(answer(1)))
            pending = set(asking)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not isinstance(task.exception(), ViewUnavailableError):
                        hedging.answered(loop.time() - began_s)
                        return task.result()
            return asking[0].result()
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _ask_from(
        self,
        first: int,
        method: Method,
        path: str,
        query: Query,
        message: Json,
        timeout_s: float,
        writes: bool,
        most_advanced: bool,
    ) -> object:
        """Ask the view nodes from this place on, and then all."""
        async with self._answered(
            method, path, query, message, timeout_s=timeout_s, writes=writes, most_advanced=most_advanced, first=first
        ) as response:
            try:
                async with asyncio.timeout(timeout_s + GRACE_S):
                    return parsed(await response.read())
            except (OSError, self._broken, MessageError) as error:
                raise _lost(error, writes=writes) from error

    async def lines(
        self, method: Method, path: str, query: Query, message: Json, *, timeout_s: float, idle_s: float
    ) -> AsyncGenerator[object, None]:
        """The lines of an answer, each within ``idle_s`` after the one before. Raises like :meth:`ask`.

        A view node that fails after the first line is not replaced: raises ``ViewUnavailableError``.
        """
        async with self._answered(method, path, query, message, timeout_s=timeout_s) as response:
            rest = b""
            try:
                while True:
                    async with asyncio.timeout(idle_s):
                        data = await response.content.readany()
                    if not data:
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    if len(rest) > MAX_LINE_BYTES:
                        raise MessageError("a line is too long")
                    for line in lines:
                        yield parsed(line)
            except (OSError, self._broken, MessageError) as error:  # TimeoutError is an OSError
                raise _lost(error, writes=False) from error
            if rest:
                raise ViewUnavailableError("the answer of the view node ends in the middle of a line")

    @property
    def _broken(self) -> type[Exception]:
        import aiohttp

        return aiohttp.ClientError

    @asynccontextmanager
    async def _answered(
        self,
        method: Method,
        path: str,
        query: Query,
        message: Json,
        *,
        timeout_s: float,
        writes: bool = False,
        most_advanced: bool = False,
        first: int = 0,
    ) -> AsyncGenerator["aiohttp.ClientResponse", None]:
        """The first good answer; its body is still to be read."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        backoff = Backoff(0.05, 1.0, self._chance)
        reason = "there is none in ZooKeeper"
        while True:
            if not self._nodes or most_advanced:
                try:
                    found = await view_nodes(self._client, self._partition_id)
                except ZooKeeperError as error:
                    reason = str(error)
                else:
                    self._nodes = in_order_of_choice(found, self._ways.zone, self._chance.shuffle)
            nodes = self._nodes[first:]
            first = 0
            if most_advanced:
                nodes.sort(key=lambda node: -node.applied)
            for node in nodes:
                left_s = deadline_s - loop.time()
                if left_s <= 0:
                    break
                if not self._is_tried(node):
                    continue
                response, reason, may_be_there = await self._try(node, method, path, query, message, left_s)
                if response is not None:
                    async with response:
                        if response.status == 200:
                            yield response
                            return
                        refusal = await self._refusal(response)
                        failed = response.status in _FAILED
                        if not failed and response.status not in _NOT_HERE:
                            raise refusal
                        reason, may_be_there = str(refusal), failed
                if writes and may_be_there:
                    raise OutcomeUnknownError(f"{reason}; the write may be in the log")
                logger.info("partition %d: view node %s: %s", self._partition_id, node.endpoint, reason)
                self._nodes = [each for each in self._nodes if each is not node]  # what was read since is another
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                text = f"no view node of partition {self._partition_id} has answered in time: {reason}"
                raise NotAppendedError(text) if writes else ViewUnavailableError(text)
            await asyncio.sleep(min(backoff.next_delay_s(), left_s))

    def _is_tried(self, node: ViewNode) -> bool:
        """Whether no call has given up the node."""
        return any(each is node for each in self._nodes)

    async def _try(
        self, node: ViewNode, method: Method, path: str, query: Query, message: Json, left_s: float
    ) -> "tuple[aiohttp.ClientResponse | None, str, bool]":
        """The answer of one node; or why there is none, and whether the request may have been executed."""
        import aiohttp
        import yarl

        assert self._session is not None, "it is open"
        secure = node.endpoint.startswith("https:")
        headers = {"Content-Type": "application/json"}
        if secure and self._ways.token is not None:
            headers["Authorization"] = f"Bearer {await self._ways.token.read()}"
        timeout_ms = str(min(max(int(1000 * left_s), 1), MAX_TIMEOUT_MS))
        parameters = urlencode({**query, "timeout_ms": timeout_ms})
        url = f"{node.endpoint}/v1/tables/{self._partition_id}{path}?{parameters}"
        try:
            async with asyncio.timeout(left_s + GRACE_S):
                response = await self._session.request(
                    method,
                    yarl.URL(url, encoded=True),
                    data=None if method == "GET" else io.BytesIO(line_of(message)),
                    headers=headers,
                    ssl=(self._ways.tls or False) if secure else False,
                    allow_redirects=False,
                )
        except aiohttp.ClientConnectorError as error:
            return None, str(error), False
        except (aiohttp.ServerTimeoutError, aiohttp.ClientError, OSError) as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            return None, str(error) or type(error).__name__, not connecting
        return response, "", False

    async def _refusal(self, response: "aiohttp.ClientResponse") -> Exception:
        try:
            async with asyncio.timeout(GRACE_S):
                message = parsed(await response.content.read(1 << 20))
        except (OSError, self._broken, MessageError):
            message = None
        return error_of(self._partition_id, response.status, message)


def _lost(error: Exception, *, writes: bool) -> Exception:
    text = f"the answer of the view node was lost: {str(error) or type(error).__name__}"
    return OutcomeUnknownError(f"{text}; the write may be in the log") if writes else ViewUnavailableError(text)
