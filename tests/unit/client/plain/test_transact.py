"""Read, decide and append in one call: no update is lost, whoever else is writing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest

import waltz
from tests.unit.client.application import Callbacks
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.transaction import Transaction

pytestmark = [pytest.mark.timeout(60), pytest.mark.virtual_time]

VERSIONS = [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)]
COUNTER = waltz.PartitionLocalLock("counter", 1)
WRITERS, ROUNDS = 4, 12


@pytest.fixture(params=VERSIONS, ids=["version 5", "version 4"])
def drivers(request: pytest.FixtureRequest) -> list[MockDriver]:
    """Drivers of one cluster, one for each writer."""
    shared = MockServerPartition.create(2)
    return [MockDriver(shared, versions=request.param) for _ in range(WRITERS)]


def checked(driver: MockDriver, count: int) -> None:
    """The log counts from 1 to ``count``: each update was made on the one before."""
    assert [int(each.data) for each in driver.partitions[0].transactions] == list(range(1, count + 1))


class Total:
    """State that a follower keeps."""

    def __init__(self) -> None:
        self.value = 0

    async def follow(self, client: waltz.Client) -> None:
        async for transaction in client.feed(0, after=-1):
            await asyncio.sleep(0)
            self.value = int(transaction.data)

    def add_one(self, basis: waltz.Basis) -> waltz.Append:
        return waltz.Append(b"%d" % (self.value + 1), write_locks=[COUNTER])


async def test_a_counter_with_followers(drivers: list[MockDriver]) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(waltz.connect(driver)) for driver in drivers]
        totals = [Total() for _ in clients]
        following = [asyncio.create_task(total.follow(client)) for total, client in zip(totals, clients, strict=True)]
        await asyncio.sleep(0)

        async def count(client: waltz.Client, total: Total) -> list[int | None]:
            return [await client.transact(0, total.add_one) for _ in range(ROUNDS)]

        counted = await asyncio.gather(*map(count, clients, totals))
        assert sorted(each for ids in counted for each in ids if each is not None) == list(range(WRITERS * ROUNDS))
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    checked(drivers[0], WRITERS * ROUNDS)


async def read_and_add_one(client: waltz.Client, basis: waltz.Basis) -> waltz.Append:
    last = 0
    async for transaction in client.feed(0, after=max(basis.high_water_mark - 1, -1), until=basis.high_water_mark):
        last = int(transaction.data)
    return waltz.Append(b"%d" % (last + 1), write_locks=[COUNTER])


async def test_a_counter_that_is_read_from_the_log_each_time(drivers: list[MockDriver]) -> None:
    async def count(driver: MockDriver) -> None:
        async with waltz.connect(driver) as client:

            async def once() -> None:
                await client.transact(0, lambda basis: read_and_add_one(client, basis), reads_log=True)

            await asyncio.gather(*(once() for _ in range(3)))  # without bulk reads each of them opens a client to read

    await asyncio.gather(*map(count, drivers))
    checked(drivers[0], WRITERS * 3)


async def test_a_counter_of_clients_with_callbacks(drivers: list[MockDriver]) -> None:
    class Counting(Callbacks):
        value = 0

        async def apply_transaction(self, transaction: Transaction) -> None:
            self.value = int(await transaction.data_bytes())
            self.record(transaction)

        def add_one(self, basis: waltz.Basis) -> waltz.Append:
            assert self.marks.get(0, -1) == basis.high_water_mark
            return waltz.Append(b"%d" % (self.value + 1), write_locks=[COUNTER])

        async def add_one_later(self, basis: waltz.Basis) -> waltz.Append:
            chosen = self.add_one(basis)
            await asyncio.sleep(0)
            return chosen

    drivers[0].fault_rate = 0.1

    async def count(driver: MockDriver) -> None:
        callbacks = Counting()
        async with await waltz.open_client(callbacks, driver) as client:
            for number in range(ROUNDS):
                decide = callbacks.add_one_later if number % 2 else callbacks.add_one
                transaction_id = await client.transact(0, decide)
                assert transaction_id is not None
                assert transaction_id <= client.client_high_water_mark(0)

    await asyncio.gather(*map(count, drivers))
    checked(drivers[0], WRITERS * ROUNDS)


def test_a_counter_of_blocking_clients(drivers: list[MockDriver]) -> None:
    def count(client: waltz.blocking.Client, total: Total) -> None:
        for _ in range(ROUNDS):
            assert client.transact(0, total.add_one) is not None

    clients = [waltz.blocking.connect(driver).open() for driver in drivers]
    feeds = [client.feed(0, after=-1) for client in clients]
    totals = [Total() for _ in clients]

    def run(feed: waltz.blocking.TransactionFeed, total: Total) -> None:
        for transaction in feed:
            total.value = int(transaction.data)
            if total.value == WRITERS * ROUNDS:
                return

    with ThreadPoolExecutor(2 * WRITERS) as threads:
        following = [threads.submit(run, feed, total) for feed, total in zip(feeds, totals, strict=True)]
        counting = [threads.submit(count, client, total) for client, total in zip(clients, totals, strict=True)]
        for each in (*counting, *following):
            each.result(50)
    for client in clients:
        client.close()
    checked(drivers[0], WRITERS * ROUNDS)


async def test_nothing_is_appended_when_nothing_is_decided(drivers: list[MockDriver]) -> None:
    driver = drivers[0]

    async def nothing(basis: waltz.Basis) -> None:
        assert basis == waltz.Basis(1, -1, 1)

    async with waltz.connect(driver) as client, await waltz.open_client(Callbacks(), driver) as other:
        for each in (client, other):
            assert await each.transact(1, nothing) is None
            assert await each.transact(1, lambda basis: None) is None
        assert driver.partitions[1].high_water_mark == -1
        assert await client.transact(1, lambda basis: b"data alone") == 0
        assert await other.transact(1, lambda basis: bytearray(b"data alone")) == 1


async def test_in_the_loop_over_the_feed_the_transaction_at_hand_is_the_basis(drivers: list[MockDriver]) -> None:
    async with waltz.connect(drivers[0]) as client, waltz.connect(drivers[1]) as other:
        await other.append_many(0, [waltz.Append(b"%d" % n, append_locks=[COUNTER]) for n in range(1, 4)])
        bases: list[int] = []

        def add_one(basis: waltz.Basis) -> waltz.Append:
            bases.append(basis.high_water_mark)
            return waltz.Append(b"%d" % (basis.high_water_mark + 2), write_locks=[COUNTER])

        outcomes: list[Any] = []
        async for transaction in client.feed(0, after=-1):
            try:
                outcomes.append(await client.transact(0, add_one))
            except waltz.LockConflict as conflict:
                outcomes.append(conflict)  # only this loop could read on, and it waits here
            if transaction.transaction_id == 2:
                break
        assert bases == [0, 1, 2]
        assert [type(outcome) for outcome in outcomes] == [waltz.LockConflict, waltz.LockConflict, int]
    checked(drivers[0], 4)


async def test_a_conflict_is_decided_again_when_the_follower_has_come_so_far(drivers: list[MockDriver]) -> None:
    async with waltz.connect(drivers[0]) as client, waltz.connect(drivers[1]) as other:
        go_on = asyncio.Event()
        total = Total()

        async def follow() -> None:
            async for transaction in client.feed(0, after=-1):
                await go_on.wait()
                total.value = int(transaction.data)

        following = asyncio.create_task(follow())
        await other.append(0, b"1", append_locks=[COUNTER])
        bases: list[waltz.Basis] = []

        def decide(basis: waltz.Basis) -> waltz.Append:
            bases.append(basis)
            return total.add_one(basis)

        with pytest.raises(waltz.NotAppendedError, match="within 0.05 s: the feed has not come to transaction 0"):
            await client.transact(0, decide, timeout_s=0.05)
        transacting = asyncio.create_task(client.transact(0, decide))
        await until(lambda: len(bases) == 2)
        await asyncio.sleep(0.01)
        assert not transacting.done()
        go_on.set()
        assert await transacting == 1
        assert bases[1:] == [waltz.Basis(0, -1, 1), waltz.Basis(0, 0, 2)]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        bases.clear()
        await other.append(0, b"3", write_locks=[COUNTER], high_water_mark=1)
        with pytest.raises(
            TypeError, match="no open feed of partition 0 without `until`; pass the feed .* reads_log=True"
        ):
            await client.transact(0, decide)
        assert len(bases) == 1, "nobody follows any more, so the state stays as old as it is"
    checked(drivers[0], 3)


async def test_a_feed_can_be_named_and_others_do_not_count_then(drivers: list[MockDriver]) -> None:
    async with waltz.connect(drivers[0]) as client, waltz.connect(drivers[1]) as other:
        idle = client.feed(0, after=-1)
        feed = client.feed(0, after=-1)
        total = Total()

        async def follow() -> None:
            async for transaction in feed:
                total.value = int(transaction.data)

        following = asyncio.create_task(follow())
        await other.append(0, b"1", append_locks=[COUNTER])
        with pytest.raises(waltz.NotAppendedError, match="the feed has not come to"):
            await client.transact(0, total.add_one, timeout_s=0.05)
        assert await client.transact(0, total.add_one, feed=feed) == 1
        with pytest.raises(waltz.InvalidOperationError, match="a feed|the feed is one of partition 0, not of 1"):
            await client.transact(1, total.add_one, feed=feed)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert not idle.closed


async def test_limits(drivers: list[MockDriver]) -> None:
    driver = drivers[0]
    async with waltz.connect(driver) as client, await waltz.open_client(Callbacks(), driver) as other:
        for each in (client, other):
            decided: list[int] = []

            def decide(basis: waltz.Basis, decided: list[int] = decided) -> bytes:
                decided.append(basis.attempt)
                driver.force_next_lock_fail()
                return b"x"

            with pytest.raises(waltz.LockConflict):
                await each.transact(1, decide, max_attempts=4)
            assert decided == [1, 2, 3, 4]
            with pytest.raises(ValueError, match="at least 1"):
                await each.transact(1, decide, max_attempts=0)
            with pytest.raises(TypeError, match="decide must return an Append, bytes or None, not 'text'"):
                await each.transact(1, lambda basis: "text")  # type: ignore[arg-type,return-value]
            with pytest.raises(TypeError, match="partition_id must be an integer"):
                await each.transact("1", decide)  # type: ignore[arg-type]
            with pytest.raises(waltz.PartitionNotFoundError):
                await each.transact(7, decide)
            with pytest.raises(ZeroDivisionError):
                await each.transact(1, lambda basis: b"%d" % (1 // 0))
            for raised in (waltz.ClientTimeoutError("of decide"), waltz.ClientClosedError(), TimeoutError("of decide")):

                def fail(basis: waltz.Basis, raised: Exception = raised) -> bytes:
                    raise raised

                with pytest.raises(type(raised)) as told:
                    await each.transact(1, fail)
                assert told.value is raised
        with pytest.raises(waltz.NotAppendedError, match="nothing was decided within 0.05 s"):
            await client.transact(1, lambda basis: asyncio.Event().wait(), timeout_s=0.05)  # type: ignore[arg-type,return-value]
        assert driver.partitions[1].high_water_mark == -1


async def test_what_may_be_committed_is_not_decided_again(drivers: list[MockDriver]) -> None:
    driver = drivers[0]
    async with waltz.connect(driver) as client, await waltz.open_client(Callbacks(), driver) as other:
        await client.append(0, b"1")
        await until(lambda: other.client_high_water_mark(0) == 0)
        for each in (client, other):
            decided: list[int] = []

            def decide(basis: waltz.Basis, decided: list[int] = decided) -> bytes:
                decided.append(basis.attempt)
                return b"1"

            driver.suspend_feed()
            before = driver.partitions[0].high_water_mark
            with pytest.raises(waltz.OutcomeUnknownError, match="within 3 s.*; the transaction was sent and may be"):
                await each.transact(0, decide, timeout_s=3.0)
            cancelled = asyncio.create_task(each.transact(0, decide))
            await until(lambda before=before: driver.partitions[0].high_water_mark == before + 2)  # type: ignore[misc]
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await cancelled
            assert "whether it is committed is not known" in raised.value.__notes__[0]
            driver.resume_feed()
            await until(lambda before=before: other.client_high_water_mark(0) == before + 2)  # type: ignore[misc]
            assert decided == [1, 1]


async def test_what_got_lost_is_attempted_until_the_deadline_whatever_the_policy_of_contexts(
    drivers: list[MockDriver],
) -> None:
    driver = drivers[0]
    driver.silent_faults = False
    once = waltz.ClientOptions(retry_policy=waltz.RetryPolicy(max_attempts=1))
    async with (
        waltz.connect(driver, options=once) as client,
        await waltz.open_client(Callbacks(), driver, options=once) as other,
    ):
        driver.force_next_append_fail()
        assert await client.append(0, b"a") == 0
        for each in (client, other):
            driver.force_next_append_fail()
            assert await each.transact(0, lambda basis: b"x") is not None
    assert driver.partitions[0].high_water_mark == 2


async def test_what_got_lost_and_is_not_attempted_again_is_not_taken_for_nothing(drivers: list[MockDriver]) -> None:
    driver = drivers[0]
    driver.silent_faults = False
    async with (
        waltz.connect(driver, num_transaction_retry_threads=0) as client,
        await waltz.open_client(Callbacks(), driver, num_transaction_retry_threads=0) as other,
    ):
        for each in (client, other):
            driver.force_next_append_fail()
            with pytest.raises(waltz.NotAppendedError, match="got lost, and client.numTransactionRetryThreads is 0"):
                await each.transact(0, lambda basis: b"x")
            driver.force_next_lock_fail()
            with pytest.raises(waltz.LockConflict):
                await each.transact(0, lambda basis: b"x", max_attempts=1)
            assert await each.transact(0, lambda basis: None) is None
    assert driver.partitions[0].high_water_mark == -1


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_decision_that_nobody_waits_for_any_more_holds_up_no_other(
    drivers: list[MockDriver], cancelled: bool
) -> None:
    driver = drivers[0]
    deciding, ended = asyncio.Event(), asyncio.Event()

    async def decide(basis: waltz.Basis) -> bytes:
        if basis.attempt == 2:
            deciding.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return b"x"

    async with waltz.open_client(Callbacks(), driver) as client:
        driver.force_next_lock_fail()
        transacting = asyncio.create_task(client.transact(0, decide, timeout_s=60.0 if cancelled else 1.0))
        await deciding.wait()
        if cancelled:
            transacting.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else waltz.NotAppendedError):
            await transacting
        await ended.wait()
        driver.force_next_lock_fail()
        assert await client.transact(0, lambda basis: b"%d" % basis.attempt) == 0
        assert not client.has_pending_transactions()
    assert driver.partitions[0].transactions[0].data == b"2"


async def test_closing_ends_it(drivers: list[MockDriver]) -> None:
    driver = drivers[0]
    client = await waltz.open_client(Callbacks(), driver)
    driver.suspend_feed()
    transacting = asyncio.create_task(client.transact(0, lambda basis: b"x"))
    await until(lambda: driver.partitions[0].high_water_mark == 0)
    await client.close()
    with pytest.raises(waltz.OutcomeUnknownError, match="the client is closed"):
        await transacting
    with pytest.raises(waltz.ClientClosedError):
        await client.transact(0, lambda basis: b"x")


def test_a_blocking_decision_is_made_on_the_thread_of_the_caller(drivers: list[MockDriver]) -> None:
    with waltz.blocking.connect(drivers[0]) as client:

        def decide(basis: waltz.Basis) -> bytes:
            return b"%d" % (client.high_water_mark(0) + 2)  # a blocking call, which the loop's thread could not make

        assert client.transact(0, decide) == 0
        assert client.transact(0, decide, reads_log=True) == 1

        async def later(basis: waltz.Basis) -> bytes:
            return b"x"

        with pytest.raises(TypeError, match="decide must return an Append, bytes or None"):
            client.transact(0, later)  # type: ignore[arg-type]
        feed = client.feed(0, after=-1)
        for transaction in feed:
            if transaction.transaction_id == 1:
                assert client.transact(0, lambda basis: b"%d" % (basis.high_water_mark + 2), feed=feed) == 2
                break
    checked(drivers[0], 3)


@pytest.mark.parametrize("later", [False, True])
async def test_a_serializer_of_a_client_with_callbacks_is_for_its_decisions(
    drivers: list[MockDriver], later: bool
) -> None:
    def decided(value: object) -> Callable[[waltz.Basis], object]:
        async def decide_later(basis: waltz.Basis) -> object:
            return value

        return decide_later if later else lambda basis: value

    serializer = waltz.JsonSerializer()
    async with waltz.open_client(Callbacks(), drivers[0], serializer=serializer) as client:
        first = await client.transact(0, decided({"amount": 10}))
        second = await client.transact(0, decided(waltz.Append({"amount": 11}, header=3, append_locks=[COUNTER])))
        assert await client.transact(0, decided(None)) is None
        with pytest.raises(TypeError, match="not JSON serializable"):
            await client.transact(0, decided(b"bytes"))
    assert (first, second) == (0, 1)
    stored = drivers[0].partitions[0].transactions
    assert [(each.data, each.header) for each in stored] == [(b'{"amount":10}', 0), (b'{"amount":11}', 3)]
    async with waltz.open_client(Callbacks(), drivers[1]) as client:
        with pytest.raises(TypeError, match="must return an Append, bytes or None"):
            await client.transact(0, decided({"amount": 12}))
