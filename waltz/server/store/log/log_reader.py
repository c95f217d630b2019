"""Reads of committed records in a partition, through the running session or the next session."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from waltz.common.records import Record, RecordHeader
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.store.interface import ReadFailedError, StoreOptions, TimeEntry
from waltz.server.store.replica.sizing import RecordSizer, Share
from waltz.server.store.session.session import StoreSession

ItemT = TypeVar("ItemT")


class LogReader:
    """Reads through sessions. A read waits for a session if none runs, and is repeated until the deadline of the
    call."""

    def __init__(self, partition_id: int, options: StoreOptions, high_water_mark: Callable[[], int | None]) -> None:
        """``high_water_mark`` returns the highest known committed id."""
        self._partition_id = partition_id
        self._options = options
        self._high_water_mark = high_water_mark
        self._loop = asyncio.get_running_loop()
        self._session: StoreSession | None = None
        self._usable = asyncio.Event()
        self._sizer = RecordSizer()
        self._header_share = Share()

    def follow(self, session: StoreSession | None) -> None:
        """Read through this session from now on; ``None``: wait for another session."""
        self._session = session
        if session is None:
            self._usable.clear()
        else:
            self._usable.set()

    async def read(self, first_id: int, max_count: int, max_bytes: int, timeout_s: float) -> list[Record]:
        """Committed records from ``first_id`` on; empty if and only if ``first_id`` is not in the committed log.

        Otherwise at least one record, at most ``max_count``, and at most ``max_bytes`` of data unless the first record
        alone is larger. After fewer records there may be more in the log. Checksums are verified. Raises
        :class:`ReadFailedError` when no replica could deliver within ``timeout_s``. An answer that is arriving at that
        time is still waited for, because a large record over a slow line may take long.
        """
        records = await self._read(
            first_id,
            timeout_s,
            lambda session: session.read(first_id, min(max_count, self._sizer.count(max_bytes))),
            self._sizer.shrink,
        )
        self._sizer.learn(records)
        size_bytes = 0
        for index, record in enumerate(records):
            size_bytes += len(record.data)
            if size_bytes > max_bytes and index:
                return records[:index]
        return records

    async def read_headers(self, first_id: int, max_count: int, timeout_s: float) -> list[RecordHeader]:
        """Headers of committed records; otherwise as :meth:`read`.

        A storage reads and checks the whole records for this, so a short answer may take long.
        """
        headers = await self._read(
            first_id,
            timeout_s,
            lambda session: session.read_headers(first_id, self._header_share.of(max_count)),
            self._header_share.shrink,
        )
        if headers:
            self._header_share.grow()
        return headers

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        """The high-water mark of the log at some moment during this call: no newer session had begun then.

        ``None`` when that cannot be proved within the time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._usable.wait()
                    session = self._session
                    # Read before the question, and again for every attempt: an earlier mark would prove nothing.
                    mark = self._high_water_mark()
                    if session is not None and mark is not None and await session.confirm(timeout_s):
                        return mark
                    await asyncio.sleep(self._options.initial_retry_interval_s)
        return None

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """The best entry of the storages about the time of a commit. Raises ``ReadFailedError``,
        ``TimesNotKeptError``."""
        session = await self._session_by(self._loop.time() + timeout_s)
        if session is None:
            raise ReadFailedError(f"partition {self._partition_id}: no store session is open")
        return await session.time_entry(question, value, timeout_s)

    async def _read(
        self,
        first_id: int,
        timeout_s: float,
        request: Callable[[StoreSession], Awaitable[list[ItemT]]],
        shrink: Callable[[], None],
    ) -> list[ItemT]:
        reason = "no store session is open"
        deadline_s = self._loop.time() + timeout_s
        while True:
            mark = self._high_water_mark()
            if first_id < 0 or (mark is not None and first_id > mark):
                return []
            session = await self._session_by(deadline_s)
            if session is not None and first_id <= session.high_water_mark:
                try:
                    return await request(session)
                except ReadFailedError as error:
                    reason = str(error)
                    shrink()
            if self._loop.time() >= deadline_s:
                raise ReadFailedError(
                    f"partition {self._partition_id}: transaction {first_id} could not be read in {timeout_s:g} s:"
                    f" {reason}"
                )
            await asyncio.sleep(self._options.initial_retry_interval_s)

    async def _session_by(self, deadline_s: float) -> StoreSession | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await self._usable.wait()
        return self._session
