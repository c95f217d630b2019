"""One Spark session for the suite, and a fake cluster that its workers, being other processes, can reach."""

import asyncio
import itertools
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from tests.unit.common.cluster.fakes import FakeCluster, make_record
from waltz.common.zk.kazoo_client import connect
from waltz.local.cluster import LocalCluster
from waltz.local.java import lend_java_to_spark
from waltz.local.layout import ROOT
from waltz.local.zookeeper import LocalZooKeeper

COUNTS = (500, 0, 1, 120)
"""Committed transactions of the partitions of :func:`cluster`."""

_CALL_TIMEOUT_S = 120.0
_roots = itertools.count()
_T = TypeVar("_T")


def deep(*values: object) -> ParameterSet:
    """A row that only the deep tests have: other tests of Spark ask the like, or unit tests do."""
    return pytest.param(*values, marks=pytest.mark.deep)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts Spark, which takes its time; and a call that is broken off leaves its session unusable."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two task slots whose workers run this very Python."""
    directory = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    on_interrupt = signal.getsignal(signal.SIGINT)
    lend_java_to_spark()
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("waltz tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    signal.signal(signal.SIGINT, on_interrupt)  # Spark's own would be that of all tests after it
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


class LoopThread:
    """An event loop in a thread, for what has to answer while the test waits for Spark."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake cluster")
        self._thread.start()

    def run(self, coroutine: Coroutine[None, None, _T]) -> _T:
        """Run on the loop and wait for the result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_TIMEOUT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_TIMEOUT_S)
        self._loop.close()


class RunningCluster:
    """A fake cluster on a real ZooKeeper, served by a thread."""

    def __init__(self, connect_string: str, counts: tuple[int, ...]) -> None:
        self.connect_string = connect_string
        self.root = f"/spark-{next(_roots)}"
        self._thread = LoopThread()
        self.fake = self._thread.run(self._start(counts))

    async def _start(self, counts: tuple[int, ...]) -> FakeCluster:
        zookeeper = await connect(self.connect_string, session_timeout_s=30.0, connect_timeout_s=60.0)
        return await FakeCluster.start(zookeeper, self.root, counts)

    def run(self, coroutine: Coroutine[None, None, _T]) -> _T:
        """Do something with the fake, on its loop."""
        return self._thread.run(coroutine)

    def append(self, partition_id: int, count: int) -> None:
        """Commit more transactions, as :func:`~tests.unit.common.cluster.fakes.make_record` makes them."""
        for storage in self.fake.storages:
            log = storage.logs[partition_id]
            more = [make_record(partition_id, len(log) + number) for number in range(count)]
            storage.logs[partition_id] = [*log, *more]
        self.fake.owner.marks[partition_id] += count

    def close(self) -> None:
        self._thread.run(self._stop())
        self._thread.close()

    async def _stop(self) -> None:
        await self.fake.stop()
        await self.fake.zookeeper.close()

    @property
    def options(self) -> dict[str, str]:
        """What every read needs."""
        return {"zookeeper": self.connect_string, "clusterRoot": self.root, "tls.plaintext": "true"}


@pytest.fixture
def cluster(zookeeper: LocalZooKeeper) -> Iterator[RunningCluster]:
    """Three storages and one owner, with :data:`COUNTS` transactions."""
    running = RunningCluster(zookeeper.connect_string, COUNTS)
    yield running
    running.close()


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A whole cluster of real processes, for what has to append; the options to reach it. Tests share its log."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), partitions=3) as running:
        yield {"zookeeper": running.layout.zookeeper_connect_string, "clusterRoot": ROOT}
