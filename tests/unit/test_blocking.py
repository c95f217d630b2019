"""The blocking client: many threads, one loop."""

import asyncio
import dataclasses
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import waltz
from waltz import blocking
from waltz.client.engine.environment import Environment
from waltz.client.mock import MockDriver
from waltz.client.mock.cluster import FixedCluster
from waltz.client.options import ClientOptions

pytestmark = pytest.mark.timeout(60)

LOCK = waltz.PartitionLocalLock("account", 1)


def background_threads() -> int:
    return sum(thread.name == "waltz" for thread in threading.enumerate())


@pytest.fixture(autouse=True, params=["uvloop", "asyncio"])
def installed_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.fixture(params=[(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)], ids=["version 5", "version 4"])
def driver(request: pytest.FixtureRequest) -> MockDriver:
    return MockDriver(2, versions=request.param)


def test_the_whole_face(driver: MockDriver) -> None:
    with waltz.blocking.connect(driver) as client:
        assert (client.cluster_name, client.partition_count) == ("mock", 2)
        assert client.client_id >= 0
        assert client.high_water_mark(1) == -1
        assert client.append(1, b"a", header=3, write_locks=[LOCK]) == 0
        assert client.append_many(1, (b"%d" % n for n in range(10))) == list(range(1, 11))
        with pytest.raises(waltz.LockConflict):
            client.append(1, b"b", write_locks=[LOCK], high_water_mark=-1)
        read = [transaction.data for transaction in client.feed(1, after=0, until=10)]
        assert read == [b"%d" % n for n in range(10)]
        assert sum(len(batch) for batch in client.feed_batches(1, after=-1, until=10)) == 11
        with client.feed(1, after=9) as feed:
            assert [each.transaction_id for each in feed.next_batch()] == [10]
            assert feed.position == 9
        feed = client.feed(1, after=-1)
        for transaction in feed:
            if transaction.transaction_id == 5:
                break
        assert feed.position == 4
        with pytest.raises(waltz.ClientClosedError):
            feed.next_batch()
        with pytest.raises(waltz.PartitionNotFoundError):
            client.feed(7, after=-1)
    assert background_threads() == 0


def test_many_threads_share_one_client(driver: MockDriver) -> None:
    with blocking.connect(driver) as client, ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(lambda number: client.append(number % 2, b"%d" % number), range(400)))
        assert background_threads() == 1
        assert sorted(ids) == sorted([*range(200), *range(200)])
        for number, transaction_id in enumerate(ids):
            assert driver.partitions[number % 2].transactions[transaction_id].data == b"%d" % number


def test_a_feed_in_one_thread_and_appends_in_another(driver: MockDriver) -> None:
    with blocking.connect(driver) as client, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(lambda: [each.data for each in client.feed(0, after=-1, until=99)])
        for number in range(100):
            client.append(0, b"%d" % number)
        assert reading.result() == [b"%d" % number for number in range(100)]


def test_clients_share_the_loop_and_the_last_one_ends_it(driver: MockDriver) -> None:
    first, second = blocking.connect(driver).open(), blocking.connect(driver).open()
    assert background_threads() == 1
    first.append(0, b"a")
    first.close()
    first.close()
    assert second.append(0, b"b") == 1
    second.close()
    assert background_threads() == 0
    with pytest.raises(waltz.ClientClosedError):
        second.append(0, b"c")


def test_closing_ends_the_calls_of_other_threads(driver: MockDriver) -> None:
    client = blocking.connect(driver).open()
    client.append(0, b"a")
    with ThreadPoolExecutor(2) as threads:
        feed = client.feed(0, after=0)
        reading = threads.submit(feed.next_batch)
        driver.suspend_feed()
        appending = threads.submit(client.append, 0, b"b")
        while driver.partitions[0].high_water_mark < 1:
            time.sleep(0.001)
        client.close()
        with pytest.raises(waltz.ClientClosedError):
            reading.result(10)
        with pytest.raises(waltz.OutcomeUnknownError):
            appending.result(10)
    assert background_threads() == 0


def test_misuse_is_refused_instead_of_blocking_for_ever(driver: MockDriver) -> None:
    client = blocking.connect(driver)
    with pytest.raises(waltz.InvalidOperationError, match="not open"):
        client.append(0, b"a")
    with client:
        with pytest.raises(waltz.InvalidOperationError, match="once"):
            client.open()

        async def on_the_loop() -> int:
            return client.append(0, b"a")

        with pytest.raises(waltz.InvalidOperationError, match="never end"):
            client.run(on_the_loop())


