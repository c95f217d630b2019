"""A changed replica set, while the one before could go on: no session that commits is given up for one that cannot."""

import asyncio
import random

import pytest

from tests.unit.server.store.virtual_time import run
from tests.unit.server.store.world import Server, World, wait_until
from waltz.server.store.interface import StoreOptions
from waltz.server.store.log.replica_change import ReplicaChange, ask

A, B, C, D, E = ("a:1", "b:1", "c:1", "d:1", "e:1")
ALL = (A, B, C, D, E)


def assign(world: World, server: Server, *names: str) -> None:
    """Change the assignment, as the watch of a server does."""
    world.assigned = frozenset(names)
    server.connections.update(names)
    server.log.set_replicas(world.assigned)


async def commits(server: Server, count: int = 1) -> None:
    """Write without a moment in which the log is not open, and soon."""
    calls = len(server.listener.calls)
    async with asyncio.timeout(2):
        await server.write(count)
    assert set(server.listener.calls[calls:]) == {"committed"}


async def half_dead(world: World) -> Server:
    """A session of A, B, C, of which A is dead; D is not up."""
    world.assigned = frozenset((A, B, C))
    server = await world.server()
    await server.write(50)
    for name in (A, D):
        world.storages[name].stop()
    await asyncio.sleep(3)
    await server.write(1)
    return server


async def test_a_set_that_cannot_open_a_session_does_not_end_the_one_that_commits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        session_id = server.log.session_id
        assign(world, server, A, B, C, D)
        for _ in range(30):
            await asyncio.sleep(2)
            await commits(server)
        assert (server.log.session_id, server.log.healthy) == (session_id, True)
        assert server.log.trouble == (
            "the partition stays with a:1, b:1, c:1, not a:1, b:1, c:1, d:1: 3 of 4 have to answer, but "
            "a:1: connection refused; d:1: connection refused"
        )
        assert caplog.text.count("the partition stays with") == 1, "the same text is logged once"
        attempts = world.storages[D].connect_count
        world.storages[D].start()
        await wait_until(lambda: set(world.states()) == {A, B, C, D}, 30)
        assert world.storages[D].connect_count > attempts
        await commits(server)
        assert not server.log.trouble


async def test_a_change_that_is_taken_back_leaves_the_session_alone() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        session_id = server.log.session_id
        assign(world, server, A, B, C, D)
        await wait_until(lambda: server.log.trouble is not None)
        assign(world, server, A, B, C)
        await commits(server, 10)
        await asyncio.sleep(30)
        assert (server.log.session_id, server.log.trouble) == (session_id, None)


async def test_a_silent_storage_is_waited_for_while_the_session_commits() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        world.storages[D].start()
        world.storages[D].pause()
        assign(world, server, A, B, C, D)
        for _ in range(15):
            await asyncio.sleep(1)
            await commits(server)
        assert "d:1: no answer within 10 s" in (server.log.trouble or "")


async def test_no_storage_at_all_is_no_reason_to_end_a_session() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        assign(world, server)
        await asyncio.sleep(30)
        await commits(server)
        assert (server.log.trouble or "").endswith("not none: no storage is assigned")


async def test_sessions_are_renewed_for_other_reasons_meanwhile() -> None:
    async with World(ALL, options=StoreOptions(random_source=random.Random(0), checkpoint_interval=10)) as world:
        server = await half_dead(world)
        assign(world, server, A, B, C, D)
        await wait_until(lambda: server.log.trouble is not None)
        before = server.log.session_id
        assert before is not None
        for _ in range(5):
            await commits(server, 10)
        server.log.renew()
        await wait_until(lambda: (server.log.session_id or 0) > before + 1, 2)
        assert set(world.states()) == {A, B, C}
        assert server.log.trouble is not None


async def test_a_storage_that_left_is_in_its_session_until_the_next_one_has_begun() -> None:
    async with World(ALL) as world:
        world.assigned = frozenset((A, B, C))
        server = await world.server()
        await server.write(50)
        for name in (B, D):
            world.storages[name].stop()
        await server.write(1)
        assign(world, server, B, C, D)
        for _ in range(20):
            await asyncio.sleep(1)
            await commits(server)
        assert len(world.stored(A)) == len(world.stored(C)) == 71
        world.storages[D].start()
        await wait_until(lambda: set(world.states()) == {B, C, D}, 30)
        await commits(server)
        await wait_until(lambda: not world.storages[A].connections)


