"""The batch reader of tables: planning in Spark's planner process, reading in its workers."""

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from waltz.spark.table.columns import check_schema
from waltz.spark.table.options import TableReadOptions
from waltz.spark.table.planning import plan
from waltz.spark.table.reading import read_table_split


class WaltzTableReader(DataSourceReader):
    """Reads the state of tables, or all their versions. Travels pickled to the workers, so it holds values only."""

    def __init__(self, options: TableReadOptions, schema: StructType) -> None:
        """Raises ``ConfigError`` when ``schema`` is no selection of the columns."""
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per split; bounds and clock are settled here. Raises what planning does."""
        return [InputPartition(split) for split in asyncio.run(plan(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Spark makes one partition without value where is no data."""
        if partition.value is not None:
            yield from read_table_split(self._options, self._schema, partition.value)
