"""The clients of the two ports, against a real node and against peers that misbehave."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.unit.storage.node_support import (
    CUE,
    DISABLED,
    KEY,
    NOT_ASSIGNED,
    OTHER_KEY,
    PARTITION_COUNT,
    SE,
    TIMEOUT_S,
    RunningNode,
    record,
    records,
    running_node,
)
from waltz.common import progress_timer
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, DeadlineExceededError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
from waltz.common.net.listener import Listener
from waltz.common.net.outbox import Outbox
from waltz.common.records import Record, encode_records
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.frames import STORAGE, Bounds, Family
from waltz.common.wire.structures import RpcException, SessionInfo
from waltz.storage.remote import client as client_module
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import DataCorruptionError, RemoteStorageError
from waltz.storage.remote.pending_calls import MAX_ABANDONED

ORIGINAL = STORAGE._replace(versions=(0,))
"""What storages of the original offer."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path) as node:
        yield node


class Peer:
    """A storage node that answers as a function says; it accepts every open request."""

    def __init__(self, answer: Callable[[Channel, our_wire.Message], None]) -> None:
        self._answer = answer

    def channel_ready(self, channel: Channel) -> None:
        pass

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            message = our_wire.decode(buffer, start, end, channel.version)
            if isinstance(message, wire.OpenRequest):
                channel.send(our_wire.encode(wire.SuccessResponse(-1, -1, -1), channel.version))
            else:
                self._answer(channel, message)

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        pass


@asynccontextmanager
async def client_of(
    answer: Callable[[Channel, our_wire.Message], None],
    append_timeout_s: float = TIMEOUT_S,
    silent_after_s: float = TIMEOUT_S,
    family: Family = ORIGINAL,
) -> AsyncIterator[StorageClient]:
    listener = await Listener.open("127.0.0.1", 0, family, "a peer in tests", lambda: Peer(answer), tls=None)
    try:
        client = await StorageClient.connect(
            Endpoint("127.0.0.1", listener.port),
            cluster_key=KEY,
            partition_count=PARTITION_COUNT,
            tls=None,
            timeout_s=TIMEOUT_S,
            append_timeout_s=append_timeout_s,
            silent_after_s=silent_after_s,
        )
        try:
            yield client
        finally:
            await client.close()
    finally:
        await listener.close()


def silence(channel: Channel, message: our_wire.Message) -> None:
    """Never answer."""


