"""The bank's balances as Spark sees them: a DataFrame query over the log."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUIET = Path(__file__).with_name("log4j2.properties")
"""Logging of the JVM: errors only."""
TRANSFER_SCHEMA = "`from` STRING, `to` STRING, amount BIGINT"


def read_log(spark: "SparkSession", cluster: LocalCluster) -> "DataFrame":
    """The whole log of the cluster, as it is committed now."""
    return (
        spark.read.format("waltz")
        .option("zookeeper", cluster.layout.zookeeper_connect_string)
        .option("clusterRoot", ROOT)
        .option("tls.plaintext", str(cluster.layout.plaintext).lower())
        .load()
    )


def balances(log: "DataFrame", opening_cents: int) -> "DataFrame":
    """Columns ``account`` and ``cents``, from the transfers in ``log``."""
    from pyspark.sql import functions as f

    transfer = f.from_json(f.col("data").cast("string"), TRANSFER_SCHEMA).alias("transfer")
    transfers = log.select(transfer).select("transfer.*")
    changes = transfers.select(
        f.explode(
            f.array(
                f.struct(f.col("from").alias("account"), (-f.col("amount")).alias("cents")),
                f.struct(f.col("to").alias("account"), f.col("amount").alias("cents")),
            )
        ).alias("change")
    ).select("change.*")
    return changes.groupBy("account").agg((f.sum("cents") + f.lit(opening_cents)).alias("cents"))


def spark_session() -> "SparkSession":
    """A quiet Spark session on this machine's cores."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .appName("waltz demo")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
