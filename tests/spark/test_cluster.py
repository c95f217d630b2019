"""Reads and streams of a real cluster of processes, whose nodes are killed and whose files are damaged."""

import asyncio
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.smoke.replicas import until_all_hold
from tests.spark.conftest import deep
from waltz.asynchronous import connect
from waltz.client.builder import Append
from waltz.common.checksum import checksum
from waltz.common.config.schemas import CliConfig, load
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.tls import client_context
from waltz.common.records import Record
from waltz.common.zk.store_admin import (
    read_partition_assignment,
    read_partition_metadata,
    read_server_descriptors,
    read_store_params,
)
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node
from waltz.storage.remote.client import StorageClient

FULL, EMPTY, SINGLE, GATED, STREAMED, DAMAGED, DIRTY = range(7)
"""Partitions, one for each kind of test; every test appends to its own."""

COUNT = 300
TIMEOUT_S = 240.0


class Cluster:
    """A local cluster and what the tests do to it."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.options = {"zookeeper": local.layout.zookeeper_connect_string, "clusterRoot": ROOT}

    def append(self, partition_id: int, payloads: Sequence[bytes], *, one_by_one: bool = False) -> None:
        """Returns when all are committed. What is sent again while owners change keeps its place if ``one_by_one``."""
        items = [Append(payload, number) for number, payload in enumerate(payloads)]

        async def run() -> None:
            async with connect(self.local.layout.client_config_path) as client:
                for some in [[item] for item in items] if one_by_one else [items]:
                    await client.append_many(partition_id, some, timeout_s=TIMEOUT_S)

        asyncio.run(run())

    def owner(self, partition_id: int) -> Node:
        """The server that owns a partition now."""

        async def run() -> Endpoint:
            zookeeper = await self.local.zookeeper()
            try:
                assignment = await read_partition_assignment(zookeeper, ROOT)
                endpoints = {
                    found.server_id: found.endpoint for found in await read_server_descriptors(zookeeper, ROOT)
                }
            finally:
                await zookeeper.close()
            return next(
                endpoints[server_id]
                for server_id, owned in assignment.servers.items()
                if partition_id in {item.partition_id for item in owned}
            )

        endpoint = asyncio.run(run())
        return next(node for node in self.local.layout.servers if node.port == endpoint.port)

    def until_all_hold(self, partition_id: int, count: int) -> None:
        """Return when every storage takes part and holds the partition's transactions, which are committed."""
        asyncio.run(until_all_hold(self.local, partition_id, count - 1))

    def first_replica(self) -> Node:
        """The storage that the first split of a read begins with."""
        return min(self.local.layout.storages, key=lambda node: node.connect_string)

    def segments(self, node: Node, partition_id: int) -> list[Path]:
        return sorted((self.local.layout.data_directory(node) / str(partition_id)).glob("*.seg"))

    def session(self, partition_id: int) -> int:
        """The present store session."""

        async def run() -> int:
            zookeeper = await self.local.zookeeper()
            try:
                metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
            finally:
                await zookeeper.close()
            assert metadata is not None
            return metadata.session_id

        return asyncio.run(run())

    def append_to(self, node: Node, partition_id: int, first: int, payloads: Sequence[bytes]) -> None:
        """What a server does that reaches one storage only before it dies."""
        session_id = self.session(partition_id)
        records = [
            Record(first + number, bytes(ReqId.of(99, 1, partition_id, number)), 0, payload, checksum(payload))
            for number, payload in enumerate(payloads)
        ]

        async def run() -> None:
            zookeeper = await self.local.zookeeper()
            try:
                store = await read_store_params(zookeeper, ROOT)
            finally:
                await zookeeper.close()
            client = await StorageClient.connect(
                Endpoint("127.0.0.1", node.port),
                cluster_key=store.key,
                partition_count=store.partition_count,
                tls=client_context(load(self.local.layout.cli_config_path, CliConfig).tls),
                timeout_s=TIMEOUT_S,
            )
            try:
                await client.append(session_id, partition_id, records, timeout_s=TIMEOUT_S)
            finally:
                await client.close()

        asyncio.run(run())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three storages and two servers, over TLS."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), partitions=DIRTY + 1) as local:
        running = Cluster(local)
        running.append(FULL, [b"%d" % number for number in range(COUNT)])
        running.append(SINGLE, [b"alone"])
        yield running


def read(
    spark: SparkSession, cluster: Cluster, partitions: object, schema: str | None = None, **more: str
) -> DataFrame:
    reader = spark.read.format("waltz").options(**cluster.options, partitions=str(partitions), **more)
    return (reader if schema is None else reader.schema(schema)).load()


def payloads(frame: DataFrame) -> list[bytes]:
    """In the order of their ids; of one partition."""
    rows = sorted((row["transaction_id"], bytes(row["data"])) for row in frame.collect())
    assert [transaction_id for transaction_id, _ in rows] == list(
        range(rows[0][0], rows[0][0] + len(rows)) if rows else []
    )
    return [data for _, data in rows]


