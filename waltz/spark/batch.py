"""The batch reader of transactions and of tables: planning in Spark's planner process, reading in its workers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from waltz.common.loops import new_event_loop
from waltz.common.net.tls import client_context
from waltz.spark.archive_reading import ArchiveSplit, archived_chunks
from waltz.spark.batches import BatchMaker
from waltz.spark.chunk import Chunk
from waltz.spark.options import RangeOptions, ReadOptions
from waltz.spark.owner import OwnerReader
from waltz.spark.planning import Split
from waltz.spark.reading import SplitReader

_S = TypeVar("_S")


def read_split(options: ReadOptions, schema: StructType, split: Split | ArchiveSplit) -> Iterator[pa.RecordBatch]:
    """The rows of one split. Raises ``ReplicaReadError`` or ``ArchiveError`` rather than leaving anything out.

    Repeatable: committed transactions never change.
    """
    maker = BatchMaker(schema, options.payload, options.headers)
    for chunk in read_chunks(options, split):
        yield from maker.batches(split.range.partition_id, chunk)


def read_chunks(options: RangeOptions, split: Split | ArchiveSplit) -> Iterator[Chunk]:
    """The records of one split, in order and without gaps. Raises ``ReplicaReadError``, ``ArchiveError``."""
    return archived_chunks(split) if isinstance(split, ArchiveSplit) else _stored_chunks(options, split)


def _stored_chunks(options: RangeOptions, split: Split) -> Iterator[Chunk]:
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


class BatchReader(DataSourceReader, Generic[_S]):
    """Spark pickles it for the workers, so its arguments hold values only."""

    def __init__(
        self, plan: Callable[[], Coroutine[object, object, list[_S]]], read: Callable[[_S], Iterator[pa.RecordBatch]]
    ) -> None:
        """``plan`` settles the bounds and finds the splits, in the planner; ``read`` yields the rows of one split."""
        self._plan = plan
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per split."""
        return [InputPartition(split) for split in asyncio.run(self._plan())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Where there is no data, Spark makes one partition without a value."""
        if partition.value is not None:
            yield from self._read(partition.value)
