"""Leaving partitions and joining them again, whatever interrupts it."""

import asyncio
import dataclasses

import pytest

from tests.unit.client.application import QUICK, AsyncCallbacks, Callbacks, Context, World, assignment
from tests.unit.client.fake_server import Connection, FakeServer, until
from waltz.client.callbacks import WaltzClient
from waltz.client.errors import ClientTimeoutError, PartitionInactiveError
from waltz.client.transaction import Transaction
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FlushRequest, Message, MountRequest

pytestmark = pytest.mark.timeout(60)

Held = list[tuple[Connection, Message]]


class Gated(Callbacks):
    """Applies the first two transactions of a partition at once, the others when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def apply_transaction(self, transaction: Transaction) -> None:
        if transaction.transaction_id >= 2:
            await self.gate.wait()
        self.record(transaction)


async def leave_in_vain(client: WaltzClient, server: FakeServer, context: Context) -> Held:
    """Submit, and give leaving up while that is undecided; returns the messages that the server has not looked at."""
    held = server.hold(FlushRequest, AppendRequest)
    await client.submit(context)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client.set_partitions(set())
    return held


def let_go(server: FakeServer, held: Held) -> None:
    """Have the server look at what it has not looked at, and at all that comes."""
    server.filter = lambda connection, message: False
    for connection, message in held:
        server.handle(connection, message)


@pytest.mark.parametrize("interrupted", ["by its own limit", "by the caller"])
async def test_joining_again_after_leaving_was_interrupted(world: World, interrupted: str) -> None:
    by_caller = interrupted == "by the caller"
    options = dataclasses.replace(QUICK, flush_timeout_s=60.0 if by_caller else 0.05)
    server = await world.server()
    callbacks = Gated()
    client = await world.client(callbacks, server, options=options, autoMount=False)
    await client.set_partitions({0})
    first = Context()
    await client.submit(first)
    await until(lambda: first.done)
    for number in range(6):
        world.logs[0].add(b"%d" % number)
    server.feed_all(0)
    await until(lambda: callbacks.applied.get(0) == [0, 1])
    held = server.hold(AppendRequest, FlushRequest)
    undecided = Context()
    await client.submit(undecided)
    if by_caller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.set_partitions(set())
    else:
        with pytest.raises(ClientTimeoutError):
            await client.set_partitions(set())
    assert client.partitions == frozenset()
    rejoining = asyncio.create_task(client.set_partitions({0}))
    await asyncio.sleep(0.01)
    callbacks.gate.set()
    await rejoining
    let_go(server, held)
    await until(lambda: undecided.done)
    world.logs[0].add(b"late")
    server.feed_all(0)
    last = world.logs[0].high_water_mark
    await until(lambda: client.client_high_water_mark(0) == last)
    assert callbacks.applied[0] == list(range(last + 1))


async def test_leaving_is_interrupted_while_a_transaction_is_applied(world: World) -> None:
    server = await world.server()
    callbacks = Gated()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    for _ in range(5):
        server.commit(0)
    await until(lambda: callbacks.applied.get(0) == [0, 1])
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.set_partitions(set())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.set_partitions({0})
        server.commit(0)
    callbacks.gate.set()
    await client.set_partitions({0})
    await until(lambda: callbacks.applied == {0: list(range(8))})


async def test_a_partition_that_moves_while_it_is_joined_again(wide_world: World) -> None:
    """The new owner feeds the partition from the mark of the new mount, not from behind the transactions received
    before."""
    old = await wide_world.server([0, 1])
    new = await wide_world.server([])
    callbacks = Gated()
    client = await wide_world.client(callbacks, old, new, autoMount=False)
    await client.set_partitions({0})
    first = Context()
    await client.submit(first)
    await until(lambda: first.done)
    for _ in range(4):
        old.commit(0)
    await client.high_water_mark(0)
    assert callbacks.applied == {0: [0, 1]}
    old.hold(AppendRequest, FlushRequest)
    undecided = Context()
    await client.submit(undecided)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client.set_partitions(set())
    rejoining = asyncio.create_task(client.set_partitions({0}))
    await asyncio.sleep(0.01)
    new.owned.add(0)
    client._engine.set_endpoints({old.endpoint: assignment([1]), new.endpoint: assignment([0], generation=2)})
    await asyncio.sleep(0.01)
    assert new.of(MountRequest) == []
    callbacks.gate.set()
    await rejoining
    await until(lambda: undecided.done)
    (mount,) = new.of(MountRequest)
    assert isinstance(mount, MountRequest)
    assert mount.client_high_water_mark == 2
    assert callbacks.applied[0] == list(range(6))


async def test_a_feed_that_arrives_while_the_mark_is_being_read(world: World) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Asking(AsyncCallbacks):
        async def client_high_water_mark(self, partition_id: int) -> int:
            mark = self.marks.get(partition_id, -1)
            if mark >= 0:
                asked.set()
                await answer.wait()
            return mark

    server = await world.server()
    callbacks = Asking()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0]})
    held = await leave_in_vain(client, server, Context())
    rejoining = asyncio.create_task(client.set_partitions({0}))
    await asked.wait()
    for _ in range(3):
        server.commit(0)
    await until(lambda: world.logs[0].high_water_mark == 3)
    await client.high_water_mark(0)
    answer.set()
    await rejoining
    let_go(server, held)
    await until(lambda: callbacks.applied == {0: [0, 1, 2, 3, 4]})
    assert len(server.of(MountRequest)) == 2


async def test_one_partition_that_cannot_be_left_does_not_leave_another_one_later(wide_world: World) -> None:
    """Leaving ends for all partitions together: what is left late would be left after it was joined again."""
    options = dataclasses.replace(QUICK, flush_timeout_s=0.05)
    gate = asyncio.Event()

    class Slow(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if transaction.partition_id == 1:
                await gate.wait()
            self.record(transaction)

    server = await wide_world.server()
    callbacks = Slow()
    client = await wide_world.client(callbacks, server, options=options, autoMount=False)
    await client.set_partitions({0, 1})
    server.commit(1)
    held = server.hold(AppendRequest, FlushRequest)
    await client.submit(Context(partition_id=0))
    leaving = asyncio.create_task(client.set_partitions(set()))
    await asyncio.sleep(0.2)
    assert not leaving.done(), "partition 1 is still applying"
    gate.set()
    with pytest.raises(ClientTimeoutError):
        await leaving
    await client.set_partitions({0, 1})
    let_go(server, held)
    server.commit(1)
    await until(lambda: callbacks.applied.get(1) == [0, 1] and callbacks.applied.get(0) == [0])


@pytest.mark.parametrize("how", ["failed", "given up"])
async def test_leaving_after_joining_again_has_come_to_nothing(world: World, how: str) -> None:
    """What is undecided since the first time it was left needs the feed that joining again has stopped."""
    asked = asyncio.Event()

    class Asking(AsyncCallbacks):
        async def client_high_water_mark(self, partition_id: int) -> int:
            if not self.applied:
                return -1
            asked.set()
            if how == "failed":
                raise OSError("the database is away")
            await asyncio.Event().wait()
            raise AssertionError

    server = await world.server()
    callbacks = Asking()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0]})
    undecided = Context()
    held = await leave_in_vain(client, server, undecided)
    rejoining = asyncio.create_task(client.set_partitions({0}))
    await asked.wait()
    if how == "given up":
        rejoining.cancel()
    with pytest.raises(OSError if how == "failed" else asyncio.CancelledError):
        await rejoining
    let_go(server, held)
    await client.set_partitions(set())
    assert undecided.done
    assert callbacks.applied == {0: [0, 1]}
    assert client.partitions == frozenset()


async def test_an_undecided_append_that_another_instance_has_applied(world: World) -> None:
    """Instances that share a database move its mark together: the feed from there on does not show the append."""
    server = await world.server()
    callbacks = Callbacks()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0]})
    undecided = Context(data=b"once")
    await leave_in_vain(client, server, undecided)
    await until(lambda: server.of(AppendRequest))
    (request,) = server.of(AppendRequest)
    assert isinstance(request, AppendRequest)
    world.logs[0].append(request)
    world.logs[0].add(b"of the other instance")
    callbacks.marks[0] = 2
    let_go(server, [])
    await client.set_partitions({0})
    assert undecided.events == [("completed", True), "applied"]
    server.commit(0)
    await until(lambda: client.client_high_water_mark(0) == 3)
    assert callbacks.applied == {0: [0, 3]}
    assert [stored.data for stored in world.logs[0].transactions].count(b"once") == 1


async def test_a_partition_is_joined_at_a_later_mark_when_all_is_decided(world: World) -> None:
    server = await world.server()
    callbacks = Callbacks()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0]})
    undecided = Context()
    held = await leave_in_vain(client, server, undecided)
    callbacks.marks[0] = 1
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.set_partitions({0})
        assert client.partitions == frozenset()
    let_go(server, held)
    await client.set_partitions({0})
    assert undecided.done
    server.commit(0)
    await until(lambda: callbacks.applied == {0: [0, 2]})


@pytest.mark.parametrize("how", ["left", "joined again after leaving was given up"])
async def test_who_is_committed_and_not_applied_is_told_when_its_partition_is_left(world: World, how: str) -> None:
    class Failing(Callbacks):
        fails = True

        def apply_transaction(self, transaction: Transaction) -> None:
            if self.fails:
                raise OSError("the database is away")
            self.record(transaction)

    server = await world.server()
    callbacks = Failing()
    client = await world.client(callbacks, server, autoMount=False)
    await client.set_partitions({0})
    context = Context()
    await client.submit(context)
    await until(lambda: context.events)
    undecided = Context()
    if how == "left":
        await client.set_partitions(set())
    else:
        held = await leave_in_vain(client, server, undecided)
        assert context.events == [("completed", True)]
        let_go(server, held)
    callbacks.fails = False
    await client.set_partitions({0})
    await until(lambda: callbacks.applied)
    _, end = context.events
    assert isinstance(end, PartitionInactiveError)
