"""Feeds of one partition for threads."""

import asyncio
import gc
from typing import Any

import pytest

import waltz
from tests.unit.blocking.threads import interrupted
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(60)


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


def test_between_two_transactions_nothing_counts_as_handed_out_that_is_not_there(driver: MockDriver) -> None:
    """The loop's thread may look at any moment: for the mark of an append, and to see when the consumer is done."""
    seen: list[tuple[int, int]] = []

    class Awaiting(list[tuple[int, asyncio.Future[None]]]):
        def __bool__(self) -> bool:
            """Asked by the consumer's thread when it is done with a transaction, before it takes the next one."""
            seen.append((feed.position, feed.handed_out))
            return False

    for number in range(3):
        driver.partitions[0].add(b"%d" % number)
    with waltz.blocking.connect(driver) as client, client.feed(0, after=-1, until=2) as feed:
        feed.source.awaiting = Awaiting()
        for _ in feed:
            pass
        assert set(seen) == {(-1, -1), (0, 0), (1, 1), (2, 2)}


def test_what_comes_while_the_thread_is_interrupted_is_read_again(driver: MockDriver) -> None:
    for number in range(3):
        driver.partitions[0].add(b"%d" % number)
    with waltz.blocking.connect(driver) as client:
        with client.feed_batches(0, after=-1) as batches:
            interrupted(batches.next_batch)
            assert (batches.position, batches.handed_out) == (-1, -1)
            assert [record.transaction_id for record in batches.next_batch()] == [0, 1, 2]
            interrupted(lambda: batches.next_batch(0))
            assert (batches.position, batches.handed_out) == (2, 2)
            driver.partitions[0].add(b"3")
            assert [record.transaction_id for record in batches.next_batch()] == [3]
        with client.feed(0, after=-1) as feed:
            interrupted(lambda: next(feed))
            assert (feed.position, feed.handed_out) == (-1, -1)
            interrupted(lambda: feed.poll(10))
            assert next(feed).transaction_id == 0
            assert [record.transaction_id for record in feed.next_batch()] == [1, 2, 3]
            assert feed.position == 0
        batches = client.feed_batches(0, after=-1)
        interrupted(batches.next_batch)
        batches.close()
        with pytest.raises(waltz.ClientClosedError):
            batches.next_batch()


@pytest.mark.parametrize("on_the_loop", [False, True])
def test_a_loop_over_a_feed_is_collected_anywhere(
    driver: MockDriver, on_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = asyncio.run_coroutine_threadsafe

    def begun_in_a_collection(*arguments: Any) -> Any:
        gc.collect()
        return begin(*arguments)

    for number in range(2):
        driver.partitions[0].add(b"%d" % number)
    with waltz.blocking.connect(driver) as client:
        one, other = client.feed(0, after=-1), client.feed_batches(0, after=-1)
        sources = [one.source, other.source]
        loops = [iter(one), iter(other)]
        garbage: list[object] = [*loops]
        for loop in loops:
            next(loop)
        garbage.append(garbage)
        del one, other, loop, loops, garbage
        if on_the_loop:
            client.on_loop(gc.collect)
        else:
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begun_in_a_collection)
        client.append(0, b"x")
        assert client.high_water_mark(0) == 2
        assert all(source.closed for source in sources)
