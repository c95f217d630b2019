"""The admin port over loopback: through the client, and in raw bytes where the client cannot say it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.rules import Only
from tests.unit.storage.node_support import (
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
from waltz.common.errors import ConnectionClosedError
from waltz.common.metrics.registry import Registry
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.structures import RpcException
from waltz.storage.node.admin_port import _NAMES, RIGHTS, AdminService
from waltz.storage.node.replies import MAX_REPLY_BYTES
from waltz.storage.remote.errors import RemoteStorageError

NO_SUCH = SE + "no such partition: {} (the cluster has 3 partitions)"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path) as node:
        yield node


def refused(text: str) -> "pytest.RaisesExc[RemoteStorageError]":
    return pytest.raises(RemoteStorageError, check=lambda error: error.wire_text == text)


async def test_hello_open_and_assignment_byte_for_byte(node: RunningNode) -> None:
    peer = await node.raw(admin=True)
    assert peer.hello == bytes.fromhex("48 0000 00000026 00000002 0000 0001 0000001a") + b"Waltz Storage Admin Server"
    opened = bytes.fromhex("41 0000 00000009 01 ffffffffffffffff")
    peer.send(bytes.fromhex("41 0000 0000001d 03 ffffffffffffffff 000102030405060708090a0b0c0d0e0f 00000003"))
    assert await peer.frame() == opened
    peer.send(bytes.fromhex("41 0000 00000017 06 0000000000000003 00000002 00000000 00000001 01 00"))
    assert await peer.frame() == bytes.fromhex("41 0000 00000009 01 0000000000000003")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            wire.AdminOpenRequest(-1, OTHER_KEY, PARTITION_COUNT),
            "Provided cluster key is inconsistent with key in control file.",
        ),
        (
            wire.AdminOpenRequest(-1, KEY, 1),
            "Provided number of partitions is inconsistent with the total number of partitions in control file.",
        ),
    ],
)
async def test_open_is_refused(node: RunningNode, request_: wire.AdminOpenRequest, text: str) -> None:
    peer = await node.raw(admin=True)
    assert await peer.ask_admin(request_) == wire.AdminFailureResponse(-1, RpcException(SE + text))


async def test_assignment(node: RunningNode, tmp_path: Path) -> None:
    admin, client = await node.admin(), await node.client()
    assert await admin.assigned_partition_status() == {0: True, 1: True}
    await admin.set_assigned([2, 1], True)
    assert await admin.assigned_partition_status() == {0: True, 1: True, 2: True}
    assert await client.max_transaction_id(0, 2, timeout_s=TIMEOUT_S) == -1
    assert (tmp_path / "2" / "0000000000000000000.seg").exists()
    await admin.set_assigned([], True)
    await admin.set_assigned([0, 2], False)
    assert await admin.assigned_partition_status() == {1: True}
    with refused(NOT_ASSIGNED.format(2)):
        await client.max_transaction_id(0, 2, timeout_s=TIMEOUT_S)


async def test_a_node_without_partitions_has_an_empty_status(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=()) as node:
        assert await (await node.admin()).assigned_partition_status() == {}


async def test_unassigning_forgets_marks_and_availability_but_keeps_the_records_and_their_fence(
    node: RunningNode, tmp_path: Path
) -> None:
    admin, client = await node.admin(), await node.client()
    await client.set_low_water_mark(7, 0, -1, timeout_s=TIMEOUT_S)
    await client.append(7, 0, records(0, 3), timeout_s=TIMEOUT_S)
    await client.last_session_info(8, 0, timeout_s=TIMEOUT_S)
    await admin.set_available([0], False)
    await admin.set_assigned([0], False)
    assert (tmp_path / "0" / "0000000000000000000.seg").exists()
    await admin.set_assigned([0], True)
    assert await admin.last_session_info(0) == (-1, -1, -1)
    assert await admin.assigned_partition_status() == {0: True, 1: True}
    for older in (-1, 7):
        with pytest.raises(RemoteStorageError, match="session id has changed to 8"):
            await client.append(older, 0, records(3, 1), timeout_s=TIMEOUT_S)
    assert await client.records(8, 0, 0, 9, timeout_s=TIMEOUT_S) == records(0, 3)


async def test_offline_recovery_goes_on_where_the_records_were_kept(node: RunningNode) -> None:
    """Its session is the persisted one, which a partition that was given up has no more."""
    admin, client = await node.admin(), await node.client()
    await client.append(8, 0, records(0, 3), timeout_s=TIMEOUT_S)
    await admin.set_assigned([0], False)
    await admin.set_assigned([0], True)
    await admin.set_available([0], False)
    assert await client.truncate(-1, 0, 1, offline=True, timeout_s=TIMEOUT_S) == 1
    await client.append(-1, 0, records(2, 2), offline=True, timeout_s=TIMEOUT_S)
    await client.set_low_water_mark(-1, 0, 3, offline=True, timeout_s=TIMEOUT_S)
    await admin.set_available([0], True)
    assert await client.last_session_info(9, 0, timeout_s=TIMEOUT_S) == (-1, 3, 3)


async def test_unassigning_deletes_the_files_if_asked(node: RunningNode, tmp_path: Path) -> None:
    admin, client = await node.admin(), await node.client()
    await client.append(0, 0, records(0, 3), timeout_s=TIMEOUT_S)
    stray = tmp_path / "0" / "notes.txt"
    stray.write_text("not ours")
    await admin.set_assigned([0], False, delete_files=True)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["notes.txt"]
    await admin.set_assigned([0], True)
    assert await client.max_transaction_id(-1, 0, timeout_s=TIMEOUT_S) == -1


async def test_availability(node: RunningNode) -> None:
    admin, client = await node.admin(), await node.client()
    await client.append(0, 0, records(0, 3), timeout_s=TIMEOUT_S)
    await admin.set_available([0, 2], False)
    assert await admin.assigned_partition_status() == {0: False, 1: True}
    with refused(DISABLED.format(0)):
        await client.records(0, 0, 0, 9, timeout_s=TIMEOUT_S)
    with refused(DISABLED.format(0)):
        await client.append(0, 0, records(3, 1), timeout_s=TIMEOUT_S)
    assert await admin.records(0, 0, 9) == records(0, 3)  # raw reads do not ask
    await admin.set_assigned([2], True)  # assigning leaves availability as it is
    assert await admin.assigned_partition_status() == {0: False, 1: True, 2: False}
    await admin.set_available([2, 0], True)
    await client.append(0, 0, records(3, 1), timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("partition_id", [3, -1, 2**31 - 1])
async def test_ids_out_of_range_are_refused_before_anything_changes(node: RunningNode, partition_id: int) -> None:
    admin = await node.admin()
    for change in (
        admin.set_available([0, partition_id], False),
        admin.set_assigned([2, partition_id], True),
        admin.set_assigned([0, partition_id], False),
    ):
        with refused(NO_SUCH.format(partition_id)):
            await change
    assert await admin.assigned_partition_status() == {0: True, 1: True}


async def test_unassigning_what_is_not_assigned_is_refused_before_anything_changes(node: RunningNode) -> None:
    admin = await node.admin()
    await admin.set_available([2], False)
    with refused(NOT_ASSIGNED.format(2)):
        await admin.set_assigned([0, 2], False)
    assert await admin.assigned_partition_status() == {0: True, 1: True}
    await admin.set_assigned([2], True)
    assert (await admin.assigned_partition_status())[2] is False  # not reset


async def test_a_null_list_is_refused(node: RunningNode) -> None:
    peer = await node.raw(admin=True)
    for request in (
        wire.PartitionAvailableRequest(1, None, True),
        wire.PartitionAssignmentRequest(1, None, False, False),
    ):
        answer = await peer.ask_admin(request)
        assert answer == wire.AdminFailureResponse(1, RpcException(SE + "the list of partitions is missing"))


async def test_session_info_and_records(node: RunningNode) -> None:
    admin, client = await node.admin(), await node.client()
    batch = [record(number, bytes(MAX_REPLY_BYTES // 4)) for number in range(9)]
    await client.append(3, 1, batch, timeout_s=TIMEOUT_S)
    await client.set_low_water_mark(4, 1, 8, timeout_s=TIMEOUT_S)
    assert await admin.last_session_info(1) == (4, 8, 8)
    assert await admin.records(1, 3, 1) == batch[3:4]
    assert await admin.records(1, 0, 9) == batch[:3]
    assert await admin.records(1, 9, 9) == []
    assert await admin.records(1, 0, 0) == []
    for question in (admin.last_session_info(2), admin.records(2, 0, 1), admin.records(-1, 0, 1)):
        with pytest.raises(RemoteStorageError, match=r"^Partition:-?\d is not assigned\.$"):
            await question


async def test_ranges_as_on_disk(node: RunningNode, tmp_path: Path) -> None:
    peer, client = await node.raw(admin=True, versions=(0, 1)), await node.client()
    batch = [record(number, bytes(MAX_REPLY_BYTES // 4)) for number in range(9)]
    await client.append(3, 1, batch, timeout_s=TIMEOUT_S)
    stored = (tmp_path / "1" / "0000000000000000000.seg").read_bytes()[128:]

    async def ask(partition_id: int, first: int, max_count: int) -> admin_wire.Message:
        peer.send(admin_wire.encode(admin_wire.RecordRangeRequest(7, partition_id, first, max_count), 1))
        frame = await peer.frame()
        assert frame[:3] == b"A\x00\x01"
        return admin_wire.decode(frame, 7, len(frame), 1)

    size_bytes = len(stored) // 9
    sizes = size_bytes.to_bytes(4, "big")
    assert await ask(1, 3, 1) == admin_wire.RecordRangeResponse(7, 1, sizes, stored[3 * size_bytes : 4 * size_bytes])
    assert await ask(1, 0, 9) == admin_wire.RecordRangeResponse(7, 1, 3 * sizes, stored[: 3 * size_bytes])
    for first, max_count in ((9, 9), (0, 0), (-1, 5)):
        assert await ask(1, first, max_count) == admin_wire.RecordRangeResponse(7, 1, b"", b"")
    assert await ask(2, 0, 1) == wire.AdminFailureResponse(7, RpcException(NOT_ASSIGNED.format(2)))


async def test_the_version_of_the_original_has_nothing_of_ours(node: RunningNode) -> None:
    peer = await node.raw(admin=True)
    frame = admin_wire.encode(admin_wire.RecordRangeRequest(7, 0, 0, 1), 1)
    peer.send(frame[:1] + b"\0\0" + frame[3:])
    assert await peer.closed_by_node()


async def test_requests_are_answered_in_order(node: RunningNode) -> None:
    peer = await node.raw(admin=True)
    messages: list[wire.Message] = []
    for seq_num in range(0, 300, 3):
        messages += [
            wire.PartitionAvailableRequest(seq_num, (0,), seq_num % 2 == 0),
            wire.LastSessionInfoRequest(seq_num + 1, 0),
            wire.AssignedPartitionStatusRequest(seq_num + 2),
        ]
    peer.send(*map(wire.encode, messages))
    for seq_num in range(300):
        frame = await peer.frame()
        answer = wire.decode(frame, 7, len(frame))
        assert answer.seq_num == seq_num
        if isinstance(answer, wire.AssignedPartitionStatusResponse):
            assert dict(answer.partition_status) == {0: (seq_num - 2) % 2 == 0, 1: True}


async def test_the_list_has_the_partitions_that_the_peer_may_describe() -> None:
    manager: Any = SimpleNamespace(assigned_partition_status=lambda: {0: True, 1: False, 2: True})
    rule = Only(Right.DESCRIBE, partition_ids=[None, 1, 2])
    service = AdminService(manager, Registry(), rule)
    (frame,) = await service.execute(wire.AssignedPartitionStatusRequest(5), 0, rule.rights_of("ops"))
    answer = wire.decode(frame, 7, len(frame))
    assert answer == wire.AssignedPartitionStatusResponse(5, ((1, False), (2, True)))


async def test_metrics_have_what_the_list_tool_reads(node: RunningNode) -> None:
    admin, client = await node.admin(), await node.client()
    await client.append(3, 1, records(0, 2), timeout_s=TIMEOUT_S)
    await client.set_low_water_mark(3, 1, 5, timeout_s=TIMEOUT_S)
    document = json.loads(await admin.metrics())
    gauges = {name: entry.get("value") for name, entry in document["gauges"].items()}
    assert gauges["waltz-storage.waltz-storage-partition-ids"] == [0, 1]
    assert gauges["waltz-storage.waltz-storage-num-partitions"] == 2
    assert gauges["waltz-storage.partition-1.session-id"] == 3
    assert gauges["waltz-storage.partition-1.low-water-mark"] == 5
    assert gauges["waltz-storage.partition-1.local-low-water-mark"] == 1
    assert gauges["waltz-storage.partition-1.flags"] == 5
    assert document.keys() == {"gauges", "counters", "histograms", "meters", "timers", "metrics", "ids"}
    await admin.set_assigned([1], False)
    document = json.loads(await admin.metrics())
    assert not [name for name in document["metrics"] if "partition-1." in name]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(wire.encode(wire.AdminSuccessResponse(1)), id="a response"),
        pytest.param(bytes.fromhex("41 0000 00000009 05 0000000000000001"), id="the unused type"),
        pytest.param(bytes.fromhex("53 0000 00000000"), id="keep-alive of the data port"),
        pytest.param(bytes.fromhex("41 0000 00000002 0d 00"), id="fields missing"),
    ],
)
async def test_what_is_no_request_ends_the_connection_without_an_answer(node: RunningNode, frame: bytes) -> None:
    peer = await node.raw(admin=True)
    peer.send(frame)
    assert await peer.closed_by_node()


async def test_a_partition_that_cannot_be_opened_fails_its_assignment(node: RunningNode, tmp_path: Path) -> None:
    admin = await node.admin()
    (tmp_path / "2").write_text("in the way of the directory")
    with pytest.raises(RemoteStorageError):
        await admin.set_assigned([2], True)
    assert await admin.assigned_partition_status() == {0: True, 1: True}
    assert "partition-2" not in await admin.metrics()
    (tmp_path / "2").unlink()
    await admin.set_assigned([2], True)
    assert await admin.assigned_partition_status() == {0: True, 1: True, 2: True}


async def test_assigning_anew_brings_a_failed_partition_back(node: RunningNode) -> None:
    admin, client = await node.admin(), await node.client()
    await client.append(0, 0, records(0, 2), timeout_s=TIMEOUT_S)
    node.files.failing.add("0/0000000000000000000.seg")
    with pytest.raises(RemoteStorageError, match="Input/output error"):
        await client.append(0, 0, records(2, 1), timeout_s=TIMEOUT_S)
    assert await admin.assigned_partition_status() == {0: False, 1: True}
    await client.append(0, 1, records(0, 2), timeout_s=TIMEOUT_S)  # the other partition goes on
    node.files.failing.clear()
    await admin.set_assigned([0], True)
    assert await admin.assigned_partition_status() == {0: True, 1: True}
    assert (await client.records(0, 0, 0, 9, timeout_s=TIMEOUT_S))[:2] == records(0, 2)


async def test_a_worker_that_dies_breaks_its_connection_and_no_other(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await node.admin()
    other = await node.admin()

    async def fail(*_: object) -> None:
        raise ArithmeticError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(AdminService, "execute", fail)
        with pytest.raises(ConnectionClosedError):
            await client.metrics()
    assert await other.metrics()


async def test_what_administrators_do_is_noted(tmp_path: Path) -> None:
    rule = Only(*Right)
    async with running_node(tmp_path, access=rule) as node:
        admin = await node.admin()
        await admin.set_available([0, 1], False)
        await admin.set_assigned([1], False, delete_files=True)
        await admin.last_session_info(0)
        with pytest.raises(RemoteStorageError):
            await admin.set_assigned([1], False)
        rule.rights = (Right.DESCRIBE,)
        with pytest.raises(RemoteStorageError):
            await admin.set_assigned([1], True)
    assert all(action.peer.startswith("127.0.0.1:") for action in rule.actions)
    noted = [(action.operation, action.right, action.partition_ids, action.error) for action in rule.actions]
    assert noted == [
        ("make partitions unavailable", Right.ADMIN, [0, 1], ""),
        ("unassign partitions and delete their files", Right.ADMIN, [1], ""),
        ("unassign partitions", Right.ADMIN, [1], NOT_ASSIGNED.format(1)),
    ]


def test_every_administrative_request_has_a_name_for_the_audit_log() -> None:
    named = {wire.PartitionAvailableRequest, wire.PartitionAssignmentRequest, *_NAMES}
    assert named == {kind for kind, right in RIGHTS.items() if right is Right.ADMIN}
