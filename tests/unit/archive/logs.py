"""Archives of logs in a directory, made as an archiver makes them."""

from collections.abc import Sequence
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
    times_ms: Sequence[int | None] | None = None,
) -> Place:
    """Archive a log in objects of so many records; the archive's address is ``file://`` and the directory.

    ``times_ms`` has the time of each transaction, as far as it is known.
    """
    place = Place(open_store(f"file://{directory}"), key, partition_id)
    page = empty_page(key, partition_id)
    while page.end < len(log):
        writer = ObjectWriter(key, partition_id, page.end)
        pieces = [encode_record(each) for each in log[page.end : page.end + object_records]]
        writer.add(b"".join(pieces), [*map(len, pieces)])
        last = page.end + len(pieces) - 1
        first_ms, last_ms = (None, None) if times_ms is None else (times_ms[page.end], times_ms[last])
        page = await add_object(place, page, writer.finish(), first_ms, last_ms)
    return place
