"""Tables in a real Spark session, on a real cluster, beside the views that the client has of the same logs."""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.query import StreamingQuery

import waltz
from tests.spark.conftest import deep
from waltz.common.keys import place_of
from waltz.common.polling import poll_until
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT
from waltz.table import KeyRange, PartitionedTable, Row, TableRow
from waltz.table.face.locks import row_lock

DOCS, DOCS_TOO, HISTORY, AGES, TIMES, STREAMED, LEFT, RIGHT, WRITTEN, KILLED, SAVED, RAW = range(12)
"""Partitions, one or two for each kind of test."""

PAGE = Path(__file__).parents[2] / "docs" / "spark-tables.md"

TIMEOUT_S = 300


class Tables:
    """A cluster whose partitions are tables, all but one."""

    def __init__(self, local: LocalCluster) -> None:
        self._local = local
        self.options = {"zookeeper": local.layout.zookeeper_connect_string, "clusterRoot": ROOT}

    def do(self, work: Callable[[waltz.Client], Awaitable[object]]) -> None:
        """Something with a client."""

        async def run() -> None:
            async with waltz.connect(self._local.layout.client_config_path) as client:
                await work(client)

        asyncio.run(run())

    def scan(self, *partition_ids: int, raw: bool = False) -> list[TableRow]:
        """What the client's own view shows, in order."""
        found: list[TableRow] = []

        async def work(client: waltz.Client) -> None:
            async with PartitionedTable(client, partition_ids) as table:
                found.extend([row async for row in table.scan(raw=raw, fresh=True)])

        self.do(work)
        return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with LocalCluster(tmp_path_factory.mktemp("tables"), partitions=RAW + 1) as local:
        found = Tables(local)

        async def configure(client: waltz.Client) -> None:
            for partition_id in range(RAW):
                await waltz.table.configure(client, partition_id, {"format": "table"})

        found.do(configure)
        yield found


def read(spark: SparkSession, tables: Tables, partitions: object, schema: str | None = None, **more: str) -> DataFrame:
    reader = spark.read.format("waltz-table").options(**tables.options, partitions=str(partitions), **more)
    return (reader if schema is None else reader.schema(schema)).load()


def as_seen(row: SparkRow) -> tuple[object, ...]:
    """A row as :func:`as_read` has it."""
    return tuple(bytes(value) if isinstance(value, bytearray) else value for value in row[1:])


def as_read(row: TableRow) -> tuple[object, ...]:
    return (row.prefix, row.key, row.value, row.timestamp_ms, row.tombstone, *row.version)


