"""How records become Arrow batches: column by column, never row by row."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from waltz.spark.chunk import Chunk, Heads, log_columns, over_memory
from waltz.spark.columns import HEADER_COLUMNS, PayloadFormat, payload_fields
from waltz.spark.payloads import decoder

MAX_BATCH_BYTES = 16 << 20
"""Limit of the payload bytes of a batch; only a single larger transaction exceeds it."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands of batches for ``schema``, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


class BatchMaker:
    """Makes batches of the columns of one schema."""

    def __init__(self, schema: StructType, payload: PayloadFormat, headers: frozenset[int] | None = None) -> None:
        """With ``headers``, only rows with one of them are made. Raises ``ConfigError`` for the payload's options."""
        self._schema = arrow_schema(schema)
        wanted = payload_fields(schema, payload.name)
        self._payload_names = frozenset(wanted.fieldNames())
        self._decode = decoder(payload, arrow_schema(wanted)) if wanted.fields else None
        self._headers = None if headers is None else pa.array(sorted(headers), pa.int32())
        self._needs_heads = any(name in HEADER_COLUMNS for name in self._schema.names)

    def batches(self, partition_id: int, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Batches of at most :data:`MAX_BATCH_BYTES` of payload, all rows in order.

        Raises ``PayloadError`` for a payload that is not of the format.
        """
        for piece in chunk.cut(MAX_BATCH_BYTES):
            batch = self._batch(partition_id, piece)
            if batch.num_rows:
                yield batch

    def _batch(self, partition_id: int, chunk: Chunk) -> pa.RecordBatch:
        heads = chunk.heads() if self._needs_heads or self._headers is not None else None
        ids = chunk.transaction_ids()
        payloads = chunk.payloads if self._decode is not None else None
        keep = self._kept(heads)
        if keep is not None and payloads is not None:
            # Rows that are filtered out are not decoded, so a bad payload among them does not fail the read.
            payloads, ids = payloads.filter(keep), ids.filter(keep)
        from_payload: dict[str, pa.Array] = {}
        if self._decode is not None and payloads is not None:
            from_payload = self._decode(payloads, partition_id, ids)
        make = log_columns(partition_id, chunk, heads)
        columns = []
        for name in self._schema.names:
            if name in self._payload_names:
                columns.append(from_payload[name])
            else:
                column = make[name]()
                columns.append(column if keep is None else column.filter(keep))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _kept(self, heads: Heads | None) -> pa.Array | None:
        """A mask of the rows with one of the wanted headers; ``None`` if every row is kept."""
        if heads is None or self._headers is None:
            return None
        return pc.is_in(over_memory(pa.int32(), heads.column("header")), value_set=self._headers)
