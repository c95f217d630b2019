"""What a client asks servers for, and how it takes answers that come late, twice or from the wrong server."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.client.application import Callbacks, Context, World
from tests.unit.client.fake_server import Connection, FakeServer, until
from waltz.client.callbacks import WaltzClient
from waltz.client.errors import ClientAheadError, NotAppendedError, PartitionInactiveError, SessionFencedError
from waltz.common.errors import DeadlineExceededError
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FlushRequest, Message
from waltz.common.wire.write_sessions import (
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatState,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
    SessionFlag,
)

pytestmark = pytest.mark.timeout(60)


class Sessions:
    """Answers of a server for one partition: the next of a list, or the state of affairs."""

    def __init__(self, server: FakeServer, number: int = 6) -> None:
        self.number = number
        self.heartbeats: Iterator[HeartbeatState] = iter(())
        self.questions: Iterator[LastTransactionStatus | None] = iter(())
        self.appends: Iterator[int | None] = iter(())
        self.hold_next_append = False
        self.held: list[tuple[Connection, Message]] = []
        self._log = server.logs[0]
        server.filter = self.filter

    def filter(self, connection: Connection, message: Message) -> bool:
        mark = self._log.high_water_mark
        if isinstance(message, HeartbeatRequest):
            state = next(self.heartbeats, HeartbeatState.OK)
            number = self.number if state is HeartbeatState.OK else -1
            connection.send(HeartbeatResponse(message.req_id, state, mark, number, SessionFlag(0)))
        elif isinstance(message, LastTransactionIdRequest):
            status = next(self.questions, LastTransactionStatus.OK)
            if status is LastTransactionStatus.OK and FenceOption.FENCE in message.fence:
                self.number += 1
            if status is None:
                self.number += 1  # it is carried out, but the answer gets lost
                connection.close()
            else:
                connection.send(LastTransactionIdResponse(message.req_id, status, mark, self.number))
        elif isinstance(message, AppendRequest) and self.hold_next_append:
            self.hold_next_append = False
            self.held.append((connection, message))
        elif isinstance(message, AppendRequest):
            present = next(self.appends, None)
            if present is None:
                return False
            connection.send(SessionFenced(message.req_id, mark, present))
        else:
            return False
        return True


async def start(world: World) -> tuple[WaltzClient, FakeServer, Sessions]:
    server = await world.server(versions=(5,))
    sessions = Sessions(server)
    client = await world.client(Callbacks(), server, enableSessionWrite=True)
    return client, server, sessions


async def submitted(client: WaltzClient) -> Context:
    context = Context()
    await client.submit(context)
    await until(lambda: context.done or isinstance(context.events[-1] if context.events else None, Exception))
    return context


def carried(server: FakeServer) -> list[int]:
    return [message.write_session for message in server.of(AppendRequest) if isinstance(message, AppendRequest)]


def asked(server: FakeServer) -> list[HeartbeatOption]:
    return [message.heartbeat for message in server.of(HeartbeatRequest) if isinstance(message, HeartbeatRequest)]


async def test_a_server_that_is_not_ready_is_asked_again(world: World) -> None:
    server = await world.server(versions=(5,))
    sessions = Sessions(server)
    sessions.heartbeats = iter([HeartbeatState.NOT_READY] * 3)
    client = await world.client(Callbacks(), server, enableSessionWrite=True)
    await submitted(client)
    assert carried(server) == [6]
    assert asked(server) == [HeartbeatOption.GET_SESSION] * 4


async def test_nothing_is_appended_before_the_number_is_known(world: World) -> None:
    server = await world.server(versions=(5,))
    held = server.hold(HeartbeatRequest, count=1)
    client = await world.client(Callbacks(), server, enableSessionWrite=True)
    appending = asyncio.create_task(submitted(client))
    await until(lambda: held)
    assert not server.of(AppendRequest)
    connection, question = held[0]
    connection.send(HeartbeatResponse(question.req_id, HeartbeatState.OK, -1, 9, SessionFlag(0)))
    assert (await appending).done
    assert carried(server) == [9]


async def test_an_answer_to_an_earlier_question_is_not_listened_to(world: World) -> None:
    client, server, sessions = await start(world)
    await submitted(client)
    held = server.hold(HeartbeatRequest, count=1)
    renewing = asyncio.create_task(client.renew_session(0))
    await until(lambda: held)
    stale = server.of(HeartbeatRequest)[0]
    held[0][0].send(HeartbeatResponse(stale.req_id, HeartbeatState.OK, -1, 8, SessionFlag(0)))
    held[0][0].send(HeartbeatResponse(held[0][1].req_id, HeartbeatState.OK, -1, 7, SessionFlag(0)))
    assert await renewing == 7
    server.filter = sessions.filter


async def test_a_renewal_goes_on_over_the_next_connection(world: World) -> None:
    client, server, sessions = await start(world)
    await submitted(client)
    held = server.hold(HeartbeatRequest, count=1)
    renewing = asyncio.create_task(client.renew_session(0))
    await until(lambda: held)
    sessions.number = 9
    server.filter = sessions.filter
    held[0][0].close()
    assert await renewing == 9


async def test_a_renewal_has_come_through_when_the_connection_breaks_right_behind_its_answer(world: World) -> None:
    client, server, sessions = await start(world)
    await submitted(client)
    held = server.hold(HeartbeatRequest, count=1)
    renewing = asyncio.create_task(client.renew_session(0))
    await until(lambda: held)
    sessions.number = 7
    partition = client._engine.partitions[0]
    answered = partition.session.response

    def answered_and_mounted_again(message: HeartbeatResponse) -> None:
        answered(message)
        partition.session.mounted()  # before the renewal has heard of its end

    handlers = dict(partition.handlers)
    partition.handlers = {**handlers, HeartbeatResponse: answered_and_mounted_again}
    held[0][0].send(HeartbeatResponse(held[0][1].req_id, HeartbeatState.OK, -1, 7, SessionFlag(0)))
    await until(renewing.done)
    partition.handlers = handlers
    server.filter = sessions.filter
    assert await renewing == 7


async def test_a_renewal_that_was_given_up_takes_no_number(world: World) -> None:
    client, server, sessions = await start(world)
    await submitted(client)
    held = server.hold(HeartbeatRequest, count=1)
    renewing = asyncio.create_task(client.renew_session(0))
    await until(lambda: held)
    renewing.cancel()
    await asyncio.wait([renewing])
    held[0][0].send(HeartbeatResponse(held[0][1].req_id, HeartbeatState.OK, -1, 7, SessionFlag(0)))
    server.filter = sessions.filter
    with pytest.raises(SessionFencedError):
        await client.submit(Context())
    assert client.write_session(0) is None


async def test_a_fence_that_failed_is_asked_for_again(world: World) -> None:
    client, server, sessions = await start(world)
    sessions.questions = iter([LastTransactionStatus.NOT_READY, LastTransactionStatus.FENCE_FAILED])
    assert await client.last_transaction_id(0, fence=True) == -1
    assert client.write_session(0) == 7
    assert len(server.of(LastTransactionIdRequest)) == 3


async def test_a_fence_whose_answer_got_lost_is_asked_for_again(world: World) -> None:
    client, server, sessions = await start(world)
    sessions.questions = iter([None])
    assert await client.last_transaction_id(0, fence=True) == -1
    assert client.write_session(0) == 8
    assert len(server.of(LastTransactionIdRequest)) == 2


async def test_with_an_expected_session_a_fence_is_not_repeated_behind_ones_back(world: World) -> None:
    client, _, sessions = await start(world)
    sessions.questions = iter([None, LastTransactionStatus.UNEXPECTED_SESSION])
    with pytest.raises(SessionFencedError, match="the write session is 7, not 6 as expected"):
        await client.last_transaction_id(0, fence=True, if_session=6)


async def test_a_fence_is_never_asked_for_twice_on_one_connection(world: World) -> None:
    client, server, sessions = await start(world)
    held = server.hold(LastTransactionIdRequest)
    fencing = asyncio.create_task(client.last_transaction_id(0, fence=True))
    await until(lambda: held)
    await asyncio.sleep(0.3)  # longer than after what other questions are repeated
    assert len(held) == 1
    server.filter = sessions.filter
    connection, question = held[0]
    connection.send(LastTransactionIdResponse(question.req_id, LastTransactionStatus.OK, -1, 7))
    sessions.number = 7
    assert await fencing == -1


async def test_an_append_refused_by_a_server_that_lost_the_partition_is_lost(world: World) -> None:
    client, _, sessions = await start(world)
    sessions.appends = iter([5])
    context = await submitted(client)
    assert isinstance(context.events[-1], NotAppendedError)
    assert not isinstance(context.events[-1], SessionFencedError)
    assert client.write_session(0) == 6


async def test_an_append_of_the_session_before_is_refused_without_an_end_of_the_present_one(world: World) -> None:
    client, server, sessions = await start(world)
    sessions.hold_next_append = True
    context = Context()
    await client.submit(context)
    await until(lambda: sessions.held)
    fencing = asyncio.create_task(client.last_transaction_id(0, fence=True))
    connection, request = sessions.held[0]
    connection.send(SessionFenced(request.req_id, -1, 7))
    await fencing
    assert isinstance(context.events[-1], SessionFencedError)
    assert client.write_session(0) == 7
    await submitted(client)
    assert carried(server) == [6, 7]


async def test_what_is_undecided_is_flushed_before_a_fence_returns(world: World) -> None:
    client, server, sessions = await start(world)
    sessions.hold_next_append = True
    context = Context()
    await client.submit(context)
    await until(lambda: sessions.held)
    assert await client.last_transaction_id(0, fence=True) == -1
    assert isinstance(context.events[-1], NotAppendedError)
    assert server.of(FlushRequest)


async def test_who_takes_no_part_in_the_partition_fences_nobody(world: World) -> None:
    server = await world.server(versions=(5,))
    Sessions(server)
    client = await world.client(Callbacks(), server, enableSessionWrite=True, autoMount=False)
    for call in (client.last_transaction_id(0, fence=True), client.renew_session(0)):
        with pytest.raises(PartitionInactiveError):
            await call
    assert not server.of(LastTransactionIdRequest)
    assert await client.last_transaction_id(0) == -1


async def test_who_is_ahead_of_the_log_fences_nobody(world: World) -> None:
    server = await world.server(versions=(5,))
    Sessions(server)
    client = await world.client(Callbacks({0: 5}), server, enableSessionWrite=True)
    for call in (client.last_transaction_id(0, fence=True), client.renew_session(0)):
        with pytest.raises(ClientAheadError):
            await call
    assert not server.of(LastTransactionIdRequest)


async def test_an_answer_from_before_the_fence_does_not_end_its_session(world: World) -> None:
    """It comes over another connection, and perhaps later."""
    client, server, sessions = await start(world)
    held = server.hold(HeartbeatRequest, count=1)
    renewing = asyncio.create_task(client.renew_session(0))
    await until(lambda: held)
    renewing.cancel()
    await asyncio.wait([renewing])
    server.filter = sessions.filter
    await client.last_transaction_id(0, fence=True)
    connection, question = held[0]
    held_by_another = HeartbeatResponse(question.req_id, HeartbeatState.HELD_BY_ANOTHER, -1, -1, SessionFlag.EXCLUSIVE)
    connection.send(held_by_another)
    await submitted(client)
    assert client.write_session(0) == 7
    assert carried(server) == [7]


async def test_an_exclusive_session_is_ended_while_its_number_is_asked_for_again(world: World) -> None:
    client, server, sessions = await start(world)
    async with client.exclusive(0) as session:
        held = server.hold(HeartbeatRequest, count=1)
        server.stream().close()
        await until(lambda: held)
        assert client.write_session(0) is None
        server.filter = sessions.filter
    ending = server.of(LastTransactionIdRequest)[-1]
    assert isinstance(ending, LastTransactionIdRequest)
    assert (ending.fence, ending.expected_session) == (FenceOption.FENCE, session.number)
    assert client.write_session(0) == session.number + 1


async def test_calls_for_one_partition_are_made_one_after_the_other(world: World) -> None:
    client, server, sessions = await start(world)
    marks = await asyncio.gather(*(client.last_transaction_id(0, fence=True) for _ in range(5)))
    assert marks == [-1] * 5
    assert client.write_session(0) == sessions.number == 11
    await submitted(client)
    assert carried(server) == [11]


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_an_exclusive_session_that_begins_when_nobody_waits_is_ended(world: World, how: str) -> None:
    server = await world.server(versions=(5,))
    sessions = Sessions(server)
    timeout_ms = 50 if how == "too late" else 30_000
    client = await world.client(Callbacks(), server, enableSessionWrite=True, sessionTimeout=timeout_ms)
    await submitted(client)
    held = server.hold(LastTransactionIdRequest)

    async def lead() -> None:
        async with client.exclusive(0):
            raise AssertionError

    leading = asyncio.create_task(lead())
    await until(lambda: held)
    if how == "cancelled":
        leading.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancelled" else DeadlineExceededError):
        await leading
    server.filter = sessions.filter
    connection, question = held[0]
    sessions.filter(connection, question)
    await until(lambda: len(server.of(LastTransactionIdRequest)) == 2)
    begun, ended = server.of(LastTransactionIdRequest)
    assert isinstance(begun, LastTransactionIdRequest)
    assert begun.fence == FenceOption.FENCE | FenceOption.EXCLUSIVE
    assert isinstance(ended, LastTransactionIdRequest)
    assert (ended.fence, ended.expected_session) == (FenceOption.FENCE, 7)
    await until(lambda: sessions.number == 8)
    assert client.write_session(0) == 6
    assert await client.renew_session(0) == 8
    assert (await submitted(client)).done
    assert carried(server) == [6, 8]
