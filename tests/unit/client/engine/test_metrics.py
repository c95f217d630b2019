"""What clients count, through their faces over the mock."""

import asyncio
import threading
from collections.abc import Callable

import pytest

import waltz
from tests.unit.client.application import Callbacks
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.options import ClientOptions
from waltz.common.metrics.exposition import families, http_document
from waltz.common.metrics.registry import Json, Registry

LOCK = waltz.PartitionLocalLock("account", 1)

OF_PARTITIONS = {
    "is-mounted",
    "is-partition-active",
    "high-water-mark",
    "num-registered-transactions",
    "lag",
    "lag-seconds",
    "lock-failure",
    "transaction-monitor-timeout",
    "early-acknowledgement",
    "retracted-acknowledgement",
    "send-throughput",
    "received-throughput",
    "on-completion-latency",
    "on-application-latency",
}


def read(registry: Registry) -> Callable[[str], Json]:
    """The value or the count of a metric, by its full name."""
    document = http_document(registry)
    found: dict[str, Json] = {}
    for kind in ("gauges", "meters", "timers"):
        metrics = document[kind]
        assert isinstance(metrics, dict)
        for name, metric in metrics.items():
            found[str(name)] = metric["value"] if kind == "gauges" else metric["count"]
    return found.__getitem__


async def test_the_names_of_the_original() -> None:
    async with waltz.connect(MockDriver(2)) as client:
        await client.append(1, b"a")
        document = http_document(client.metrics)
        ours = set[str]()
        for kind in ("gauges", "meters", "timers"):
            metrics = document[kind]
            assert isinstance(metrics, dict)
            ours.update(map(str, metrics))
        own = f"waltz-client-{client.client_id}.partition-1"
    of_the_client = {"cluster-name", "client-id", "num-active-partitions", "active-partition-ids"}
    assert ours == {f"waltz-client.{name}" for name in of_the_client} | {f"{own}.{name}" for name in OF_PARTITIONS}


async def test_what_a_plain_client_counts() -> None:
    async with waltz.connect(MockDriver(3)) as client:
        assert read(client.metrics)("waltz-client.num-active-partitions") == 0
        await client.append_many(1, [b"%d" % number for number in range(40)], high_water_mark=-1)
        await client.append(1, b"changes", append_locks=[LOCK])
        with pytest.raises(waltz.LockConflict):
            await client.append(1, b"too late", write_locks=[LOCK], high_water_mark=0)
        metric = read(client.metrics)
        own = f"waltz-client-{client.client_id}.partition-1"
        assert metric("waltz-client.cluster-name") == "mock"
        assert metric("waltz-client.client-id") == client.client_id
        assert metric("waltz-client.active-partition-ids") == [1]
        assert metric(f"{own}.is-mounted") is True
        assert metric(f"{own}.is-partition-active") is True
        assert metric(f"{own}.high-water-mark") == 40
        assert metric(f"{own}.num-registered-transactions") == 0
        assert metric(f"{own}.lock-failure") == 1
        assert metric(f"{own}.send-throughput") == 42
        assert metric(f"{own}.received-throughput") == 41
        assert metric(f"{own}.transaction-monitor-timeout") == 0
        latencies = metric(f"{own}.on-completion-latency")
        assert isinstance(latencies, int)
        assert latencies >= 1
        assert metric(f"{own}.on-application-latency") == latencies


async def test_what_a_client_with_callbacks_counts() -> None:
    async with waltz.open_client(Callbacks(), MockDriver(2)) as client:
        for number in range(40):
            await client.transact(0, lambda _, number=number: b"%d" % number)  # type: ignore[misc]
        metric = read(client.metrics)
        own = f"waltz-client-{client.client_id}.partition-0"
        assert metric("waltz-client.num-active-partitions") == 2
        assert metric(f"{own}.high-water-mark") == 39
        assert metric(f"{own}.received-throughput") == 40
        assert metric(f"{own}.on-application-latency") == metric(f"{own}.on-completion-latency") != 0


