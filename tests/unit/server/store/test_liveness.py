"""Slow lines, long lines, large transactions, dead connections: what moves is waited for, what does not is replaced.

Rules L1, L2, L3 and L5. Storages are in memory and time is virtual; everything on the servers' side is real.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import pytest
import pytest_asyncio

from tests.unit.server.store.lines import LineNetwork
from tests.unit.server.store.world import NAMES, Server, World, wait_until
from waltz.common.net.channel import WRITE_HIGH_BYTES, Channel
from waltz.common.replica_states import ReplicaStatus
from waltz.common.wire import storage as wire
from waltz.server.process.replica_rounds import ReplicaRounds
from waltz.server.store.interface import StoreOptions
from waltz.server.store.session.session import StoreSession

A, B, C = NAMES
MIB = 1 << 20
LARGEST = 32 * MIB
MBIT_10 = 10e6 / 8


class Line(NamedTuple):
    bytes_per_s: float
    round_trip_s: float
    hidden_bytes: int


LINES = {
    "10 Mbit/s": Line(MBIT_10, 0.1, 256 << 10),
    "10 Mbit/s behind a relay": Line(MBIT_10, 0.1, 6 * MIB),
    "500 ms": Line(12.5e6, 0.5, 256 << 10),
}
ON_LINES = pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=[] if "relay" in name else [pytest.mark.deep])  # a relay makes it hardest
        for name, line in LINES.items()
    ],
)


class LineWorld(World):
    network: LineNetwork

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options=options, network=LineNetwork(NAMES))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[LineWorld]:
    async with LineWorld(StoreOptions(random_source=random.Random(0))) as world:
        yield world


@pytest_asyncio.fixture
async def small_ring_world() -> AsyncIterator[LineWorld]:
    """What replicas lack is soon no longer in memory, so that they have to copy it."""
    options = StoreOptions(random_source=random.Random(0), window_size_bytes=64 << 10, ring_size_bytes=256 << 10)
    async with LineWorld(options) as world:
        yield world


async def serving(world: LineWorld) -> Server:
    """A server that has written ten records."""
    server = await world.server()
    await server.write(10)
    return server


async def leave_behind(world: LineWorld, name: str) -> None:
    """A server writes 150 records and ends; a storage, which is stopped, lacks the last fifty of them."""
    server = await world.server(1)
    await server.write(100)
    world.storages[name].stop()
    await server.write(50)
    await server.close()


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """What stands inside must take less virtual time than that."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    yield
    assert loop.time() - started_s < limit_s


@ON_LINES
async def test_the_largest_transaction_commits(world: LineWorld, line: Line) -> None:
    world.network.set_lines(**line._asdict())
    server = await serving(world)
    session_id = world.metadata.session_id
    with within(1.3 * LARGEST / line.bytes_per_s + 2):
        await server.write(1, size_bytes=LARGEST)
    for _ in range(20):
        server.give(5)
        await asyncio.sleep(0.2)
    server.give(1, size_bytes=LARGEST)
    for _ in range(20):
        server.give(5)
        await asyncio.sleep(0.2)
    await server.wait(lambda: server.listener.decided_count == len(server.given))
    assert server.listener.committed_appends == server.given
    assert world.metadata.session_id == session_id, "no session ends because a line is slow"
    assert server.listener.opened == [(-1, True)]
    assert len(world.network.opened) == 3


async def test_a_slow_disk_with_many_small_batches_keeps_its_connection(world: LineWorld) -> None:
    """The connection belongs to all partitions; the requests of one must never make its storage stop reading it."""
    server = await serving(world)
    await wait_until(lambda: len(world.stored(C)) == 10)
    world.network.slow_storages = {C}
    world.network.slow_requests, world.network.slow_s = (wire.AppendRequest,), 25.0
    for _ in range(400):
        await server.write(1)
    await asyncio.sleep(20)
    assert len(world.network.opened) == 3, "no connection was given up"
    world.network.slow_requests = ()
    await wait_until(lambda: len(world.stored(C)) == 410)
    assert len(world.network.opened) == 3
    assert world.metadata.session_id == 0


