"""Reads of tables that begin with a saved snapshot: no transaction before it is read.

A snapshot is chosen in the planner by its manifest, and its files are read in tasks. What follows it is read from the
log, from the snapshot's last transaction on, which has to be the one that the manifest names. A state that ends with
that transaction costs no read of the log, and is read by a task for each file.
"""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from waltz.archive.store import open_store
from waltz.spark.chunk import Chunk
from waltz.spark.errors import DataLossError
from waltz.spark.table.envelopes import ROWS
from waltz.table.snapshots.loading import read_file
from waltz.table.snapshots.manifest import Manifest, SavedFile, misfit
from waltz.table.snapshots.parquet import read_batches
from waltz.table.snapshots.place import SnapshotPlace

logger = logging.getLogger(__name__)


class SavedPart(NamedTuple):
    """Files of a snapshot that a task reads."""

    url: str
    cluster_key: UUID
    partition_id: int
    applied: int
    """The last transaction whose effect is in them."""
    request_id: bytes
    files: tuple[SavedFile, ...]


async def newest_saved(
    url: str, cluster_key: UUID, partition_id: int, end: int, max_body_bytes: int
) -> Manifest | None:
    """The newest snapshot that fits, of a transaction before ``end``; ``None`` if there is none.

    One that is damaged is passed over with a warning. Raises ``ConfigError``, ``StoreUnavailableError``.
    """

    def refused(applied: int, reason: object) -> None:
        logger.warning("partition %d: the snapshot of transaction %d is not used: %s", partition_id, applied, reason)

    place = SnapshotPlace(open_store(url), cluster_key, partition_id)
    return await place.newest(end - 1, partial(misfit, max_body_bytes), refused)


def part_of(url: str, manifest: Manifest, files: tuple[SavedFile, ...]) -> SavedPart:
    """Some of the files of a snapshot."""
    return SavedPart(url, manifest.cluster_key, manifest.partition_id, manifest.applied, manifest.request_id, files)


def saved_rows(part: SavedPart, *, values: bool) -> Iterator[pa.RecordBatch]:
    """The rows of the files, as rows of a log; without ``values`` that column is null.

    Raises ``ArchiveError`` for a file that is not what was saved.
    """
    place = SnapshotPlace(open_store(part.url), part.cluster_key, part.partition_id)
    wanted = [name for name in ROWS.names if values or name != "value"]
    for file in part.files:
        data = asyncio.run(read_file(place, file))
        for batch in read_batches(data, f"{place.store.url}/{place.path(file.name)}", wanted):
            columns = [
                batch.column(name) if name in wanted else pa.nulls(batch.num_rows, pa.binary()) for name in ROWS.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=ROWS)


def behind(part: SavedPart, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The records behind the snapshot's last transaction, of chunks that begin with it.

    Raises ``DataLossError`` if the log has another transaction there.
    """
    is_first = True
    for chunk in chunks:
        if is_first:
            is_first = False
            if chunk.first != part.applied or chunk.request_id(0) != part.request_id:
                raise DataLossError(
                    f"partition {part.partition_id}: the snapshot of transaction {part.applied} in {part.url} is of "
                    "another log, or of one that has lost transactions since; remove the snapshot, or read without "
                    "the option snapshots"
                )
            chunk = chunk.part(1, chunk.count)
        if chunk.count:
            yield chunk
