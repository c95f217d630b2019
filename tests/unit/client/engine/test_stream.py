"""Mounting, feeding, reconnecting and moving partitions: the messages themselves."""

import asyncio
import dataclasses
import functools
from collections.abc import Callable

import pytest

from tests.unit.client.application import QUICK, AsyncCallbacks, Callbacks, Context, World, assignment
from tests.unit.client.fake_server import Connection, Log, until
from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.errors import (
    ClientAheadError,
    ClientTimeoutError,
    InvalidOperationError,
    PartitionInactiveError,
)
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common import tasks
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.net.channel import MIN_EARLY_FRAMES
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    LockFailure,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    ServerPartitionsAssignmentRequest,
    TransactionDataRequest,
)

pytestmark = pytest.mark.timeout(60)

LOCK = PartitionLocalLock("account", 1)


def rid(seq_num: int, *, client: int = 1, generation: int = 1, partition: int = 0) -> ReqId:
    return ReqId.of(client, generation, partition, seq_num)


def short(messages: list[Message]) -> list[Message]:
    """Appends without what the test does not look at."""
    return [m._replace(data=b"", checksum=0, header=0) if isinstance(m, AppendRequest) else m for m in messages]


async def test_fresh_mount_and_append(world: World) -> None:
    for i in range(10):
        world.logs[0].add(str(i).encode())
    server = await world.server()
    callbacks = Callbacks()
    client = await world.client(callbacks, server)
    context = Context(write=[LOCK])
    await client.submit(context)
    await until(lambda: context.done)
    for _ in range(99):
        server.commit(0)
    await until(lambda: len(server.of(FeedRequest)) == 2)
    assert short(server.stream().received) == [
        MountRequest(rid(1), -1, 0),
        FeedRequest(rid(1), 9),
        AppendRequest(rid(2), 9, (LOCK.hash,), (), (), 0, b"", 0),
        FeedRequest(rid(1), 109),
    ]
    assert callbacks.applied == {0: list(range(110))}


