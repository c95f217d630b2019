"""What a server of version 5 says of its own accord, and bulk reads that do not go well."""

import asyncio
import dataclasses
from typing import Any

import pytest

import waltz
from tests.unit.client.application import QUICK, Callbacks, Context, World, config
from tests.unit.client.fake_server import Connection, FakeServer, until
from waltz.client.engine.environment import Environment
from waltz.client.engine.links.links import Connector
from waltz.client.errors import TransactionTooLargeError
from waltz.client.locks import PartitionLocalLock
from waltz.client.mock.cluster import FixedCluster
from waltz.client.plain.client import Client
from waltz.common.checksum import checksum
from waltz.common.net.channel import connect
from waltz.common.records import Record
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FlushRequest, Message, MountRequest
from waltz.common.wire.version5 import (
    AppendFailed,
    AppendFailure,
    DataListStatus,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
)
from waltz.common.zk.znodes import PartitionGeneration

pytestmark = pytest.mark.timeout(60)

ALL = (0, 1, 2, 3, 4, 5)
PATIENT = dataclasses.replace(QUICK, not_ready_retry_s=0.02)


@pytest.mark.parametrize(
    "reason",
    [
        AppendFailure.GENERATION_MISMATCH,
        AppendFailure.NOT_STORED,
        AppendFailure.MOVED,
        AppendFailure.STOPPING,
    ],
)
async def test_a_failed_append_is_attempted_again_at_once(world: World, reason: AppendFailure) -> None:
    server = await world.server(versions=ALL)
    refused: list[Message] = []

    def refuse_two(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and len(refused) < 2:
            refused.append(message)
            connection.send(AppendFailed(message.req_id, reason, -1, None))
            return True
        return False

    server.filter = refuse_two
    client = await world.client(Callbacks(), server)
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert context.executed == 3
    assert context.events == [("completed", True), "applied"]
    assert not server.of(FlushRequest), "nobody had to ask"
    await client.flush_transactions()


async def test_an_append_that_is_too_large_for_the_server_ends_with_an_error(world: World) -> None:
    server = await world.server(versions=ALL)

    def refuse(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and message.data == b"large":
            connection.send(AppendFailed(message.req_id, AppendFailure.TOO_LARGE, -1, "at most 3 bytes"))
            return True
        return False

    server.filter = refuse
    client = await world.client(Callbacks(), server, maxConcurrentTransactions=1)
    large, small = Context(b"large"), Context(b"s")
    await client.submit(large)
    await client.submit(small)
    await until(lambda: small.done)
    (error,) = large.events
    assert isinstance(error, waltz.TransactionTooLargeError)
    assert str(error) == "at most 3 bytes"


async def test_a_word_about_an_append_that_is_decided_changes_nothing(world: World) -> None:
    server = await world.server(versions=ALL)
    client = await world.client(Callbacks(), server)
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    (append,) = server.of(AppendRequest)
    for reason in AppendFailure:
        server.stream().send(AppendFailed(append.req_id, reason, 0, None))
    other = Context()
    await client.submit(other)
    await until(lambda: other.done)
    assert context.events == [("completed", True), "applied"]


async def test_a_closed_partition_is_left_at_once_and_mounted_where_the_cluster_says(world: World) -> None:
    old, new = await world.server(versions=ALL), await world.server((), versions=ALL)
    callbacks = Callbacks()
    client = await world.client(callbacks, old)
    first = Context()
    await client.submit(first)
    await until(lambda: first.done)
    old.owned, new.owned = set(), {0}
    (mounted,) = old.of(MountRequest)
    old.stream().send(PartitionClosed(mounted.req_id))
    partition = client._engine.partitions[0]
    await until(lambda: partition.mount.channel is None)
    submitting = asyncio.create_task(client.submit(Context()))
    await until(lambda: len(old.of(MountRequest)) > 1, "it asks again, should the cluster have nothing to say")
    client._engine.set_endpoints({old.endpoint: [], new.endpoint: [PartitionGeneration(0, 2)]})
    await submitting
    await until(lambda: callbacks.applied == {0: [0, 1]})
    assert len(new.of(AppendRequest)) == 1


async def test_a_partition_that_closed_for_another_session_is_not_left(world: World) -> None:
    server = await world.server(versions=ALL)
    client = await world.client(Callbacks(), server)
    await client.submit(Context())
    server.stream().send(PartitionClosed(bytes(16)))
    context = Context()
    await client.submit(context)
    await until(lambda: context.done)
    assert len(server.of(MountRequest)) == 1


# Bulk reads


def plain_client(server: FakeServer, *, connector: Connector = connect, **options: Any) -> Client:
    """A plain client of one server."""
    endpoints = {server.endpoint: [PartitionGeneration(p, 1) for p in server.logs]}
    cluster = FixedCluster("test", len(server.logs), endpoints, client_ids=[5])
    return Client(Environment(config(), cluster, connector, dataclasses.replace(QUICK, **options)))


def records(server: FakeServer, first: int, count: int) -> list[Record]:
    stored = server.logs[0].transactions[first : first + count]
    return [Record(n, each.req_id, each.header, each.data, checksum(each.data)) for n, each in enumerate(stored, first)]


class Lists:
    """Answers bulk reads, after some bad answers."""

    def __init__(self, server: FakeServer, *bad: Any) -> None:
        self.server = server
        self.bad = list(bad)
        self.asked: list[TransactionDataListRequest] = []

    def __call__(self, connection: Connection, message: Message) -> bool:
        if not isinstance(message, TransactionDataListRequest):
            return False
        self.asked.append(message)
        mark = self.server.logs[0].high_water_mark
        good = TransactionDataListResponse(
            message.req_id,
            message.transaction_id,
            DataListStatus.OK,
            mark,
            records(self.server, message.transaction_id, min(message.max_count, 7)),
            None,
        )
        if self.bad:
            answer = self.bad.pop(0)(connection, good)
            if answer is not None:
                connection.send(answer)
        else:
            connection.send(good)
        return True


def not_ready(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(status=DataListStatus.NOT_READY, records=[])


def failed(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(status=DataListStatus.FAILED, records=[], error="storages are away")


def empty(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(records=[])


def gap(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(records=good.records[1:])


def damaged(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(records=[*good.records[:3], good.records[3]._replace(checksum=1), *good.records[4:]])


def damaged_first(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    return good._replace(records=[good.records[0]._replace(checksum=1), *good.records[1:]])


def cut(connection: Connection, good: TransactionDataListResponse) -> None:
    connection.close()


def silent(connection: Connection, good: TransactionDataListResponse) -> None:
    pass


def twice(connection: Connection, good: TransactionDataListResponse) -> TransactionDataListResponse:
    connection.send(good)
    return good


@pytest.mark.parametrize("bad", [not_ready, failed, empty, gap, damaged, damaged_first, cut, silent, twice])
async def test_bulk_reads_are_repeated_until_they_go_well(world: World, bad: Any) -> None:
    server = await world.server(versions=ALL)
    for number in range(40):
        world.logs[0].add(b"%d" % number)
    server.filter = Lists(server, bad, bad)
    async with plain_client(server) as client:
        read = [each async for each in client.feed(0, after=-1, until=39)]
    assert read == records(server, 0, 40)


async def test_data_that_stays_damaged_is_told(world: World) -> None:
    server = await world.server(versions=ALL)
    world.logs[0].add(b"a")
    server.filter = Lists(server, *[damaged_first] * 5)
    async with plain_client(server) as client:
        with pytest.raises(waltz.DataChecksumError, match="transaction 0 of partition 0 .* 5 times"):
            await anext(aiter(client.feed(0, after=-1)))


async def test_a_server_that_keeps_failing_is_given_up(world: World) -> None:
    server = await world.server(versions=ALL)
    world.logs[0].add(b"a")
    server.filter = Lists(server, *[failed] * 1000)
    async with plain_client(server, data_request_lifetime_s=0.1) as client:
        with pytest.raises(waltz.DeadlineExceededError, match="within 0.1 s: storages are away"):
            await anext(aiter(client.feed(0, after=-1)))


async def test_a_few_bulk_reads_are_under_way_and_no_more(world: World) -> None:
    server = await world.server(versions=ALL)
    for number in range(5_000):
        world.logs[0].add(b"%d" % number)
    held = server.hold(TransactionDataListRequest)
    async with plain_client(server, list_requests=3) as client:
        reading = asyncio.ensure_future(anext(aiter(client.feed_batches(0, after=-1))))
        await until(lambda: len(held) == 3)
        await asyncio.sleep(0.02)
        firsts = [message.transaction_id for _, message in held if isinstance(message, TransactionDataListRequest)]
        assert firsts == [0, 500, 1000]
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_too_many_locks_are_refused_before_anything_is_sent(world: World) -> None:
    server = await world.server(versions=ALL)
    client = await world.client(Callbacks(), server, maxLocksPerTransaction=3)
    locks = [PartitionLocalLock("x", number) for number in range(4)]
    context = Context(write=locks[:1], read=locks[1:2], append=locks[2:])
    with pytest.raises(TransactionTooLargeError, match="names 4 locks; client.maxLocksPerTransaction is 3"):
        await client.submit(context)
    assert not server.of(AppendRequest)
    allowed = Context(write=locks[:1], append=locks[2:])
    await client.submit(allowed)
    await until(lambda: allowed.done)
