"""Times of commits in the sessions of one partition, against storages in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.store.fakes import FakeClient
from tests.unit.server.store.world import NAMES, Server, World, wait_until
from waltz.common.wire.storage_times import CommitTime, TimeQuestion
from waltz.server.store.interface import ReadFailedError, TimeEntry, TimesNotKeptError
from waltz.server.store.session import times as session_times
from waltz.server.store.session.times import best_entry
from waltz.storage.remote.errors import RemoteStorageError

AT, COVERING = TimeQuestion
A, B, C = NAMES

ENTRIES = st.lists(st.none() | st.builds(TimeEntry, st.integers(-1, 9), st.integers(0, 9)), max_size=6)


@given(ENTRIES, st.integers(-1, 10))
def test_the_best_entry_is_the_highest_that_is_not_late_or_the_earliest_that_covers(
    entries: list[TimeEntry | None], value: int
) -> None:
    known = [entry for entry in entries if entry is not None and entry.transaction_id >= 0]
    at, covering = best_entry(AT, value, entries), best_entry(COVERING, value, entries)
    not_late = [entry.transaction_id for entry in known if entry.time_ms <= value]
    assert (None if at is None else at.transaction_id) == max(not_late, default=None)
    assert at is None or at.time_ms <= value
    times = [entry.time_ms for entry in known if entry.transaction_id >= value]
    assert (None if covering is None else covering.time_ms) == min(times, default=None)
    assert covering is None or covering.transaction_id >= value


def lag_of(server: Server, name: str) -> int | None:
    return next(each.lag_transactions for each in server.log.replica_views if each.storage == name)


def told(world: World, name: str) -> list[TimeEntry]:
    return world.storages[name].partition.times


async def tell(world: World, server: Server, time_ms: int, *expected: tuple[str, TimeEntry]) -> None:
    server.log.tell_time(time_ms)
    await wait_until(lambda: all(told(world, name)[-1:] == [entry] for name, entry in expected))


async def test_storages_are_told_what_is_committed_and_nothing_twice() -> None:
    async with World() as world:
        server = await world.server()
        server.log.tell_time(500)
        await server.write(5)
        await wait_until(lambda: all(storage.partition.maximum == 4 for storage in world.storages.values()))
        await tell(world, server, 1000, *((name, TimeEntry(4, 1000)) for name in NAMES))
        await tell(world, server, 2000)
        await server.write(1)
        await wait_until(lambda: all(storage.partition.maximum == 5 for storage in world.storages.values()))
        await tell(world, server, 900, *((name, TimeEntry(5, 1000)) for name in NAMES))
        assert [told(world, name) for name in NAMES] == [[TimeEntry(4, 1000), TimeEntry(5, 1000)]] * 3


async def test_a_storage_that_comes_back_is_told_later() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(1)
        world.storages[C].stop()
        await server.write(5)
        await tell(world, server, 1000, (A, TimeEntry(5, 1000)))
        world.storages[C].start()
        await wait_until(lambda: world.storages[C].partition.maximum == 5)
        await server.write(1)

        def is_told() -> bool:
            server.log.tell_time(3000)
            return TimeEntry(6, 3000) in told(world, C)

        await wait_until(is_told)
        assert all(entry.transaction_id <= 6 for entry in told(world, C))


async def test_a_storage_that_gets_copies_gets_their_times() -> None:
    """By catching up, while its own entries are older and newer ones."""
    async with World() as world:
        server = await world.server()
        await server.write(1)
        await wait_until(lambda: world.storages[C].partition.maximum == 0)
        await tell(world, server, 500, (C, TimeEntry(0, 500)))
        world.storages[C].stop()
        await server.write(5)
        await tell(world, server, 1000, (A, TimeEntry(5, 1000)))
        await server.write(5)
        await tell(world, server, 2000, (A, TimeEntry(10, 2000)))
        told(world, B).insert(2, TimeEntry(8, 1500))
        world.storages[C].start()
        await wait_until(lambda: world.storages[C].partition.maximum == 10)
        await wait_until(lambda: lag_of(server, C) == 0)

        def is_told() -> bool:
            server.log.tell_time(3000)
            return {TimeEntry(5, 1000), TimeEntry(8, 1500), TimeEntry(10, 2000)} <= {*told(world, C)}

        await wait_until(is_told)
        assert told(world, C)[0] == TimeEntry(0, 500)


async def test_times_are_copied_when_a_source_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_times, "COPY_RETRY_S", 0.0)
    async with World() as world:
        server = await world.server()
        world.storages[C].stop()
        await server.write(6)
        await tell(world, server, 1000, (A, TimeEntry(5, 1000)), (B, TimeEntry(5, 1000)))
        told(world, A).insert(0, TimeEntry(3, 700))
        failing = 3

        async def times(*_: object, **__: object) -> list[CommitTime]:
            nonlocal failing
            failing -= 1
            raise RemoteStorageError("busy")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeClient, "times", times)
            world.storages[C].start()

            def has_failed() -> bool:
                server.log.tell_time(3000)
                return failing <= 0

            await wait_until(has_failed)
        assert TimeEntry(3, 700) not in told(world, C)

        def is_told() -> bool:
            server.log.tell_time(3000)
            return TimeEntry(3, 700) in told(world, C)

        await wait_until(is_told)


async def test_storages_of_the_original_get_and_give_no_times() -> None:
    async with World() as world:
        server = await world.server()
        world.storages[C].stop()
        await server.write(6)
        for name in (A, B):
            world.storages[name].keeps_times = False
        world.storages[C].start()
        await wait_until(lambda: world.storages[C].partition.maximum == 5)
        await wait_until(lambda: lag_of(server, C) == 0)

        def is_settled() -> bool:
            server.log.tell_time(3000)
            session = server.log._session
            return session is not None and not server.log._untimed and not session._times._copies

        await wait_until(is_settled)
        assert all(entry.transaction_id == 5 for entry in told(world, C))


async def test_the_best_of_all_answers_counts() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(9)
        told(world, A).extend([TimeEntry(2, 100), TimeEntry(5, 200)])
        told(world, B).extend([TimeEntry(4, 150)])
        assert await server.log.time_entry(AT, 199, 5) == TimeEntry(4, 150)
        assert await server.log.time_entry(AT, 300, 5) == TimeEntry(5, 200)
        assert await server.log.time_entry(AT, 99, 5) is None
        assert await server.log.time_entry(COVERING, 3, 5) == TimeEntry(4, 150)
        assert await server.log.time_entry(COVERING, 6, 5) is None
        await tell(world, server, 1000, (A, TimeEntry(8, 1000)))
        assert await server.log.time_entry(COVERING, 6, 5) == TimeEntry(8, 1000)
        world.storages[A].stop()
        await wait_until(lambda: not next(iter(server.log.replica_views)).lag_transactions)
        assert await server.log.time_entry(AT, 199, 5) == TimeEntry(4, 150)


async def test_storages_of_the_original_are_told_apart_from_storages_that_do_not_answer() -> None:
    async with World() as world:
        server = await world.server()
        await server.write(1)
        for storage in world.storages.values():
            storage.keeps_times = False
        with pytest.raises(TimesNotKeptError):
            await server.log.time_entry(AT, 5, 5)
        world.storages[B].keeps_times = True
        assert await server.log.time_entry(AT, 5, 5) is None
        for storage in world.storages.values():
            storage.keeps_times = True
            storage.pause()
        with pytest.raises(ReadFailedError):
            await server.log.time_entry(AT, 5, 0.5)


async def test_a_former_owner_learns_that_it_was_replaced() -> None:
    async with World() as world:
        first = await world.server(generation=1)
        await first.write(1)
        second = await world.server(generation=2)
        await second.write(1)
        with pytest.raises(ReadFailedError):
            await first.log.time_entry(AT, 5, 1)
        assert not first.log.open
