"""Write sessions against real servers and storages that are well: who may append, and where the log of others ends."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import waltz
from tests.integration.application import Append, Application, append_all
from tests.integration.peers import Peers, live
from tests.integration.session_clients import client_of, eventually, log_of, store_session
from tests.unit.client.proxy import Proxies
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.wire.write_sessions import FenceOption, HeartbeatOption, HeartbeatState, LastTransactionStatus
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionAssignment, PartitionMetadata
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PARTITIONS = 40
CHECKPOINT_INTERVAL = 100
"""Transactions after which a store session is followed by another one, in all of these tests."""

FENCES = 3
"""Least number of fences that are carried out while others append."""

SESSION_FENCED, HEARTBEAT, HEARTBEAT_TOLD, LAST_TRANSACTION, LAST_TRANSACTION_TOLD = range(23, 28)


@pytest.fixture(scope="module")
def plain_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A healthy one whose partitions are used up, one by each test."""
    directory: Path = tmp_path_factory.mktemp("sessions")
    often = {"storage.checkpointInterval": CHECKPOINT_INTERVAL, "server.minFenceInterval": 0}  # fences, too
    with LocalCluster(directory, partitions=PARTITIONS, plaintext=True, server_overrides=often) as running:
        yield running


unused = iter(range(PARTITIONS))


@pytest.fixture
def partition() -> int:
    """An empty one."""
    return next(unused)


@pytest.fixture
async def connect(plain_cluster: LocalCluster, partition: int) -> AsyncIterator[Peers]:
    """To the server of the partition."""
    peers = await Peers.of(plain_cluster, partition)
    yield peers
    peers.close()


