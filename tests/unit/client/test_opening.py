"""Opening by await and by async with, for both faces."""

import asyncio

import pytest

import waltz
from tests.unit.client.application import Callbacks
from waltz.client.engine.engine import Engine
from waltz.client.mock import MockDriver
from waltz.client.mock.cluster import FixedCluster
from waltz.common.cluster.managed import ManagedClient


async def test_await_opens_a_client() -> None:
    client = await waltz.connect(MockDriver())
    assert await client.append(0, b"a") == 0
    await client.close()


async def test_what_was_awaited_may_be_used_as_a_context_once() -> None:
    opened = await waltz.connect(MockDriver())
    async with opened as client:
        assert client is opened
        await client.append(0, b"a")
        with pytest.raises(waltz.InvalidOperationError, match="opened once"):
            async with client:
                pass
    with pytest.raises(waltz.InvalidOperationError, match="opened once"):
        await opened
    with pytest.raises(waltz.ClientClosedError):
        await opened.append(0, b"b")


@pytest.mark.parametrize("how", ["closed", "given up"])
async def test_a_client_that_ends_while_it_is_opened(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members: list[ManagedClient] = []
    joining = asyncio.Event()

    async def join(_cluster: FixedCluster, member: ManagedClient) -> None:
        members.append(member)
        joining.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(FixedCluster, "join", join)
    client = waltz.connect(MockDriver())
    opening = asyncio.create_task(client.open())
    await joining.wait()
    with pytest.raises(waltz.InvalidOperationError, match="opened once"):
        await client
    if how == "closed":
        await client.close()
    else:
        opening.cancel()
    with pytest.raises(waltz.ClientClosedError if how == "closed" else asyncio.CancelledError):
        await opening
    (engine,) = members
    assert isinstance(engine, Engine)
    assert engine.closed
    with pytest.raises(waltz.ClientClosedError):
        await client.append(0, b"a")


@pytest.mark.parametrize("how", ["given up", "failing to leave"])
async def test_closing_comes_to_its_end(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if all who wait for it give up, or one of its steps fails."""
    leave, close = FixedCluster.leave, FixedCluster.close
    leaving, go_on = asyncio.Event(), asyncio.Event()
    closed = 0

    async def left(cluster: FixedCluster, member: ManagedClient) -> None:
        leaving.set()
        await go_on.wait()
        await leave(cluster, member)
        if how == "failing to leave":
            raise OSError("away")

    async def counted(cluster: FixedCluster) -> None:
        nonlocal closed
        closed += 1
        await close(cluster)

    monkeypatch.setattr(FixedCluster, "leave", left)
    monkeypatch.setattr(FixedCluster, "close", counted)
    client = await waltz.connect(MockDriver())
    await client.append(0, b"a")
    closing = asyncio.create_task(client.close())
    await leaving.wait()
    if how == "given up":
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        closing = asyncio.create_task(client.close())
    go_on.set()
    if how == "given up":
        await closing
    else:
        with pytest.raises(OSError, match="away"):
            await closing
    assert closed == 1
    await client.close()
    assert closed == 1


async def test_a_client_with_callbacks_is_opened_by_async_with() -> None:
    callbacks = Callbacks()
    async with waltz.open_client(callbacks, MockDriver()) as client:
        assert await client.transact(0, lambda basis: b"a") == 0
    with pytest.raises(waltz.ClientClosedError):
        await client.transact(0, lambda basis: b"b")


async def test_it_is_still_awaited_by_whoever_takes_coroutines() -> None:
    for opening in (waltz.open_client(Callbacks(), MockDriver()),):
        async with await asyncio.create_task(opening) as client:
            assert client.partition_count > 0
    client = await asyncio.wait_for(waltz.open_client(Callbacks(), MockDriver()), 10)
    await client.close()


async def test_an_opening_that_fails_raises_in_both_ways() -> None:
    with pytest.raises(TypeError, match="config must be"):
        await waltz.open_client(Callbacks(), 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config must be"):
        async with waltz.open_client(Callbacks(), 5):  # type: ignore[arg-type]
            pass


async def test_an_opening_that_is_not_wanted_can_be_closed() -> None:
    waltz.open_client(Callbacks(), MockDriver()).close()