def state(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((as_seen(row) for row in frame.collect()), key=lambda row: row[:2])


# Reading


class History:
    """A random history of one partition, and what a view showed at some places of it."""

    def __init__(self) -> None:
        self.seen: dict[int, list[TableRow]] = {}
        self.raw: dict[int, list[TableRow]] = {}
        self.taken: list[TableRow] = []

    async def make(self, client: waltz.Client) -> None:
        chance = random.Random(7)
        await waltz.table.configure(client, HISTORY, {"tombstoneTimestampAgeInMillis": 500})
        async with client.table(HISTORY) as table:
            for number in range(60):
                kind = chance.random()
                if kind < 0.05:
                    last = await table.truncate()
                elif kind < 0.12:
                    swept = await table.sweep()
                    assert swept is not None
                    last = swept
                elif kind < 0.2:
                    last = await client.append(HISTORY, b"of somebody else")
                else:
                    await waltz.table.configure(client, HISTORY, {"rowType": chance.choice(("primary", "zlib"))})
                    last = await table.batch([self._row(chance) for _ in range(chance.choice((1, 3, 40)))])
                if number % 20 == 19:
                    self.seen[last] = [row async for row in table.scan(fresh=True)]
                    self.raw[last] = [row async for row in table.scan(raw=True, fresh=True)]
            self.taken = (await table.take(-1, 10**6)).rows

    @staticmethod
    def _row(chance: random.Random) -> Row:
        prefix, key = chance.choice((b"", b"a", b"b\x00")), b"%d" % chance.randrange(30)
        timestamp_ms = chance.choice((None, chance.randrange(1, 2000)))
        if chance.random() < 0.25:
            return Row(prefix, key, None, timestamp_ms, tombstone=True)
        return Row(prefix, key, chance.choice((None, b"", b"v%d" % chance.randrange(1000))), timestamp_ms)


@pytest.fixture(scope="module")
def history(tables: Tables) -> History:
    found = History()
    tables.do(found.make)
    return found


def test_the_state_as_of_a_transaction_is_that_of_a_view(spark: SparkSession, tables: Tables, history: History) -> None:
    """No register call: the format is found by the package pyspark_waltz_table."""
    assert len(history.seen) == 3
    for transaction_id, rows in history.seen.items():
        frame = read(spark, tables, HISTORY, asOf=str(transaction_id))
        assert state(frame) == list(map(as_read, rows)), transaction_id
        raw = read(spark, tables, HISTORY, asOf=f'{{"{HISTORY}": {transaction_id}}}', raw="true")
        assert state(raw) == list(map(as_read, history.raw[transaction_id])), transaction_id
    assert state(read(spark, tables, HISTORY)) == list(map(as_read, tables.scan(HISTORY)))
    assert any(row.tombstone for rows in history.raw.values() for row in rows)


def test_all_versions_are_what_is_taken(spark: SparkSession, tables: Tables, history: History) -> None:
    frame = read(spark, tables, HISTORY, versions="all", maxRowsPerSplit="9")
    assert frame.rdd.getNumPartitions() > 4
    rows = sorted(map(as_seen, frame.collect()), key=lambda row: row[-2:])
    assert rows == list(map(as_read, history.taken))
    some = read(
        spark,
        tables,
        HISTORY,
        versions="all",
        startingOffsets=f'{{"{HISTORY}": 20}}',
        endingOffsets=f'{{"{HISTORY}": 40}}',
    )
    expected = [as_read(row) for row in history.taken if 20 <= row.version.transaction_id < 40]
    assert sorted(map(as_seen, some.collect()), key=lambda row: row[-2:]) == expected


def test_the_state_and_the_versions_by_time(spark: SparkSession, tables: Tables) -> None:
    entered: list[tuple[int, datetime]] = []

    async def write(client: waltz.Client) -> None:
        async with client.table(TIMES) as table:
            for value in (b"old", b"new"):
                written = await table.put(b"k", value)

                async def time_of(written: int = written) -> datetime | None:
                    return await client.time_of(TIMES, written)

                deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S
                at = await poll_until(
                    time_of, lambda found: found is not None, deadline_s=deadline_s, next_delay_s=lambda: 0.1
                )
                assert at is not None
                entered.append((written, at))

    tables.do(write)
    (old, old_at), (new, new_at) = ((each, at.isoformat()) for each, at in entered)
    for at, transaction_id, value in ((old_at, old, b"old"), (new_at, new, b"new")):
        (row,) = read(spark, tables, TIMES, asOfTimestamp=at).collect()
        assert (bytes(row.value), row.transaction_id) == (value, transaction_id)
    between = read(spark, tables, TIMES, versions="all", startingTimestamp=old_at, endingTimestamp=new_at)
    assert [row.transaction_id for row in between.collect()] == [new]


def test_columns_may_be_chosen_and_be_text(spark: SparkSession, tables: Tables, history: History) -> None:
    frame = read(spark, tables, HISTORY, "key string, value string, row int")
    expected = [(row.key.decode(), None if row.value is None else row.value.decode(), row.version.row)
                for row in tables.scan(HISTORY)]  # fmt: skip
    assert sorted(map(tuple, frame.collect()), key=repr) == sorted(expected, key=repr)
    assert read(spark, tables, HISTORY, columns="timestamp,key").columns == ["timestamp", "key"]
    assert history.taken


def test_rows_are_hidden_by_one_clock(spark: SparkSession, tables: Tables) -> None:
    async def work(client: waltz.Client) -> None:
        await waltz.table.configure(client, AGES, {"ttlTimestampAgeInMillis": 100})
        async with client.table(AGES) as table:
            await table.put(b"old", b"", timestamp_ms=1000)
            await table.put(b"young", b"", timestamp_ms=1001)

    tables.do(work)

    def keys(**options: str) -> list[str]:
        rows = read(spark, tables, AGES, "key string", **options).collect()
        return sorted(row["key"] for row in rows)

    assert keys(nowMs="1099") == ["old", "young"]
    assert keys(nowMs="1100") == ["young"]
    assert keys(nowMs="1101") == keys() == []
    assert keys(raw="true") == ["old", "young"]


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (
            {"prefix": "b\0", "startKey": "1", "endKey": "2"},
            "prefix = X'6200' and key >= binary('1') and key < binary('2')",
        ),
        ({"prefix": ""}, "prefix = X''"),
        ({"startKey": "2"}, "key >= binary('2')"),
    ],
)
@pytest.mark.parametrize("versions", ["latest", "all"])
def test_rows_of_some_keys(
    spark: SparkSession, tables: Tables, history: History, options: dict[str, str], condition: str, versions: str
) -> None:
    every = read(spark, tables, HISTORY, versions=versions)
    expected = every.where(condition).collect()
    found = read(spark, tables, HISTORY, versions=versions, **options).collect()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert 0 < len(expected) < every.count()
    assert history.taken


