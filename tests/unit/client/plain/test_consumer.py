"""Consumers that know where they were, over the mock driver."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

import waltz
from tests.unit.client.plain.reading import all_of
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.client.options import ClientOptions
from waltz.client.plain.consumer import Consumer
from waltz.client.positions.interface import Move, PositionStore
from waltz.common.zk.client import ConnectionLossError, Stat, State

pytestmark = pytest.mark.timeout(60)

Make = Callable[[waltz.Client], PositionStore]


@pytest.fixture(params=["file", "sqlite", "sqlalchemy", "zookeeper"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    kinds: dict[str, Make] = {
        "file": lambda client: waltz.FilePositions(tmp_path / "positions"),
        "sqlite": lambda client: waltz.SqlitePositions(tmp_path / "positions.sqlite", "mails"),
        "sqlalchemy": lambda client: waltz.SqlAlchemyPositions(
            sqlalchemy.create_engine(f"sqlite:///{tmp_path}/alchemy.sqlite", poolclass=sqlalchemy.NullPool)
        ),
        "zookeeper": lambda client: waltz.ZooKeeperPositions(client, "mails"),
    }
    return kinds[request.param]


@pytest.fixture
def driver() -> MockDriver:
    driver = MockDriver(3)
    fill(driver, 100)
    return driver


def fill(driver: MockDriver, count: int) -> None:
    for partition in driver.partitions:
        for _ in range(count):
            partition.add(b"%d" % (partition.high_water_mark + 1))


class MemoryPositions(PositionStore):
    """Positions in a mapping, with faults on command."""

    def __init__(self, stored: dict[int, int] | None = None) -> None:
        self.stored = stored or {}
        self.failing: Exception | None = None
        self.losing_answers = False
        self.saves: list[Mapping[int, Move]] = []

    async def load(self, cluster_key: str, partition_ids: object) -> dict[int, int]:
        return dict(self.stored)

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        self.saves.append(moves)
        if self.failing is not None:
            raise self.failing
        conflicting = [each for each, move in moves.items() if self.stored.get(each) not in move]
        if conflicting:
            raise waltz.PositionConflictError(conflicting, "memory")
        self.stored.update({each: move.after for each, move in moves.items()})
        if self.losing_answers:
            raise OSError("no answer")


async def test_a_restart_goes_on_behind_what_was_committed(driver: MockDriver, make: Make) -> None:
    seen: set[tuple[int, int]] = set()
    doubled = 0
    async with waltz.connect(driver) as client:
        for _ in range(10):
            async with client.consume(make(client)) as consumer:
                for record in await all_of(consumer, 25):
                    doubled += (record.partition_id, record.transaction_id) in seen
                    seen.add((record.partition_id, record.transaction_id))
                await consumer.commit()
                assert consumer.committed == consumer.handed_out
                for record in await all_of(consumer, 3):  # not committed
                    assert (record.partition_id, record.transaction_id) not in seen
        assert (len(seen), doubled) == (250, 0)


async def test_committed_by_itself(driver: MockDriver, make: Make) -> None:
    """What the consumer is done with; not what is at hand when the loop is left."""
    async with waltz.connect(driver) as client:
        async with client.consume(make(client), [1], commit_every_s=3600) as consumer:
            async for record in consumer:
                if record.transaction_id == 40:
                    break
        async with client.consume(make(client), [1], commit_every_s=0.001) as consumer:
            assert (await anext(consumer)).transaction_id == 40
            assert (await anext(consumer)).transaction_id == 41
            while consumer.committed[1] < 40:
                await asyncio.sleep(0)
            assert consumer.committed[1] == 40, "what is at hand is not done with"
            try:
                async for record in consumer:
                    assert record.transaction_id < 60
            except AssertionError:
                pass
        async with client.consume(make(client), [1]) as consumer:
            assert (await anext(consumer)).transaction_id == 60


async def test_where_the_first_start_is(driver: MockDriver, make: Make) -> None:
    async with waltz.connect(driver) as client:
        async with client.consume(make(client), [0], start="end"):
            pass
        fill(driver, 1)
        async with client.consume(make(client), start={0: 3, 1: 4, 2: 99}) as consumer:
            assert consumer.positions == {0: 99, 1: 4, 2: 99}, "the first start was at the end, whatever came after it"
        async with client.consume(make(client), start="beginning") as consumer:
            assert consumer.positions == {0: 99, 1: 4, 2: 99}


async def test_a_loop_that_was_left_can_be_gone_on_with(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, client.consume(MemoryPositions(), [0]) as consumer:
        ids = []
        for _ in range(30):
            async for record in consumer:
                ids.append(record.transaction_id)
                if record.transaction_id % 3 == 2:
                    break
            ids.append((await anext(consumer)).transaction_id)
            assert consumer.positions == {0: ids[-2]}
            await consumer.commit()
            assert consumer.committed == {0: ids[-1]}
            if len(ids) > 90:
                break
        assert ids == list(range(len(ids)))


async def test_parts_can_be_committed(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, client.consume(MemoryPositions()) as consumer:
        await all_of(consumer, 3 * 64)
        await consumer.commit({1: 20})
        assert consumer.committed == {0: -1, 1: 20, 2: -1}
        await consumer.commit({1: 10})
        assert consumer.committed == {0: -1, 1: 20, 2: -1}
        with pytest.raises(ValueError, match="transaction 64 of partition 2 was not handed out"):
            await consumer.commit({2: 64})


async def test_two_that_have_the_same_positions(driver: MockDriver, make: Make) -> None:
    async with waltz.connect(driver) as client:
        if isinstance(make(client), waltz.FilePositions):
            return  # they cannot
        async with client.consume(make(client)) as one, client.consume(make(client)) as other:
            await all_of(one, 10)
            await all_of(other, 100)
            await one.commit()
            with pytest.raises(waltz.PositionConflictError):
                await other.commit()


async def test_a_conflict_of_automatic_commits_is_told_to_who_reads(driver: MockDriver) -> None:
    positions = MemoryPositions()
    async with waltz.connect(driver) as client:
        with pytest.raises(waltz.PositionConflictError):
            async with client.consume(positions, commit_every_s=0.001) as consumer:
                await anext(consumer)
                positions.stored[0] = 70
                async for _ in consumer:
                    await asyncio.sleep(0.001)


async def test_a_store_that_is_away_is_tried_again(driver: MockDriver, caplog: pytest.LogCaptureFixture) -> None:
    positions = MemoryPositions()
    async with waltz.connect(driver) as client, client.consume(positions, [0], commit_every_s=0.001) as consumer:
        positions.failing = OSError("disk on fire")
        await all_of(consumer, 10)
        while len(positions.saves) < 4:
            await asyncio.sleep(0.001)
        with pytest.raises(OSError, match="disk on fire"):
            await consumer.commit()
        positions.failing = None
        await consumer.commit()
        assert positions.stored == {0: 9}
    assert "positions cannot be committed at present, it is tried again: disk on fire" in caplog.text


async def test_what_became_of_a_commit_whose_answer_got_lost_is_found_out(driver: MockDriver) -> None:
    positions = MemoryPositions()
    async with waltz.connect(driver) as client, client.consume(positions, [0]) as consumer:
        positions.losing_answers = True
        await all_of(consumer, 10)
        with pytest.raises(OSError, match="no answer"):
            await consumer.commit()
        positions.losing_answers = False
        await all_of(consumer, 10)
        await consumer.commit()
        assert positions.stored == {0: 19}


async def test_a_commit_that_is_cancelled_comes_to_its_end(driver: MockDriver) -> None:
    saving, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryPositions):
        async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
            saving.set()
            await go_on.wait()
            await super().save(cluster_key, moves)

    positions = Slow({0: -1})
    async with waltz.connect(driver) as client, client.consume(positions, [0]) as consumer:
        await all_of(consumer, 10)
        commit = asyncio.create_task(consumer.commit())
        await saving.wait()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        go_on.set()
        while consumer.committed[0] < 9:
            await asyncio.sleep(0)
        assert positions.stored == {0: 9}
        await all_of(consumer, 1)
        await consumer.commit()
        assert positions.stored == {0: 10}


async def test_a_position_beyond_the_end_of_the_log(driver: MockDriver) -> None:
    options = ClientOptions(ahead_retry_initial_s=0.001)
    async with waltz.connect(driver, options=options) as client:
        with pytest.raises(waltz.ClientAheadError, match="partition: 1: there is no transaction 100, the"):
            async with client.consume(MemoryPositions({0: 5, 1: 100, 2: 0})) as consumer:
                await all_of(consumer, 300)


async def test_positions_of_another_cluster(driver: MockDriver, tmp_path: Path) -> None:
    for positions in (waltz.FilePositions(tmp_path / "p"), waltz.SqlitePositions(tmp_path / "s")):
        async with waltz.connect(driver) as client, client.consume(positions):
            pass
        async with waltz.connect(MockDriver(3)) as client:
            with pytest.raises(waltz.PositionsError, match="another one, or made anew"):
                async with client.consume(positions):
                    pass
        async with waltz.connect(driver) as client, client.consume(positions):
            pass


async def test_effects_and_position_in_one_transaction(driver: MockDriver, tmp_path: Path) -> None:
    path = tmp_path / "application.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE seen (partition INTEGER, id INTEGER, PRIMARY KEY (partition, id))")
        read = 0
        async with waltz.connect(driver) as client:
            while read < 300:
                positions = waltz.SqlitePositions(path, "seen")
                async with client.consume(positions) as consumer:
                    for number in range(3):
                        batch = await consumer.next_batch(0.05)
                        if not batch:
                            break
                        rows = [(each.partition_id, each.transaction_id) for each in batch]
                        database.executemany("INSERT INTO seen VALUES (?, ?)", rows)
                        positions.advance(database, batch)
                        if number == 2:
                            database.rollback()
                        else:
                            database.commit()
                            read += len(batch)
        assert database.execute("SELECT COUNT(*) FROM seen").fetchone() == (300,)


async def test_commits_beside_positions_in_the_transactions_of_the_application(
    driver: MockDriver, tmp_path: Path
) -> None:
    path = tmp_path / "positions.sqlite"
    positions = waltz.SqlitePositions(path)
    async with waltz.connect(driver) as client:
        async with client.consume(positions, [0], commit_every_s=3600) as consumer:
            for _ in range(3):
                record = await anext(consumer)
                with closing(sqlite3.connect(path)) as database, database:
                    positions.advance(database, record)
            await consumer.commit({0: 1})
            await consumer.commit()
            record = await anext(consumer)
            with closing(sqlite3.connect(path)) as database, database:
                positions.advance(database, record)
        async with client.consume(positions, [0]) as consumer:
            assert consumer.positions == {0: 3}


async def test_effects_that_were_rolled_back_are_not_passed_by(driver: MockDriver, tmp_path: Path) -> None:
    """The consumer goes on after a roll-back, another one applies a part of it, and both commit."""
    path = tmp_path / "application.sqlite"
    one, two = waltz.SqlitePositions(path), waltz.SqlitePositions(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE effects (id INTEGER)")

        def apply(positions: waltz.SqlitePositions, batch: list[waltz.Record]) -> None:
            database.executemany("INSERT INTO effects VALUES (?)", [(each.transaction_id,) for each in batch])
            positions.advance(database, batch)

        async with (
            waltz.connect(driver) as client,
            client.consume(one, [0]) as first,
            client.consume(two, [0]) as second,
        ):
            batch = await first.next_batch()
            apply(one, batch)
            database.rollback()
            await first.commit()
            assert first.handed_out[0] > 9
            apply(two, (await second.next_batch())[:10])
            database.commit()
            with pytest.raises(waltz.PositionConflictError):
                apply(one, batch)
            database.rollback()
            await first.commit()
            while first.handed_out[0] < 99:
                apply(one, await first.next_batch())
                database.commit()
            await first.commit()
            assert first.committed == {0: 99}
        effects = [row[0] for row in database.execute("SELECT id FROM effects ORDER BY id")]
    assert effects == list(range(100))


async def test_after_a_conflict_the_partition_is_read_behind_the_stored_position(driver: MockDriver) -> None:
    positions = MemoryPositions()
    async with waltz.connect(driver) as client, client.consume(positions, [0, 1]) as consumer:
        await all_of(consumer, 2 * 64)
        positions.stored[0] = 80
        with pytest.raises(waltz.PositionConflictError) as conflict:
            await consumer.commit()
        assert conflict.value.partition_ids == [0]
        assert positions.stored == {0: 80, 1: 63}
        assert consumer.committed == {0: 80, 1: 63}
        rest = await all_of(consumer, 19 + 36)
        assert [record.transaction_id for record in rest if record.partition_id == 0] == list(range(81, 100))
        await consumer.commit()
        assert positions.stored == {0: 99, 1: 99}


async def test_a_partition_that_cannot_be_read_anew_at_present_is_tried_again(driver: MockDriver) -> None:
    class Away(MemoryPositions):
        away = False

        async def load(self, cluster_key: str, partition_ids: object) -> dict[int, int]:
            if self.away:
                raise OSError("away")
            return await super().load(cluster_key, partition_ids)

    positions = Away()
    async with waltz.connect(driver) as client, client.consume(positions, [0]) as consumer:
        await all_of(consumer, 10)
        positions.stored[0], positions.away = 80, True
        for _ in range(2):
            with pytest.raises(OSError, match="away"):
                await (consumer.next_batch() if consumer.partition_ids == [] else consumer.commit())
        positions.away = False
        assert (await anext(consumer)).transaction_id == 81


async def test_what_was_handed_out_before_a_conflict_is_not_committed_behind_it(driver: MockDriver) -> None:
    """Not even by a commit that was waiting meanwhile."""
    saving, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryPositions):
        async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
            saving.set()
            await go_on.wait()
            await super().save(cluster_key, moves)

    positions = Slow({0: -1})
    async with waltz.connect(driver) as client, client.consume(positions, [0]) as consumer:
        await all_of(consumer, 50)
        commits = [asyncio.create_task(consumer.commit()) for _ in range(2)]
        await saving.wait()
        positions.stored[0] = 9
        go_on.set()
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(each) for each in outcomes] == [waltz.PositionConflictError, type(None)]
        assert positions.stored == {0: 9}
        assert consumer.committed == {0: 9}


async def test_consumers_that_begin_at_the_same_moment(driver: MockDriver) -> None:
    class Late(MemoryPositions):
        """Somebody else's first positions come between."""

        async def load(self, cluster_key: str, partition_ids: object) -> dict[int, int]:
            loaded = await super().load(cluster_key, partition_ids)
            self.stored = self.stored or {0: 40}
            return loaded

    async with waltz.connect(driver) as client, client.consume(Late(), [0]) as consumer:
        assert (await anext(consumer)).transaction_id == 41


