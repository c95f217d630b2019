"""What the clients of both ports have in common: opening, answers that are failures or none, closing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.relay import relay
from waltz.common.checksum import checksum
from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
)
from waltz.common.ids import Endpoint
from waltz.common.net import channel as channel_module
from waltz.common.net.channel import Channel
from waltz.common.net.listener import Listener
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.common.wire.frames import STORAGE, Bounds
from waltz.common.wire.structures import RpcException
from waltz.storage.remote import connection as connection_module
from waltz.storage.remote.connection import StorageConnection, verify_payloads
from waltz.storage.remote.errors import DataCorruptionError, RemoteStorageError

ORIGINAL = STORAGE._replace(versions=(0,))
"""What storages of the original offer."""
TIMEOUT_S = 30.0
Answer = Callable[[Channel, wire.Message], None]


class Peer:
    """A storage node that answers as a function says."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def channel_ready(self, channel: Channel) -> None:
        pass

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for message in wire.decode_batch(buffer, bounds):
            self._answer(channel, message)

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        pass


class Client(StorageConnection[wire.Message]):
    """Asks for maxima, to open the store too."""

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for message in wire.decode_batch(buffer, bounds):
            self._calls.resolve(message.seq_num, message)

    async def open(self, patience_s: float = TIMEOUT_S) -> None:
        """The answer is waited for as long as that at most, however long connecting has taken."""

        async def open_store(left_s: float) -> int:
            assert 0 < left_s <= TIMEOUT_S
            return await self.maximum(min(left_s, patience_s))

        await self._open(STORAGE, "a client in tests", open_store, tls=None, timeout_s=TIMEOUT_S)

    async def maximum(self, timeout_s: float = TIMEOUT_S) -> int:
        seq_num = self._calls.next_seq_num()
        frame = wire.encode(wire.MaxTransactionIdRequest(1, seq_num, 0, False))
        answer = await self._call(seq_num, frame, wire.MaxTransactionIdResponse, "the question", timeout_s)
        return answer.transaction_id


@asynccontextmanager
async def client_of(answer: Answer) -> AsyncIterator[Client]:
    listener = await Listener.open("127.0.0.1", 0, ORIGINAL, "a peer in tests", lambda: Peer(answer), tls=None)
    client = Client(Endpoint("127.0.0.1", listener.port), "the node")
    try:
        yield client
    finally:
        await client.close()
        await listener.close()


def tell_the_maximum(channel: Channel, message: wire.Message) -> None:
    channel.send(wire.encode(wire.MaxTransactionIdResponse(1, message.seq_num, 0, message.seq_num)))


def say_nothing(channel: Channel, message: wire.Message) -> None:
    """Leave the request unanswered."""


def refuse(channel: Channel, message: wire.Message) -> None:
    error = RpcException("java.lang.Exception: Partition:0 is not assigned.")
    channel.send(wire.encode(wire.FailureResponse(1, message.seq_num, 0, error)))


def answer_wrongly(channel: Channel, message: wire.Message) -> None:
    channel.send(wire.encode(wire.SuccessResponse(1, message.seq_num, 0)))


def hang_up(channel: Channel, message: wire.Message) -> None:
    channel.abort(None)


async def test_answers_come_to_their_requests() -> None:
    async with client_of(tell_the_maximum) as client:
        states = [client.closed]
        with pytest.raises(ConnectionClosedError, match="the connection to the node is not open"):
            await client.maximum()
        await client.open()
        states.append(client.closed)
        assert states == [True, False]
        # The first number was lost on the request that could not be sent, the second one opened the store.
        assert await asyncio.gather(*(client.maximum() for _ in range(5))) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (say_nothing, ConnectFailedError, "^cannot connect to the node: the node did not answer the question within"),
        (hang_up, ConnectFailedError, "^cannot connect to the node: the connection to the node closed"),
        (refuse, RemoteStorageError, "Partition:0 is not assigned"),
        (answer_wrongly, ProtocolError, "^the node answered the question with SuccessResponse"),
    ],
)
async def test_a_connection_that_does_not_open_is_closed(answer: Answer, error: type[Exception], text: str) -> None:
    async with client_of(answer) as client:
        with pytest.raises(error, match=text):
            await client.open(0.05 if answer is say_nothing else TIMEOUT_S)
        assert client.closed


def once_then(later: Answer) -> Answer:
    """The store opens; what comes then is answered otherwise."""

    def answer(channel: Channel, message: wire.Message) -> None:
        (tell_the_maximum if message.seq_num == 0 else later)(channel, message)

    return answer


async def test_a_refusal_concerns_its_request_only() -> None:
    async with client_of(once_then(refuse)) as client:
        await client.open()
        for _ in range(2):
            with pytest.raises(RemoteStorageError, match="is not assigned"):
                await client.maximum()
        assert not client.closed


async def test_a_wrong_answer_ends_the_connection() -> None:
    async with client_of(once_then(answer_wrongly)) as client:
        await client.open()
        with pytest.raises(ProtocolError, match="^the node answered the question with SuccessResponse"):
            await client.maximum()
        assert client.closed


async def test_a_late_answer_is_no_breach() -> None:
    waiting: list[tuple[Channel, wire.Message]] = []
    async with client_of(once_then(lambda *question: waiting.append(question))) as client:
        await client.open()
        with pytest.raises(DeadlineExceededError, match="^the node did not answer the question within 0.05 s"):
            await client.maximum(timeout_s=0.05)
        question = asyncio.create_task(client.maximum())
        async with asyncio.timeout(TIMEOUT_S):
            while len(waiting) < 2:
                await asyncio.sleep(0.001)
        for each in waiting:
            tell_the_maximum(*each)
        assert await question == 2
        assert not client.closed


async def test_closing_fails_what_waits_and_what_comes_later() -> None:
    async with client_of(once_then(say_nothing)) as client:
        await client.open()
        question = asyncio.create_task(client.maximum())
        await asyncio.sleep(0)
        await client.close()
        for late in (question, client.maximum()):
            with pytest.raises(ConnectionClosedError, match="^the connection to the node closed"):
                await late
        await client.close()


def test_payloads_are_verified() -> None:
    endpoint = Endpoint("host", 1)
    good = Record(3, bytes(16), 0, b"data", checksum(b"data"))
    verify_payloads([good], 7, endpoint)
    with pytest.raises(DataCorruptionError, match="^storage host:1 delivered .*: partition 7, transaction 3: "):
        verify_payloads([good, good._replace(data=b"date")], 7, endpoint)


MORE_THAN_KERNELS_HOLD = bytes(32 << 20)


async def test_who_does_not_answer_is_not_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (channel_module, connection_module):
        monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 100 * TIMEOUT_S)
    listener = await Listener.open(
        "127.0.0.1", 0, ORIGINAL, "a peer in tests", lambda: Peer(tell_the_maximum), tls=None
    )
    async with relay(listener.port) as line:
        client = Client(Endpoint("127.0.0.1", line.port), "the node")
        await client.open()
        line.blackhole()
        with pytest.raises(DeadlineExceededError):
            await client.maximum(timeout_s=0.05)
        client._open_channel().send(MORE_THAN_KERNELS_HOLD)
        async with asyncio.timeout(TIMEOUT_S):
            await client.close()
    await listener.close()
