"""The client against a server that speaks the real protocol: the life of transactions."""

import asyncio
import dataclasses
import functools

import pytest

from tests.unit.client.application import QUICK, AsyncCallbacks, AsyncContext, Callbacks, Context, World, assignment
from tests.unit.client.fake_server import Connection, until
from waltz.client.callbacks import WaltzClient
from waltz.client.errors import (
    ClientClosedError,
    ClientError,
    PartitionNotFoundError,
    TransactionTooLargeError,
)
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.ids import ReqId
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FlushRequest, HighWaterMarkRequest, LockFailure, Message

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("kind", [Callbacks, AsyncCallbacks])
@pytest.mark.parametrize("context_kind", [Context, AsyncContext])
async def test_a_transaction_is_committed_applied_and_told(
    world: World, kind: type[Callbacks], context_kind: type[Context]
) -> None:
    server = await world.server()
    callbacks = kind()
    client = await world.client(callbacks, server)
    contexts = [context_kind(str(i).encode(), header=i, events=callbacks.events) for i in range(20)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))
    assert callbacks.applied == {0: list(range(20))}
    assert [stored.data for stored in world.logs[0].transactions] == [str(i).encode() for i in range(20)]
    assert [stored.header for stored in world.logs[0].transactions] == list(range(20))
    assert client.client_high_water_mark(0) == 19
    assert not client.has_pending_transactions()
    for i in range(20):
        assert callbacks.events[3 * i : 3 * i + 3] == [("completed", True), ("apply", i), "applied"]


async def test_application_comes_after_the_high_water_mark(world: World) -> None:
    client = await world.client(Callbacks(), await world.server())
    marks: list[int] = []

    class Looking(Context):
        def on_application(self) -> None:
            marks.append(client.client_high_water_mark(0))

        def on_completion(self, committed: bool) -> None:
            marks.append(client.client_high_water_mark(0))

    for _ in range(2):
        await client.submit(Looking())
    await until(lambda: len(marks) == 4)
    assert marks == [-1, 0, 0, 1]


async def test_of_two_with_the_same_lock_the_first_commits_and_the_other_is_retried(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server)
    lock = PartitionLocalLock("account", 1)
    first, second, other = (
        Context(b"1", write=[lock]),
        Context(b"2", write=[lock]),
        Context(b"3", write=[PartitionLocalLock("account", 2)]),
    )
    await client.submit(first)
    await client.submit(second)
    await client.submit(other)
    await until(lambda: first.done and second.done and other.done)
    assert first.events == [("completed", True), "applied"]
    assert other.events == [("completed", True), "applied"]
    assert second.events == ["lock failure", ("completed", True), "applied"]
    assert second.executed == 2
    assert [stored.data for stored in world.logs[0].transactions] == [b"1", b"3", b"2"]
    retried = server.of(AppendRequest)[-1]
    assert isinstance(retried, AppendRequest)
    assert retried.client_high_water_mark >= 0
    assert len({message.req_id for message in server.of(AppendRequest)}) == 4


async def test_read_locks_do_not_exclude_each_other(world: World) -> None:
    client = await world.client(Callbacks(), await world.server())
    lock = PartitionLocalLock("account", 1)
    contexts = [Context(read=[lock]), Context(read=[lock]), Context(append=[lock]), Context(append=[lock])]
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))
    assert [context.executed for context in contexts] == [1, 1, 1, 1]


async def test_without_retries_a_lock_failure_completes_as_not_committed(world: World) -> None:
    client = await world.client(Callbacks(), await world.server(), numTransactionRetryThreads=0)
    lock = PartitionLocalLock("account", 1)
    first, second = Context(write=[lock]), Context(write=[lock])
    await client.submit(first)
    await client.submit(second)
    await until(lambda: first.done and second.done)
    assert second.events == ["lock failure", ("completed", False)]
    assert not client.has_pending_transactions()


async def test_an_execute_that_gives_up_completes_as_not_committed(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server)
    for context in (Context(attempts=0), AsyncContext(attempts=0)):
        await client.submit(context)
        assert context.events == [("completed", False)]
    assert server.of(AppendRequest) == []
    assert not client.has_pending_transactions()


async def test_errors_of_execute_are_told_and_raised(world: World) -> None:
    client = await world.client(Callbacks(), await world.server())

    class Failing(Context):
        def fill(self, builder: object) -> bool:
            raise KeyError("no such account")

    class FailingLater(AsyncContext):
        def fill(self, builder: object) -> bool:
            raise KeyError("no such account")

    for context in (Failing(), FailingLater()):
        with pytest.raises(KeyError):
            await client.submit(context)
        assert [type(event) for event in context.events] == [KeyError]
    assert not client.has_pending_transactions()


