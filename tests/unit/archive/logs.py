"""Archives of logs in a directory, made as an archiver makes them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from waltz.archive.chain import Place, add_object
from waltz.archive.manifest import empty_page
from waltz.archive.object_format import ObjectWriter
from waltz.archive.store import open_store
from waltz.common.records import Record
from waltz.storage.disk.segment.segment_format import encode_record


async def archive_log(
    directory: Path,
    key: UUID,
    partition_id: int,
    log: Sequence[Record],
    object_records: int,
    time_ms: Callable[[int], int | None] | None = None,
) -> Place:
    """Archive a log in objects of so many records; the archive's address is ``file://`` and the directory.

    ``time_ms`` tells when a transaction was committed.
    """
    place = Place(open_store(f"file://{directory}"), key, partition_id)
    page = empty_page(key, partition_id)
    while page.end < len(log):
        writer = ObjectWriter(key, partition_id, page.end)
        pieces = [encode_record(each) for each in log[page.end : page.end + object_records]]
        writer.add(b"".join(pieces), [*map(len, pieces)])
        sealed = writer.finish()
        first_ms, last_ms = (None, None) if time_ms is None else map(time_ms, sealed.name[:2])
        page = await add_object(place, page, sealed, first_ms, last_ms)
    return place
