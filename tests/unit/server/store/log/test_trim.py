"""The replicated log of a trimmed partition, with storages in memory."""

import pytest

from tests.unit.server.store.fakes import TRIMMED
from tests.unit.server.store.world import NAMES, Server, World
from waltz.server.store.interface import StoreOptions, TrimmedReadError

CHECKPOINT = 10
"""A session is renewed after so many transactions, which raises the low-water marks."""


def world() -> World:
    return World(options=StoreOptions(checkpoint_interval=CHECKPOINT, ring_size_bytes=200))


def firsts(world: World) -> dict[str, int]:
    return {name: world.storages[name].partition.first for name in NAMES}


async def trimmed(world: World, server: Server, point: int) -> None:
    server.log.set_trim_point(point)
    await server.wait(lambda: set(firsts(world).values()) == {point})


async def test_storages_remove_what_is_trimmed_up_to_the_low_water_mark() -> None:
    async with world() as setup:
        server = await setup.server()
        for _ in range(3):
            await server.write(CHECKPOINT)
        await trimmed(setup, server, 15)
        server.log.set_trim_point(5)
        assert server.log.first_available == 15, "nothing comes back"
        with pytest.raises(TrimmedReadError, match="transaction 14 is trimmed; the first one is 15"):
            await server.log.read(14, 10, 1000, 10)
        with pytest.raises(TrimmedReadError):
            await server.log.read_headers(0, 10, 10)
        assert (await server.log.read(15, 2, 1000, 10))[0].transaction_id == 15
        assert (await server.log.read_headers(15, 1, 10))[0].transaction_id == 15


async def test_no_storage_removes_what_was_committed_in_this_session() -> None:
    """Until the session is renewed, since a replica may still need it to catch up."""
    async with World() as setup:
        server = await setup.server()
        await server.write(30)
        server.log.set_trim_point(20)
        await server.write(5)
        assert set(firsts(setup).values()) == {0}
        server.log.renew()
        await server.wait(lambda: set(firsts(setup).values()) == {20})
        setup.check_committed_is_stored(server)


async def test_a_storage_that_was_away_begins_at_the_trim_point_or_trims() -> None:
    async with world() as setup:
        server = await setup.server()
        await server.write(CHECKPOINT)
        late = setup.storages[NAMES[2]]
        late.stop()
        for _ in range(4):
            await server.write(CHECKPOINT)
        server.log.set_trim_point(30)
        await server.wait(lambda: [firsts(setup)[name] for name in NAMES[:2]] == [30, 30])
        assert late.partition.maximum < 29
        late.start()
        await server.wait(lambda: late.partition.maximum == 49 and late.partition.first == 30)
        await server.write(1)
        await server.wait(lambda: late.partition.maximum == 50)
        assert late.partition.records[30:] == setup.storages[NAMES[0]].partition.records[30:]


async def test_a_replaced_storage_begins_at_the_trim_point() -> None:
    async with world() as setup:
        server = await setup.server()
        for _ in range(4):
            await server.write(CHECKPOINT)
        await trimmed(setup, server, 25)
        lost = setup.storages[NAMES[0]]
        lost.stop()
        lost.partitions = {0: type(lost.partition)()}
        setup.network.storages["new"] = type(lost)("new")
        server.log.set_replicas(frozenset({*NAMES[1:], "new"}))
        await server.write(1)
        new = setup.storages["new"].partition
        await server.wait(lambda: new.maximum == 40)
        assert new.first == 25
        assert new.records[25:] == setup.storages[NAMES[1]].partition.records[25:]
        # The replicas that hold the whole rest may go, one after the other, and the new one is a full member.
        setup.storages[NAMES[1]].stop()
        await server.write(3)
        setup.check_committed_is_stored(server)


async def test_another_owner_knows_the_trim_point_later_than_the_storages() -> None:
    """Until then it is only a liveness matter: what is gone cannot be copied."""
    async with world() as setup:
        server = await setup.server()
        for _ in range(3):
            await server.write(CHECKPOINT)
        await trimmed(setup, server, 20)
        late = setup.storages[NAMES[2]]
        late.stop()
        late.partition.records.clear()
        late.partition.session_id = late.partition.low_water_mark = late.partition.local_low_water_mark = -1
        other = await setup.server(generation=2)
        await other.write(1)
        late.start()
        await other.write(1)
        assert late.partition.maximum < 19
        other.log.set_trim_point(20)
        await other.wait(lambda: late.partition.maximum >= 31)
        assert late.partition.first == 20


async def test_a_storage_of_the_original_cannot_begin_there_and_is_refused() -> None:
    async with world() as setup:
        server = await setup.server()
        await server.write(CHECKPOINT)
        late = setup.storages[NAMES[2]]
        late.stop()
        late.trims = False
        for _ in range(3):
            await server.write(CHECKPOINT)
        server.log.set_trim_point(30)
        await server.wait(lambda: [firsts(setup)[name] for name in NAMES[:2]] == [30, 30])
        late.start()
        await server.wait(lambda: any(view.status.value == "refused" for view in server.log.replica_views))
        await server.write(3)
        assert TRIMMED not in late.partition.records