async def test_what_cannot_be_sent_is_refused(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server, maxTransactionSize=10)

    class NoData(Context):
        def fill(self, builder: object) -> bool:
            return True

    class NoAnswer(Context):
        def execute(self, builder: object) -> None:  # type: ignore[override]  # the mistake under test
            return None

    for context, error in (
        (NoData(), ClientError),
        (NoAnswer(), TypeError),
        (Context(b"x" * 11), TransactionTooLargeError),
        (Context(partition_id=1), PartitionNotFoundError),
        (Context(partition_id=-1), PartitionNotFoundError),
    ):
        with pytest.raises(error):
            await client.submit(context)
        assert [type(event) for event in context.events] == [error]
    assert server.of(AppendRequest) == []
    fits = Context(b"x" * 10)
    await client.submit(fits)
    await until(lambda: fits.done)


@pytest.mark.parametrize("concurrent", [1, 5])
async def test_no_more_than_the_configured_number_is_in_flight(world: World, concurrent: int) -> None:
    server = await world.server()
    held = server.hold(AppendRequest)
    client = await world.client(Callbacks(), server, maxConcurrentTransactions=concurrent)
    contexts = [Context(str(i).encode()) for i in range(20)]
    tasks = [asyncio.create_task(client.submit(context)) for context in contexts]
    for released in range(20):
        await until(functools.partial(lambda count: len(held) == count, min(20, released + concurrent)))
        await until(lambda: sum(context.executed for context in contexts) == len(held))
        server.handle(*held[released])
    await asyncio.gather(*tasks)
    await until(lambda: all(context.done for context in contexts))
    assert [stored.data for stored in world.logs[0].transactions] == [str(i).encode() for i in range(20)]


async def test_a_failed_transaction_keeps_its_place_until_it_is_decided(world: World) -> None:
    server = await world.server()
    refused = 0

    def refuse(connection: Connection, message: Message) -> bool:
        nonlocal refused
        if isinstance(message, AppendRequest) and message.data == b"unlucky" and refused < 5:
            refused += 1
            connection.send(LockFailure(message.req_id, -1))
            return True
        return False

    server.filter = refuse
    client = await world.client(Callbacks(), server, maxConcurrentTransactions=1)
    unlucky, next_one = Context(b"unlucky"), Context(b"next")
    await client.submit(unlucky)
    assert client.has_pending_transactions()
    await client.submit(next_one)
    await until(lambda: next_one.done)
    assert unlucky.events == ["lock failure"] * 5 + [("completed", True), "applied"]
    assert [stored.data for stored in world.logs[0].transactions] == [b"unlucky", b"next"]


async def test_all_with_one_lock_commit_eventually(world: World) -> None:
    server = await world.server()
    callbacks = [Callbacks(), Callbacks(), AsyncCallbacks()]
    clients = [await world.client(each, server) for each in callbacks]
    lock = PartitionLocalLock("hot", 0)
    contexts = [Context(f"{i} {j}".encode(), write=[lock]) for i in range(3) for j in range(20)]
    async with asyncio.TaskGroup() as group:
        for number, context in enumerate(contexts):
            group.create_task(clients[number % 3].submit(context))
    await until(lambda: all(context.done for context in contexts))
    assert sorted(stored.data for stored in world.logs[0].transactions) == sorted(c.data for c in contexts)
    await until(lambda: all(each.applied == {0: list(range(60))} for each in callbacks))


async def test_flush_waits_for_the_decision_of_what_was_sent(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server)
    contexts = [Context(attempts=1) for _ in range(3)]
    lost = [contexts[1]]
    server.filter = lambda connection, message: isinstance(message, AppendRequest) and message.data == b"lost"
    contexts[2].data = b"lost"
    for context in contexts:
        await client.submit(context)
    await client.flush_transactions()
    await until(lambda: all(context.done for context in contexts))
    assert contexts[2].events == [("completed", False)]
    assert lost[0].events == [("completed", True), "applied"]
    await client.flush_transactions()


async def test_a_cancelled_submit_gives_its_place_back(world: World) -> None:
    client = await world.client(Callbacks(), await world.server(), maxConcurrentTransactions=1)
    started = asyncio.Event()

    class Slow(Context):
        async def execute(self, builder: object) -> bool:
            started.set()
            await asyncio.Event().wait()
            return True

    task = asyncio.create_task(client.submit(Slow()))
    await started.wait()
    waiting = asyncio.create_task(client.submit(Context(b"never")))
    await asyncio.sleep(0)
    waiting.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):
        await waiting
    after = Context(b"after")
    await client.submit(after)
    await until(lambda: after.done)
    assert not client.has_pending_transactions()


