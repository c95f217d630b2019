"""Transaction data, high-water marks and administration."""

import asyncio
import dataclasses
import functools
import random

import pytest

from tests.unit.client.application import QUICK, AsyncCallbacks, Callbacks, Context, World, assignment
from tests.unit.client.fake_server import UNKNOWN_MARK, Connection, until
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.rpc import RpcClient
from waltz.client.errors import (
    ClientClosedError,
    DataChecksumError,
    InvalidOperationError,
    PartitionNotFoundError,
)
from waltz.client.transaction import Transaction
from waltz.common.checksum import checksum
from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
)
from waltz.common.ids import Endpoint, ReqId
from waltz.common.serializers import StringSerializer
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    TransactionDataRequest,
    TransactionDataResponse,
    encode,
)

pytestmark = pytest.mark.timeout(60)


class Reading(Callbacks):
    """Reads the data of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[str] = []

    async def apply_transaction(self, transaction: Transaction) -> None:
        self.data.append(await transaction.data(StringSerializer()))
        self.record(transaction)


class Keeping(Callbacks):
    """Keeps the transactions for later."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[Transaction] = []

    def apply_transaction(self, transaction: Transaction) -> None:
        self.transactions.append(transaction)


async def test_reading_what_is_applied_fetches_ahead(world: World) -> None:
    for i in range(500):
        world.logs[0].add(f"data {i}".encode())
    server = await world.server()
    most = 0
    held: list[tuple[Connection, Message]] = []

    def hold(connection: Connection, message: Message) -> bool:
        nonlocal most
        if isinstance(message, TransactionDataRequest):
            held.append((connection, message))
            most = max(most, len(held))
            return True
        return False

    server.filter = hold
    callbacks = Reading()
    await world.client(callbacks, server, options=dataclasses.replace(QUICK, rpc_resend_s=600.0))

    async def answer_one() -> None:
        await until(lambda: held)
        known = len(callbacks.data)
        server.handle(*held.pop(0))
        await until(lambda: len(callbacks.data) > known)

    for _ in range(4):
        await answer_one()
    await until(lambda: len(held) > 10)
    async with asyncio.timeout(60):
        while len(callbacks.data) < 500:
            waiting, held[:] = held[:], []
            for each in waiting:
                server.handle(*each)
            await asyncio.sleep(0.001)
    assert callbacks.data == [f"data {i}" for i in range(500)]
    assert len(server.of(TransactionDataRequest)) == 500, "nothing is fetched twice"
    assert most <= 256


async def test_own_data_is_not_fetched(world: World) -> None:
    server = await world.server()
    callbacks = Reading()
    client = await world.client(callbacks, server, maxConcurrentTransactions=50)
    contexts = [Context(f"own {i}".encode()) for i in range(100)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: len(callbacks.data) == 100)
    assert callbacks.data == [f"own {i}" for i in range(100)]
    assert server.of(TransactionDataRequest) == []


async def test_who_does_not_read_is_not_served(world: World) -> None:
    for _ in range(200):
        world.logs[0].add(b"")
    server = await world.server()
    callbacks = AsyncCallbacks()
    await world.client(callbacks, server)
    await until(lambda: callbacks.applied.get(0) == list(range(200)))
    assert server.of(TransactionDataRequest) == []