class Outcomes:
    """Collects what ``done`` of appends was called with."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self._changed = asyncio.Event()

    def done(self, error: Exception | None) -> None:
        self.errors.append(error)
        self._changed.set()

    async def until(self, count: int) -> list[Exception | None]:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.errors) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.errors


async def test_a_session_of_a_replica(node: RunningNode) -> None:
    client = await node.client()
    assert await client.last_session_info(1, 0, timeout_s=TIMEOUT_S) == (-1, -1, -1)
    assert await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == -1
    assert await client.truncate(1, 0, -1, timeout_s=TIMEOUT_S) == -1
    await client.set_low_water_mark(1, 0, -1, timeout_s=TIMEOUT_S)
    await client.append(1, 0, records(0, 5), timeout_s=TIMEOUT_S)
    assert await client.records(1, 0, 2, 100, timeout_s=TIMEOUT_S) == records(2, 3)
    assert await client.record_headers(1, 0, 3, 1, timeout_s=TIMEOUT_S) == [record(3)[:3]]
    assert await client.truncate(1, 0, 1, timeout_s=TIMEOUT_S) == 1
    assert not client.closed
    assert client.writable


async def test_offline_recovery(node: RunningNode) -> None:
    client, admin = await node.client(), await node.admin()
    await admin.set_available([0], False)
    await client.append(-1, 0, records(0, 3), offline=True, timeout_s=TIMEOUT_S)
    assert await client.truncate(-1, 0, 1, offline=True, timeout_s=TIMEOUT_S) == 1
    await client.set_low_water_mark(-1, 0, 1, offline=True, timeout_s=TIMEOUT_S)
    assert await client.last_session_info(-1, 0, offline=True, timeout_s=TIMEOUT_S) == (-1, 1, 1)
    assert await client.max_transaction_id(-1, 0, offline=True, timeout_s=TIMEOUT_S) == 1


async def test_encoded_appends_keep_their_order_and_report_once(node: RunningNode) -> None:
    client = await node.client()
    outcomes = Outcomes()
    for number in range(500):
        client.append_encoded(1, 0, encode_records(records(number, 1)), 1, outcomes.done)
    client.append_encoded(1, 0, encode_records(records(7, 1)), 1, outcomes.done)
    assert not outcomes.errors
    errors = await outcomes.until(501)
    assert errors[:-1] == [None] * 500
    assert isinstance(errors[-1], RemoteStorageError)
    assert errors[-1].wire_text == SE + "transaction out of order"
    assert str(errors[-1]) == "transaction out of order"
    assert await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == 499


async def test_appends_of_one_turn_are_one_frame_and_one_write_and_are_answered_one_by_one() -> None:
    """Requests between them keep their place; a large append, and one beyond a frame's size, begin something new."""
    received: list[our_wire.Message] = []

    def answer(channel: Channel, message: our_wire.Message) -> None:
        received.append(message)
        if isinstance(message, wire.MaxTransactionIdRequest):
            channel.send(our_wire.encode(wire.MaxTransactionIdResponse(*message[:3], 5), channel.version))
            for number in range(message.seq_num):  # the last first: answers are told apart by their numbers alone
                success = wire.SuccessResponse(1, message.seq_num - 1 - number, 0)
                refusal = wire.FailureResponse(*success, RpcException(SE + "refused"))
                channel.send(our_wire.encode(refusal if success.seq_num == 1 else success, channel.version))

    async with client_of(answer, family=STORAGE) as client:
        client.outbox = Outbox()
        told: list[tuple[int, Exception | None]] = []
        small = encode_records(records(0, 1))
        middling, large = (encode_records(records(0, 1, bytes(size))) for size in (100_000, 200_000))
        assert client._channel is not None
        positions = [
            client.append_encoded(1, number, data, 1, partial(lambda at, error: told.append((at, error)), number))
            for number, data in enumerate((small, small, large, small, *[middling] * 11, small))
        ]
        assert positions == sorted(positions)
        client.flush()
        assert client._channel.taken_bytes == positions[-1]
        assert await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == 5
        first, second, third, fourth, question = received
        assert isinstance(first, our_wire.AppendManyRequest)
        assert [(each.session_id, each.partition_id) for each in first.appends] == [(1, 0), (1, 1)]
        assert isinstance(second, wire.AppendRequest)
        assert (second.seq_num, second.partition_id, len(second.records[0].data)) == (2, 2, 200_000)
        assert isinstance(third, our_wire.AppendManyRequest)
        assert isinstance(fourth, our_wire.AppendManyRequest)
        assert [first.seq_num, third.seq_num, fourth.seq_num] == [0, 3, 3 + len(third.appends)]
        assert [each.partition_id for each in third.appends + fourth.appends] == list(range(3, 16))
        assert question.seq_num == 16
        async with asyncio.timeout(TIMEOUT_S):
            while len(told) < 16:
                await asyncio.sleep(0)
        assert [number for number, _ in told] == list(reversed(range(16)))
        assert {number: str(error) for number, error in told if error} == {1: "refused"}


async def test_a_single_append_of_a_turn_has_a_frame_of_its_own() -> None:
    received: list[our_wire.Message] = []

    def answer(channel: Channel, message: our_wire.Message) -> None:
        received.append(message)
        channel.send(our_wire.encode(wire.SuccessResponse(*message[:3]), channel.version))

    async with client_of(answer, family=STORAGE) as client:
        client.outbox = Outbox()
        outcomes = Outcomes()
        for number in range(3):
            client.append_encoded(1, number, encode_records(records(0, 1)), 1, outcomes.done)
            await outcomes.until(number + 1)
        assert received == [wire.AppendRequest(1, number, number, records(0, 1), False) for number in range(3)]
        await client.set_low_water_mark(1, 0, 5, timeout_s=TIMEOUT_S)


