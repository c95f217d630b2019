"""Applying the feed: order, failures of callbacks, back pressure."""

import asyncio
import dataclasses

import pytest

from tests.unit.client.application import QUICK, AsyncCallbacks, AsyncContext, Callbacks, Context, World
from tests.unit.client.fake_server import until
from waltz.client.transaction import Transaction
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import FeedRequest

pytestmark = pytest.mark.timeout(60)


class FailingOnce(Callbacks):
    """Fails to apply every transaction the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[int] = set()

    def apply_transaction(self, transaction: Transaction) -> None:
        if transaction.transaction_id not in self.failed:
            self.failed.add(transaction.transaction_id)
            raise ValueError("no")
        self.record(transaction)


class FailingOnceLater(Callbacks):
    """An async variant, whose error hook fails as well."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[int] = set()

    async def apply_transaction(self, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        if transaction.transaction_id not in self.failed:
            self.failed.add(transaction.transaction_id)
            raise ValueError("no")
        self.record(transaction)

    async def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.uncaught.append((partition_id, transaction_id, error))
        raise RuntimeError("the error hook fails")


@pytest.mark.parametrize("kind", [FailingOnce, FailingOnceLater])
@pytest.mark.parametrize("context_kind", [Context, AsyncContext])
async def test_fifty_transactions_that_each_fail_once_are_all_applied(
    world: World, kind: type[FailingOnce | FailingOnceLater], context_kind: type[Context]
) -> None:
    server = await world.server()
    callbacks = kind()
    client = await world.client(callbacks, server)
    contexts = [context_kind(events=callbacks.events) for _ in range(50)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))
    assert callbacks.applied == {0: list(range(50))}
    assert [(partition, transaction) for partition, transaction, _ in callbacks.uncaught] == [(0, i) for i in range(50)]
    assert all(context.events == [("completed", True), "applied"] for context in contexts)
    assert len(server.of(FeedRequest)) == 1, "the connection was not disturbed"


@pytest.mark.parametrize("kind", [Context, AsyncContext])
async def test_contexts_that_fail_do_not_stop_the_feed(world: World, kind: type[Context]) -> None:
    class Failing(kind):  # type: ignore[misc, valid-type]  # plain and async alike
        def note(self, event: object) -> None:
            super().note(event)
            raise ValueError(str(event))

    server = await world.server()
    callbacks = Callbacks()
    client = await world.client(callbacks, server)
    contexts = [Failing() for _ in range(3)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: callbacks.applied.get(0) == [0, 1, 2] and len(callbacks.uncaught) == 6)
    assert all(context.events == [("completed", True), "applied"] for context in contexts)
    assert [transaction for _, transaction, _ in callbacks.uncaught] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", [Context, AsyncContext])
async def test_contexts_that_fail_outside_of_the_feed_are_only_logged(world: World, kind: type[Context]) -> None:
    class Failing(kind):  # type: ignore[misc, valid-type]  # plain and async alike
        def note(self, event: object) -> None:
            super().note(event)
            raise ValueError(str(event))

    client = await world.client(Callbacks(), await world.server())
    context = Failing(partition_id=0)
    context.attempts = 0
    with pytest.raises(ValueError, match="completed"):
        await client.submit(context)
    assert [type(event) for event in context.events] == [tuple, ValueError]


async def test_an_application_that_cancels_itself_has_failed(world: World) -> None:
    class Cancelling(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if not self.uncaught:
                raise asyncio.CancelledError
            self.record(transaction)

    server = await world.server()
    callbacks = Cancelling()
    await world.client(callbacks, server)
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0]})
    assert [type(error) for _, _, error in callbacks.uncaught] == [asyncio.CancelledError]


