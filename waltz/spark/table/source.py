"""The data source that Spark knows as ``waltz-table``."""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from waltz.spark.table.columns import check_schema, schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceWriter


class WaltzTableDataSource(DataSource):
    """``format("waltz-table")`` for ``spark.read``, ``readStream``, ``df.write`` and ``writeStream``.

    Options and columns are described in ``docs/spark-tables.md``. Everything is imported inside methods: Spark makes
    this object in short-lived processes, and whenever it looks for data sources.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "waltz-table"

    def schema(self) -> StructType:
        """The columns when the user names none. Raises ``ConfigError``, so that ``load()`` reports wrong options."""
        from waltz.spark.table.options import parse_options

        return schema_of(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of these columns. Raises ``ConfigError`` for wrong options or columns."""
        from waltz.spark.batch import BatchReader
        from waltz.spark.table.options import parse_batch_options
        from waltz.spark.table.planning import plan
        from waltz.spark.table.reading import read_table_split

        options = parse_batch_options(self.options)
        check_schema(schema)
        return BatchReader(partial(plan, options), partial(read_table_split, options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader of these columns. Raises ``ConfigError`` for wrong options or columns."""
        from waltz.spark.stream import StreamReader
        from waltz.spark.table.options import parse_stream_options
        from waltz.spark.table.reading import read_table_split
        from waltz.spark.table.stream import TablePlanner

        options = parse_stream_options(self.options)
        check_schema(schema)
        planner = partial(TablePlanner, options)
        return StreamReader(options, planner, TablePlanner.table_splits, partial(read_table_split, options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """A batch writer. Raises ``ConfigError`` for wrong options or columns, and for overwriting."""
        from waltz.spark.table.write_options import parse_table_write_options
        from waltz.spark.table.writers import WaltzTableWriter

        return WaltzTableWriter(parse_table_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamArrowWriter":
        """A stream writer. Raises ``ConfigError`` for wrong options or columns, and for overwriting."""
        from waltz.spark.table.write_options import parse_table_stream_write_options
        from waltz.spark.table.writers import WaltzTableStreamWriter

        return WaltzTableStreamWriter(parse_table_stream_write_options(self.options), schema, overwrite=overwrite)
