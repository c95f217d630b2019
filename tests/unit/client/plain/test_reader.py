"""Feeds of servers that have no bulk reads, whose transactions are read one by one."""

import dataclasses
import random

import pytest

import waltz
from tests.unit.client.application import QUICK, World, assignment, config
from tests.unit.client.fake_server import until
from waltz.client.engine.environment import Environment
from waltz.client.mock import MockDriver
from waltz.client.mock.cluster import FixedCluster
from waltz.client.plain.client import Client
from waltz.client.plain.reader import SingleReader
from waltz.common.wire.client_server import TransactionDataRequest

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("merged", [False, True])
async def test_after_an_error_reading_goes_on(world: World, merged: bool) -> None:
    server = await world.server()
    for number in range(5):
        world.logs[0].add(b"%d" % number)
    cluster = FixedCluster("test", 1, {server.endpoint: assignment(server.owned)}, client_ids=range(5, 50))
    options = dataclasses.replace(QUICK, data_request_lifetime_s=0.05, data_retry_maximum_s=0.05)
    environment = Environment(config(), cluster, options=options, random_source=random.Random(1))
    async with Client(environment) as client:
        feed = client.feed_all([0], after=-1) if merged else client.feed(0, after=-1)
        server.hold(TransactionDataRequest)
        if isinstance(feed, waltz.MergedFeed):
            await until(lambda: feed.obstacles)
        else:
            with pytest.raises(waltz.DeadlineExceededError):
                await feed.next_batch()
        server.filter = lambda connection, message: False
        read: list[bytes] = []
        while len(read) < 5:
            try:
                read += [record.data for record in await feed.next_batch()]
            except waltz.DeadlineExceededError:
                assert not merged  # another request that was held; every error is told once
        assert read == [b"0", b"1", b"2", b"3", b"4"]
        await feed.aclose()


async def test_no_more_bytes_are_read_ahead_than_there_is_a_share_for() -> None:
    driver = MockDriver(1, versions=(0, 1, 2, 3, 4))
    for size_bytes in (100, 100, 1000, 1000, 100):
        driver.partitions[0].add(bytes(size_bytes))
    options = waltz.ClientOptions(list_requests=2, list_request_bytes=150)
    async with waltz.connect(driver, options=options) as client, client.feed_batches(0, after=-1) as feed:
        ids: list[int] = []

        def read_ahead() -> bool:
            reader = feed._reader
            assert isinstance(reader, SingleReader)
            return bool(reader._changed.waited_for) or len(ids) + len(reader._records) == 5

        while len(ids) < 5:
            batch = await feed.next_batch()
            assert sum(len(record.data) for record in batch[:-1]) < 300
            ids += [record.transaction_id for record in batch]
            await until(read_ahead)
        assert ids == list(range(5))