async def test_a_slow_replica_is_not_given_up_when_it_becomes_needed(world: LineWorld) -> None:
    """B is still being sent what A and C have committed long ago when C goes away."""
    server = await serving(world)
    world.network.lines[B].bytes_per_s = MBIT_10
    await server.write(1, size_bytes=LARGEST)
    await asyncio.sleep(4)
    world.storages[C].stop()
    await server.write(1)
    assert world.metadata.session_id == 0
    assert len(world.stored(B)) == 12


@ON_LINES
async def test_a_recovery_copies_the_largest_transaction(world: LineWorld, line: Line) -> None:
    one = await world.server(1)
    await one.write(10)
    world.storages[C].stop()
    await one.write(1, size_bytes=LARGEST)
    await one.write(5)
    await one.close()
    world.storages[B].stop()
    world.storages[C].start()
    world.network.set_lines(**line._asdict())
    two = await world.server(2)
    await two.wait_open()
    assert world.stored(C) == world.stored(A)
    assert world.metadata.session_id == 1, "the first attempt succeeds"


@ON_LINES
async def test_a_replica_catches_up_with_the_largest_transaction_and_its_vote_counts(
    small_ring_world: LineWorld, line: Line
) -> None:
    world = small_ring_world
    server = await serving(world)
    world.storages[C].pause()
    for _ in range(8):
        await server.write(10, size_bytes=2000)
    await server.write(1, size_bytes=LARGEST)
    for _ in range(40):
        await server.write(10, size_bytes=2000)
    world.network.set_lines(**line._asdict())
    world.storages[C].resume()
    await asyncio.sleep(10)
    world.storages[B].stop()
    await server.write(1)
    assert len(world.stored(C)) == len(world.stored(A)) == 492
    assert world.metadata.session_id <= 1


async def test_a_needed_replica_whose_copy_hangs_does_not_count_for_a_minute(small_ring_world: LineWorld) -> None:
    """C lags and B is gone: while the copy to C is not written, nothing can be committed, and that is told."""
    world = small_ring_world
    server = await serving(world)
    world.storages[C].pause()
    for _ in range(40):
        await server.write(10, size_bytes=2000)
    world.network.slow_storages = {C}
    world.network.slow_requests, world.network.slow_s = (wire.AppendRequest,), 1.0
    world.storages[C].resume()
    await wait_until(lambda: world.network.reads > 0)
    world.network.slow_s = 1000.0
    await asyncio.sleep(3)
    server.give(1)
    world.storages[B].stop()
    with within(10):
        await server.wait(lambda: server.log.session_id != 0)


async def test_little_is_handed_to_a_connection_that_takes_nothing(world: LineWorld) -> None:
    """What a replica has not been sent belongs in the ring, which is bounded for all partitions together."""
    server = await serving(world)
    await wait_until(lambda: len(world.stored(C)) == 10)
    world.network.lines[C].bytes_per_s = 100_000.0
    channel = next(found.near.protocol for found in world.network.opened if found.storage == C)
    assert isinstance(channel, Channel)
    for _ in range(40):
        await server.write(1, size_bytes=300_000)
    assert channel.unsent_bytes < WRITE_HIGH_BYTES + 2 * 300_000
    world.network.lines[C].bytes_per_s = 1e9
    await wait_until(lambda: len(world.stored(C)) == 50)
    assert world.metadata.session_id == 0


@pytest.mark.deep
async def test_small_records_are_caught_up_with_over_a_long_line(small_ring_world: LineWorld) -> None:
    """Half a second of round trip: steps are large, and the next one is read while one is written."""
    world = small_ring_world
    server = await serving(world)
    await wait_until(lambda: len(world.stored(C)) == 10)
    world.storages[C].stop()
    for _ in range(100):
        await server.write(400, size_bytes=100)
    world.network.set_lines(round_trip_s=0.5)
    world.storages[C].start()
    with within(30):
        await wait_until(lambda: len(world.stored(C)) == 40_010)
    assert world.metadata.session_id == 0


async def test_a_read_brings_the_largest_transaction(world: LineWorld) -> None:
    server = await serving(world)
    await server.write(1, size_bytes=LARGEST)
    world.network.set_lines(bytes_per_s=MBIT_10, round_trip_s=0.1)
    (record,) = await server.log.read(10, 5, MIB, 5)
    assert len(record.data) == LARGEST
    assert world.network.reads == 1


