"""Makes ``format("waltz")`` known to Spark without a call.

PySpark imports every package whose name begins with ``pyspark_`` and registers its ``DefaultSource``.
"""

from waltz.spark.source import WaltzDataSource as DefaultSource

__all__ = ["DefaultSource"]
