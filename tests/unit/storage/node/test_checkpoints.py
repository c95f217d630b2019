"""Checkpoints take from the journal what it holds, and replace a journal that has failed."""

import asyncio
import errno
import random

import pytest

from tests.unit.storage.node.journal_support import (
    PARTITIONS,
    Client,
    break_journal,
    lose_segment,
    new_files,
    open_manager,
    stored,
    syncs,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node_support import record
from waltz.common.wire import storage as wire
from waltz.storage.errors import StorageError
from waltz.storage.node import checkpoints
from waltz.storage.node.checkpoints import Checkpoints

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("frequent_checkpoints")]


async def test_a_damaged_entry_keeps_no_other_partition_from_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    for each in [client.send(each, wire.LastSessionInfoRequest, 5, False) for each in range(PARTITIONS)]:
        await client.outcome(each)
    journaled = manager._disks.first.journaled
    assert journaled is not None
    entry = journaled.state.fence_file._slots.entry(1)
    entry.damage = StorageError("planted")
    await journaled._checkpoints.checkpoint()
    assert journaled.state.notes.by_age() == [1]
    assert [journaled.state.fence_file.get(each) for each in (0, 2, 3)] == [5, 5, 5]
    entry.damage = None
    await manager.close()


async def test_a_new_journal_takes_the_place_of_one_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    first_pause_s, second_pause_s, _ = checkpoints.RENEWALS_S
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    written = 0

    async def append_everywhere() -> None:
        nonlocal written
        sent = [client.append(partition_id, -1, [record(written)]) for partition_id in range(PARTITIONS)]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
        written += 1

    await append_everywhere()
    break_journal(manager)
    await append_everywhere()
    assert "it has failed: [Errno 5] planted" in str(manager.health().problems())
    files.fail(OSError(errno.EIO, "planted"), operation="rename")
    await asyncio.sleep(first_pause_s + 1)
    assert not files.clear_fault(), "there was an attempt"
    assert "it has failed" in str(manager.health().problems())
    await append_everywhere()
    await asyncio.sleep(second_pause_s)
    assert manager.health().problems() == {}
    monkeypatch.setattr(Checkpoints, "checkpoint", lambda self: asyncio.sleep(0))
    await asyncio.sleep(1)  # a checkpoint that is under way ends
    files.operations.clear()
    await append_everywhere()
    assert syncs(files) == 1
    files.crash(random.Random(3))
    again = await open_manager(files)
    for partition_id in range(PARTITIONS):
        assert stored(again, partition_id) == [record(each) for each in range(written)]
    await again.close()


async def test_a_journal_that_fails_again_and_again_is_left_to_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_s = checkpoints.RENEWALS_S[0]
    monkeypatch.setattr(checkpoints, "RENEWALS_S", (pause_s,))
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    for first in range(2):
        break_journal(manager)
        sent = [client.append(each, -1, [record(first)]) for each in range(PARTITIONS)]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
        if first == 0:
            await asyncio.sleep(pause_s + 1)
            assert manager.health().problems() == {}
    before = len(files.operations)
    await asyncio.sleep(24 * 3600)
    assert len(files.operations) == before
    assert "it has failed" in str(manager.health().problems())
    await manager.close()


async def test_a_partition_whose_segment_cannot_be_synced_is_out_of_service_alone() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    lose_segment(manager, files, 1)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    async with asyncio.timeout(10):
        while not manager.out_of_service():
            await asyncio.sleep(0.001)
    assert list(manager.out_of_service()) == [1]
    await manager.close()
    files.restart()
    files.crash(random.Random(2))
    again = await open_manager(files, None)
    assert [stored(again, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await again.close()
