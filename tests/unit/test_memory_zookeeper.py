"""The ZooKeeper in memory, and what only it can do: fail on command."""

from typing import cast

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.common.zk.conformance import Ensemble, Flag, ZooKeeperConformance
from waltz.common.zk.client import ConnectionLossError, State, ZooKeeper


class MemoryEnsemble(Ensemble):
    def __init__(self) -> None:
        self.server = MemoryZooKeeperServer()

    async def connect(self) -> ZooKeeper:
        return await self.server.connect()

    async def expire(self, client: ZooKeeper) -> None:
        self.server.expire(cast("MemoryZooKeeper", client))


class TestConformance(ZooKeeperConformance):
    @pytest.fixture
    async def ensemble(self) -> Ensemble:
        return MemoryEnsemble()


async def test_suspended_calls_wait_for_the_connection_until_their_deadline() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect(operation_timeout_s=0.01)
    server.disconnect(client)
    assert client.state is State.SUSPENDED
    assert client.session_id is not None
    with pytest.raises(ConnectionLossError, match="get /: no answer within 0.01 s"):
        await client.get("/")
    server.reconnect(client)
    await client.get("/")


async def test_disconnected_client_finds_out_that_its_session_has_expired() -> None:
    server = MemoryZooKeeperServer()
    client, other = await server.connect(), await server.connect()
    states: list[State] = []
    client.add_listener(states.append)
    await client.create("/a", None, ephemeral=True)
    session_id = client.session_id
    server.disconnect(client)
    server.expire(client)
    assert await other.exists("/a") is None
    assert client.session_id is None
    assert states == [State.SUSPENDED, State.LOST]
    server.reconnect(client)
    assert states == [State.SUSPENDED, State.LOST, State.CONNECTED]
    assert client.session_id != session_id


async def test_reconnect_keeps_the_session_and_loses_the_watches() -> None:
    server = MemoryZooKeeperServer()
    client, other = await server.connect(), await server.connect()
    await client.create("/a", None, ephemeral=True)
    flag = Flag()
    await client.get("/a", flag)
    session_id = client.session_id
    server.disconnect(client)
    server.reconnect(client)
    await flag.fired()
    assert client.session_id == session_id
    assert await other.exists("/a") is not None
    await other.set("/a", b"1")
    await client.get("/a")
    assert flag.count == 1


async def test_lost_answers_and_lost_requests_of_writes() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    client.lose_request("create")
    with pytest.raises(ConnectionLossError):
        await client.create("/a", None)
    assert await client.exists("/a") is None
    client.lose_answer("create")
    with pytest.raises(ConnectionLossError):
        await client.create("/a", b"1")
    assert server.dump() == {"/a": b"1"}


async def test_reads_are_repeated() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    states: list[State] = []
    client.add_listener(states.append)
    client.lose_answer("get")
    client.lose_request("exists")
    client.lose_answer("sync")
    await client.get("/")
    await client.sync("/")
    assert await client.exists("/a") is None
    assert states == [State.SUSPENDED, State.CONNECTED] * 3


async def test_latency_is_asked_for_both_ways() -> None:
    asked: list[int] = []

    def latency_s() -> float:
        asked.append(1)
        return 0.0

    client = await MemoryZooKeeperServer(latency_s).connect()
    await client.create("/a", None)
    assert len(asked) == 2
