"""Write sessions while clients, servers, storages and the lines between them fail."""

import asyncio
import os
import random
import signal
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import yaml

import waltz
from tests.integration import other_server, session_writer
from tests.integration.other_server import Differences
from tests.integration.peers import Peer, Peers
from tests.integration.session_clients import append_until, client_of, eventually, log_of
from tests.smoke.proxy import Proxy
from tests.smoke.replicas import until_all_hold
from tests.smoke.trial import owner
from tests.unit.client.fake_server import until
from tests.unit.client.proxy import Proxies
from waltz.common.wire.write_sessions import FenceOption, HeartbeatOption, LastTransactionStatus
from waltz.local.cluster import STOP_TIMEOUT_S, LocalCluster
from waltz.local.layout import Node
from waltz.local.ports import HOST
from waltz.local.processes import Children

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LOST_ACKNOWLEDGEMENTS = int(os.environ.get("WALTZ_LOST_ACKNOWLEDGEMENTS", "100"))
PARTITIONS = 12
POLL_INTERVAL_S = 0.02

HEARTBEAT, HEARTBEAT_TOLD, LAST_TRANSACTION, LAST_TRANSACTION_TOLD = 24, 25, 26, 27


@pytest.fixture(scope="module")
def plain_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Each test uses up a partition, and leaves all nodes well."""
    often = {"server.minFenceInterval": 0}
    with LocalCluster(
        tmp_path_factory.mktemp("fenced"), partitions=PARTITIONS, plaintext=True, server_overrides=often
    ) as running:
        yield running


unused = iter(range(PARTITIONS))


@pytest.fixture
def partition() -> int:
    """An empty one."""
    return next(unused)


@pytest.fixture
async def one(plain_cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with client_of(plain_cluster) as client:
        yield client


@pytest.fixture
async def two(plain_cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with client_of(plain_cluster) as client:
        yield client


def held(client: waltz.Client, partition: int) -> int:
    """The number of the session that a client is in."""
    number = client.write_session(partition)
    assert number is not None
    return number


# Clients


@pytest.mark.deep
@pytest.mark.timeout(180 + LOST_ACKNOWLEDGEMENTS)
async def test_after_a_fence_there_is_no_doubt_about_appends_whose_outcome_got_lost(
    plain_cluster: LocalCluster, two: waltz.Client, partition: int
) -> None:
    """Whoever fences reads up to the end of the older sessions: the append is there once, or it never will be."""
    draw = random.Random(3)
    proxies = Proxies(seed=4)
    expected: list[bytes] = []
    outcomes = {"appended": 0, "not appended": 0, "unknown, and there": 0, "unknown, and not there": 0}
    async with client_of(plain_cluster, connector=proxies.connector()) as one:
        feed = two.feed(partition, after=-1)
        records = aiter(feed)
        while sum(outcomes.values()) < LOST_ACKNOWLEDGEMENTS or not all(outcomes.values()):
            data = b"%d" % sum(outcomes.values())
            await eventually(lambda: one.renew_session(partition))
            losing = asyncio.create_task(lose_connections(proxies, draw))
            outcome = "appended"
            try:
                await one.append(partition, data, timeout_s=draw.choice((0.002, 0.02, 30)))
            except waltz.NotAppendedError:
                outcome = "not appended"
            except waltz.OutcomeUnknownError:
                outcome = "unknown"
            fencer = draw.choice((one, two))
            end = await fencer.last_transaction_id(partition, fence=True)
            found = [(await anext(records)).data for _ in range(len(expected), end + 1)]
            assert found in ([], [data])
            if outcome == "unknown":
                outcome += ", and there" if found else ", and not there"
            else:
                assert bool(found) == (outcome == "appended")
            outcomes[outcome] += 1
            expected += found
            await losing
        assert await log_of(two, partition) == expected
        await feed.aclose()
    await proxies.close()
    print(outcomes)


async def lose_connections(proxies: Proxies, draw: random.Random) -> None:
    """At some moment, before which nothing may come through. What has been sent and not got through then gets lost,
    too, or comes to the server when the client is back."""
    moment_s, late_s = draw.random() * 0.006, draw.random() * 0.02
    pipes = proxies.pipes
    stalls = (pipe.stall(moment_s + late_s) for pipe in pipes if draw.random() < 0.5)
    async with asyncio.TaskGroup() as group:
        for stall in stalls:
            group.create_task(stall)
        await asyncio.sleep(moment_s)
        late = draw.random() < 0.5
        for pipe in pipes:
            if late:
                group.create_task(pipe.linger(late_s))
            else:
                pipe.cut()


async def test_a_writer_that_was_paused_adds_nothing_when_it_wakes_up(
    plain_cluster: LocalCluster, two: waltz.Client, partition: int
) -> None:
    layout = plain_cluster.layout
    proxies = {node.port: Proxy(HOST, 0, HOST, node.port) for node in layout.servers}
    for proxy in proxies.values():
        await proxy.open()
    ports = {port: proxy.port for port, proxy in proxies.items()}
    with Children() as children:
        writing = session_writer.command(layout.client_config_path, partition, ports)
        writer = children.start("writer", writing, layout.log_path("writer"), piped=True)
        assert await asyncio.to_thread(writer.pipes[1].readline) == b"appended\n"
        for proxy in proxies.values():
            proxy.cut()
        await until(lambda: any(each.to_node.held_bytes for proxy in proxies.values() for each in proxy.connections))
        writer.signal(signal.SIGSTOP)
        end = await two.last_transaction_id(partition, fence=True)
        for number in range(100):
            await two.append(partition, b"successor")
            if number == 50:
                for proxy in proxies.values():
                    proxy.mend()
        writer.signal(signal.SIGCONT)
        assert await asyncio.to_thread(writer.pipes[1].readline) == b"fenced\n"
    await two.last_transaction_id(partition, fence=True)
    log = await log_of(two, partition)
    assert log[end + 1 :] == [b"successor"] * 100
    assert b"successor" not in log[: end + 1]
    assert len(set(log[: end + 1])) == end + 1
    for proxy in proxies.values():
        await proxy.close()


# Storages


async def test_a_session_outlives_a_storage(plain_cluster: LocalCluster, one: waltz.Client, partition: int) -> None:
    await one.append(partition, b"one")
    number = held(one, partition)
    for victim in plain_cluster.layout.storages[:2]:
        await asyncio.to_thread(plain_cluster.kill, victim)
        await one.append_many(partition, [b"one"] * 50)
        plain_cluster.start_storage(victim)
        ids = await one.append_many(partition, [b"one"] * 50)
        await until_all_hold(plain_cluster, partition, ids[-1])
    assert await one.renew_session(partition) == held(one, partition) == number


@pytest.mark.deep
async def test_a_fence_without_a_quorum_of_storages_ends_at_its_deadline(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int
) -> None:
    async with (
        client_of(plain_cluster, session_timeout_ms=1500) as hasty,
        client_of(plain_cluster, sessions=False) as plain,
    ):
        await hasty.append(partition, b"before")
        await plain.append(partition, b"before")
        number = held(hasty, partition)
        victims = plain_cluster.layout.storages[1:]
        async with hasty.exclusive(partition) as session:
            for victim in victims:
                await asyncio.to_thread(plain_cluster.kill, victim)
            waiting = asyncio.create_task(hasty.append(partition, b"waits"))
        with pytest.raises(waltz.DeadlineExceededError, match=r"no write session was begun within 1\.5 s"):
            await hasty.last_transaction_id(partition, fence=True)
        with pytest.raises(waltz.DeadlineExceededError):
            await hasty.renew_session(partition)
        assert not waiting.done()
        for victim in victims:
            plain_cluster.start_storage(victim)
        end = await one.last_transaction_id(partition, fence=True)
        assert held(one, partition) > session.number > number
        await eventually(lambda: plain.append(partition, b"after"))
        await one.append(partition, b"after")
        written = await asyncio.gather(waiting, return_exceptions=True)
        log = await log_of(one, partition)
        assert log.count(b"waits") == isinstance(written[0], int)
        assert b"after" not in log[: end + 1]
        assert log[end + 1 :] == [b"after"] * 2
        assert log[:2] == [b"before"] * 2
    await until_all_hold(plain_cluster, partition, len(log) - 1)


# Servers


@pytest.mark.deep
async def test_every_server_that_gets_the_partition_begins_a_session(
    plain_cluster: LocalCluster, one: waltz.Client, two: waltz.Client, partition: int
) -> None:
    """Moved from one to another, by an orderly stop and by a crash, and with the owner gone and come back."""
    await one.append(partition, b"first")
    number = held(one, partition)
    expected = [b"first"]
    for end in (plain_cluster.terminate, plain_cluster.kill):
        victim = await owner(plain_cluster, partition)
        await asyncio.to_thread(end, victim)
        await append_until(waltz.SessionFencedError, one, partition)
        plain_cluster.start_server(victim)
        assert await one.renew_session(partition) > number
        number = held(one, partition)
        await eventually(lambda: one.append(partition, b"again"))
        expected.append(b"again")
        assert await two.last_transaction_id(partition, fence=True) == len(expected) - 1
        assert held(two, partition) > number
        assert await one.renew_session(partition) == (number := held(two, partition))
    for node in plain_cluster.layout.servers:
        await asyncio.to_thread(plain_cluster.kill, node)
    for node in plain_cluster.layout.servers:
        plain_cluster.start_server(node)
    await append_until(waltz.SessionFencedError, one, partition)
    assert await two.last_transaction_id(partition, fence=True) == len(expected) - 1
    assert held(two, partition) > number
    assert await log_of(two, partition) == expected


@pytest.mark.deep
async def test_an_exclusive_session_is_left_while_all_servers_are_down(
    plain_cluster: LocalCluster, partition: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        client_of(plain_cluster, session_timeout_ms=1000) as holder,
        client_of(plain_cluster, sessions=False) as plain,
    ):
        async with holder.exclusive(partition) as session:
            await holder.append(partition, b"holder")
            for node in plain_cluster.layout.servers:
                await asyncio.to_thread(plain_cluster.kill, node)
        assert f"exclusive session {session.number} of partition {partition} was left without an end" in caplog.text
        for call in (holder.last_transaction_id(partition, fence=True), holder.renew_session(partition)):
            with pytest.raises(waltz.DeadlineExceededError):
                await call
        for node in plain_cluster.layout.servers:
            plain_cluster.start_server(node)
        await eventually(lambda: plain.append(partition, b"plain"))
        assert await log_of(plain, partition) == [b"holder", b"plain"]


async def test_a_server_of_an_older_version_is_refused_unless_configured_otherwise(
    plain_cluster: LocalCluster, one: waltz.Client, partition: int, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = plain_cluster.layout.servers
    await one.append(partition, b"one")
    await asyncio.to_thread(plain_cluster.terminate, second)
    while await owner(plain_cluster, partition) != first:
        await asyncio.sleep(POLL_INTERVAL_S)
    number = await one.renew_session(partition)
    async with (
        other(plain_cluster, second, Differences(newest=4)),
        client_of(plain_cluster, session_fallback="plain") as lenient,
        client_of(plain_cluster, sessions=False) as plain,
    ):
        await asyncio.to_thread(plain_cluster.terminate, first)
        await append_until(waltz.SessionNotSupportedError, one, partition)
        for _ in range(3):
            with pytest.raises(waltz.SessionNotSupportedError):
                await one.append(partition, b"refused")
            with pytest.raises(waltz.SessionNotSupportedError):
                await one.last_transaction_id(partition, fence=True)
            with pytest.raises(waltz.SessionNotSupportedError):
                await one.renew_session(partition)
            assert await one.last_transaction_id(partition) >= 0
        await eventually(lambda: lenient.append(partition, b"without"))
        await plain.append(partition, b"without")
        with pytest.raises(waltz.SessionNotSupportedError):
            await lenient.last_transaction_id(partition, fence=True)
        assert caplog.text.count("the server knows no write sessions; appends go without one") == 1
        plain_cluster.start_server(first)
    await append_until(waltz.SessionFencedError, one, partition)
    assert await one.renew_session(partition) > number
    await eventually(lambda: one.append(partition, b"one"))
    assert await log_of(one, partition) == [b"one", b"without", b"without", b"one"]
    plain_cluster.start_server(second)


@asynccontextmanager
async def other(cluster: LocalCluster, node: Node, differences: Differences, **settings: object) -> AsyncIterator[None]:
    """In place of a server that is down, run one that is different, with these configuration keys."""
    config = cluster.layout.config_path(node.name)
    changed = config.with_name(f"{node.name}-other.yml")
    changed.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | settings))
    with Children() as children:
        child = children.start(
            node.name, other_server.command(changed, differences), cluster.layout.log_path(f"{node.name}-other")
        )
        while not await listens(node):
            child.check()
            await asyncio.sleep(POLL_INTERVAL_S)
        try:
            yield
        finally:
            await asyncio.to_thread(children.stop, child, STOP_TIMEOUT_S)


async def listens(node: Node) -> bool:
    """Whether a node can be connected to."""
    try:
        _, writer = await asyncio.open_connection(HOST, node.port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_server_that_was_cut_off_neither_appends_nor_fences(
    plain_cluster: LocalCluster, two: waltz.Client
) -> None:
    """The server still takes itself for the owner: its clients reach it, but it reaches neither ZooKeeper nor
    storages."""
    layout = plain_cluster.layout
    zombie, successor = layout.servers
    zookeeper = Proxy(HOST, 0, HOST, layout.zookeeper_port)
    storages = {node.port: Proxy(HOST, 0, HOST, node.port) for node in layout.storages}
    lines = [zookeeper, *storages.values()]
    for line in lines:
        await line.open()
    relayed = Differences(ports=tuple((port, line.port) for port, line in storages.items()))
    settings = {"zookeeper.connectString": f"{HOST}:{zookeeper.port}"}
    await asyncio.to_thread(plain_cluster.terminate, zombie)
    async with other(plain_cluster, zombie, relayed, **settings):
        partition = await owned_by(plain_cluster, zombie)
        peer = await (await Peers.of(plain_cluster, partition))(5)
        peer.partition = partition
        before = await peer.mounted()
        peer.send(HEARTBEAT, 2, bytes([HeartbeatOption.GET_SESSION]))
        _, _, number, _ = struct.unpack(">iqqb", await answer(peer, HEARTBEAT_TOLD, 2))
        peer.append(3, before, data=b"before", session=number)
        peer.send(LAST_TRANSACTION, 4, struct.pack(">bq", 0, -1))
        told = struct.unpack(">iqq", await answer(peer, LAST_TRANSACTION_TOLD, 4))
        assert told == (LastTransactionStatus.OK, before + 1, number)
        for line in lines:
            line.cut()
        for seq in range(5, 100):
            peer.append(seq, before, data=b"zombie", session=number)
        peer.send(LAST_TRANSACTION, 100, struct.pack(">bq", FenceOption.FENCE, -1))
        while await owner(plain_cluster, partition) != successor:
            await asyncio.sleep(POLL_INTERVAL_S)
        assert await two.last_transaction_id(partition, fence=True) == before + 1
        taken = held(two, partition)
        assert taken > number
        for _ in range(5):
            await two.append(partition, b"successor")
        for line in lines:
            line.mend()
        status, _, raised = struct.unpack(">iqq", await answer(peer, LAST_TRANSACTION_TOLD, 100))
        assert status != LastTransactionStatus.OK or raised > taken, "it may have got the partition again since"
        await two.last_transaction_id(partition, fence=True)
        assert await log_of(two, partition, before) == [b"before"] + [b"successor"] * 5
        peer.writer.close()
    plain_cluster.start_server(zombie)
    for line in lines:
        await line.close()


async def owned_by(cluster: LocalCluster, node: Node) -> int:
    """A partition that a server owns, once no partition is about to come to it or go."""
    owners: list[Node] = []
    while set(owners) != set(cluster.layout.servers):
        owners = [await owner(cluster, partition_id) for partition_id in range(cluster.layout.partitions)]
        await asyncio.sleep(POLL_INTERVAL_S)
    return owners.index(node)


async def answer(peer: Peer, kind: int, seq: int) -> bytes:
    """The body of the answer of that type to the request; others are passed over."""
    while True:
        found, req_id, body = await peer.receive()
        if (found, req_id) == (kind, peer.req_id(seq)):
            return body
