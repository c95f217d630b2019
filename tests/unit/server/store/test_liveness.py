"""Slow lines, long lines, large transactions, dead connections: what moves is waited for, what does not is replaced.

Rules L1, L2, L3 and L5. Storages are in memory and time is virtual; everything on the servers' side is real.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.store.lines import LineNetwork
from tests.unit.server.store.world import NAMES, World, wait_until
from waltz.common.net.channel import WRITE_HIGH_BYTES, Channel
from waltz.common.wire import storage as wire
from waltz.server.store.interface import StoreOptions
from waltz.server.store.replica_view import ReplicaStatus

A, B, C = NAMES
MIB = 1 << 20
LARGEST = 32 * MIB
MBIT_10 = 10e6 / 8

LINES = [
    pytest.param(MBIT_10, 0.1, 256 << 10, id="10 Mbit/s"),
    pytest.param(MBIT_10, 0.1, 6 * MIB, id="10 Mbit/s behind a relay"),
    pytest.param(12.5e6, 0.5, 256 << 10, id="500 ms"),
]


class LineWorld(World):
    network: LineNetwork

    async def __aenter__(self) -> "LineWorld":
        await super().__aenter__()
        return self


@asynccontextmanager
async def line_world(**values: object) -> AsyncIterator[LineWorld]:
    options = StoreOptions(random_source=random.Random(0), **values)  # type: ignore[arg-type]  # names checked at run time
    async with LineWorld(options=options, network=LineNetwork(NAMES)) as world:
        yield world


SMALL_RING = {"window_size_bytes": 64 << 10, "ring_size_bytes": 256 << 10}


@pytest.mark.parametrize(("bytes_per_s", "round_trip_s", "hidden_bytes"), LINES)
async def test_the_largest_transaction_commits(bytes_per_s: float, round_trip_s: float, hidden_bytes: int) -> None:
    async with line_world() as world:
        world.network.set_lines(bytes_per_s=bytes_per_s, round_trip_s=round_trip_s, hidden_bytes=hidden_bytes)
        server = await world.server()
        await server.write(10)
        session_id = world.metadata.session_id
        started_s = asyncio.get_running_loop().time()
        await server.write(1, size_bytes=LARGEST)
        assert asyncio.get_running_loop().time() - started_s < 1.3 * LARGEST / bytes_per_s + 2
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


async def test_a_slow_disk_with_many_small_batches_keeps_its_connection() -> None:
    """The connection belongs to all partitions; the requests of one must never make its storage stop reading it."""
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
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


async def test_a_slow_replica_is_not_given_up_when_it_becomes_needed() -> None:
    """B is still being sent what A and C have committed long ago when C goes away."""
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
        world.network.lines[B].bytes_per_s = MBIT_10
        await server.write(1, size_bytes=LARGEST)
        await asyncio.sleep(4)
        world.storages[C].stop()
        await server.write(1)
        assert world.metadata.session_id == 0
        assert len(world.stored(B)) == 12


@pytest.mark.parametrize(("bytes_per_s", "round_trip_s", "hidden_bytes"), LINES)
async def test_a_recovery_copies_the_largest_transaction(
    bytes_per_s: float, round_trip_s: float, hidden_bytes: int
) -> None:
    async with line_world() as world:
        one = await world.server(1)
        await one.write(10)
        world.storages[C].stop()
        await one.write(1, size_bytes=LARGEST)
        await one.write(5)
        await one.close()
        world.storages[B].stop()
        world.storages[C].start()
        world.network.set_lines(bytes_per_s=bytes_per_s, round_trip_s=round_trip_s, hidden_bytes=hidden_bytes)
        two = await world.server(2)
        await two.wait_open()
        assert world.stored(C) == world.stored(A)
        assert world.metadata.session_id == 1, "the first attempt succeeds"


@pytest.mark.parametrize(("bytes_per_s", "round_trip_s", "hidden_bytes"), LINES)
async def test_a_replica_catches_up_with_the_largest_transaction_and_its_vote_counts(
    bytes_per_s: float, round_trip_s: float, hidden_bytes: int
) -> None:
    async with line_world(**SMALL_RING) as world:
        server = await world.server()
        await server.write(10)
        world.storages[C].pause()
        for _ in range(8):
            await server.write(10, size_bytes=2000)
        await server.write(1, size_bytes=LARGEST)
        for _ in range(40):
            await server.write(10, size_bytes=2000)
        world.network.set_lines(bytes_per_s=bytes_per_s, round_trip_s=round_trip_s, hidden_bytes=hidden_bytes)
        world.storages[C].resume()
        await asyncio.sleep(10)
        world.storages[B].stop()
        await server.write(1)
        assert len(world.stored(C)) == len(world.stored(A)) == 492
        assert world.metadata.session_id <= 1


async def test_a_needed_replica_whose_copy_hangs_does_not_count_for_a_minute() -> None:
    """C lags and B is gone: while the copy to C is not written, nothing can be committed, and that is told."""
    async with line_world(**SMALL_RING) as world:
        server = await world.server()
        await server.write(10)
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
        started_s = asyncio.get_running_loop().time()
        await server.wait(lambda: server.log.session_id != 0)
        assert asyncio.get_running_loop().time() - started_s < 10


async def test_little_is_handed_to_a_connection_that_takes_nothing() -> None:
    """What a replica has not been sent belongs in the ring, which is bounded for all partitions together."""
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
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


async def test_small_records_are_caught_up_with_over_a_long_line() -> None:
    """Half a second of round trip: steps are large, and the next one is read while one is written."""
    async with line_world(**SMALL_RING) as world:
        server = await world.server()
        await server.write(10)
        await wait_until(lambda: len(world.stored(C)) == 10)
        world.storages[C].stop()
        for _ in range(100):
            await server.write(400, size_bytes=100)
        world.network.set_lines(round_trip_s=0.5)
        world.storages[C].start()
        started_s = asyncio.get_running_loop().time()
        await wait_until(lambda: len(world.stored(C)) == 40_010)
        assert asyncio.get_running_loop().time() - started_s < 30
        assert world.metadata.session_id == 0


async def test_a_read_brings_the_largest_transaction() -> None:
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
        await server.write(1, size_bytes=LARGEST)
        world.network.set_lines(bytes_per_s=MBIT_10, round_trip_s=0.1)
        (record,) = await server.log.read(10, 5, MIB, 5)
        assert len(record.data) == LARGEST
        assert world.network.reads == 1


async def test_a_dead_connection_for_reading_is_replaced() -> None:
    """A recovery has one source only, and the connection on which it reads from it is dead."""
    async with line_world() as world:
        one = await world.server(1)
        await one.write(100)
        world.storages[C].stop()
        await one.write(50)
        await one.close()
        world.storages[B].stop()
        world.storages[C].start()
        first = len(world.network.opened)
        two = await world.server(2)
        await wait_until(lambda: sum(each.storage == A for each in world.network.opened[first:]) == 2)
        world.network.reads = 0
        reading = [each for each in world.network.opened[first:] if each.storage == A][1]
        await wait_until(lambda: world.network.reads > 0)
        reading.blackhole()
        started_s = asyncio.get_running_loop().time()
        await two.wait_open()
        assert asyncio.get_running_loop().time() - started_s < 10
        assert world.stored(C) == world.stored(A)


@pytest.mark.parametrize("size_bytes", [100, LARGEST])
@pytest.mark.parametrize("dead", range(3))
async def test_a_dead_connection_for_writing_holds_up_nothing(dead: int, size_bytes: int) -> None:
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
        world.storages[(C, A, B)[dead]].stop()  # so that the dead connection is needed
        await server.write(10)
        if size_bytes == LARGEST:
            world.network.set_lines(bytes_per_s=MBIT_10, round_trip_s=0.1)
        connection = next(each for each in world.network.opened if each.storage == NAMES[dead])
        server.give(1, size_bytes=size_bytes)
        await asyncio.sleep(0.1)
        connection.blackhole()
        world.storages[(C, A, B)[dead]].start()
        started_s = asyncio.get_running_loop().time()
        await server.wait(lambda: server.listener.decided_count == len(server.given), 300)
        assert server.listener.committed_appends == server.given
        limit_s = 10 if size_bytes == 100 else 120
        assert asyncio.get_running_loop().time() - started_s < limit_s


async def test_a_dead_storage_is_noticed_at_once_by_small_requests() -> None:
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
        world.storages[C].stop()
        await server.write(10)
        world.storages[C].start()
        for connection in world.network.opened:
            if connection.storage == B:
                connection.blackhole()
        world.network.opened.clear()
        started_s = asyncio.get_running_loop().time()
        await server.write(1)
        assert asyncio.get_running_loop().time() - started_s < 2


async def test_a_request_that_takes_long_costs_the_connection_of_all_partitions_nothing() -> None:
    """The storage answers what it is asked meanwhile: the connection is not silent."""
    async with line_world() as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(10)
        world.network.slow_requests, world.network.slow_s = (wire.TruncateRequest,), 9.0
        world.storages[C].start()
        await wait_until(lambda: len(world.stored(C)) == 10)
        assert world.network.probes > 0
        assert world.storages[C].connect_count == 1
        assert world.metadata.session_id == 0


async def test_storages_whose_changes_take_long_are_waited_for() -> None:
    async with line_world() as world:
        world.network.slow_requests = (wire.TruncateRequest, wire.SetLowWaterMarkRequest)
        world.network.slow_s = 25.0
        server = await world.server()
        await server.wait_open(300)
        assert world.metadata.session_id == 0


async def test_a_storage_that_always_takes_too_long_does_not_renew_sessions_for_ever() -> None:
    async with line_world() as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(10)
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


async def test_a_replica_that_cannot_catch_up_is_no_vote_to_come() -> None:
    """C lags and what it lacks cannot be read from A; B goes away. The session ends, and nobody says it was healthy."""
    async with line_world(**SMALL_RING) as world:
        server = await world.server()
        await server.write(10)
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


async def test_a_copy_that_fails_again_and_again_keeps_no_barred_replica_out() -> None:
    """A and B are complete, C copies from A, which is damaged; B is barred and can be reached."""
    async with line_world() as world:
        one = await world.server(1)
        await one.write(100)
        world.storages[C].stop()
        await one.write(50)
        await one.close()
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


async def test_health_is_measured() -> None:
    """Nothing is asked while nobody looks; who looks learns whether a quorum still answers."""
    async with line_world() as world:
        server = await world.server()
        await server.write(10)
        await asyncio.sleep(60)
        seen = [server.log.healthy]
        world.storages[A].pause()
        world.storages[B].pause()
        await asyncio.sleep(60)
        for _ in range(3):
            last = server.log.healthy
            await asyncio.sleep(15)
        seen.append(last)
        world.storages[A].resume()
        world.storages[B].resume()
        for _ in range(3):
            last = server.log.healthy
            await asyncio.sleep(15)
        seen.append(last)
        assert seen == [True, False, True]
