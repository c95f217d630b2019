"""The data port, spoken to in raw bytes over loopback."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.rules import Only
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
from waltz.common.access import Right
from waltz.common.net.channel import Channel
from waltz.common.wire import storage as wire
from waltz.common.wire.structures import RpcException, SessionInfo
from waltz.storage.disk.files.files import READ_THREADS
from waltz.storage.node import data_port as data_service
from waltz.storage.node.request_queue import DEFAULT_LIMITS

OPEN = bytes.fromhex(
    "53 0000 00000029 01 ffffffffffffffff ffffffffffffffff ffffffff 00010203040506070809 0a0b0c0d0e0f 00000003"
)
OPENED = bytes.fromhex("53 0000 00000015 07 ffffffffffffffff ffffffffffffffff ffffffff")
KEEP_ALIVE = bytes.fromhex("53 0000 00000000")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path) as node:
        yield node


def failure_text(message: wire.Message) -> str | None:
    assert isinstance(message, wire.FailureResponse), message
    return message.error.message


def max_id(session_id: int, partition_id: int, seq_num: int = 9, *, offline: bool = False) -> wire.Message:
    return wire.MaxTransactionIdRequest(session_id, seq_num, partition_id, offline)


async def test_hello_and_open_byte_for_byte(node: RunningNode) -> None:
    peer = await node.raw()
    assert peer.hello == bytes.fromhex("48 0000 00000020 00000002 0000 0001 00000014") + b"Waltz Storage Server"
    peer.send(OPEN)
    assert await peer.frame() == OPENED


async def test_keep_alives_are_ignored(node: RunningNode) -> None:
    peer = await node.raw()
    peer.send(KEEP_ALIVE, OPEN, KEEP_ALIVE)
    assert await peer.frame() == OPENED


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            wire.OpenRequest(1, 2, 3, OTHER_KEY, PARTITION_COUNT),
            "Provided cluster key is inconsistent with key in control file.",
        ),
        (
            wire.OpenRequest(1, 2, 3, KEY, PARTITION_COUNT + 1),
            "Provided number of partitions is inconsistent with the total number of partitions in control file.",
        ),
    ],
)
async def test_open_is_refused_and_the_connection_goes_on(
    node: RunningNode, request_: wire.OpenRequest, text: str
) -> None:
    peer = await node.raw()
    answer = await peer.ask(request_)
    assert answer[:3] == (-1, -1, -1)
    assert failure_text(answer) == SE + text
    assert await peer.ask(max_id(0, 0)) == wire.MaxTransactionIdResponse(0, 9, 0, -1)


async def test_replies_echo_session_number_and_partition(node: RunningNode) -> None:
    peer = await node.raw()
    append = wire.AppendRequest(5, 2**62, 1, records(0, 2), False)
    assert await peer.ask(append) == wire.SuccessResponse(5, 2**62, 1)
    assert await peer.ask(wire.AppendRequest(5, 1, 1, records(9, 1), False)) == wire.FailureResponse(
        5, 1, 1, RpcException(SE + "transaction out of order")
    )


@pytest.mark.parametrize("partition_id", [2, 3, -1, 2**31 - 1, -(2**31)])
async def test_unknown_partitions_are_not_assigned(node: RunningNode, partition_id: int) -> None:
    peer = await node.raw()
    assert failure_text(await peer.ask(max_id(1, partition_id))) == NOT_ASSIGNED.format(partition_id)


async def test_permission_checks_over_the_wire(node: RunningNode) -> None:
    peer, admin = await node.raw(), await node.admin()
    mark = wire.SetLowWaterMarkRequest(1, 0, 0, -1, False)
    assert await peer.ask(mark) == wire.SuccessResponse(1, 0, 0)
    await peer.ask(max_id(2, 0))

    online = SE + "cannot run offline recovery while partition is online"
    assert failure_text(await peer.ask(max_id(1, 0, offline=True))) == online
    fenced = CUE + "session id has changed to 2, but request context contains 1"
    assert failure_text(await peer.ask(max_id(1, 0))) == fenced

    await admin.set_available([0], False)
    assert failure_text(await peer.ask(max_id(2, 0))) == DISABLED.format(0)
    assert failure_text(await peer.ask(wire.RecordRequest(2, 0, 0, 0))) == DISABLED.format(0)
    changed = SE + "partition last session id has changed to 1, but request context contains 2"
    assert failure_text(await peer.ask(max_id(2, 0, offline=True))) == changed
    assert await peer.ask(max_id(1, 0, offline=True)) == wire.MaxTransactionIdResponse(1, 9, 0, -1)

    assert await peer.ask(max_id(2, 1)) == wire.MaxTransactionIdResponse(2, 9, 1, -1)  # the other one is on
    await admin.set_assigned([0], False)
    assert failure_text(await peer.ask(max_id(2, 0))) == NOT_ASSIGNED.format(0)


@pytest.mark.parametrize(
    ("response", "number"),
    [
        (wire.SuccessResponse(0, 1, 0), 7),
        (wire.LastSessionInfoResponse(0, 1, 0, SessionInfo(1, 2, 3)), 3),
        (wire.FailureResponse(0, 1, 0, RpcException("x")), 8),
        (wire.RecordListResponse(0, 1, 0, [record(1)]), 18),
    ],
)
async def test_a_response_as_request_is_answered_with_a_failure(
    node: RunningNode, response: wire.Message, number: int
) -> None:
    peer = await node.raw()
    text = f"java.lang.IllegalStateException: unknown message type: {number}"
    assert failure_text(await peer.ask(response)) == text


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(OPEN[:7] + b"\x13" + OPEN[8:], id="unknown type"),
        pytest.param(b"A" + OPEN[1:], id="magic of the admin port"),
        pytest.param(OPEN[:2] + b"\x01" + OPEN[3:], id="another version"),
        pytest.param(bytes.fromhex("53 0000 00000001 01"), id="fields missing"),
        pytest.param(bytes.fromhex("53 0000 0000002a") + OPEN[7:] + b"\0", id="bytes too many"),
        pytest.param(bytes.fromhex("53 0000 ffffffff"), id="negative length"),
    ],
)
async def test_undecodable_bytes_end_the_connection_without_an_answer(node: RunningNode, frame: bytes) -> None:
    peer, other = await node.raw(), await node.raw()
    peer.send(frame)
    assert await peer.closed_by_node()
    other.send(OPEN)
    assert await other.frame() == OPENED


async def test_a_request_outlives_its_connection(node: RunningNode) -> None:
    gate = node.files.gate("0/0000000000000000000.seg")
    peer = await node.raw()
    peer.send(wire.encode(wire.AppendRequest(0, 0, 0, records(0, 1), False)))
    await gate.reached()
    await peer.close()
    gate.open()
    other = await node.raw()
    assert await other.ask(max_id(0, 0)) == wire.MaxTransactionIdResponse(0, 9, 0, 0)


async def test_partitions_of_one_connection_do_not_wait_for_each_other(node: RunningNode) -> None:
    gate = node.files.gate("0/0000000000000000000.seg")
    peer = await node.raw()
    peer.send(wire.encode(wire.AppendRequest(0, 0, 0, records(0, 1), False)))
    await gate.reached()
    assert await peer.ask(wire.AppendRequest(0, 1, 1, records(0, 1), False)) == wire.SuccessResponse(0, 1, 1)
    gate.open()
    assert await peer.answer() == wire.SuccessResponse(0, 0, 0)


async def test_a_peer_that_does_not_read_costs_bounded_memory(node: RunningNode) -> None:
    """Far more is asked for than buffers hold; every request is answered in the end."""
    size_bytes, count = 1 << 20, 64
    peer = await node.raw()
    await peer.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT))
    await peer.ask(wire.AppendRequest(0, 0, 0, [record(0, bytes(size_bytes))], False))
    for seq_num in range(count):
        peer.send(wire.encode(wire.RecordRequest(0, seq_num, 0, 0)))
    await until_stalled(node)
    (channel,) = (channel for channel in data_channels(node) if not channel.writable)
    assert channel.unsent_bytes < 24 << 20
    answers = [await peer.answer() for _ in range(count)]
    assert sorted(answer.seq_num for answer in answers) == list(range(count))
    assert all(isinstance(answer, wire.RecordResponse) and answer.record for answer in answers)
    assert await peer.ask(max_id(0, 0)) == wire.MaxTransactionIdResponse(0, 9, 0, 0)


async def test_a_peer_that_does_not_read_costs_no_more_with_many_partitions(tmp_path: Path) -> None:
    """Each of them is asked for little, all of them together for much more than may be unsent."""
    size_bytes, count = 1 << 20, 24
    async with running_node(tmp_path, assign=range(count), partition_count=count) as node:
        writer, peer, bystander = [await node.raw() for _ in range(3)]
        await writer.ask(wire.OpenRequest(-1, -1, -1, KEY, count))
        for partition_id in range(count):
            await writer.ask(wire.AppendRequest(0, 0, partition_id, [record(0, bytes(size_bytes))], False))
        peer.send(*[wire.encode(wire.RecordRequest(0, number, number, 0)) for number in range(count)])
        await until_stalled(node)
        (channel,) = (channel for channel in data_channels(node) if not channel.writable)
        assert channel.unsent_bytes < (READ_THREADS + 2) * (size_bytes + 100)
        assert isinstance(await bystander.ask(wire.RecordRequest(0, 0, 0, 0)), wire.RecordResponse)
        answers = [await peer.answer() for _ in range(count)]
        assert sorted(answer.seq_num for answer in answers) == list(range(count))
        assert all(isinstance(answer, wire.RecordResponse) and answer.record for answer in answers)


async def test_a_peer_that_reads_nothing_for_long_is_dropped(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_service, "WRITABLE_TIMEOUT_S", 0.2)
    bystander, peer = await node.raw(), await node.raw()
    await peer.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT))
    await peer.ask(wire.AppendRequest(0, 0, 0, [record(0, bytes(1 << 20))], False))
    for seq_num in range(64):
        peer.send(wire.encode(wire.RecordRequest(0, seq_num, 0, 0)))
    async with asyncio.timeout(TIMEOUT_S):
        while len(data_channels(node)) > 1:
            await asyncio.sleep(0.01)
    assert await bystander.ask(max_id(0, 0)) == wire.MaxTransactionIdResponse(0, 9, 0, 0)


async def test_a_peer_that_reads_slowly_is_served(node: RunningNode) -> None:
    """Between two looks at it there must be progress, and there is."""
    peer = await node.raw()
    await peer.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT))
    await peer.ask(wire.AppendRequest(0, 0, 0, [record(0, bytes(1 << 20))], False))
    for seq_num in range(24):
        peer.send(wire.encode(wire.RecordRequest(0, seq_num, 0, 0)))
    await until_stalled(node)
    (channel,) = (channel for channel in data_channels(node) if not channel.writable)
    connection = channel._handler
    assert isinstance(connection, data_service.DataConnection)
    for _ in range(24):
        assert isinstance(await peer.answer(), wire.RecordResponse)
        if not channel.writable and connection._deadline.running:
            connection._deadline.stop()
            connection._unsent_bytes = channel.unsent_bytes + 1
            connection._check_progress(0.0)
    assert not channel.closed
    assert channel.writable


async def test_a_node_that_stood_still_does_not_blame_its_peer(node: RunningNode) -> None:
    peer = await node.raw()
    await peer.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT))
    await peer.ask(wire.AppendRequest(0, 0, 0, [record(0, bytes(1 << 20))], False))
    for seq_num in range(24):
        peer.send(wire.encode(wire.RecordRequest(0, seq_num, 0, 0)))
    await until_stalled(node)
    (channel,) = (channel for channel in data_channels(node) if not channel.writable)
    connection = channel._handler
    assert isinstance(connection, data_service.DataConnection)
    for stood_still_s, gone in ((5.0, False), (0.0, True)):
        connection._deadline.stop()
        connection._unsent_bytes = channel.unsent_bytes
        connection._check_progress(stood_still_s)
        assert (connection._channel is None or channel.closed) == gone


async def test_a_client_that_floods_a_partition_costs_the_others_on_its_connection_nothing(node: RunningNode) -> None:
    """It sends without waiting for answers, while the disk of one partition stands still (rule L4)."""
    gate = node.files.gate("0/0000000000000000000.seg")
    flood = await node.raw()
    flood.send(wire.encode(wire.AppendRequest(0, 0, 0, records(0, 1), False)))
    await gate.reached()
    total = 60_000  # more than one read of the socket takes
    appends = (wire.encode(wire.AppendRequest(0, number, 0, records(number, 1), False)) for number in range(1, total))
    flood.send(*appends, wire.encode(max_id(0, 1, total)))
    answers = {}
    while total not in answers:
        answer = await flood.answer()
        answers[answer.seq_num] = answer
    assert answers.pop(total) == wire.MaxTransactionIdResponse(0, total, 1, -1)
    waiting = DEFAULT_LIMITS.max_requests
    assert len(node.node.manager.partitions[0].queue) == waiting
    assert sorted(answers) == list(range(waiting + 1, total))
    overrun = SE + "too many requests for partition=0 wait on storage node; wait for answers before sending more"
    assert {failure_text(answer) for answer in answers.values()} == {overrun}
    gate.open()
    for number in range(waiting + 1):
        assert await flood.answer() == wire.SuccessResponse(0, number, 0)
    peer = await node.client()
    assert await peer.max_transaction_id(0, 0, timeout_s=TIMEOUT_S) == waiting


def data_channels(node: RunningNode) -> list[Channel]:
    listener = node.node._data_listener
    assert listener is not None
    return list(listener.channels)


async def until_stalled(node: RunningNode) -> None:
    """Wait until the node has stopped producing answers for a peer that does not read them."""
    partitions = node.node.manager.partitions.values()
    unsent = -1
    while all(channel.writable for channel in data_channels(node)) or any(len(each.queue) for each in partitions):
        await asyncio.sleep(0)
    while unsent != (unsent := sum(channel.unsent_bytes for channel in data_channels(node))):
        await node.files.run(lambda: None)


async def test_a_server_that_is_no_more_of_the_cluster_is_refused_on_its_open_connection(tmp_path: Path) -> None:
    rule = Only(*Right)
    async with running_node(tmp_path, access=rule) as node:
        peer = await node.raw()
        request = wire.LastSessionInfoRequest(1, 2, 0, False)
        assert isinstance(await peer.ask(request), wire.LastSessionInfoResponse)
        rule.rights = ()
        failure = RpcException(f"{SE}principal 'anonymous' may not replicate this node")
        assert await peer.ask(request) == wire.FailureResponse(1, 2, 0, failure)
        rule.rights = tuple(Right)
        assert isinstance(await peer.ask(request), wire.LastSessionInfoResponse)