async def test_transactions_of_others_are_received_too() -> None:
    partitions = MockServerPartition.create(1)
    async with waltz.open_client(Callbacks(), MockDriver(partitions)) as client:
        for number in range(5):
            partitions[0].add(b"%d" % number)
        await client.transact(0, lambda basis: b"own")
        metric = read(client.metrics)
        own = f"waltz-client-{client.client_id}.partition-0"
        assert (metric(f"{own}.received-throughput"), metric(f"{own}.send-throughput")) == (6, 1)


async def test_what_was_counted_stays_when_a_partition_is_left_and_joined_again() -> None:
    async with waltz.open_client(Callbacks(), MockDriver(1), auto_mount=False) as client:
        own = f"waltz-client-{client.client_id}.partition-0"
        for count in (1, 2):
            await client.set_partitions([0])
            await client.transact(0, lambda basis: b"a")
            assert read(client.metrics)(f"{own}.received-throughput") == count
            await client.set_partitions([])
            metric = read(client.metrics)
            assert metric(f"{own}.is-partition-active") is False
            assert metric(f"{own}.send-throughput") == count


async def test_an_undecided_append_is_counted_at_each_look() -> None:
    driver = MockDriver(1)
    looks = asyncio.Event()
    async with waltz.connect(driver, long_wait_threshold_ms=10) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        append = asyncio.create_task(client.append(0, b"b"))
        engine = client._engine
        assert engine is not None
        before = engine.lags

        def look() -> dict[int, int]:
            if engine.partitions[0].appends.counts.late:
                looks.set()
            return before()

        engine.lags = look
        await looks.wait()
        metric = read(client.metrics)
        own = f"waltz-client-{client.client_id}.partition-0"
        late = metric(f"{own}.transaction-monitor-timeout")
        assert isinstance(late, int)
        assert late >= 1
        assert metric(f"{own}.num-registered-transactions") == 1
        driver.resume_feed()
        assert await append == 1


async def test_a_feed_that_is_not_read_lags() -> None:
    async with waltz.connect(MockDriver(1)) as client:
        feed = client.feed(0, after=-1)
        await client.append_many(0, [b"a"] * 10, high_water_mark=-1)
        own = f"waltz-client-{client.client_id}.partition-0.lag"
        assert read(client.metrics)(own) == 10
        while feed.handed_out < 9:
            await feed.next_batch()
        assert read(client.metrics)(own) == 0
        await feed.aclose()


async def test_what_is_not_read_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    async with waltz.connect(MockDriver(1), long_wait_threshold_ms=600_000) as client:
        monkeypatch.setattr(client.metrics, "clock", lambda: now_s)
        feed = client.feed(0, after=-1)
        own = f"waltz-client-{client.client_id}.partition-0.lag-seconds"
        await client.append(0, b"first")
        assert read(client.metrics)(own) == 0.0
        now_s = 107.0
        await client.append(0, b"second")
        assert read(client.metrics)(own) == 7.0
        now_s = 110.0
        assert read(client.metrics)(own) == 10.0
        while feed.handed_out < 0:
            await feed.next_batch()
        assert read(client.metrics)(own) in (0.0, 3.0), "the second one came with the first, or it did not"
        while feed.handed_out < 1:
            await feed.next_batch()
        assert read(client.metrics)(own) == 0.0
        await feed.aclose()


async def test_they_can_be_read_by_threads_and_when_the_client_is_closed() -> None:
    async with waltz.connect(MockDriver(1), options=ClientOptions()) as client:
        metrics = client.metrics
        ended = threading.Event()
        failures: list[BaseException] = []

        def scrape() -> None:
            try:
                while not ended.is_set():
                    families(metrics)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=scrape) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                await client.append_many(0, [b"a"] * 20, high_water_mark=-1)
            families(metrics)  # the threads may not have had a turn
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        client_id = client.client_id
    assert not failures
    assert read(metrics)(f"waltz-client-{client_id}.partition-0.send-throughput") == 400


def test_the_blocking_client_has_them_too() -> None:
    with waltz.blocking.connect(MockDriver(1)) as client:
        client.append(0, b"a")
        assert read(client.metrics)(f"waltz-client-{client.client_id}.partition-0.high-water-mark") == 0
