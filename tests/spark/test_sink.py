"""The sink in a real Spark session, on a real cluster whose log the tests share."""

import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import deep

TIMEOUT_S = 300


@pytest.fixture
def label() -> str:
    """Begins the payloads of one test."""
    return uuid.uuid4().hex


def make_rows(spark: SparkSession, label: str, count: int) -> DataFrame:
    """Payload ``label-0``, ``label-1``, ..."""
    return spark.range(count).selectExpr(
        "cast(id % 3 as int) partition", "cast(id as int) header", f"concat('{label}-', id) data"
    )


def read_back(spark: SparkSession, cluster: dict[str, str], label: str) -> Counter[tuple[int, int, str]]:
    frame = spark.read.format("waltz").options(**cluster, payloadFormat="utf8").load()
    rows = frame.where(frame.data.startswith(label)).collect()
    return Counter((row["partition"], row["header"], row["data"]) for row in rows)


def once(label: str, count: int) -> Counter[tuple[int, int, str]]:
    return Counter((number % 3, number, f"{label}-{number}") for number in range(count))


@pytest.mark.deep
def test_without_staging(spark: SparkSession, real_cluster: dict[str, str], label: str) -> None:
    make_rows(spark, label, 1000).write.format("waltz").options(**real_cluster).mode("append").save()
    assert read_back(spark, real_cluster, label) == once(label, 1000)


def test_rows_become_json_and_come_back(spark: SparkSession, real_cluster: dict[str, str], label: str) -> None:
    rows = spark.range(50).selectExpr(f"'{label}' label", "id account", "id / 4 amount", "date'2024-02-29' day")
    rows.write.format("waltz").options(**real_cluster, hashColumns="account").mode("append").save()
    schema = "label string, account bigint, amount double, day date"
    options = real_cluster | {"payloadFormat": "json", "payloadSchema": schema, "payloadMode": "permissive"}
    found = spark.read.format("waltz").options(**options).load().where(f"label = '{label}'")
    assert sorted(found.select(rows.columns).collect()) == sorted(rows.collect())
    assert found.select("partition").distinct().count() == 3


def test_a_job_that_runs_again_adds_nothing(
    spark: SparkSession, real_cluster: dict[str, str], label: str, tmp_path: Path
) -> None:
    named = {"stagingPath": str(tmp_path), "txnAppId": label}
    for version in ("1", "1", "2", "1"):
        writer = make_rows(spark, f"{label}-{version}", 200).write.format("waltz").mode("append")
        writer.options(**real_cluster, **named, txnVersion=version).save()
    for version in ("1", "2"):
        assert read_back(spark, real_cluster, f"{label}-{version}") == once(f"{label}-{version}", 200)


def test_a_job_without_a_name_leaves_no_staged_rows(
    spark: SparkSession, real_cluster: dict[str, str], label: str, tmp_path: Path
) -> None:
    writer = make_rows(spark, label, 200).write.format("waltz").mode("append")
    writer.options(**real_cluster, stagingPath=str(tmp_path)).save()
    assert read_back(spark, real_cluster, label) == once(label, 200)
    assert list(tmp_path.iterdir()) == []


def test_no_rows(spark: SparkSession, real_cluster: dict[str, str], label: str, tmp_path: Path) -> None:
    for options in ({}, {"stagingPath": str(tmp_path)}):
        make_rows(spark, label, 0).write.format("waltz").options(**real_cluster, **options).mode("append").save()
    assert not read_back(spark, real_cluster, label)


class Stream:
    """Files into the log."""

    def __init__(self, spark: SparkSession, cluster: dict[str, str], directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._directory = directory
        self.staging = directory / "staging"

    def add(self, rows: DataFrame) -> None:
        rows.coalesce(1).write.mode("append").json(str(self._directory / "in"))

    def run(self, checkpoint: str = "checkpoint", **options: str) -> None:
        source = self._spark.readStream.schema("partition int, header int, data string")
        query = (
            source.option("maxFilesPerTrigger", "1")
            .json(str(self._directory / "in"))
            .repartition(4)
            .writeStream.format("waltz")
            .options(**self._cluster, stagingPath=str(self.staging), **options)
            .option("checkpointLocation", str(self._directory / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    def forget_commit(self, epoch: int) -> None:
        """As if Spark had died when the rows were in the log, and it had not noted that yet."""
        for name in (f"{epoch}", f".{epoch}.crc"):
            (self._directory / "checkpoint" / "commits" / name).unlink(missing_ok=True)

    def forget_done(self, epoch: int) -> None:
        """As if the sink had died when the rows were in the log, and it had not noted that yet."""
        (app,) = self.staging.iterdir()
        (app / "done" / str(epoch)).unlink()


def test_a_stream_writes_everything_once(
    spark: SparkSession, real_cluster: dict[str, str], label: str, tmp_path: Path
) -> None:
    stream = Stream(spark, real_cluster, tmp_path)
    rows = make_rows(spark, label, 300)
    stream.add(rows.where("header < 100"))
    stream.run()
    stream.add(rows.where("header >= 100 and header < 200"))
    stream.add(rows.where("header >= 200"))
    stream.run()
    assert read_back(spark, real_cluster, label) == once(label, 300)
    stream.forget_commit(2)
    stream.run()
    assert read_back(spark, real_cluster, label) == once(label, 300)
    stream.forget_commit(2)
    stream.forget_done(2)
    stream.run()
    assert read_back(spark, real_cluster, label) == once(label, 300)
    (app,) = stream.staging.iterdir()
    assert [path.name for path in (app / "done").iterdir()] == ["2"]


def test_a_new_checkpoint_needs_another_name(
    spark: SparkSession, real_cluster: dict[str, str], label: str, tmp_path: Path
) -> None:
    stream = Stream(spark, real_cluster, tmp_path)
    stream.add(make_rows(spark, label, 50))
    stream.run(txnAppId=label)
    stream.forget_commit(0)
    stream.run(txnAppId=label)
    with pytest.raises(PySparkException, match="for the query .* give it another txnAppId or stagingPath"):
        stream.run("another checkpoint", txnAppId=label)
    assert read_back(spark, real_cluster, label) == once(label, 50)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"stagingPaht": "/x"}, "did you mean 'stagingPath'"),
        deep({"clusterRoot": "/nowhere"}, "there is no cluster at /nowhere"),
        ({"dataColumn": "Data"}, "names the column 'Data', which the rows do not have; did you mean 'data'?"),
        ({"partitionColumn": "data"}, "column 'data' must be of an integral type"),
        ({"partitionColumn": "header"}, "in column 'header'; the cluster has the partitions 0 to 2"),
    ],
)
def test_one_clear_error(
    spark: SparkSession, real_cluster: dict[str, str], label: str, options: dict[str, str], complaint: str
) -> None:
    rows = make_rows(spark, label, 10).drop("partition")
    with pytest.raises(PySparkException) as caught:
        rows.write.format("waltz").options(**real_cluster | options).mode("append").save()
    assert complaint in str(caught.value)


def test_a_log_is_not_overwritten(spark: SparkSession, real_cluster: dict[str, str], label: str) -> None:
    with pytest.raises(PySparkException, match="a log cannot be overwritten"):
        make_rows(spark, label, 1).write.format("waltz").options(**real_cluster).mode("overwrite").save()
