"""From a saved snapshot to its rows, every one of them checked. Needs pyarrow."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from waltz.archive.errors import ArchiveDamagedError, ArchiveError, StoreUnavailableError
from waltz.table.rows import is_tombstone, transaction_id_of
from waltz.table.snapshots.manifest import Manifest, SavedFile
from waltz.table.snapshots.place import SnapshotPlace, check_bytes
from waltz.table.stores.interface import PAGE_ROWS, Progress


def progress_of(manifest: Manifest) -> Progress:
    """How far a view is that holds the rows of a snapshot."""
    return Progress(
        manifest.applied,
        manifest.rows,
        manifest.tombstones,
        manifest.skipped,
        manifest.newest_ms,
        manifest.request_id,
    )


async def read_file(place: SnapshotPlace, file: SavedFile) -> bytes:
    """The bytes of a file. Raises ``ArchiveError`` when they are not those that were saved."""
    path = place.path(file.name)
    data = await place.store.get(path)
    if (difference := check_bytes(data, file.size_bytes, file.crc)) is not None:
        raise ArchiveDamagedError(f"{place.store.url}/{path} is damaged: {difference}")
    return data


async def saved_pages(place: SnapshotPlace, manifest: Manifest) -> AsyncGenerator[list[tuple[bytes, bytes]], None]:
    """Joined keys and rows in the order of the keys, in pages small enough for an event loop.

    One file at a time is in memory. Raises ``ArchiveError`` when anything is not as the manifest says: the pages before
    are then not to be used either.
    """
    last_key: bytes | None = None
    tombstones = 0
    for file in manifest.files:
        name = f"{place.store.url}/{place.path(file.name)}"
        data = await read_file(place, file)
        groups = _groups(data, name)
        rows = 0
        while (group := await asyncio.to_thread(next, groups, None)) is not None:
            for start in range(0, len(group), PAGE_ROWS):
                page = group[start : start + PAGE_ROWS]
                for key, row in page:
                    if last_key is not None and key <= last_key:
                        raise ArchiveDamagedError(f"{name} is damaged: its rows are not in the order of their keys")
                    if transaction_id_of(row) > manifest.applied:
                        raise ArchiveDamagedError(f"{name} is damaged: it has rows of later transactions")
                    last_key = key
                    tombstones += is_tombstone(row)
                yield page
            rows += len(group)
        if rows != file.rows:
            raise ArchiveDamagedError(f"{name} is damaged: it has {rows} rows, and {file.rows} were saved")
    if tombstones != manifest.tombstones:
        raise ArchiveDamagedError(
            f"{place.store.url}/{place.manifest_path(manifest.applied)} is damaged: it counts {manifest.tombstones} "
            f"tombstones, and {tombstones} were saved"
        )


def _groups(data: bytes, name: str) -> Iterator[list[tuple[bytes, bytes]]]:
    from waltz.table.snapshots.parquet import read_batches, rows_of

    for batch in read_batches(data, name):
        yield rows_of(batch, name)


async def verify(place: SnapshotPlace, applied: int) -> list[str]:
    """What is wrong with a snapshot; empty if nothing is. Raises ``StoreUnavailableError``."""
    try:
        manifest = await place.read(applied)
        async for _ in saved_pages(place, manifest):
            pass
    except StoreUnavailableError:
        raise
    except ArchiveError as error:
        return [str(error)]
    return []
