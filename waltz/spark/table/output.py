"""From the rows of a log to the batches that Spark asked for."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from waltz.spark.batches import arrow_schema
from waltz.spark.errors import PayloadError
from waltz.spark.table.columns import BYTES
from waltz.spark.table.options import TableReadOptions

MAX_BATCH_BYTES = 16 << 20
"""Bytes of a batch; only a single larger row exceeds it."""
_MAX_BATCH_ROWS = 1 << 16


def filtered(rows: pa.RecordBatch, options: TableReadOptions) -> pa.RecordBatch:
    """The rows of the prefix and the keys that are read.

    Other rows can be left out before the winners are known, since every key is decided on its own.
    """
    if options.prefix is not None:
        rows = rows.filter(pc.equal(rows.column("prefix"), pa.scalar(options.prefix, pa.binary())))
    if options.start_key:
        rows = rows.filter(pc.greater_equal(rows.column("key"), pa.scalar(options.start_key, pa.binary())))
    if options.end_key is not None:
        rows = rows.filter(pc.less(rows.column("key"), pa.scalar(options.end_key, pa.binary())))
    return rows


class OutputMaker:
    """Makes batches of the columns of one schema."""

    def __init__(self, schema: StructType, partition_id: int) -> None:
        self._schema = arrow_schema(schema)
        self._partition_id = partition_id

    @property
    def needs_values(self) -> bool:
        """Whether the column is among those asked for."""
        return "value" in self._schema.names

    def batches(self, rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows in batches of bounded size. Raises ``PayloadError`` for bytes that are no text."""
        whole = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches(max_chunksize=_MAX_BATCH_ROWS)
        for batch in whole:
            for piece in _pieces(batch):
                yield self._batch(piece)

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        make: dict[str, Callable[[], pa.Array]] = {
            "partition": lambda: pa.repeat(pa.scalar(self._partition_id, pa.int32()), rows.num_rows)
        }
        columns = []
        for field in self._schema:
            column = make[field.name]() if field.name in make else rows.column(field.name)
            if field.name in BYTES:
                column = self._as(column, field, rows)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _as(self, column: pa.Array, field: pa.Field, rows: pa.RecordBatch) -> pa.Array:
        """Bytes with the offsets that Spark knows, or as text."""
        # A slice keeps offsets into the whole state, which may exceed 32 bits; a concatenated array has new offsets.
        narrow = pa.concat_arrays([column]).cast(pa.binary())
        try:
            return narrow.cast(field.type)
        except pa.ArrowInvalid:
            place = next(place for place, value in enumerate(narrow.to_pylist()) if not _is_text(value))
        transaction_id, row = rows.column("transaction_id")[place], rows.column("row")[place]
        raise PayloadError(
            f"partition {self._partition_id}, transaction {transaction_id}, row {row}: its {field.name} is not UTF-8; "
            f"read the column {field.name} as binary"
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, halved until the pieces are small enough."""
    if not rows.num_rows:
        return
    if rows.nbytes <= MAX_BATCH_BYTES or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _pieces(rows.slice(0, half))
    yield from _pieces(rows.slice(half))
