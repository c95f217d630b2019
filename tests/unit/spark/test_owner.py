"""Where no replica delivers, the partition's server does."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.common.cluster.fakes import FakeCluster, FakeOwner, damaged, make_log
from tests.unit.relay import HOST, relay
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.zk.client import ZooKeeper
from waltz.spark import owner
from waltz.spark.chunk import Chunk
from waltz.spark.errors import ReplicaReadError
from waltz.spark.options import ClusterOptions, ReadOptions, parse_options
from waltz.spark.owner import OwnerReader
from waltz.spark.planning import Split, plan_with
from waltz.spark.reading import SplitReader

LOG = make_log(0, 50)


class Fallen(NamedTuple):
    """A cluster with fifty transactions, and options to reach it."""

    cluster: FakeCluster
    options: ReadOptions

    async def split(self) -> Split:
        """The whole partition, planned as ever."""
        deadline_s = 1e12
        (split,) = await plan_with(self.cluster.zookeeper, self.options, tls=None, deadline_s=deadline_s)
        return split

    async def read(self, fetch_size: int = 10) -> list[Chunk]:
        """All chunks of the partition."""
        split = await self.split()
        reader = SplitReader(
            split,
            None,
            fetch_size=fetch_size,
            request_timeout_s=self.options.request_timeout_s,
            owner=OwnerReader(self.options, 0, None),
        )
        chunks = []
        try:
            while (chunk := await reader.next_chunk()) is not None:
                chunks.append(chunk)
        finally:
            await reader.close()
        return chunks


def options_with(request_timeout_ms: int) -> ReadOptions:
    return parse_options(
        {
            "zookeeper": "in memory",
            "clusterRoot": "/waltz",
            "tls.plaintext": "true",
            "requestTimeoutMs": str(request_timeout_ms),
        }
    )


@pytest_asyncio.fixture
async def fallen(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fallen]:
    zookeepers = MemoryZooKeeperServer()

    async def connect_zookeeper(options: ClusterOptions) -> ZooKeeper:
        return await zookeepers.connect()

    monkeypatch.setattr(owner, "connect_zookeeper", connect_zookeeper)
    zookeeper = await zookeepers.connect()
    cluster = await FakeCluster.start(zookeeper, "/waltz", [50])
    yield Fallen(cluster, options_with(30_000))
    await cluster.stop()
    await zookeeper.close()


def assert_whole(chunks: list[Chunk]) -> None:
    position = 0
    for chunk in chunks:
        assert chunk.first == position
        position += chunk.count
    assert [payload for chunk in chunks for payload in chunk.payloads.to_pylist()] == [record.data for record in LOG]
    assert [header for chunk in chunks for header in chunk.heads().column("header")] == [item.header for item in LOG]


async def test_the_server_is_not_asked_while_a_replica_delivers(fallen: Fallen) -> None:
    fallen.cluster.owner.logs[0] = LOG
    first, second, _ = fallen.cluster.storages
    await first.stop()
    second.logs[0] = damaged(LOG, 20)
    assert_whole(await fallen.read())
    assert fallen.cluster.owner.lists == []


async def test_replicas_that_all_lag_end_with_the_server(fallen: Fallen) -> None:
    fallen.cluster.owner.logs[0] = LOG
    for storage in fallen.cluster.storages:
        storage.logs[0] = LOG[:23]
    assert_whole(await fallen.read())
    asked = [(request.transaction_id, request.max_count) for request in fallen.cluster.owner.lists]
    assert asked == [(23, 10), (33, 10), (43, 7)]
    assert fallen.cluster.owner.requests[-1].partition_id == 0


async def test_storages_that_are_all_down(fallen: Fallen) -> None:
    fallen.cluster.owner.logs[0] = LOG
    fallen.cluster.owner.max_answer_records = 7
    split = await fallen.split()
    for storage in fallen.cluster.storages:
        await storage.stop()
    assert split.sources
    assert_whole(await fallen.read())


async def test_after_the_server_the_replicas_have_their_turn_again(fallen: Fallen) -> None:
    """Each fails somewhere, but never all at the same transaction."""
    fallen.cluster.owner.logs[0] = damaged(LOG, 35)
    for storage in fallen.cluster.storages:
        storage.logs[0] = damaged(LOG, 15)
    assert_whole(await fallen.read())
    assert fallen.cluster.owner.lists[-1].transaction_id == 30


async def test_a_server_that_has_not_got_it_either_is_named(fallen: Fallen) -> None:
    for storage in fallen.cluster.storages:
        storage.logs[0] = LOG[:23]
    with pytest.raises(ReplicaReadError) as caught:
        await fallen.read()
    text = str(caught.value)
    assert text.count("does not have transaction 23;") == 3
    endpoint = fallen.cluster.owner.endpoint
    assert text.endswith(
        f"; the partition's server: server {endpoint}: the storages have not got transaction 23, which is committed"
    )


async def test_damage_that_the_server_passes_on_is_noticed(fallen: Fallen) -> None:
    fallen.cluster.owner.logs[0] = damaged(LOG, 15)
    for storage in fallen.cluster.storages:
        storage.logs[0] = damaged(LOG, 15)
    with pytest.raises(ReplicaReadError) as caught:
        await fallen.read()
    assert (
        f"the partition's server: server {fallen.cluster.owner.endpoint} delivered a damaged transaction: "
        "partition 0, transaction 15"
    ) in str(caught.value)


async def test_a_new_owner_that_is_not_ready_is_asked_again(fallen: Fallen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RETRY_INITIAL_S", 0.001)
    for storage in fallen.cluster.storages:
        storage.logs[0] = LOG[:1]
    fallen.cluster.owner.logs[0] = LOG
    fallen.cluster.owner.refused_lists = 3
    assert_whole(await fallen.read(fetch_size=60))
    assert len(fallen.cluster.owner.lists) == 4


async def test_the_owner_may_change_while_it_is_read(fallen: Fallen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RETRY_INITIAL_S", 0.001)
    first = fallen.cluster.owner
    first.logs[0] = LOG
    reader = OwnerReader(fallen.options, 0, None)
    before = await reader.records(0, 0, 20)
    await first.stop()
    second = FakeOwner(first.marks)
    second.logs[0] = LOG
    await second.start()
    fallen.cluster.owner = second
    await fallen.cluster.register_server(2, second.endpoint)
    await fallen.cluster.assign_to(2)
    after = await reader.records(0, 20, 30)
    await reader.close()
    assert before is not None
    assert after is not None
    assert_whole([before, after])


@pytest.mark.parametrize("versions", [(0,), (0, 1, 2, 3, 4)])
async def test_a_server_of_the_original_has_no_bulk_reads(fallen: Fallen, versions: tuple[int, ...]) -> None:
    old = FakeOwner(fallen.cluster.owner.marks)
    await old.start(family=CLIENT_SERVER._replace(versions=versions))
    await fallen.cluster.register_server(2, old.endpoint)
    await fallen.cluster.assign_to(2)
    reader = OwnerReader(fallen.options, 0, None)
    with pytest.raises(WaltzError, match=rf"speaks version {versions[-1]} of the protocol, which has no bulk reads"):
        await reader.records(0, 0, 20)
    await reader.close()
    await old.stop()


async def test_nobody_owns_the_partition(fallen: Fallen) -> None:
    await fallen.cluster.assign_to(9)
    reader = OwnerReader(options_with(1), 0, None)
    with pytest.raises(owner.OwnerNotReadyError, match="no server owns partition 0"):
        await reader.records(0, 0, 20)
    await reader.close()


async def test_what_is_not_committed_is_absent(fallen: Fallen) -> None:
    fallen.cluster.owner.logs[0] = make_log(0, 60)
    reader = OwnerReader(fallen.options, 0, None)
    assert await reader.records(0, 50, 20) is None
    last = await reader.records(0, 45, 20)
    await reader.close()
    assert last is not None
    assert last.count == 5


async def test_a_connection_to_the_server_that_goes_dead_is_replaced(
    fallen: Fallen,
) -> None:
    cluster, split = fallen.cluster, await fallen.split()
    cluster.owner.logs[0] = LOG
    for storage in cluster.storages:
        storage.logs[0] = []
    async with relay(cluster.owner.endpoint.port) as line:
        await cluster.register_server(2, Endpoint(HOST, line.port))
        await cluster.assign_to(2)
        options = options_with(1000)
        reader = SplitReader(split, None, fetch_size=10, request_timeout_s=5.0, owner=OwnerReader(options, 0, None))
        chunks = []
        while (chunk := await reader.next_chunk()) is not None:
            chunks.append(chunk)
            if chunk.first == 10:
                line.blackhole()
        await reader.close()
    assert_whole(chunks)


async def test_a_line_to_the_server_that_stays_dead_ends_the_read(fallen: Fallen) -> None:
    cluster, split = fallen.cluster, await fallen.split()
    cluster.owner.logs[0] = LOG
    for storage in cluster.storages:
        storage.logs[0] = []
    async with relay(cluster.owner.endpoint.port) as line:
        await cluster.register_server(2, Endpoint(HOST, line.port))
        await cluster.assign_to(2)
        options = options_with(1000)
        reader = SplitReader(split, None, fetch_size=10, request_timeout_s=5.0, owner=OwnerReader(options, 0, None))
        assert await reader.next_chunk() is not None
        line.cut()
        with pytest.raises(ReplicaReadError, match=rf"the partition's server: cannot connect to {HOST}:{line.port}"):
            while await reader.next_chunk() is not None:
                pass
        await reader.close()
