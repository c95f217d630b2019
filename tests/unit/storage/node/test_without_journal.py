"""What becomes of changes when the journal fails or stays full."""

import asyncio
import random

import pytest

from tests.unit.storage.node.journal_support import (
    PARTITIONS,
    Client,
    break_journal,
    new_files,
    open_manager,
    stored,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node_support import record
from waltz.common.wire import storage as wire
from waltz.storage.node import checkpoints, turns
from waltz.storage.node.checkpoints import Checkpoints

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("frequent_checkpoints")]


async def test_a_truncation_on_its_way_when_the_journal_fails_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    batch = [record(each) for each in range(5)]
    sent = [client.append(each, -1, batch) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    break_journal(manager)
    sent = [client.send(each, wire.TruncateRequest, -1, each, False) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == list(range(PARTITIONS))
    files.crash(random.Random(1))
    again = await open_manager(files)
    assert [stored(again, each) for each in range(PARTITIONS)] == [batch[: each + 1] for each in range(PARTITIONS)]
    await again.close()


async def test_a_failed_journal_costs_no_partition_its_service() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._disks.first.journaled
    assert journaled is not None
    journaled.state.journal._file.close()  # type: ignore[union-attr]  # the next write of the journal fails
    sent = [client.append(partition_id, -1, [record(1)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    sent = [client.append(partition_id, -1, [record(2)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert "because it has failed" in str(manager.health().problems())
    files.restart()
    files.crash(random.Random(1))
    again = await open_manager(files)
    for partition_id in range(PARTITIONS):
        assert stored(again, partition_id) == [record(0), record(1), record(2)]
    assert again.health().problems() == {}
    await again.close()


async def test_a_full_journal_refuses_and_takes_appends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FULL_S", 0.01)
    monkeypatch.setattr(Checkpoints, "checkpoint", lambda self: asyncio.sleep(0))
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    data = bytes(6000)
    acknowledged, refused = 0, ""
    while not refused:
        sent = [client.append(each, -1, [record(acknowledged, data)]) for each in range(PARTITIONS)]
        answers = [await client.outcome(each) for each in sent]
        refused = next((str(answer) for answer in answers if answer != SUCCESS), "")
        acknowledged += not refused
        assert acknowledged < 100
    assert "over capacity" in refused
    assert manager.out_of_service() == {}
    assert "journal is full" in str(manager.health().problems())
    fence = client.send(0, wire.LastSessionInfoRequest, 5, False)
    await client.outcome(fence)
    monkeypatch.undo()
    mark = max(len(stored(manager, each)) for each in range(PARTITIONS))
    journaled = manager._disks.first.journaled
    assert journaled is not None
    await journaled._checkpoints.checkpoint()
    sent = [client.append(each, 9, [record(len(stored(manager, each)), data)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert mark >= acknowledged
    await manager.close()
