"""Times of commits at a running storage node, with and without a journal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.storage.node_support import TIMEOUT_S, RunningNode, records, running_node
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.frames import STORAGE
from waltz.common.wire.storage_times import MAX_TIMES, CommitTime, TimeEntryResponse, TimeQuestion
from waltz.storage.node import times
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

AT, COVERING = TimeQuestion
SESSION = 4


@pytest.fixture(params=[True, False], ids=["journal", "no journal"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path, journal_enabled=request.param) as node:
        yield node


async def entry(
    client: StorageClient, question: TimeQuestion, value: int, partition: int = 0
) -> tuple[int, int] | None:
    return await client.time_entry(SESSION, partition, question, value, timeout_s=TIMEOUT_S)


async def append(client: StorageClient, first: int, count: int, partition: int = 0) -> None:
    await client.append(SESSION, partition, records(first, count), timeout_s=TIMEOUT_S)


async def test_what_owners_tell_is_answered(node: RunningNode) -> None:
    client = await node.client()
    assert client.keeps_times
    await append(client, 0, 10)
    await append(client, 0, 3, partition=1)
    assert await entry(client, AT, 1 << 40) is None
    client.note_committed(SESSION, 0, 4, 1000)
    client.note_committed(SESSION, 1, 2, 1000)
    client.note_committed(SESSION, 0, 9, 2000)
    assert await entry(client, AT, 1999) == (4, 1000)
    assert await entry(client, AT, 2000) == (9, 2000)
    assert await entry(client, AT, 999) is None
    assert await entry(client, AT, 5000, partition=1) == (2, 1000)
    assert await entry(client, COVERING, 5) == (9, 2000)
    assert await entry(client, COVERING, 4) == (4, 1000)
    assert await entry(client, COVERING, 10) is None


async def test_only_what_is_stored_in_the_session_that_is_followed_is_entered(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 10)
    client.note_committed(SESSION - 1, 0, 3, 1000)
    client.note_committed(SESSION + 1, 0, 4, 1000)
    client.note_committed(SESSION, 0, 10, 1000)
    client.note_committed(SESSION, 2, 0, 1000)
    assert await entry(client, AT, 1 << 40) is None
    await client.last_session_info(SESSION + 1, 0, timeout_s=TIMEOUT_S)
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await entry(client, AT, 0)


async def test_a_clock_that_goes_back_moves_no_time_back(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 10)
    for transaction_id, time_ms in ((3, 5000), (5, 2000), (6, 3000), (7, 5500)):
        client.note_committed(SESSION, 0, transaction_id, time_ms)
    assert await entry(client, AT, 4999) is None
    assert await entry(client, AT, 5000) == (6, 5000)
    assert await entry(client, AT, 5500) == (7, 5500)


async def test_a_truncation_takes_the_times_along(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 10)
    for transaction_id in (4, 7, 9):
        client.note_committed(SESSION, 0, transaction_id, transaction_id * 1000)
    node.node.manager.partitions[0].log.write_times()
    assert await client.truncate(SESSION, 0, 6, timeout_s=TIMEOUT_S) == 6
    assert await entry(client, AT, 1 << 40) == (4, 4000)
    await append(client, 7, 3)
    assert await entry(client, COVERING, 7) is None


@pytest.mark.parametrize("journal", [True, False])
async def test_times_outlive_a_stop_and_go_with_the_files(tmp_path: Path, journal: bool) -> None:
    path = tmp_path / "0" / f"{0:019d}.tdx"
    async with running_node(tmp_path, journal_enabled=journal) as node:
        client = await node.client()
        await append(client, 0, 10)
        client.note_committed(SESSION, 0, 9, 2000)
        assert await entry(client, AT, 2000) == (9, 2000)
        assert not path.exists(), "it is written now and then"
    assert path.stat().st_size == 60
    async with running_node(tmp_path, journal_enabled=not journal) as node:
        client = await node.client()
        assert await entry(client, AT, 2000) == (9, 2000)
        await node.node.manager.unassign([0], delete_files=True)
        assert not path.exists()


async def test_times_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "WRITE_INTERVAL_S", 0.001)
    async with running_node(tmp_path) as node:
        client = await node.client()
        await append(client, 0, 10)
        client.note_committed(SESSION, 0, 9, 2000)
        async with asyncio.timeout(TIMEOUT_S):
            while not (path := tmp_path / "0" / f"{0:019d}.tdx").exists() or path.stat().st_size < 60:
                await asyncio.sleep(0.001)


async def test_a_file_that_is_no_index_costs_nothing_but_the_times(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await append(await node.client(), 0, 3)
    (tmp_path / "0" / f"{0:019d}.tdx").write_bytes(b"what is this?" * 10)
    async with running_node(tmp_path) as node:
        client = await node.client()
        assert await entry(client, AT, 1 << 40) is None
        client.note_committed(SESSION, 0, 2, 2000)
        assert await entry(client, AT, 1 << 40) == (2, 2000)


async def test_times_are_listed_for_another_storage(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 10)
    for transaction_id in (4, 7, 9):
        client.note_committed(SESSION, 0, transaction_id, transaction_id * 1000)
    entries = [CommitTime(each, each * 1000) for each in (4, 7, 9)]

    async def times(first: int, max_count: int) -> list[CommitTime]:
        return await client.times(SESSION, 0, first, max_count, timeout_s=TIMEOUT_S)

    assert await times(0, MAX_TIMES) == entries
    assert await times(5, 1) == entries[1:2]
    assert await times(10, 9) == await times(0, 0) == await times(0, -3) == []
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await client.times(SESSION - 1, 0, 0, 9, timeout_s=TIMEOUT_S)


async def test_times_are_entered_before_those_that_are_known(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 10)
    client.note_committed(SESSION, 0, 6, 6000)
    known = [CommitTime(2, 2000), CommitTime(6, 1), CommitTime(9, 9000), CommitTime(10, 10_000)]
    last = await client.enter_times(SESSION, 0, known, timeout_s=TIMEOUT_S)
    assert last == CommitTime(9, 9000), "the node does not hold transaction 10"
    assert await entry(client, AT, 2000) == (2, 2000)
    assert await entry(client, AT, 6000) == (6, 6000)
    assert await client.enter_times(SESSION, 0, [], timeout_s=TIMEOUT_S) == last
    assert await client.enter_times(SESSION, 1, [], timeout_s=TIMEOUT_S) is None
    too_many = [CommitTime(each, each) for each in range(MAX_TIMES + 1)]
    with pytest.raises(RemoteStorageError, match="1025 times in one request, at most 1024 are entered"):
        await client.enter_times(SESSION, 0, too_many, timeout_s=TIMEOUT_S)
    with pytest.raises(RemoteStorageError, match="session id has changed"):
        await client.enter_times(SESSION - 1, 0, known, timeout_s=TIMEOUT_S)


async def test_times_are_entered_while_a_replica_is_filled(node: RunningNode) -> None:
    client = await node.client()
    await append(client, 0, 3)
    await client.set_low_water_mark(SESSION, 0, 2, timeout_s=TIMEOUT_S)
    times_ = [CommitTime(1, 1000)]
    with pytest.raises(RemoteStorageError, match="cannot run offline recovery while partition is online"):
        await client.enter_times(SESSION, 0, times_, offline=True, timeout_s=TIMEOUT_S)
    await node.node.manager.set_available([0], False)
    with pytest.raises(RemoteStorageError, match="have been disabled"):
        await client.enter_times(SESSION, 0, times_, timeout_s=TIMEOUT_S)
    assert await client.enter_times(SESSION, 0, times_, offline=True, timeout_s=TIMEOUT_S) == times_[0]
    await node.node.manager.set_available([0], True)
    assert await entry(client, AT, 1000) == (1, 1000)


async def test_answers_are_no_requests(node: RunningNode) -> None:
    peer = await node.raw(versions=(0, 1))
    peer.send(our_wire.encode(TimeEntryResponse(1, 2, 0, 3, 4), 1))
    assert await peer.closed_by_node()


async def test_a_storage_of_the_original_is_told_nothing(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.storage.remote.client._FAMILY", STORAGE._replace(versions=(0,)))
    client = await node.client()
    await append(client, 0, 3)
    assert not client.keeps_times
    client.note_committed(SESSION, 0, 2, 1000)
    assert await client.max_transaction_id(SESSION, 0, timeout_s=TIMEOUT_S) == 2
