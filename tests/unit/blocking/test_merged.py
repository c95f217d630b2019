"""Feeds of several partitions, and consumers, for threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import waltz
from tests.unit.blocking.threads import interrupted
from waltz import blocking
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(60)

LOCK = waltz.PartitionLocalLock("account", 1)


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
            client.append(partition_id, b"set", append_locks=[LOCK])
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


def test_a_consumer_that_is_interrupted_passes_nothing_by(driver: MockDriver, tmp_path: Path) -> None:
    for number in range(1_000):
        driver.partitions[0].add(b"%d" % number)
    positions = waltz.FilePositions(tmp_path / "positions")
    with waltz.blocking.connect(driver) as client, client.consume(positions, [0]) as consumer:
        interrupted(lambda: next(consumer))
        assert consumer.handed_out == consumer.positions == {0: -1}
        read = [next(consumer).transaction_id]
        interrupted(consumer.commit)
        assert consumer.committed == {0: 0}
        while len(read) < 1_000:
            read += [record.transaction_id for record in consumer.next_batch()]
            interrupted(lambda: consumer.poll(0))
            assert consumer.handed_out == consumer.positions == {0: read[-1]}
            consumer.commit()
            assert consumer.committed == {0: read[-1]}
            interrupted(lambda: consumer.next_batch(0))
        assert read == list(range(1_000))


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