async def test_close_fails_everything_that_is_pending(world: World) -> None:
    server = await world.server()
    lock = PartitionLocalLock("lock", 0)

    def refuse(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and message.write_locks:
            connection.send(LockFailure(message.req_id, -1))
        return isinstance(message, AppendRequest | FlushRequest | HighWaterMarkRequest)

    server.filter = refuse
    client = await world.client(Callbacks(), server, maxConcurrentTransactions=2)
    in_flight, retried, waiting = Context(b"in flight"), Context(b"retried", write=[lock]), Context(b"waiting")
    await client.submit(in_flight)
    await client.submit(retried)
    task = asyncio.create_task(client.submit(waiting))
    flushing = asyncio.create_task(client.flush_transactions())
    mark = asyncio.create_task(client.high_water_mark(0))
    await until(lambda: retried.executed > 3)
    await client.close()
    for future in (task, flushing, mark):
        with pytest.raises(ClientClosedError):
            await future
    assert isinstance(in_flight.events[-1], ClientClosedError)
    assert isinstance(retried.events[-1], ClientClosedError)
    assert isinstance(waiting.events[-1], ClientClosedError)
    late = Context()
    with pytest.raises(ClientClosedError):
        await client.submit(late)
    assert isinstance(late.events[-1], ClientClosedError)
    with pytest.raises(ClientClosedError):
        await client.flush_transactions()
    with pytest.raises(ClientClosedError):
        await client.high_water_mark(0)
    await client.close()


async def test_close_during_an_application_lets_it_end(world: World) -> None:
    server = await world.server()
    started, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Callbacks):
        async def apply_transaction(self, transaction: object) -> None:
            started.set()
            await go_on.wait()
            self.events.append("done")

    callbacks = Slow()
    client = await world.client(callbacks, server)
    server.commit(0)
    await started.wait()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert callbacks.events == ["done"]


async def test_close_from_within_an_application(world: World) -> None:
    server = await world.server()
    closed = asyncio.Event()
    clients: list[WaltzClient] = []

    class Closing(Callbacks):
        async def apply_transaction(self, transaction: object) -> None:
            await clients[0].close()
            closed.set()

    clients.append(await world.client(Closing(), server))
    server.commit(0)
    async with asyncio.timeout(60):
        await closed.wait()


class Never(Callbacks):
    """Applies nothing: fails at once, or takes for ever."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    async def apply_transaction(self, transaction: Transaction) -> None:
        if self.how == "slow":
            await asyncio.Event().wait()
        raise OSError("the database is away")


@pytest.mark.parametrize("how", ["failing", "slow"])
async def test_close_tells_who_is_committed_and_not_applied(world: World, how: str) -> None:
    client = await world.client(Never(how), await world.server())
    context = Context()
    await client.submit(context)
    await until(lambda: context.events)
    await client.close()
    committed, end = context.events
    assert committed == ("completed", True)
    assert isinstance(end, ClientClosedError)


async def test_close_that_is_cancelled_goes_on(world: World) -> None:
    """Another call waits for its end; one of a callback that is waited for itself returns at once."""
    server = await world.server()
    started, go_on = asyncio.Event(), asyncio.Event()
    clients: list[WaltzClient] = []

    class Slow(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            started.set()
            await go_on.wait()
            await clients[0].close()
            self.record(transaction)

    callbacks = Slow()
    client = await world.client(callbacks, server, options=dataclasses.replace(QUICK, close_grace_s=60.0))
    clients.append(client)
    applied, undecided = Context(), Context()
    await client.submit(applied)
    await started.wait()
    server.hold(AppendRequest, FlushRequest)
    await client.submit(undecided)
    for _ in range(2):
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    closing = asyncio.create_task(client.close())
    go_on.set()
    await closing
    assert applied.events == [("completed", True), "applied"]
    (end,) = undecided.events
    assert isinstance(end, ClientClosedError)
    await until(lambda: all(connection.lost for connection in server.connections))


async def test_close_from_within_the_application_of_ones_own(world: World) -> None:
    """It is told that it was applied if it was."""
    clients: list[WaltzClient] = []

    class Closing(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await clients[0].close()
            self.record(transaction)

    clients.append(await world.client(Closing(), await world.server()))
    context = Context()
    await clients[0].submit(context)
    await until(lambda: len(context.events) == 2)
    assert context.done


async def test_an_application_that_closes_and_fails_then(world: World) -> None:
    clients: list[WaltzClient] = []

    class Closing(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await clients[0].close()
            raise OSError("the database is away")

    clients.append(await world.client(Closing(), await world.server()))
    context = Context()
    await clients[0].submit(context)
    await until(lambda: len(context.events) == 2)
    assert isinstance(context.events[1], ClientClosedError)


async def test_request_ids_bear_client_generation_and_partition(wide_world: World) -> None:
    server = await wide_world.server()
    client = await wide_world.client(Callbacks(), server, client_id=17)
    client._engine.set_endpoints({server.endpoint: assignment([0, 1, 2], generation=4)})
    contexts = [Context(partition_id=p) for p in (0, 1, 2)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))
    for partition_id, message in enumerate(server.of(AppendRequest)):
        req_id = ReqId(message.req_id)
        assert (req_id.client_id, req_id.generation, req_id.partition_id) == (17, 4, partition_id)


async def test_the_properties_of_a_client(wide_world: World) -> None:
    client = await wide_world.client(Callbacks(), client_id=5, autoMount=False)
    assert (client.client_id, client.cluster_name, client.partition_count) == (5, "test", 3)
    assert client.partitions == frozenset()
    with pytest.raises(PartitionNotFoundError):
        client.client_high_water_mark(3)