@pytest.mark.parametrize(
    ("versions", "allowed"),
    [
        ("latest", "true"),
        deep("latest", "false"),
        ("all", "true"),
        deep("all", "false"),
    ],
)
def test_a_frame_may_be_used_more_than_once(
    spark: SparkSession, tables: Tables, history: History, versions: str, allowed: str
) -> None:
    """Whatever filters its uses have, also where Spark may push filters into sources."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, allowed)
    try:
        table = read(spark, tables, HISTORY, versions=versions)
        rows = table.collect()
        ones, twos = ([row for row in rows if bytes(row["key"]) == key] for key in (b"1", b"2"))
        assert history.taken
        assert ones
        assert twos
        one, two = table.where("key = binary('1')"), table.where("key = binary('2')")
        assert [table.count(), one.count(), table.count()] == [len(rows), len(ones), len(rows)]
        assert {bytes(row[0]): row[1] for row in one.union(two).groupBy("key").count().collect()} == {
            b"1": len(ones),
            b"2": len(twos),
        }
        pairs = sum(left["prefix"] == right["prefix"] for left in ones for right in twos)
        assert one.alias("a").join(two.alias("b"), on="prefix").count() == pairs
    finally:
        spark.conf.unset(name)


# Streams


class Pipeline:
    """Changes of one table into JSON files, with a checkpoint."""

    def __init__(self, spark: SparkSession, tables: Tables, directory: Path, partition_id: int) -> None:
        self._spark = spark
        self._options = {**tables.options, "partitions": str(partition_id)}
        self._directory = directory

    def run(self, **options: str) -> None:
        frame = self._spark.readStream.format("waltz-table").options(**self._options | options).load()
        query: StreamingQuery = (
            frame.selectExpr(
                "transaction_id", "row", "cast(key as string) key", "cast(value as string) value", "tombstone"
            )
            .writeStream.format("json")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    def rows(self) -> list[tuple[object, ...]]:
        schema = "transaction_id long, row int, key string, value string, tombstone boolean"
        frame = self._spark.read.schema(schema).json(str(self._directory / "out"))
        return sorted(map(tuple, frame.collect()))


def test_a_stream_has_every_change_once(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    pipeline = Pipeline(spark, tables, tmp_path, STREAMED)

    async def change(client: waltz.Client) -> None:
        async with client.table(STREAMED) as table:
            await table.put(b"k", b"1")
            await table.batch([Row(b"", b"k", b"2"), Row(b"", b"l", None, None, True)])
            await client.append(STREAMED, b"of somebody else")
            await table.truncate()

    tables.do(change)
    pipeline.run(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    expected = [(0, 0, "k", "1", False), (1, 0, "k", "2", False), (1, 1, "l", None, True)]
    assert pipeline.rows() == expected
    tables.do(change)
    pipeline.run()
    later = [(transaction_id + 4, *rest) for transaction_id, *rest in expected]
    assert pipeline.rows() == [*expected, *later]


# The sink


def write(frame: DataFrame, tables: Tables, **options: str) -> None:
    frame.write.format("waltz-table").options(**tables.options | options).mode("append").save()


def test_rows_are_where_the_client_looks_for_them(spark: SparkSession, tables: Tables) -> None:
    where = f"{RIGHT},{LEFT}"
    rows = spark.range(2500).selectExpr("'people' prefix", "cast(id as string) key", "concat('v', id) value")
    write(rows, tables, partitions=where)
    write(rows.where("key % 5 = 0").selectExpr("prefix", "key", "'delete' operation"), tables, partitions=where)
    found: list[TableRow] = []

    async def look(client: waltz.Client) -> None:
        async with PartitionedTable(client, [RIGHT, LEFT]) as table:
            found.extend([row async for row in table.scan(KeyRange(b"people"), fresh=True)])
            one, gone = await table.get([b"7", b"5"], prefix=b"people")
            assert one is not None
            assert one.value == b"v7"
            assert gone is None
            where = [RIGHT, LEFT][place_of(b"7", 2)]
            await client.append(where, b"", read_locks=[row_lock(b"people", b"another")], high_water_mark=-1)
            with pytest.raises(waltz.LockConflict):  # so does a transaction that has read the row before
                await client.append(where, b"", read_locks=[row_lock(b"people", b"7")], high_water_mark=-1)

    tables.do(look)
    assert len(found) == 2000
    frame = read(spark, tables, f"{LEFT}-{RIGHT}")
    assert frame.count() == 2000
    assert frame.select("partition").distinct().count() == 2
    versions = read(spark, tables, f"{LEFT}-{RIGHT}", versions="all")
    assert versions.count() == 3000
    assert versions.select("partition", "transaction_id").distinct().count() < 20


def test_what_was_read_can_be_written(spark: SparkSession, tables: Tables) -> None:
    """Timestamps and tombstones included: what is written over newer rows loses."""

    async def work(client: waltz.Client) -> None:
        async with client.table(WRITTEN) as table:
            await table.put(b"a", b"new", timestamp_ms=20)
            await table.delete(b"b", timestamp_ms=20)
            await table.put(b"c", b"", timestamp_ms=5)

    tables.do(work)
    before = tables.scan(WRITTEN, raw=True)
    write(read(spark, tables, WRITTEN, raw="true"), tables)
    changed = "partition", "prefix", "key", "value", "timestamp - 10 + 5 * (timestamp % 10) timestamp", "tombstone"
    write(read(spark, tables, WRITTEN, raw="true").selectExpr(*changed), tables)
    after = tables.scan(WRITTEN, raw=True)
    assert [row[:4] for row in after] == [*(row[:4] for row in before[:2]), (b"", b"c", b"", 20)]
    assert [row.version.transaction_id for row in after] > [row.version.transaction_id for row in before]


class Stream:
    """Files into a table, with a staging directory."""

    def __init__(self, spark: SparkSession, tables: Tables, directory: Path) -> None:
        self._spark = spark
        self._options = {**tables.options, "partitions": str(WRITTEN), "stagingPath": str(directory / "staging")}
        self._directory = directory

    def add(self, first: int) -> None:
        rows = self._spark.range(first, first + 100).selectExpr("'s' prefix", "cast(id as string) key", "'v' value")
        rows.coalesce(1).write.mode("append").json(str(self._directory / "in"))

    def run(self) -> None:
        source = self._spark.readStream.schema("prefix string, key string, value string")
        query = (
            source.option("maxFilesPerTrigger", "1")
            .json(str(self._directory / "in"))
            .writeStream.format("waltz-table")
            .options(**self._options)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    def forget(self, epoch: int, *, done: bool) -> None:
        """As if Spark had died before it noted a commit, or the sink before it noted that all rows were there."""
        for name in (f"{epoch}", f".{epoch}.crc"):
            (self._directory / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        if done:
            (app,) = (self._directory / "staging").iterdir()
            (app / "done" / str(epoch)).unlink()


def test_a_stream_writes_everything_once(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    stream = Stream(spark, tables, tmp_path)

    def versions() -> list[tuple[bytes, int]]:
        frame = read(spark, tables, WRITTEN, "prefix string, key string", versions="all").where("prefix = 's'")
        keys = [row["key"] for row in frame.collect()]
        assert len(keys) == len(set(keys))
        return sorted(keys)

    stream.add(0)
    stream.run()
    stream.add(100)
    stream.run()
    assert len(versions()) == 200
    for done in (False, True):
        stream.forget(1, done=done)
        stream.run()
        assert len(versions()) == 200


_KILLED = """
import os, pickle, signal, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from waltz.spark import sink_log
from waltz.spark.table.source import WaltzTableDataSource
where, after, cluster = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
schema = StructType([StructField(name, BinaryType()) for name in ("key", "value")])
writer = WaltzTableDataSource(cluster).writer(schema, overwrite=False)
def die_after(count, what):
    def limited(*arguments):
        nonlocal count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return what(*arguments)
    return limited
