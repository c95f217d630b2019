"""The network: bytes in order, windows, cuts, resets, and asyncio's rules for transports."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from tests.simulation.lines import WINDOW_BYTES
from tests.simulation.loop import Process
from tests.simulation.network import SimulatedTransport
from tests.simulation.worlds import SmallWorld, run


class Peer(asyncio.Protocol):
    """Remembers what happens to it."""

    def __init__(self) -> None:
        self.transport: SimulatedTransport
        self.data = b""
        self.events: list[str] = []
        self.lost = asyncio.Event()
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("SimulatedTransport", transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc
        self.lost.set()


async def inside(process: Process, work: Coroutine[Any, Any, Any]) -> Any:
    """Run inside a process."""
    return await process.run(work)


async def pair(world: SmallWorld) -> tuple[Peer, Peer, Process, Process]:
    """A connection from host a to host b."""
    one, other = world.process("a"), world.process("b")
    accepted: list[Peer] = []

    def accept() -> Peer:
        accepted.append(Peer())
        return accepted[-1]

    await inside(other, world.loop.create_server(accept, "b", 1000))
    _, near = await inside(one, world.loop.create_connection(Peer, "b", 1000))
    await asyncio.sleep(0.1)
    return near, accepted[0], one, other


def connected(test: Callable[[SmallWorld, Peer, Peer, Process, Process], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a connection, in several worlds."""

    async def main(world: SmallWorld) -> None:
        await test(world, *await pair(world))

    for seed in range(5):
        run(seed, main)


def test_bytes_arrive_complete_and_in_order() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        sent = b"".join(bytes([number % 256]) * (number % 50 + 1) for number in range(500))
        for start in range(0, len(sent), 37):
            near.transport.write(sent[start : start + 37])
            await asyncio.sleep(0.0001)
        await asyncio.sleep(1)
        assert far.data == sent

    connected(test)


def test_abort_drops_what_is_buffered_and_not_what_the_kernel_has() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        far.transport.pause_reading()
        near.transport.write(bytes(3 * WINDOW_BYTES))
        near.transport.abort()
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert near.events[-1] == far.events[-1] == "lost"
        assert near.error is None
        assert len(far.data) == WINDOW_BYTES

    connected(test)


def test_writing_to_a_closed_connection_breaks_it() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.write(bytes(3 * WINDOW_BYTES))
        near.transport.close()
        far.transport.pause_reading()
        far.transport.abort()
        await asyncio.sleep(1)
        assert near.events[-1] == far.events[-1] == "lost"
        assert isinstance(near.error, ConnectionResetError)

    connected(test)


def test_an_orderly_close_reaches_the_other_side_behind_the_bytes() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        sent = bytes(3 * WINDOW_BYTES)
        near.transport.write(sent)
        near.transport.close()
        await asyncio.sleep(1)
        assert far.data == sent
        assert far.events == ["made", "lost"]
        assert far.error is None

    connected(test)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.set_write_buffer_limits(high=1000, low=100)
        far.transport.pause_reading()
        near.transport.write(bytes(WINDOW_BYTES))
        assert near.events == ["made"]
        near.transport.write(bytes(1000))
        assert near.events == ["made"]
        near.transport.write(bytes(1))
        assert near.events == ["made", "pause"]
        assert near.transport.get_write_buffer_size() == 1001
        await asyncio.sleep(1)
        assert far.data == b""
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert len(far.data) == WINDOW_BYTES + 1001
        assert near.events == ["made", "pause", "resume"]

    connected(test)


def test_a_cut_holds_bytes_back_until_it_heals() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        world.network.set_cut("a", "b", True)
        near.transport.write(b"later")
        far.transport.write(b"now")
        await asyncio.sleep(60)
        assert far.data == b""
        assert near.data == b"now"
        world.network.set_cut("a", "b", False)
        await asyncio.sleep(5)
        assert far.data == b"later"

    connected(test)


def test_a_killed_process_closes_its_connections() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.write(b"last words")
        one.kill(power_loss=False)
        await asyncio.sleep(1)
        assert far.data == b"last words"
        assert far.events == ["made", "lost"]
        assert near.events == ["made"]

    connected(test)


def test_a_loss_of_power_says_nothing_until_the_host_is_back() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        world.network.set_power("a", False)
        one.kill(power_loss=True)
        far.transport.write(b"anybody?")
        await asyncio.sleep(30)
        assert far.events == ["made"]
        world.network.set_power("a", True)
        await asyncio.sleep(5)
        assert far.events == ["made", "lost"]
        assert isinstance(far.error, ConnectionResetError)

    connected(test)


