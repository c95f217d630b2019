"""The sink: ``df.write`` and ``writeStream`` into the log.

With a staging directory tasks only stage rows, and the driver's side appends the epoch when Spark commits it, exactly
once (:mod:`waltz.spark.exactly_once`). Without one every task appends its rows at once, and a task that Spark repeats
appends its rows again: at least once.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from waltz.common.errors import ConfigError
from waltz.common.loops import new_event_loop
from waltz.spark.errors import SinkError
from waltz.spark.exactly_once import Contents, EpochAppender, NotAllAppendedError, pass_over, slices, whole
from waltz.spark.rows import Row, RowMaker
from waltz.spark.sink_log import ClusterLog, RowLocks, open_log, read_cluster
from waltz.spark.staging import LogIdentity, StagedFile, StagingArea
from waltz.spark.write_options import CHECKPOINT_LOCATION, STAGING_PATH, TXN_APP_ID, SinkOptions, WriteOptions

_ONLY_EPOCH = 0


@dataclass
class WrittenRows(WriterCommitMessage):
    """A task's message to the driver: the file with its rows, or nothing when it has appended them or had none."""

    file: StagedFile | None = None


Groups: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterable[list[tuple[int, Row]]]]
"""A function that makes transactions of the rows of a task, each with its partition, in groups."""


class Planned(NamedTuple):
    """The plan of a write, made before its tasks begin."""

    groups: Groups
    log: LogIdentity
    locks: RowLocks | None = None
    """The locks that each transaction raises."""
    contents: Contents = whole


class Sink:
    """The part that all writers share. Spark pickles it for the workers."""

    def __init__(self, options: SinkOptions, planned: Planned, *, app_id: str | None) -> None:
        """``app_id``: of the staging directory, ``None`` for at least once."""
        self.options = options
        self._app_id = app_id
        self._groups = planned.groups
        self._locks = planned.locks
        self._contents: Contents | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        """One task."""
        if self._app_id is not None:
            return WrittenRows(self._stage(batches))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._append_at_once(batches))
        return WrittenRows()

    def commit(self, messages: Sequence[WriterCommitMessage | None], epoch: int) -> None:
        """Append the staged rows. Raises ``SinkError`` and everything that connecting raises."""
        if self._app_id is not None:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._append_staged(self._area, _files(messages), epoch))

    def abort(self, messages: Sequence[WriterCommitMessage | None], epoch: int) -> None:
        """Remove the staged rows, unless a retry of the epoch will append them."""
        if self._app_id is None:
            return
        manifest = self._area.manifest(epoch)
        kept = () if manifest is None else manifest.files
        self._area.discard([file for file in _files(messages) if file not in kept])

    def bind_staging(self, log: LogIdentity) -> bool:
        """Keep a staging directory that is named again for its log, see :meth:`StagingArea.bind`."""
        return self._area.bind(log)

    def compare_repetitions(self, contents: Contents) -> None:
        """Compare the rows of a repeated epoch with those that were appended."""
        self._contents = contents

    def remove_staging(self) -> None:
        """Remove the staging directory of a sink that has no name."""
        self._area.remove()

    @property
    def _area(self) -> StagingArea:
        assert self._app_id is not None
        assert self.options.staging_path is not None
        return StagingArea(self.options.staging_path, self._app_id)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> StagedFile | None:
        stager = self._area.writer()
        try:
            for group in self._groups(batches):
                for partition_id, row in group:
                    stager.add(partition_id, row)
            return stager.finish()
        except BaseException:
            stager.abandon()
            raise

    async def _append_staged(self, area: StagingArea, files: Sequence[StagedFile], epoch: int) -> None:
        assert self._app_id is not None
        if pass_over(area, epoch, files, self._contents):
            return
        async with open_log(self.options, self._locks) as log:
            appender = EpochAppender(
                area,
                self._app_id,
                epoch,
                log,
                timeout_s=self.options.append_timeout_s,
                jitter=random.Random(),
                contents=self._contents,
            )
            await appender.run(files)

    async def _append_at_once(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Append rows as they come. Spark's iterator blocks the loop, which has nothing under way then."""
        first = next(batches, None)
        if first is None:
            return
        async with open_log(self.options, self._locks) as log:
            try:
                for group in self._groups(chain((first,), batches)):
                    await self._append_group(log, group)
            except NotAllAppendedError as error:
                twice = "; rows that Spark tries again may be there twice" if log.may_hold_rows else ""
                raise SinkError(f"{error}{twice}") from error

    async def _append_group(self, log: ClusterLog, group: list[tuple[int, Row]]) -> None:
        by_partition: dict[int, list[Row]] = {}
        for partition_id, row in group:
            by_partition.setdefault(partition_id, []).append(row)
        try:
            async with asyncio.TaskGroup() as tasks:
                for partition_id, rows in by_partition.items():
                    tasks.create_task(self._append_rows(log, partition_id, rows))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    @staticmethod
    async def _append_rows(log: ClusterLog, partition_id: int, rows: list[Row]) -> None:
        for some in slices(rows):
            try:
                await log.append(partition_id, some, None)
            except NotAllAppendedError as error:
                raise NotAllAppendedError(f"partition {partition_id}: {error}") from error


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.file for message in messages if isinstance(message, WrittenRows) and message.file is not None]


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: one epoch, named by ``txnAppId`` and ``txnVersion`` if another run may repeat it."""

    def __init__(self, options: SinkOptions, plan: Callable[[], Planned]) -> None:
        """Raises what ``plan`` does, and ``SinkError`` when the staging directory is for another log."""
        planned = plan()
        self._named = options.app_id is not None
        self._epoch = options.version if options.version is not None else _ONLY_EPOCH
        app_id = (options.app_id or f"batch-{uuid4()}") if options.staging_path else None
        self._sink = Sink(options, planned, app_id=app_id)
        if self._named:
            self._sink.bind_staging(planned.log)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Stage, or append."""
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the staged rows."""
        self._sink.commit(messages, self._epoch)
        if not self._named and self._sink.options.staging_path:
            self._sink.remove_staging()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows; of a job without a name all of them, since no later run can continue it."""
        self._sink.abort(messages, self._epoch)
        if not self._named and self._sink.options.staging_path:
            self._sink.remove_staging()