async def test_a_session_that_opens_goes_back_to_the_former_storages_if_only_they_can_carry_it() -> None:
    """The assigned storages have answered, the session was given up for them, and two of them die at that moment."""
    async with World(ALL) as world:
        world.assigned = frozenset((A, B, C))
        server = await world.server()
        await server.write(50)
        before = world.metadata.session_id
        assign(world, server, B, C, D)
        await wait_until(lambda: world.metadata.session_id != before, 5)
        for name in (B, D):
            world.storages[name].stop()
        await server.wait(lambda: not server.log.open, 5)
        await server.wait_open(60)
        await commits(server)
        assert set(world.states()) == {A, B, C}
        assert (server.log.trouble or "").startswith("the partition stays with a:1, b:1, c:1, not b:1, c:1, d:1")
        world.storages[D].start()
        await wait_until(lambda: set(world.states()) == {B, C, D}, 60)
        await commits(server)


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_new_session_takes_the_former_storages_if_only_they_answer(generation: int) -> None:
    """After a failure, or at another server."""
    async with World(ALL) as world:
        server = await half_dead(world)
        assign(world, server, A, B, C, D)
        await wait_until(lambda: server.log.trouble is not None)
        if generation == 2:
            server = await world.server(generation)
        else:
            for name in (B, C):
                world.storages[name].break_connections()
            await server.wait(lambda: not server.log.open)
        await server.wait_open(30)
        await commits(server)
        assert set(world.states()) == {A, B, C}
        assert (server.log.trouble or "").startswith("the partition stays with a:1, b:1, c:1")
        world.storages[D].start()
        await wait_until(lambda: set(world.states()) == {A, B, C, D}, 30)


async def test_a_new_session_takes_the_assigned_storages_if_neither_set_answers() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        world.storages[B].stop()
        assign(world, server, A, B, C, D)
        other = await world.server(2)
        await asyncio.sleep(30)
        assert not other.log.open
        assert "the partition stays with" not in (other.log.trouble or "")
        world.storages[B].start()
        world.storages[D].start()
        await other.wait_open(30)
        assert set(world.states()) == {A, B, C, D}


async def test_a_session_that_has_to_end_does_not_wait_for_the_question() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        world.storages[D].start()
        world.storages[D].pause()
        assign(world, server, A, B, C, D)
        await asyncio.sleep(0.1)
        server.log.set_generation(2)
        server.connections.update((A, B, C))
        server.log.set_replicas(frozenset((A, B, C)))
        await server.wait_open(2)
        assert world.metadata.generation == 2


async def test_a_fence_at_one_of_its_own_storages_ends_the_session() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        session_id = server.log.session_id
        world.storages[B].partition.fence = 1000
        world.storages[D].start()
        world.storages[D].pause()
        assign(world, server, A, B, C, D)
        await wait_until(lambda: server.log.session_id != session_id, 5)


async def test_a_fence_at_another_storage_ends_nothing() -> None:
    async with World(ALL) as world:
        server = await half_dead(world)
        session_id = server.log.session_id
        world.storages[D].start()
        world.storages[D].partition.fence = 1000
        assign(world, server, A, B, C, D)
        await wait_until(lambda: "d:1: session id has changed" in (server.log.trouble or ""), 5)
        await commits(server)
        assert server.log.session_id == session_id


async def test_a_quorum_is_enough_and_the_others_are_not_waited_for() -> None:
    async with World(ALL) as world:
        server = await world.server()
        loop = asyncio.get_running_loop()
        world.storages[A].pause()
        world.storages[B].stop()
        began_s = loop.time()
        answers = await ask(server.connections, ALL, 0, 0, 10)
        assert answers.enough
        assert set(answers.errors) <= {B}
        assert loop.time() - began_s < 1
        world.storages[C].stop()
        world.storages[D].stop()
        answers = await ask(server.connections, ALL, 0, 0, 10)
        assert not answers.enough
        assert loop.time() - began_s < 1, "three of five are gone: the silent one cannot help"
        assert not (await ask(server.connections, (), 0, 0, 10)).enough


async def test_questions_keep_their_pace() -> None:
    async with World(ALL) as world:
        server = await world.server()
        for name in ALL:
            world.storages[name].stop()
        change = ReplicaChange(0, server.connections, world.options)
        present, assigned = frozenset((A,)), frozenset((B,))
        first = await change.can_take_over(0, present, assigned)
        assert first.errors
        assert 0 < change.pause_s <= 0.1
        assert await change.can_take_over(0, present, assigned) == (False, {})
        await asyncio.sleep(change.pause_s)
        assert (await change.can_take_over(0, present, assigned)).errors
        assert change.pause_s > 0.1
        change.reset()
        assert (change.pause_s, change.objection) == (0, None)


def test_the_same_death_costs_nothing_by_way_of_four_replicas_or_by_one_change() -> None:
    """The source of a move is dead, and so is, before or after it has joined, its destination."""

    async def scenario(assigned: tuple[str, ...], joins: bool) -> bool:
        async with World((A, B, C, D)) as world:
            server = await half_dead(world)
            if joins:
                world.storages[D].start()
            assign(world, server, *assigned)
            await asyncio.sleep(10)
            world.storages[D].stop()
            await asyncio.sleep(60)
            try:
                await commits(server)
            except TimeoutError:
                return False
            return True

    assert run(scenario((B, C, D), joins=False))
    assert run(scenario((B, C, D), joins=True))
    assert run(scenario((A, B, C, D), joins=False))
    assert not run(scenario((A, B, C, D), joins=True)), "three of four are needed, and two are alive"
