"""Objects of a partition's records: read from a source, cut by the limits, added to the archive."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from waltz.archive.chain import Place
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.object_format import Limit, ObjectWriter, SealedObject, records_that_fit
from waltz.archive.process.source import RecordSource

Paced = Callable[[int], Awaitable[None]]
"""Called with the bytes that were read; returns when more may be read."""


class Gathered(NamedTuple):
    """Records that were read for one object."""

    sealed: SealedObject | None
    """``None``: the records do not fill an object, and are not to be archived yet."""
    record_bytes: float
    """Their average size."""


async def gather_object(
    place: Place, source: RecordSource, first: int, end: int, limit: Limit, paced: Paced, *, with_rest: bool
) -> Gathered:
    """Read one object of the transactions from ``first`` to ``end - 1``, all committed.

    The object ends where the limit says, wherever the answers of the source end; ``with_rest`` it may also end at
    ``end``. Raises ``SourceError``, also for records that are damaged everywhere.
    """
    writer = ObjectWriter(place.cluster_key, place.partition_id, first)
    is_full = False
    while not is_full and writer.next_id < end:
        found = await source.read(writer.next_id, min(end - writer.next_id, limit.max_records - writer.count))
        fitting = records_that_fit(found.sizes, writer.count, writer.records_bytes, limit)
        is_full = fitting < len(found.sizes)
        sizes = found.sizes[:fitting]
        data = found.data if not is_full else found.data[: sum(sizes)]
        try:
            writer.add(data, sizes)
        except ArchiveDamagedError as error:
            await source.reject(str(error))
            is_full = False
            continue
        is_full = is_full or writer.count == limit.max_records or writer.records_bytes >= limit.max_bytes
        await paced(len(found.data))
    average = writer.records_bytes / writer.count
    return Gathered(writer.finish() if is_full or with_rest else None, average)
