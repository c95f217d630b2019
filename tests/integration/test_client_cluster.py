"""The client library against real servers, storages and ZooKeeper."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import waltz
from tests.unit.client.fake_server import until
from tests.unit.client.load import Load, LoadCallbacks
from tests.unit.client.proxy import Proxies
from waltz.client.callbacks import WaltzClient
from waltz.client.options import ClientOptions
from waltz.client.plain.feed import TransactionFeed
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LIVELY = ClientOptions(reconnect_initial_s=0.02, reconnect_maximum_s=0.2, not_ready_retry_s=0.05)


@pytest_asyncio.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(cluster.layout.client_config_path) as client:
        yield client


def unique_lock() -> waltz.PartitionLocalLock:
    return waltz.PartitionLocalLock(str(uuid.uuid4()), random.getrandbits(62))


async def test_append_and_feed(client: waltz.Client) -> None:
    assert client.partition_count == 2
    before = await client.high_water_mark(0)
    ids = await client.append_many(0, [b"%d" % number for number in range(2_000)])
    assert ids == list(range(before + 1, before + 2_001))
    assert await client.high_water_mark(0) == ids[-1]
    read = [each async for each in client.feed(0, after=before, until=ids[-1])]
    assert [each.data for each in read] == [b"%d" % number for number in range(2_000)]
    batches = [batch async for batch in client.feed_batches(0, after=before, until=ids[-1])]
    assert [each for batch in batches for each in batch] == read


async def test_the_feed_follows_what_others_append(cluster: LocalCluster, client: waltz.Client) -> None:
    after = await client.high_water_mark(1)
    feed = client.feed(1, after=after, until=after + 50)
    reading = asyncio.ensure_future(_data(feed))
    async with waltz.connect(cluster.layout.client_config_path) as other:
        for number in range(50):
            await other.append(1, b"%d" % number, header=number)
    assert await reading == [b"%d" % number for number in range(50)]


async def _data(feed: TransactionFeed) -> list[bytes]:
    return [each.data async for each in feed]


async def test_locks(client: waltz.Client) -> None:
    lock, other = unique_lock(), unique_lock()
    first = await client.append(0, b"a", append_locks=[lock])
    second = await client.append(0, b"b", write_locks=[lock], high_water_mark=first)
    with pytest.raises(waltz.LockConflict) as raised:
        await client.append(0, b"c", write_locks=[lock], high_water_mark=first)
    assert raised.value.transaction_id == second
    with pytest.raises(waltz.LockConflict):
        await client.append(0, b"c", read_locks=[lock], high_water_mark=first)
    third = await client.append(0, b"c", append_locks=[lock], write_locks=[other], high_water_mark=second)
    with pytest.raises(waltz.LockConflict):
        await client.append(0, b"d", read_locks=[lock], high_water_mark=second)
    assert third == second + 1


async def test_only_one_of_many_that_want_the_same_wins(client: waltz.Client) -> None:
    lock = unique_lock()
    mark = await client.append(1, b"start", append_locks=[lock])
    items = [waltz.Append(b"%d" % number, write_locks=[lock]) for number in range(20)]
    with pytest.raises(waltz.AppendManyError) as raised:
        await client.append_many(1, items, high_water_mark=mark)
    committed = [each for each in raised.value.outcomes if isinstance(each, int)]
    assert len(committed) == 1
    assert all(
        each.transaction_id >= committed[0] for each in raised.value.outcomes if isinstance(each, waltz.LockConflict)
    )


def test_blocking(cluster: LocalCluster) -> None:
    with waltz.blocking.connect(cluster.layout.client_config_path) as client:
        transaction_id = client.append(0, b"from a thread")
        (transaction,) = client.feed(0, after=transaction_id - 1, until=transaction_id)
        assert transaction.data == b"from a thread"


async def test_administration(cluster: LocalCluster) -> None:
    callbacks = LoadCallbacks({0: -1, 1: -1})
    config = load(cluster.layout.client_config_path, ClientConfig).model_copy(update={"auto_mount": False})
    async with await WaltzClient.open(callbacks, config) as client:
        servers = [waltz.Endpoint.parse(node.connect_string) for node in cluster.layout.servers]
        owned = [await client.server_partition_assignments(endpoint) for endpoint in servers]
        assert sorted(partition for partitions in owned for partition in partitions) == [0, 1]
        for endpoint, partitions in zip(servers, owned, strict=True):
            assert await client.server_partition_health(endpoint) == dict.fromkeys(partitions, True)
        connected = await client.check_server_connections(servers)
        assert set(connected) == set(servers)
        assert all(len(storages) == 3 and all(storages.values()) for storages in connected.values())


@pytest.mark.deep
async def test_a_thousand_disturbances(cluster: LocalCluster) -> None:
    """Connections are cut, half-closed, stalled, and their bytes arrive late; everything is applied exactly once."""
    path = cluster.layout.client_config_path
    async with waltz.connect(path) as plain:
        marks = {partition_id: await plain.high_water_mark(partition_id) for partition_id in range(2)}
        proxies = Proxies(seed=2)
        callbacks = LoadCallbacks(dict(marks))
        config = load(path, ClientConfig)
        async with await WaltzClient.open(callbacks, config, options=LIVELY, connector=proxies.connector()) as client:
            load_ = Load(client, str(uuid.uuid4()), workers=16)
            running = asyncio.create_task(load_.run())
            await proxies.disturb(1_000, pause_s=0.02)
            await until(lambda: load_.committed_count > 1_000)
            load_.stopping = True
            await running
            await client.flush_transactions()
            assert not client.has_pending_transactions()
            ends = {partition_id: await plain.high_water_mark(partition_id) for partition_id in marks}
            await until(lambda: all(client.client_high_water_mark(each) >= end for each, end in ends.items()))
        log = {
            partition_id: [
                record async for record in plain.feed(partition_id, after=marks[partition_id], until=ends[partition_id])
            ]
            for partition_id in marks
        }
        load_.check(callbacks, log)
        await proxies.close()