async def test_failures_tell_what_they_mean(node: RunningNode) -> None:
    client, admin = await node.client(), await node.admin()
    await client.last_session_info(5, 0, timeout_s=TIMEOUT_S)
    outcomes = Outcomes()
    client.append_encoded(4, 0, encode_records(records(0, 1)), 1, outcomes.done)
    (fenced,) = await outcomes.until(1)
    assert isinstance(fenced, RemoteStorageError)
    assert fenced.wire_text == CUE + "session id has changed to 5, but request context contains 4"
    assert fenced.is_session_fenced
    await admin.set_available([0], False)
    for partition_id, text in ((0, DISABLED.format(0)), (2, NOT_ASSIGNED.format(2))):
        with pytest.raises(RemoteStorageError) as caught:
            await client.max_transaction_id(5, partition_id, timeout_s=TIMEOUT_S)
        assert caught.value.wire_text == text
        assert not caught.value.is_session_fenced


@pytest.mark.parametrize("partition_count", [PARTITION_COUNT, 1])
async def test_a_foreign_cluster_is_refused(node: RunningNode, partition_count: int) -> None:
    with pytest.raises(RemoteStorageError, match="is inconsistent with"):
        await StorageClient.connect(
            node.endpoint,
            cluster_key=OTHER_KEY if partition_count == PARTITION_COUNT else KEY,
            partition_count=partition_count,
            tls=None,
            timeout_s=TIMEOUT_S,
        )


async def test_nobody_listens(unused_tcp_port: int) -> None:
    with pytest.raises(ConnectFailedError, match=f"127.0.0.1:{unused_tcp_port}"):
        await StorageClient.connect(
            Endpoint("127.0.0.1", unused_tcp_port), cluster_key=KEY, partition_count=1, tls=None, timeout_s=TIMEOUT_S
        )


async def test_an_open_request_without_answer_fails_the_connection() -> None:
    class Mute(Peer):
        def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
            pass

    listener = await Listener.open("127.0.0.1", 0, ORIGINAL, "mute", lambda: Mute(silence), tls=None)
    with pytest.raises(ConnectFailedError, match="did not answer the open request|no answer within"):
        await StorageClient.connect(
            Endpoint("127.0.0.1", listener.port), cluster_key=KEY, partition_count=1, tls=None, timeout_s=0.2
        )
    await listener.close()


async def test_everything_pending_fails_when_the_connection_closes() -> None:
    async with client_of(silence) as client:
        outcomes = Outcomes()
        heard: list[Exception | None] = []
        client.add_close_listener(heard.append)
        client.append_encoded(1, 0, b"", 0, outcomes.done)
        call = asyncio.create_task(client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S))
        await asyncio.sleep(0)
        await client.close()
        assert client.closed
        assert [type(error) for error in outcomes.errors] == [ConnectionClosedError]
        with pytest.raises(ConnectionClosedError):
            await call
        assert len(heard) == 1

        client.append_encoded(1, 0, b"", 0, outcomes.done)
        assert len(outcomes.errors) == 1  # never from within the call
        assert [type(error) for error in await outcomes.until(2)] == [ConnectionClosedError] * 2
        with pytest.raises(ConnectionClosedError):
            await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S)
        client.add_close_listener(heard.append)
        await asyncio.sleep(0)
        assert len(heard) == 2


