"""Times of commits in a storage node: reports of owners are added to the index immediately, and written to files at
intervals."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from waltz.common.ids import NO_TRANSACTION
from waltz.common.tasks import owned, restarting
from waltz.common.wire.storage_times import (
    MAX_TIMES,
    CommitTime,
    EnterTimesRequest,
    TimeEntryRequest,
    TimeEntryResponse,
    TimeListRequest,
    TimeListResponse,
    TimeQuestion,
    decode_notice,
)
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.errors import StorageError

WRITE_INTERVAL_S = 10.0
"""Interval of the writes: a crash loses the times of this interval."""


class Timed(Protocol):
    """The part of a partition that this module uses."""

    @property
    def log(self) -> PartitionLog:
        """The log with the time index."""
        ...

    def note_committed(self, session_id: int, transaction_id: int, time_ms: int) -> None:
        """Add a report of the owner of a session."""
        ...


def take_notice(partitions: Mapping[int, Timed], buffer: bytes, start: int, end: int) -> None:
    """Hand the commits in a ``CommittedNotice`` to their partitions. Partitions of other nodes are passed over. Raises
    ``ProtocolError``."""
    time_ms, entries = decode_notice(buffer, start, end)
    for session_id, partition_id, transaction_id in entries:
        partition = partitions.get(partition_id)
        if partition is not None:
            partition.note_committed(session_id, transaction_id, time_ms)


def answer_time(
    log: PartitionLog, message: TimeEntryRequest | TimeListRequest | EnterTimesRequest
) -> TimeEntryResponse | TimeListResponse:
    """Answer from the time index, or enter times there; blocking. Raises ``StorageError`` and ``OSError``."""
    if isinstance(message, TimeListRequest):
        entries = log.times.entries(message.transaction_id, max(0, min(message.max_count, MAX_TIMES)))
        return TimeListResponse(*message[:3], [CommitTime(*entry) for entry in entries])
    if isinstance(message, EnterTimesRequest):
        if len(message.times) > MAX_TIMES:
            raise StorageError(f"{len(message.times)} times in one request, at most {MAX_TIMES} are entered")
        held = [entry for entry in message.times if entry.transaction_id <= log.max_transaction_id]
        return TimeEntryResponse(*message[:3], *(log.times.enter(held) or (NO_TRANSACTION, -1)))
    find = log.times.at if message.question is TimeQuestion.LAST_AT else log.times.covering
    return TimeEntryResponse(*message[:3], *(find(message.value) or (-1, -1)))


class TimeWriter:
    """Writes the time indexes of all partitions, in one job of a thread."""

    def __init__(self, files: Files, partitions: Mapping[int, Timed]) -> None:
        self._files = files
        self._partitions = partitions
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        what = "the writing of time indexes"
        self._task = owned(restarting(self._run, what), what)

    async def close(self) -> None:
        """Stop writing. Partitions write the rest when they are closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WRITE_INTERVAL_S)
            logs = [each.log for each in self._partitions.values() if each.log.times.has_unwritten]
            if logs:
                await self._files.run(partial(_write, logs))


def _write(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.write_times()
