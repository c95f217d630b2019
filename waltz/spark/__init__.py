"""The log in Apache Spark: transactions as DataFrames and streams, and DataFrames and streams as transactions.

``format("waltz")`` finds :class:`waltz.spark.source.WaltzDataSource` by way of the package ``pyspark_waltz``. Spark
imports that package in short-lived processes whenever it looks for data sources, so modules that a scan reaches
(``source`` and ``columns``) import heavy things inside functions.

1. Reading: ``options`` and ``offsets`` define a read, ``planning`` splits it, ``reading`` fetches a split over
   ``bulk`` (from its ``owner`` as a last resort), ``chunk`` cuts columns out of it, ``payloads``
   decodes them, ``batches`` hands them to Spark. ``batch`` is Spark's interface.
   What is archived is read from there: ``archive_planning`` and ``archive_reading``; ``parquet_export`` makes files
   of it, as far as ``parquet_pieces`` (pure) says, and needs no Spark.
2. Streams: ``stream_offsets`` and ``stream_planning``; ``stream`` is Spark's interface.
3. The sink: ``write_options``; ``rows`` and ``staging`` in the tasks, ``exactly_once`` (a protocol, with its proof)
   over ``sink_log``; ``writers`` is Spark's interface.
4. ``table``: the same for tables. ``errors``: errors of all of them.
"""