async def test_a_late_answer_is_not_an_unknown_one() -> None:
    waiting: list[wire.Message] = []

    def late(channel: Channel, message: our_wire.Message) -> None:
        if isinstance(message, wire.MaxTransactionIdRequest):
            waiting.append(message)
            return
        for each in waiting:
            channel.send(wire.encode(wire.MaxTransactionIdResponse(*each[:3], 5)))
        waiting.clear()
        channel.send(wire.encode(wire.LastSessionInfoResponse(*message[:3], SessionInfo(1, 2, 3))))

    async with client_of(late) as client:
        with pytest.raises(DeadlineExceededError, match="MaxTransactionIdRequest for partition 0"):
            await client.max_transaction_id(1, 0, timeout_s=0.01)
        cancelled = asyncio.create_task(client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert await client.last_session_info(1, 0, timeout_s=TIMEOUT_S) == (1, 2, 3)
        assert not client.closed


async def test_appends_have_a_deadline_and_their_late_answers_are_swallowed() -> None:
    waiting: list[wire.Message] = []

    def late(channel: Channel, message: our_wire.Message) -> None:
        if isinstance(message, wire.AppendRequest):
            waiting.append(message)
            return
        for each in [*waiting, message]:
            channel.send(wire.encode(wire.SuccessResponse(*each[:3])))

    async with client_of(late, append_timeout_s=0.02) as client:
        outcomes = Outcomes()
        for _ in range(3):
            client.append_encoded(1, 0, b"", 0, outcomes.done)
        assert {type(error) for error in await outcomes.until(3)} == {DeadlineExceededError}
        await client.set_low_water_mark(1, 0, 5, timeout_s=TIMEOUT_S)
        assert len(outcomes.errors) == 3
        assert not client.closed


async def test_a_process_that_stood_still_does_not_blame_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are there, unread, when the timer comes."""
    monkeypatch.setattr(progress_timer, "TOLERANCE_S", 0.05)

    def prompt(channel: Channel, message: our_wire.Message) -> None:
        channel.send(wire.encode(wire.SuccessResponse(*message[:3])))

    async with client_of(prompt, append_timeout_s=0.02) as client:
        outcomes = Outcomes()
        client.append_encoded(1, 0, b"", 0, outcomes.done)
        time.sleep(2 * client_module.LOOK_INTERVAL_S)  # the process stands still until after the timer's time
        assert await outcomes.until(1) == [None]


async def test_an_append_sent_right_after_a_stand_still_has_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent before the timer notices the stand-still, and answered after that."""
    monkeypatch.setattr(progress_timer, "TOLERANCE_S", 0.05)
    answered = 0

    def patient(channel: Channel, message: our_wire.Message) -> None:
        nonlocal answered
        answered += 1
        delay_s = 0.0 if answered < 4 else 0.3
        asyncio.get_running_loop().call_later(delay_s, channel.send, wire.encode(wire.SuccessResponse(*message[:3])))

    async with client_of(patient, append_timeout_s=5.0) as client:
        outcomes = Outcomes()
        client.append_encoded(1, 0, b"", 0, outcomes.done)
        time.sleep(1.5)  # the process stands still
        client.append_encoded(1, 0, b"", 0, outcomes.done)
        assert await outcomes.until(2) == [None, None]
        assert client._owed._answer_s >= 0
        for count in range(3, 6):
            client.append_encoded(1, 0, b"", 0, outcomes.done)
            assert await outcomes.until(count) == [None] * count


async def test_an_append_that_joins_others_after_a_stand_still_was_noticed_has_the_time_of_the_clock() -> None:
    """A time of the clock before would be one to come: the answers to all later requests would seem late."""

    async with client_of(silence, family=STORAGE) as client:
        for partition_id in range(2):
            client.append_encoded(1, partition_id, b"", 0, Outcomes().done)
            client._look(1.5 * (1 - partition_id))
        now_s = asyncio.get_running_loop().time() - 1.5
        assert [sent_s <= now_s for *_, sent_s, _ in client._owed._requests.values()] == [True, True]


async def test_a_connection_that_has_fallen_silent_closes_whoever_waits_and_for_how_long() -> None:
    async with client_of(silence, silent_after_s=0.05) as client:
        outcomes = Outcomes()
        client.append_encoded(1, 0, b"", 0, outcomes.done)
        with pytest.raises(DeadlineExceededError):
            await client.max_transaction_id(1, 0, timeout_s=0.01)
        with pytest.raises(ConnectionClosedError, match="silent"):
            await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S)
        assert [type(error) for error in await outcomes.until(1)] == [ConnectionClosedError]
        assert client.closed


