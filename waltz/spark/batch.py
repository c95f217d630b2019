"""The batch reader: planning in Spark's planner process, reading in its workers."""

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from waltz.common.loops import new_event_loop
from waltz.common.net.tls import client_context
from waltz.spark.batches import BatchMaker
from waltz.spark.chunk import Chunk
from waltz.spark.columns import check_schema
from waltz.spark.options import RangeOptions, ReadOptions
from waltz.spark.owner import OwnerReader
from waltz.spark.planning import Split, plan
from waltz.spark.reading import SplitReader


def read_split(options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
    """The rows of one split. Raises ``ReplicaReadError`` rather than leaving anything out.

    Repeatable: what is committed never changes.
    """
    maker = BatchMaker(schema, options.payload, options.headers)
    for chunk in read_chunks(options, split):
        yield from maker.batches(split.range.partition_id, chunk)


def read_chunks(options: RangeOptions, split: Split) -> Iterator[Chunk]:
    """The records of one split, in order and without gaps. Raises ``ReplicaReadError``."""
    tls = client_context(options.tls)
    reader = SplitReader(
        split,
        tls,
        fetch_size=options.fetch_size,
        request_timeout_s=options.request_timeout_s,
        owner=OwnerReader(options, split.range.partition_id, tls),
    )
    # The loop runs only while a chunk is awaited; the next one arrives in the socket's buffers meanwhile.
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            while (chunk := runner.run(reader.next_chunk())) is not None:
                yield chunk
        finally:
            runner.run(reader.close())


class WaltzBatchReader(DataSourceReader):
    """Reads committed transactions. Travels pickled to the workers, so it holds values only."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ``ConfigError`` when ``schema`` is no selection of the columns."""
        check_schema(schema, options.payload.name)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per split; bounds are settled here. Raises what :func:`waltz.spark.planning.plan` does."""
        return [InputPartition(split) for split in asyncio.run(plan(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split, see :func:`read_split`. Spark makes one partition without value where is no data."""
        if partition.value is not None:
            yield from read_split(self._options, self._schema, partition.value)
