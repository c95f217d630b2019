"""The log in Apache Spark: transactions as DataFrames and streams, and DataFrames and streams as transactions.

``format("waltz")`` finds :class:`waltz.spark.source.WaltzDataSource` by way of the package ``pyspark_waltz``. Spark
imports that package in short-lived processes whenever it looks for data sources, so modules that a scan reaches
(:mod:`~waltz.spark.source` and :mod:`~waltz.spark.columns`) import heavy things inside functions.
"""
