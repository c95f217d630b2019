"""The blocking client: many threads, one loop."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import waltz
from tests.unit.blocking.threads import background_threads
from waltz import blocking
from waltz.client.engine.environment import Environment
from waltz.client.mock import MockDriver
from waltz.client.mock.cluster import FixedCluster
from waltz.client.options import ClientOptions

pytestmark = pytest.mark.timeout(60)

LOCK = waltz.PartitionLocalLock("account", 1)


def test_the_whole_face(driver: MockDriver) -> None:
    with waltz.blocking.connect(driver) as client:
        assert (client.cluster_name, client.partition_count) == ("mock", 2)
        assert client.client_id >= 0
        assert client.high_water_mark(1) == -1
        assert client.append(1, b"a", header=3, write_locks=[LOCK], high_water_mark=-1) == 0
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
            with ThreadPoolExecutor(1) as threads, pytest.raises(waltz.LockConflict):
                threads.submit(client.append, 0, b"not in the loop", read_locks=[LOCK]).result()
            break
        with pytest.raises(TypeError, match="no open feed of partition 0 without `until`"):
            client.append(0, b"after the loop", write_locks=[LOCK])
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


def test_outside_of_with(driver: MockDriver) -> None:
    client = waltz.blocking.connect(driver)
    calls: list[Callable[[], object]] = [
        lambda: client.partition_for("alice"),
        lambda: client.partition_count,
        lambda: client.client_id,
        lambda: client.cluster_name,
        lambda: client.metrics,
        lambda: client.append(0, b"a"),
    ]
    text = r"not open; use it in `with waltz.blocking.connect\(...\) as client:`, or call client.open\(\)"
    for call in calls:
        with pytest.raises(waltz.InvalidOperationError, match=text):
            call()
    assert client.open() is client
    for call in calls:
        call()
    client.close()
    client.close()
    for call in calls:
        with pytest.raises(waltz.ClientClosedError):
            call()
    assert background_threads() == 0
