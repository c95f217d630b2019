"""The stream reader of tables: every row that is written, in the order of each partition, tombstones included."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from waltz.spark.stream import StreamReader
from waltz.spark.stream_planning import StreamPlanner
from waltz.spark.table.columns import check_schema
from waltz.spark.table.options import TableReadOptions
from waltz.spark.table.planning import TableSplit, read_properties_of_tables, read_tables, table_splits
from waltz.spark.table.reading import read_table_split


class TablePlanner(StreamPlanner):
    """Reads the partitions that are tables; their properties as they are before each micro-batch."""

    def __init__(self, options: TableReadOptions) -> None:
        super().__init__(options)
        self._tables: list[int] | None = None

    async def selected(self) -> list[int]:
        """The partitions that were tables when the query was started."""
        if self._tables is None:
            self._tables = list(
                await self.in_session(lambda zookeeper, store: read_tables(zookeeper, self.options, store))
            )
        return self._tables

    async def table_splits(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[TableSplit]:
        """The work of one micro-batch. Raises ``PropertiesError`` when a partition is no table any more."""
        splits = await self.splits(start, end)
        read = {split.range.partition_id for split in splits}
        root = self.options.cluster_root
        tables = await self.in_session(lambda zookeeper, _: read_properties_of_tables(zookeeper, root, read))
        return table_splits(splits, tables, time.time_ns() // 1_000_000)


class WaltzTableStreamReader(StreamReader[TablePlanner]):
    """Offsets are those of the log; see :mod:`waltz.spark.stream_offsets`."""

    def __init__(self, options: TableReadOptions, schema: StructType) -> None:
        """Raises ``ConfigError`` when ``schema`` is no selection of the columns."""
        check_schema(schema)
        super().__init__(options, partial(TablePlanner, options))
        self._read_options = replace(options, all_versions=True)
        self._schema = schema

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition per split of a micro-batch."""
        return [InputPartition(split) for split in self.run(self.planner.table_splits(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        if partition.value is not None:
            yield from read_table_split(self._read_options, self._schema, partition.value)
