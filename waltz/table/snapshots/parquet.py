"""Rows of a view as columns of a Parquet file, and back. Needs pyarrow.

The columns are those of a table in Spark, with ``written_at``; rows are in the order of (prefix, key), a key once.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from waltz.archive.errors import ArchiveDamagedError
from waltz.table.rows import pack_row, row_key, split_row_key, unpack_row

SCHEMA = pa.schema(
    [
        pa.field("prefix", pa.binary(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("written_at", pa.int64(), nullable=False),
        pa.field("tombstone", pa.bool_(), nullable=False),
        pa.field("transaction_id", pa.int64(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
    ]
)
"""``transaction_id`` and ``row`` are the version of a row; times are in milliseconds since the epoch."""


class FileWriter:
    """A Parquet file in memory, to which row groups are added."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, compression="zstd", use_dictionary=["prefix"])
        self.rows = 0

    def add(self, rows: Sequence[tuple[bytes, bytes]]) -> int:
        """Add a row group of joined keys and rows; returns the size of the file so far in bytes."""
        batch = _batch(rows)
        self._writer.write_batch(batch, row_group_size=batch.num_rows)
        self.rows += batch.num_rows
        return int(self._sink.tell())

    def finish(self) -> bytes:
        """The bytes of the file."""
        self._writer.close()
        return bytes(memoryview(self._sink.getvalue()))


def _batch(rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
    seen = [unpack_row(*split_row_key(key), row) for key, row in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each.prefix for each in seen], pa.binary()),
            pa.array([each.key for each in seen], pa.binary()),
            pa.array([each.value for each in seen], pa.binary()),
            pa.array([each.timestamp_ms for each in seen], pa.int64()),
            pa.array([each.written_at_ms for each in seen], pa.int64()),
            pa.array([each.tombstone for each in seen], pa.bool_()),
            pa.array([each.version.transaction_id for each in seen], pa.int64()),
            pa.array([each.version.row for each in seen], pa.int32()),
        ],
        schema=SCHEMA,
    )


def read_batches(data: bytes, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The row groups of a file, or some columns of them; ``name`` begins the text of ``ArchiveDamagedError``."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if not file.schema_arrow.equals(SCHEMA):
            raise ArchiveDamagedError(f"{name} is damaged: its columns are not those of a snapshot")
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns).to_batches()
    except (pa.ArrowException, OSError) as error:
        raise ArchiveDamagedError(f"{name} is damaged: {error}") from error


def rows_of(batch: pa.RecordBatch, name: str) -> list[tuple[bytes, bytes]]:
    """Joined keys and rows of a batch with all columns. Raises ``ArchiveDamagedError``."""
    columns = (batch.column(field.name).to_pylist() for field in SCHEMA)
    found = []
    for prefix, key, value, timestamp_ms, written_at_ms, tombstone, transaction_id, row in zip(*columns, strict=True):
        if transaction_id < 0 or row < 0 or (tombstone and value is not None):
            raise ArchiveDamagedError(f"{name} is damaged: it has a row that no transaction can write")
        packed = pack_row(timestamp_ms, transaction_id, row, written_at_ms, tombstone, value)
        found.append((row_key(prefix, key), packed))
    return found
