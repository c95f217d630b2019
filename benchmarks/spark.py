"""Reading the log into Spark: batches and streams, beside a source that makes its rows out of nothing.

    python -m benchmarks.spark [--records 1000000] [--size 200] [--partitions 4] [--rounds 5] [--batch-rows 250000]
                               [--tls] [--no-log] [--no-stream] [--no-tables]

A local cluster of three storages is filled, then read in ``local[2]``: ``sum(length(data))`` as a batch, and as a
stream whose micro-batches have ``--batch-rows`` rows. Each round runs the log and the null source one after the
other, so that both see the same machine. The first round warms up and is not counted. Printed are the median and the
best round, and the CPU time that Spark (JVM and Python workers) and the storages spent per row. Tables have as many
rows of that size, with random keys of 16 bytes, each of which is written four times on the average: all versions and
the latest ones are read, with one row in each transaction, and with a hundred. In the end one split is read without
Spark, with several values of fetchSize, for the memory that it takes."""

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import uvloop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from benchmarks.cluster.processes import cpu_seconds
from waltz.asynchronous import connect
from waltz.client.builder import Append
from waltz.demo.analysis import spark_session
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT
from waltz.table.envelope import Batch, Row, encode
from waltz.table.face.configured import configure

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FILL_BATCH = 10_000
SPLIT_ROWS = 100_000
NULL_BATCH_ROWS = 10_000
FETCH_SIZES = (100, 1_000, 10_000, 100_000)
STREAM_TIMEOUT_S = 600
TABLE_BATCHES = (1, 100)
"""Rows of each transaction of the tables that are read."""
KEY_BYTES = 16
VERSIONS_PER_KEY = 4


# The null source


