"""The replicated log over storages and ZooKeeper in memory."""

import asyncio
import random
from functools import partial
from unittest import mock

import pytest

from tests.unit.server.store.virtual_time import VirtualTimeLoop, run
from tests.unit.server.store.world import NAMES, ROOT, Server, World, wait_until
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import UNRESOLVED
from waltz.server.store.interface import LogClosedError, ReadFailedError, SessionEndedError, StoreOptions
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.log.log_states import LogState
from waltz.server.store.session.session import StoreSession

A, B, C = NAMES


def options(**values: object) -> StoreOptions:
    return StoreOptions(random_source=random.Random(0), **values)  # type: ignore[arg-type]  # names checked at run time


async def all_clean(world: World) -> None:
    """Wait until every assigned replica is a member of the present session."""

    def clean() -> bool:
        states = world.states()
        return set(states) == set(world.assigned) and all(
            state[1:] == (world.metadata.session_id, UNRESOLVED) for state in states.values()
        )

    await wait_until(clean)


async def all_equal(world: World, count: int) -> None:
    """Wait until every storage has so many records."""
    await wait_until(lambda: all(len(world.stored(name)) == count for name in world.assigned))
    assert len({tuple(world.stored(name)) for name in world.assigned}) == 1


def opened_times(server: Server, count: int) -> bool:
    return len(server.listener.opened) == count


async def unknown_mark(server: Server) -> bool:
    return server.log.high_water_mark is None


async def test_first_session_of_a_partition() -> None:
    async with World() as world:
        server = await world.server()
        assert not server.log.open
        assert server.log.healthy
        assert await unknown_mark(server)
        with pytest.raises(LogClosedError):
            server.log.append([world.new_append()])
        await server.wait_open()
        assert server.listener.opened == [(-1, True)]
        assert server.log.high_water_mark == -1
        assert (world.metadata.generation, world.metadata.session_id) == (1, 0)
        await all_clean(world)


async def test_appends_get_consecutive_ids_and_reach_every_replica() -> None:
    async with World() as world:
        server = await world.server()
        for expected in range(10):
            (append,) = await server.write()
            assert append.transaction_id == expected
            assert server.log.high_water_mark == expected
        appends = await server.write(500)
        assert [append.transaction_id for append in appends] == list(range(10, 510))
        assert server.listener.committed_appends == server.given
        records = await server.log.read(0, 1000, 1 << 20, 5)
        assert [record.req_id for record in records] == [a.req_id for a in server.given][: len(records)]
        headers = await server.log.read_headers(500, 100, 5)
        assert [header.req_id for header in headers] == [a.req_id for a in server.given[500:]]
        assert await server.log.read(510, 10, 1000, 5) == []
        assert await server.log.read(-1, 10, 1000, 5) == []
        await all_equal(world, 510)
        assert server.listener.opened == [(-1, True)]


async def test_reads_are_bounded_in_bytes() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(30, size_bytes=1000)
        for _ in range(10):
            assert 1 <= len(await server.log.read(0, 100, 5_500, 5)) <= 5
        assert len(await server.log.read(0, 100, 10, 5)) == 1
        assert len(await server.log.read(0, 3, 1 << 20, 5)) == 3


async def test_a_minority_that_fails_disturbs_nobody() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[A].stop()
        await server.write(5)
        assert len(world.stored(A)) == 5
        world.storages[A].start()
        await server.write(5)
        await all_equal(world, 15)
        assert server.listener.opened == [(-1, True)], "no new session"
        assert world.metadata.session_id == 0
        assert server.listener.committed_appends == server.given


async def test_a_replica_that_was_down_at_the_start_joins_late() -> None:
    async with World() as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(300)
        assert world.states()[C].session_id == -1
        world.storages[C].start()
        await all_equal(world, 300)
        await all_clean(world)
        world.storages[B].stop()
        await server.write(10)
        assert len(world.stored(C)) == 310, "its vote counts"
        assert world.metadata.session_id == 0


