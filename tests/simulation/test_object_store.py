"""The simulated object store: what its troubles do, and what they never do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.cluster import World
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.object_store import LATE_MAX_S, SimulatedObjectStore
from tests.simulation.options import SimulationOptions
from tests.simulation.trace import Trace
from waltz.archive.errors import NotFoundInStoreError, StoreUnavailableError

Written = list[tuple[str, bytes | None, bytes]]


def run(main: Callable[[SimulatedObjectStore, Written], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run with a store, and what it says of its objects."""

    def fail(what: object) -> None:
        raise AssertionError(what)

    loop = SimulatedLoop(fail)
    world = World(seed, SimulationOptions(), loop, Trace(loop.time), fail)
    written: Written = []
    store = SimulatedObjectStore(world, lambda *what: written.append(what))
    try:
        loop.run_until_complete(main(store, written))
    finally:
        loop.close()


def test_without_troubles_it_is_a_store() -> None:
    async def main(store: SimulatedObjectStore, written: Written) -> None:
        assert await store.create("k/0/a", b"one")
        assert not await store.create("k/0/a", b"two")
        await store.put("k/0/b", b"0123456789")
        await store.put("k/0/b", b"0123456789")
        assert await store.get("k/0/a") == b"one"
        assert await store.get_range("k/0/b", 3, 6) == b"345"
        assert [name async for name in store.names("k/0")] == ["a", "b"]
        assert await store.folders("") == ["k"]
        assert await store.folders("k") == ["0"]
        with pytest.raises(NotFoundInStoreError):
            await store.get("k/1")
        assert [path for path, *_ in written] == ["k/0/a", "k/0/b", "k/0/b"]
        assert [before for _, before, _ in written] == [None, None, b"0123456789"]

    run(main)


def test_away_nothing_gets_there() -> None:
    async def main(store: SimulatedObjectStore, written: Written) -> None:
        store.away = True
        for call in (store.create("a", b""), store.put("a", b""), store.get("a"), store.folders("")):
            with pytest.raises(StoreUnavailableError):
                await call
        store.heal()
        assert await store.create("a", b"")

    run(main)


def test_of_lost_answers_some_requests_land_and_some_late() -> None:
    async def main(store: SimulatedObjectStore, written: Written) -> None:
        store.lost_share = 1.0
        count = 60
        for number in range(count):
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await store.put(f"{number}", b"")
        landed = len(written)
        await asyncio.sleep(LATE_MAX_S)
        assert 0 < landed <= len(written) < count
        store.heal()
        assert await store.get(written[0][0]) == b""

    run(main)


def test_a_request_lands_although_its_process_has_died() -> None:
    async def main(store: SimulatedObjectStore, written: Written) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        process = Process(loop, "archiver")
        process.run(store.put("a", b"data"))
        await asyncio.sleep(0)
        process.kill(power_loss=True)
        assert not written
        await asyncio.sleep(1.0)
        assert written == [("a", None, b"data")]

    run(main)


def test_listings_are_old_and_reads_are_not() -> None:
    async def main(store: SimulatedObjectStore, written: Written) -> None:
        store.listing_age_s = 1000.0
        await store.put("k/a", b"data")
        assert [name async for name in store.names("k")] == []
        assert await store.get("k/a") == b"data"
        await asyncio.sleep(1000.0)
        assert [name async for name in store.names("k")] == ["a"]

    run(main)
