"""The planner of a stream of tables, which reads every row that is written, in the order of each partition."""

import time
from collections.abc import Mapping

from waltz.spark.stream_planning import StreamPlanner
from waltz.spark.table.options import TableReadOptions
from waltz.spark.table.planning import TableSplit, read_properties_of_tables, read_tables, table_splits


class TablePlanner(StreamPlanner):
    """Reads the partitions that are tables; their properties are looked up before each micro-batch."""

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
        return table_splits([(split,) for split in splits], tables, time.time_ns() // 1_000_000)
