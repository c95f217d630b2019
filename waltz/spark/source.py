"""The data source that Spark knows as ``waltz``."""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from waltz.spark.columns import check_schema, default_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceWriter


class WaltzDataSource(DataSource):
    """``format("waltz")`` for ``spark.read``, ``readStream``, ``df.write`` and ``writeStream``.

    Options and columns are described in ``docs/spark.md``. Everything is imported inside methods: Spark makes this
    object in short-lived processes, and whenever it looks for data sources.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "waltz"

    def schema(self) -> StructType | str:
        """The columns when the user names none. Raises ``ConfigError``, so that ``load()`` reports wrong options."""
        from waltz.spark.options import parse_options

        options = parse_options(self.options)
        return default_schema(
            options.columns,
            include_headers=options.include_headers,
            payload_format=options.payload.name,
            payload_schema=options.payload_schema,
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of these columns. Raises ``ConfigError`` for wrong options or columns."""
        from waltz.spark.archive_planning import plan
        from waltz.spark.batch import BatchReader, read_split
        from waltz.spark.options import parse_options, refuse_options_of_streams

        refuse_options_of_streams(self.options)
        options = parse_options(self.options)
        check_schema(schema, options.payload.name)
        return BatchReader(partial(plan, options), partial(read_split, options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader of these columns. Raises ``ConfigError`` for wrong options or columns."""
        from waltz.spark.archive_planning import StreamSplits
        from waltz.spark.batch import read_split
        from waltz.spark.options import parse_options, refuse_options_of_batches
        from waltz.spark.stream import StreamReader
        from waltz.spark.stream_planning import StreamPlanner

        refuse_options_of_batches(self.options)
        options = parse_options(self.options)
        check_schema(schema, options.payload.name)
        planner = partial(StreamPlanner, options)
        return StreamReader(options, planner, StreamSplits(options).splits, partial(read_split, options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """A batch writer. Raises ``ConfigError`` for wrong options or columns, and for overwriting."""
        from waltz.spark.write_options import parse_write_options
        from waltz.spark.writers import WaltzWriter

        return WaltzWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamArrowWriter":
        """A stream writer. Raises ``ConfigError`` for wrong options or columns, and for overwriting."""
        from waltz.spark.write_options import parse_stream_write_options
        from waltz.spark.writers import WaltzStreamWriter

        return WaltzStreamWriter(parse_stream_write_options(self.options), schema, overwrite=overwrite)
