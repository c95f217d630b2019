"""Reads by time over the mock driver: asynchronous, for threads, and with servers that know no times."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import waltz
import waltz.blocking
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(60)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


@pytest.fixture
def driver() -> MockDriver:
    """Transactions 0 to 4 of partition 1 are of 12:00:00 to 12:00:04."""
    driver = MockDriver(2)
    partition = driver.partitions[1]
    for second in range(5):
        time_ms = int(at(second).timestamp()) * 1000
        partition.clock_ms = lambda time_ms=time_ms: time_ms  # type: ignore[misc]  # a constant
        partition.add(b"%d" % second)
    return driver


async def test_ids_and_times(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        assert [await client.offset_at(1, at(second)) for second in (-1, 0, 0.9995, 1, 3.5, 4, 86_400)] == [
            -1,
            0,
            0,
            1,
            3,
            4,
            4,
        ]
        assert await client.offset_at(1, at(2).astimezone(timezone(timedelta(hours=5)))) == 2
        assert await client.offset_at(0, at(2)) == -1
        assert await client.time_of(1, 2) == at(2)
        assert [await client.time_of(1, each) for each in (-1, 5)] == [at(0), None]


async def test_a_feed_since_a_time(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        async with client.feed(1, since=at(1.5), until=3) as feed:
            assert feed.position == -1
            assert [record.transaction_id async for record in feed] == [2, 3]
            assert feed.position == 3
        batches = [batch async for batch in client.feed_batches(1, since=at(-5), until=4)]
        assert [record.transaction_id for batch in batches for record in batch] == [0, 1, 2, 3, 4]
        assert [record async for record in client.feed(1, since=at(60), until=4)] == []


async def test_several_partitions_since_a_time(driver: MockDriver) -> None:
    partition = driver.partitions[0]
    partition.clock_ms = lambda: int(at(3).timestamp()) * 1000
    partition.add(b"of another partition")
    async with waltz.connect(driver) as client, client.feed_all(since=at(2), until={0: 0, 1: 4}) as feed:
        assert sorted([(record.partition_id, record.transaction_id) async for record in feed]) == [
            (0, 0),
            (1, 3),
            (1, 4),
        ]


async def test_a_consumer_starts_at_a_time_once(driver: MockDriver, tmp_path: Path) -> None:
    async with waltz.connect(driver) as client:
        for start, first in ((at(1), 2), (at(3), 2)):  # the position is stored: the second time does not count
            positions = waltz.FilePositions(tmp_path / "positions")
            async with client.consume(positions, [1], start=start) as consumer:
                assert consumer.committed == {1: first - 1}
                assert (await anext(consumer)).transaction_id == first


def test_threads_have_the_same(driver: MockDriver, tmp_path: Path) -> None:
    with waltz.blocking.connect(driver) as client:
        assert client.offset_at(1, at(2)) == 2
        assert client.time_of(1, 2) == at(2)
        assert [record.transaction_id for record in client.feed(1, since=at(1), until=3)] == [2, 3]
        batches = client.feed_batches(1, since=at(1), until=3)
        assert [record.transaction_id for batch in batches for record in batch] == [2, 3]
        with client.feed_all([1], since=at(1), until={1: 3}) as feed:
            assert [record.transaction_id for record in feed] == [2, 3]
        with client.consume(waltz.FilePositions(tmp_path / "positions"), [1], start=at(2)) as consumer:
            assert consumer.committed == {1: 2}


async def test_servers_that_know_no_times_are_named(driver: MockDriver, tmp_path: Path) -> None:
    async with waltz.connect(MockDriver(driver.partitions, versions=(0, 1, 2, 3, 4, 5))) as client:
        with pytest.raises(waltz.TimesNotSupportedError, match="the server of partition 1 is too old") as refused:
            await client.offset_at(1, at(0))
        assert refused.value.partition_id == 1
        feed = client.feed(1, since=at(0))
        with pytest.raises(waltz.TimesNotSupportedError):
            await anext(feed)
        assert feed.closed
        with pytest.raises(waltz.TimesNotSupportedError):
            await anext(client.feed_all(since=at(0)))
        with pytest.raises(waltz.TimesNotSupportedError):
            async with client.consume(waltz.FilePositions(tmp_path / "positions"), start=at(0)):
                pass


async def test_wrong_arguments_are_named(driver: MockDriver, tmp_path: Path) -> None:
    async with waltz.connect(driver) as client:
        with pytest.raises(ValueError, match="time must have a time zone"):
            await client.offset_at(1, datetime(2026, 3, 1))  # that is the mistake
        with pytest.raises(TypeError, match="time must be a datetime, not 5"):
            await client.offset_at(1, 5)  # type: ignore[arg-type]  # that is the mistake
        with pytest.raises(waltz.PartitionNotFoundError):
            await client.offset_at(2, at(0))
        with pytest.raises(ValueError, match="since must have a time zone"):
            client.feed(1, since=datetime(2026, 3, 1))  # that is the mistake
        for arguments in ({}, {"after": 0, "since": at(0)}):
            with pytest.raises(waltz.InvalidOperationError, match="give one of the two"):
                client.feed(1, **arguments)  # type: ignore[arg-type]  # that is the mistake
            with pytest.raises(waltz.InvalidOperationError, match="give one of the two"):
                client.feed_all(**arguments)  # type: ignore[arg-type]  # that is the mistake
        with pytest.raises(ValueError, match="since must have a time zone"):
            client.feed_all(since=datetime(2026, 3, 1))  # that is the mistake
        with pytest.raises(ValueError, match="start must have a time zone"):
            client.consume(
                waltz.FilePositions(tmp_path / "positions"), start=datetime(2026, 3, 1)
            )  # that is the mistake
