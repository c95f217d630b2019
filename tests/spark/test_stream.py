"""The stream reader in a real Spark session, on a fake cluster."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import COUNTS, RunningCluster, deep
from tests.unit.common.cluster.fakes import FakeOwner

TIMEOUT_S = 300


class Pipeline:
    """From the log into JSON files, with a checkpoint."""

    def __init__(self, spark: SparkSession, cluster: RunningCluster, directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._directory = directory

    def start(self, options: dict[str, str], *, available_now: bool = False) -> StreamingQuery:
        reader = self._spark.readStream.format("waltz").options(**self._cluster.options | options)
        writer = (
            reader.load()
            .select("partition", "transaction_id")
            .writeStream.format("json")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
        )
        return (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="100 milliseconds")
        ).start()

    def run(self, **options: str) -> list[int]:
        """Everything there is; rows of each micro-batch."""
        query = self.start(options, available_now=True)
        assert query.awaitTermination(TIMEOUT_S)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[int, int]]:
        """What has arrived, sorted; doubles show."""
        frame = self._spark.read.schema("partition int, transaction_id long").json(str(self._directory / "out"))
        return sorted((row["partition"], row["transaction_id"]) for row in frame.collect())

    def forget_first_batch(self) -> None:
        """As if Spark had died when it had planned it."""
        for name in ("0", ".0.crc"):
            (self._directory / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        shutil.rmtree(self._directory / "out")


@pytest.fixture
def pipeline(spark: SparkSession, cluster: RunningCluster, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, cluster, tmp_path)


def committed(cluster: RunningCluster) -> list[tuple[int, int]]:
    return [
        (partition_id, number) for partition_id, mark in cluster.fake.owner.marks.items() for number in range(mark + 1)
    ]


def test_everything_once_in_bounded_batches(pipeline: Pipeline, cluster: RunningCluster) -> None:
    batches = pipeline.run(startingOffsets="earliest", maxOffsetsPerTrigger="300")
    assert pipeline.rows() == committed(cluster)
    assert batches == [300, 300, sum(COUNTS) - 600]


def test_a_restart_goes_on_where_it_stopped(pipeline: Pipeline, cluster: RunningCluster) -> None:
    pipeline.run(startingOffsets="earliest")
    for storage in cluster.fake.storages:
        storage.requests.clear()
    cluster.append(1, 5)
    cluster.append(3, 7)
    assert pipeline.run(startingOffsets="earliest") == [12]
    assert pipeline.run(startingOffsets="earliest") == []
    assert pipeline.rows() == committed(cluster)
    requests = [request for storage in cluster.fake.storages for request in storage.requests]
    assert {(request.partition_id, request.transaction_id) for request in requests} == {(1, 0), (3, 120)}


def test_the_first_batch_is_repeated_as_it_was(pipeline: Pipeline, cluster: RunningCluster) -> None:
    """Although Spark asks again where the stream begins, and "latest" is another place by then."""
    starting = '{"0": "latest"}'
    assert pipeline.run(startingOffsets=starting) == [121]
    pipeline.forget_first_batch()
    cluster.append(0, 5)
    assert pipeline.run(startingOffsets=starting) == [121, 5]
    assert pipeline.rows() == [place for place in committed(cluster) if place[0] != 0 or place[1] >= 500]


def test_a_first_batch_without_rows_stays_without(pipeline: Pipeline, cluster: RunningCluster) -> None:
    assert pipeline.run() == []
    pipeline.forget_first_batch()
    cluster.append(0, 10)
    assert pipeline.run() == [10]
    assert pipeline.rows() == [(0, number) for number in range(500, 510)]


def test_new_data_comes_while_it_runs_and_lag_shows(pipeline: Pipeline, cluster: RunningCluster) -> None:
    query = pipeline.start({"startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"})
    try:
        query.processAllAvailable()
        cluster.append(2, 3)
        query.processAllAvailable()
        assert pipeline.rows() == committed(cluster)
        first = next(progress for progress in query.recentProgress if progress.numInputRows)
        assert json.loads(first.sources[0].latestOffset) == {"0": 500, "1": 0, "2": 1, "3": 120}
        behind = json.loads(first.sources[0].endOffset)
        assert sum(behind[str(partition_id)] for partition_id in range(4)) == 400
    finally:
        query.stop()


def test_the_owner_changes_under_a_running_query(pipeline: Pipeline, cluster: RunningCluster) -> None:
    query = pipeline.start({"startingOffsets": "earliest"})
    try:
        query.processAllAvailable()
        cluster.run(cluster.fake.owner.stop())
        successor = FakeOwner(cluster.fake.owner.marks)
        cluster.run(successor.start())
        cluster.fake.owner = successor
        cluster.append(0, 20)
        cluster.run(cluster.fake.register_server(2, successor.endpoint))
        cluster.run(cluster.fake.assign_to(2))
        query.processAllAvailable()
        assert query.exception() is None
        assert pipeline.rows() == committed(cluster)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is not for streams"),
        deep({"clusterRoot": "/nowhere"}, "there is no cluster at /nowhere in the ZooKeeper at 127.0.0.1:"),
        ({"startingOffsets": '{"0": 501}'}, "startingOffsets: 501 is beyond partition 0"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_one_clear_error(pipeline: Pipeline, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(PySparkException) as caught:
        pipeline.run(**options)
    assert complaint in str(caught.value)


def test_a_checkpoint_of_other_partitions(pipeline: Pipeline) -> None:
    pipeline.run(startingOffsets="earliest")
    with pytest.raises(PySparkException, match="the checkpoint is of partitions 0, 1, 2, 3, this query reads 0"):
        pipeline.run(partitions="0")