async def test_a_lock_failure_is_deferred_until_the_conflict_is_applied(world: World) -> None:
    log = world.logs[0]
    for _ in range(110):
        log.add(b"")
    server = await world.server()

    def act(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and message.req_id == rid(2):
            for _ in range(3):
                log.add(b"")
            log.locks[LOCK.hash] = 112
            connection.send(LockFailure(message.req_id, 112))
            return True
        return False

    server.filter = act
    callbacks = Callbacks({0: 109})
    client = await world.client(callbacks, server)
    context = Context(write=[LOCK])
    await client.submit(context)
    await until(lambda: context.events == ["lock failure"])
    assert context.executed == 1
    server.feed_all(0)
    await until(lambda: context.done)
    assert callbacks.applied[0] == [110, 111, 112, 113]
    assert short(server.stream().received) == [
        MountRequest(rid(1), 109, 0),
        FeedRequest(rid(1), 109),
        AppendRequest(rid(2), 109, (LOCK.hash,), (), (), 0, b"", 0),
        AppendRequest(rid(3), 112, (LOCK.hash,), (), (), 0, b"", 0),
    ]


async def test_connection_loss_with_one_committed_and_one_lost(world: World) -> None:
    log = world.logs[0]
    server = await world.server()
    callbacks = Callbacks()
    client = await world.client(callbacks, server)

    def act(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and message.req_id == rid(2):
            log.add(message.data, message.req_id)
            return True
        if isinstance(message, AppendRequest) and message.req_id == rid(3):
            connection.close()
            return True
        return False

    server.filter = act
    committed, lost = Context(b"committed"), Context(b"lost")
    await client.submit(committed)
    await client.submit(lost)
    await until(lambda: lost.done)
    assert short(server.stream().received) == [
        MountRequest(rid(4), -1, 1),
        FlushRequest(rid(3)),
        FeedRequest(rid(4), 0),
        AppendRequest(rid(5), 0, (), (), (), 0, b"", 0),
    ]
    assert server.stream().sent[:3] == [
        FeedData(rid(2), 0, 0),
        MountResponse(rid(4), PartitionState.READY),
        FlushResponse(rid(3), 0),
    ]
    assert committed.events == lost.events == [("completed", True), "applied"]
    assert (committed.executed, lost.executed) == (1, 2)
    assert callbacks.applied == {0: [0, 1]}


async def test_a_flush_answer_that_overtakes_the_feed_waits_for_it(world: World) -> None:
    log = world.logs[0]
    server = await world.server()
    client = await world.client(Callbacks(), server)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    held = server.hold(object)
    context = Context(attempts=1)
    await client.submit(context)
    flushing = asyncio.create_task(client.flush_transactions())
    await until(lambda: len(held) == 2)
    append, flush = (message for _, message in held)
    assert flush == FlushRequest(append.req_id)
    log.add(b"", append.req_id)
    server.stream().send(FlushResponse(append.req_id, 0))
    server.stream().send(FeedSuspended(rid(1)))  # is answered, which shows that what was sent before has been received
    await until(lambda: len(held) == 3)
    assert not flushing.done()
    assert context.events == []
    server.feed_all(0)
    await flushing
    assert context.events == [("completed", True), "applied"]


async def test_a_server_that_is_not_ready_is_asked_again(world: World) -> None:
    server = await world.server(owned=[])
    callbacks = Callbacks()
    client = await world.client(callbacks, server)
    client._engine.set_endpoints({server.endpoint: assignment([0])})
    await until(lambda: len(server.of(MountRequest)) == 3)
    server.owned.add(0)
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    mounts = server.of(MountRequest)
    assert len(server.connections) == 1
    assert len({message.req_id for message in mounts}) == len(mounts)


async def test_a_client_that_is_ahead_says_so_until_it_is_mounted_anew(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks({0: 5}), server)
    context = Context()
    with pytest.raises(ClientAheadError, match="client is ahead of store for partition: 0"):
        await client.submit(context)
    assert isinstance(context.events[0], ClientAheadError)
    with pytest.raises(ClientAheadError):
        await client.flush_transactions()
    for _ in range(6):
        world.logs[0].add(b"")
    server.stream().close()
    await until(lambda: len(server.of(FeedRequest)) == 1)
    await client.submit(context)
    await until(lambda: context.done)


async def test_a_client_that_was_taken_for_ahead_mounts_again_by_itself(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks({0: 5}), server)
    context = Context()
    with pytest.raises(ClientAheadError):
        await client.submit(context)
    for _ in range(6):
        world.logs[0].add(b"")
    await until(lambda: len(server.of(FeedRequest)) == 1)
    assert len(server.connections) == 1
    await client.submit(context)
    await until(lambda: context.done)


async def test_versions_without_partition_state_take_ahead_for_not_ready(world: World) -> None:
    server = await world.server(versions=(0, 1, 2))
    await world.client(Callbacks({0: 5}), server)
    await until(lambda: len(server.of(MountRequest)) >= 3)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_every_version(world: World, version: int) -> None:
    server = await world.server(versions=tuple(range(version + 1)))
    callbacks = Callbacks()
    client = await world.client(callbacks, server)
    context = Context(write=[LOCK])
    await client.submit(context)
    await until(lambda: context.done)
    channel = server.stream().channel
    assert channel is not None
    assert channel.version == version
    reader, appender = Context(read=[LOCK]), Context(append=[LOCK])
    for other, since in ((reader, 1), (appender, 2)):
        if version < since:
            with pytest.raises(ProtocolError, match="locks not supported"):
                await client.submit(other)
        else:
            await client.submit(other)
    last = Context()
    await client.submit(last)
    await until(lambda: last.done)
    assert not client.has_pending_transactions()
    assert len(server.connections) == 1


async def test_responses_of_other_sessions_and_wrong_transactions_are_ignored(world: World) -> None:
    server = await world.server()
    server.filter = lambda connection, message: isinstance(message, MountRequest)
    callbacks = Callbacks()
    await world.client(callbacks, server)
    await until(lambda: len(server.of(MountRequest)) == 1)
    connection = server.stream()
    connection.send(MountResponse(rid(77), PartitionState.READY))
    connection.send(FeedSuspended(rid(77)))
    connection.send(FeedData(rid(9, client=5), 1, 0))
    connection.send(FeedData(rid(9, client=5), 0, 0))
    connection.send(FeedData(rid(9, client=5), 0, 0))
    connection.send(LockFailure(rid(55), 0))
    connection.send(FlushResponse(rid(55), 7))
    connection.send(MountResponse(rid(1), PartitionState.READY))
    await until(lambda: len(server.of(FeedRequest)) == 1)
    assert server.of(FeedRequest) == [FeedRequest(rid(1), 0)]
    assert callbacks.applied == {0: [0]}


async def test_messages_that_are_not_for_clients_break_the_connection(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server)
    wrongs: tuple[Message, ...] = (
        FlushRequest(rid(1)),
        FeedData(rid(1, partition=1), 0, 0),
        FeedData(rid(1, partition=-1), 0, 0),
    )
    for number, wrong in enumerate(wrongs):
        await until(functools.partial(lambda count: len(server.of(FeedRequest)) == count, number + 1))
        server.stream().send(wrong)
    await until(lambda: len(server.of(FeedRequest)) == 4)
    assert [m.seq_num for m in server.of(MountRequest) if isinstance(m, MountRequest)] == [0, 1, 2, 3]
    await client.flush_transactions()


async def test_a_mount_that_is_never_answered_is_repeated_on_a_new_connection(world: World) -> None:
    server = await world.server()
    dropped = 0

    def drop(connection: Connection, message: Message) -> bool:
        nonlocal dropped
        if isinstance(message, MountRequest) and dropped < 2:
            dropped += 1
            return True
        return False

    server.filter = drop
    options = dataclasses.replace(QUICK, mount_timeout_s=0.02, mount_timeout_maximum_s=0.04)
    client = await world.client(Callbacks(), server, options=options)
    await client.flush_transactions()
    assert [m.seq_num for m in server.of(MountRequest) if isinstance(m, MountRequest)] == [0, 1, 2]


async def test_a_server_that_closes_after_the_hello_is_not_asked_in_a_tight_loop(world: World) -> None:
    server = await world.server()
    server.refuse_all()
    options = dataclasses.replace(QUICK, reconnect_initial_s=0.1, reconnect_maximum_s=30.0)
    client = await world.client(Callbacks(), server, options=options)
    await until(lambda: len(server.connections) == 2)
    loop = asyncio.get_running_loop()
    second_at_s = loop.time()
    await until(lambda: len(server.connections) == 3)
    assert loop.time() - second_at_s > 0.1
    await client.close()


async def test_a_partition_that_moves_is_followed(wide_world: World) -> None:
    old = await wide_world.server([0, 1, 2])
    new = await wide_world.server([])
    callbacks = Callbacks()
    client = await wide_world.client(callbacks, old, new)
    await until(lambda: len(old.of(FeedRequest)) == 3)
    old.filter = lambda connection, message: isinstance(message, AppendRequest)
    lost = Context(b"lost", partition_id=1)
    await client.submit(lost)
    await until(lambda: len(old.of(AppendRequest)) == 1)
    stale = old.stream()
    new.owned.add(1)
    client._engine.set_endpoints({old.endpoint: assignment([0, 2]), new.endpoint: assignment([1], generation=2)})
    await until(lambda: lost.done)
    append = old.of(AppendRequest)[0]
    assert short(new.stream().received)[:4] == [
        MountRequest(rid(3, generation=2, partition=1), -1, 0),
        FlushRequest(append.req_id),
        FeedRequest(rid(3, generation=2, partition=1), -1),
        AppendRequest(rid(4, generation=2, partition=1), -1, (), (), (), 0, b"", 0),
    ]
    assert lost.executed == 2
    # what the old server still says about the partition is not listened to
    stale.send(FeedData(rid(9, client=5, partition=1), 1, 0))
    old.commit(0)
    await until(lambda: callbacks.applied.get(0) == [0])
    assert callbacks.applied[1] == [0]
    assert len(old.connections) == 1


async def test_a_partition_that_is_being_left_is_followed_until_all_is_decided(wide_world: World) -> None:
    old = await wide_world.server([0, 1, 2])
    new = await wide_world.server([])
    client = await wide_world.client(Callbacks(), old, new, autoMount=False)
    await client.set_partitions({1})
    old.filter = lambda connection, message: isinstance(message, AppendRequest | FlushRequest)
    context = Context(b"lost with its server", partition_id=1)
    await client.submit(context)
    leaving = asyncio.create_task(client.set_partitions(set()))
    await until(lambda: len(old.of(FlushRequest)) > 0)
    client._engine.remove_server(old.endpoint)
    new.owned.add(1)
    client._engine.set_endpoints({new.endpoint: assignment([1], generation=2)})
    await leaving
    await until(lambda: len(context.events) == 1)
    assert isinstance(context.events[0], PartitionInactiveError), "it got lost, and there is no other attempt"
    assert len(new.of(MountRequest)) == 1
    client._engine.set_endpoints({old.endpoint: assignment([1], generation=3)})
    assert client._engine.partitions[1].mount.link is None, "it has been left, and nobody follows it any more"


async def test_a_server_that_is_removed_and_comes_back(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    client._engine.remove_server(server.endpoint)
    await until(lambda: server.stream().lost)
    client._engine.set_endpoints({server.endpoint: assignment([0], generation=2)})
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert [m.seq_num for m in server.of(MountRequest) if isinstance(m, MountRequest)] == [0, 1]


async def test_a_new_generation_remounts_at_once_and_fails_what_was_dropped(world: World) -> None:
    world.logs[0].generation = 2
    server = await world.server()
    client = await world.client(Callbacks(), server, longWaitThreshold=1_000_000)
    context = Context()
    await client.submit(context)
    await until(lambda: len(server.of(AppendRequest)) == 1)
    client._engine.set_endpoints({server.endpoint: assignment([0], generation=2)})
    await until(lambda: context.done)
    assert short(server.stream().received) == [
        MountRequest(rid(1), -1, 0),
        FeedRequest(rid(1), -1),
        AppendRequest(rid(2), -1, (), (), (), 0, b"", 0),
        MountRequest(rid(3, generation=2), -1, 0),
        FlushRequest(rid(2)),
        FeedRequest(rid(3, generation=2), -1),
        AppendRequest(rid(4, generation=2), -1, (), (), (), 0, b"", 0),
    ]
    # an older assignment that arrives late changes nothing
    client._engine.set_endpoints({server.endpoint: assignment([0], generation=1)})
    again = Context()
    await client.submit(again)
    await until(lambda: again.done)
    assert len(server.of(MountRequest)) == 2


async def test_a_generation_that_the_server_does_not_know_yet(world: World) -> None:
    log = world.logs[0]
    log.generation = 1
    server = await world.server()
    options = dataclasses.replace(QUICK, generation_flush_delays_s=(0.05, 0.1, 0.2))
    client = await world.client(Callbacks(), server, options=options, longWaitThreshold=1_000_000)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    client._engine.set_endpoints({server.endpoint: assignment([0], generation=2)})
    context = Context()
    await client.submit(context)
    await until(lambda: len(server.of(AppendRequest)) == 1)
    log.generation = 2
    await until(lambda: context.done)
    assert context.executed == 2


async def test_an_append_that_vanished_is_found_by_the_nudge(world: World) -> None:
    server = await world.server()
    server.hold(AppendRequest, count=1)
    client = await world.client(Callbacks(), server, longWaitThreshold=50)
    given_up, retried = Context(attempts=1), Context()
    await client.submit(given_up)
    await until(lambda: given_up.done)
    assert given_up.events == [("completed", False)]
    server.hold(AppendRequest, count=1)
    await client.submit(retried)
    await until(lambda: retried.done)
    assert retried.executed == 2


async def test_a_full_partition_is_flushed_so_that_vanished_appends_do_not_block_it(world: World) -> None:
    server = await world.server()
    server.hold(AppendRequest, count=2)
    options = dataclasses.replace(QUICK, place_wait_s=0.02)
    client = await world.client(
        Callbacks(), server, options=options, longWaitThreshold=1_000_000, maxConcurrentTransactions=2
    )
    contexts = [Context(attempts=1), Context(attempts=1), Context()]
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))
    assert [context.events[0] for context in contexts] == [
        ("completed", False),
        ("completed", False),
        ("completed", True),
    ]


async def test_a_silent_connection_is_replaced(world: World) -> None:
    server = await world.server()
    client = await world.client(
        Callbacks(), server, options=dataclasses.replace(QUICK, silence_limit_s=0.05), longWaitThreshold=20
    )
    await until(lambda: len(server.of(FeedRequest)) == 1)
    first = server.stream()
    server.filter = lambda connection, message: connection is first
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert first.lost
    assert context.executed == 2


IMPATIENT = dataclasses.replace(QUICK, silence_limit_s=0.1)


async def test_a_connection_that_only_brings_a_feed_is_replaced_when_it_is_dead(world: World) -> None:
    server = await world.server()
    callbacks = Callbacks()
    await world.client(callbacks, server, options=IMPATIENT, longWaitThreshold=20)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    first = server.stream()
    server.filter = lambda connection, message: connection is first
    first.contexts.clear()
    server.commit(0)
    await until(lambda: callbacks.applied.get(0) == [0])
    assert first.lost


async def test_a_server_that_cannot_decide_yet_is_alive(world: World) -> None:
    """It leaves flushes unanswered for as long as it has no quorum, and answers what needs none."""
    server = await world.server()
    client = await world.client(Callbacks(), server, options=IMPATIENT, longWaitThreshold=20)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    held: list[tuple[Connection, Message]] = []

    def hold(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest | FlushRequest):
            held.append((connection, message))
            return True
        return False

    server.filter = hold
    context = Context()
    await client.submit(context)
    await until(lambda: len(server.of(ServerPartitionsAssignmentRequest)) >= 5)
    assert {ReqId(each.req_id).client_id for each in server.of(ServerPartitionsAssignmentRequest)} == {client.client_id}
    server.filter = lambda connection, message: False
    for connection, message in held:
        server.handle(connection, message)
    await until(lambda: context.done)
    assert len([connection for connection in server.connections if connection.is_stream]) == 1


async def test_submitting_without_a_server_times_out(world: World) -> None:
    client = await world.client(Callbacks(), options=dataclasses.replace(QUICK, mount_wait_s=0.02))
    context = Context()
    with pytest.raises(ClientTimeoutError, match="Partition ensure mounted timeout: partitionId=0 elapsed=20 ms"):
        await client.submit(context)
    assert isinstance(context.events[0], ClientTimeoutError)
    with pytest.raises(ClientTimeoutError):
        await client.flush_transactions()
    assert not client.has_pending_transactions()


async def test_submissions_wait_for_the_mount(world: World) -> None:
    server = await world.server(owned=[])
    client = await world.client(Callbacks(), server)
    context = Context()
    task = asyncio.create_task(client.submit(context))
    client._engine.set_endpoints({server.endpoint: assignment([0])})
    await until(lambda: server.of(MountRequest))
    assert context.executed == 0
    server.owned.add(0)
    await task
    await until(lambda: context.done)


async def test_an_unreachable_server_is_tried_until_it_is_there(world: World) -> None:
    server = await world.server()
    endpoint = server.endpoint
    await server.close()
    client = await world.client(Callbacks(), server)
    context = Context()
    task = asyncio.create_task(client.submit(context))
    await asyncio.sleep(0.02)
    server = await world.server(port=endpoint.port)
    await task
    await until(lambda: context.done)


async def test_a_slow_server_holds_submissions_back(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server, maxConcurrentTransactions=1000)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    connection = server.stream()
    assert connection.channel is not None
    connection.channel.pause_reading()
    contexts = [Context(b"x" * 1_000_000) for _ in range(200)]
    tasks = [asyncio.create_task(client.submit(context)) for context in contexts]
    for _ in range(100):
        await asyncio.sleep(0)
    assert 0 < sum(context.executed for context in contexts) < 200
    connection.channel.resume_reading()
    await asyncio.gather(*tasks)
    await until(lambda: all(context.done for context in contexts))
    assert len(world.logs[0].transactions) == 200


async def test_random_disconnects_lose_and_double_nothing(wide_world: World) -> None:
    server = await wide_world.server()
    callbacks = [Callbacks(), AsyncCallbacks()]
    clients = [await wide_world.client(each, server) for each in callbacks]
    contexts = [Context(str(i).encode(), partition_id=i % 3) for i in range(300)]
    stop = asyncio.Event()

    async def disturb() -> None:
        while not stop.is_set():
            for connection in server.connections[-4:]:
                if connection.channel is not None and not connection.lost and len(connection.received) % 7 == 3:
                    connection.close()
            await asyncio.sleep(0.003)

    disturbing = asyncio.create_task(disturb())
    for number, context in enumerate(contexts):
        await clients[number % 2].submit(context)
    await until(lambda: all(context.done for context in contexts))
    stop.set()
    await disturbing
    stored = sorted(int(each.data) for log in wide_world.logs.values() for each in log.transactions)
    assert stored == list(range(300))
    complete = {p: list(range(100)) for p in range(3)}
    await until(lambda: all(each.applied == complete for each in callbacks))
    for context in contexts:
        assert context.events[-2:] == [("completed", True), "applied"]


class TestSetPartitions:
    async def test_is_refused_with_auto_mount(self, wide_world: World) -> None:
        client = await wide_world.client(Callbacks(), await wide_world.server())
        assert client.partitions == {0, 1, 2}
        with pytest.raises(InvalidOperationError, match="failed to set partitions"):
            await client.set_partitions([1])

    async def test_any_sequence(self, wide_world: World) -> None:
        for log in wide_world.logs.values():
            log.add(b"")
        server = await wide_world.server()
        callbacks = Callbacks()
        client = await wide_world.client(callbacks, server, autoMount=False)
        assert client.partitions == set()
        assert callbacks.mark_calls == []
        for wanted in ({1}, {1, 2}, {0, 2}, {0, 1, 2}, {0, 1, 2, 7}, set(), {0}):
            await client.set_partitions(wanted)
            assert client.partitions == wanted - {7}
            for partition_id in range(3):
                context = Context(partition_id=partition_id)
                if partition_id in wanted:
                    await client.submit(context)
                    await until(functools.partial(getattr, context, "done"))
                else:
                    with pytest.raises(PartitionInactiveError, match=f"partition inactive: partitionId={partition_id}"):
                        await client.submit(context)
                    assert isinstance(context.events[0], PartitionInactiveError)
            if wanted != {0, 1, 2} and wanted != {0, 1, 2, 7}:
                with pytest.raises(PartitionInactiveError):
                    await client.flush_transactions()
            else:
                await client.flush_transactions()
        for partition_id, log in wide_world.logs.items():
            expected = list(range(len(log.transactions)))
            assert callbacks.applied[partition_id] == expected

    async def test_only_partitions_that_were_joined_are_left(
        self, wide_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Joining a thousand partitions one by one would cost half a million coroutines otherwise."""
        left: list[int] = []
        deactivate = StreamPartition.deactivate

        async def counted(partition: StreamPartition, find_server: Callable[[], None]) -> None:
            left.append(partition.partition_id)
            await deactivate(partition, find_server)

        monkeypatch.setattr(StreamPartition, "deactivate", counted)
        client = await wide_world.client(Callbacks(), await wide_world.server(), autoMount=False)
        for wanted, expected in (({2}, []), ({1, 2}, []), ({1}, [2]), ({0}, [1]), (set(), [0]), (set(), [])):
            left.clear()
            await client.set_partitions(wanted)
            assert left == expected

    async def test_what_was_appended_is_decided_before_a_partition_is_left(self, wide_world: World) -> None:
        server = await wide_world.server()
        held = server.hold(AppendRequest, FlushRequest)
        client = await wide_world.client(Callbacks(), server, autoMount=False)
        await client.set_partitions([0])
        first, second = Context(b"1"), Context(b"2")
        await client.submit(first)
        await client.submit(second)
        leaving = asyncio.create_task(client.set_partitions([]))
        await until(lambda: len(held) == 3)
        with pytest.raises(PartitionInactiveError):
            await client.submit(Context())
        assert not leaving.done()
        server.filter = lambda connection, message: False
        server.handle(*held[0])
        server.handle(*held[2])
        await leaving
        assert first.events == [("completed", True), "applied"]
        await until(lambda: len(second.events) == 1)
        assert isinstance(second.events[0], PartitionInactiveError)
        assert client.partitions == set()

    async def test_concurrent_writes_end_committed_or_inactive(self, wide_world: World) -> None:
        server = await wide_world.server()
        client = await wide_world.client(AsyncCallbacks(), server, autoMount=False)
        await client.set_partitions([0, 1, 2])
        contexts = [Context(partition_id=i % 3) for i in range(150)]
        tasks = [asyncio.create_task(client.submit(context)) for context in contexts]
        await until(lambda: sum(context.done for context in contexts) > 20)
        await client.set_partitions([1])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await until(
            lambda: all(c.done or (c.events and isinstance(c.events[-1], PartitionInactiveError)) for c in contexts)
        )
        for context, result in zip(contexts, results, strict=True):
            if context.partition == 1:
                assert result is None
                assert context.events == [("completed", True), "applied"]
            elif isinstance(context.events[-1], PartitionInactiveError):
                assert context.partition != 1
            else:
                assert context.events[0] == ("completed", True)

    async def test_errors_of_the_high_water_mark_are_raised(self, wide_world: World) -> None:
        class Failing(Callbacks):
            def client_high_water_mark(self, partition_id: int) -> int:
                if partition_id == 1:
                    raise OSError("no database")
                return -5 if partition_id == 2 else -1

        client = await wide_world.client(Failing(), await wide_world.server(), autoMount=False)
        with pytest.raises(OSError, match="no database"):
            await client.set_partitions([0, 1])
        with pytest.raises(InvalidOperationError, match="-5"):
            await client.set_partitions([0, 2])
        await client.set_partitions([0])
        context = Context()
        await client.submit(context)
        await until(lambda: context.done)


async def test_catching_up_clients_see_what_they_lack(world: World) -> None:
    for _ in range(50):
        world.logs[0].add(b"")
    server = await world.server()
    for lacking in (50, 30, 0):
        callbacks = Callbacks({0: 49 - lacking})
        client = await world.client(callbacks, server)
        await client.flush_transactions()
        assert callbacks.applied.get(0, []) == list(range(50 - lacking, 50))


async def test_what_several_partitions_are_fed_together_is_answered_with_one_write(wide_world: World) -> None:
    """An early write would cut the next batch of each partition in two."""
    server = await wide_world.server()
    client = await wide_world.client(Callbacks(), server)
    await until(lambda: len(server.of(FeedRequest)) == 3)
    channel = client._engine.partitions[0].mount.channel
    assert channel is not None
    for partition_id in range(2):
        server.commit(partition_id)
    await until(lambda: channel.early_frames == 2 * MIN_EARLY_FRAMES)
    server.commit(2)
    await until(lambda: channel.early_frames == MIN_EARLY_FRAMES)


async def test_stream_connections_carry_no_data_requests(world: World) -> None:
    class Reading(Callbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            self.events.append(await transaction.data_bytes())

    callbacks = Reading()
    server = await world.server()
    await world.client(callbacks, server)
    await until(lambda: len(server.of(FeedRequest)) == 1)
    server.commit(0, b"hello")
    await until(lambda: callbacks.events == [b"hello"])
    assert len(server.connections) == 2
    assert not any(isinstance(m, TransactionDataRequest) for m in server.stream().received)


def test_a_log_conflicts_only_above_the_clients_mark() -> None:
    log = Log()
    log.locks[5] = 3
    assert log.append(AppendRequest(rid(1), 2, (), (5,), (), 0, b"", 0)) == 3
    assert log.append(AppendRequest(rid(1), 3, (5,), (), (), 0, b"", 0)) is None


async def test_a_defect_while_connecting_is_told_and_the_link_tries_again(
    monkeypatch: pytest.MonkeyPatch, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    server = await world.server()
    failures = 1
    run = ServerLink._run

    async def fail_once(link: ServerLink) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OverflowError("planted")
        await run(link)

    monkeypatch.setattr(ServerLink, "_run", fail_once)
    client = await world.client(Callbacks(), server)
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert "planted" in caplog.text
