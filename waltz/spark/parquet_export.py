"""Archived transactions as Parquet files, for programs without our code. Needs pyarrow, but no Spark and no cluster.

``DIRECTORY/partition=P/FIRST-LAST.parquet``, with the columns of a read of the log; the column ``partition`` is in the
path, as Spark, DuckDB and others expect it. A file appears under its name when it is complete and synced, and its name
says what it holds: an export that was stopped is continued by the next one.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from waltz.archive.chain import Place
from waltz.archive.errors import ArchiveError
from waltz.archive.manifest import ArchivedRange
from waltz.spark.archive_reading import ArchiveSplit, archived_chunks
from waltz.spark.chunk import Chunk, log_columns
from waltz.spark.offsets import OffsetRange
from waltz.spark.parquet_pieces import Piece, file_name, missing_pieces, parse_file_name

DEFAULT_ROW_GROUP_BYTES = 64 << 20

MARK = "_waltz_archive"
"""Name of the file that says which cluster a directory is of; readers of Parquet pass over names with ``_``."""

_PART = "_part-"
"""Names of files that are being written begin so."""

_PARTITION = "partition"
_DATA = "data"
_SCHEMA = pa.schema(
    [
        pa.field("transaction_id", pa.int64(), nullable=False),
        pa.field("header", pa.int32(), nullable=False),
        pa.field("client_id", pa.int32(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("seq_num", pa.int32(), nullable=False),
        pa.field(_DATA, pa.binary(), nullable=False),
        pa.field("checksum", pa.int32(), nullable=False),
    ]
)
_REPETITIVE = ["header", "client_id", "generation"]
"""Columns with few values; a dictionary of all payloads would only take memory."""


class Exported(NamedTuple):
    """What became of a partition."""

    transactions: int
    """Number of transactions that were written."""
    files: int
    """Number of files with them."""
    present_files: int
    """Number of files that were there before."""


@contextmanager
def export_directory(directory: Path, cluster_key: UUID) -> Iterator[None]:
    """Have a directory for oneself, and clear away what a killed export has left there.

    Raises ``ArchiveError`` while another process exports there, for a directory of another cluster, and for one with
    something else.
    """
    import fcntl  # not at the top: Windows has none

    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / MARK
    if not mark.exists() and any(directory.iterdir()):
        raise ArchiveError(f"{directory} is not empty, and no export was begun there: name another directory")
    descriptor = os.open(mark, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArchiveError(f"another process exports to {directory}") from None
        wanted = f"{cluster_key}\n".encode()
        found = os.pread(descriptor, len(wanted) + 1, 0)
        if not wanted.startswith(found):
            raise ArchiveError(f"{directory} holds transactions of another cluster: {found.decode(errors='replace')!r}")
        os.pwrite(descriptor, wanted, 0)
        os.fsync(descriptor)
        _sync(directory)
        for left in directory.glob(f"{_PARTITION}=*/{_PART}*"):
            left.unlink()
        yield
    finally:
        os.close(descriptor)


def export_partition(
    place: Place,
    ranges: Sequence[ArchivedRange],
    directory: Path,
    start: int,
    end: int,
    *,
    url: str,
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES,
    written: Callable[[int], object],
) -> Exported:
    """Write what of transactions ``start`` to ``end - 1`` is in ``ranges`` and not yet in files.

    ``url`` is the address of the archive, and ``written`` is told the number of transactions of each finished file. In
    memory are a row group (``row_group_bytes`` of payloads, and one block of the archive more), and the blocks that
    are fetched ahead. Within :func:`export_directory`. Raises ``ArchiveError`` and ``OSError``; nothing that is damaged
    is written.
    """
    folder = directory / f"{_PARTITION}={place.partition_id}"
    folder.mkdir(exist_ok=True)
    _sync(directory)
    present = [found for each in folder.iterdir() if (found := parse_file_name(each.name)) is not None]
    transactions = files = 0
    for piece in missing_pieces(ranges, present, start, end):
        _write_piece(place, piece, folder, url, row_group_bytes)
        transactions += piece.end - piece.start
        files += 1
        written(piece.end - piece.start)
    return Exported(transactions, files, len(present))


def _write_piece(place: Place, piece: Piece, folder: Path, url: str, row_group_bytes: int) -> None:
    name = file_name(piece.start, piece.end)
    part = folder / f"{_PART}{name}"
    split = ArchiveSplit(
        OffsetRange(place.partition_id, piece.start, piece.end), url, place.cluster_key, (piece.source,)
    )
    origin = {b"waltz.cluster": str(place.cluster_key).encode(), b"waltz.object": str(piece.source.name).encode()}
    try:
        with pq.ParquetWriter(
            part, _SCHEMA.with_metadata(origin), compression="zstd", use_dictionary=_REPETITIVE
        ) as writer:
            for group in _row_groups(archived_chunks(split), row_group_bytes):
                table = pa.Table.from_batches([_batch(place.partition_id, chunk) for chunk in group], _SCHEMA)
                writer.write_table(table, row_group_size=table.num_rows)
        _sync(part)
        part.rename(folder / name)
        _sync(folder)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _row_groups(chunks: Iterator[Chunk], row_group_bytes: int) -> Iterator[list[Chunk]]:
    """Chunks together, each group as small as ``row_group_bytes`` of payload allow; the last one may be smaller."""
    group: list[Chunk] = []
    size_bytes = 0
    for whole in chunks:
        for chunk in whole.cut(row_group_bytes):
            if group and size_bytes + chunk.size_bytes > row_group_bytes:
                yield group
                group, size_bytes = [], 0
            group.append(chunk)
            size_bytes += chunk.size_bytes
    if group:
        yield group


def _batch(partition_id: int, chunk: Chunk) -> pa.RecordBatch:
    make = log_columns(partition_id, chunk, chunk.heads())
    columns = [chunk.payloads if name == _DATA else make[name]() for name in _SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
