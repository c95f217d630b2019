"""Bytes on the sockets of a running node: the golden vectors, frames in any pieces, and what does not belong there."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.storage.node_support import CUE, KEY, SE, TIMEOUT_S, RawPeer, RunningNode, records, running_node
from waltz.common.wire import admin as admin_wire
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire

GOLDEN_OPEN = bytes.fromhex(
    "53 0000 0000002901 ffffffffffffffff ffffffffffffffff ffffffff 0001020304050607 08090a0b0c0d0e0f 00000003"
)
GOLDEN_OPENED = bytes.fromhex("53 0000 00000015 07 ffffffffffffffff ffffffffffffffff ffffffff")
GOLDEN_APPEND = bytes.fromhex(
    "53 0000 00000041 06 0000000000000005 0000000000000009 00000001 00000001 0000000000000000"
    "0000000100000002 0000000300000004 00000007 00000003 616263 352441c2 00"
)
GOLDEN_APPENDED = bytes.fromhex("53 0000 00000015 07 0000000000000005 0000000000000009 00000001")
GOLDEN_OFFLINE_MARK = bytes.fromhex(
    "53 0000 0000001e 04 0000000000000005 0000000000000009 00000001 ffffffffffffffff 01"
)
GOLDEN_RECORD_REQUEST = bytes.fromhex("53 0000 0000001d 0b 0000000000000005 000000000000000a 00000001 0000000000000000")
GOLDEN_RECORD = bytes.fromhex(
    "53 0000 0000003d 0c 0000000000000005 000000000000000a 00000001 01 0000000000000000"
    "0000000100000002 0000000300000004 00000007 00000003 616263 352441c2"
)
GOLDEN_ASSIGNMENT = bytes.fromhex("41 0000 00000017 06 0000000000000003 00000002 00000000 00000001 01 00")
KEEP_ALIVE = bytes.fromhex("53 0000 00000000")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path, assign=()) as running:
        yield running


async def test_the_golden_vectors(node: RunningNode) -> None:
    admin, data = await node.raw(admin=True), await node.raw()
    assert data.hello == bytes.fromhex(
        "48 0000 00000020 00000002 0000 0001 00000014 57616c747a2053746f7261676520536572766572"
    ), "beside the version of the original, ours is offered"
    admin.send(GOLDEN_ASSIGNMENT)
    assert await admin.frame() == bytes.fromhex("41 0000 00000009 01 0000000000000003")
    data.send(GOLDEN_OPEN, KEEP_ALIVE, GOLDEN_APPEND, GOLDEN_RECORD_REQUEST)
    assert [await data.frame() for _ in range(3)] == [GOLDEN_OPENED, GOLDEN_APPENDED, GOLDEN_RECORD]
    data.send(GOLDEN_OFFLINE_MARK)
    text = (SE + "cannot run offline recovery while partition is online").encode()
    head = bytes.fromhex("08 0000000000000005 0000000000000009 00000001") + struct.pack(">i", len(text))
    payload = head + text + bytes(4)
    assert await data.frame() == b"S\0\0" + struct.pack(">i", len(payload)) + payload
    segment = (Path(node.config.storage_directory) / "1" / f"{0:019d}.seg").read_bytes()
    assert segment[128:] == bytes.fromhex(
        "0000000000000000 0000000100000002 0000000300000004 00000007 00000003 352441c2 616263 cc272862"
    )
    index = (Path(node.config.storage_directory) / "1" / f"{0:019d}.idx").read_bytes()
    assert index[128:] == bytes.fromhex("0000000000000080")


@pytest.mark.parametrize("seed", range(4))
async def test_frames_may_come_in_any_pieces(node: RunningNode, seed: int) -> None:
    await node.node.manager.assign([1])
    choices = random.Random(seed)
    peer = await node.raw()
    stream = [GOLDEN_OPEN]
    for number in range(40):
        stream.append(wire.encode(wire.AppendRequest(1, number, 1, records(2 * number, 2, b"x" * 300), False)))
        if number % 5 == 0:
            stream.append(KEEP_ALIVE)
    data = b"".join(stream)
    while data:
        size = choices.choice([1, 2, 7, 100, 5000])
        peer.send(data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    assert await peer.frame() == GOLDEN_OPENED
    for number in range(40):
        assert await peer.answer() == wire.SuccessResponse(1, number, 1)
    assert (await node.admin()) is not None
    assert len(await (await node.admin()).records(1, 0, 200)) == 80


HOSTILE = {
    "wrong magic": bytes.fromhex("58 0000 00000001 00"),
    "wrong version": bytes.fromhex("53 0001 00000001 00"),
    "negative length": bytes.fromhex("53 0000 ffffffff"),
    "unknown type": bytes.fromhex("53 0000 00000015 13") + bytes(20),
    "second hello": RawPeer.HELLO,
    "field past the end": bytes.fromhex("53 0000 00000005 0d 00000000"),
    "bytes left over": GOLDEN_RECORD_REQUEST[:3] + struct.pack(">i", 30) + GOLDEN_RECORD_REQUEST[7:] + b"x",
    "null data": bytes.fromhex("53 0000 0000003e 06") + GOLDEN_APPEND[8:60] + b"\xff\xff\xff\xff" + bytes(5),
    "negative count": bytes.fromhex("53 0000 0000001a 06") + GOLDEN_APPEND[8:28] + b"\xff\xff\xff\xff\x00",
    "huge count": bytes.fromhex("53 0000 0000001a 06") + GOLDEN_APPEND[8:28] + b"\x7f\xff\xff\xff\x00",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_does_not_belong_there_ends_the_connection_and_nothing_else(node: RunningNode, kind: str) -> None:
    await node.node.manager.assign([1])
    bystander, peer = await node.raw(), await node.raw()
    peer.send(HOSTILE[kind])
    assert await peer.closed_by_node()
    bystander.send(GOLDEN_APPEND)
    assert await bystander.frame() == GOLDEN_APPENDED
    assert node.node.manager.partitions[1].max_transaction_id == 0


@pytest.mark.parametrize("kind", ["response", "unused", "unknown", "repair answer"])
async def test_what_does_not_belong_on_the_admin_port(node: RunningNode, kind: str) -> None:
    frames = {
        "response": admin_wire.encode(admin_wire.AdminSuccessResponse(3)),
        "unused": bytes.fromhex("41 0000 00000009 05 0000000000000003"),
        "unknown": bytes.fromhex("41 0000 00000009 63 0000000000000003"),
        "repair answer": bytes.fromhex("41 0000 00000009 65 0000000000000003"),
    }
    peer = await node.raw(admin=True)
    peer.send(frames[kind])
    assert await peer.closed_by_node()


async def test_a_hello_without_a_common_version_ends_the_connection(node: RunningNode) -> None:
    reader, writer = await asyncio.open_connection(*node.endpoint)
    writer.write(bytes.fromhex("48 0000 0000000a 00000001 0002 00000000"))
    received = await reader.read()
    assert received.startswith(b"H")
    assert received.count(b"S\0\0") == 0
    writer.close()
    await writer.wait_closed()


async def test_nothing_is_asked_of_the_key_of_other_requests(node: RunningNode) -> None:
    """Opening is advice: appends are served without it, and after it failed."""
    await node.node.manager.assign([1])
    peer = await node.raw()
    wrong = wire.encode(wire.OpenRequest(7, 7, 7, KEY.__class__(int=9), 3))
    peer.send(wrong, GOLDEN_APPEND)
    refused = await peer.answer()
    assert isinstance(refused, wire.FailureResponse)
    assert (refused.session_id, refused.seq_num, refused.partition_id) == (-1, -1, -1)
    assert refused.error.message == SE + "Provided cluster key is inconsistent with key in control file."
    assert await peer.frame() == GOLDEN_APPENDED


async def test_appends_of_many_partitions_in_one_frame_are_answered_one_by_one(node: RunningNode) -> None:
    await node.node.manager.assign([0, 1])
    peer = await node.raw(versions=(0, 1))
    many = our_wire.AppendManyRequest(
        -1,
        20,
        -1,
        [
            our_wire.PartitionAppend(7, 1, records(0, 2)),
            our_wire.PartitionAppend(7, 2, records(0, 1)),
            our_wire.PartitionAppend(7, 0, records(1, 1)),
            our_wire.PartitionAppend(7, 1, records(2, 1)),
            our_wire.PartitionAppend(6, 1, records(3, 1)),
        ],
    )
    peer.send(our_wire.encode(many, 1), our_wire.encode(wire.MaxTransactionIdRequest(7, 25, 1, False), 1))
    answers = {}
    for _ in range(6):
        frame = await peer.frame()
        assert frame[:3] == b"S\0\1"
        answer = wire.decode(frame, 7, len(frame))
        answers[answer.seq_num] = answer
    assert answers[20] == wire.SuccessResponse(7, 20, 1)
    assert answers[23] == wire.SuccessResponse(7, 23, 1)
    assert answers[25] == wire.MaxTransactionIdResponse(7, 25, 1, 2)
    failures = [answer for answer in answers.values() if isinstance(answer, wire.FailureResponse)]
    texts = {failure.seq_num: failure.error.message for failure in failures}
    assert texts == {
        21: "java.lang.Exception: Partition:2 is not assigned.",
        22: SE + "transaction out of order",
        24: CUE + "session id has changed to 7, but request context contains 6",
    }


async def test_a_frame_of_many_appends_that_is_damaged_ends_the_connection_and_changes_nothing(
    node: RunningNode,
) -> None:
    await node.node.manager.assign([0, 1])
    many = our_wire.AppendManyRequest(
        -1, 20, -1, [our_wire.PartitionAppend(7, 1, records(0, 2)), our_wire.PartitionAppend(7, 0, records(0, 1))]
    )
    frame = our_wire.encode(many, 1)
    damaged = frame[:3] + (len(frame) - 7 - 1).to_bytes(4, "big") + frame[7:-1]
    for version, sent in ((1, damaged), (0, b"S\0\0" + frame[3:]), (1, b"S\0\0" + frame[3:])):
        peer = await node.raw(versions=(0, 1)[: version + 1])
        peer.send(sent)
        assert not await peer.reader.read()
    other = await node.client()
    assert await other.max_transaction_id(7, 1, timeout_s=TIMEOUT_S) == -1