def batches():
    for start in range(0, 3000, 500):
        keys = [b"%d" % number for number in range(start, start + 500)]
        yield pa.RecordBatch.from_pydict({"key": keys, "value": keys})
make = iter(batches())
if where == "task":
    tick = die_after(after, lambda: next(make))
    make = iter(lambda: tick() if after >= 0 else None, None)
messages = [writer.write(make)]
if where == "commit":
    sink_log.ClusterLog._append_items = die_after(after, sink_log.ClusterLog._append_items)
writer.commit(messages)
"""


def test_killed_tasks_and_killed_commits_leave_every_row_once(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    """The writer as Spark's worker and driver use it, killed while a task stages, and between the appends of a
    commit; then run again as Spark would."""
    options = {
        **tables.options,
        "partitions": str(KILLED),
        "stagingPath": str(tmp_path),
        "txnAppId": "killed",
        "txnVersion": "1",
        "maxRowsPerTransaction": "100",
    }

    def run(where: str, after: int) -> int:
        command = [sys.executable, "-c", _KILLED, where, str(after), repr(options)]
        return subprocess.run(command, timeout=TIMEOUT_S, check=False, env=os.environ).returncode

    assert run("task", 3) == -9
    assert run("commit", 1) == -9
    assert run("commit", 100) == 0
    assert run("commit", 100) == 0
    frame = read(spark, tables, KILLED, "key string", versions="all")
    assert sorted(int(row["key"]) for row in frame.collect()) == list(range(3000))


def test_the_examples_of_the_page(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """One after the other."""
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    namespace = {"spark": spark, "cluster": tables.options, "directory": str(tmp_path)}
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), namespace)
    users = {row.key: row.value for row in tables.scan(DOCS, DOCS_TOO) if row.prefix == b"users"}
    assert users == {b"ann": b"Ann B.", b"eve": b"Eve"}


# Snapshots


@pytest.mark.deep
def test_a_state_begins_with_a_snapshot(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """Before it, at it, and behind it; and what becomes of damaged ones."""
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}"
    raw: dict[int, list[TableRow]] = {}

    async def write(client: waltz.Client, transactions: int) -> int:
        """Write rows, and note what the view has after the last transaction."""
        chance = random.Random(len(raw))
        async with client.table(SAVED) as table:
            for number in range(transactions):
                last = await table.batch([History._row(chance) for _ in range(20)])
                if number == transactions // 2:
                    await table.truncate()
            raw[last] = [row async for row in table.scan(raw=True, fresh=True)]
            return last

    async def fill(client: waltz.Client) -> None:
        await write(client, 5)
        last = await write(client, 5)
        async with client.table(SAVED) as table:
            assert await table.save_snapshot(url) == last
        await write(client, 5)

    tables.do(fill)
    before, at, behind = sorted(raw)

    def seen(as_of: int, **options: str) -> list[tuple[object, ...]]:
        return state(read(spark, tables, SAVED, asOf=str(as_of), snapshots=url, raw="true", **options))

    for as_of, rows in raw.items():
        assert seen(as_of) == list(map(as_read, rows))
        assert seen(as_of, prefix="a") == [as_read(row) for row in rows if row.prefix == b"a"]
    assert state(read(spark, tables, SAVED, snapshots=url)) == list(map(as_read, tables.scan(SAVED)))
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert seen(before) == list(map(as_read, raw[before]))
    for as_of in (at, behind):
        with pytest.raises(PySparkException, match="is damaged: it does not match its checksum"):
            seen(as_of)
    (manifest,) = tmp_path.rglob(f"manifest/{at:019d}")
    manifest.write_bytes(b"nothing")
    assert seen(behind) == list(map(as_read, raw[behind]))


# What goes wrong


@pytest.mark.parametrize(
    ("partitions", "options", "complaint"),
    [
        (RAW, {}, f"partition {RAW} is not a table: its format is raw"),
        (HISTORY, {"asof": "-1"}, "option asOf: expected a transaction id from 0, found -1"),
        (HISTORY, {"asOf": "100000"}, f"option asOf: transaction 100000 is beyond partition {HISTORY}, whose last"),
        (HISTORY, {"version": "all"}, "unknown option 'version'; did you mean 'versions'?"),
    ],
)
def test_one_clear_error_of_reads(
    spark: SparkSession, tables: Tables, history: History, partitions: object, options: dict[str, str], complaint: str
) -> None:
    assert history.taken
    with pytest.raises(PySparkException) as caught:
        read(spark, tables, partitions, None, **options).collect()
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        (["'k' key", "'v' value"], {}, "which partitions is the table in? Give the option partitions"),
        (["'k' key", "'v' value"], {"partitions": str(RAW)}, f"partition {RAW} is not a table: its format is raw"),
        (["'k' keys", "'v' value"], {"partitions": "0"}, "column 'keys' would be lost"),
        (
            ["'k' key", "'v' value", "99 partition"],
            {},
            "a row has 99 in column 'partition'; it may be one of the tables",
        ),
        (["'k' key", "'v' value", "-1 timestamp"], {"partitions": "0"}, "a timestamp must be positive, not -1"),
    ],
)
def test_one_clear_error_of_writes(
    spark: SparkSession, tables: Tables, columns: Sequence[str], options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.range(1).selectExpr(*columns), tables, **options)
    assert complaint in str(caught.value)


def test_a_table_is_not_overwritten(spark: SparkSession, tables: Tables) -> None:
    rows = spark.range(1).selectExpr("'k' key", "'v' value")
    with pytest.raises(PySparkException, match="a log cannot be overwritten"):
        rows.write.format("waltz-table").options(**tables.options, partitions="0").mode("overwrite").save()
