"""Makes objects: reads a partition's records from a source, up to the limits of an object."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from waltz.archive.chain import Place
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.object_format import Limit, ObjectWriter, SealedObject, records_that_fit
from waltz.archive.process.source import RecordSource

Paced = Callable[[int], Awaitable[None]]
"""Called with the number of bytes read; returns when the next read may begin."""


class Gathered(NamedTuple):
    """The result of reading for one object."""

    sealed: SealedObject | None
    """``None``: the records do not fill an object, and are not due yet."""
    record_bytes: float
    """Average size of the records."""


async def gather_object(
    place: Place, source: RecordSource, first: int, end: int, limit: Limit, paced: Paced, *, with_rest: bool
) -> Gathered:
    """Make one object of transactions ``first`` to ``end - 1``; all of them have to be committed.

    The end of the object depends on the limit only, not on the answers of the source.

    Args:
        place: The partition in the store.
        source: The records of the partition.
        first: First transaction id of the object.
        end: The transaction id behind the last committed one.
        limit: The limits of an object.
        paced: Called after each read; limits the rate.
        with_rest: Make an object of the records up to ``end``, even if they do not fill it.

    Raises:
        SourceError: No replica delivers intact records.
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
