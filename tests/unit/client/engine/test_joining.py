"""An engine that joins its cluster while others give it up or close it."""

import asyncio

import pytest

from tests.unit.client.application import QUICK, config
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Environment
from waltz.client.engine.joining import Joining
from waltz.client.errors import ClientClosedError
from waltz.client.mock.cluster import FixedCluster
from waltz.common.cluster.managed import ManagedClient


class SlowCluster(FixedCluster):
    """Is joined when the test says so."""

    def __init__(self) -> None:
        super().__init__("cluster", 1, {})
        self.engines: list[ManagedClient] = []
        self.joining = asyncio.Event()
        self.let_in = asyncio.Event()
        self.failure: Exception | None = None

    async def join(self, member: ManagedClient) -> None:
        self.engines.append(member)
        self.joining.set()
        await self.let_in.wait()
        if self.failure is not None:
            raise self.failure
        await super().join(member)

    def closed(self) -> list[bool]:
        """Whether each engine that tried to join is closed."""
        return [isinstance(engine, Engine) and engine.closed for engine in self.engines]

    def opening(self) -> Joining:
        """What joins it."""
        return Joining(lambda: Engine.open(Environment(config(), self, options=QUICK)))


async def test_nothing_joins_before_it_is_asked_for() -> None:
    cluster = SlowCluster()
    joining = cluster.opening()
    await joining.close()
    assert cluster.engines == []
    with pytest.raises(ClientClosedError):
        await joining.engine()


async def test_all_who_ask_get_the_same_engine() -> None:
    cluster = SlowCluster()
    cluster.let_in.set()
    joining = cluster.opening()
    engine = await joining.engine()
    assert await joining.engine() is engine
    assert not engine.closed
    for _ in range(2):
        await joining.close()
        assert cluster.closed() == [True]


async def test_given_up_it_leaves_nothing_and_begins_anew() -> None:
    cluster = SlowCluster()
    joining = cluster.opening()
    asking = asyncio.create_task(joining.engine())
    await cluster.joining.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cluster.closed() == [True]
    cluster.let_in.set()
    await joining.engine()
    assert cluster.closed() == [True, False]
    await joining.close()


async def test_it_begins_anew_when_it_has_failed() -> None:
    cluster = SlowCluster()
    cluster.let_in.set()
    joining = cluster.opening()
    cluster.failure = OSError("away")
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await joining.engine()
    cluster.failure = None
    await joining.engine()
    assert cluster.closed() == [True, True, False]
    await joining.close()


async def test_who_waits_is_told_that_it_is_closed() -> None:
    cluster = SlowCluster()
    joining = cluster.opening()
    asking = asyncio.create_task(joining.engine())
    await cluster.joining.wait()
    await joining.close()
    assert cluster.closed() == [True]
    with pytest.raises(ClientClosedError):
        await asking


async def test_what_has_joined_is_closed_before_who_waits_hears_of_it() -> None:
    cluster = SlowCluster()
    cluster.let_in.set()
    joining = cluster.opening()
    asking = asyncio.create_task(joining.engine())
    while not cluster.engines:
        await asyncio.sleep(0)
    await joining.close()
    assert cluster.closed() == [True]
    assert (await asking).closed
