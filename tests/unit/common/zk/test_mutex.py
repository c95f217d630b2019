"""The mutex in memory, with answers that are lost."""

import asyncio
import os
import re

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.common.zk.conformance import Ensemble
from tests.unit.common.zk.mutex_cases import MutexCases
from tests.unit.test_memory_zookeeper import MemoryEnsemble
from waltz.common.errors import DeadlineExceededError
from waltz.common.zk.client import ConnectionLossError
from waltz.common.zk.mutex import mutex

pytestmark = pytest.mark.virtual_time


class TestMutex(MutexCases):
    @pytest.fixture
    async def ensemble(self) -> Ensemble:
        return MemoryEnsemble()


async def test_creation_whose_answer_was_lost_is_the_lock() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    client.lose_answer("create")
    async with mutex(client, "/lock", timeout_s=5):
        assert server.dump().keys() == {"/lock"}
    assert server.dump() == {}


async def test_creation_whose_request_was_lost_is_repeated() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    client.lose_request("create")
    async with mutex(client, "/lock", timeout_s=5):
        assert server.dump().keys() == {"/lock"}
    assert server.dump() == {}


@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
async def test_release_is_repeated_until_it_is_certain(loss: str) -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    async with mutex(client, "/lock", timeout_s=5):
        getattr(client, loss)("delete")
    assert server.dump() == {}


async def test_suspended_session_does_not_wait_inside() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    async with mutex(client, "/lock", timeout_s=5) as session:
        server.disconnect(client)
        with pytest.raises(ConnectionLossError):
            await session.get("/")
        server.reconnect(client)
        await session.get("/")
    assert server.dump() == {}


async def test_cancelled_waiter_leaves_the_lock_to_its_holder() -> None:
    server = MemoryZooKeeperServer()
    holder, waiter = await server.connect(), await server.connect()
    entered = asyncio.Event()

    async def wait() -> None:
        async with mutex(waiter, "/lock"):
            entered.set()

    async with mutex(holder, "/lock"):
        task = asyncio.create_task(wait())
        while not task.done():
            await asyncio.sleep(0)
            task.cancel()
        assert server.dump().keys() == {"/lock"}
    assert not entered.is_set()


async def test_who_waits_in_vain_is_told_who_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/waltz", "storage"])
    monkeypatch.setattr("socket.gethostname", lambda: "host-1")
    server = MemoryZooKeeperServer()
    holder, waiter = await server.connect(), await server.connect()
    assert holder.session_id is not None
    async with mutex(holder, "/lock"):
        with pytest.raises(DeadlineExceededError) as late:
            async with mutex(waiter, "/lock", timeout_s=0.05):
                pytest.fail("entered")
    assert re.fullmatch(
        rf"the lock /lock was not free within 0.05 s: last held by waltz on host-1, process {os.getpid()}"
        rf"(, since \S+Z)?, in the ZooKeeper session {holder.session_id:#x}",
        str(late.value),
    )


@pytest.mark.parametrize("data", [None, b"", b"no name", b"\xff\n", b"\x1b[2J\n", b"x" * 1000 + b"\n"])
async def test_a_holder_without_a_name_is_known_by_its_session(data: bytes | None) -> None:
    server = MemoryZooKeeperServer()
    holder, waiter = await server.connect(), await server.connect()
    await holder.create("/lock", data, ephemeral=True)
    with pytest.raises(DeadlineExceededError, match=r"last held by a process that does not give its name.* session 0x"):
        async with mutex(waiter, "/lock", timeout_s=0.05):
            pytest.fail("entered")


async def test_without_zookeeper_nobody_is_blamed() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    server.disconnect(client)
    with pytest.raises(DeadlineExceededError, match=r"within 0.05 s: ZooKeeper was away$"):
        async with mutex(client, "/lock", timeout_s=0.05):
            pytest.fail("entered")


async def test_the_holder_may_write_more_beside_its_token() -> None:
    server = MemoryZooKeeperServer()
    client = await server.connect()
    async with mutex(client, "/lock", timeout_s=None, token=b"7") as session:
        assert server.dump() == {"/lock": b"7"}
        await session.set("/lock", b"leader 7")
    assert server.dump() == {}
    async with mutex(client, "/lock", token=b"7"):
        await client.set("/lock", b"somebody else's")
    assert server.dump().keys() == {"/lock"}
