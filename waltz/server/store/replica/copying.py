"""Copies in steps: the next records are read during the write of the last ones, so that a step costs one round trip."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from waltz.common.records import Record
from waltz.server.store.replica.sizing import RecordSizer

SourceT = TypeVar("SourceT")

ReadFunction = Callable[[SourceT, int, int], Awaitable[list[Record]]]
"""A function that reads records from an id on, at least one and at most a number; raises errors of the read."""


class ReadAhead(Generic[SourceT]):
    """Reads one step ahead of its caller. Has to be closed in any case. Unused records are dropped."""

    def __init__(self, read: ReadFunction[SourceT], size_bytes: int) -> None:
        """``size_bytes`` is the target size of a step. Steps become smaller after a failure."""
        self._read = read
        self._size_bytes = size_bytes
        self._sizer = RecordSizer()
        self._ahead: tuple[SourceT, int, asyncio.Task[list[Record]]] | None = None

    async def take(self, source: SourceT, first: int, last: int) -> list[Record]:
        """At least one record from ``first`` on, none above ``last``. Raises the errors of the read."""
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None and ahead[:2] == (source, first):
                records = await ahead[2]
            else:
                if ahead is not None:
                    await _drop(ahead[2])
                records = await self._read(source, first, self._count(first, last))
        except Exception:
            self._sizer.shrink()
            raise
        finally:
            if ahead is not None:
                await _drop(ahead[2])
        self._sizer.learn(records)
        records = records[: last - first + 1]
        next_id = first + len(records)
        if next_id <= last:
            reading = asyncio.ensure_future(self._read(source, next_id, self._count(next_id, last)))
            reading.add_done_callback(_retrieve)
            self._ahead = (source, next_id, reading)
        return records

    async def close(self) -> None:
        """Stop reading."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await _drop(ahead[2])

    def _count(self, first: int, last: int) -> int:
        return min(self._sizer.count(self._size_bytes), last - first + 1)


async def _drop(task: asyncio.Task[list[Record]]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _retrieve(task: asyncio.Task[list[Record]]) -> None:
    """Retrieve the exception. An error of a read ahead is raised when the records are taken."""
    if not task.cancelled():
        task.exception()
