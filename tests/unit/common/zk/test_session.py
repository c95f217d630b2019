"""A view that ends with its session."""

import asyncio

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.zk.client import SessionExpiredError, State
from waltz.common.zk.session import SessionZooKeeper


async def test_read_that_was_answered_in_another_session_is_refused() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    assert client.session_id is not None
    view = SessionZooKeeper(client, client.session_id)
    reads = [
        asyncio.ensure_future(call) for call in (view.get("/"), view.exists("/"), view.children("/"), view.sync("/"))
    ]
    await asyncio.sleep(0)
    server.expire(client)
    for read in reads:
        with pytest.raises(SessionExpiredError, match="the session in which this work began has ended"):
            await read


async def test_state_is_lost_for_good() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    assert client.session_id is not None
    view = SessionZooKeeper(client, client.session_id)
    states: list[State] = []
    remove = view.add_listener(states.append)
    assert (view.state, view.session_id) == (State.CONNECTED, client.session_id)
    server.disconnect(client)
    assert view.state is State.SUSPENDED
    server.expire(client)
    server.reconnect(client)
    assert client.state is State.CONNECTED
    assert (view.state, view.session_id) == (State.LOST, None)
    assert states == [State.SUSPENDED, State.LOST, State.CONNECTED]
    remove()
    await view.close()
    await client.get("/")
