"""Feeds of servers that have no bulk reads, whose transactions are read one by one."""

import dataclasses
import random

import pytest

import waltz
from tests.unit.client.application import QUICK, World, assignment, config
from tests.unit.client.fake_server import until
from waltz.client.engine.environment import Environment
from waltz.client.mock.cluster import FixedCluster
from waltz.client.plain.client import Client
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