async def test_a_large_answer_that_comes_slowly_is_waited_for(world: World) -> None:
    """Neither asked for again nor given up while parts of it come, however long the whole takes."""
    data = bytes(1000)
    world.logs[0].add(data)
    server = await world.server()
    callbacks = Keeping()
    options = dataclasses.replace(QUICK, rpc_resend_s=0.4, data_request_lifetime_s=0.5, silence_limit_s=0.5)
    await world.client(callbacks, server, options=options)
    await until(lambda: len(callbacks.transactions) == 1)
    # A server sends nothing else in the middle of an answer, signs of life neither.
    unanswered = TransactionDataRequest | ServerPartitionsAssignmentRequest
    server.filter = lambda connection, message: isinstance(message, unanswered)
    reading = asyncio.create_task(callbacks.transactions[0].data_bytes())
    await until(lambda: server.of(TransactionDataRequest))
    (request,) = server.of(TransactionDataRequest)
    assert isinstance(request, TransactionDataRequest)
    response = TransactionDataResponse(request.req_id, request.transaction_id, data, checksum(data), None)
    (connection,) = (each for each in server.connections if not each.is_stream)
    assert connection.channel is not None
    frame = encode(response, connection.channel.version)
    for position in range(0, len(frame), 10):  # in all four times as long as any of the limits
        connection.send_raw(frame[position : position + 10])
        await asyncio.sleep(0.02)
    assert await reading == data
    assert server.of(TransactionDataRequest) == [request]
    assert not connection.lost


async def test_data_in_any_order_shared_and_again(world: World) -> None:
    for i in range(10):
        world.logs[0].add(str(i).encode())
    server = await world.server()
    callbacks = Keeping()
    await world.client(callbacks, server)
    await until(lambda: len(callbacks.transactions) == 10)
    for transaction in reversed(callbacks.transactions):
        assert await transaction.data_bytes() == str(transaction.transaction_id).encode()
    first = callbacks.transactions[0]
    assert list(await asyncio.gather(first.data_bytes(), first.data_bytes())) == [b"0", b"0"]
    requests = server.of(TransactionDataRequest)
    assert len(requests) == 11
    assert len({message.req_id for message in requests}) == 11
    assert {ReqId(message.req_id).client_id for message in requests} == {1}


