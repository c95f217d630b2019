"""The stream reader of transactions and of tables: offsets beside the driver, reading in Spark's workers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from waltz.common.loops import new_event_loop
from waltz.spark.options import RangeOptions
from waltz.spark.stream_planning import StreamPlanner

_T = TypeVar("_T")
_P = TypeVar("_P", bound=StreamPlanner)
_S = TypeVar("_S")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[_P, _S]):
    """Offsets are the next transaction id of every partition; see :mod:`waltz.spark.stream_offsets`.

    Spark pickles it for the workers, so connections, which only the driver needs, are opened at their first use.
    """

    def __init__(
        self,
        options: RangeOptions,
        make_planner: Callable[[], _P],
        splits: Callable[[_P, dict[str, Any], dict[str, Any]], Coroutine[Any, Any, list[_S]]],
        read: Callable[[_S], Iterator[pa.RecordBatch]],
    ) -> None:
        """``splits`` is the planner's method that splits one micro-batch; ``read`` yields the rows of a split."""
        self._limit = options.max_offsets_per_trigger
        self._make_planner = make_planner
        self._splits = splits
        self._read = read
        self._runner: asyncio.Runner | None = None
        self._planner: _P | None = None

    def initialOffset(self) -> dict[str, object]:
        """Where the stream begins without a checkpoint."""
        return self.run(self.planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of rows per micro-batch: the option ``maxOffsetsPerTrigger``."""
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:
        """Where the next micro-batch ends."""
        return self.run(self.planner.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only transactions that are committed now."""
        self.run(self.planner.freeze())

    def reportLatestOffset(self) -> dict[str, object] | None:
        """The newest offset that was seen, which Spark shows beside the offset that was read."""
        return self.planner.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition per split of a micro-batch."""
        return [InputPartition(split) for split in self.run(self._splits(self.planner, start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Where there is no data, Spark makes one partition without a value."""
        if partition.value is not None:
            yield from self._read(partition.value)

    def stop(self) -> None:
        """Close the connections. Spark does not always call this; nothing depends on it."""
        runner, self._runner = self._runner, None
        planner, self._planner = self._planner, None
        if runner is not None:
            if planner is not None:
                runner.run(planner.close())
            runner.close()

    @property
    def planner(self) -> _P:
        """The planner of micro-batches; exists beside the driver only."""
        if self._planner is None:
            self._planner = self._make_planner()
        return self._planner

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the planner to its end."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=new_event_loop)
        return self._runner.run(coroutine)
