"""Followers of ZooKeeper that lag, and writes that happen after they were given up."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Process
from tests.simulation.worlds import SmallWorld, run
from tests.simulation.zookeeper import ProcessZooKeeper, SimulatedEnsemble
from waltz.common.zk.client import BadVersionError, ConnectionLossError

LAG_S = 3.0

Test = Callable[[SimulatedEnsemble, ProcessZooKeeper, ProcessZooKeeper], Coroutine[Any, Any, None]]


def two_sessions(test: Test) -> None:
    """Run a test on two sessions whose followers lag, inside of one process, in several worlds."""

    async def main(world: SmallWorld) -> None:
        ensemble = SimulatedEnsemble(world.loop, random.Random(world.trace.digest), lag_s=LAG_S)
        process = Process(world.loop, "a")

        async def both() -> None:
            await test(ensemble, await ensemble.connect(process, 10.0), await ensemble.connect(process, 10.0))

        await process.run(both())

    for seed in range(5):
        run(seed, main)


def test_what_one_writes_another_reads_later() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        await one.create("/node", b"first")
        assert await other.exists("/node") is None
        assert (await one.get("/node"))[0] == b"first"
        await asyncio.sleep(LAG_S)
        assert (await other.get("/node"))[0] == b"first"
        await one.set("/node", b"second")
        data, stat = await other.get("/node")
        assert (data, stat.version) == (b"first", 0)
        assert await other.children("/") == ["node"]

    two_sessions(test)


def test_after_a_sync_it_reads_what_was_written() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        for number in range(5):
            await one.create(f"/node-{number}", b"")
        await other.sync("/")
        assert len(await other.children("/")) == 5
        await asyncio.sleep(2 * LAG_S)
        assert await other.children("/") == await one.children("/")

    two_sessions(test)


def test_who_tries_to_write_learns_what_was_written() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        await one.create("/node", b"first")
        with pytest.raises(BadVersionError):
            await other.set("/node", b"mine", version=7)
        assert (await other.get("/node"))[0] == b"first"

    two_sessions(test)


def test_a_watch_fires_when_its_own_session_would_read_the_change() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        await one.create("/node", b"first")
        await other.sync("/")
        fired = asyncio.Event()
        await other.get("/node", fired.set)
        await one.set("/node", b"second")
        assert not fired.is_set()
        await fired.wait()
        assert (await other.get("/node"))[0] == b"second"

    two_sessions(test)


def test_what_a_dead_session_owned_goes_for_all() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        await one.create("/node", b"", ephemeral=True)
        await asyncio.sleep(LAG_S)
        await one.close()
        assert await other.exists("/node") is not None
        await asyncio.sleep(LAG_S)
        assert await other.exists("/node") is None

    two_sessions(test)


def test_a_write_happens_after_its_author_has_given_it_up() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        await one.create("/node", b"first")
        one.land_late("set")
        with pytest.raises(ConnectionLossError):
            await one.set("/node", b"second")
        assert (await one.get("/node"))[0] == b"first"
        await asyncio.sleep(2 * LAG_S)
        assert (await other.get("/node"))[0] == b"second"

    two_sessions(test)


def test_a_write_of_an_ended_session_does_not_happen() -> None:
    async def test(ensemble: SimulatedEnsemble, one: ProcessZooKeeper, other: ProcessZooKeeper) -> None:
        one.land_late("create")
        with pytest.raises(ConnectionLossError):
            await one.create("/node", b"", ephemeral=True)
        one.expire()
        await asyncio.sleep(2 * LAG_S)
        assert await other.exists("/node") is None

    two_sessions(test)