class NullReader(DataSourceReader):
    """Rows of an id and a payload that is always the same: what remains is Spark's own share."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows, self._size = rows, size

    def partitions(self) -> list[InputPartition]:
        return splits(0, self._rows)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return null_batches(partition, self._size)


class NullStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as a stream."""

    def __init__(self, rows: int, size: int, batch_rows: int) -> None:
        self._rows, self._size, self._batch_rows = rows, size, batch_rows

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._batch_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(start["row"] + self._batch_rows, self._rows)}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return splits(start["row"], end["row"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return null_batches(partition, self._size)


def splits(first: int, last: int) -> list[InputPartition]:
    return [InputPartition((at, min(at + SPLIT_ROWS, last))) for at in range(first, last, SPLIT_ROWS)]


def null_batches(partition: InputPartition, size: int) -> Iterator[Any]:
    import pyarrow as pa

    schema = pa.schema([pa.field("transaction_id", pa.int64(), False), pa.field("data", pa.binary(), False)])
    first, last = partition.value
    for at in range(first, last, NULL_BATCH_ROWS):
        ids = pa.array(range(at, min(at + NULL_BATCH_ROWS, last)), type=pa.int64())
        data = pa.array([b"x" * size] * len(ids), type=pa.binary())
        yield pa.RecordBatch.from_arrays([ids, data], schema=schema)


NULL_SCHEMA = "transaction_id long not null, data binary not null"


class NullSource(DataSource):
    """``format("null")`` with options rows, size and batchRows."""

    @classmethod
    def name(cls) -> str:
        return "null"

    def schema(self) -> str:
        return NULL_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return NullReader(*(int(self.options[name]) for name in ("rows", "size")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NullStreamReader(*(int(self.options[name]) for name in ("rows", "size", "batchRows")))


# Measuring


class Cost(NamedTuple):
    """What one run took."""

    rows: int
    seconds: float
    spark_s: float
    storages_s: float


class Meter:
    """CPU time of Spark's processes and of the storages."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._storages = [pid for name, pid in cluster.processes().items() if name.startswith("storage")]

    def measure(self, run: Callable[[], tuple[int, float | None]]) -> Cost:
        """Run; it returns its rows, and the seconds if they are not those that it took."""
        storages, spark, started = self._storages_s(), self._spark_s(), time.perf_counter()
        rows, seconds = run()
        taken = time.perf_counter() - started
        return Cost(rows, seconds or taken, self._spark_s() - spark, self._storages_s() - storages)

    def _storages_s(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._storages)

    def _spark_s(self) -> float:
        """The JVM and all below it; workers that have ended are in their parents' accounts."""
        children: dict[int, list[int]] = {}
        fields: dict[int, list[str]] = {}
        for entry in Path("/proc").iterdir():
            try:
                stat = (entry / "stat").read_text()
            except (OSError, ValueError):
                continue
            if entry.name.isdigit():
                fields[int(entry.name)] = stat.rpartition(")")[2].split()
                children.setdefault(int(fields[int(entry.name)][1]), []).append(int(entry.name))
        found, total = [pid for pid in children.get(os.getpid(), []) if _is_java(pid)], 0.0
        while found:
            pid = found.pop()
            found += children.get(pid, [])
            total += sum(int(ticks) for ticks in fields[pid][11:15]) / TICKS_PER_S
        return total


def _is_java(process_id: int) -> bool:
    try:
        return "java" in Path(f"/proc/{process_id}/cmdline").read_text().split("\0")[0]
    except OSError:
        return False


def report(name: str, costs: Sequence[Cost]) -> None:
    """One line of the result."""
    rates = [cost.rows / cost.seconds for cost in costs]
    rows = sum(cost.rows for cost in costs)
    spark_us, storages_us = (sum(getattr(cost, kind) for cost in costs) / rows * 1e6 for kind in Cost._fields[2:])
    print(
        f"{name:<28}{statistics.median(rates):>12,.0f} rows/s (best {max(rates):,.0f}); "
        f"CPU per row: Spark {spark_us:.2f} µs, storages {storages_us:.2f} µs",
        flush=True,
    )


# What is measured


class Bench:
    """A filled cluster and a Spark session."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, options: argparse.Namespace) -> None:
        self._spark = spark
        self._rows: int = options.records
        self._size: int = options.size
        self._batch_rows: int = options.batch_rows
        self._rounds: int = options.rounds
        self._meter = Meter(cluster)
        self._null = {"rows": str(self._rows), "size": str(self._size), "batchRows": str(self._batch_rows)}
        self._partitions: int = options.partitions
        self._cluster = log_options(cluster)
        self._waltz = {**self._cluster, "partitions": f"0-{self._partitions - 1}"}

    def batches(self) -> None:
        """The same question to all sources."""
        runs = {
            "batch, null source": self._batch("null", self._null),
            "batch, log, all columns": self._batch("waltz", self._waltz),
            "batch, log, columns=data": self._batch("waltz", {**self._waltz, "columns": "data"}),
        }
        self._compare(runs)

    def tables(self, keys: Mapping[int, int]) -> None:
        """Tables beside the log itself; ``keys``: how many there are, by the rows of a transaction."""
        size = self._size - KEY_BYTES
        runs = {"log, all columns": self._batch("waltz", self._waltz)}
        for place, batch in enumerate(TABLE_BATCHES, 1):
            first = place * self._partitions
            options = {**self._cluster, "partitions": f"{first}-{first + self._partitions - 1}"}
            name = f"table of {batch}, "
            every = {**options, "versions": "all"}
            runs[name + "all versions"] = self._batch("waltz-table", every, "value", self._rows * size)
            runs[name + "latest"] = self._batch("waltz-table", options, "value", keys[batch] * size)
        self._compare(runs)

    def streams(self) -> None:
        """From the first transaction to the last, in micro-batches."""
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(self._batch_rows)}
        runs = {
            "stream, null source": self._stream("null", self._null),
            "stream, log, all columns": self._stream("waltz", {**self._waltz, **limits}),
        }
        self._compare(runs)

    def _compare(self, runs: Mapping[str, Callable[[], tuple[int, float | None]]]) -> None:
        costs: dict[str, list[Cost]] = {name: [] for name in runs}
        for _ in range(self._rounds + 1):
            for name, run in runs.items():
                costs[name].append(self._meter.measure(run))
        for name, measured in costs.items():
            report(name, measured[1:])

    def _batch(
        self, kind: str, options: Mapping[str, str], column: str = "data", expected: int | None = None
    ) -> Callable[[], tuple[int, float | None]]:
        """``expected``: bytes of the column, if not those of all records. Rates are of the rows of the log."""

        def run() -> tuple[int, float | None]:
            frame = self._spark.read.format(kind).options(**options).load()
            self._check(total(frame, column), expected)
            return self._rows, None

        return run

    def _stream(self, kind: str, options: Mapping[str, str]) -> Callable[[], tuple[int, float | None]]:
        """Counted are the micro-batches behind the first, which a query needs to start."""
        sums: list[int] = []

        def add(frame: DataFrame, _: int) -> None:
            sums.append(total(frame))

        def run() -> tuple[int, float | None]:
            sums.clear()
            with tempfile.TemporaryDirectory() as checkpoint:
                query = (
                    self._spark.readStream.format(kind)
                    .options(**options)
                    .load()
                    .writeStream.foreachBatch(add)
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                assert query.awaitTermination(STREAM_TIMEOUT_S)
            self._check(sum(sums))
            counted = [progress for progress in query.recentProgress if progress.numInputRows][1:]
            rows = sum(progress.numInputRows for progress in counted)
            return rows, sum(progress.durationMs["triggerExecution"] for progress in counted) / 1000

        return run

    def _check(self, found: int, expected: int | None = None) -> None:
        expected = self._rows * self._size if expected is None else expected
        assert found == expected, f"{found} bytes of payload, not {expected}"


def total(frame: DataFrame, column: str = "data") -> int:
    """Bytes of all payloads, or values."""
    (row,) = frame.agg(f.sum(f.length(column))).collect()
    found: int = row[0]
    return found


def log_options(cluster: LocalCluster) -> dict[str, str]:
    """The options of the data source that name the cluster."""
    return {
        "zookeeper": cluster.layout.zookeeper_connect_string,
        "clusterRoot": ROOT,
        "tls.plaintext": str(cluster.layout.plaintext).lower(),
    }


async def fill(cluster: LocalCluster, options: argparse.Namespace) -> float:
    """Append the records to all partitions in turn; seconds that it took."""
    started = time.perf_counter()
    async with connect(cluster.layout.client_config_path) as client:
        for number in range(0, options.records, FILL_BATCH):
            count = min(FILL_BATCH, options.records - number)
            items = [Append(os.urandom(options.size), at) for at in range(number, number + count)]
            await client.append_many((number // FILL_BATCH) % options.partitions, items)
    return time.perf_counter() - started


async def fill_tables(cluster: LocalCluster, options: argparse.Namespace) -> dict[int, int]:
    """Write the rows of the tables; how many keys there are, by the rows of a transaction."""
    keys = {}
    async with connect(cluster.layout.client_config_path) as client:
        for place, batch in enumerate(TABLE_BATCHES, 1):
            partition_ids = range(place * options.partitions, (place + 1) * options.partitions)
            for partition_id in partition_ids:
                await configure(client, partition_id, {"format": "table"})
            written: set[tuple[int, bytes]] = set()
            chance = random.Random(batch)
            for number in range(0, options.records, FILL_BATCH):
                partition_id = partition_ids[(number // FILL_BATCH) % options.partitions]
                rows = table_rows(chance, min(FILL_BATCH, options.records - number), options)
                written.update((partition_id, row.key) for row in rows)
                batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
                items = [Append(encode(Batch(number, some)), 0) for some in batches]
                await client.append_many(partition_id, items)
            keys[batch] = len(written)
    return keys


def table_rows(chance: random.Random, count: int, options: argparse.Namespace) -> list[Row]:
    """Rows of random keys and values, which together have the size of a record."""
    among = max(1, options.records // VERSIONS_PER_KEY)
    return [
        Row(b"", chance.randrange(among).to_bytes(KEY_BYTES, "big"), os.urandom(options.size - KEY_BYTES))
        for _ in range(count)
    ]


# Memory of a split, each in a process of its own

_READ_ONE_SPLIT = """
import asyncio, json, resource, sys
from pyspark.sql.types import StructType
from waltz.spark import batch, planning
from waltz.spark.columns import SCHEMA
from waltz.spark.options import parse_options
options = parse_options(json.loads(sys.argv[1]))
split = asyncio.run(planning.plan(options))[0]
def peak_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
def reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
first = split._replace(range=split.range._replace(end=split.range.start + 1))
sum(found.num_rows for found in batch.read_split(options, SCHEMA, first))
reset()
before = peak_kib()
rows = sum(found.num_rows for found in batch.read_split(options, SCHEMA, split))
print(f"{rows:,} rows: {(peak_kib() - before) / 1024:.1f} MiB")
"""


def memory(cluster: LocalCluster) -> None:
    """Print what one split takes beyond what the process has anyway."""
    import json

    for fetch_size in FETCH_SIZES:
        options = {**log_options(cluster), "fetchSize": str(fetch_size), "partitions": "0"}
        command = [sys.executable, "-c", _READ_ONE_SPLIT, json.dumps(options)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        print(f"memory of a split, fetchSize {fetch_size:>7,}: {found}", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of data per transaction")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-rows", type=int, default=250_000, help="rows of a micro-batch")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--no-log", action="store_true")
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--no-tables", action="store_true")
    parser.add_argument("--directory", type=Path, help="where the storages write (default: a temporary directory)")
    options = parser.parse_args()
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"{len(os.sched_getaffinity(0))} cores, load {load}, Python {platform.python_version()}, "
        f"PySpark {pyspark.__version__}, {'TLS' if options.tls else 'plaintext'}"
    )
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        LocalCluster(
            Path(directory),
            servers=1,
            partitions=options.partitions * (1 + len(TABLE_BATCHES)),
            plaintext=not options.tls,
        ) as cluster,
    ):
        seconds = uvloop.run(fill(cluster, options))
        print(f"{options.records:,} records of {options.size} B appended at {options.records / seconds:,.0f}/s")
        keys = {} if options.no_tables else uvloop.run(fill_tables(cluster, options))
        spark = spark_session()
        try:
            spark.dataSource.register(NullSource)
            bench = Bench(spark, cluster, options)
            if not options.no_log:
                bench.batches()
            if not options.no_stream:
                bench.streams()
            if not options.no_tables:
                bench.tables(keys)
        finally:
            spark.stop()
        memory(cluster)


if __name__ == "__main__":
    main()