async def test_a_dead_connection_for_reading_is_replaced(world: LineWorld) -> None:
    """A recovery has one source only, and the connection on which it reads from it is dead."""
    await leave_behind(world, C)
    world.storages[B].stop()
    world.storages[C].start()
    first = len(world.network.opened)
    two = await world.server(2)
    await wait_until(lambda: sum(each.storage == A for each in world.network.opened[first:]) == 2)
    world.network.reads = 0
    reading = [each for each in world.network.opened[first:] if each.storage == A][1]
    await wait_until(lambda: world.network.reads > 0)
    reading.blackhole()
    with within(10):
        await two.wait_open()
    assert world.stored(C) == world.stored(A)


@pytest.mark.parametrize("size_bytes", [100, LARGEST])
@pytest.mark.parametrize("dead", range(3))
async def test_a_dead_connection_for_writing_holds_up_nothing(world: LineWorld, dead: int, size_bytes: int) -> None:
    server = await serving(world)
    world.storages[(C, A, B)[dead]].stop()  # so that the dead connection is needed
    await server.write(10)
    if size_bytes == LARGEST:
        world.network.set_lines(bytes_per_s=MBIT_10, round_trip_s=0.1)
    connection = next(each for each in world.network.opened if each.storage == NAMES[dead])
    server.give(1, size_bytes=size_bytes)
    await asyncio.sleep(0.1)
    connection.blackhole()
    world.storages[(C, A, B)[dead]].start()
    with within(10 if size_bytes == 100 else 120):
        await server.wait(lambda: server.listener.decided_count == len(server.given), 300)
    assert server.listener.committed_appends == server.given


async def test_a_dead_storage_is_noticed_at_once_by_small_requests(world: LineWorld) -> None:
    server = await serving(world)
    world.storages[C].stop()
    await server.write(10)
    world.storages[C].start()
    for connection in world.network.opened:
        if connection.storage == B:
            connection.blackhole()
    world.network.opened.clear()
    with within(2):
        await server.write(1)


async def test_a_request_that_takes_long_costs_the_connection_of_all_partitions_nothing(world: LineWorld) -> None:
    """The storage answers what it is asked meanwhile: the connection is not silent."""
    world.storages[C].stop()
    await serving(world)
    world.network.slow_requests, world.network.slow_s = (wire.TruncateRequest,), 9.0
    world.storages[C].start()
    await wait_until(lambda: len(world.stored(C)) == 10)
    assert world.network.probes > 0
    assert world.storages[C].connect_count == 1
    assert world.metadata.session_id == 0


async def test_storages_whose_changes_take_long_are_waited_for(world: LineWorld) -> None:
    world.network.slow_requests = (wire.TruncateRequest, wire.SetLowWaterMarkRequest)
    world.network.slow_s = 25.0
    server = await world.server()
    await server.wait_open(300)
    assert world.metadata.session_id == 0


@pytest.mark.deep
async def test_a_storage_that_always_takes_too_long_does_not_renew_sessions_for_ever(world: LineWorld) -> None:
    world.storages[C].stop()
    server = await serving(world)
    world.network.slow_requests, world.network.slow_s = (wire.TruncateRequest,), 90.0
    world.network.slow_storages = {C}
    world.storages[C].start()
    await asyncio.sleep(2 * 3600)
    assert world.storages[C].connect_count == 1, "the connection is not to blame"
    assert 3 <= world.metadata.session_id <= 20
    assert server.listener.opened == [(-1, True)]
    world.network.slow_s = 0.0
    await server.write(5)
    await wait_until(lambda: len(world.stored(C)) == 15, 3600)


