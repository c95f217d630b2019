import asyncio
import gc
import weakref
from uuid import uuid4

import pytest

from tests.unit.server.store.fakes import FakeClient, FakeNetwork
from tests.unit.server.store.world import World
from waltz.common.errors import ConnectFailedError, ConnectionClosedError
from waltz.server.store.connections import Lane, StorageConnections, StorageRpc, storage_connector
from waltz.server.store.interface import StoreOptions


async def pool(*names: str) -> tuple[FakeNetwork, StorageConnections]:
    network = FakeNetwork(names)
    return network, StorageConnections(network.connector(), names)


async def test_one_connection_per_storage_and_lane() -> None:
    network, connections = await pool("a:1", "b:1")
    clients = await asyncio.gather(*(connections.client("a:1") for _ in range(5)))
    assert len(set(map(id, clients))) == 1
    assert await connections.client("a:1", Lane.READ) is not clients[0]
    assert network.storages["a:1"].connect_count == 2
    assert network.storages["b:1"].connect_count == 0
    await connections.close()
    assert all(client.closed for client in clients)
    with pytest.raises(ConnectionClosedError):
        await connections.client("b:1")


async def test_broken_connections_are_replaced() -> None:
    network, connections = await pool("a:1")
    first = await connections.client("a:1")
    network.storages["a:1"].break_connections()
    second = await connections.client("a:1")
    assert second is not first
    assert not second.closed
    network.storages["a:1"].stop()
    with pytest.raises(ConnectFailedError):
        await connections.client("a:1")
    await connections.close()


async def test_an_update_disturbs_only_what_left() -> None:
    _, connections = await pool("a:1", "b:1")
    stays, leaves = await connections.client("a:1"), await connections.client("b:1")
    connections.update(["a:1", "c:1"])
    assert connections.storages == {"a:1", "c:1"}
    await asyncio.sleep(0)
    assert leaves.closed
    assert await connections.client("a:1") is stays
    await connections.close()


async def test_an_update_leaves_a_connection_that_is_watched_until_the_watch_ends() -> None:
    _, connections = await pool("a:1", "b:1")
    writing, reading = await connections.client("b:1"), await connections.client("b:1", Lane.READ)
    end = connections.watch(writing, lambda _error: None)
    connections.update(["a:1"])
    await asyncio.sleep(0)
    assert [client.closed for client in (writing, reading)] == [False, False]
    end()
    await asyncio.sleep(0)
    assert [client.closed for client in (writing, reading)] == [True, True]
    await connections.close()


async def test_a_connection_to_a_storage_without_replicas_is_closed_with_its_last_watch() -> None:
    network = FakeNetwork(("a:1", "w:1"))
    connections = StorageConnections(network.connector(), ("a:1",))
    member, witness = await connections.client("a:1"), await connections.client("w:1")
    reading = await connections.client("w:1", Lane.READ)
    ends = [connections.watch(witness, lambda error: None) for _ in range(2)]
    connections.watch(member, lambda error: None)()
    ends[0]()
    await asyncio.sleep(0.01)
    closed = [client.closed for client in (member, witness, reading)]
    ends[1]()
    await asyncio.sleep(0.01)
    closed += [client.closed for client in (member, witness, reading)]
    assert closed == [False, False, False, False, True, True]
    await connections.close()


@pytest.mark.parametrize("port", ["70000", "0", "-1"])
def test_a_port_that_cannot_be_is_a_failed_connection(port: str) -> None:
    async def scenario() -> None:
        connect = storage_connector(cluster_key=uuid4(), partition_count=1, tls=None, timeout_s=1.0)
        with pytest.raises(ConnectFailedError):
            await connect(f"127.0.0.1:{port}")

    asyncio.run(scenario())


async def test_one_who_gives_up_does_not_cancel_the_connection_of_others() -> None:
    _, connections = await pool("a:1")
    impatient = asyncio.ensure_future(connections.client("a:1"))
    patient = asyncio.ensure_future(connections.client("a:1"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert not (await patient).closed
    await connections.close()


async def test_watches_fire_once_and_can_be_ended() -> None:
    network, connections = await pool("a:1")
    client = await connections.client("a:1")
    fired: list[str] = []
    connections.watch(client, lambda error: fired.append("watched"))
    end = connections.watch(client, lambda error: fired.append("ended"))
    end()
    network.storages["a:1"].break_connections()
    assert fired == ["watched"]
    connections.watch(client, lambda error: fired.append("late"))
    connections.watch(client, lambda error: fired.append("late, ended"))()
    await asyncio.sleep(0)
    assert fired == ["watched", "late"]
    await connections.close()


async def test_connectivity() -> None:
    network, connections = await pool("a:1", "b:1", "c:1")
    network.storages["b:1"].stop()

    async def never(name: str) -> StorageRpc:
        await asyncio.sleep(1000)
        raise AssertionError

    assert await connections.check_connectivity(1) == {"a:1": True, "b:1": False, "c:1": True}
    await connections.close()
    stuck = StorageConnections(never, ["a:1"])
    assert await stuck.check_connectivity(1) == {"a:1": False}
    await stuck.close()


async def test_a_malformed_connect_string_is_a_failed_connection() -> None:
    connect = storage_connector(cluster_key=uuid4(), partition_count=1, tls=None)
    with pytest.raises(ConnectFailedError, match="not of the form host:port: 'nonsense'"):
        await connect("nonsense")


async def test_sessions_leave_nothing_behind_on_long_lived_connections() -> None:
    async with World(options=StoreOptions(checkpoint_interval=5)) as world:
        server = await world.server()
        sessions: dict[int | None, weakref.ref[object]] = {}
        for _ in range(20):
            await server.write(5)
            await server.wait(lambda: server.log.session_id is not None)
            assert server.log._session is not None
            sessions[server.log.session_id] = weakref.ref(server.log._session.machine)
        assert world.metadata.session_id > 5
        clients = [client for storage in world.storages.values() for client in storage.connections]
        assert all(isinstance(client, FakeClient) and len(client._listeners) == 1 for client in clients)
        gc.collect()
        assert sum(1 for session in sessions.values() if session() is not None) <= 3
