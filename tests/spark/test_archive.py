"""Reads of the archive in a real Spark session: beside a fake cluster, and without any."""

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import COUNTS, RunningCluster
from tests.spark.test_batch import expected_ids, ids, load
from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.fakes import KEY, make_log, make_record

pytest.importorskip("obstore")

ARCHIVED = 420


def test_history_comes_from_the_archive_and_the_rest_from_the_cluster(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    asyncio.run(archive_log(tmp_path, KEY, 0, make_log(0, ARCHIVED), 100))
    frame = load(spark, cluster, archive=f"file://{tmp_path}", maxRowsPerSplit="60")
    assert ids(frame) == expected_ids(*((partition_id, 0, count) for partition_id, count in enumerate(COUNTS)))
    for storage in cluster.fake.storages:
        for request in storage.requests:
            assert request.partition_id != 0 or request.transaction_id >= ARCHIVED
    rows = {row["transaction_id"]: row for row in frame.where("partition = 0").collect()}
    for each in (0, ARCHIVED - 1, ARCHIVED, COUNTS[0] - 1):
        record = make_record(0, each)
        assert (rows[each]["data"], rows[each]["header"], rows[each]["checksum"]) == (
            record.data,
            record.header,
            record.checksum,
        )


def test_the_archive_alone_is_read_without_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(archive_log(tmp_path, KEY, 0, make_log(0, ARCHIVED), 100))
    reader = spark.read.format("waltz").option("archive", f"file://{tmp_path}").option("archiveOnly", "true")
    assert ids(reader.load()) == expected_ids((0, 0, ARCHIVED))
    some = reader.option("headers", "-7,-8").schema("transaction_id long, partition int").load()
    assert ids(some) == [(0, 7), (0, 8)]
    with pytest.raises(PySparkException, match="421 is beyond partition 0"):
        reader.option("endingOffsets", '{"0": 421}').load().count()


def test_a_stream_begins_in_the_archive(spark: SparkSession, cluster: RunningCluster, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    asyncio.run(archive_log(tmp_path / "archive", KEY, 0, make_log(0, ARCHIVED), 100))
    options = cluster.options | {
        "archive": f"file://{tmp_path}/archive",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "250",
    }
    query = (
        spark.readStream.format("waltz")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert ids(found) == expected_ids(*((partition_id, 0, count) for partition_id, count in enumerate(COUNTS)))
    for storage in cluster.fake.storages:
        for request in storage.requests:
            assert request.partition_id != 0 or request.transaction_id >= ARCHIVED