def test_a_client_that_cannot_be_opened_leaves_nothing_behind() -> None:
    class Broken(MockDriver):
        def environment(self, options: ClientOptions, **settings: object) -> Environment:
            return dataclasses.replace(super().environment(options, **settings), cluster=NoCluster("mock", 1, {}))

    class NoCluster(FixedCluster):
        async def join(self, member: object) -> None:
            raise waltz.ConnectFailedError("nobody there")

    with pytest.raises(waltz.ConnectFailedError, match="nobody there"):
        blocking.connect(Broken()).open()
    assert background_threads() == 0


async def test_usable_beside_a_running_loop(driver: MockDriver) -> None:
    """As in a notebook."""
    with blocking.connect(driver) as client:
        assert client.append(0, b"a") == 0
    assert asyncio.get_running_loop().is_running()


def test_after_a_fork_a_client_of_the_parent_is_refused() -> None:
    script = """
import os, sys, waltz
from waltz.client.mock import MockDriver
driver = MockDriver()
client = waltz.blocking.connect(driver).open()
client.append(0, b"a")
child = os.fork()
if not child:
    try:
        client.append(0, b"b")
    except waltz.InvalidOperationError as error:
        client.close()
        with waltz.blocking.connect(MockDriver()) as other:
            os._exit(0 if "fork" in str(error) and other.append(0, b"c") == 0 else 1)
    os._exit(2)
_, status = os.waitpid(child, 0)
assert client.append(0, b"d") == 1
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_marks_and_positions_are_those_of_the_asynchronous_face(driver: MockDriver) -> None:
    options = waltz.ClientOptions(ahead_retry_initial_s=0.02)
    with blocking.connect(driver, options=options) as client, blocking.connect(driver) as other:
        other.append_many(0, [waltz.Append(b"%d" % number, append_locks=[LOCK]) for number in range(3)])
        feed = client.feed(0, after=1)
        for transaction in feed:
            assert (feed.position, feed.handed_out, transaction.transaction_id) == (1, 2, 2)
            assert client.append(0, b"in the loop", write_locks=[LOCK]) == 3
            with pytest.raises(waltz.LockConflict):
                client.append(0, b"again", write_locks=[LOCK])
            break
        with pytest.raises(waltz.LockConflict):
            client.append(0, b"right after the loop", write_locks=[LOCK])
        with client.feed(0, after=2) as feed:
            assert [each.transaction_id for each in feed.next_batch()] == [3]
            assert (feed.position, feed.handed_out) == (2, 3)
        assert client.append(0, b"decided again", write_locks=[LOCK]) == 4
        batches = client.feed_batches(0, after=-1, until=4)
        for batch in batches:
            assert batches.handed_out == batch[-1].transaction_id
        assert batches.position == 4
        with pytest.raises(waltz.ClientAheadError, match="no transaction 7, the last one is 4"):
            next(iter(client.feed(0, after=7)))
        with pytest.raises(waltz.ClientAheadError):
            client.append(0, b"x", high_water_mark=7)
        assert other.high_water_mark(0) == 4


def test_reading_without_a_loop(driver: MockDriver) -> None:
    for number in range(1_000):
        driver.partitions[0].add(b"%d" % number)
    with waltz.blocking.connect(driver) as client:
        feed = client.feed(0, after=-1)
        assert [next(feed).data, next(feed).data] == [b"0", b"1"]
        polled = feed.poll(10)
        assert polled is not None
        assert (polled.transaction_id, feed.position, feed.handed_out) == (2, 1, 2)
        rest = feed.next_batch()
        assert (rest[0].transaction_id, feed.position) == (3, 2)
        for number in (1_000, 1_001):  # what has come may have been all
            driver.partitions[0].add(b"%d" % number)
        for record in feed:
            assert record.transaction_id == rest[-1].transaction_id + 1
            other = next(feed)
            assert (other.transaction_id, feed.position) == (record.transaction_id + 1, record.transaction_id)
            break
        batches = client.feed_batches(0, after=989)
        ids: list[int] = []
        while len(ids) < 12:  # as many at a time as came together
            ids += [record.transaction_id for record in next(batches)]
        assert ids == list(range(990, 1_002))
        assert batches.next_batch(0.001) == []
        assert batches.position == 1_001
        with client.feed(0, after=1_001) as late:
            assert late.poll(0) is None
            driver.partitions[0].add(b"late")
            assert next(late).data == b"late"
        with client.feed(0, after=1_001, until=1_002) as ending:
            assert [record.data for record in ending] == [b"late"]
        assert list(client.feed_batches(0, after=5, until=5)) == []


def test_all_partitions_in_one_loop(driver: MockDriver) -> None:
    for partition in driver.partitions:
        for number in range(2_000):
            partition.add(b"%d" % number)
    with waltz.blocking.connect(driver) as client:
        read: dict[int, list[int]] = {0: [], 1: []}
        feed = client.feed_all(after=-1, until={0: 1_999, 1: 1_499})
        for record in feed:
            read[record.partition_id].append(record.transaction_id)
        assert read == {0: list(range(2_000)), 1: list(range(1_500))}

        feed = client.feed_all([1], after={1: 1_989})
        assert feed.partition_ids == [1]
        assert next(feed).transaction_id == 1_990
        polled = feed.poll(10)
        assert polled is not None
        assert (feed.positions, feed.handed_out) == ({1: 1_990}, {1: 1_991})
        ids: list[int] = []
        while len(ids) < 8:
            ids += [record.transaction_id for record in feed.next_batch()]
        assert ids == list(range(1_992, 2_000))
        assert feed.poll(0.001) is None
        assert feed.positions == {1: 1_999}
        feed.pause(1)
        client.append(1, b"later")
        assert feed.next_batch(0.001) == []
        feed.resume(1)
        assert next(feed).data == b"later"
        assert feed.obstacles == {}
        feed.close()
        with pytest.raises(waltz.ClientClosedError):
            next(feed)


def test_an_append_in_a_loop_over_many_rests_on_the_transaction_at_hand(driver: MockDriver) -> None:
    with waltz.blocking.connect(driver) as client:
        for partition_id in (0, 1):
            client.append(partition_id, b"set", write_locks=[LOCK])
        decided = 0
        for record in client.feed_all(after=-1):
            if record.data == b"set":
                client.append(record.partition_id, b"decided", write_locks=[LOCK])
            else:
                decided += 1
                if decided == 2:
                    break


def test_a_consumer_goes_on_where_it_was(driver: MockDriver, tmp_path: Path) -> None:
    for partition in driver.partitions:
        for number in range(1_000):
            partition.add(b"%d" % number)
    positions = waltz.FilePositions(tmp_path / "positions")
    seen: set[tuple[int, int]] = set()
    with waltz.blocking.connect(driver) as client:
        while len(seen) < 2_000:
            with client.consume(positions) as consumer:
                for number, record in enumerate(consumer):
                    assert (record.partition_id, record.transaction_id) not in seen
                    seen.add((record.partition_id, record.transaction_id))
                    if number == 150 or len(seen) == 2_000:
                        break
                consumer.commit()
                assert consumer.committed == consumer.handed_out
                if len(seen) < 2_000:
                    next(consumer)  # and not committed
        with client.consume(positions, commit_every_s=3600) as consumer:
            client.append(1, b"later")
            assert next(consumer).data == b"later"
            assert consumer.poll(0) is None
        with client.consume(positions) as consumer:
            assert consumer.positions == {0: 999, 1: 1_000}


def test_threads_share_partitions(tmp_path: Path) -> None:
    driver = MockDriver(6)
    positions = waltz.SqlitePositions(tmp_path / "positions.sqlite")
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def consume(client: blocking.Client) -> None:
        with client.consume(positions, share="workers", commit_every_s=0.01) as consumer:
            while not done.is_set():
                record = consumer.poll(0.01)
                if record is not None:
                    seen.append((record.partition_id, record.transaction_id))
            consumer.commit()

    clients = [waltz.blocking.connect(driver) for _ in range(3)]
    with clients[0], clients[1], clients[2], ThreadPoolExecutor(3) as threads:
        workers = [threads.submit(consume, client) for client in clients]
        for _ in range(100):
            for partition in driver.partitions:
                partition.add(b"work")
        deadline_s = time.monotonic() + 30
        while len(set(seen)) < 600 and time.monotonic() < deadline_s:
            time.sleep(0.001)
        done.set()
        for worker in workers:
            worker.result()
    assert sorted(seen) == [(partition, number) for partition in range(6) for number in range(100)]


def test_positions_in_zookeeper(driver: MockDriver) -> None:
    with waltz.blocking.connect(driver) as client:
        client.append_many(0, [b"x"] * 10)
        for expected in (0, 2, 4):
            with client.consume(client.zookeeper_positions("mails"), [0]) as consumer:
                assert [next(consumer).transaction_id, next(consumer).transaction_id] == [expected, expected + 1]
                consumer.commit()
