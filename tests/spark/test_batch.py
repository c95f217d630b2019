"""The batch reader in a real Spark session, on a fake cluster."""

import datetime as dt

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import COUNTS, RunningCluster, deep
from tests.unit.common.cluster.fakes import SESSION, damaged, make_record, storage_name
from waltz.common.ids import ReqId
from waltz.common.zk.znodes import UNRESOLVED
from waltz.spark.columns import SCHEMA


def load(spark: SparkSession, cluster: RunningCluster, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("waltz").options(**cluster.options | options)
    return (reader if schema is None else reader.schema(schema)).load()


def ids(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["transaction_id"]) for row in frame.collect())


def expected_ids(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    return [(partition_id, number) for partition_id, start, end in ranges for number in range(start, end)]


def test_every_committed_transaction_comes_once_and_whole(spark: SparkSession, cluster: RunningCluster) -> None:
    """No register call: the format is found by the package pyspark_waltz."""
    frame = load(spark, cluster)
    assert frame.schema == SCHEMA
    found = {(row["partition"], row["transaction_id"]): row for row in frame.collect()}
    assert sorted(found) == expected_ids(*((partition_id, 0, count) for partition_id, count in enumerate(COUNTS)))
    for (partition_id, transaction_id), row in found.items():
        record = make_record(partition_id, transaction_id)
        req_id = ReqId(record.req_id)
        assert row.asDict() == {
            "partition": partition_id,
            "transaction_id": transaction_id,
            "header": record.header,
            "client_id": req_id.client_id,
            "generation": req_id.generation,
            "seq_num": req_id.seq_num,
            "data": record.data,
            "checksum": record.checksum,
        }
        assert isinstance(row["data"], bytes)


def test_small_splits_and_requests_change_nothing(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = load(spark, cluster, maxRowsPerSplit="60", fetchSize="7", minPartitions="3")
    assert frame.rdd.getNumPartitions() == 9 + 1 + 2
    assert frame.count() == sum(COUNTS)
    assert ids(frame) == expected_ids(*((partition_id, 0, count) for partition_id, count in enumerate(COUNTS)))
    assert all(storage.requests for storage in cluster.fake.storages)


def test_ranges(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = load(
        spark,
        cluster,
        partitions="0-1,3",
        startingOffsets='{"0": 490, "3": 100}',
        endingOffsets='{"3": 105}',
    )
    assert ids(frame) == expected_ids((0, 490, 500), (3, 100, 105))


def test_nothing_to_read(spark: SparkSession, cluster: RunningCluster) -> None:
    assert load(spark, cluster, partitions="1").collect() == []
    assert load(spark, cluster, startingOffsets="latest").count() == 0


def test_a_schema_of_the_users_selects_columns(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = load(spark, cluster, "data binary, transaction_id long", partitions="3")
    assert frame.columns == ["data", "transaction_id"]
    rows = sorted((row["transaction_id"], row["data"]) for row in frame.collect())
    assert rows == [(number, make_record(3, number).data) for number in range(120)]


def test_sql_over_a_view(spark: SparkSession, cluster: RunningCluster) -> None:
    load(spark, cluster).createOrReplaceTempView("log")
    rows = spark.sql("select partition, count(*) n, max(transaction_id) m from log group by 1 order by 1").collect()
    assert [tuple(row) for row in rows] == [(0, 500, 499), (2, 1, 0), (3, 120, 119)]
    assert len(spark.sql("select * from log limit 3").collect()) == 3


def test_a_read_is_settled_when_it_is_planned(spark: SparkSession, cluster: RunningCluster) -> None:
    """What lies on the storages above the committed mark is not read."""
    for storage in cluster.fake.storages:
        storage.logs[2] = [*storage.logs[2], make_record(2, 1, b"not committed")]
    assert ids(load(spark, cluster, partitions="2")) == [(2, 0)]


def test_a_replica_that_left_its_session_is_never_asked(spark: SparkSession, cluster: RunningCluster) -> None:
    """Its tail below the committed mark may be one that a recovery discarded."""
    dirty, *clean = cluster.fake.storages
    dirty.logs[0] = [*dirty.logs[0][:400], *(make_record(0, number, b"discarded") for number in range(400, 500))]
    states = {storage_name(0): (SESSION - 1, 399)} | {storage_name(n): (SESSION, UNRESOLVED) for n in (1, 2)}
    cluster.run(cluster.fake.set_states(0, states))
    rows = load(spark, cluster, partitions="0", minPartitions="4").collect()
    assert len(rows) == 500
    assert not any(row["data"] == b"discarded" for row in rows)
    assert not dirty.requests
    assert all(storage.requests for storage in clean)


def test_other_replicas_stand_in(spark: SparkSession, cluster: RunningCluster) -> None:
    """One storage is down, one lags, one has a damaged payload where another is sound."""
    down, lagging, bad = cluster.fake.storages
    cluster.run(down.stop())
    lagging.logs[0] = lagging.logs[0][:300]
    bad.logs[0] = damaged(bad.logs[0], 20)
    assert ids(load(spark, cluster, partitions="0", minPartitions="3")) == expected_ids((0, 0, 500))


def test_damage_everywhere_fails_the_read(spark: SparkSession, cluster: RunningCluster) -> None:
    for storage in cluster.fake.storages:
        storage.logs[3] = damaged(storage.logs[3], 77)
    with pytest.raises(PySparkException) as caught:
        load(spark, cluster).collect()
    text = str(caught.value)
    assert "ReplicaReadError: partition 3, transactions 0 to 119: no replica delivers transaction" in text
    for index, storage in enumerate(cluster.fake.storages):
        assert (
            f"{storage_name(index)}: storage 127.0.0.1:{storage.admin_port} delivered a damaged transaction: "
            "partition 3, transaction 77"
        ) in text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fetchSizes": "1"}, "unknown option 'fetchsizes'; did you mean 'fetchSize'?"),
        ({"clusterRoot": "/nowhere"}, "there is no cluster at /nowhere in the ZooKeeper at 127.0.0.1:"),
        deep({"zookeeper": "127.0.0.1:1", "planningTimeoutMs": "500"}, "no ZooKeeper server answers at 127.0.0.1:1"),
        ({"endingOffsets": '{"2": 5}'}, "endingOffsets: 5 is beyond partition 2"),
        ({"tls.plaintext": "false", "planningTimeoutMs": "500"}, "TLS"),
        deep({"tls.keyStore.location": "/nowhere.p12", "tls.plaintext": "false"}, "cannot read keyStore /nowhere.p12"),
    ],
)
def test_one_clear_error_at_planning(
    spark: SparkSession, cluster: RunningCluster, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, cluster, None, **options).collect()
    assert complaint in str(caught.value)
    assert not any(storage.requests for storage in cluster.fake.storages)


def test_a_wrong_column_is_named(spark: SparkSession, cluster: RunningCluster) -> None:
    with pytest.raises(PySparkException, match="did you mean 'transaction_id'"):
        load(spark, cluster, "transaction long").collect()


def test_headers_leave_out_the_other_rows(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = load(spark, cluster, headers="-20,-3,5", partitions="0,3")
    assert ids(frame) == [(0, 3), (0, 20), (3, 3), (3, 20)]


@pytest.mark.parametrize("allowed", [deep("false"), "true"])
def test_a_frame_may_be_used_more_than_once(spark: SparkSession, cluster: RunningCluster, allowed: str) -> None:
    """Whatever filters its uses have, also where Spark may push filters into sources."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, allowed)
    try:
        log = load(spark, cluster)
        assert [log.count(), log.where("partition = 3").count(), log.count()] == [621, 120, 621]
        first, third = log.where("partition = 0 and transaction_id < 7"), log.where("partition = 3")
        assert dict(first.union(third).groupBy("partition").count().collect()) == {0: 7, 3: 120}
        joined = first.alias("a").join(third.alias("b"), on="transaction_id")
        assert sorted(row[0] for row in joined.select("transaction_id").collect()) == list(range(7))
    finally:
        spark.conf.unset(name)


def put(cluster: RunningCluster, partition_id: int, *payloads: bytes) -> None:
    """Other payloads for the first transactions of a partition."""
    for storage in cluster.fake.storages:
        log = [make_record(partition_id, number, payload) for number, payload in enumerate(payloads)]
        storage.logs[partition_id] = [*log, *storage.logs[partition_id][len(payloads) :]]


def test_json_payloads_are_columns(spark: SparkSession, cluster: RunningCluster) -> None:
    put(cluster, 3, b'{"account": 7, "amount": 1.5, "day": "2024-02-29"}', b'{"account": 8}')
    options = {"partitions": "3", "endingOffsets": '{"3": 2}', "payloadFormat": "json", "columns": "transaction_id"}
    frame = load(spark, cluster, payloadSchema="account bigint, amount double, day date", **options)
    assert frame.schema.simpleString() == "struct<transaction_id:bigint,account:bigint,amount:double,day:date>"
    assert [tuple(row) for row in frame.orderBy("transaction_id").collect()] == [
        (0, 7, 1.5, dt.date(2024, 2, 29)),
        (1, 8, None, None),
    ]
    only = load(spark, cluster, "account bigint", **options).collect()
    assert sorted(row["account"] for row in only) == [7, 8]


def test_a_payload_of_another_format_is_named_or_null(spark: SparkSession, cluster: RunningCluster) -> None:
    put(cluster, 3, b'{"account": 7}', b"not json")
    options = {"partitions": "3", "endingOffsets": '{"3": 2}', "payloadFormat": "json", "payloadSchema": "account int"}
    with pytest.raises(PySparkException, match="PayloadError: partition 3, transaction 1: the payload is not json"):
        load(spark, cluster, **options).collect()
    rows = load(spark, cluster, payloadMode="permissive", **options).collect()
    assert [row["account"] for row in sorted(rows, key=lambda row: row["transaction_id"])] == [7, None]


def test_text_and_functions(spark: SparkSession, cluster: RunningCluster) -> None:
    text = load(spark, cluster, partitions="2", payloadFormat="utf8", includeHeaders="false")
    assert text.columns == ["partition", "transaction_id", "data"]
    assert text.collect() == [(2, 0, "2/0")]
    function = "tests.spark.parsers:place"
    frame = load(
        spark, cluster, partitions="2", payloadFormat=function, payloadSchema="p int, t bigint", columns="data"
    )
    assert [tuple(row) for row in frame.collect()] == [(2, 0)]


def test_what_is_gone_can_be_passed_over(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = load(spark, cluster, partitions="2", endingOffsets='{"2": 5}', failOnDataLoss="false")
    assert ids(frame) == [(2, 0)]
