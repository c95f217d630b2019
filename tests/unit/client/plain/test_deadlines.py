"""Plain appends against servers that come late or never: their own errors, at their own deadlines, and why."""

import asyncio
import dataclasses
from typing import Any

import pytest

import waltz
from tests.unit.client.application import QUICK, Callbacks, Context, World
from tests.unit.client.fake_server import Connection, until
from tests.unit.client.test_version5 import ALL, plain_client
from waltz.common.errors import TlsRefusedError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, connect
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    FlushRequest,
    LockFailure,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
)
from waltz.common.wire.version5 import AppendFailed, AppendFailure, PartitionClosed

pytestmark = pytest.mark.timeout(60)


class Leaving:
    """Refuses the first append because it is going, and is not ready before it is told so."""

    def __init__(self) -> None:
        self.left = False
        self.ready = False
        self.refused = 0

    def __call__(self, connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and not self.ready:
            self.refused += 1
            connection.send(AppendFailed(message.req_id, AppendFailure.STOPPING, -1, "the server is stopping"))
            if not self.left:
                self.left = True
                mounts = [each for each in connection.received if isinstance(each, MountRequest)]
                connection.send(PartitionClosed(mounts[-1].req_id))
            return True
        if isinstance(message, MountRequest) and self.left and not self.ready:
            connection.send(MountResponse(message.req_id, PartitionState.NOT_READY))
            return True
        return False


async def test_another_attempt_waits_as_long_as_the_append_has(world: World) -> None:
    server = await world.server(versions=ALL)
    server.filter = leaving = Leaving()
    async with plain_client(server, mount_wait_s=0.02) as client:
        appends = [asyncio.create_task(client.append(0, b"%d" % number, timeout_s=30.0)) for number in range(5)]
        await until(lambda: len(server.of(MountRequest)) > 10)
        assert not any(append.done() for append in appends)
        leaving.ready = True
        assert sorted(await asyncio.gather(*appends)) == list(range(5))


async def test_another_attempt_ends_at_the_deadline_with_an_error_of_appends(world: World) -> None:
    server = await world.server(versions=ALL)
    server.filter = leaving = Leaving()
    async with plain_client(server, mount_wait_s=0.01) as client:
        appends = [client.append(0, b"%d" % number, timeout_s=0.3) for number in range(5)]
        errors = await asyncio.gather(*appends, return_exceptions=True)
        assert leaving.refused == 5
        for error in errors:
            assert isinstance(error, waltz.NotAppendedError)
            assert "no outcome within 0.3 s" in str(error)
        assert world.logs[0].high_water_mark == -1


async def test_contexts_wait_for_their_partition_side_by_side(world: World) -> None:
    server = await world.server(versions=ALL)
    server.filter = Leaving()
    options = dataclasses.replace(QUICK, mount_wait_s=0.2)
    client = await world.client(Callbacks(), server, options=options, maxConcurrentTransactions=20)
    contexts = [Context() for _ in range(20)]
    loop = asyncio.get_running_loop()
    ended_s: list[float] = []
    for context in contexts:
        await client.submit(context)
    for context in contexts:
        await until(lambda context=context: context.events)  # type: ignore[misc]  # typing of a default argument
        ended_s.append(loop.time())
    assert all(isinstance(context.events[-1], waltz.ClientTimeoutError) for context in contexts)
    assert ended_s[-1] - ended_s[0] < 2.0, "one after the other it would have taken 20 times as long as one"


async def test_a_server_that_says_that_the_client_is_ahead_is_asked_until_the_deadline(world: World) -> None:
    server = await world.server(versions=ALL)

    def ahead(connection: Connection, message: Message) -> bool:
        if isinstance(message, MountRequest):
            connection.send(MountResponse(message.req_id, PartitionState.CLIENT_AHEAD))
            return True
        return False

    server.filter = ahead
    async with plain_client(server) as client:
        with pytest.raises(waltz.NotAppendedError, match="client is ahead of store for partition: 0") as raised:
            await client.append(0, b"x", timeout_s=0.2)
        assert isinstance(raised.value.__cause__, TimeoutError)
        server.filter = lambda connection, message: False
        assert await client.append(0, b"x") == 0


async def test_why_no_connection_could_be_made_is_in_the_error(world: World) -> None:
    server = await world.server(versions=ALL)

    async def refused(endpoint: Endpoint, *arguments: Any, **options: Any) -> Channel:
        raise waltz.ConnectFailedError(f"{endpoint}: TLS failure: the peer's certificate is not trusted")

    async with plain_client(server, connector=refused, rpc_timeout_s=0.05) as client:
        with pytest.raises(waltz.NotAppendedError, match="0.2 s: .*certificate is not trusted") as raised:
            await client.append(0, b"x", timeout_s=0.2)
        causes = [raised.value.__cause__]
        while causes[-1] is not None:
            causes.append(causes[-1].__cause__)
        assert any(isinstance(cause, waltz.ConnectFailedError) for cause in causes)
        with pytest.raises(waltz.DeadlineExceededError, match="certificate is not trusted"):
            await client.high_water_mark(0)
        with pytest.raises(waltz.DeadlineExceededError, match="certificate is not trusted"):
            await anext(aiter(client.feed(0, after=-1)))
        with pytest.raises(waltz.NotAppendedError, match="0.01 s: .*certificate is not trusted"):
            await client.append(0, b"x", timeout_s=0.01)


async def test_what_tls_refuses_is_not_waited_for(world: World) -> None:
    """Neither before the partition is joined nor later; when the certificates are changed, it goes on."""
    server = await world.server(versions=ALL)
    refusing = [True]

    async def connecting(endpoint: Endpoint, *arguments: Any, **options: Any) -> Channel:
        if refusing:
            raise TlsRefusedError(f"cannot connect to {endpoint}: the peer's certificate is not trusted")
        return await connect(endpoint, *arguments, **options)

    async with plain_client(server, connector=connecting, rpc_timeout_s=600.0) as client:
        for _ in range(2):
            with pytest.raises(
                waltz.NotAppendedError, match="cannot be joined: .*certificate is not trusted"
            ) as raised:
                await client.append(0, b"x", timeout_s=600)
            assert isinstance(raised.value.__cause__, waltz.ConnectFailedError)
        with pytest.raises(waltz.DeadlineExceededError, match="partition 0: .*certificate is not trusted"):
            await client.high_water_mark(0, timeout_s=600)
        refusing.clear()
        while True:
            try:
                assert await client.append(0, b"x") == 0
            except waltz.NotAppendedError:
                await asyncio.sleep(0.001)
            else:
                break
        refusing.append(True)
        for connection in server.connections:
            assert connection.channel is not None
            connection.channel.abort()
        partition = client._own_engine().partition(0)
        await until(lambda: partition.mount.channel is None)
        waiting = asyncio.create_task(client.append(0, b"y", timeout_s=600))
        for append in (waiting, client.append(0, b"z", timeout_s=600)):
            with pytest.raises(waltz.NotAppendedError, match="not trusted; the transaction is not in the log"):
                await append
        assert world.logs[0].high_water_mark == 0


async def test_why_no_connection_can_be_made_is_logged_long_before_the_deadline(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    server = await world.server(versions=ALL)
    refusal = "cannot connect: closed before the hello; does the server require a trusted certificate?"

    async def refused(endpoint: Endpoint, *arguments: Any, **options: Any) -> Channel:
        raise waltz.ConnectFailedError(refusal)

    async with plain_client(server, connector=refused) as client:
        append = asyncio.ensure_future(client.append(0, b"x", timeout_s=600))
        while not any(refusal in record.message for record in caplog.records):
            await asyncio.sleep(0)
        assert not append.done()
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append


@pytest.mark.parametrize("versions", [ALL, (0, 1, 2, 3, 4)])
async def test_a_conflict_is_told_before_a_later_append_shows_that_it_failed(
    world: World, versions: tuple[int, ...]
) -> None:
    """The lock failure names a transaction that is not fed yet; with it comes a later append of the client."""
    server = await world.server(versions=versions)
    callbacks = Callbacks()
    client = await world.client(callbacks, server, numTransactionRetryThreads=1)
    once = waltz.RetryPolicy(max_attempts=1)
    held = server.hold(AppendRequest)
    contexts = [Context(b"%d" % number) for number in range(3)]
    for context in contexts:
        context.retry_policy = once
        await client.submit(context)
    await until(lambda: len(held) == 3)
    server.filter = lambda connection, message: False
    connection, refused = held[0]
    world.logs[0].add(b"of another client")
    connection.send(LockFailure(refused.req_id, 0))
    for connection, message in held[1:]:
        server.handle(connection, message)
    await until(lambda: all(context.done for context in contexts))
    assert contexts[0].events == ["lock failure", ("completed", False)]
    assert contexts[1].events == contexts[2].events == [("completed", True), "applied"]


async def test_a_refused_plain_append_is_a_conflict_although_a_later_one_is_fed_first(world: World) -> None:
    server = await world.server(versions=ALL)
    async with plain_client(server) as client:
        assert await client.append(0, b"first") == 0
        held = server.hold(AppendRequest)
        appends = [asyncio.create_task(client.append(0, b"%d" % number)) for number in range(3)]
        await until(lambda: len(held) == 3)
        server.filter = lambda connection, message: False
        world.logs[0].add(b"of another client")
        connection, refused = held[0]
        connection.send(LockFailure(refused.req_id, 1))
        for connection, message in held[1:]:
            server.handle(connection, message)
        with pytest.raises(waltz.LockConflict) as raised:
            await appends[0]
        assert raised.value.transaction_id == 1
        assert await asyncio.gather(*appends[1:]) == [2, 3]


async def test_too_large_for_the_server_is_one_error_at_the_first_try(world: World) -> None:
    server = await world.server(versions=ALL)

    def refuse(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and len(message.data) > 3:
            connection.send(AppendFailed(message.req_id, AppendFailure.TOO_LARGE, -1, "at most 3 bytes"))
            return True
        return False

    server.filter = refuse
    async with plain_client(server) as client:
        with pytest.raises(waltz.TransactionTooLargeError, match="at most 3 bytes"):
            await client.append(0, b"large")
        assert len(server.of(AppendRequest)) == 1
        with pytest.raises(waltz.AppendManyError) as raised:
            await client.append_many(0, [b"s", b"large"])
        assert (raised.value.not_appended, raised.value.unknown, raised.value.other) == (0, 0, 1)


async def test_what_is_too_large_is_refused_at_once_where_nothing_can_be_sent(world: World) -> None:
    server = await world.server(versions=ALL)
    async with plain_client(server) as client:
        await client.append(0, b"a")
        server.filter = leaving = Leaving()
        waiting = asyncio.create_task(client.append(0, b"b", timeout_s=30.0))
        await until(lambda: leaving.left and len(server.of(MountRequest)) > 1)
        with pytest.raises(waltz.TransactionTooLargeError, match="client.maxTransactionSize"):
            await client.append(0, bytes(33 << 20), timeout_s=3600.0)
        leaving.ready = True
        assert await waiting == 1
        assert await client.append(0, b"c") == 2


async def test_what_the_server_says_of_refused_appends_is_told_at_the_deadline(wide_world: World) -> None:
    server = await wide_world.server(versions=ALL)
    refusing = False

    def refuse(connection: Connection, message: Message) -> bool:
        if isinstance(message, AppendRequest) and refusing:
            connection.send(AppendFailed(message.req_id, AppendFailure.MOVED, -1, "the partition is disabled"))
            return True
        return False

    server.filter = refuse
    async with plain_client(server, refused_initial_s=0.01, refused_maximum_s=0.02) as client:
        assert await client.append(0, b"joins the partition, which has no part in the deadline then") == 0
        refusing = True
        with pytest.raises(waltz.NotAppendedError, match="the partition is disabled; the transaction is not in"):
            await client.append(0, b"x", timeout_s=0.3)
        refusing = False
        assert await client.append(0, b"y") == 1


async def test_a_partition_that_cannot_be_written_is_asked_ever_more_rarely_and_alone(wide_world: World) -> None:
    server = await wide_world.server(versions=ALL)
    refused = 0
    writable = False

    def refuse(connection: Connection, message: Message) -> bool:
        nonlocal refused
        if isinstance(message, AppendRequest) and message.req_id[8:12] == bytes(4) and not writable:
            refused += 1
            text = "the storages cannot be written at present"
            connection.send(AppendFailed(message.req_id, AppendFailure.MOVED, -1, text))
            return True
        return False

    server.filter = refuse
    async with plain_client(server, refused_initial_s=0.05, refused_maximum_s=100.0) as client:
        waiting = [asyncio.create_task(client.append(0, b"%d" % number)) for number in range(50)]
        await until(lambda: refused >= 4 * 5, "as many at a time as may be in flight")
        healthy = await client.append_many(1, [b"x"] * 200)
        assert healthy == list(range(200))
        assert refused <= 10 * 5, "each wave waits twice as long as the one before"
        late = asyncio.create_task(client.append(0, b"late"))
        writable = True
        await until(late.done)
        assert await asyncio.gather(*waiting, late) is not None
        assert wide_world.logs[0].high_water_mark == 50
        assert not server.of(FlushRequest)