# Offsets


@pytest.mark.parametrize(
    ("partitions", "offsets", "found"),
    [
        (FULL, {}, range(COUNT)),
        (FULL, {"startingOffsets": '{"0": 299}'}, range(299, 300)),
        deep(FULL, {"startingOffsets": '{"0": 300}'}, []),
        (FULL, {"startingOffsets": '{"0": 7}', "endingOffsets": '{"0": 7}'}, []),
        deep(FULL, {"endingOffsets": '{"0": 1}'}, range(1)),
        deep(FULL, {"startingOffsets": "latest"}, []),
        deep(FULL, {"endingOffsets": '{"0": 301}', "failOnDataLoss": "false"}, range(COUNT)),
        (EMPTY, {}, []),
        deep(EMPTY, {"startingOffsets": '{"1": 0}', "endingOffsets": '{"1": 0}'}, []),
        (SINGLE, {}, [0]),
        deep(SINGLE, {"startingOffsets": '{"2": 1}'}, []),
    ],
)
def test_every_edge_of_the_offsets(
    spark: SparkSession, cluster: Cluster, partitions: int, offsets: dict[str, str], found: Sequence[int]
) -> None:
    frame = read(spark, cluster, partitions, "transaction_id long", **offsets)
    assert sorted(row["transaction_id"] for row in frame.collect()) == list(found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": '{"0": 301}'}, "startingOffsets: 301 is beyond partition 0, whose committed transactions"),
        deep({"endingOffsets": '{"1": 1}'}, "endingOffsets: 1 is beyond partition 1, whose committed transactions"),
        deep(
            {"startingOffsets": '{"0": 9}', "endingOffsets": '{"0": 8}'},
            "partition 0 would end at 8, before its start at 9",
        ),
        deep({"partitions": "7"}, "there is no partition 7; the cluster has 7 (0 to 6)"),
        deep({"startingOffsets": '{"7": 0}'}, "option startingOffsets names partition 7, which is not read"),
        deep({"partition": "0"}, "unknown option 'partition'; did you mean 'partitions'?"),
        ({"clusterRoot": "/waltzes"}, "there is no cluster at /waltzes in the ZooKeeper at 127.0.0.1:"),
        deep({"zookeeper": "127.0.0.1:1", "planningTimeoutMs": "500"}, "no ZooKeeper server answers at 127.0.0.1:1"),
        ({"tls.plaintext": "true", "planningTimeoutMs": "500"}, "the high-water mark of partition 0"),
    ],
)
def test_one_clear_error_at_planning(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("waltz").options(**cluster.options | options).load().collect()
    text = str(caught.value)
    assert complaint in text
    (line,) = [line for line in text.splitlines() if complaint in line and "Error: " in line]
    assert re.match(r"waltz\.[a-z.]+\.[A-Za-z]+Error: ", line)


# Columns and filters


def test_a_schema_given_by_the_user(spark: SparkSession, cluster: Cluster) -> None:
    frame = read(spark, cluster, FULL, "data binary, header int")
    assert frame.columns == ["data", "header"]
    assert sorted((row["header"], bytes(row["data"])) for row in frame.collect()) == [
        (number, b"%d" % number) for number in range(COUNT)
    ]


# Nodes that die


def test_a_storage_is_killed_during_a_read(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The read is held at its first record, long before its end, until the storage that it reads from is dead."""
    count, filler = 20_000, "x" * 200
    documents = [json.dumps({"number": number, "filler": filler}).encode() for number in range(1, count)]
    cluster.append(GATED, [json.dumps({"number": 0, "gate": str(tmp_path)}).encode(), *documents])
    victim = cluster.first_replica()

    def kill() -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "reached").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        cluster.local.kill(victim)
        (tmp_path / "open").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        frame = read(
            spark,
            cluster,
            GATED,
            payloadFormat="tests.spark.parsers:gated",
            payloadSchema="number int",
            columns="transaction_id",
            fetchSize="500",
        )
        rows = sorted((row["transaction_id"], row["number"]) for row in frame.collect())
    finally:
        killer.join()
        cluster.local.start_storage(victim)
    assert rows == [(number, number) for number in range(count)]


class Stream:
    """From one partition into JSON files, with a checkpoint."""

    def __init__(self, spark: SparkSession, cluster: Cluster, directory: Path, partition_id: int) -> None:
        self._spark = spark
        self._options = {**cluster.options, "partitions": str(partition_id), "startingOffsets": "earliest"}
        self._directory = directory

    def start(self, *, available_now: bool, **more: str) -> StreamingQuery:
        frame = self._spark.readStream.format("waltz").options(**self._options | more).load()
        writer = (
            frame.selectExpr("transaction_id", "cast(data as string) data")
            .writeStream.format("json")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="100 milliseconds").start()

    def rows(self) -> list[tuple[int, str]]:
        frame = self._spark.read.schema("transaction_id long, data string").json(str(self._directory / "out"))
        return sorted((row["transaction_id"], row["data"]) for row in frame.collect())

    def until(self, query: StreamingQuery, count: int) -> None:
        """Wait until so many rows have arrived, or too long."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(self.rows()) < count and time.monotonic() < deadline_s:
            query.processAllAvailable()


def texts(first: int, count: int) -> list[bytes]:
    return [b"text %d" % number for number in range(first, first + count)]


def expected_rows(count: int) -> list[tuple[int, str]]:
    return [(number, f"text {number}") for number in range(count)]


@pytest.mark.deep
def test_the_server_is_killed_under_a_stream_that_is_restarted(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Available now, then from the checkpoint as a running query whose server dies, then available now again."""
    stream = Stream(spark, cluster, tmp_path, STREAMED)
    cluster.append(STREAMED, texts(0, 200))
    query = stream.start(available_now=True, maxOffsetsPerTrigger="80")
    assert query.awaitTermination(int(TIMEOUT_S))
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [80, 80, 40]
    assert stream.rows() == expected_rows(200)
    cluster.append(STREAMED, texts(200, 50))
    query = stream.start(available_now=False)
    try:
        stream.until(query, 250)
        owner = cluster.owner(STREAMED)
        cluster.local.kill(owner)
        cluster.append(STREAMED, texts(250, 50))
        stream.until(query, 300)
        assert query.exception() is None
        assert query.isActive
    finally:
        query.stop()
    cluster.local.start_server(owner)
    assert stream.rows() == expected_rows(300)
    cluster.append(STREAMED, texts(300, 10))
    assert stream.start(available_now=True).awaitTermination(int(TIMEOUT_S))
    assert stream.rows() == expected_rows(310)


# Damage, and what was never committed


def flip(path: Path, text: bytes) -> None:
    """Damage the one place where a file holds a text."""
    content = path.read_bytes()
    assert content.count(text) == 1
    with path.open("r+b") as file:
        file.seek(content.index(text))
        file.write(text.swapcase())


def restart_servers(cluster: Cluster) -> None:
    """So that nothing is in their caches."""
    for node in cluster.local.layout.servers:
        cluster.local.terminate(node)
    for node in cluster.local.layout.servers:
        cluster.local.start_server(node)


@pytest.mark.deep
def test_a_damaged_record_is_read_elsewhere_or_named(spark: SparkSession, cluster: Cluster) -> None:
    cluster.append(DAMAGED, texts(0, 40))
    restart_servers(cluster)
    cluster.until_all_hold(DAMAGED, 40)
    assert payloads(read(spark, cluster, DAMAGED)) == texts(0, 40)
    first = cluster.first_replica()
    flip(cluster.segments(first, DAMAGED)[0], b"text 17")
    assert payloads(read(spark, cluster, DAMAGED)) == texts(0, 40)
    for node in cluster.local.layout.storages:
        if node is not first:
            flip(cluster.segments(node, DAMAGED)[0], b"text 17")
    with pytest.raises(PySparkException) as caught:
        read(spark, cluster, DAMAGED).collect()
    text = str(caught.value)
    assert f"ReplicaReadError: partition {DAMAGED}, transactions 0 to 39: no replica delivers transaction" in text
    for node in cluster.local.layout.storages:
        assert re.search(rf"{node.connect_string}: [^;]*\b17\b", text), text
    assert payloads(read(spark, cluster, DAMAGED, endingOffsets=f'{{"{DAMAGED}": 17}}')) == texts(0, 17)


@pytest.mark.deep
def test_a_dirty_tail_is_never_read(spark: SparkSession, cluster: Cluster) -> None:
    """One storage has records of a server that died before their commit; others were committed in their place."""
    cluster.append(DIRTY, texts(0, 30))
    cluster.until_all_hold(DIRTY, 30)
    dirty, *_ = cluster.local.layout.storages
    for node in cluster.local.layout.servers:
        cluster.local.kill(node)
    cluster.append_to(dirty, DIRTY, 30, [b"never committed"] * 20)
    cluster.local.kill(dirty)
    assert any(b"never committed" in path.read_bytes() for path in cluster.segments(dirty, DIRTY))
    for node in cluster.local.layout.servers:
        cluster.local.start_server(node)
    cluster.append(DIRTY, texts(30, 30), one_by_one=True)
    assert payloads(read(spark, cluster, DIRTY, minPartitions="6")) == texts(0, 60)
    cluster.local.start_storage(dirty)
    deadline_s = time.monotonic() + TIMEOUT_S
    for attempt in itertools.count():  # while the storage comes back, is truncated and catches up, and behind that
        assert payloads(read(spark, cluster, DIRTY, minPartitions="6")) == texts(0, 60)
        clean = not any(b"never committed" in path.read_bytes() for path in cluster.segments(dirty, DIRTY))
        if clean and attempt:
            break
        assert time.monotonic() < deadline_s
