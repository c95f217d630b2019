import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from waltz.common.errors import ConfigError
from waltz.common.zk.znodes import StoreParams
from waltz.spark import writers
from waltz.spark.errors import SinkError
from waltz.spark.options import ClusterOptions
from waltz.spark.staging import Manifest, StagingArea
from waltz.spark.write_options import parse_stream_write_options, parse_write_options
from waltz.spark.writers import WaltzStreamWriter, WaltzWriter, WrittenRows

SCHEMA = StructType([StructField("partition", IntegerType()), StructField("data", StringType())])
OPTIONS = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}


@pytest.fixture(autouse=True)
def _three_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each root is the cluster of its own key."""

    async def read_cluster(options: ClusterOptions) -> StoreParams:
        return StoreParams(uuid5(NAMESPACE_URL, options.cluster_root), 3)

    monkeypatch.setattr(writers, "read_cluster", read_cluster)


def batches(*partition_ids: int) -> Iterator[pa.RecordBatch]:
    for partition_id in partition_ids:
        yield pa.RecordBatch.from_pydict({"partition": [partition_id], "data": [f"row of {partition_id}"]})


def batch_writer(tmp_path: Path, **options: str) -> WaltzWriter:
    parsed = parse_write_options(OPTIONS | {"stagingPath": str(tmp_path)} | options)
    writer = pickle.loads(pickle.dumps(WaltzWriter(parsed, SCHEMA, overwrite=False)))
    assert isinstance(writer, WaltzWriter)
    return writer


def staged(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("*/rows/*"))


def test_tasks_stage_and_tell_the_file(tmp_path: Path) -> None:
    writer = batch_writer(tmp_path)
    message = pickle.loads(pickle.dumps(writer.write(batches(2, 0, 2))))
    assert isinstance(message, WrittenRows)
    assert message.file is not None
    assert message.file.pieces == ((0, 1), (2, 2))
    assert staged(tmp_path) == [message.file.name]
    assert writer.write(batches()) == WrittenRows(None)


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="a row has 3 in column 'partition'"):
        batch_writer(tmp_path).write(batches(0, 3))
    assert staged(tmp_path) == []


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = batch_writer(tmp_path)
    writer.abort([writer.write(batches(0)), None])
    assert list(tmp_path.iterdir()) == []


def test_what_a_manifest_names_survives_a_failure(tmp_path: Path) -> None:
    """It is going to be appended when the job is run again."""
    writer = batch_writer(tmp_path, txnAppId="app", txnVersion="7")
    kept, dropped = writer.write(batches(0)), writer.write(batches(1))
    assert kept.file is not None
    assert StagingArea(str(tmp_path), "app").propose(7, Manifest((kept.file,), {0: -1}))
    writer.abort([kept, dropped, None])
    assert staged(tmp_path) == [kept.file.name]


def test_what_is_done_is_committed_without_a_cluster(tmp_path: Path) -> None:
    writer = batch_writer(tmp_path, txnAppId="app", txnVersion="7")
    StagingArea(str(tmp_path), "app").complete(8)
    writer.commit([writer.write(batches(0))])
    assert staged(tmp_path) == []


def test_what_is_done_in_one_cluster_is_not_done_in_another(tmp_path: Path) -> None:
    batch_writer(tmp_path, txnAppId="app", txnVersion="7")
    StagingArea(str(tmp_path), "app").complete(7)
    with pytest.raises(SinkError, match="belongs to format waltz on the cluster"):
        batch_writer(tmp_path, txnAppId="app", txnVersion="7", clusterRoot="/other")
    batch_writer(tmp_path, txnAppId="other", txnVersion="7", clusterRoot="/other")
    batch_writer(tmp_path, clusterRoot="/other")
    given = OPTIONS | {"stagingPath": str(tmp_path), "txnAppId": "app", "clusterRoot": "/other"}
    with pytest.raises(SinkError, match="belongs to format waltz on the cluster"):
        WaltzStreamWriter(parse_stream_write_options(given), SCHEMA, overwrite=False)


def test_a_query_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    staging = tmp_path / "staging"
    for location in (str(checkpoint), f"file:{checkpoint}", checkpoint.as_uri()):
        (checkpoint / "metadata").write_text(json.dumps({"id": "the-query"}))
        given = OPTIONS | {"stagingPath": str(staging), "checkpointLocation": location}
        options = parse_stream_write_options(given)
        WaltzStreamWriter(options, SCHEMA, overwrite=False).write(batches(1))
        (checkpoint / "metadata").write_text("{}")
        with pytest.raises(ConfigError, match=r"the id of the query cannot be read .* give txnAppId"):
            WaltzStreamWriter(options, SCHEMA, overwrite=False)
    assert [path.name for path in staging.iterdir()] == ["the-query"]
    named = parse_stream_write_options(OPTIONS | {"stagingPath": str(staging), "txnAppId": "name"})
    WaltzStreamWriter(named, SCHEMA, overwrite=False).write(batches(1))
    assert sorted(path.name for path in staging.iterdir()) == ["name", "the-query"]


def test_columns_are_checked_before_the_cluster_is_asked() -> None:
    with pytest.raises(ConfigError, match="column 'partition' must be of an integral type"):
        WaltzWriter(parse_write_options(OPTIONS), StructType([StructField("partition", StringType())]), overwrite=False)
