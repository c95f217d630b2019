"""Tables on the log in Apache Spark: their state, all their versions, their changes, and rows written into them.

``format("waltz-table")`` finds :class:`waltz.spark.table.source.WaltzTableDataSource` by way of the package
``pyspark_waltz_table``. What is read, from whom, and how rows get into the log exactly once is :mod:`waltz.spark`; here
is what the bytes mean.

1. Reading: ``envelopes`` makes columns of the envelopes of a chunk, ``fold`` keeps the rows that win, ``output`` hides
   what readers do not see and makes the columns that Spark asked for; ``filters`` and ``planning`` say what is read.
2. The sink: ``rows`` makes envelopes of the rows of a DataFrame.
"""
