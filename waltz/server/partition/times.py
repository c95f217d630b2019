"""Questions of clients about the times of commits in one partition."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from waltz.common.ids import NO_TRANSACTION
from waltz.common.tasks import owned
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.requests.link import ClientLink
from waltz.server.store.interface import ReadFailedError, TimeEntry, TimesNotKeptError

NOT_KNOWN = TimeEntry(NO_TRANSACTION, -1)
"""The answer when no entry is known."""


class TimedLog(Protocol):
    """The part of the log that is used here."""

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        """The high-water mark at a moment during this call at which no other server had written; ``None``: not proved
        in time."""
        ...

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """The best entry of the storages. Raises ``ReadFailedError``, ``TimesNotKeptError``."""
        ...


class TimeQuestions:
    """The questions of one partition. Each is answered once, within the time limit."""

    def __init__(
        self, partition_id: int, log: Callable[[], TimedLog], clock_ms: Callable[[], int], timeout_s: float, limit: int
    ) -> None:
        """Questions beyond ``limit`` at a time are answered "not answered"."""
        self._partition_id = partition_id
        self._log = log
        self._clock_ms = clock_ms
        self._timeout_s = timeout_s
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, link: ClientLink, request: TimeRequest) -> None:
        """Answer after the answers of the storages."""
        if len(self._tasks) >= self._limit:
            _tell(link, request, TimeStatus.NOT_ANSWERED)
            return
        task = owned(self._answer(link, request), f"a question about times of partition {self._partition_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The partition has left this server; answer all questions with that."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, link: ClientLink, request: TimeRequest) -> None:
        status, found = TimeStatus.NOT_READY, NOT_KNOWN
        try:
            status, found = await self._find(request)
        finally:
            _tell(link, request, status, found)

    async def _find(self, request: TimeRequest) -> tuple[TimeStatus, TimeEntry]:
        now_ms = self._clock_ms()
        find: Awaitable[TimeEntry | None]
        if request.question is TimeQuestion.LAST_AT and request.value >= now_ms:
            mark = await self._log().confirmed_mark(self._timeout_s)
            if mark is None:
                return TimeStatus.NOT_ANSWERED, NOT_KNOWN
            return TimeStatus.OK, TimeEntry(mark, now_ms)
        find = self._log().time_entry(request.question, request.value, self._timeout_s)
        try:
            return TimeStatus.OK, await find or NOT_KNOWN
        except TimesNotKeptError:
            return TimeStatus.NOT_KEPT, NOT_KNOWN
        except ReadFailedError:
            return TimeStatus.NOT_ANSWERED, NOT_KNOWN


def refuse_time(link: ClientLink, request: TimeRequest) -> None:
    """Refuse: the partition is not at this server, or the client may not read its marks."""
    _tell(link, request, TimeStatus.NOT_READY)


def _tell(link: ClientLink, request: TimeRequest, status: TimeStatus, found: TimeEntry = NOT_KNOWN) -> None:
    link.send(TimeResponse(request.req_id, status, *found))