async def test_a_replica_that_cannot_catch_up_is_no_vote_to_come(small_ring_world: LineWorld) -> None:
    """C lags and what it lacks cannot be read from A; B goes away. The session ends, and nobody says it was healthy."""
    world = small_ring_world
    server = await serving(world)
    world.storages[C].pause()
    for _ in range(50):
        await server.write(10, size_bytes=2000)
    world.network.failing_reads = {A: 200, B: 200}
    world.storages[C].resume()
    await asyncio.sleep(10)
    assert [view.status for view in server.log.replica_views][2] is ReplicaStatus.LAGGING
    healthy = [server.log.healthy]
    world.storages[B].stop()
    server.give(1)
    await wait_until(lambda: not server.log.open, 30)
    await asyncio.sleep(30)
    healthy.append(server.log.healthy)
    world.network.failing_reads = {}
    await server.wait(lambda: server.listener.decided_count == len(server.given))
    healthy.append(server.log.healthy)
    assert healthy == [True, False, True]
    assert len(world.stored(C)) == len(world.stored(A))


async def test_a_copy_that_fails_again_and_again_keeps_no_barred_replica_out(world: LineWorld) -> None:
    """A and B are complete, C copies from A, which is damaged; B is barred and can be reached."""
    await leave_behind(world, C)
    world.storages[C].start()
    world.network.failing_reads = {A: 120}
    world.network.slow_requests, world.network.slow_s = (wire.TruncateRequest, wire.SetLowWaterMarkRequest), 0.1
    two = await world.server(2)
    await wait_until(lambda: two.log._opening is not None)
    opening = two.log._opening
    assert opening is not None
    barred = opening._members[1]
    await wait_until(lambda: barred._change_unanswered)
    world.storages[B].break_connections()
    await two.wait_open(60)
    assert world.stored(B)[:150] == world.stored(A)[:150]


async def test_health_is_measured(world: LineWorld) -> None:
    """Health reports the last answer of a quorum, a moment ago, although a session runs."""
    server = await serving(world)
    session_id = server.log.session_id
    rounds = ReplicaRounds(lambda: {0: server.log}, lambda: 0)
    rounds.start()
    seen = []
    world.network.slow_storages, world.network.slow_s = {A, B}, world.options.rpc_timeout_s + 1
    for requests in ((), (wire.MaxTransactionIdRequest,), ()):
        world.network.slow_requests = requests
        await asyncio.sleep(60)
        assert server.log.open
        seen.append(server.log.healthy)
    rounds.close()
    assert seen == [True, False, True]
    assert server.log.session_id == session_id


async def test_who_has_no_session_is_unhealthy_after_a_while(world: LineWorld) -> None:
    server = await serving(world)
    world.storages[A].stop()
    world.storages[B].stop()
    seen = []
    for pause_s in (1, 60):  # a session is likely to run within seconds, and then it is not
        await asyncio.sleep(pause_s)
        seen.append((server.log.open, server.log.healthy))
    world.storages[A].start()
    await server.wait_open()
    seen.append((server.log.open, server.log.healthy))
    assert seen == [(False, True), (False, False), (True, True)]


async def test_an_idle_session_is_asked_now_and_then_and_a_busy_one_never(world: LineWorld) -> None:
    server = await serving(world)
    confirm, times = StoreSession._ask_quorum, []

    async def noted(session: StoreSession, timeout_s: float) -> bool:
        times.append(asyncio.get_running_loop().time())
        return await confirm(session, timeout_s)

    with mock.patch.object(StoreSession, "_ask_quorum", noted):
        for second in range(120):
            if second < 60:
                await server.write(1)
            assert server.log.healthy
            server.log.confirm_if_idle(unasked=False)
            await asyncio.sleep(1)
    assert 4 <= len(times) <= 6
    assert times[-1] - times[0] >= (len(times) - 1) * server.log._options.confirm_interval_s


async def test_nobody_is_asked_for_those_who_do_not_look(world: LineWorld) -> None:
    server = await serving(world)
    session = server.log._session
    assert session is not None

    def asks(*, unasked: bool) -> bool:
        server.log.confirm_if_idle(unasked=unasked)
        return session._confirmation is not None

    await asyncio.sleep(60)
    assert not asks(unasked=False)
    assert server.log.healthy
    assert session._confirmation is None, "a look at a thousand partitions asks nobody by itself"
    assert asks(unasked=False)
    await asyncio.sleep(60)
    assert not asks(unasked=False)
    assert asks(unasked=True)
