"""The plain face over the mock driver, with servers of version 5 and of version 4."""

import ast
import asyncio
import gc
import re
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import waltz
from tests.unit.client.application import Callbacks
from waltz.client.engine.engine import Engine
from waltz.client.engine.submission import AppendFields
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.cluster import FixedCluster
from waltz.client.options import ClientOptions
from waltz.client.plain.append import Deadlines, PlainSubmission
from waltz.common.cluster.managed import ManagedClient
from waltz.common.ids import ReqId
from waltz.common.zk.client import ZooKeeperUnreachableError
from waltz.table.envelope import Batch, Row, encode

pytestmark = pytest.mark.timeout(60)

VERSIONS = [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)]
LOCK = waltz.PartitionLocalLock("account", 1)
OTHER = waltz.PartitionLocalLock("account", 2)


@pytest.fixture(params=VERSIONS, ids=["version 5", "version 4"])
def driver(request: pytest.FixtureRequest) -> MockDriver:
    return MockDriver(2, versions=request.param)


async def test_confirmed_marks(driver: MockDriver) -> None:
    async with waltz.connect(MockDriver(driver.partitions)) as client, waltz.connect(driver) as older:
        await client.append(1, b"one")
        assert await client.high_water_mark(1, confirmed=True) == 0
        with pytest.raises(waltz.ConfirmedMarkNotSupportedError, match="partition 1 is too old to confirm") as refused:
            await older.high_water_mark(1, confirmed=True)
        assert refused.value.partition_id == 1
        assert await older.high_water_mark(1) == 0