async def test_a_real_node_answers_the_probe(node: RunningNode) -> None:
    client = await node.client()
    with pytest.raises(RemoteStorageError, match="Partition:-1 is not assigned"):
        await client.max_transaction_id(-1, client_module.NO_PARTITION, timeout_s=TIMEOUT_S)
    assert not client.closed


async def test_a_peer_that_owes_too_many_answers_is_given_up() -> None:
    async with client_of(silence, append_timeout_s=0.01) as client:
        outcomes = Outcomes()
        for _ in range(MAX_ABANDONED + 1):
            client.append_encoded(1, 0, b"", 0, outcomes.done)
        await outcomes.until(MAX_ABANDONED + 1)
        async with asyncio.timeout(TIMEOUT_S):
            while not client.closed:
                await asyncio.sleep(0)


@pytest.mark.parametrize("extra", [0, 1])
async def test_an_answer_to_no_request_ends_the_connection(extra: int) -> None:
    def twice(channel: Channel, message: our_wire.Message) -> None:
        channel.send(wire.encode(wire.SuccessResponse(1, message.seq_num, 0)))
        channel.send(wire.encode(wire.SuccessResponse(1, message.seq_num + extra, 0)))

    async with client_of(twice) as client:
        await client.set_low_water_mark(1, 0, 5, timeout_s=TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            while not client.closed:
                await asyncio.sleep(0)


async def test_an_answer_of_the_wrong_kind_ends_the_connection() -> None:
    def wrong(channel: Channel, message: our_wire.Message) -> None:
        channel.send(wire.encode(wire.SuccessResponse(1, message.seq_num, 0)))

    async with client_of(wrong) as client:
        with pytest.raises(
            ProtocolError, match="answered MaxTransactionIdRequest for partition 0 with SuccessResponse"
        ):
            await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            while not client.closed:
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    "delivered",
    [
        pytest.param(records(5, 2), id="other ids"),
        pytest.param([record(4), record(6)], id="a gap"),
        pytest.param(records(4, 4), id="more than asked"),
    ],
)
async def test_records_that_were_not_asked_for(delivered: list[Record]) -> None:
    def answer(channel: Channel, message: our_wire.Message) -> None:
        channel.send(wire.encode(wire.RecordListResponse(*message[:3], delivered)))

    async with client_of(answer) as client:
        with pytest.raises(ProtocolError):
            await client.records(1, 0, 4, 3, timeout_s=TIMEOUT_S)


async def test_payloads_are_verified() -> None:
    damaged = record(4)._replace(data=b"Data")

    def answer(channel: Channel, message: our_wire.Message) -> None:
        channel.send(wire.encode(wire.RecordListResponse(*message[:3], [record(3), damaged])))

    async with client_of(answer) as client:
        with pytest.raises(DataCorruptionError, match="partition 0, transaction 4"):
            await client.records(1, 0, 3, 3, timeout_s=TIMEOUT_S)
        assert not client.closed  # one damaged record does not concern the other partitions


async def test_a_failing_callback_does_not_cost_others_their_answer(
    node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Exception | None) -> None:
        raise RuntimeError("a defect of the caller")

    client = await node.client()
    outcomes = Outcomes()
    client.append_encoded(1, 0, encode_records(records(0, 1)), 1, fail)
    client.append_encoded(1, 0, encode_records(records(1, 1)), 1, outcomes.done)
    assert await outcomes.until(1) == [None]
    assert "a defect of the caller" in caplog.text