async def test_errors_of_the_server_are_tried_again(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    server.data_errors[0] = ["partition not ready", "still not"]
    callbacks = Keeping()
    await world.client(callbacks, server)
    await until(lambda: callbacks.transactions)
    assert await callbacks.transactions[0].data_bytes() == b"data"
    server.data_errors[0] = ["never"] * 100_000
    with pytest.raises(DeadlineExceededError, match="transaction 0 of partition 0 within 0.05 s: never"):
        await callbacks.transactions[0].data_bytes(timeout_s=0.05)


async def test_requests_survive_a_lost_connection(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    lost = 0

    def lose(connection: Connection, message: Message) -> bool:
        nonlocal lost
        if isinstance(message, TransactionDataRequest | HighWaterMarkRequest) and lost < 4:
            lost += 1
            connection.close()
            return True
        return False

    server.filter = lose
    callbacks = Keeping()
    client = await world.client(callbacks, server)
    await until(lambda: callbacks.transactions)
    assert list(await asyncio.gather(callbacks.transactions[0].data_bytes(), client.high_water_mark(0))) == [b"data", 0]


async def test_requests_without_an_answer_are_sent_again(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    server.hold(TransactionDataRequest, HighWaterMarkRequest, count=4)
    callbacks = Keeping()
    client = await world.client(callbacks, server)
    await until(lambda: callbacks.transactions)
    assert list(await asyncio.gather(callbacks.transactions[0].data_bytes(), client.high_water_mark(0))) == [b"data", 0]
    assert len([connection for connection in server.connections if not connection.is_stream]) == 1


async def test_requests_that_nobody_answers_are_given_up(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    server.filter = lambda connection, message: isinstance(message, TransactionDataRequest)
    callbacks = Keeping()
    await world.client(callbacks, server, options=dataclasses.replace(QUICK, data_request_lifetime_s=0.05))
    await until(lambda: callbacks.transactions)
    with pytest.raises(DeadlineExceededError, match="within 0.05 s"):
        await callbacks.transactions[0].data_bytes()


async def test_requests_follow_their_partition(wide_world: World) -> None:
    wide_world.logs[1].add(b"data")
    old = await wide_world.server()
    new = await wide_world.server([])
    callbacks = Keeping()
    client = await wide_world.client(callbacks, old, new)
    await until(lambda: callbacks.transactions)
    old.filter = lambda connection, message: isinstance(message, TransactionDataRequest | HighWaterMarkRequest)
    data = asyncio.create_task(callbacks.transactions[0].data_bytes())
    mark = asyncio.create_task(client.high_water_mark(1))
    await until(lambda: len(old.of(TransactionDataRequest, HighWaterMarkRequest)) == 2)
    new.owned.add(1)
    client._engine.set_endpoints({new.endpoint: assignment([1], generation=2)})
    assert await data == b"data"
    assert await mark == 0
    assert ReqId(new.of(TransactionDataRequest)[0].req_id).generation == 2
    # a server that goes away takes nothing with it
    new.filter = lambda connection, message: isinstance(message, TransactionDataRequest)
    data = asyncio.create_task(callbacks.transactions[0].data_bytes())
    await until(lambda: len(new.of(TransactionDataRequest)) == 2)
    client._engine.remove_server(new.endpoint)
    old.filter = lambda connection, message: False
    client._engine.set_endpoints({old.endpoint: assignment([1], generation=3)})
    assert await data == b"data"


@pytest.mark.parametrize("damaged", [1, 5])
async def test_damaged_data_is_asked_for_again_a_few_times(world: World, damaged: int) -> None:
    world.logs[0].add(b"data")
    world.logs[0].add(b"sound")
    server = await world.server()
    count = 0

    def damage(connection: Connection, message: Message) -> bool:
        nonlocal count
        if isinstance(message, TransactionDataRequest) and message.transaction_id == 0 and count < damaged:
            count += 1
            connection.send(TransactionDataResponse(message.req_id, 0, b"data", 12345, None))
            return True
        return False

    server.filter = damage
    callbacks = Keeping()
    await world.client(callbacks, server)
    await until(lambda: len(callbacks.transactions) == 2)
    if damaged == 1:
        assert await callbacks.transactions[0].data_bytes() == b"data"
    else:
        with pytest.raises(DataChecksumError, match="transaction 0 of partition 0"):
            await callbacks.transactions[0].data_bytes()
    assert await callbacks.transactions[1].data_bytes() == b"sound"
    assert len([connection for connection in server.connections if not connection.is_stream]) == damaged + 1


async def test_a_cancelled_reader_does_not_disturb_the_others(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    held = server.hold(TransactionDataRequest)
    callbacks = Keeping()
    await world.client(callbacks, server)
    await until(lambda: callbacks.transactions)
    first, second = (asyncio.create_task(callbacks.transactions[0].data_bytes()) for _ in range(2))
    await until(lambda: len(held) == 1)
    first.cancel()
    server.handle(*held[0])
    assert await second == b"data"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_many_requests_are_bounded_on_their_way(world: World) -> None:
    for i in range(600):
        world.logs[0].add(str(i).encode())
    server = await world.server()
    held = server.hold(TransactionDataRequest)
    callbacks = Keeping()
    client = await world.client(callbacks, server, options=dataclasses.replace(QUICK, rpc_resend_s=1000.0))
    await until(lambda: len(callbacks.transactions) == 600)
    tasks = [asyncio.create_task(transaction.data_bytes()) for transaction in callbacks.transactions]
    await until(lambda: held)
    assert await client.high_water_mark(0) == 599
    assert len(held) <= 256
    server.filter = lambda connection, message: False
    for connection, message in held:
        server.handle(connection, message)
    assert list(await asyncio.gather(*tasks)) == [str(i).encode() for i in range(600)]


async def test_close_fails_readers(world: World) -> None:
    world.logs[0].add(b"data")
    server = await world.server()
    server.filter = lambda connection, message: isinstance(message, TransactionDataRequest)
    callbacks = Keeping()
    client = await world.client(callbacks, server)
    await until(lambda: callbacks.transactions)
    task = asyncio.create_task(callbacks.transactions[0].data_bytes())
    await until(lambda: server.of(TransactionDataRequest))
    await client.close()
    with pytest.raises(ClientClosedError):
        await task
    with pytest.raises(ClientClosedError):
        await callbacks.transactions[0].data_bytes()


class TestHighWaterMark:
    async def test_of_an_empty_and_a_full_log(self, world: World) -> None:
        server = await world.server()
        client = await world.client(Callbacks(), server)
        assert await client.high_water_mark(0) == -1
        world.logs[0].add(b"")
        assert await client.high_water_mark(0) == 0
        with pytest.raises(PartitionNotFoundError):
            await client.high_water_mark(1)

    async def test_unknown_is_asked_again(self, world: World) -> None:
        server = await world.server()
        client = await world.client(Callbacks(), server)

        def unknown(connection: Connection, message: Message) -> bool:
            if isinstance(message, HighWaterMarkRequest) and len(server.of(HighWaterMarkRequest)) < 3:
                connection.send(HighWaterMarkResponse(message.req_id, UNKNOWN_MARK))
                return True
            return False

        server.filter = unknown
        assert await client.high_water_mark(0) == -1

    async def test_an_answer_is_never_older_than_the_question(self, world: World) -> None:
        server = await world.server()
        client = await world.client(Callbacks(), server, options=dataclasses.replace(QUICK, mark_resend_s=1000.0))
        held = server.hold(HighWaterMarkRequest)
        first = asyncio.create_task(client.high_water_mark(0))
        await until(lambda: len(held) == 1)
        second = asyncio.create_task(client.high_water_mark(0))
        third = asyncio.create_task(client.high_water_mark(0))
        await asyncio.sleep(0)
        server.handle(*held[0])
        assert await first == -1
        await until(lambda: len(held) == 2)
        server.handle(*held[0])  # a late answer to the first question is not one to the second
        world.logs[0].add(b"")
        server.handle(*held[1])
        assert list(await asyncio.gather(second, third)) == [0, 0]

    async def test_has_a_deadline(self, world: World) -> None:
        server = await world.server(owned=[])
        client = await world.client(Callbacks(), server)
        with pytest.raises(DeadlineExceededError, match="partition 0 within 0.05 s"):
            await client.high_water_mark(0, timeout_s=0.05)


class TestAdministration:
    async def test_all_calls(self, wide_world: World) -> None:
        server = await wide_world.server([0, 2])
        client = await wide_world.client(Callbacks(), server)
        endpoint = server.endpoint
        gone = Endpoint("127.0.0.1", 1)
        assert await client.check_server_connections([endpoint, gone]) == {
            endpoint: {"storage:1": True, "storage:2": False}
        }
        assert await client.server_partition_assignments(endpoint) == [0, 2]
        assert await client.server_partition_health(endpoint) == {0: True, 2: True}
        assert await client.add_preferred_partitions(endpoint, [1, 2])
        assert not await client.add_preferred_partitions(endpoint, [3])
        assert await client.remove_preferred_partitions(endpoint, [1])
        assert not await client.remove_preferred_partitions(endpoint, [0])
        assert server.preferred == [1, 2, 3]
        request = server.of(AddPreferredPartitionRequest)[0]
        assert ReqId(request.req_id) == ReqId.of(1, 0, 1, 0)
        assert ReqId(server.of(ServerPartitionsAssignmentRequest)[0].req_id) == ReqId.of(1, 0, 0, 0)
        for wrong in ([], [-1]):
            with pytest.raises(InvalidOperationError):
                await client.add_preferred_partitions(endpoint, wrong)
        with pytest.raises(ConnectFailedError):
            await client.server_partition_health(gone)

    async def test_concurrent_calls_do_not_get_each_others_answers(self, wide_world: World) -> None:
        server = await wide_world.server()
        rpc = RpcClient(tls=None, options=QUICK)
        try:
            results = await asyncio.gather(
                *(rpc.add_preferred_partitions(server.endpoint, [number]) for number in (1, 5, 2, 7))
            )
        finally:
            await rpc.close()
        assert results == [True, False, True, False]
        assert ReqId(server.of(AddPreferredPartitionRequest)[0].req_id).client_id == -1

    async def test_old_servers_do_not_know_all_calls(self, world: World) -> None:
        server = await world.server(versions=(0, 1, 2))
        async with RpcClient(tls=None, options=QUICK) as rpc:
            with pytest.raises(ProtocolError):
                await rpc.server_partition_health(server.endpoint)
            assert await rpc.server_partition_assignments(server.endpoint) == [0]

    async def test_a_late_answer_is_not_taken_for_the_next_one(self, world: World) -> None:
        server = await world.server()
        server.filter = lambda connection, message: isinstance(message, ServerPartitionsAssignmentRequest)
        rpc = RpcClient(tls=None, options=dataclasses.replace(QUICK, rpc_timeout_s=0.05))
        try:
            with pytest.raises(DeadlineExceededError, match="did not answer ServerPartitionsAssignmentRequest"):
                await rpc.server_partition_assignments(server.endpoint)
            await until(lambda: server.connections[0].lost)
            server.filter = lambda connection, message: False
            assert await rpc.server_partition_assignments(server.endpoint) == [0]
        finally:
            await rpc.close()

    async def test_a_lost_connection_and_a_removed_server_fail_the_call(self, world: World) -> None:
        server = await world.server()
        server.refuse_all()
        client = await world.client(Callbacks())
        with pytest.raises(ConnectionClosedError):
            await client.server_partition_assignments(server.endpoint)
        server.filter = lambda connection, message: True
        call = asyncio.create_task(client.server_partition_assignments(server.endpoint))
        await until(lambda: len(server.of(ServerPartitionsAssignmentRequest)) == 2)
        client._engine.remove_server(server.endpoint)
        with pytest.raises(ConnectionClosedError):
            await call

    async def test_closing_fails_calls(self, world: World) -> None:
        server = await world.server()
        server.filter = lambda connection, message: True
        rpc = RpcClient(tls=None, options=QUICK)
        call = asyncio.create_task(rpc.server_partition_health(server.endpoint))
        await until(lambda: server.of(ServerPartitionsHealthStatRequest))
        await rpc.close()
        with pytest.raises(ConnectionClosedError):
            await call
        with pytest.raises(ClientClosedError):
            await rpc.server_partition_health(server.endpoint)

    async def test_answers_that_nobody_asked_for_break_the_connection(self, world: World) -> None:
        server = await world.server()
        client = await world.client(Callbacks(), server)
        wrongs: tuple[Message, ...] = (
            AddPreferredPartitionResponse(ReqId.of(1, 0, 0, 0), True),
            HighWaterMarkResponse(ReqId.of(1, 0, 9, 0), 5),
            ServerPartitionsAssignmentResponse(ReqId.of(1, 0, 0, 0), ()),
        )
        for number, wrong in enumerate(wrongs):
            assert await client.high_water_mark(0) == -1
            rpc = [connection for connection in server.connections if not connection.is_stream]
            assert len(rpc) == number + 1
            rpc[-1].send_raw(encode(wrong, 4))
            await until(functools.partial(lambda connection: connection.lost, rpc[-1]))


async def test_large_data_is_asked_for_a_few_at_a_time() -> None:
    options = dataclasses.replace(QUICK, data_in_flight_bytes=8 << 20, data_in_flight_maximum=256)
    partition = RpcPartition(0, 1, options, random.Random(1), lambda partition_id: None)
    limits = [partition.request_limit]
    for size_bytes in (100, 1 << 20, 32 << 20):
        for transaction_id in range(100):
            partition.request(transaction_id)
            partition.data_response(TransactionDataResponse(bytes(16), transaction_id, bytes(size_bytes), 0, None))
        limits.append(partition.request_limit)
    assert limits == [127, 256, 8, 1]