async def test_append_returns_the_id_and_the_feed_brings_it_back(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        assert (client.cluster_name, client.partition_count) == ("mock", 2)
        assert await client.high_water_mark(1) == -1
        assert await client.append(1, b"one", header=-7) == 0
        assert await client.append(1, bytearray(b"two")) == 1
        assert await client.append(1, memoryview(b"three")) == 2
        assert await client.high_water_mark(1) == 2
        feed = client.feed(1, after=-1)
        read = []
        async for transaction in feed:
            read.append((transaction.transaction_id, transaction.header, transaction.data))
            assert ReqId(transaction.req_id).client_id == client.client_id
            if transaction.transaction_id == 2:
                break
        assert read == [(0, -7, b"one"), (1, 0, b"two"), (2, 0, b"three")]
        assert feed.position == 1, "its consumer was not done with the last one"


async def test_the_feed_goes_on_with_what_is_appended_later(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        read: list[bytes] = []

        async def consume() -> None:
            async for transaction in client.feed(0, after=0):
                read.append(transaction.data)
                if transaction.data == b"last":
                    return

        await client.append(0, b"before")
        task = asyncio.create_task(consume())
        for number in range(20):
            await client.append(0, b"%d" % number)
        driver.partitions[0].add(b"last")
        await task
        assert read == [*(b"%d" % number for number in range(20)), b"last"]


@pytest.mark.parametrize("closing", ["the feed", "the client"])
async def test_closing_while_a_feed_joins_the_cluster(closing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bulk reads a feed reads with an engine of its own, which may never come to join."""
    driver = MockDriver(1, versions=VERSIONS[1])
    driver.partitions[0].add(b"one")
    engines: list[ManagedClient] = []
    joining = asyncio.Event()

    async def join(_cluster: FixedCluster, member: ManagedClient) -> None:
        engines.append(member)
        joining.set()
        await asyncio.Event().wait()

    async with waltz.connect(driver) as client:
        monkeypatch.setattr(FixedCluster, "join", join)
        feed = client.feed(0, after=-1)
        reading = asyncio.create_task(feed.next_batch())
        await joining.wait()
        await (feed.aclose() if closing == "the feed" else client.close())
        with pytest.raises(waltz.ClientClosedError):
            await reading
    (engine,) = engines
    assert isinstance(engine, Engine)
    assert engine.closed


async def test_a_feed_that_is_given_up_while_it_joins_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves nothing behind, and joins anew at the next call; the same when joining has failed."""
    driver = MockDriver(1, versions=VERSIONS[1])
    driver.partitions[0].add(b"one")
    joined_at_once = FixedCluster.join
    engines: list[ManagedClient] = []
    joining = asyncio.Event()

    async def join(cluster: FixedCluster, member: ManagedClient) -> None:
        engines.append(member)
        if len(engines) == 1:
            joining.set()
            await asyncio.Event().wait()
        if len(engines) == 2:
            raise ZooKeeperUnreachableError("away")
        await joined_at_once(cluster, member)

    async with waltz.connect(driver) as client:
        monkeypatch.setattr(FixedCluster, "join", join)
        async with client.feed(0, after=-1) as feed:
            reading = asyncio.create_task(feed.next_batch())
            await joining.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            with pytest.raises(ZooKeeperUnreachableError, match="away"):
                await feed.next_batch()
            assert [record.data for record in await feed.next_batch()] == [b"one"]
            assert [isinstance(each, Engine) and each.closed for each in engines] == [True, True, False]


async def test_batches_and_an_end(driver: MockDriver) -> None:
    for number in range(3_000):
        driver.partitions[0].add(b"%d" % number)
    async with waltz.connect(driver) as client:
        ids: list[int] = []
        async for batch in client.feed_batches(0, after=99, until=2_500):
            ids += [record.transaction_id for record in batch]
        assert ids == list(range(100, 2_501))
        assert [each async for each in client.feed(0, after=10, until=10)] == []
        assert [each.data async for each in client.feed(0, after=10, until=12)] == [b"11", b"12"]


async def test_many_appends(driver: MockDriver) -> None:
    async with waltz.connect(driver, max_in_flight=64) as client:
        ids = await client.append_many(0, [b"%d" % number for number in range(1_000)])
        assert ids == list(range(1_000))
        assert [record.data for record in driver.partitions[0].transactions] == [b"%d" % n for n in range(1_000)]
        assert await client.append_many(0, []) == []


async def test_the_outcome_of_each_of_many(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        first = await client.append(0, b"first", append_locks=[LOCK])
        items: list[bytes | waltz.Append] = [
            b"plain",
            waltz.Append(b"locked", write_locks=[LOCK]),
            waltz.Append(b"other", 3, write_locks=[OTHER]),
        ]
        with pytest.raises(waltz.AppendManyError, match="1 of 3 transactions") as raised:
            await client.append_many(0, items, high_water_mark=first - 1)
        plain, locked, other = raised.value.outcomes
        assert (plain, other) == (1, 2)
        assert isinstance(locked, waltz.LockConflict)
        assert raised.value.outcome_known


async def test_locks(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        first = await client.append(0, b"a", write_locks=[LOCK], high_water_mark=-1)
        second = await client.append(0, b"b", write_locks=[LOCK], high_water_mark=first)
        with pytest.raises(waltz.LockConflict, match="transaction 1 of partition 0") as raised:
            await client.append(0, b"c", write_locks=[LOCK], high_water_mark=first)
        assert (raised.value.partition_id, raised.value.transaction_id) == (0, second)
        assert raised.value.outcome_known
        with pytest.raises(waltz.LockConflict):
            await client.append(0, b"c", read_locks=[LOCK], high_water_mark=first)
        assert await client.append(0, b"c", read_locks=[LOCK], high_water_mark=second) == 2
        assert await client.append(0, b"d", append_locks=[LOCK], high_water_mark=-1) == 3
        with pytest.raises(waltz.LockConflict):
            await client.append(0, b"e", write_locks=[OTHER], read_locks=[LOCK], high_water_mark=2)
        assert driver.partitions[0].high_water_mark == 3


async def test_by_default_locks_are_checked_against_the_open_feed(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, client.feed(0, after=-1) as feed:
        transactions = aiter(feed)
        assert await client.append(0, b"a", write_locks=[LOCK]) == 0
        with pytest.raises(waltz.LockConflict):
            await client.append(0, b"b", write_locks=[LOCK])
        await anext(transactions)
        assert (feed.position, feed.handed_out) == (-1, 0)
        assert await client.append(0, b"b", write_locks=[LOCK]) == 1, "the transaction at hand counts as seen"
        driver.partitions[0].add(b"other")
        text = "changed by transaction 1 of partition 0, after transaction 0, .* read the feed up to transaction 1"
        with pytest.raises(waltz.LockConflict, match=text):
            await client.append(0, b"c", write_locks=[LOCK])
        await anext(transactions)
        assert (feed.position, feed.handed_out) == (0, 1)
        assert await client.append(0, b"c", write_locks=[LOCK]) == 3
        await transactions.aclose()
        with pytest.raises(TypeError, match="no open feed of partition 0 without `until`"):
            await client.append(0, b"d", write_locks=[LOCK])


async def test_an_append_in_the_loop_over_a_feed_is_based_on_the_transaction_at_hand(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, waltz.connect(driver) as other:
        for number in range(3):
            await other.append(0, b"order %d" % number, append_locks=[LOCK])
        async for _ in client.feed(0, after=1):
            assert await client.append(0, b"paid", write_locks=[LOCK]) == 3
            with pytest.raises(waltz.LockConflict) as raised:
                await client.append(0, b"again", write_locks=[LOCK])
            assert raised.value.transaction_id == 3

            async def elsewhere() -> None:
                await client.append(0, b"of a task that has not got it", write_locks=[OTHER], read_locks=[LOCK])

            with pytest.raises(waltz.LockConflict):
                await asyncio.create_task(elsewhere())
            break
        async for transaction in client.feed(0, after=2):
            assert transaction.transaction_id == 3
            assert await client.append(0, b"decided again", write_locks=[LOCK]) == 4
            break


async def test_the_feed_that_is_furthest_behind_counts(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, waltz.connect(driver) as other:
        await other.append(0, b"0", append_locks=[LOCK])
        async with client.feed(0, after=-1) as idle, client.feed(0, after=-1) as feed:
            await anext(feed)
            with pytest.raises(waltz.LockConflict):
                await client.append(0, b"1", write_locks=[LOCK])
            with pytest.raises(waltz.AppendManyError):
                await client.append_many(0, [b"1", waltz.Append(b"2", read_locks=[LOCK])])
            assert await client.append(0, b"2", write_locks=[LOCK], high_water_mark=feed.handed_out) == 2
            assert not idle.closed
        async with client.feed_all([0, 1], after={0: 1, 1: -1}) as merged:
            assert (await anext(merged)).transaction_id == 2
            assert await client.append(0, b"3", write_locks=[LOCK]) == 3


@pytest.mark.parametrize("locks", [{"write_locks": [LOCK]}, {"read_locks": [LOCK]}])
async def test_locks_without_a_mark_are_refused_where_nothing_says_what_was_seen(
    driver: MockDriver, locks: dict[str, Any]
) -> None:
    async with waltz.connect(driver) as client:
        text = r"needs high_water_mark=, the id of the last transaction .* no open feed of partition 0 without `until`"
        feed = client.feed(0, after=-1, until=0)
        for _ in range(2):
            with pytest.raises(TypeError, match=text):
                await client.append(0, b"a", **locks)
            with pytest.raises(TypeError, match=text):
                await client.append_many(0, [b"a", waltz.Append(b"b", **locks)])
            with pytest.raises(TypeError, match="what decide rests on is not known"):
                await client.transact(0, lambda basis: waltz.Append(b"a", **locks))
            await feed.aclose()
        assert driver.partitions[0].high_water_mark == -1
        assert await client.append(0, b"a", append_locks=[LOCK], write_locks=[]) == 0
        assert await client.append(0, b"b", **locks, high_water_mark=0) == 1


@pytest.mark.parametrize("reads", ["nothing", "a table", "a take", "a scan", "rows that follow", "a database"])
async def test_what_the_library_reads_by_itself_was_not_seen_by_the_application(
    driver: MockDriver, tmp_path: Path, reads: str
) -> None:
    """A counter: its follower is slow for a moment, and somebody else counts meanwhile."""
    if reads not in ("nothing", "a database"):
        driver = MockDriver(2)  # older servers confirm no mark for a table

    def counter(value: bytes) -> bytes:
        return encode(Batch(1, [Row(b"", b"counter", value)]))

    async def transact(partition_id: int, data: bytes, **locks: Any) -> None:
        await client.transact(partition_id, lambda basis: waltz.Append(data, **locks), max_attempts=1)

    counted: list[int] = []
    go_on = asyncio.Event()
    async with waltz.connect(driver) as client, waltz.connect(driver) as other, AsyncExitStack() as stack:
        await waltz.table.configure(client, 0, {"format": "table"})

        async def follow() -> None:
            async for transaction in client.feed(0, after=-1):
                counted.append(transaction.transaction_id)
                await go_on.wait()

        following = asyncio.create_task(follow())
        await client.append(0, counter(b"1"), append_locks=[LOCK])
        while not counted:
            await asyncio.sleep(0.001)
        await other.append(0, counter(b"2"), append_locks=[LOCK])
        if reads == "a database":
            database = waltz.DbApiDatabase(lambda: sqlite3.connect(tmp_path / "database"), sqlite3)
            database.create_table(connection := database.connect())
            connection.close()
            await client.apply_to_database(database, lambda *_: None, partition_ids=[0], follow=False)
        elif reads != "nothing":
            table = await stack.enter_async_context(client.table(0))
            await table.refresh()
            if reads == "a take":
                assert len((await table.take(-1)).rows) == 2
            elif reads == "a scan":
                assert [row.value async for row in table.scan()] == [b"2"]
            elif reads == "rows that follow":
                assert [taken.cursor async for taken in table.follow(-1, until=1)][-1] == 1
        for write in (client.append, transact):
            with pytest.raises(waltz.LockConflict):
                await write(0, b"2, decided on the state of 1", write_locks=[LOCK])
        following.cancel()
        await asyncio.wait([following])


async def test_a_decision_on_a_database_says_which_transaction_it_rests_on(driver: MockDriver, tmp_path: Path) -> None:
    """What is handed to the database is there a moment later."""
    database = waltz.DbApiDatabase(lambda: sqlite3.connect(tmp_path / "database"), sqlite3)
    database.create_table(connection := database.connect())
    connection.close()
    applied: list[int] = []
    async with waltz.connect(driver) as client:
        applying = asyncio.create_task(
            client.apply_to_database(database, lambda transaction, *_: applied.append(transaction.transaction_id))
        )
        await client.append(0, b"100", append_locks=[LOCK])
        while not applied:
            await asyncio.sleep(0.001)
        with pytest.raises(TypeError, match="needs high_water_mark="):
            await client.append(0, b"-80", write_locks=[LOCK])
        assert await client.append(0, b"-80", write_locks=[LOCK], high_water_mark=0) == 1
        applying.cancel()
        await asyncio.wait([applying])


async def test_batches_are_handed_out_as_a_whole(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, waltz.connect(driver) as other:
        await other.append_many(0, [waltz.Append(b"%d" % number, append_locks=[LOCK]) for number in range(5)])
        async for batch in (feed := client.feed_batches(0, after=-1)):
            assert (feed.position, feed.handed_out) == (-1, len(batch) - 1)
            if len(batch) == 5:
                assert await client.append(0, b"a", write_locks=[LOCK]) == 5
            break
        async with client.feed(1, after=-1) as single:
            await other.append_many(1, [b"x"] * 3)
            read = 0
            while read < 3:
                read += len(await single.next_batch())
                assert single.handed_out == read - 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(single.next_batch(), 0.01)
            assert single.position == 2, "asking for more says that these are done with"
            driver.partitions[1].add(b"y")
            assert [each.transaction_id for each in await single.next_batch()] == [3]


@pytest.mark.parametrize("batches", [False, True])
async def test_a_feed_that_begins_beyond_the_end_of_the_log_is_refused(driver: MockDriver, batches: bool) -> None:
    options = ClientOptions(ahead_retry_initial_s=0.02)
    async with waltz.connect(driver, options=options) as client:
        await client.append(0, b"0")
        read = client.feed_batches if batches else client.feed
        feed = read(0, after=2)
        with pytest.raises(waltz.ClientAheadError, match="no transaction 2, the last one is 0; is this the right"):
            async for _ in feed:
                raise AssertionError("nothing can come")
        assert feed.closed
        with pytest.raises(waltz.ClientAheadError):
            await read(1, after=10**9).next_batch()
        assert await client.append(0, b"1") == 1
        late = read(0, after=2)
        reading = asyncio.create_task(late.next_batch())
        await asyncio.sleep(0)
        driver.partitions[0].add(b"2")
        driver.partitions[0].add(b"3")
        assert (await reading)[-1].transaction_id == 3, "what is there when it is looked at again is no error"


async def test_a_high_water_mark_that_the_log_does_not_have_is_refused(driver: MockDriver) -> None:
    options = ClientOptions(ahead_retry_initial_s=0.02)
    async with waltz.connect(driver, options=options) as client:
        await client.append(0, b"a")
        for mark in (1, 10**9):
            with pytest.raises(waltz.ClientAheadError, match=f"no transaction {mark}, the last one is 0"):
                await client.append(0, b"b", write_locks=[LOCK], high_water_mark=mark)
            with pytest.raises(waltz.ClientAheadError):
                await client.append_many(0, [b"b"], high_water_mark=mark)
        for wrong in (-2, -5):
            with pytest.raises(ValueError, match=f"high_water_mark must be the id of a transaction.*{wrong}"):
                await client.append(0, b"b", write_locks=[LOCK], high_water_mark=wrong)
        driver.suspend_feed()
        driver.partitions[0].add(b"of another client")
        waiting = asyncio.create_task(client.append(0, b"c", write_locks=[LOCK], high_water_mark=1))
        while driver.partitions[0].high_water_mark < 2:
            await asyncio.sleep(0.001)
        driver.resume_feed()
        assert await waiting == 2, "the log has it, although this client has not seen it yet"


async def test_a_feed_has_one_reader_at_a_time(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client, client.feed(0, after=-1) as feed:
        for timeout_s in (None, 60.0):
            waiting = asyncio.create_task(feed.next_batch(timeout_s))
            await asyncio.sleep(0)
            for other in (feed.next_batch(), feed.poll(0.01), anext(feed)):
                with pytest.raises(waltz.InvalidOperationError, match="somebody else waits .* of partition 0"):
                    await other
            assert feed.consumer is waiting
            transaction_id = await client.append(0, b"a")
            assert [each.transaction_id for each in await waiting] == [transaction_id]


async def test_what_gets_lost_is_sent_again(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        driver.force_next_append_fail()
        assert await client.append(0, b"a") == 0
        driver.silent_faults = False
        driver.fault_rate = 0.3
        ids = await client.append_many(0, [b"x"] * 100)
        assert sorted(ids) == list(range(1, 101))


async def test_the_deadline_says_whether_the_outcome_is_known(driver: MockDriver) -> None:
    async with waltz.connect(driver, max_in_flight=1) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        unknown = asyncio.create_task(client.append(0, b"b", timeout_s=0.2))
        await asyncio.sleep(0)
        known = asyncio.create_task(client.append(0, b"c", timeout_s=0.1))
        with pytest.raises(waltz.NotAppendedError, match="within 0.1 s; the transaction is not in the log") as raised:
            await known
        assert raised.value.outcome_known
        with pytest.raises(waltz.OutcomeUnknownError, match="may be committed") as unsure:
            await unknown
        assert not unsure.value.outcome_known
        driver.resume_feed()
        assert await client.append(0, b"d") == 2
        assert [each.data for each in driver.partitions[0].transactions] == [b"a", b"b", b"d"]


async def test_cancellation_leaves_nothing_and_says_whether_anything_was_sent(driver: MockDriver) -> None:
    async with waltz.connect(driver, max_in_flight=1) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        sent = asyncio.create_task(client.append(0, b"b"))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(client.append(0, b"c"))
        many = asyncio.create_task(client.append_many(0, [b"d"] * 3))
        await asyncio.sleep(0.01)
        for task, note in ((waiting, "was not sent"), (many, "may have been sent"), (sent, "is not known")):
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert note in raised.value.__notes__[0]
        driver.resume_feed()
        assert await client.append(0, b"e") == 2
        assert [each.data for each in driver.partitions[0].transactions] == [b"a", b"b", b"e"]
        engine: Any = client._engine
        assert not engine.has_pending


async def test_an_abandoned_append_is_not_sent_again(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        await client.append(0, b"a")
        driver.force_next_append_fail()
        with pytest.raises(waltz.OutcomeUnknownError):
            await client.append(0, b"b", timeout_s=0.01)
        engine: Any = client._engine
        async with asyncio.timeout(60):
            while engine.has_pending:
                await asyncio.sleep(0.01)
        assert driver.partitions[0].high_water_mark == 0


async def test_close_ends_everything_with_a_word_on_the_outcome(driver: MockDriver) -> None:
    client = await waltz.connect(driver, max_in_flight=1).open()
    await client.append(0, b"a")
    feed = client.feed(0, after=0)
    reading = asyncio.ensure_future(anext(aiter(feed)))
    driver.suspend_feed()
    sent = asyncio.create_task(client.append(0, b"b"))
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(client.append(0, b"c"))
    await asyncio.sleep(0)
    await client.close()
    await client.close()
    with pytest.raises(waltz.OutcomeUnknownError, match="the client is closed"):
        await sent
    with pytest.raises(waltz.NotAppendedError, match="the client is closed"):
        await waiting
    with pytest.raises(waltz.ClientClosedError):
        await reading
    with pytest.raises(waltz.ClientClosedError):
        await client.append(0, b"d")
    with pytest.raises(waltz.ClientClosedError):
        client.feed(0, after=0)


async def test_a_client_is_opened_once_and_before_it_is_used(driver: MockDriver) -> None:
    client = waltz.connect(driver)
    with pytest.raises(waltz.InvalidOperationError, match="not open"):
        await client.append(0, b"a")
    async with client:
        with pytest.raises(waltz.InvalidOperationError, match="once"):
            await client.open()


async def test_leaving_the_loop_closes_the_feed(driver: MockDriver) -> None:
    driver.partitions[0].add(b"a")
    async with waltz.connect(driver) as client:
        feed = client.feed(0, after=-1)
        async for _ in feed:
            break
        gc.collect()
        await asyncio.sleep(0.05)
        assert feed.closed
        with pytest.raises(waltz.ClientClosedError):
            await anext(aiter(feed))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"data": "text"}, TypeError, "must be bytes, not str"),
        ({"data": None}, TypeError, "must be bytes, not NoneType"),
        ({"header": 1 << 31}, ValueError, "must fit into 32 bits"),
        ({"header": "x"}, TypeError, "must be an integer, not str"),
        ({"write_locks": ["account"]}, TypeError, "must be a list of PartitionLocalLock"),
        ({"read_locks": None}, TypeError, "must be a list of PartitionLocalLock"),
        ({"append_locks": [None]}, TypeError, "must be a list of PartitionLocalLock"),
        ({"partition_id": 2}, waltz.PartitionNotFoundError, "partitionId=2; the cluster has partitions 0 to 1$"),
        ({"partition_id": -1}, waltz.PartitionNotFoundError, "partitionId=-1"),
        ({"data": bytes(33 << 20)}, waltz.TransactionTooLargeError, "maxTransactionSize"),
        ({"write_locks": [LOCK] * 10_001}, waltz.TransactionTooLargeError, "10001 locks; client.maxLocksPerTransac"),
        ({"write_locks": [LOCK] * 6_000, "read_locks": [LOCK] * 6_000}, waltz.TransactionTooLargeError, "12000 locks"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_sent(
    driver: MockDriver, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    async with waltz.connect(driver) as client:
        await client.append(0, b"a")
        values: dict[str, Any] = {"partition_id": 0, "data": b"b", **arguments}
        with pytest.raises(error, match=text):
            await client.append(**values)
        if "partition_id" not in arguments:
            items: Any = [b"good", waltz.Append(**{"data": b"b", **arguments})]
            with pytest.raises(error, match=text):
                await client.append_many(0, items)
        assert driver.partitions[0].high_water_mark == 0
        assert await client.append(0, b"c") == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"partition_id": "0"}, "partition_id must be an integer, not '0'"),
        ({"timeout_s": None}, "timeout_s must be a number of seconds, not None"),
        ({"timeout_s": "1"}, "timeout_s must be a number of seconds, not '1'"),
        ({"high_water_mark": "7"}, "high_water_mark must be the id of a transaction, or -1, not '7'"),
    ],
)
async def test_wrong_arguments_are_named(driver: MockDriver, arguments: dict[str, Any], text: str) -> None:
    for joined in (False, True):
        async with waltz.connect(driver) as client:
            if joined:
                await client.append(0, b"a")
            with pytest.raises(TypeError, match=re.escape(text)):
                await client.append(**{"partition_id": 0, "data": b"b", **arguments})
            with pytest.raises(TypeError, match=re.escape(text)):
                await client.append_many(**{"partition_id": 0, "items": [b"b"], **arguments})


async def test_other_wrong_arguments_are_named(driver: MockDriver) -> None:
    wrong: Any = "0"
    with pytest.raises(TypeError, match="the id of a lock must be an integer or a string, not float"):
        waltz.PartitionLocalLock("a", 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"config must be the path of a configuration file, .* not \['0'\]"):
        waltz.connect([wrong])  # type: ignore[arg-type]
    async with waltz.connect(driver) as client:
        with pytest.raises(TypeError, match="partition_id must be an integer, not '0'"):
            client.feed(wrong, after=-1)
        with pytest.raises(TypeError, match="after must be an integer, not '0'"):
            client.feed(0, after=wrong)
        with pytest.raises(TypeError, match="until must be an integer, not '0'"):
            client.feed_batches(0, after=-1, until=wrong)
        with pytest.raises(TypeError, match="partition_id must be an integer, not '0'"):
            await client.high_water_mark(wrong)
        with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not '0'"):
            await client.high_water_mark(0, timeout_s=wrong)
    async with await waltz.open_client(Callbacks(), driver) as other:
        for endpoints in (["localhost:1"], "localhost:1"):
            with pytest.raises(TypeError, match="must be named by an Endpoint"):
                await other.check_server_connections(endpoints)  # type: ignore[arg-type]


async def test_bad_arguments_of_a_feed(driver: MockDriver) -> None:
    async with waltz.connect(driver) as client:
        with pytest.raises(waltz.PartitionNotFoundError):
            client.feed(2, after=-1)
        with pytest.raises(ValueError, match="after -1 for the first one"):
            client.feed_batches(0, after=-2)
    with pytest.raises(ValueError, match="at least 1"):
        waltz.connect(driver, max_in_flight=0)
    with pytest.raises(waltz.ConfigError):
        waltz.connect({"cluster.root": "/x"})


async def test_a_client_that_never_gets_a_server_says_that_nothing_was_sent() -> None:
    driver = MockDriver(1)
    options = ClientOptions(rpc_timeout_s=0.05)
    async with waltz.connect(driver, options=options) as client:
        engine: Any = client._engine
        engine.remove_server(next(iter(engine._stream._links._assignments._owners.values())).endpoint)
        with pytest.raises(waltz.NotAppendedError, match="could not be joined within 0.2 s: no server is known to own"):
            await client.append(0, b"a", timeout_s=0.2)


async def test_clients_that_share_partitions() -> None:
    shared = MockServerPartition.create(1)
    async with waltz.connect(MockDriver(shared)) as one, waltz.connect(MockDriver(shared)) as two:
        assert one.client_id != two.client_id
        await asyncio.gather(one.append_many(0, [b"1"] * 200), two.append_many(0, [b"2"] * 200))
        records = [each async for each in one.feed(0, after=-1, until=399)]
        assert records == shared[0].transactions
        assert sorted(each.data for each in records) == [b"1"] * 200 + [b"2"] * 200


async def test_connections_that_break_lose_nothing(driver: MockDriver) -> None:
    read: list[bytes] = []
    async with waltz.connect(driver) as client:

        async def consume() -> None:
            nonlocal read
            async for transaction in client.feed(0, after=-1, until=499):
                read += [transaction.data]

        async def cut() -> None:
            """Again and again, but not before some of it got through since the last time."""
            known = 0
            while len(read) < 500:
                await asyncio.sleep(0.01)
                if len(read) >= known + 10:
                    known = len(read)
                    driver.disconnect()

        cutting = asyncio.create_task(cut())
        consuming = asyncio.create_task(consume())
        driver.max_delay_s = 0.0005
        appended = await asyncio.gather(*(client.append(0, b"%d" % number) for number in range(500)))
        await consuming
        await cutting
    assert sorted(appended) == list(range(500))
    assert sorted(read, key=int) == [b"%d" % number for number in range(500)]
    assert [each.data for each in driver.partitions[0].transactions] == read
    assert [read[transaction_id] for transaction_id in appended] == [b"%d" % number for number in range(500)]


async def test_a_nearer_deadline_is_met_among_farther_ones() -> None:
    client = await MockDriver().open_client(Callbacks())
    appends_of = client._engine.partitions[0].appends
    loop = asyncio.get_running_loop()
    deadlines = Deadlines()
    appends = [
        PlainSubmission(0, appends_of, AppendFields(b"", 0, -1), loop.create_future(), loop.time(), timeout_s)
        for timeout_s in (1000.0, 0.01, 1000.0, 0.02)
    ]
    for append in appends:
        deadlines.pending[append] = None
        if append.deadline_s < deadlines.due_s:
            deadlines.arm(append.deadline_s)
    for index in (1, 3):
        with pytest.raises(waltz.NotAppendedError):
            await appends[index].future
    del deadlines.pending[appends[0]]
    assert not appends[2].future.done()
    deadlines.close()
    await client.close()


async def test_one_by_one_without_a_loop(driver: MockDriver) -> None:
    for number in range(1_000):
        driver.partitions[0].add(b"%d" % number)
    async with waltz.connect(driver) as client:
        feed = client.feed(0, after=-1)
        assert [(await anext(feed)).data, (await anext(feed)).data] == [b"0", b"1"]
        polled = await feed.poll(10)
        assert polled is not None
        assert (polled.partition_id, polled.transaction_id, feed.position, feed.handed_out) == (0, 2, 1, 2)
        rest = await feed.next_batch()
        assert (rest[0].transaction_id, feed.position) == (3, 2)
        async for record in feed:
            assert record.transaction_id == rest[-1].transaction_id + 1
            other = await anext(feed)
            assert (other.transaction_id, feed.position) == (record.transaction_id + 1, record.transaction_id)
            break
        batches = client.feed_batches(0, after=989, until=999)
        ids: list[int] = []
        while len(ids) < 10:  # as many at a time as came together
            ids += [record.transaction_id for record in await anext(batches)]
        assert ids == list(range(990, 1_000))
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        ending = client.feed(0, after=998, until=999)
        assert (await anext(ending)).data == b"999"
        with pytest.raises(StopAsyncIteration):
            await anext(ending)
        assert await ending.poll(0) is None


async def test_polls_that_are_shorter_than_an_answer_takes_come_to_it_nevertheless(
    driver: MockDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.partitions[0].add(b"far away")
    async with waltz.connect(driver) as client:
        assert client._engine is not None
        join, attempts = client._engine.join, 0

        async def far_away(partition_id: int) -> object:
            nonlocal attempts
            attempts += 1
            for _ in range(100):
                await asyncio.sleep(0)
            return await join(partition_id)

        monkeypatch.setattr(client._engine, "join", far_away)
        feed = client.feed(0, after=-1)
        polls = 0
        while (record := await feed.poll(0)) is None:
            polls += 1
        assert record.data == b"far away"
        assert polls > 10
        assert attempts == 1
        assert await feed.next_batch(0) == []
        await feed.aclose()
        with pytest.raises(waltz.ClientClosedError):
            await feed.poll(0)


def test_the_library_itself_reads_with_feeds_of_its_own() -> None:
    """A feed of the application would say what the application has seen."""
    root = Path(waltz.__file__).parent
    for package in ("client", "table", "telemetry"):
        for path in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    is_public = node.func.attr in ("feed", "feed_batches", "feed_all")
                    assert not (is_public and ast.unparse(node.func.value).endswith("client")), (path, node.lineno)
