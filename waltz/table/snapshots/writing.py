"""From the view of a table to a saved snapshot."""

import asyncio
from typing import NamedTuple

from waltz.common.checksum import crc32
from waltz.table.errors import StoreError
from waltz.table.rows import is_tombstone
from waltz.table.snapshots.manifest import Manifest, SavedFile, file_name
from waltz.table.snapshots.place import SnapshotPlace
from waltz.table.stores.interface import Snapshot

GROUP_BYTES = 8 << 20
"""Keys and rows of a row group; one row may exceed it."""
GROUP_ROWS = 1 << 16
FILE_BYTES = 32 << 20
"""A file ends with the row group that reaches this size. In memory are a file, a row group, and their columns."""


class Facts(NamedTuple):
    """What a snapshot says of its table beside the rows."""

    properties_change: int | None
    max_body_bytes: int
    saved_at_ms: int


async def save(place: SnapshotPlace, rows: Snapshot, facts: Facts, token: str) -> Manifest:
    """Save the rows of a view, tombstones and expired rows among them. Needs pyarrow.

    ``token`` is of this attempt only. When there is a snapshot of the same transaction already, that one stays, and is
    returned. Raises ``StoreUnavailableError``, after which the snapshot is whole or absent, and ``StoreError`` for a
    view that does not know its last transaction.
    """
    from waltz.table.snapshots.parquet import FileWriter

    applied, request_id = rows.progress.applied, rows.progress.request_id
    if not request_id:
        raise StoreError(
            f"the view of partition {place.partition_id} does not know the request id of transaction {applied}, its "
            "last one; save a snapshot after the next transaction"
        )
    if applied in await place.ids():
        return await place.read(applied)
    files: list[SavedFile] = []
    tombstones = 0
    file: FileWriter | None = None
    group: list[tuple[bytes, bytes]] = []
    group_bytes = 0

    async def put() -> None:
        nonlocal file
        if file is None:
            return
        data = await asyncio.to_thread(file.finish)
        name = file_name(applied, token, len(files))
        await place.store.put(place.path(name), data)
        files.append(SavedFile(name, len(data), crc32(data), file.rows))
        file = None

    async def add() -> None:
        nonlocal file, group, group_bytes
        if not group:
            return
        file = file or FileWriter()
        if await asyncio.to_thread(file.add, group) >= FILE_BYTES:
            await put()
        group, group_bytes = [], 0

    for page in rows.pages(b"", None):
        for key, row in page:
            group.append((key, row))
            group_bytes += len(key) + len(row)
            tombstones += is_tombstone(row)
            if group_bytes >= GROUP_BYTES or len(group) >= GROUP_ROWS:
                await add()
        await asyncio.sleep(0)
    await add()
    await put()
    manifest = Manifest(
        place.cluster_key,
        place.partition_id,
        applied,
        request_id,
        facts.properties_change,
        facts.max_body_bytes,
        sum(each.rows for each in files),
        tombstones,
        rows.progress.skipped,
        rows.progress.newest_ms,
        facts.saved_at_ms,
        tuple(files),
    )
    return manifest if await place.create(manifest) else await place.read(applied)
