"""The log in Apache Spark: transactions as DataFrames and streams, and DataFrames and streams as transactions.

``format("waltz")`` finds :class:`waltz.spark.source.WaltzDataSource` by way of the package ``pyspark_waltz``. Spark
imports that package in short-lived processes whenever it looks for data sources, so modules that a scan reaches
(:mod:`~waltz.spark.source` and :mod:`~waltz.spark.columns`) import heavy things inside functions.

1. Reading: ``options`` and ``offsets`` say what, ``planning`` splits it, ``reading`` fetches a split over ``bulk`` (and
   from its ``owner`` in the end), ``chunk`` cuts columns out of what came, ``batches`` hands them to Spark.
2. Streams: ``stream_offsets`` and ``stream_planning``; ``batch`` and ``stream`` are what Spark calls.
3. The sink: ``rows`` and ``staging`` in the tasks, ``exactly_once`` (a protocol, with its proof) over ``sink_log``.
"""
