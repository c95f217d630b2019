"""Many partitions in one loop, over the mock driver."""

import asyncio
import random
from collections import Counter

import pytest

import waltz
from tests.unit.client.plain.reading import all_of
from waltz.client.mock import MockDriver
from waltz.client.options import ClientOptions
from waltz.client.plain.merged import TURN, MergedFeed, share_of
from waltz.common.errors import DeadlineExceededError

pytestmark = pytest.mark.timeout(60)

VERSIONS = [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)]
LOCK = waltz.PartitionLocalLock("account", 1)


@pytest.fixture(params=VERSIONS, ids=["version 5", "version 4"])
def driver(request: pytest.FixtureRequest) -> MockDriver:
    return MockDriver(4, versions=request.param)


def fill(driver: MockDriver, counts: list[int]) -> None:
    for partition, count in zip(driver.partitions, counts, strict=True):
        for number in range(count):
            partition.add(b"%d/%d" % (partition.partition_id, number))


async def test_every_partition_in_its_order(driver: MockDriver) -> None:
    counts = [0, 1, 300, 2_000]
    fill(driver, counts)
    async with waltz.connect(driver) as client:
        read = await all_of(client.feed_all(after=-1), sum(counts))
        for partition_id, count in enumerate(counts):
            mine = [record for record in read if record.partition_id == partition_id]
            assert [record.transaction_id for record in mine] == list(range(count))
            assert [record.data for record in mine] == [b"%d/%d" % (partition_id, number) for number in range(count)]


async def test_from_where_one_was_up_to_an_end(driver: MockDriver) -> None:
    fill(driver, [10, 10, 10, 10])
    async with waltz.connect(driver) as client:
        after, until = {0: 3, 2: -1, 3: 9}, {0: 5, 2: 0, 3: 9}
        feed = client.feed_all([0, 2, 3], after=after, until=until)
        read = [(record.partition_id, record.transaction_id) async for record in feed]
        assert sorted(read) == [(0, 4), (0, 5), (2, 0)]