async def test_partitions_are_applied_concurrently_up_to_the_limit(wide_world: World) -> None:
    active: set[int] = set()
    most = 0
    go_on = asyncio.Event()

    class Counting(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            nonlocal most
            assert transaction.partition_id not in active
            active.add(transaction.partition_id)
            most = max(most, len(active))
            await go_on.wait()
            active.remove(transaction.partition_id)
            self.record(transaction)

    server = await wide_world.server()
    callbacks = Counting()
    await wide_world.client(callbacks, server, numConsumerThreads=2)
    for _ in range(5):
        for partition_id in range(3):
            server.commit(partition_id)
    await until(lambda: len(active) == 2)
    go_on.set()
    await until(lambda: callbacks.applied == {p: list(range(5)) for p in range(3)})
    assert most == 2


async def test_a_slow_application_stops_the_reading_and_catches_up(wide_world: World) -> None:
    go_on = asyncio.Event()

    class Slow(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if transaction.partition_id == 0:
                await go_on.wait()
            self.record(transaction)

    for _ in range(20_000):
        wide_world.logs[0].add(b"")
    server = await wide_world.server()
    callbacks = Slow()
    options = dataclasses.replace(QUICK, feed_queue_high=100, feed_queue_low=10)
    client = await wide_world.client(callbacks, server, options=options)
    feed = client._engine.partitions[0].feed
    link = client._engine.partitions[0].mount.link
    assert link is not None
    await until(lambda: link._paused_by)
    assert feed.backlog < 20_000, "one read of the socket at most is taken after the limit"
    go_on.set()
    await until(lambda: callbacks.applied.get(0) == list(range(20_000)))
    assert not link._paused_by
    await client.flush_transactions()


async def test_a_slow_application_is_not_fed_more_than_promised(world: World) -> None:
    go_on = asyncio.Event()

    class Slow(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await go_on.wait()
            self.record(transaction)

    server = await world.server()
    callbacks = Slow()
    options = dataclasses.replace(QUICK, feed_queue_high=1000, feed_queue_low=10)
    client = await world.client(callbacks, server, options=options)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    for _ in range(250):
        server.commit(0)
    feed = client._engine.partitions[0].feed
    await until(lambda: feed.received == 99)
    mark = await client.high_water_mark(0)
    assert mark == 249
    assert len(server.of(FeedRequest)) == 1
    go_on.set()
    await until(lambda: callbacks.applied.get(0) == list(range(250)))
    await until(lambda: len(server.of(FeedRequest)) == 3)
    first, second, third = (message for message in server.of(FeedRequest) if isinstance(message, FeedRequest))
    assert (first.client_high_water_mark, second.client_high_water_mark, third.client_high_water_mark) == (-1, 99, 249)


async def test_what_is_queued_survives_a_reconnect_without_gaps_or_doubles(world: World) -> None:
    go_on = asyncio.Event()

    class Slow(AsyncCallbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await go_on.wait()
            self.record(transaction)

    server = await world.server()
    callbacks = Slow()
    client = await world.client(callbacks, server)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    for _ in range(10):
        server.commit(0)
    feed = client._engine.partitions[0].feed
    await until(lambda: feed.received == 9)
    server.stream().close()
    await until(lambda: len(server.connections) == 2)
    for _ in range(10):
        server.commit(0)
    go_on.set()
    await until(lambda: callbacks.applied.get(0) == list(range(20)))


async def test_a_failing_application_ends_with_the_client(world: World) -> None:
    class Failing(Callbacks):
        def apply_transaction(self, transaction: Transaction) -> None:
            raise ValueError("for ever")

    server = await world.server()
    callbacks = Failing()
    options = dataclasses.replace(QUICK, apply_retry_initial_s=1000.0, apply_retry_maximum_s=1000.0)
    client = await world.client(callbacks, server, options=options)
    server.commit(0)
    await until(lambda: len(callbacks.uncaught) == 1)
    await client.close()
    assert callbacks.applied == {}


async def test_an_application_that_hangs_is_cancelled_at_the_end(world: World) -> None:
    cancelled = asyncio.Event()

    class Hanging(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    server = await world.server()
    client = await world.client(Hanging(), server, options=dataclasses.replace(QUICK, close_grace_s=0.01))
    server.commit(0)
    await until(lambda: client._engine.partitions[0].feed.received == 0)
    await client.close()
    assert cancelled.is_set()


async def test_the_transaction_says_what_it_is(world: World) -> None:
    seen: list[Transaction] = []

    class Keeping(Callbacks):
        def apply_transaction(self, transaction: Transaction) -> None:
            seen.append(transaction)

    server = await world.server()
    await world.client(Keeping(), server)
    world.logs[0].add(b"x", ReqId.of(5, 6, 0, 7), -3)
    server.feed_all(0)
    await until(lambda: seen)
    transaction = seen[0]
    assert (transaction.transaction_id, transaction.header, transaction.partition_id) == (0, -3, 0)
    assert transaction.req_id == ReqId.of(5, 6, 0, 7)
    assert repr(transaction) == "Transaction(0, header=-3, ReqId(c:5,g:6,p:0,s:7))"