@pytest.fixture
async def one(plain_cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with client_of(plain_cluster) as client:
        yield client


@pytest.fixture
async def two(plain_cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with client_of(plain_cluster) as client:
        yield client


@pytest.fixture
async def plain(plain_cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    """A client whose appends belong to no write session."""
    async with client_of(plain_cluster, sessions=False) as client:
        yield client


@asynccontextmanager
async def fences(client: waltz.Client, partition: int) -> AsyncIterator[list[int]]:
    """Somebody begins one session after the other; yields the numbers so far."""
    numbers: list[int] = []

    async def begin() -> None:
        while True:
            await client.last_transaction_id(partition, fence=True)
            number = client.write_session(partition)
            assert number is not None
            numbers.append(number)

    beginning = asyncio.create_task(begin())
    try:
        yield numbers
        assert not beginning.done(), beginning.exception()
    finally:
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
    assert numbers == sorted(set(numbers))


# Who may write


async def test_a_successor_ends_the_session_of_its_predecessor(
    one: waltz.Client, two: waltz.Client, partition: int
) -> None:
    await one.append_many(partition, [b"one"] * 1000)
    held = one.write_session(partition)
    assert held is not None
    assert held >= 1
    assert await two.last_transaction_id(partition, fence=True) == 999
    number = two.write_session(partition)
    assert number is not None
    assert number > held
    for _ in range(3):
        with pytest.raises(waltz.SessionFencedError):
            await one.append(partition, b"refused")
    assert one.write_session(partition) is None
    await two.append(partition, b"two")
    assert await one.renew_session(partition) == number
    await one.append(partition, b"one")
    await two.append(partition, b"two")
    assert await log_of(two, partition) == [b"one"] * 1000 + [b"two", b"one", b"two"]


async def test_who_has_no_session_is_never_refused_for_the_fences_of_others(
    one: waltz.Client, two: waltz.Client, plain: waltz.Client, connect: Peers, partition: int
) -> None:
    old = await connect(4)
    old.partition = partition
    await old.mounted()
    await one.append(partition, b"one")
    rounds = 0
    async with fences(two, partition) as numbers:
        while rounds < 10 or len(numbers) < FENCES:
            assert len(await plain.append_many(partition, [b"plain"] * 50)) == 50
            for number in range(10):
                old.append(2 + 10 * rounds + number, -1, data=b"old")
            old.send(8, 11 + 10 * rounds)
            kind, _, _ = await old.receive()
            assert kind == 9
            rounds += 1
    with pytest.raises(waltz.SessionFencedError):
        await one.append(partition, b"refused")
    log = await log_of(two, partition)
    assert sorted(log) == sorted([b"one", *[b"plain"] * 50 * rounds, *[b"old"] * 10 * rounds])


@pytest.mark.parametrize("version", range(5))
async def test_older_clients_get_the_same_bytes_while_somebody_fences(
    two: waltz.Client, connect: Peers, partition: int, version: int
) -> None:
    lives = 0
    async with fences(two, partition) as numbers:
        while lives < 10 or len(numbers) < FENCES:
            await live(connect, version, partition)
            lives += 1


async def test_an_exclusive_session_keeps_out_other_sessions(
    one: waltz.Client, two: waltz.Client, plain: waltz.Client, partition: int
) -> None:
    await two.append(partition, b"two")
    async with one.exclusive(partition) as session:
        assert session.transaction_id == 0
        await one.append(partition, b"one")
        for client in (two, plain):
            with pytest.raises(waltz.SessionFencedError):
                await client.append(partition, b"refused")
        with pytest.raises(waltz.SessionFencedError, match="exclusive"):
            await two.renew_session(partition)
        assert await two.last_transaction_id(partition) == 1
        async with two.exclusive(partition) as taken:
            assert taken.number > session.number
            assert taken.transaction_id == 1
            with pytest.raises(waltz.SessionFencedError):
                await one.append(partition, b"refused")
            await two.append(partition, b"two")
    assert await plain.append(partition, b"plain") == 3
    assert await one.renew_session(partition) == two.write_session(partition)
    await one.append(partition, b"one")
    assert await log_of(two, partition) == [b"two", b"one", b"two", b"plain", b"one"]


async def test_a_fence_ends_an_exclusive_session(one: waltz.Client, two: waltz.Client, partition: int) -> None:
    async with one.exclusive(partition) as session:
        await one.append(partition, b"one")
        with pytest.raises(waltz.SessionFencedError):
            await two.last_transaction_id(partition, fence=True, if_session=session.number - 1)
        assert await two.last_transaction_id(partition, fence=True, if_session=session.number) == 0
        await two.append(partition, b"two")
        with pytest.raises(waltz.SessionFencedError):
            await one.append(partition, b"refused")
        number = two.write_session(partition)
    assert await one.renew_session(partition) == number, "leaving the block did not end the session of the other"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_older_clients_are_kept_out_of_an_exclusive_session_without_a_word(
    one: waltz.Client, connect: Peers, partition: int, version: int
) -> None:
    old = await connect(version)
    old.partition = partition
    await old.mounted()
    async with one.exclusive(partition):
        old.append(2, -1, data=b"old")
        old.send(8, 2)
        assert await old.receive() == (9, old.req_id(2), struct.pack(">q", -1)), "dropped, and the flush tells so"
        await one.append(partition, b"one")
    old.append(3, 0, data=b"old")
    old.send(8, 3)
    assert await old.receive() == (9, old.req_id(3), struct.pack(">q", 1))
    assert await log_of(one, partition) == [b"one", b"old"]


async def test_of_two_that_are_exclusive_by_configuration_the_last_has_the_partition(
    plain_cluster: LocalCluster, partition: int
) -> None:
    async with (
        client_of(plain_cluster, enable_exclusive_session=True) as first,
        client_of(plain_cluster, enable_exclusive_session=True) as last,
    ):
        await first.append(partition, b"first")
        await last.append(partition, b"last")
        with pytest.raises(waltz.SessionFencedError):
            await first.append(partition, b"refused")
        assert await first.last_transaction_id(partition, fence=True) == 1
        await first.append(partition, b"first")
        with pytest.raises(waltz.SessionFencedError):
            await last.append(partition, b"refused")


# What the number depends on


async def test_a_session_outlives_store_sessions(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int
) -> None:
    await one.append(partition, b"first")
    number = one.write_session(partition)
    before = await store_session(plain_cluster, partition)
    async with asyncio.timeout(60):
        while await store_session(plain_cluster, partition) < before + 3:
            await one.append_many(partition, [b"more"] * CHECKPOINT_INTERVAL)
    assert one.write_session(partition) == number
    assert await one.renew_session(partition) == number


async def test_a_store_session_of_somebody_else_ends_it(
    plain_cluster: LocalCluster, one: waltz.Client, two: waltz.Client, partition: int
) -> None:
    await one.append(partition, b"one")
    number = one.write_session(partition)
    assert number is not None
    foreign = await begin_store_session(plain_cluster, partition)
    with pytest.raises(waltz.SessionFencedError):
        while True:
            await one.append(partition, b"one")
    assert await two.renew_session(partition) > foreign + 1 > number


async def begin_store_session(cluster: LocalCluster, partition: int) -> int:
    """Begin a store session in the metadata in ZooKeeper, as another owner would."""
    zookeeper = await cluster.zookeeper()
    try:
        path = ClusterPaths.of(ROOT).partition(partition)
        data, stat = await zookeeper.get(path)
        metadata = PartitionMetadata.decode(data)
        await zookeeper.set(path, metadata._replace(session_id=metadata.session_id + 1).encode(), stat.version)
        return metadata.session_id + 1
    finally:
        await zookeeper.close()


async def test_another_generation_ends_it(plain_cluster: LocalCluster, one: waltz.Client, partition: int) -> None:
    await one.append(partition, b"one")
    number = one.write_session(partition)
    assert number is not None
    await raise_generation(plain_cluster, partition)
    with pytest.raises(waltz.SessionFencedError):
        while True:
            await eventually(lambda: one.append(partition, b"one"))
    assert await one.renew_session(partition) > number


async def raise_generation(cluster: LocalCluster, partition: int) -> None:
    """Raise the generation, as the cluster manager does when a partition has gone and come back."""
    zookeeper = await cluster.zookeeper()
    try:
        path = ClusterPaths.of(ROOT).server_descriptors
        data, stat = await zookeeper.get(path)
        assignment = PartitionAssignment.decode(data)
        servers = {
            server: tuple(
                each._replace(generation=each.generation + (each.partition_id == partition)) for each in owned
            )
            for server, owned in assignment.servers.items()
        }
        await zookeeper.set(path, assignment._replace(servers=servers).encode(), stat.version)
    finally:
        await zookeeper.close()


async def test_a_holder_keeps_its_session_over_a_hundred_connections(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int
) -> None:
    proxies = Proxies(seed=1)
    holder = client_of(plain_cluster, connector=proxies.connector())
    try:
        async with holder, holder.exclusive(partition) as session:
            for _ in range(100):
                proxies.cut()
                await eventually(lambda: holder.append(partition, b"holder"))
                assert holder.write_session(partition) == session.number
            with pytest.raises(waltz.SessionFencedError):
                await one.append(partition, b"refused")
        async with client_of(plain_cluster) as restarted, restarted.exclusive(partition) as session_after:
            assert session_after.number > session.number
        assert set(await log_of(one, partition)) == {b"holder"}
    finally:
        await proxies.close()


async def test_fences_of_many_at_once_begin_sessions_one_after_the_other(
    plain_cluster: LocalCluster, plain: waltz.Client, partition: int
) -> None:
    """While their connections break: a fence may be carried out twice then, and the second time counts."""
    proxies = Proxies(seed=6)
    begun: list[tuple[int, int]] = []
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(client_of(plain_cluster, connector=proxies.connector())) for _ in range(6)
        ]

        async def fence(client: waltz.Client) -> None:
            for _ in range(20):
                transaction_id = await client.last_transaction_id(partition, fence=True)
                number = client.write_session(partition)
                if number is not None:
                    begun.append((number, transaction_id))
                await plain.append(partition, b"plain")

        async with asyncio.TaskGroup() as group:
            fencing = [group.create_task(fence(client)) for client in clients]
            while not all(task.done() for task in fencing):
                await asyncio.sleep(0.02)
                await proxies.disturb(1, 0)
        numbers = [number for number, _ in begun]
        assert len(set(numbers)) == len(numbers)
        ends = [transaction_id for _, transaction_id in sorted(begun)]
        assert ends == sorted(ends)
        assert len(await log_of(plain, partition)) == 120
        last = max(numbers)
        for client in clients:
            assert await client.renew_session(partition) >= last
    await proxies.close()


def test_a_blocking_client(plain_cluster: LocalCluster, partition: int) -> None:
    path = plain_cluster.layout.client_config_path
    with waltz.blocking.connect(path, session_write=True) as one, waltz.blocking.connect(path) as plain:
        with one.exclusive(partition) as session:
            assert one.append(partition, b"one") == session.transaction_id + 1 == 0
            with pytest.raises(waltz.SessionFencedError):
                plain.append(partition, b"refused")
        assert plain.append(partition, b"plain") == 1
        assert one.last_transaction_id(partition, fence=True) == 1


# What a fence finds and leaves


async def test_everything_before_a_fence_is_decided_and_nothing_refused_wrongly(
    one: waltz.Client, plain: waltz.Client, connect: Peers, partition: int
) -> None:
    """The frames of one connection are handled in their order, so that it is known what comes before the fence."""
    peer = await connect(5)
    peer.partition = partition
    await peer.mounted()
    session = await one.renew_session(partition)
    behind = asyncio.gather(*(plain.append(partition, b"plain") for _ in range(200)))
    for number in range(500):
        peer.append(2 + number, -1, data=b"peer", session=session)
    peer.send(LAST_TRANSACTION, 600, struct.pack(">bq", FenceOption.FENCE, session))
    peer.append(601, -1, data=b"late", session=session)
    kind, req_id, body = await peer.receive()
    assert (kind, req_id) == (LAST_TRANSACTION_TOLD, peer.req_id(600))
    status, transaction_id, raised = struct.unpack(">iqq", body)
    assert status == LastTransactionStatus.OK
    assert raised > session
    kind, req_id, _ = await peer.receive()
    assert (kind, req_id) == (SESSION_FENCED, peer.req_id(601))
    assert len(await behind) == 200
    log = [each async for each in one.feed(partition, after=-1, until=699)]
    found = {each.req_id: each.transaction_id for each in log if each.data == b"peer"}
    assert set(found) == {peer.req_id(2 + number) for number in range(500)}
    assert max(found.values()) <= transaction_id
    assert await one.high_water_mark(partition) == 699


async def test_a_refused_append_leaves_its_locks_alone_and_a_fence_too(
    one: waltz.Client, two: waltz.Client, partition: int
) -> None:
    lock, other = waltz.PartitionLocalLock("lock", 1), waltz.PartitionLocalLock("other", 1)
    await one.append(partition, b"before")
    await one.append(partition, b"changes the lock", append_locks=[lock])
    assert await two.last_transaction_id(partition, fence=True) == 1
    with pytest.raises(waltz.SessionFencedError):
        await one.append(partition, b"refused", write_locks=[other], high_water_mark=1)
    await two.append(partition, b"nobody else has it", write_locks=[other], high_water_mark=0)
    with pytest.raises(waltz.LockConflict) as raised:
        await two.append(partition, b"conflict", write_locks=[lock], high_water_mark=0)
    assert raised.value.transaction_id == 1
    await two.append(partition, b"changes it again", write_locks=[lock], high_water_mark=1)
    assert len(await log_of(two, partition)) == 4


async def test_an_empty_partition(one: waltz.Client, partition: int) -> None:
    number = await one.renew_session(partition)
    assert await one.last_transaction_id(partition) == -1
    assert await one.renew_session(partition) == number, "a question raises nothing"
    assert await one.last_transaction_id(partition, fence=True) == -1
    raised = one.write_session(partition)
    assert raised is not None
    assert raised > number
    assert await one.append(partition, b"first") == 0


async def test_what_is_acknowledged_is_not_behind_what_is_asked_for_later(
    one: waltz.Client, two: waltz.Client, plain: waltz.Client, partition: int
) -> None:
    acknowledged = -1

    async def append() -> None:
        nonlocal acknowledged
        for _ in range(100):
            acknowledged = max(acknowledged, await plain.append(partition, b"plain"))

    appending = asyncio.gather(*(append() for _ in range(4)))
    asked = 0
    while not appending.done():
        for client, fence in ((one, False), (two, True)):
            least = acknowledged
            assert await client.last_transaction_id(partition, fence=fence) >= least
            asked += 1
    await appending
    assert asked > 2


async def test_a_fence_writes_nothing_into_the_log(
    plain_cluster: LocalCluster, one: waltz.Client, two: waltz.Client, partition: int
) -> None:
    await one.append_many(partition, [b"record"] * 10)
    async with asyncio.timeout(60):  # the slowest storage may be behind the quorum
        while len({content[HEADER_SIZE_BYTES:] for content in segments(plain_cluster, partition).values()}) != 1:
            await asyncio.sleep(0.05)
    before = segments(plain_cluster, partition)
    assert len(before) == 3
    for _ in range(10):
        for client in (one, two):
            assert await client.last_transaction_id(partition, fence=True) == 9
            async with client.exclusive(partition):
                pass
    assert segments(plain_cluster, partition) == before
    await one.renew_session(partition)
    assert await one.append(partition, b"next") == 10
    assert not any(MARKER in content for content in segments(plain_cluster, partition).values())


MARKER = struct.pack(">i", -(1 << 31))
"""The client id that markers in the log would bear."""


def segments(cluster: LocalCluster, partition: int) -> dict[Path, bytes]:
    """The segment files of the partition on all storages."""
    return {
        path: path.read_bytes()
        for node in cluster.layout.storages
        for path in (cluster.layout.data_directory(node) / str(partition)).glob("*.seg")
    }


# Errors


async def test_every_request_is_answered(connect: Peers, one: waltz.Client, partition: int) -> None:
    """Also where the server has nothing to say: the partition is not here, or not mounted over that connection."""
    peer = await connect(5)
    fence, heartbeat = struct.pack(">bq", FenceOption.FENCE, -1), bytes([HeartbeatOption.GET_SESSION])
    for unknown in (PARTITIONS, -1, (1 << 31) - 1):
        peer.send(LAST_TRANSACTION, 1, fence, unknown)
        not_ready = struct.pack(">iqq", LastTransactionStatus.NOT_READY, -1, -1)
        assert await peer.receive() == (LAST_TRANSACTION_TOLD, peer.req_id(1, unknown), not_ready)
        peer.send(HEARTBEAT, 2, heartbeat, unknown)
        not_ready = struct.pack(">iqqb", HeartbeatState.NOT_READY, -1, -1, 0)
        assert await peer.receive() == (HEARTBEAT_TOLD, peer.req_id(2, unknown), not_ready)
    peer.partition = partition
    peer.send(HEARTBEAT, 2, heartbeat)
    assert await peer.receive() == (HEARTBEAT_TOLD, peer.req_id(2), not_ready), "it has not mounted it"
    number = await one.renew_session(partition)
    await peer.mounted()
    peer.send(HEARTBEAT, 2, heartbeat)
    present = struct.pack(">iqqb", HeartbeatState.OK, -1, number, 0)
    assert await peer.receive() == (HEARTBEAT_TOLD, peer.req_id(2), present)
    peer.send(LAST_TRANSACTION, 3, struct.pack(">bq", FenceOption.FENCE, number + 1))
    unexpected = struct.pack(">iqq", LastTransactionStatus.UNEXPECTED_SESSION, -1, number)
    assert await peer.receive() == (LAST_TRANSACTION_TOLD, peer.req_id(3), unexpected)
    await one.append(partition, b"one")
    assert one.write_session(partition) == number


async def test_fences_of_a_client_that_has_gone_stand_in_nobodys_way(
    connect: Peers, one: waltz.Client, plain: waltz.Client, partition: int
) -> None:
    await one.append(partition, b"one")
    number = one.write_session(partition)
    assert number is not None
    peer = await connect(5)
    peer.partition = partition
    count = 5000
    for seq in range(count):
        peer.send(LAST_TRANSACTION, seq, struct.pack(">bq", FenceOption.FENCE, -1))
    await peer.receive()
    peer.writer.transport.abort()
    assert await plain.append(partition, b"plain") == 1
    with pytest.raises(waltz.SessionFencedError):
        await one.append(partition, b"refused")
    assert number < await one.renew_session(partition) < number + count


async def test_a_closed_client(plain_cluster: LocalCluster, partition: int) -> None:
    client = client_of(plain_cluster)
    async with client:
        await client.append(partition, b"one")
    for call in (client.last_transaction_id(partition, fence=True), client.renew_session(partition)):
        with pytest.raises(waltz.ClientClosedError):
            await call
    with pytest.raises(waltz.ClientClosedError):
        async with client.exclusive(partition):
            pass


async def test_a_partition_that_the_client_takes_no_part_in_is_not_fenced(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int
) -> None:
    await one.append(partition, b"one")
    config = load(plain_cluster.layout.client_config_path, ClientConfig)
    config = config.model_copy(update={"enable_session_write": True, "auto_mount": False})
    async with await waltz.WaltzClient.open(Application(), config) as client:
        with pytest.raises(waltz.PartitionInactiveError):
            await client.last_transaction_id(partition, fence=True)
        with pytest.raises(waltz.PartitionInactiveError):
            await client.renew_session(partition)
        with pytest.raises(waltz.PartitionInactiveError):
            async with client.exclusive(partition):
                pass
        with pytest.raises(waltz.PartitionNotFoundError):
            await client.last_transaction_id(PARTITIONS, fence=True)
        await one.append(partition, b"one")
        await client.set_partitions([partition])
        assert await client.last_transaction_id(partition, fence=True) == 1
        await append_all(client, [Append(partition, b"two")])
    with pytest.raises(waltz.SessionFencedError):
        await one.append(partition, b"refused")


class Ahead(Application):
    """Claims to have applied more than there is."""

    def client_high_water_mark(self, partition_id: int) -> int:
        return 1000


async def test_a_client_that_is_ahead_of_the_log_fences_nobody(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int
) -> None:
    await one.append(partition, b"one")
    config = load(plain_cluster.layout.client_config_path, ClientConfig)
    config = config.model_copy(update={"enable_session_write": True, "auto_mount": False, "session_timeout_ms": 1000})
    async with await waltz.WaltzClient.open(Ahead(), config) as client:
        await client.set_partitions([partition])
        with pytest.raises(waltz.ClientAheadError):
            await client.last_transaction_id(partition, fence=True)
        with pytest.raises(waltz.ClientAheadError):
            await client.renew_session(partition)
    await one.append(partition, b"one")
