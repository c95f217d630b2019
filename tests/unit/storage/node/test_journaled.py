"""A node with a journal: whatever happens, what it has acknowledged is there at the next start."""

import asyncio
import errno
import random
from collections.abc import Sequence

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    KEY,
    PARTITIONS,
    SMALL,
    Client,
    lose_segment,
    new_files,
    open_manager,
    stored,
    syncs,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node_support import record
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.journal.entries import Closed, Entry
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.errors import StorageError
from waltz.storage.node import checkpoints
from waltz.storage.node.journaled import Journaled

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("frequent_checkpoints")]


async def test_appends_of_several_partitions_are_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    for first in (0, 1, 2):
        files.operations.clear()
        sent = [client.append(partition_id, -1, [record(first)]) for partition_id in range(PARTITIONS)]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
        assert syncs(files) == 1
    assert [stored(manager, partition_id) for partition_id in range(PARTITIONS)] == [
        [record(0), record(1), record(2)]
    ] * PARTITIONS
    await manager.close()


async def test_fences_and_marks_of_several_partitions_are_one_sync_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    files.operations.clear()
    sent = [client.send(each, wire.LastSessionInfoRequest, 5, False) for each in range(PARTITIONS)]
    for each in sent:
        await client.outcome(each)
    assert syncs(files) == 1
    sent = [client.send(each, wire.SetLowWaterMarkRequest, 5, -1, False) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert syncs(files) == 2
    assert manager.last_session_info(2).session_id == 5
    journaled = manager._disks.first.journaled
    assert journaled is not None
    monkeypatch.setattr(journaled.state.journal, "extend", lambda: False)
    await journaled._checkpoints.checkpoint()
    assert syncs(files) == 4, "one of the fence file, one of the control file"
    files.restart()
    files.crash(random.Random(1))
    again = await open_manager(files)
    assert again.last_session_info(2).session_id == 5
    await again.close()


async def test_truncations_of_several_partitions_are_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    batch = [record(each) for each in range(5)]
    sent = [client.append(each, -1, batch) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._disks.first.journaled
    assert journaled is not None
    await journaled._checkpoints.checkpoint()
    files.operations.clear()
    sent = [client.send(each, wire.TruncateRequest, -1, each, False) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == list(range(PARTITIONS))
    assert syncs(files) == 1
    again_written = record(2, b"another")
    assert await client.outcome(client.append(1, -1, [again_written])) == SUCCESS
    expected = [batch[:1], [*batch[:2], again_written], batch[:3], batch[:4]]
    assert [stored(manager, each) for each in range(PARTITIONS)] == expected
    assert sorted(journaled.state.segments.by_age()) == list(range(PARTITIONS))
    files.crash(random.Random(1))
    again = await open_manager(files)
    assert [stored(again, each) for each in range(PARTITIONS)] == expected
    await again.close()


async def test_a_stop_in_order_leaves_what_a_node_without_journal_leaves() -> None:
    found = []
    for sizes in (SMALL, None):
        files = new_files()
        manager = await open_manager(files, sizes)
        await manager.assign(range(PARTITIONS))
        client = Client(manager)
        for session_id in (1, 2, 3):
            sent = [
                client.send(each, wire.SetLowWaterMarkRequest, session_id, session_id - 2, False)
                for each in range(PARTITIONS)
            ]
            sent += [client.append(each, session_id, [record(session_id - 1)]) for each in range(PARTITIONS)]
            assert [await client.outcome(each) for each in sent] == [SUCCESS] * 2 * PARTITIONS
        await manager.close()
        names = [
            "waltz-storage.ctl",
            *(f"{each}/{0:019}{end}" for each in range(PARTITIONS) for end in (".seg", ".idx")),
        ]
        found.append([files.contents(f"{DIRECTORY}/{name}") for name in names])
    assert found[0] == found[1]


async def test_the_control_file_is_guarded_before_the_first_group() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign([0])
    files.restart()
    files.crash(random.Random(1))
    control_file = ControlFile.open(files, DIRECTORY, KEY, PARTITIONS)
    assert control_file.guarded
    control_file.close()


async def test_a_partition_that_owes_is_opened_anew_with_what_the_journal_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._disks.first.journaled
    assert journaled is not None

    async def append(partition_ids: Sequence[int], first: int) -> None:
        sent = [client.append(each, -1, [record(first, bytes(2000))]) for each in partition_ids]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * len(partition_ids)

    for first in range(4):
        await append(range(PARTITIONS), first)
    lose_segment(manager, files, 1)
    await journaled._checkpoints.checkpoint()
    assert (list(manager.out_of_service()), journaled.state.segments.by_age()) == ([1], [1])
    for first in range(4, 8):
        await append([0, 2, 3], first)
    files.fail(OSError(errno.EIO, "still broken"), operation="sync")
    with pytest.raises(StorageError, match=r"still broken\); check the disk, then run waltz storage sync-partitions"):
        await manager.assign([1])
    assert (list(manager.out_of_service()), journaled.state.segments.by_age()[0]) == ([1], 1)
    await manager.assign([1])
    assert (manager.out_of_service(), 1 in journaled.state.segments.by_age(), journaled.state.is_unsettled(1)) == (
        {},
        False,
        False,
    )
    assert stored(manager, 1) == [record(each, bytes(2000)) for each in range(4)]
    medium = files.node(f"{DIRECTORY}/1/{0:019}.seg")
    assert medium.durable == medium.content
    await manager.close()
    files.crash(random.Random(2))
    again = await open_manager(files, None)
    assert [len(stored(again, partition_id)) for partition_id in range(PARTITIONS)] == [8, 4, 8, 8]
    await again.close()


async def test_what_was_opened_anew_is_not_written_over_by_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._disks.first.journaled
    assert journaled is not None
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    lose_segment(manager, files, 1)
    await journaled._checkpoints.checkpoint()
    await manager.assign([1])
    last = client.append(1, -1, [record(1, bytes(100_000))])  # too large for the journal
    assert await client.outcome(last) == SUCCESS
    files.crash(random.Random(2))
    again = await open_manager(files)
    assert stored(again, 1) == [record(0), record(1, bytes(100_000))]
    await again.close()


async def test_a_stop_in_order_on_a_full_disk_leaves_the_journal_to_the_next_start() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._disks.first.journaled
    assert journaled is not None
    append = journaled.state.journal.append

    def full(entries: Sequence[Entry]) -> int:
        if isinstance(entries[0], Closed):
            raise OSError(errno.ENOSPC, "No space left on device")
        return append(entries)

    journaled.state.journal.append = full  # type: ignore[method-assign]
    await manager.close()
    files.restart()
    again = await open_manager(files)
    assert [stored(again, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await again.close()


async def crashed_after_a_truncation(files: CrashFiles) -> list[list[Record]]:
    """Truncate to a segment before those of which the journal holds records; what should be found then."""
    manager = await open_manager(files, threshold=300)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    batch = [record(each) for each in range(12)]
    for each in batch:
        sent = [client.append(partition_id, -1, [each]) for partition_id in range(PARTITIONS)]
        assert [await client.outcome(number) for number in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._disks.first.journaled
    assert journaled is not None
    assert journaled.state.is_unsettled(1)
    assert len(manager.partitions[1].log._view.segments) > 1
    assert await client.outcome(client.send(1, wire.TruncateRequest, -1, 2, False)) == 2
    files.crash(random.Random(1))
    return [batch[:3] if partition_id == 1 else batch for partition_id in range(PARTITIONS)]


async def test_segments_of_which_the_journal_holds_records_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = new_files()
    expected = await crashed_after_a_truncation(files)
    again = await open_manager(files, threshold=300)
    assert again.out_of_service() == {}
    assert [stored(again, each) for each in range(PARTITIONS)] == expected
    await again.close()


async def test_segments_that_are_taken_away_without_settling_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: records of segments that are gone stay in the journal."""
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    truncate = Journaled.truncate

    async def truncate_without_settling(journaled: Journaled, log: PartitionLog, transaction_id: int) -> int:
        with monkeypatch.context() as planted:
            planted.setattr(Journaled, "_settle", lambda self, log: asyncio.sleep(0))
            return await truncate(journaled, log, transaction_id)

    monkeypatch.setattr(Journaled, "truncate", truncate_without_settling)
    files = new_files()
    await crashed_after_a_truncation(files)
    again = await open_manager(files, threshold=300)
    assert list(again.out_of_service()) == [1]
    await again.close()
