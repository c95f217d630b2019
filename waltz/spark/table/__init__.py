"""Tables on the log in Apache Spark: their state, all their versions, their changes, and rows written into them.

``format("waltz-table")`` finds :class:`waltz.spark.table.source.WaltzTableDataSource` (module ``source``) by way of the
package ``pyspark_waltz_table``. Sources, replicas and exactly-once appends are those of :mod:`waltz.spark`; here is the
meaning of the bytes.

1. Reading: ``options`` define a read, ``planning`` splits it, ``reading`` fetches a split,
   ``envelopes`` makes ``columns`` of the envelopes of a chunk, ``fold`` keeps the rows that win, ``output`` drops
   hidden rows and makes the requested columns. ``saved`` has states begin with snapshots, ``stream`` plans the
   micro-batches.
2. The sink: ``write_options``; ``rows`` makes envelopes of the rows of a DataFrame; ``writers`` is Spark's interface.
"""
