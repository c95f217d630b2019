"""Lines of limited rate and long ways, and connections that go dead."""

import asyncio
import itertools

import pytest

from tests.simulation.lines import Line
from tests.simulation.loop import Process
from tests.simulation.network import KEEP_ALIVE_S
from tests.simulation.test_network import Peer, connected, inside
from tests.simulation.worlds import SmallWorld

MIB = 1 << 20


async def _received(far: Peer, size_bytes: int) -> None:
    while len(far.data) < size_bytes:
        await asyncio.sleep(0.001)


def test_bytes_leave_as_fast_as_the_line_allows() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        world.network.set_line("a", "b", Line(bytes_per_s=1e6))
        started_s = world.loop.time()
        near.transport.write(bytes(3_000_000))
        sizes: list[int] = []
        while near.transport.get_write_buffer_size():
            sizes.append(near.transport.get_write_buffer_size())
            await asyncio.sleep(0.1)
        assert len(sizes) > 20
        assert all(earlier > later for earlier, later in itertools.pairwise(sizes))
        await _received(far, 3_000_000)
        assert 3.0 <= world.loop.time() - started_s < 3.2

    connected(test)


@pytest.mark.parametrize(("shared", "least_s", "most_s"), [(True, 2.0, 2.2), (False, 1.0, 1.2)])
def test_connections_share_a_line_or_do_not(shared: bool, least_s: float, most_s: float) -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        listener = Peer()
        await inside(other, world.loop.create_server(lambda: listener, "b", 1001))
        _, second = await inside(one, world.loop.create_connection(Peer, "b", 1001))
        await asyncio.sleep(0.1)
        world.network.set_line("a", "b", Line(bytes_per_s=1e6, shared=shared))
        started_s = world.loop.time()
        for peer in (near, second):
            peer.transport.write(bytes(1_000_000))
        await asyncio.gather(_received(far, 1_000_000), _received(listener, 1_000_000))
        assert least_s <= world.loop.time() - started_s < most_s

    connected(test)


def test_a_long_line_is_filled_after_a_slow_start() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        world.network.set_line("a", "b", Line(bytes_per_s=12.5e6, delay_s=0.25))
        started_s = world.loop.time()
        near.transport.write(bytes(1000))
        await _received(far, 1000)
        assert 0.25 <= world.loop.time() - started_s < 0.3
        await asyncio.sleep(5.0)
        started_s = world.loop.time()
        near.transport.write(bytes(10 * MIB))
        await _received(far, 10 * MIB + 1000)
        assert 3.0 < world.loop.time() - started_s < 6.0

    connected(test)


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_a_dead_connection_is_dead_for_good_and_says_nothing(direction: str) -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        if direction != "back":
            near.transport.blackhole()
        if direction != "there":
            far.transport.blackhole()
        near.transport.write(b"there")
        far.transport.write(b"back")
        await asyncio.sleep(1000)
        assert far.data == (b"there" if direction == "back" else b"")
        assert near.data == (b"back" if direction == "there" else b"")
        assert not near.lost.is_set()
        assert not far.lost.is_set()
        near.transport.abort()
        await asyncio.sleep(1)
        assert far.lost.is_set() == (direction == "back")
        await asyncio.sleep(KEEP_ALIVE_S)
        assert far.lost.is_set()

    connected(test)


def test_another_connection_of_the_same_hosts_lives_on() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        listener = Peer()
        await inside(other, world.loop.create_server(lambda: listener, "b", 1001))
        near.transport.blackhole()
        _, second = await inside(one, world.loop.create_connection(Peer, "b", 1001))
        second.transport.write(b"alive")
        await asyncio.sleep(1)
        assert listener.data == b"alive"

    connected(test)
