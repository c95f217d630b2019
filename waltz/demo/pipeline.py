"""The pipeline: Structured Streaming follows the log and keeps running balances and hourly summaries in Parquet.

Half-way both queries are stopped at the worst moment, after the write of a micro-batch and before its commit, and
restarted from their checkpoints. At the end the Parquet files must equal the result of a batch over the whole log.

Every micro-batch writes the rows that it changed into a directory of its own, which a repeated micro-batch replaces:
that makes the tables exact although ``foreachBatch`` itself promises no more than "at least once".
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waltz.common.errors import WaltzError
from waltz.demo import analysis
from waltz.demo.progress import Sample, draw, samples
from waltz.local.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MICRO_BATCHES = 6
"""Approximate number of micro-batches that read the log."""
TIMEOUT_S = 300.0
POLL_INTERVAL_S = 0.05
PLOT = "pipeline.png"


class ResultTable(NamedTuple):
    """A result that is kept up to date: its query over the transfers, and the column that identifies a row."""

    name: str
    key: str
    made_of: Callable[["DataFrame"], "DataFrame"]


class PipelineOutcome(NamedTuple):
    """Result of the pipeline."""

    exact: bool
    """Whether both tables equal the result of the batch."""
    plot: Path | None
    """``None`` without matplotlib."""


class Halt:
    """The point at which a query is stopped.

    Its thread is held there. A query that is stopped while it writes is interrupted within a call to Python, which
    py4j and Spark report with their stacks as if it were a failure.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._written = threading.Event()
        self._stopped = threading.Event()

    def pass_by(self, epoch: int) -> None:
        """What the query's thread calls when it has written ``epoch``: ends when the query may go on."""
        if epoch == self._epoch:
            self._written.set()
            self._stopped.wait()

    def stop(self, query: "StreamingQuery", deadline_s: float) -> None:
        """Wait until the query is there, and stop it. Raises ``WaltzError`` when it fails or does not come."""
        while not self._written.wait(POLL_INTERVAL_S):
            _check(query, time.monotonic() < deadline_s)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(query.stop)  # it waits for the thread that is held
            while query.isActive and not stopping.done():
                time.sleep(POLL_INTERVAL_S)
            self.release()
            stopping.result()

    def release(self) -> None:
        """Hold no thread any longer."""
        self._stopped.set()


class Pipeline:
    """The queries over one log of ``transactions`` transfers, and their files in ``directory``.

    ``tell`` takes a line before each step that takes some time.
    """

    def __init__(
        self,
        spark: "SparkSession",
        cluster: LocalCluster,
        directory: Path,
        transactions: int,
        opening_cents: int,
        tell: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._directory = directory
        self._transactions = transactions
        self._tell = tell
        self._tables = (
            ResultTable("balances", "account", lambda transfers: analysis.balances(transfers, opening_cents)),
            ResultTable("hours", "hour", analysis.hours),
        )

    def run(self) -> PipelineOutcome:
        """Read the first half, stop, read the rest, compare. Raises ``WaltzError`` when a query fails."""
        found: dict[str, list[Sample]] = {table.name: [] for table in self._tables}
        self._tell("two streaming queries follow the log up to its half; each micro-batch costs Spark some seconds ...")
        self._collect(found, self._run_half_way())
        self._tell("stopped there, they go on from their checkpoints to the end of the log ...")
        second = [self._start(table, None) for table in self._tables]
        for query in second:
            _check(query, query.awaitTermination(int(TIMEOUT_S)))
        self._collect(found, second)
        self._tell("Spark reads the whole log once more, to compare ...")
        plot = self._directory / PLOT
        drawn = draw(found, plot)
        return PipelineOutcome(all(map(self._is_exact, self._tables)), plot if drawn else None)

    def table(self, name: str) -> "DataFrame":
        """A table as it stands in Parquet: of every row what the last micro-batch that changed it has written."""
        from pyspark.sql import functions as f

        (table,) = (table for table in self._tables if table.name == name)
        changes = self._spark.read.parquet(str(self._path(table)))
        values = [column for column in changes.columns if column not in (table.key, "epoch")]
        newest = f.max_by(f.struct(*values), "epoch").alias("newest")
        return changes.groupBy(table.key).agg(newest).select(table.key, "newest.*")

    def _start(self, table: ResultTable, halt: Halt | None) -> "StreamingQuery":
        """Start the query of a table: up to where it halts, or to the end of the log."""
        path = self._path(table)

        def write(changed: "DataFrame", epoch: int) -> None:
            changed.coalesce(1).write.mode("overwrite").parquet(f"{path}/epoch={epoch}")
            if halt is not None:
                halt.pass_by(epoch)

        transfers = (
            analysis.transfers(self._spark.readStream, self._cluster)
            .option("maxOffsetsPerTrigger", str(max(1, self._transactions // MICRO_BATCHES)))
            .load()
        )
        writer = (
            table.made_of(transfers)
            .writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", str(self._directory / "checkpoints" / table.name))
        )
        return (writer.trigger(availableNow=True) if halt is None else writer).start()

    def _path(self, table: ResultTable) -> Path:
        return self._directory / table.name

    def _run_half_way(self) -> Sequence["StreamingQuery"]:
        """Run the queries until each has written half of the log, and stop them there."""
        deadline_s = time.monotonic() + TIMEOUT_S
        half = max(1, min(MICRO_BATCHES, self._transactions) // 2)
        halts = [Halt(half - 1) for _ in self._tables]
        try:
            queries = [self._start(table, halt) for table, halt in zip(self._tables, halts, strict=True)]
            for query, halt in zip(queries, halts, strict=True):
                halt.stop(query, deadline_s)
        finally:
            for halt in halts:
                halt.release()
        return queries

    def _collect(self, found: dict[str, list[Sample]], queries: Sequence["StreamingQuery"]) -> None:
        for table, query in zip(self._tables, queries, strict=True):
            found[table.name] += samples(query.recentProgress, self._transactions)

    def _is_exact(self, table: ResultTable) -> bool:
        batch = table.made_of(analysis.transfers(self._spark.read, self._cluster).load())
        ours = self.table(table.name)
        return set(map(tuple, ours.collect())) == set(map(tuple, batch.select(ours.columns).collect()))


def _check(query: "StreamingQuery", in_time: bool | None) -> None:
    error = query.exception()
    if error is not None:
        raise WaltzError(f"the pipeline failed: {error}")
    if not in_time:
        raise WaltzError(f"the pipeline did not come to its end within {TIMEOUT_S:g} s")
