"""Positions and marks beyond the end of the log: refused for good only when it is proved that they are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import waltz
from tests.unit.client.fake_server import Connection, FakeServer, Log, until
from tests.unit.client.test_version5 import ALL, plain_client
from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire.client_server import Message, MountRequest, MountResponse, PartitionState
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus

Open = Callable[..., Coroutine[Any, Any, FakeServer]]

OURS = (*ALL, 6)


@pytest.fixture
async def open_server() -> AsyncIterator[Open]:
    servers: list[FakeServer] = []

    async def opened(versions: tuple[int, ...]) -> FakeServer:
        servers.append(await FakeServer.open({0: Log()}, versions=versions))
        servers[-1].commit(0)
        return servers[-1]

    yield opened
    for server in servers:
        await server.close()


def first_answers(server: FakeServer, kind: type[Message], *answers: Callable[[bytes], Message]) -> list[Message]:
    """Answer the first requests of a kind so; what was asked appears in the list."""
    asked: list[Message] = []

    def answer(connection: Connection, message: Message) -> bool:
        if not isinstance(message, kind) or len(asked) >= len(answers):
            return False
        connection.send(answers[len(asked)](message.req_id))
        asked.append(message)
        return True

    server.filter = answer
    return asked


def unconfirmed(req_id: bytes) -> Message:
    return ConfirmedMarkResponse(req_id, ConfirmedMarkStatus.NOT_CONFIRMED, NO_TRANSACTION)


async def test_a_server_that_may_have_been_deposed_has_to_confirm_its_mark(open_server: Open) -> None:
    server = await open_server(OURS)
    asked = first_answers(server, ConfirmedMarkRequest, unconfirmed, unconfirmed)
    async with plain_client(server) as client, client.feed(0, after=3) as feed:
        reading = asyncio.create_task(feed.next_batch())
        await until(lambda: len(asked) == 2)
        assert not reading.done(), "its word alone is no proof"
        with pytest.raises(waltz.ClientAheadError, match="no transaction 3, the last one is 0"):
            await reading


async def test_what_the_new_owner_has_is_no_error(open_server: Open) -> None:
    server = await open_server(OURS)
    asked = first_answers(server, ConfirmedMarkRequest, unconfirmed)
    async with plain_client(server) as client:
        appending = asyncio.create_task(client.append(0, b"a", high_water_mark=1))
        await until(lambda: asked)
        server.commit(0)
        assert await appending == 2


async def test_a_mark_that_cannot_be_confirmed_in_time(open_server: Open) -> None:
    server = await open_server(OURS)
    server.hold(ConfirmedMarkRequest)
    async with plain_client(server, rpc_timeout_s=0.2) as client:
        with pytest.raises(waltz.NotAppendedError, match="within 0.1 s whether partition 0 has transaction 7"):
            await client.append(0, b"b", high_water_mark=7, timeout_s=0.1)
        with pytest.raises(waltz.DeadlineExceededError, match="no confirmed high-water mark of partition 0"):
            await client.feed(0, after=7).next_batch()
        assert server.logs[0].high_water_mark == 0


@pytest.mark.parametrize("versions", [ALL, ALL[:-1]])
async def test_an_older_server_proves_it_by_a_mount(open_server: Open, versions: tuple[int, ...]) -> None:
    server = await open_server(versions)
    async with plain_client(server) as client:
        await client.append(0, b"a")

        def is_beyond(connection: Connection, message: Message) -> bool:
            if isinstance(message, MountRequest) and message.client_high_water_mark == 7 and not refused:
                refused.append(message)
                connection.send(MountResponse(message.req_id, PartitionState.NOT_READY))
                return True
            return False

        refused: list[Message] = []
        server.filter = is_beyond
        with pytest.raises(waltz.ClientAheadError, match="no transaction 7, the last one is 1"):
            await client.append(0, b"b", high_water_mark=7)
        assert refused, "a server that is not ready has proved nothing, and is asked again"
        assert await client.append(0, b"c") == 2, "the client's own mount is as it was"


async def test_an_older_server_that_is_never_ready_proves_nothing(open_server: Open) -> None:
    server = await open_server(ALL)
    async with plain_client(server, rpc_timeout_s=0.2) as client:
        await client.append(0, b"a")
        server.hold(MountRequest)
        with pytest.raises(waltz.DeadlineExceededError, match="whether partition 0 has transaction 7"):
            await client.feed(0, after=7).next_batch()