async def lose_the_end(world: World, name: str, keep: int) -> None:
    """A storage gets back its disk as it was earlier in the same session."""
    world.storages[name].stop()
    del world.storages[name].partition.records[keep:]


@pytest.mark.parametrize("told", [True, False], ids=["the owner goes on", "another owner"])
async def test_an_older_disk_of_the_same_session_hides_nothing_committed(
    told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A and B have committed what C has missed; A comes back without it, while B is down."""
    async with World() as world:
        server = await world.server()
        await server.write(50)
        await all_clean(world)
        world.storages[C].stop()
        await server.write(50)
        await lose_the_end(world, A, 50)
        world.storages[B].stop()
        await asyncio.sleep(1)
        world.storages[A].start()
        world.storages[C].start()
        await wait_until(lambda: world.states()[A].closing_high_water_mark == 49)
        await asyncio.sleep(20)
        assert not server.log.open
        assert not server.log.healthy
        assert f"high-water mark undecided; {A} known at 49, {B} absent, {C} known at 49" in (server.log.trouble or "")
        if not told:
            await server.close()
            server = await world.server(2)
            await asyncio.sleep(20)
            assert not server.log.open
        world.storages[B].start()
        await server.wait_open()
        assert server.log.high_water_mark == 99
        await all_equal(world, 100)
    assert "holds transactions up to 49 and has acknowledged 99 in session 0" in caplog.text


async def test_a_session_that_would_begin_below_what_was_told_waits_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A comes back without what it has acknowledged, and nobody remembers that it has."""
    monkeypatch.setattr(StoreSession, "promised", lambda session: {})
    async with World() as world:
        server = await world.server()
        await server.write(50)
        await all_clean(world)
        world.storages[C].stop()
        await server.write(50)
        await lose_the_end(world, A, 50)
        world.storages[B].stop()
        await asyncio.sleep(1)
        world.storages[A].start()
        world.storages[C].start()
        await server.wait(lambda: server.log.trouble is not None)
        trouble = server.log.trouble
        assert trouble is not None
        assert "prove committed transactions up to 49, and clients have been told of 99" in trouble
        assert f"(not heard: {B})" in trouble
        assert trouble in caplog.text
        await asyncio.sleep(60)
        assert not server.log.open
        world.storages[B].start()
        await server.wait_open()
        assert (server.log.high_water_mark, server.log.trouble) == (99, None)


async def test_a_member_that_returns_without_what_it_acknowledged_is_brought_up_by_the_next_session() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(50)
        await all_clean(world)
        await all_equal(world, 50)
        await lose_the_end(world, A, 20)
        await asyncio.sleep(1)
        assert server.log.open
        world.storages[A].start()
        await wait_until(lambda: world.metadata.session_id == 1)
        await all_clean(world)
        await server.write(1)
        await all_equal(world, 51)


async def test_without_a_quorum_appends_stay_undecided_until_the_next_session_settles_them() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[A].stop()
        world.storages[B].pause()
        server.give(3)
        await wait_until(lambda: len(world.stored(C)) == 8)
        await server.wait(lambda: not server.log.open)
        assert server.listener.calls[-1] == "ended"
        assert server.listener.decided_count == 5, "S5: silence, for C may have it and A may come back"
        await asyncio.sleep(30)
        assert server.listener.decided_count == 5
        assert not server.log.healthy
        world.storages[B].resume()
        await server.wait_open()
        assert server.listener.decided_count == 8
        high_water_mark, changed = server.listener.opened[-1]
        assert changed
        assert high_water_mark == server.listener.committed_appends[-1].transaction_id
        await server.write(5)
        world.storages[A].start()
        await all_equal(world, high_water_mark + 6)
        world.check_committed_is_stored(server)


@pytest.mark.parametrize("failing", ["batch_committed", "failed"])
async def test_what_a_listener_could_not_be_told_is_told_by_the_next_session(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World() as world:
        server = await world.server()
        await server.write(10)
        if failing == "batch_committed":
            world.network.latency_s = lambda: 0.05
            server.give(5)
            await wait_until(lambda: all(len(world.stored(name)) == 15 for name in NAMES))
        else:
            for storage in world.storages.values():
                storage.pause()
            server.give(5)
            await asyncio.sleep(0.1)
        tell = getattr(server.listener, failing)
        attempts: list[object] = []

        def tell_or_not(*args: object) -> None:
            attempts.append(args)
            if len(attempts) == 1:
                raise RuntimeError("a defect of the listener")
            tell(*args)

        monkeypatch.setattr(server.listener, failing, tell_or_not)
        for storage in world.storages.values():
            storage.break_connections()
            storage.resume()
        await server.wait(lambda: server.listener.decided_count == 15)
        assert len(attempts) == 2
        assert len(server.listener.failed_appends) == (0 if failing == "batch_committed" else 5)
        await server.write(1)


async def test_appends_that_no_storage_took_are_failed_at_once_or_settled_as_absent() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        for name in NAMES:
            world.storages[name].stop()
        handed = world.storages[A].partition.maximum
        await server.wait(lambda: not server.log.open)
        with pytest.raises(LogClosedError):
            server.give(1)
        for name in NAMES:
            world.storages[name].start()
        await server.wait_open()
        assert server.listener.opened[-1] == (handed, False)


async def test_two_owners_the_newer_generation_wins() -> None:
    async with World() as world:
        old = await world.server(generation=1)
        await old.write(5)
        new = await world.server(generation=2)
        await new.wait_open()
        assert new.listener.opened == [(4, True)]
        await new.write(5)
        if old.log.open:
            old.give(2)
        await old.wait(lambda: not old.log.healthy)
        await new.write(5)
        assert new.listener.opened == [(4, True)], "the old owner does not steal it back"
        assert len(old.listener.committed_appends) == 5
        await all_equal(world, 15)
        assert world.metadata.generation == 2


async def test_h1_an_append_is_not_reported_committed_because_another_stands_at_its_id() -> None:
    """The first owner is cut off with an append undecided; another writes; then the first gets the partition back."""
    async with World() as world:
        first = await world.server(generation=1)
        await first.write(5)
        await all_clean(world)
        first.cut_off.update(NAMES)
        for storage in world.storages.values():
            storage.pause()
        lost = first.give(2)
        await asyncio.sleep(0.01)
        for storage in world.storages.values():
            storage.break_connections()
            storage.resume()
        await first.wait(lambda: not first.log.open)
        second = await world.server(generation=2)
        theirs = await second.write(3)
        assert [append.transaction_id for append in theirs] == [5, 6, 7]
        first.cut_off.clear()
        first.log.set_generation(3)
        await first.wait_open()
        assert first.listener.opened[-1] == (7, True)
        assert first.listener.failed_appends == lost
        assert len(first.listener.committed_appends) == 5
        records = await first.log.read(5, 10, 1 << 20, 5)
        assert [record.req_id for record in records] == [append.req_id for append in theirs]


async def test_a_new_generation_of_the_same_owner_opens_a_new_session() -> None:
    async with World() as world:
        server = await world.server(generation=1)
        await server.write(5)
        server.log.set_generation(1)
        server.log.set_generation(2)
        await server.wait(lambda: len(server.listener.opened) == 2)
        assert server.listener.opened[-1] == (4, False)
        assert (world.metadata.generation, world.metadata.session_id) == (2, 1)
        await server.write(5)


async def test_checkpoints_renew_the_session_without_anybody_noticing() -> None:
    async with World(options=options(checkpoint_interval=100)) as world:
        server = await world.server()
        await server.wait_open()
        for _ in range(300):
            server.give(3)
            await asyncio.sleep(0.002)
        await server.wait(lambda: server.listener.decided_count == 900)
        assert server.listener.committed_appends == server.given
        assert server.listener.opened == [(-1, True)]
        assert world.metadata.session_id >= 5
        await all_equal(world, 900)
        await wait_until(lambda: all(s.partition.low_water_mark >= 700 for s in world.storages.values()))


async def test_a_server_that_stood_still_does_not_blame_its_storages() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        for storage in world.storages.values():
            storage.pause()
        server.give(5)
        await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.stand_still(6)
        for storage in world.storages.values():
            storage.resume()
        await server.wait(lambda: server.listener.decided_count == 10)
        assert server.listener.opened == [(-1, True)]
        assert server.listener.committed_appends == server.given


async def test_checkpoints_are_postponed_while_zookeeper_is_away() -> None:
    async with World(options=options(checkpoint_interval=10)) as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.zookeeper_server.disconnect(server.zookeeper)
        for _ in range(60):
            await server.write(5)
            await asyncio.sleep(1)
        assert server.listener.opened == [(-1, True)]
        assert world.metadata.session_id == 0
        world.zookeeper_server.reconnect(server.zookeeper)
        await wait_until(lambda: all(s.partition.low_water_mark == 304 for s in world.storages.values()))
        await server.write(5)
        assert server.listener.opened == [(-1, True)], "renewed without anybody noticing"
        assert server.listener.committed_appends == server.given


async def test_the_mark_is_confirmed_by_a_quorum_that_knows_no_newer_session() -> None:
    async with World() as world:
        first = await world.server(generation=1)
        await first.write(5)
        assert await first.log.confirmed_mark(5) == 4
        world.storages[A].stop()
        assert await first.log.confirmed_mark(5) == 4
        world.storages[B].pause()
        assert await first.log.confirmed_mark(0.5) is None
        world.storages[B].resume()
        world.storages[A].start()
        second = await world.server(generation=2)
        await second.write(1)
        assert await first.log.confirmed_mark(5) is None
        assert not first.log.open


async def test_a_slow_replica_does_not_delay_a_confirmation() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(1)
        await all_clean(world)
        world.storages[C].pause()
        async with asyncio.timeout(0.1):
            assert await server.log.confirmed_mark(5) == 0


async def test_the_next_batch_confirms_the_mark_that_was_noted_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_is_asked(session: StoreSession, timeout_s: float) -> bool:
        raise AssertionError("a batch asks already")

    async with World() as world:
        server = await world.server()
        await server.write(3)
        monkeypatch.setattr(StoreSession, "_ask_quorum", nobody_is_asked)
        server.give(1)
        await asyncio.sleep(0)
        confirmation = asyncio.create_task(server.log.confirmed_mark(5))
        await asyncio.sleep(0.0005)
        server.give(1)
        assert await confirmation == 2
        assert server.listener.committed_appends == server.given


async def test_what_was_on_its_way_before_the_question_confirms_nothing() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(3)
        await all_clean(world)
        server.give(1)
        await asyncio.sleep(0)
        confirmation = asyncio.create_task(server.log.confirmed_mark(0.5))
        await server.wait(lambda: server.listener.committed_appends == server.given)
        for name in (B, C):
            world.storages[name].pause()
        assert await confirmation is None


async def test_another_attempt_notes_another_mark() -> None:
    async with World(options=options(checkpoint_interval=5)) as world:
        server = await world.server()
        await server.write(3)
        await all_clean(world)
        for name in (B, C):
            world.storages[name].pause()
        confirmation = asyncio.create_task(server.log.confirmed_mark(60))
        await asyncio.sleep(0.01)
        session = server.log._session
        assert session is not None
        session.end(SessionEndedError("planted"))
        for name in (B, C):
            world.storages[name].resume()
        await server.wait_open()
        assert await confirmation == 2
        server.give(1)
        await server.wait(lambda: server.log.high_water_mark == 3)
        assert await server.log.confirmed_mark(5) == 3


async def test_a_renewal_that_does_not_come_through_is_told() -> None:
    async with World(options=options(checkpoint_interval=10)) as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        server.give(5)
        await server.wait(lambda: server.listener.decided_count == 10 and server.log.session_id is None)
        # The session has been left just now; no storage answers the next one.
        for storage in world.storages.values():
            storage.pause()
        kept = server.give(4)
        await server.wait(lambda: not server.log.open)
        assert server.listener.calls[-1] == "ended"
        assert server.listener.unwritten_appends == kept, "no replica was given them"
        assert server.listener.failed_appends == []
        for storage in world.storages.values():
            storage.resume()
        await server.wait_open()
        assert server.listener.opened[-1] == (9, True), "provisional ids were given and are void"
        await server.write(5)
        await all_equal(world, 15)


async def test_a_changed_replica_set_renews_the_session() -> None:
    async with World((A, B, C, "d:1")) as world:
        world.assigned = frozenset(NAMES)
        server = await world.server()
        await server.write(50)
        world.assigned = frozenset((A, B, "d:1"))
        server.log.set_replicas(world.assigned)
        await server.write(50)
        await all_clean(world)
        await all_equal(world, 100)
        assert server.listener.opened == [(-1, True)]
        assert server.listener.committed_appends == server.given
        assert world.metadata.session_id == 1
        server.log.set_replicas(frozenset(world.assigned))
        await server.write(1)
        assert world.metadata.session_id == 1


async def test_no_assigned_replica_is_waited_for() -> None:
    async with World() as world:
        assigned, world.assigned = world.assigned, frozenset()
        server = await world.server()
        await asyncio.sleep(5)
        assert not server.log.healthy
        server.log.set_replicas(assigned)
        await server.wait_open(1)
        assert server.log.healthy


async def test_a_dead_replica_can_be_replaced_while_there_is_no_quorum() -> None:
    async with World((A, B, C, "d:1", "e:1")) as world:
        world.assigned = frozenset(NAMES)
        server = await world.server()
        await server.write(50)
        await all_clean(world)
        world.storages[A].stop()
        await server.write(1)
        world.storages[B].pause()
        server.give(1)
        await server.wait(lambda: not server.log.open)
        world.storages[B].resume()
        world.storages[B].stop()
        await asyncio.sleep(20)
        world.storages[B].start()
        server.log.set_replicas(frozenset((B, C, "d:1")))
        await server.wait_open()
        await server.write(10)
        world.check_committed_is_stored(server)


async def test_s2_a_replica_that_broke_away_counts_only_after_a_full_join() -> None:
    """A superseded owner reconnects to storages that have forgotten the newer session in a restart."""
    async with World(remembers_fence=False) as world:
        old = await world.server(generation=1)
        await old.write(5)
        await all_clean(world)
        new = await world.server(generation=2)
        # The new session has spoken to the storages, but not persisted itself anywhere.
        await wait_until(lambda: all(s.partition.fence == 1 for s in world.storages.values()))
        assert all(s.partition.session_id == 0 for s in world.storages.values())
        for storage in world.storages.values():
            storage.stop()
            storage.start()
        if old.log.open:
            old.give(3)
        await new.write(5)
        await asyncio.sleep(60)
        assert len(old.listener.committed_appends) == 5
        await all_equal(world, 10)
        for append in new.listener.committed_appends:
            assert world.stored(A)[append.transaction_id] == append.req_id


async def test_s2_fencing_by_a_single_storage_ends_the_session() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[A].partition.fence = 1
        server.give(1)
        await server.wait(lambda: not server.log.open)
        await server.wait_open()
        assert world.metadata.session_id == 1
        assert server.listener.decided_count == 6


def test_s7_a_crash_between_the_marks_does_not_block_the_partition() -> None:
    """C had missed a session; A's tail is saved by a copy on C. The server dies while it hands out the mark."""

    async def crash_after(delay_s: float, seed: int) -> None:
        async with World(seed=seed) as world:
            first = await world.server()
            await first.write(5)
            await all_clean(world)
            world.storages[C].stop()
            await first.write(5)
            world.storages[A].pause()
            world.storages[B].pause()
            first.log.set_generation(2)
            await asyncio.sleep(0.05)
            world.storages[A].resume()
            world.storages[B].resume()
            await first.wait_open()
            world.storages[B].pause()
            tail = first.give(1)
            await wait_until(lambda: len(world.stored(A)) == 11)
            await first.close()
            world.storages[B].stop()
            world.storages[C].start()
            second = await world.server(generation=3)
            await asyncio.sleep(delay_s)
            await second.close()
            world.storages[A].stop()
            world.storages[B].start()
            third = await world.server(generation=4)
            await asyncio.sleep(1)
            world.storages[A].start()
            await third.write(5)
            await all_clean(world)
            await wait_until(lambda: len({tuple(world.stored(name)) for name in NAMES}) == 1)
            assert world.stored(A)[:10] == [append.req_id for append in first.given[:10]]
            assert len(tail) == 1

    for step in range(30):
        run(crash_after(step * 0.001, step))


async def test_s8_a_slow_replica_falls_out_of_the_ring_and_comes_back() -> None:
    small = options(window_size_bytes=2000, ring_size_bytes=20_000, copy_size_bytes=5000)
    async with World(options=small) as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[C].pause()
        for _ in range(40):
            await server.write(20, size_bytes=100)
        session = server.log._session
        assert session is not None
        assert session.ring is not None
        assert session.ring.kept_bytes <= 20_000
        client = next(iter(world.storages[C].connections))
        assert sum(1 for _ in client._requests) <= 3, "the window bounds what is in flight"
        assert session.ring.first_id > len(world.stored(C))
        world.storages[C].resume()
        await all_equal(world, 805)
        await server.write(20)
        await all_equal(world, 825)
        assert server.listener.opened == [(-1, True)]
        assert world.metadata.session_id == 0


async def test_a_stalled_quorum_member_is_dropped_and_others_take_over() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[C].stop()
        await server.write(5)
        world.storages[A].pause()
        world.storages[C].start()
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await server.write(5)
        assert loop.time() - started_s < 1.5
        world.storages[A].resume()
        await all_equal(world, 15)
        world.check_committed_is_stored(server)


async def test_a_replica_whose_disk_fails_costs_nothing_but_itself() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.storages[B].refuse_appends = "java.io.IOException: Input/output error"
        for _ in range(50):
            await server.write(3)
            await asyncio.sleep(1)
        assert world.metadata.session_id == 0
        assert server.listener.opened == [(-1, True)]
        assert len(world.stored(B)) == 5
        world.storages[B].refuse_appends = None
        await all_equal(world, 155)


async def test_a_replica_barred_in_this_session_gets_another() -> None:
    async with World(options=options(rpc_timeout_s=1.0)) as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(30)
        world.storages[C].start()
        # Breaks in the middle of the first truncation.
        await wait_until(lambda: world.storages[C].connect_count > 0 and world.storages[C].partition.fence == 0)
        await wait_until(lambda: server.log._session is not None and server.log._session.machine.joining)
        for _ in range(12):
            session = server.log._session
            assert session is not None
            if any(replica._change_unanswered for replica in session._replicas.values()):
                break
            await asyncio.sleep(0.0003)
        world.storages[C].break_connections()
        await all_equal(world, 30)
        await all_clean(world)
        assert server.listener.opened == [(-1, True)]
        assert world.metadata.session_id == 1
        await server.write(10)
        await all_equal(world, 40)


async def test_appends_gather_while_much_is_on_its_way() -> None:
    async with World(options=options(batches_in_flight=2)) as world:
        server = await world.server()
        await server.wait_open()
        for _ in range(20):
            server.give(1)
            await asyncio.sleep(0)
        session = server.log._session
        assert session is not None
        assert session.undecided_batches == 2
        await server.wait(lambda: server.listener.decided_count == 20)


async def test_congestion_is_told_and_ends() -> None:
    async with World(options=options(ring_size_bytes=10_000)) as world:
        server = await world.server()
        await server.write(1)
        given = {False: not server.log.takes_more}
        server.give(200, size_bytes=100)
        given[True] = not server.log.takes_more
        assert given == {False: False, True: True}
        assert server.listener.drained_count == 0
        await server.wait(lambda: server.listener.drained_count == 1)
        await server.wait(lambda: server.log.takes_more)
        await server.wait(lambda: server.listener.decided_count == 201)
        assert server.listener.drained_count == 1


async def test_batches_are_bounded_in_records_and_bytes() -> None:
    async with World(options=options(max_batch_size=10, batches_in_flight=100)) as world:
        server = await world.server()
        await server.wait_open()
        server.give(95)
        server.give(3, size_bytes=700_000)
        await asyncio.sleep(0)
        session = server.log._session
        assert session is not None
        assert session.undecided_batches == 11
        await server.wait(lambda: server.listener.decided_count == 98)
        await all_equal(world, 98)


async def test_reads_move_on_to_the_next_replica() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(10)
        await all_equal(world, 10)
        world.storages[A].pause()
        del world.storages[B].partition.records[5:]
        for _ in range(4):
            records = await server.log.read(7, 10, 1 << 20, 5)
            assert [record.req_id for record in records] == [a.req_id for a in server.given[7:]]
        assert server.listener.opened == [(-1, True)], "a failing read ends no session"
        world.storages[C].pause()
        with pytest.raises(ReadFailedError, match="could not be read in 5 s"):
            await server.log.read(7, 10, 1 << 20, 5)


async def test_zookeeper_may_be_away_while_a_session_runs() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        world.zookeeper_server.disconnect(server.zookeeper)
        await server.write(5)
        world.storages[A].stop()
        await server.write(5)
        world.storages[A].start()
        await asyncio.sleep(40)
        await server.write(5)
        assert len(world.stored(A)) == 10, "it cannot come back without a compare-and-set"
        world.zookeeper_server.reconnect(server.zookeeper)
        await all_equal(world, 20)
        assert server.listener.opened == [(-1, True)]


@pytest.mark.parametrize("operation", ["lose_answer", "lose_request"])
async def test_lost_zookeeper_answers(operation: str) -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        for count in range(1, 6):
            getattr(server.zookeeper, operation)("set", count)
            server.log.set_generation(count + 1)
            await wait_until(partial(opened_times, server, count + 1))
            await server.write(5)
        await all_equal(world, 30)
        assert server.listener.committed_appends == server.given


async def test_without_its_metadata_a_partition_stops_and_keeps_its_data() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        await all_clean(world)
        await server.zookeeper.delete(ClusterPaths(ROOT).partition(0))
        await server.write(5)
        server.log.set_generation(2)
        await asyncio.sleep(30)
        assert not server.log.open
        assert not server.log.healthy
        assert all(len(world.stored(name)) == 10 for name in NAMES)


async def test_close_lets_what_is_in_flight_commit() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        server.give(20)
        await server.log.close()
        assert server.listener.committed_appends == server.given
        assert server.listener.calls[-1] == "ended"
        assert not server.log.healthy
        with pytest.raises(LogClosedError):
            server.give(1)
        await server.log.close()


async def test_close_ends_a_recovery_that_is_blocked() -> None:
    async with World() as world:
        for name in (A, B):
            world.storages[name].stop()
        server = await world.server()
        await asyncio.sleep(25)
        assert not server.log.open
        await server.close()
        assert server.listener.calls == []
        assert {task for task in asyncio.all_tasks() if "store" in repr(task.get_coro())} == set()


async def test_a_number_taken_by_a_write_that_lands_late_costs_the_session_nothing() -> None:
    """A renewal was given up, but its write takes effect; then a replica wants to join the session that goes on."""
    async with World() as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(5)
        await server.log._next_session.begin(server.log.generation)  # nobody learns of it
        assert (world.metadata.session_id, server.log.session_id) == (1, 0)
        await server.write(5)
        world.storages[C].start()
        await all_equal(world, 10)
        await all_clean(world)
        assert world.metadata.session_id == 2
        assert server.listener.opened == [(-1, True)], "renewed without anybody noticing"
        await server.write(5)
        assert server.listener.committed_appends == server.given


async def test_what_each_partition_has_keeps_its_attributes_in_slots() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(1)
        log = server.log
        assert log._session is not None
        assert not any(hasattr(each, "__dict__") for each in (log, log._session, *log._session._members))


async def test_a_defect_ends_the_session_loudly_and_the_next_one_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        server = await world.server()
        await server.write(5)
        session = server.log._session
        assert session is not None
        session._tasks[None].cancel()  # by nobody who may
        await server.wait(lambda: world.metadata.session_id == 1)
        await server.write(5)

        def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        with mock.patch.object(ReplicatedLog, "_adopt", fail):
            server.log.set_generation(2)
            await server.wait(lambda: not server.log.healthy)
        await server.write(5)
        assert server.listener.committed_appends == server.given
    assert "a task of the store session has ended" in caplog.text
    assert "a defect has ended the store session" in caplog.text


async def test_a_new_generation_does_not_wait_for_what_a_renewal_waits_for() -> None:
    async with World(options=options(checkpoint_interval=10)) as world:
        server = await world.server()
        await server.write(9)
        world.storages[A].pause()
        world.storages[B].pause()
        server.give(1)
        session = server.log._session
        assert session is not None
        server.log.renewal_wanted()
        await server.wait(lambda: server.log._state is LogState.DRAINING)
        server.log.set_generation(2)
        await asyncio.sleep(0.01)
        assert session.ended is not None
        world.storages[A].resume()
        world.storages[B].resume()
        await server.wait(lambda: server.log.opened_generation == 2)
        await server.wait(lambda: server.listener.decided_count == 10)


# What all storages have


async def test_what_all_storages_have_is_told_when_the_last_one_has_it_on_disk() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(3)
        await all_clean(world)
        world.storages[C].pause()
        await server.write(2)
        told = server.listener.by_all
        assert told == [], "nobody has asked"
        server.log.await_all(4)
        await server.write()
        assert [mark for mark, _ in told] == [2], "two of three are a commit, and the first mark is told once"
        world.storages[C].resume()
        await wait_until(lambda: told[-1][0] >= 4)
        assert len(world.stored(C)) > told[-1][0]
        assert told == sorted(set(told))
        assert {count for _, count in told} == {3}
        count = len(told)
        await server.write(2)
        await all_equal(world, 8)
        assert len(told) == count, "nobody waits any more"


async def test_a_storage_that_is_away_is_known_and_holds_up_what_all_have_until_it_is_back() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(3)
        await all_clean(world)
        assert server.log.missing_storages == []
        world.storages[B].stop()
        await wait_until(lambda: server.log.missing_storages == [B])
        await server.write(2)
        server.log.await_all(4)
        assert server.listener.by_all[-1] == (2, 3)
        world.storages[B].start()
        await wait_until(lambda: server.listener.by_all[-1] == (4, 3))
        assert server.log.missing_storages == []
        assert len(world.stored(B)) == 5


async def test_the_next_session_goes_on_telling_what_all_have() -> None:
    async with World(options=options(checkpoint_interval=4)) as world:
        server = await world.server()
        await server.write(2)
        await all_clean(world)
        world.storages[B].stop()
        await server.write(5)
        server.log.await_all(6)
        await wait_until(lambda: world.metadata.session_id > 0)
        assert server.listener.by_all[-1][0] < 6
        world.storages[B].start()
        await wait_until(lambda: server.listener.by_all[-1] == (6, 3))
        assert len(world.stored(B)) == 7


async def test_a_storage_that_is_not_assigned_any_more_counts_neither_for_nor_against() -> None:
    async with World((*NAMES, "d:1")) as world:
        world.assigned = frozenset(NAMES)
        server = await world.server()
        await server.write(3)
        await all_clean(world)
        world.storages[C].stop()
        world.storages["d:1"].stop()
        await server.write()
        server.log.await_all(3)
        assert server.listener.by_all[-1] == (2, 3)
        count = len(server.listener.by_all)
        world.assigned = frozenset((A, B, "d:1"))
        server.log.set_replicas(world.assigned)
        await server.write()
        await wait_until(lambda: server.log.missing_storages == ["d:1"])
        assert server.listener.by_all[count:] in ([], [(-1, 3)]), "the new storage has nothing yet"
        world.storages["d:1"].start()
        await wait_until(lambda: server.listener.by_all[-1][0] >= 3)
        assert len(world.stored("d:1")) >= 4
        assert len(world.stored(C)) == 3
