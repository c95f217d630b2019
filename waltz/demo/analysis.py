"""The bank as Spark sees it: balances and hourly summaries of the transfers in the log, of a batch or of a stream."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from waltz.local.cluster import LocalCluster
from waltz.local.java import lend_java_to_spark
from waltz.local.layout import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

QUIET = Path(__file__).with_name("log4j2.properties")
"""Logging of the JVM: errors only."""
TRANSFER_SCHEMA = "`from` STRING, `to` STRING, amount BIGINT, time BIGINT"

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")


def transfers(reader: Reader, cluster: LocalCluster) -> Reader:
    """``spark.read`` or ``spark.readStream`` of all transfers in the log: ``from``, ``to``, ``amount``, ``time``."""
    return (
        reader.format("waltz")
        .option("zookeeper", cluster.layout.zookeeper_connect_string)
        .option("clusterRoot", ROOT)
        .option("tls.plaintext", str(cluster.layout.plaintext).lower())
        .option("startingOffsets", "earliest")
        .option("columns", "transaction_id")
        .option("payloadFormat", "json")
        .option("payloadSchema", TRANSFER_SCHEMA)
    )


def balances(transfers: "DataFrame", opening_cents: int) -> "DataFrame":
    """Columns ``account`` and ``cents``: an account opens with ``opening_cents``, and every transfer has two sides."""
    from pyspark.sql import functions as f

    paid = f.struct(f.col("from").alias("account"), (-f.col("amount")).alias("cents"))
    received = f.struct(f.col("to").alias("account"), f.col("amount").alias("cents"))
    changes = transfers.select(f.explode(f.array(paid, received)).alias("change")).select("change.*")
    return changes.groupBy("account").agg((f.sum("cents") + f.lit(opening_cents)).alias("cents"))


def hours(transfers: "DataFrame") -> "DataFrame":
    """Columns ``hour`` (null for transfers without a time), ``transfers``, ``cents`` and ``largest``."""
    from pyspark.sql import functions as f

    hour = f.date_trunc("hour", f.timestamp_seconds("time")).alias("hour")
    return transfers.groupBy(hour).agg(
        f.count("*").alias("transfers"), f.sum("amount").alias("cents"), f.max("amount").alias("largest")
    )


def spark_session() -> "SparkSession":
    """A quiet Spark session on this machine's cores."""
    from pyspark.sql import SparkSession

    lend_java_to_spark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .appName("waltz demo")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