async def test_what_comes_later(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        feed = client.feed_all(after=-1)
        assert await feed.poll(0.001) is None
        assert await feed.poll(0) is None
        for partition_id in (2, 0, 2, 3):
            driver.partitions[partition_id].add(b"later")
            record = await anext(feed)
            assert (record.partition_id, record.data) == (partition_id, b"later")
        assert await feed.next_batch(0.001) == []
        assert feed.positions == {0: 0, 1: -1, 2: 1, 3: 0}
        await feed.aclose()
        with pytest.raises(waltz.ClientClosedError):
            await anext(feed)


async def test_partitions_have_turns() -> None:
    """A partition with much to be read does not keep the others waiting."""
    driver = MockDriver(4)
    fill(driver, [5_000, 300, 300, 300])
    async with waltz.connect(driver) as client:
        feed = client.feed_all(after=-1)
        while len(feed._ready) < 4:
            await asyncio.sleep(0)
        read = await all_of(feed, 4 * 300)
        counts = Counter(record.partition_id for record in read)
        assert max(counts.values()) - min(counts.values()) <= TURN
        await feed.aclose()


async def test_mixed_ways_to_read_lose_nothing(driver: MockDriver) -> None:
    counts = [500, 400, 300, 200]
    fill(driver, counts)
    chance = random.Random(1)
    async with waltz.connect(driver) as client:
        feed = client.feed_all(after=-1)
        read: dict[int, list[int]] = {partition_id: [] for partition_id in range(4)}
        before: waltz.Record | None = None
        while sum(map(len, read.values())) < sum(counts):
            if chance.random() < 0.1:
                records = await feed.next_batch()
            elif chance.random() < 0.5:
                records = [await anext(feed)]
            else:
                polled = await feed.poll(10)
                assert polled is not None
                records = [polled]
            for record in records:
                read[record.partition_id].append(record.transaction_id)
            last = records[-1]
            if before is not None and before.partition_id != last.partition_id:
                assert feed.positions[before.partition_id] == before.transaction_id, "asking says done"
            assert feed.handed_out[last.partition_id] == last.transaction_id
            assert feed.positions[last.partition_id] == records[0].transaction_id - 1
            before = last
        assert read == {partition_id: list(range(count)) for partition_id, count in enumerate(counts)}


async def test_reading_on_inside_the_loop(driver: MockDriver) -> None:
    fill(driver, [50, 50, 50, 50])
    async with waltz.connect(driver) as client:
        read: Counter[int] = Counter()
        feed = client.feed_all(after=-1)
        async for record in feed:
            other = await anext(feed)
            rest = await feed.next_batch()
            for each in (record, other, *rest):
                assert each.transaction_id == read[each.partition_id]
                read[each.partition_id] += 1
            if sum(read.values()) == 200:
                break


async def test_an_append_in_the_loop_rests_on_the_transaction_at_hand(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        for partition_id in (1, 3):
            await client.append(partition_id, b"set", append_locks=[LOCK])
        seen = 0
        async for record in client.feed_all(after=-1):
            if record.data == b"set":
                await client.append(record.partition_id, b"decided", write_locks=[LOCK])
            else:
                seen += 1
                if seen == 2:
                    break


async def test_a_partition_that_cannot_be_read_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = MockDriver(4)
    fill(driver, [3, 3, 3, 3])
    options = ClientOptions(data_retry_maximum_s=0.001)
    dead = True
    async with waltz.connect(driver, options=options) as client:
        assert client._engine is not None
        join = client._engine.join

        async def may_fail(partition_id: int) -> object:
            if partition_id == 1 and dead:
                raise DeadlineExceededError("its server does not answer")
            return await join(partition_id)

        monkeypatch.setattr(client._engine, "join", may_fail)
        feed = client.feed_all(after=-1)
        read = await all_of(feed, 9)
        assert {record.partition_id for record in read} == {0, 2, 3}
        assert await feed.poll(0.05) is None
        assert str(feed.obstacles[1]) == "its server does not answer"
        dead = False
        read = await all_of(feed, 3)
        assert [record.partition_id for record in read] == [1, 1, 1]
        assert feed.obstacles == {}
        await feed.aclose()
    assert "partition 1 cannot be read at present, it is tried again: its server does not" in caplog.text


async def test_a_log_that_ends_before_the_position_is_told() -> None:
    driver = MockDriver(2)
    fill(driver, [3, 3])
    options = ClientOptions(ahead_retry_initial_s=0.001)
    async with waltz.connect(driver, options=options) as client:
        with pytest.raises(waltz.ClientAheadError, match="partition: 1: there is no transaction 7, the last one is 2"):
            await all_of(client.feed_all(after={0: 2, 1: 7}), 1)


async def test_wrong_arguments() -> None:
    async with waltz.connect(MockDriver(2)) as client:
        with pytest.raises(waltz.PartitionNotFoundError):
            client.feed_all([0, 2], after=-1)
        with pytest.raises(ValueError, match="after has no transaction for partition 1"):
            client.feed_all(after={0: 3})
        with pytest.raises(ValueError, match="a feed begins after a transaction"):
            client.feed_all(after=-2)
        with pytest.raises(waltz.PartitionNotFoundError):
            client.feed_all([0], after=-1).pause(1)


async def test_closing_the_client_ends_it(driver: MockDriver) -> None:
    client = await waltz.connect(driver).open()
    reading = asyncio.create_task(anext(client.feed_all(after=-1)))
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(waltz.ClientClosedError):
        await reading


async def test_closing_the_client_ends_it_while_nothing_is_being_read(driver: MockDriver) -> None:
    fill(driver, [1_000, 0, 0, 0])
    client = await waltz.connect(driver).open()
    feed = client.feed_all([0], after=-1)
    await feed.next_batch()
    feed.pause(0)
    reading = asyncio.create_task(feed.next_batch())
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(waltz.ClientClosedError):
        await reading
    assert feed.closed


async def test_what_is_held_is_bounded_when_a_partition_is_stuck() -> None:
    """Paused, its records wait: one bulk read of them, whatever there is in the log."""
    size = 10_000
    driver = MockDriver(4)
    for partition in driver.partitions:
        for _ in range(1_000):
            partition.add(bytes(size))
    options = ClientOptions(list_requests=2, list_request_bytes=200_000)
    share = share_of(4, options)
    assert share is not None
    bound = 4 * (share.request_bytes + size)
    async with waltz.connect(driver, options=options) as client:
        feed = client.feed_all(after=-1)
        feed.pause(2)
        held = 0
        for number in range(3_000):
            assert (await anext(feed)).partition_id != 2
            if number % 10 == 0:
                held = max(held, feed.held_bytes)
        assert 0 < held <= bound
        assert await feed.poll(0.01) is None
        assert 0 < feed.held_bytes <= share.request_bytes + size, "what was read of the partition that is stuck"
        feed.resume(2)
        assert [record.partition_id for record in await all_of(feed, 1_000)] == [2] * 1_000
        await feed.aclose()


def test_shares() -> None:
    options = ClientOptions(list_requests=3, list_request_bytes=1 << 20)
    assert share_of(1, options) is None
    assert share_of(3, options) == (1, 1 << 20)
    assert share_of(16, options) == (1, 192 << 10)
    assert share_of(1_000, options) == (1, 64 << 10)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_partition_is_withdrawn_when_its_consumer_is_done(driver: MockDriver, whole: bool) -> None:
    fill(driver, [500, 500, 0, 0])
    async with waltz.connect(driver) as client:
        feed = client.feed_all([0, 1], after=-1)
        if whole:
            turn = await feed.turn(None, None, TURN, whole=True)
            last = turn[-1]
        else:
            last = await anext(feed)
        leaving = asyncio.create_task(feed.withdraw(last.partition_id))
        await asyncio.sleep(0.01)
        assert not leaving.done()
        if whole:
            feed.feed_at_hand.take(turn)
        assert (await anext(feed)).partition_id != last.partition_id
        assert (await leaving).position == last.transaction_id
        assert feed.partition_ids == [1 - last.partition_id]
        assert len(await all_of(feed, 499)) == 499
        feed.add(last.partition_id, last.transaction_id)
        assert (await anext(feed)).transaction_id == last.transaction_id + 1
        feed.drop(last.partition_id)
        assert await feed.poll(0.01) is None
        await feed.aclose()


async def test_closed_by_the_loop_that_is_left(driver: MockDriver) -> None:
    fill(driver, [1, 1, 1, 1])
    async with waltz.connect(driver) as client:
        feed: MergedFeed
        async with client.feed_all(after=-1) as feed:
            async for _ in feed:
                break
        assert feed.closed
