"""The batch reader of tables: planning in Spark's planner process, reading in its workers."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from waltz.spark.table.columns import check_schema
from waltz.spark.table.filters import EVERYTHING, push_table
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
        self._pushed = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per split; bounds and clock are settled here. Raises what planning does."""
        return [InputPartition(split) for split in asyncio.run(plan(self._options, self._pushed))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Spark makes one partition without value where is no data."""
        if partition.value is not None:
            yield from read_table_split(self._options, self._schema, partition.value, self._pushed)


class WaltzFilteringTableReader(WaltzTableReader):
    """The same with push-down: Spark refuses a reader that has it unless its own configuration allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over what shortens the read; give back the rest."""
        self._pushed, left = push_table(filters, all_versions=self._options.all_versions)
        return left
