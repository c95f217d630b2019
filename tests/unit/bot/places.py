"""Bots over a cluster in memory, and ways in which that goes wrong."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from waltz.bot.expected import Deviation
from waltz.bot.history import HistoryFile
from waltz.bot.journal import Journal
from waltz.bot.opening import Opened, Place, open_place
from waltz.bot.troubles import Troubles
from waltz.client.engine.environment import Driver
from waltz.client.mock import MockDriver
from waltz.table.envelope import Row
from waltz.table.face.table import Table

RETRY_S = 0.002
LIMIT_BYTES = 1 << 30


class Found(list[str]):
    """The deviations that a journal has told of."""

    def __call__(self, deviation: Deviation) -> None:
        self.append(f"{deviation.key}: {deviation.what}")


@asynccontextmanager
async def opened(
    driver: Driver | None = None, *, clients: int = 2, history: Path | None = None, sessions: bool = False
) -> AsyncIterator[tuple[Opened, Journal, Troubles, Found]]:
    """What a bot is made of."""
    found = Found()
    place = Place(driver or MockDriver(), 0, clients, "memory", None, sessions)
    async with AsyncExitStack() as stack:
        file = None
        if history is not None:
            file = HistoryFile(history, LIMIT_BYTES)
            stack.callback(file.close)
        journal = Journal("a", "mock", 0, file, found)
        yield await stack.enter_async_context(open_place(place)), journal, Troubles(RETRY_S), found


class Impatient:
    """A table whose writes are sometimes given up before their outcome is known."""

    def __init__(self, table: Table, rate: float) -> None:
        self._table = table
        self._rate = rate

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    async def batch(self, rows: list[Row], *, any_timestamp: bool) -> int:
        async with self._limit():
            return await self._table.batch(rows, any_timestamp=any_timestamp)

    async def put_if(self, *arguments: object) -> int:
        async with self._limit():
            return await self._table.put_if(*arguments)  # type: ignore[arg-type] # as it was called

    def _limit(self) -> asyncio.Timeout:
        return asyncio.timeout(random.random() * 0.002 if random.random() < self._rate else None)
