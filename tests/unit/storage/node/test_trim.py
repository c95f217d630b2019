"""Trims at a running storage node, with and without a journal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.storage.node_support import TIMEOUT_S, ObservedFiles, RunningNode, records, running_node
from waltz.common.wire import storage as wire
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

SESSION = 4
THRESHOLD = 400


@pytest.fixture(params=[True, False], ids=["journal", "no journal"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path, journal_enabled=request.param, segment_size_threshold_bytes=THRESHOLD) as node:
        yield node


async def fill(client: StorageClient, count: int = 50, partition: int = 0) -> None:
    for first in range(0, count, 10):
        await client.append(SESSION, partition, records(first, 10), timeout_s=TIMEOUT_S)
    await client.set_low_water_mark(SESSION, partition, count - 1, timeout_s=TIMEOUT_S)


async def trim(client: StorageClient, point: int, partition: int = 0) -> int:
    first = -1
    while (found := await client.trim(SESSION, partition, point, timeout_s=TIMEOUT_S)) > first:
        first = found
    return first


async def available(client: StorageClient, first: int, partition: int = 0) -> list[int]:
    found = await client.records(SESSION, partition, first, 1000, timeout_s=TIMEOUT_S)
    return [record.transaction_id for record in found]


async def test_whole_segments_go_and_appends_go_on(node: RunningNode) -> None:
    client = await node.client()
    assert client.trims
    await fill(client)
    first = await trim(client, 33)
    assert 0 < first <= 33
    assert await available(client, 0) == []
    assert await available(client, first) == list(range(first, 50))
    await client.append(SESSION, 0, records(50, 3), timeout_s=TIMEOUT_S)
    assert await available(client, 45) == list(range(45, 53))
    assert await client.max_transaction_id(SESSION, 0, timeout_s=TIMEOUT_S) == 52


async def test_nothing_above_the_low_water_mark_is_trimmed(node: RunningNode) -> None:
    client = await node.client()
    await fill(client)
    await client.append(SESSION, 0, records(50, 10), timeout_s=TIMEOUT_S)
    with pytest.raises(RemoteStorageError, match="low-water mark is 49: transactions up to 50 may not be trimmed"):
        await client.trim(SESSION, 0, 51, timeout_s=TIMEOUT_S)
    assert await available(client, 0) == list(range(60))
    assert await trim(client, 50) > 40


async def test_where_the_newest_segments_begin_is_told_under_the_session(node: RunningNode) -> None:
    client = await node.client()
    await fill(client)
    assert await client.first_within(SESSION, 0, 1 << 40, timeout_s=TIMEOUT_S) == 0
    last = await client.first_within(SESSION, 0, 1, timeout_s=TIMEOUT_S)
    assert await trim(client, 50) == last
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await client.first_within(SESSION - 1, 0, 1, timeout_s=TIMEOUT_S)


async def test_only_the_present_session_trims(node: RunningNode) -> None:
    client = await node.client()
    await fill(client)
    await client.last_session_info(SESSION + 1, 0, timeout_s=TIMEOUT_S)
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await client.trim(SESSION, 0, 20, timeout_s=TIMEOUT_S)
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await client.begin(SESSION, 0, 200, timeout_s=TIMEOUT_S)
    found = await client.records(SESSION + 1, 0, 0, 5, timeout_s=TIMEOUT_S)
    assert len(found) == 5


async def test_a_replica_begins_anew(node: RunningNode) -> None:
    client = await node.client()
    await fill(client, 20)
    with pytest.raises(RemoteStorageError, match="has transactions up to 19, and does not begin at 19"):
        await client.begin(SESSION, 0, 19, timeout_s=TIMEOUT_S)
    await client.begin(SESSION, 0, 200, timeout_s=TIMEOUT_S)
    assert await client.max_transaction_id(SESSION, 0, timeout_s=TIMEOUT_S) == 199
    assert await client.truncate(SESSION, 0, 50, timeout_s=TIMEOUT_S) == 199
    await client.append(SESSION, 0, records(200, 30), timeout_s=TIMEOUT_S)
    assert await client.truncate(SESSION, 0, 50, timeout_s=TIMEOUT_S) == 199
    await client.append(SESSION, 0, records(200, 5), timeout_s=TIMEOUT_S)
    await client.set_low_water_mark(SESSION, 0, 204, timeout_s=TIMEOUT_S)
    assert await available(client, 0) == []
    assert await available(client, 200) == list(range(200, 205))


@pytest.mark.parametrize("journal", [True, False])
async def test_the_trim_point_outlives_the_node(tmp_path: Path, journal: bool) -> None:
    async with running_node(tmp_path, journal_enabled=journal, segment_size_threshold_bytes=THRESHOLD) as node:
        client = await node.client()
        for partition in (0, 1):
            await fill(client, partition=partition)
        first = await trim(client, 33)
        await client.begin(SESSION, 1, 90, timeout_s=TIMEOUT_S)
        await client.append(SESSION, 1, records(90, 4), timeout_s=TIMEOUT_S)
    async with running_node(tmp_path, journal_enabled=journal, segment_size_threshold_bytes=THRESHOLD) as node:
        client = await node.client()
        assert await available(client, first) == list(range(first, 50))
        assert await available(client, 90, partition=1) == list(range(90, 94))


async def test_a_filled_replica_begins_offline(node: RunningNode) -> None:
    client, admin = await node.client(), await node.admin()
    await admin.set_available([1], False)
    await client.begin(-1, 1, 40, offline=True, timeout_s=TIMEOUT_S)
    await client.append(-1, 1, records(40, 5), offline=True, timeout_s=TIMEOUT_S)
    await admin.set_available([1], True)
    found = await client.records(-1, 1, 40, 10, timeout_s=TIMEOUT_S)
    assert [record.transaction_id for record in found] == list(range(40, 45))


async def test_a_failing_disk_puts_the_partition_out_of_service(tmp_path: Path) -> None:
    files = ObservedFiles()
    async with running_node(
        tmp_path, files=files, journal_enabled=False, segment_size_threshold_bytes=THRESHOLD
    ) as node:
        client = await node.client()
        await fill(client)
        files.failing.add("trim.point.new")
        with pytest.raises(RemoteStorageError, match="Input/output error"):
            await client.trim(SESSION, 0, 20, timeout_s=TIMEOUT_S)
        with pytest.raises(RemoteStorageError, match="disabled"):
            await client.append(SESSION, 0, records(50, 1), timeout_s=TIMEOUT_S)


async def test_version_0_has_no_trims(node: RunningNode) -> None:
    peer = await node.raw()
    answer = await peer.ask(wire.MaxTransactionIdRequest(SESSION, 1, 0, False))
    assert isinstance(answer, wire.MaxTransactionIdResponse)
    peer.send(b"S\0\0" + (29).to_bytes(4, "big") + b"\x1a" + bytes(28))
    assert await peer.closed_by_node()
