import asyncio
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import TracebackType

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

import pyspark_waltz
from tests.unit.common.cluster.fakes import KEY, FakeStorage, make_log
from waltz.common.cluster.replicas import Source
from waltz.common.errors import ConfigError
from waltz.common.ids import Endpoint
from waltz.common.loops import new_event_loop as usual_event_loop
from waltz.common.records import Record
from waltz.spark.batch import BatchReader, read_split
from waltz.spark.batches import arrow_schema
from waltz.spark.columns import SCHEMA
from waltz.spark.offsets import OffsetRange
from waltz.spark.options import parse_options
from waltz.spark.planning import Split, plan
from waltz.spark.source import WaltzDataSource

OPTIONS = {"zookeeper": "zk:2181", "clusterRoot": "/waltz", "tls.plaintext": "true", "fetchSize": "10"}
LOG = make_log(0, 50)


class StorageThread:
    """A fake storage on a loop of its own, since a reader runs its loop only now and then."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.second_request: Future[None] = Future()
        self.storage = _Watched({0: LOG}, self.second_request)

    def __enter__(self) -> "StorageThread":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.storage.start(), self._loop).result(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.storage.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


class _Watched(FakeStorage):
    def __init__(self, logs: dict[int, list[Record]], second_request: "Future[None]") -> None:
        super().__init__(logs)
        self._second_request = second_request

    def frames_received(self, *arguments: object) -> None:
        super().frames_received(*arguments)  # type: ignore[arg-type]  # handed on as they came
        if len(self.requests) >= 2 and not self._second_request.done():
            self._second_request.set_result(None)


@pytest.fixture
def served() -> Iterator[StorageThread]:
    with StorageThread() as thread:
        yield thread


def partition_of(storage: FakeStorage) -> InputPartition:
    sources = (Source("s:6000", Endpoint("127.0.0.1", storage.admin_port)),)
    return InputPartition(Split(OffsetRange(0, 5, 45), sources, KEY, 1))


def test_spark_finds_it_by_name() -> None:
    assert pyspark_waltz.DefaultSource is WaltzDataSource
    assert pyspark_waltz.DefaultSource.name() == "waltz"


def test_a_scan_for_data_sources_loads_little() -> None:
    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_waltz; "
        "print(*sorted({name.split('.')[0] for name in sys.modules.keys() - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyarrow", "pydantic", "kazoo", "cryptography", "uvloop", "asyncio", "yaml"}
    assert set(done.stdout.split()) & heavy == set()


def test_schema_checks_the_options() -> None:
    assert WaltzDataSource(dict(OPTIONS)).schema() == SCHEMA
    with pytest.raises(ConfigError, match="unknown option 'fetchsizes'; did you mean 'fetchSize'"):
        WaltzDataSource({**OPTIONS, "fetchsizes": "1"}).schema()


def test_reader_checks_options_and_columns() -> None:
    with pytest.raises(ConfigError, match="option 'zookeeper' is missing"):
        WaltzDataSource({}).reader(SCHEMA)
    with pytest.raises(ConfigError, match="did you mean 'transaction_id'"):
        WaltzDataSource(dict(OPTIONS)).reader(StructType([StructField("transaction", LongType())]))


def test_no_partition_means_no_rows() -> None:
    reader = WaltzDataSource(dict(OPTIONS)).reader(SCHEMA)
    assert list(reader.read(InputPartition(None))) == []


def test_a_pickled_reader_reads_a_pickled_split(served: StorageThread) -> None:
    wanted = StructType([SCHEMA["data"], SCHEMA["transaction_id"]])
    reader = pickle.loads(pickle.dumps(WaltzDataSource(dict(OPTIONS)).reader(wanted)))
    partition = pickle.loads(pickle.dumps(partition_of(served.storage)))
    batches = list(reader.read(partition))
    assert all(batch.schema.equals(arrow_schema(wanted)) for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"data": record.data, "transaction_id": record.transaction_id} for record in LOG[5:45]]


def plain_reader() -> BatchReader[Split]:
    options = parse_options(OPTIONS)
    return BatchReader(partial(plan, options), partial(read_split, options, SCHEMA))


@pytest.mark.parametrize("new_event_loop", [usual_event_loop, asyncio.new_event_loop])
def test_the_next_request_is_under_way_while_spark_has_a_batch(
    served: StorageThread, new_event_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz.spark.batch.new_event_loop", new_event_loop)
    batches = plain_reader().read(partition_of(served.storage))
    assert next(batches).num_rows == 10
    served.second_request.result(10)  # the reader's loop stands still meanwhile
    assert sum(batch.num_rows for batch in batches) == 30


def test_a_reader_may_be_given_up(served: StorageThread) -> None:
    batches = plain_reader().read(partition_of(served.storage))
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator, as Spark drops it at a limit


def test_the_default_schema_follows_the_options() -> None:
    def schema(**options: str) -> object:
        return WaltzDataSource({**OPTIONS, **options}).schema()

    assert schema(columns="data, partition") == StructType([SCHEMA["data"], SCHEMA["partition"]])
    assert schema(includeHeaders="false") == StructType(
        [SCHEMA[name] for name in ("partition", "transaction_id", "data")]
    )
    text = schema(columns="data", payloadFormat="UTF8")
    assert text == StructType([StructField("data", StringType())])
    assert schema(columns="transaction_id,data", payloadFormat="json", payloadSchema=" account long ") == (
        "transaction_id bigint NOT NULL, account long"
    )


def test_columns_out_of_the_payload_may_have_any_name() -> None:
    wanted = StructType([SCHEMA["transaction_id"], StructField("account", LongType())])
    with pytest.raises(ConfigError, match="the column 'account', which the log does not have"):
        WaltzDataSource(dict(OPTIONS)).reader(wanted)
    WaltzDataSource({**OPTIONS, "payloadFormat": "json"}).reader(wanted)
    with pytest.raises(ConfigError, match="column 'data' is of type string, not binary"):
        WaltzDataSource({**OPTIONS, "payloadFormat": "utf8"}).reader(SCHEMA)


def test_spark_keeps_its_filters() -> None:
    """It would hand those of one use of a DataFrame to all others."""
    assert type(WaltzDataSource(dict(OPTIONS)).reader(SCHEMA)).pushFilters is DataSourceReader.pushFilters


def test_rows_are_chosen_by_header(served: StorageThread) -> None:
    reader = WaltzDataSource({**OPTIONS, "headers": "-31, -40,7", "payloadFormat": "utf8"}).reader(
        StructType([SCHEMA["transaction_id"], StructField("data", StringType())])
    )
    batches = list(pickle.loads(pickle.dumps(reader)).read(partition_of(served.storage)))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"transaction_id": number, "data": f"0/{number}"} for number in (31, 40)]


def test_options_of_the_other_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="option maxOffsetsPerTrigger is for streams"):
        WaltzDataSource({**OPTIONS, "maxOffsetsPerTrigger": "5"}).reader(SCHEMA)
    with pytest.raises(ConfigError, match="option endingOffsets is not for streams"):
        WaltzDataSource({**OPTIONS, "endingOffsets": "latest"}).streamReader(SCHEMA)


def test_a_stream_reader_reads_in_the_workers(served: StorageThread) -> None:
    reader = pickle.loads(pickle.dumps(WaltzDataSource(dict(OPTIONS)).streamReader(SCHEMA)))
    assert sum(batch.num_rows for batch in reader.read(partition_of(served.storage))) == 40
    assert list(reader.read(InputPartition(None))) == []
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    reader.stop()
    limited = WaltzDataSource({**OPTIONS, "maxOffsetsPerTrigger": "7"}).streamReader(SCHEMA)
    assert limited.getDefaultReadLimit() == ReadMaxRows(7)


def test_a_log_is_not_overwritten() -> None:
    cluster = {name: OPTIONS[name] for name in ("zookeeper", "clusterRoot")}
    with pytest.raises(ConfigError, match="a log cannot be overwritten"):
        WaltzDataSource(dict(cluster)).writer(SCHEMA, overwrite=True)
    with pytest.raises(ConfigError, match="stagingPath needs a name for the query"):
        WaltzDataSource({**cluster, "stagingPath": "/s"}).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(ConfigError, match="the id of the query cannot be read from its checkpoint /nowhere"):
        WaltzDataSource({**cluster, "stagingPath": "/s", "checkpointLocation": "/nowhere"}).streamWriter(
            SCHEMA, overwrite=False
        )
