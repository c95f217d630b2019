"""Reading a split of a table, in Spark's workers."""

import logging
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from waltz.spark.batch import read_chunks
from waltz.spark.chunk import Chunk
from waltz.spark.table.envelopes import EnvelopeReader, Found
from waltz.spark.table.fold import Fold, hidden
from waltz.spark.table.options import TableReadOptions
from waltz.spark.table.output import OutputMaker, filtered
from waltz.spark.table.planning import TableSplit
from waltz.spark.table.saved import behind, saved_rows
from waltz.table.envelope import Truncate

logger = logging.getLogger(__name__)


def read_table_split(options: TableReadOptions, schema: StructType, table: TableSplit) -> Iterator[pa.RecordBatch]:
    """The rows of one split: every one that was written, or those that win after its last transaction.

    Repeatable. Raises what :func:`~waltz.spark.batch.read_chunks` does, ``CodecUnavailableError`` for an envelope whose
    codec this worker does not have, and ``PayloadError``. Data that is no envelope is counted, and told in the log.
    """
    partition_id = table.partition_id
    output = OutputMaker(schema, partition_id)
    reader = EnvelopeReader(partition_id, table.max_body_bytes, values=output.needs_values)
    chunks: Iterator[Chunk] = (chunk for part in table.parts for chunk in read_chunks(options, part))
    if table.saved is not None and table.parts:
        chunks = behind(table.saved, chunks)
    found = (item for chunk in chunks for item in reader.read(chunk))
    saved = iter(()) if table.saved is None else saved_rows(table.saved, values=output.needs_values)
    if options.all_versions:
        for item in found:
            if isinstance(item, pa.RecordBatch):
                yield from output.batches(filtered(item, options))
    elif table.parts:
        winners = _fold(chain(saved, found), options)
        if winners is not None:
            yield from output.batches(_seen(winners, options, table))
    else:  # each key is there once, so nothing has to be folded
        for batch in saved:
            yield from output.batches(_seen(pa.Table.from_batches([filtered(batch, options)]), options, table))
    if reader.skipped:
        logger.warning(
            "partition %d: %d transactions are no envelopes, and were skipped; the first is %d",
            partition_id,
            reader.skipped,
            reader.first_skipped,
        )


def _seen(winners: pa.Table, options: TableReadOptions, table: TableSplit) -> pa.Table:
    """The winners that readers see."""
    return winners if options.raw else winners.filter(pc.invert(hidden(winners, table.now_ms, table.ages)))


def _fold(found: Iterator[Found], options: TableReadOptions) -> pa.Table | None:
    fold = Fold()
    for item in found:
        if isinstance(item, pa.RecordBatch):
            fold.add(filtered(item, options))
        elif isinstance(item, Truncate):
            fold.truncate()
        else:
            fold.sweep(item)
    return fold.winners()
