"""Copies records of a partition to a storage node, at a limited rate. The partition is switched off there."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from waltz.common.errors import WaltzError
from waltz.common.records import RECORD_OVERHEAD_BYTES, Record
from waltz.common.wire.structures import SessionInfo
from waltz.storage.remote.client import StorageClient

FIRST_BATCH_RECORDS = 16
"""The number of records in a batch while the size of records is unknown."""

MAX_BATCH_RECORDS = 1000
"""The largest number of records in one request: a node of the original answers with all of them, whatever their
size."""


class SourceError(WaltzError):
    """The source does not deliver records; another source may."""


class Copied(NamedTuple):
    """A batch that is durable at the destination."""

    last_id: int
    size_bytes: int


class Pace:
    """A limit on bytes per second, without credit for unused bytes."""

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._due_s = now_s

    def pause_s(self, size_bytes: int, now_s: float) -> float:
        """The pause in seconds between ``size_bytes`` and the next bytes."""
        self._due_s = max(self._due_s + size_bytes / self._bytes_per_s, now_s)
        return self._due_s - now_s


class CopySource(Protocol):
    """The source of a copy: the admin port of a storage, or an archive."""

    async def records(self, partition_id: int, first: int, max_count: int) -> list[Record]:
        """Records ``first``, ``first + 1``, ...; empty only when ``first`` is absent. Raises ``WaltzError``."""


async def copy_records(
    source: CopySource,
    destination: StorageClient,
    partition_id: int,
    info: SessionInfo,
    current: int,
    target: int,
    *,
    timeout_s: float,
    batch_records: int | None = None,
    batch_bytes: int | None = None,
) -> AsyncIterator[Copied]:
    """Copy the transactions behind ``current`` up to ``target``, batch by batch.

    ``info`` is the destination's persisted state. The low-water mark of the destination follows the copy, so the source
    must be certain of ``target``. A batch has ``batch_records`` records, or the number that is expected to have
    ``batch_bytes``.

    Raises :class:`SourceError`, and ``WaltzError`` when the destination refuses; copied batches stay.
    """
    records_bytes = records_count = 0
    while current < target:
        count = batch_records or FIRST_BATCH_RECORDS
        if batch_bytes is not None and records_count:
            count = max(1, min(MAX_BATCH_RECORDS, batch_bytes * records_count // records_bytes))
        try:
            records = await source.records(partition_id, current + 1, min(target - current, count))
        except WaltzError as error:
            raise SourceError(str(error)) from error
        if not records:
            raise SourceError(f"the source does not hold transaction {current + 1}, although it should reach {target}")
        await destination.append(info.session_id, partition_id, records, offline=True, timeout_s=timeout_s)
        current += len(records)
        if current >= info.low_water_mark:  # a mark never goes back: it stays until the copy reaches it
            await destination.set_low_water_mark(
                info.session_id, partition_id, current, offline=True, timeout_s=timeout_s
            )
        records_count = len(records)
        records_bytes = sum(RECORD_OVERHEAD_BYTES + len(record.data) for record in records)
        yield Copied(current, records_bytes)
