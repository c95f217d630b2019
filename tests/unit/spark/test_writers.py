import json
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from waltz.asynchronous import Client
from waltz.client.builder import Append
from waltz.client.errors import AppendManyError, LockConflict, NotAppendedError, OutcomeUnknownError
from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import ConfigError
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.znodes import StoreParams
from waltz.server.partition.locks import LockTable
from waltz.spark import writers
from waltz.spark.errors import SinkError
from waltz.spark.exactly_once import Guard, locks_of
from waltz.spark.options import ClusterOptions
from waltz.spark.rows import Row
from waltz.spark.sink_log import ATTEMPT_TIMEOUT_S, ClusterLog, RowLocks
from waltz.spark.staging import Manifest, StagingArea
from waltz.spark.write_options import SinkOptions, parse_stream_write_options, parse_write_options
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


def stream_writer(tmp_path: Path, **options: str) -> WaltzStreamWriter:
    parsed = parse_stream_write_options(OPTIONS | {"stagingPath": str(tmp_path / "staging")} | options)
    writer = pickle.loads(pickle.dumps(WaltzStreamWriter(parsed, SCHEMA, overwrite=False)))
    assert isinstance(writer, WaltzStreamWriter)
    return writer


def test_a_new_checkpoint_needs_another_name(tmp_path: Path) -> None:
    for query in ("old", "new"):
        (tmp_path / query).mkdir()
        (tmp_path / query / "metadata").write_text(json.dumps({"id": f"{query} query"}))
    old = stream_writer(tmp_path, txnAppId="app", checkpointLocation=str(tmp_path / "old"))
    StagingArea(str(tmp_path / "staging"), "app").complete(3)
    old.commit([old.write(batches(0))], 2)  # of a checkpoint from a backup
    with pytest.raises(SinkError, match=r"for the query old query, .* for the query new query; give it another txn"):
        stream_writer(tmp_path, txnAppId="app", checkpointLocation=str(tmp_path / "new"))
    stream_writer(tmp_path, txnAppId="another", checkpointLocation=str(tmp_path / "new"))
    unknown = stream_writer(tmp_path, txnAppId="app", checkpointLocation=str(tmp_path / "nowhere"))
    with pytest.raises(SinkError, match="epoch 2 was completed before"):
        unknown.commit([unknown.write(batches(0))], 2)


def test_columns_are_checked_before_the_cluster_is_asked() -> None:
    with pytest.raises(ConfigError, match="column 'partition' must be of an integral type"):
        WaltzWriter(parse_write_options(OPTIONS), StructType([StructField("partition", StringType())]), overwrite=False)


class Appends:
    """Stands for a client: how its appends to a partition end, and the time that they were given."""

    def __init__(self, endings: dict[int, Exception]) -> None:
        self.timeouts_s: list[float] = []
        self._endings = endings

    async def append_many(
        self, partition_id: int, items: list[Append], *, high_water_mark: int | None, timeout_s: float
    ) -> list[int]:
        self.timeouts_s.append(timeout_s)
        if partition_id in self._endings:
            raise self._endings[partition_id]
        return list(range(len(items)))

    def log(self, options: SinkOptions, locks: RowLocks | None = None) -> ClusterLog:
        client = cast("Client", SimpleNamespace(append_many=self.append_many))
        return ClusterLog(
            client, cast("ZooKeeper", None), StoreParams(uuid5(NAMESPACE_URL, "/waltz"), 3), options, locks
        )


async def test_only_appends_that_are_looked_for_are_broken_off_early() -> None:
    options = parse_write_options(OPTIONS | {"appendTimeoutMs": "90000", "tls.plaintext": "true"})
    appends = Appends({})
    log = appends.log(options)
    for guard in (None, Guard(5)):
        await log.append(0, [Row(0, b"x")], guard)
    assert appends.timeouts_s == [90.0, ATTEMPT_TIMEOUT_S]


class LockedAppends(Appends):
    """With the lock table of a server."""

    def __init__(self) -> None:
        super().__init__({})
        self._table = LockTable(30_000, -1)
        self._next_id = 0

    async def append_many(
        self, partition_id: int, items: list[Append], *, high_water_mark: int | None, timeout_s: float
    ) -> list[int]:
        assert high_water_mark is not None
        first = self._next_id
        for item in items:
            write, read, append = (
                [lock.hash for lock in locks] for locks in (item.write_locks, item.read_locks, item.append_locks)
            )
            conflict = self._table.admit(write, read, append, high_water_mark, self._next_id)
            if conflict is not None:
                raise AppendManyError([LockConflict(partition_id, conflict)])
            self._next_id += 1
        return list(range(first, self._next_id))


@pytest.mark.parametrize("locks_per_row", [10, 1000])
async def test_the_locks_of_rows_do_not_wear_out_those_of_the_sink(locks_per_row: int) -> None:
    def locks(row: Row) -> list[PartitionLocalLock]:
        return [PartitionLocalLock("row", row.header * locks_per_row + number) for number in range(locks_per_row)]

    options = parse_write_options(OPTIONS | {"tls.plaintext": "true"})
    log = LockedAppends().log(options, locks)
    take_over, rows_added = locks_of("app")
    first = await log.append(0, [Row(0, b"")], Guard(-1, write=(take_over,), read=(rows_added,)))
    count = 60_000 // locks_per_row
    rest = [Row(number, b"") for number in range(count)]
    assert await log.append(0, rest, Guard(first, read=(take_over,), append=(rows_added,))) == count


@pytest.mark.parametrize(
    ("ending", "batch", "twice"),
    [
        (AppendManyError([NotAppendedError("refused"), NotAppendedError("refused")]), [1], False),
        (NotAppendedError("not joined"), [1], False),
        (AppendManyError([5, NotAppendedError("refused")]), [1], True),
        (AppendManyError([OutcomeUnknownError("lost")]), [1], True),
        (OutcomeUnknownError("lost"), [1], True),
        (NotAppendedError("not joined"), [0, 1], True),
    ],
)
def test_rows_may_be_there_twice_only_if_some_are_there(
    monkeypatch: pytest.MonkeyPatch, ending: Exception, batch: list[int], twice: bool
) -> None:
    @asynccontextmanager
    async def open_log(options: SinkOptions, locks: RowLocks | None = None) -> AsyncIterator[ClusterLog]:
        yield Appends({1: ending}).log(options, locks)

    monkeypatch.setattr(writers, "open_log", open_log)
    writer = WaltzWriter(parse_write_options(OPTIONS | {"tls.plaintext": "true"}), SCHEMA, overwrite=False)
    with pytest.raises(SinkError, match=r"^partition 1: ") as caught:
        writer.write(batches(*batch))
    assert ("Spark tries again may be there twice" in str(caught.value)) == twice