async def test_a_commit_after_one_that_was_lost_is_a_conflict_where_somebody_else_has_moved_on(
    driver: MockDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waltz.connect(driver) as client:
        positions = [waltz.ZooKeeperPositions(client, "mails") for _ in range(2)]
        async with client.consume(positions[0], [0]) as one, client.consume(positions[1], [0]) as other:
            for each in (one, other):
                while each.handed_out[0] < 99:
                    await each.next_batch()
            with monkeypatch.context() as patched:
                patched.setattr(MockNodes, "set", lost)
                with pytest.raises(ConnectionLossError):
                    await one.commit({0: 50})
            await other.commit({0: 90})
            with pytest.raises(waltz.PositionConflictError):
                await one.commit({0: 95})
            assert one.committed == {0: 90}
            assert (await anext(one)).transaction_id == 91


async def lost(self: MockNodes, path: str, data: bytes | None, version: int = -1) -> Stat:
    raise ConnectionLossError("lost")


async def test_wrong_arguments(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        with pytest.raises(ValueError, match="start must be 'beginning', 'end', a time or a mapping from partitions"):
            client.consume(MemoryPositions(), start="latest")  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(ValueError, match="start has no transaction for partition 2"):
            client.consume(MemoryPositions(), start={0: 1, 1: 1})
        with pytest.raises(waltz.PartitionNotFoundError):
            client.consume(MemoryPositions(), [3])
        with pytest.raises(ValueError, match="printable, without slashes"):
            client.consume(MemoryPositions(), share="a/b")
        consumer = client.consume(MemoryPositions())
        with pytest.raises(waltz.InvalidOperationError, match="the consumer is not open"):
            await anext(consumer)
        async with consumer:
            with pytest.raises(waltz.InvalidOperationError, match="opened once"):
                await consumer.__aenter__()
        with pytest.raises(waltz.ClientClosedError):
            await anext(consumer)


# Sharing


async def test_one_that_has_no_partition_ends_with_its_client() -> None:
    partitions = MockServerPartition.create(1)
    positions = MemoryPositions()
    driver = MockDriver(partitions)
    async with waltz.connect(driver) as client, client.consume(positions, share="mails") as first:
        await shares_are([first], [1])
        other = await waltz.connect(MockDriver(partitions))
        async with other.consume(positions, share="mails") as consumer:
            reading = asyncio.create_task(anext(consumer))
            await asyncio.sleep(0.01)
            await other.close()
            with pytest.raises(waltz.ClientClosedError):
                await reading


async def test_a_partition_that_comes_back_is_not_paused(tmp_path: Path) -> None:
    """Nobody told the application that it was gone, so it cannot know that it has to be resumed."""
    driver = MockDriver(2)

    def positions() -> PositionStore:
        return waltz.SqlitePositions(tmp_path / "positions.sqlite", "mails")

    async with (
        waltz.connect(driver) as client,
        waltz.connect(driver) as other_client,
        client.consume(positions(), share="mails", commit_every_s=0.05) as one,
    ):
        while one.partition_ids != [0, 1]:
            await asyncio.sleep(0.001)
        one.pause(0, 1)
        async with other_client.consume(positions(), share="mails", commit_every_s=0.05) as two:
            while not two.partition_ids:
                await one.poll(0.001)
            (gone,) = two.partition_ids
        while one.partition_ids != [0, 1]:
            await one.poll(0.001)
        for partition in driver.partitions:
            partition.add(b"later")
        read = await one.poll(5.0)
        assert read is not None
        assert read.partition_id == gone
        assert await one.poll(0.05) is None, "the one that has stayed is still paused"


async def drain(consumer: Consumer, seen: list[tuple[int, int]]) -> None:
    async for record in consumer:
        seen.append((record.partition_id, record.transaction_id))
        await asyncio.sleep(0)


async def shares_are(consumers: list[Consumer], sizes: list[int]) -> None:
    while sorted(len(consumer.partition_ids) for consumer in consumers) != sizes:
        await asyncio.sleep(0.001)
    assert len({each for consumer in consumers for each in consumer.partition_ids}) == sum(sizes)


async def test_instances_share_the_partitions_and_hand_them_over() -> None:
    partitions = MockServerPartition.create(5)
    positions = MemoryPositions()
    seen: list[tuple[int, int]] = []
    driver = MockDriver(partitions)
    async with waltz.connect(driver) as client, waltz.connect(MockDriver(partitions)) as other_client:
        consumers = [each.consume(positions, share="mails", commit_every_s=3600) for each in (client, other_client)]
        async with consumers[0]:
            reading = [asyncio.create_task(drain(consumers[0], seen))]
            await shares_are(consumers[:1], [5])
            fill(driver, 50)
            async with consumers[1]:
                reading.append(asyncio.create_task(drain(consumers[1], seen)))
                await shares_are(consumers, [2, 3])
                fill(driver, 50)
                while len(seen) < 500:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)
            await shares_are(consumers[:1], [5])
            fill(driver, 10)
            while len(seen) < 550:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
        await asyncio.gather(*reading, return_exceptions=True)
    assert sorted(seen) == [(partition, number) for partition in range(5) for number in range(110)], "nothing twice"


async def test_what_is_done_is_committed_before_a_partition_is_handed_over() -> None:
    partitions = MockServerPartition.create(2)
    positions = MemoryPositions()
    seen: list[tuple[int, int]] = []
    driver = MockDriver(partitions)
    fill(driver, 50)
    async with (
        waltz.connect(driver) as client,
        client.consume(positions, share="mails", commit_every_s=3600) as first,
    ):
        reading = asyncio.create_task(drain(first, seen))
        while len(seen) < 100:
            await asyncio.sleep(0.001)
        assert positions.stored == {0: -1, 1: -1}
        async with client.consume(positions, share="mails") as other:
            await shares_are([first, other], [1, 1])
            assert [other.positions[each] for each in other.partition_ids] == [49]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_a_conflict_gives_the_partition_up_and_contends_for_it_anew(driver: MockDriver) -> None:
    positions = MemoryPositions()
    async with waltz.connect(driver) as client, client.consume(positions, share="mails") as consumer:
        await shares_are([consumer], [3])
        await all_of(consumer, 3 * 64)
        positions.stored[1] = 80
        with pytest.raises(waltz.PositionConflictError) as conflict:
            await consumer.commit()
        assert conflict.value.partition_ids == [1]
        assert positions.stored == {0: 63, 1: 80, 2: 63}
        await shares_are([consumer], [3])
        assert consumer.positions[1] == 80
        rest = await all_of(consumer, 36 + 19 + 36)
        assert [record.transaction_id for record in rest if record.partition_id == 1] == list(range(81, 100))


async def test_a_partition_whose_first_position_cannot_be_had_is_contended_for_again(
    driver: MockDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz.client.sharing.RETRY_S", 0.001)
    async with waltz.connect(driver) as client:
        ask, failures = client.high_water_mark, 3

        async def may_fail(partition_id: int, *, timeout_s: float | None = None) -> int:
            nonlocal failures
            if partition_id == 1 and failures:
                failures -= 1
                raise waltz.DeadlineExceededError("its server does not answer")
            return await ask(partition_id)

        monkeypatch.setattr(client, "high_water_mark", may_fail)
        async with client.consume(MemoryPositions(), share="mails", start="end") as consumer:
            await shares_are([consumer], [3])
        assert failures == 0


async def test_what_ends_the_sharing_is_told_to_who_reads(driver: MockDriver, tmp_path: Path) -> None:
    path = tmp_path / "positions"
    path.write_bytes(b"nonsense")
    async with waltz.connect(driver) as client:
        consumer = client.consume(waltz.FilePositions(path), share="mails")
        with pytest.raises(waltz.PositionsError, match="are damaged"):
            async with consumer:
                await anext(consumer)


async def test_closing_goes_on_when_it_is_given_up(driver: MockDriver) -> None:
    saving, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(MemoryPositions):
        async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
            if self.stored:
                saving.set()
                await go_on.wait()
            await super().save(cluster_key, moves)

        async def close(self) -> None:
            closed.set()

    positions = Slow()
    async with waltz.connect(driver) as client:
        consumer = client.consume(positions, [0], commit_every_s=3600)
        await consumer.__aenter__()
        await anext(consumer)
        await anext(consumer)
        for _ in range(2):
            closing = asyncio.create_task(consumer.aclose())
            await saving.wait()
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        assert not closed.is_set()
        go_on.set()
        await consumer.aclose()
        assert closed.is_set()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "commits"]
        assert positions.stored == {0: 0}


async def test_a_process_that_stood_still_hands_out_nothing_that_may_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it stood still is at hand; the end of the session is found out by asking for the state."""
    driver = MockDriver(1)
    fill(driver, 100)
    async with waltz.connect(driver) as client, client.consume(MemoryPositions(), share="mails") as consumer:
        await shares_are([consumer], [1])
        assert await consumer.poll(60) is not None
        membership = consumer._membership
        assert membership is not None
        monkeypatch.setattr(membership, "check", lambda: membership._state_changed(State.LOST))
        assert await consumer.poll(0) is None
        monkeypatch.undo()
        await shares_are([consumer], [1])
        record = await consumer.poll(60)
        assert record is not None
        assert record.transaction_id == 0, "nothing was committed, so everything is done again"