def test_a_half_open_connection_is_noticed_by_writing() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.break_off()
        await asyncio.sleep(10)
        assert near.events == ["made", "lost"]
        assert far.events == ["made"]
        far.transport.write(b"still there?")
        await asyncio.sleep(1)
        assert far.events == ["made", "lost"]

    connected(test)


def test_a_half_open_connection_is_noticed_in_the_end() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.break_off()
        await asyncio.sleep(121)
        assert far.events == ["made", "lost"]

    connected(test)


@pytest.mark.parametrize("way", ["both", "there", "back"])
def test_a_dead_connection_on_which_nothing_is_said_is_noticed_in_the_end(way: str) -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        if way != "back":
            near.transport.blackhole()
        if way != "there":
            far.transport.blackhole()
        await asyncio.sleep(100)
        assert near.events == far.events == ["made"]
        await asyncio.sleep(20)
        assert near.events == far.events == ["made", "lost"]

    connected(test)


def test_the_end_that_awaits_acknowledgements_on_a_dead_connection_notices_nothing() -> None:
    async def test(world: SmallWorld, near: Peer, far: Peer, one: Process, other: Process) -> None:
        near.transport.blackhole()
        far.transport.blackhole()
        near.transport.write(b"lost")
        await asyncio.sleep(200)
        assert near.events == ["made"]
        assert far.events == ["made", "lost"]

    connected(test)


def test_nobody_listens() -> None:
    async def main(world: SmallWorld) -> None:
        with pytest.raises(ConnectionRefusedError) as refused:
            await inside(world.process("a"), world.loop.create_connection(Peer, "b", 1000))
        assert refused.value.errno == errno.ECONNREFUSED

    run(0, main)


def test_a_host_without_power_does_not_refuse() -> None:
    async def main(world: SmallWorld) -> float:
        world.network.set_power("b", False)
        with pytest.raises(TimeoutError):
            await inside(world.process("a"), world.loop.create_connection(Peer, "b", 1000))
        return world.loop.time()

    assert run(0, main) == 127


def test_a_port_is_listened_on_once() -> None:
    async def main(world: SmallWorld) -> None:
        process = world.process("a")
        await inside(process, world.loop.create_server(Peer, "a", 1000))
        with pytest.raises(OSError, match="in use"):
            await inside(process, world.loop.create_server(Peer, "a", 1000))
        process.kill(power_loss=False)
        await inside(world.process("a"), world.loop.create_server(Peer, "a", 1000))

    run(0, main)


def test_a_connection_that_is_not_wanted_any_more_is_closed() -> None:
    async def main(world: SmallWorld) -> None:
        accepted: list[Peer] = []

        def accept() -> Peer:
            accepted.append(Peer())
            return accepted[-1]

        await inside(world.process("b"), world.loop.create_server(accept, "b", 1000))
        world.network.condition("b", "a").extra_delay_s = 5.0
        task = world.process("a").run(world.loop.create_connection(Peer, "b", 1000))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(20)
        assert [peer.events for peer in accepted] == [["made", "lost"]]

    run(0, main)


@pytest.mark.parametrize("listens_at_first", [True, False])
def test_a_connection_that_is_refused_is_not_made_as_well(listens_at_first: bool) -> None:
    """The request is sent again before the answer is there, and who listens changes between the two."""

    async def main(world: SmallWorld) -> None:
        accepted: list[Peer] = []

        def accept() -> Peer:
            accepted.append(Peer())
            return accepted[-1]

        near, far = world.process("a"), world.process("b")
        there, back = world.network.condition("a", "b"), world.network.condition("b", "a")
        if listens_at_first:
            server = await inside(far, world.loop.create_server(accept, "b", 1000))
            back.extra_delay_s = 5.0
        else:
            there.extra_delay_s = 1.5
        task = near.run(world.loop.create_connection(Peer, "b", 1000))
        if listens_at_first:
            await asyncio.sleep(0.9)
            server.close()
            back.extra_delay_s = 0.0
        else:
            await asyncio.sleep(2.0)
            await inside(far, world.loop.create_server(accept, "b", 1000))
        with pytest.raises(ConnectionRefusedError):
            await task
        await asyncio.sleep(20)
        assert [peer.events for peer in accepted] == ([["made", "lost"]] if listens_at_first else [])
        assert not any("connection" in repr(resource) for resource in near.resources.values())

    run(0, main)


def test_one_seed_is_one_course_of_events() -> None:
    async def main(world: SmallWorld) -> int:
        near, far, _, _ = await pair(world)
        for number in range(200):
            near.transport.write(bytes(number))
            far.transport.write(bytes(2 * number))
            await asyncio.sleep(0.0001)
        await asyncio.sleep(1)
        return world.trace.digest

    digests = [run(seed, main) for seed in (1, 1, 2)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
