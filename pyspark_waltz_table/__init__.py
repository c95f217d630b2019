"""Makes ``format("waltz-table")`` known to Spark without a call, as ``pyspark_waltz`` does it for ``waltz``."""

from waltz.spark.table.source import WaltzTableDataSource as DefaultSource

__all__ = ["DefaultSource"]