class StreamWriter(DataSourceStreamArrowWriter):
    """``writeStream``: every micro-batch is an epoch of the query, or of ``txnAppId``."""

    def __init__(self, options: SinkOptions, plan: Callable[[], Planned]) -> None:
        """Raises ``ConfigError`` for a query that has no name, and as :class:`BatchWriter` does."""
        query = _known_query_id(options) if options.staging_path else None
        app_id = options.app_id or query
        planned = plan()
        self._sink = Sink(options, planned, app_id=app_id)
        if app_id is not None and not self._sink.bind_staging(planned.log._replace(query=query)):
            self._sink.compare_repetitions(planned.contents)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Stage, or append."""
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append the staged rows."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged rows."""
        self._sink.abort(messages, batchId)


class WaltzWriter(BatchWriter):
    """A batch of transactions."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Asks the cluster. Raises ``ConfigError``, ``SinkError``, ``PlanningError`` and ``ZooKeeperError``."""
        super().__init__(options, partial(_plan, options, schema, overwrite=overwrite))


class WaltzStreamWriter(StreamWriter):
    """A stream of transactions."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Asks the cluster. Raises ``ConfigError``, ``SinkError``, ``PlanningError`` and ``ZooKeeperError``."""
        super().__init__(options, partial(_plan, options, schema, overwrite=overwrite))


def refuse_overwrite(overwrite: bool) -> None:
    """Raise ``ConfigError`` for a mode that a log does not have."""
    if overwrite:
        raise ConfigError("a log cannot be overwritten; use mode('append') or outputMode('append')")


def _plan(options: WriteOptions, schema: StructType, *, overwrite: bool) -> Planned:
    refuse_overwrite(overwrite)
    RowMaker(schema, options, 1)
    cluster = asyncio.run(read_cluster(options))
    return Planned(RowMaker(schema, options, cluster.partition_count).groups, LogIdentity(cluster.key, "waltz"))


def _known_query_id(options: SinkOptions) -> str | None:
    """The id of the query; ``None`` if it cannot be read and the query has a name of its own."""
    try:
        return _query_id(options)
    except ConfigError:
        if options.app_id is None:
            raise
        return None


def _query_id(options: SinkOptions) -> str:
    """The id that Spark gave the query when its checkpoint was made: a new checkpoint is a new query."""
    location = options.checkpoint_location
    if location is None:
        raise ConfigError(
            f"option {STAGING_PATH} needs a name for the query that outlives it: give {TXN_APP_ID}, or "
            f"{CHECKPOINT_LOCATION} as an option of the query"
        )
    try:
        return str(json.loads(_read_metadata(location))["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise ConfigError(
            f"the id of the query cannot be read from its checkpoint {location}: {error}; give {TXN_APP_ID}"
        ) from None


def _read_metadata(location: str) -> bytes:
    if "://" not in location:
        return (Path(location.removeprefix("file:")) / "metadata").read_bytes()
    system, path = pyarrow.fs.FileSystem.from_uri(location)
    with system.open_input_stream(f"{path.rstrip('/')}/metadata") as stream:
        return bytes(stream.read())
