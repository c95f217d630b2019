"""Cases of the mutex that hold on any ZooKeeper."""

import asyncio

import pytest

from tests.unit.common.zk.conformance import Ensemble
from waltz.common.errors import DeadlineExceededError
from waltz.common.zk.client import NoNodeError, SessionExpiredError, ZooKeeper
from waltz.common.zk.mutex import mutex

SECTIONS = 30


class MutexCases:
    @pytest.fixture
    async def root(self, ensemble: Ensemble) -> str:
        client = await ensemble.connect()
        root = await client.create("/mutex/m", None, sequential=True, make_path=True)
        await client.close()
        return root

    async def test_two_clients_lose_no_update(self, ensemble: Ensemble, root: str) -> None:
        clients = [await ensemble.connect() for _ in range(2)]
        await clients[0].create(f"{root}/counter", b"0")

        async def work(client: ZooKeeper) -> None:
            for _ in range(SECTIONS):
                async with mutex(client, f"{root}/lock") as session:
                    data, _ = await session.get(f"{root}/counter")
                    assert data is not None
                    await asyncio.sleep(0)
                    await session.set(f"{root}/counter", str(int(data) + 1).encode())

        await asyncio.gather(*map(work, clients))
        assert (await clients[0].get(f"{root}/counter"))[0] == str(len(clients) * SECTIONS).encode()
        assert await clients[0].exists(f"{root}/lock") is None
        for client in clients:
            await client.close()

    async def test_exception_inside_leaves_no_lock(self, ensemble: Ensemble, root: str) -> None:
        client = await ensemble.connect()
        with pytest.raises(ZeroDivisionError):
            async with mutex(client, f"{root}/lock"):
                assert await client.exists(f"{root}/lock") is not None
                raise ZeroDivisionError
        assert await client.exists(f"{root}/lock") is None
        await client.close()

    async def test_nothing_works_inside_after_expiry(self, ensemble: Ensemble, root: str) -> None:
        client = await ensemble.connect()
        async with mutex(client, f"{root}/lock") as session:
            await session.create(f"{root}/a", None)
            await ensemble.expire(client)
            for call in (
                session.get(root),
                session.exists(root),
                session.children(root),
                session.create(f"{root}/b", None),
                session.set(root, b""),
                session.delete(f"{root}/a"),
            ):
                with pytest.raises(SessionExpiredError):
                    await call
            # Someone else's by now.
            await client.create(f"{root}/lock", b"other", ephemeral=True)
        assert await client.exists(f"{root}/lock") is not None
        assert await client.children(root) in (["a", "lock"], ["lock", "a"])
        await client.close()

    async def test_deadline(self, ensemble: Ensemble, root: str) -> None:
        client = await ensemble.connect()
        async with mutex(client, f"{root}/lock"):
            with pytest.raises(DeadlineExceededError, match=f"the lock {root}/lock was not free within"):
                async with mutex(client, f"{root}/lock", timeout_s=0.05):
                    pytest.fail("entered")
            assert await client.exists(f"{root}/lock") is not None
        async with mutex(client, f"{root}/lock", timeout_s=60):
            pass
        await client.close()

    async def test_missing_parent(self, ensemble: Ensemble, root: str) -> None:
        client = await ensemble.connect()
        with pytest.raises(NoNodeError):
            async with mutex(client, f"{root}/no/lock"):
                pytest.fail("entered")
        await client.close()
