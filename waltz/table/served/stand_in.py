"""Answers by a view in this process, in place of view nodes, for tests of applications over a cluster in memory."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from urllib.parse import urlencode

from waltz.client.plain.client import Client
from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import Json
from waltz.table.face.leasing import Leasing
from waltz.table.face.table import Table
from waltz.table.served.answers import ANSWERS, Asked, Served, scanned, taken, watched
from waltz.table.served.calls import Calls, Method, Query, ViewCalls
from waltz.table.served.nodes import view_nodes
from waltz.table.served.problems import error_of, problem_of
from waltz.table.served.questions import bytes_in, number, query_of, scan_question, take_of_query
from waltz.table.served.texts import line_of, parsed


class StandIn:
    """Calls of one partition: to view nodes where there are some, and else to a view in this process."""

    def __init__(self, client: Client, partition_id: int, view_calls: ViewCalls, stands_in: Callable[[], bool]) -> None:
        """Without ``stands_in`` there are view nodes only."""
        self._client = client
        self._partition_id = partition_id
        self._view_calls = view_calls
        self._stands_in = stands_in
        self._own = _OwnCalls(client, partition_id)

    async def open(self) -> None:
        """Get ready, as of :meth:`~waltz.table.served.calls.ViewCalls.open`."""
        await self._view_calls.open()

    async def close(self) -> None:
        """End all connections, and the view."""
        try:
            await self._view_calls.close()
        finally:
            await self._own.close()

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
        """As :meth:`~waltz.table.served.calls.ViewCalls.ask`."""
        calls = await self._calls()
        return await calls.ask(
            method, path, query, message, timeout_s=timeout_s, writes=writes, most_advanced=most_advanced
        )

    async def lines(
        self, method: Method, path: str, query: Query, message: Json, *, timeout_s: float, idle_s: float
    ) -> AsyncGenerator[object, None]:
        """As :meth:`~waltz.table.served.calls.ViewCalls.lines`."""
        calls = await self._calls()
        async with aclosing(calls.lines(method, path, query, message, timeout_s=timeout_s, idle_s=idle_s)) as lines:
            async for line in lines:
                yield line

    async def _calls(self) -> Calls:
        if self._stands_in() and not await view_nodes(self._client, self._partition_id):
            return self._own
        return self._view_calls


class _OwnCalls:
    """Answers what a view node would answer, through the same texts."""

    def __init__(self, client: Client, partition_id: int) -> None:
        self._client = client
        self._partition_id = partition_id
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._served: Served | None = None

    async def open(self) -> None:
        """Nothing: the view is opened by the first call."""

    async def close(self) -> None:
        self._served = None
        await self._stack.aclose()

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
        try:
            asked = await self._asked(query, timeout_s)
            told = await ANSWERS[method, path](asked, parsed(line_of(message)))
        except Exception as error:
            raise self._told_of(error) from error
        return parsed(line_of(told.message))

    async def lines(
        self, method: Method, path: str, query: Query, message: Json, *, timeout_s: float, idle_s: float
    ) -> AsyncGenerator[object, None]:
        try:
            asked = await self._asked(query, timeout_s)
            async with aclosing(self._pages(path, asked, parsed(line_of(message)))) as pages:
                async for page in pages:
                    for line in page:
                        yield parsed(line_of(line))
        except Exception as error:
            raise self._told_of(error) from error

    async def _pages(self, path: str, asked: Asked, message: object) -> AsyncGenerator[list[Json], None]:
        if path == "/watch":
            async with aclosing(self._watch(asked)) as pages:
                async for page in pages:
                    yield page
            return
        opening = (
            taken(asked, take_of_query(asked.query)) if path == "/take" else scanned(asked, scan_question(message))
        )
        async with opening as stream:
            async for page in stream.pages:
                yield page

    async def _watch(self, asked: Asked) -> AsyncGenerator[list[Json], None]:
        after = number(asked.query["after"], "after", NO_TRANSACTION)
        prefix = bytes_in(asked.query, "prefix") if "prefix" in asked.query else None
        progress_s = number(asked.query["progress_s"], "progress_s", 1)
        async with asked.served.view.client.library_feed(self._partition_id, after=after) as feed:
            async with asyncio.timeout_at(asked.deadline_s):
                await feed.begin()
            async with aclosing(watched(asked.served, feed, prefix, progress_s)) as events:
                async for found, _ in events:
                    yield [event.message for event in found]

    async def _asked(self, query: Query, timeout_s: float) -> Asked:
        async with self._opening:
            if self._served is None:
                table = await self._stack.enter_async_context(Table(self._client, self._partition_id, store="memory"))
                key = await self._client.cluster_key()
                self._served = Served(table, table.partition, key, Leasing(table.partition))
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        return Asked(self._served, query_of(urlencode(query)), deadline_s)

    def _told_of(self, error: Exception) -> Exception:
        """The error that the caller of a view node gets."""
        problem = problem_of(error)
        return error if problem is None else error_of(self._partition_id, problem.status, problem.message())
