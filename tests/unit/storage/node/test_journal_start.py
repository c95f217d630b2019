"""How a node begins with a journal that was left by a node that died, whether it keeps one itself or not."""

import random

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    KEY,
    PARTITIONS,
    SMALL,
    Client,
    new_files,
    open_manager,
    stored,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node_support import record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.replay import mark_lost
from waltz.storage.disk.volumes import Volumes
from waltz.storage.node.checkpoints import Checkpoints


async def left_by_a_crash(monkeypatch: pytest.MonkeyPatch) -> CrashFiles:
    """A directory whose segments lack what the journal has."""
    monkeypatch.setattr(Checkpoints, "checkpoint", _no_checkpoint)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    files.restart()
    for partition_id in range(PARTITIONS):
        node = files.node(f"{DIRECTORY}/{partition_id}/{0:019}.seg")
        node.pending.clear()
        node.content = bytearray(node.durable)
        assert len(node.content) == 128
    return files


async def _no_checkpoint(self: Checkpoints) -> None:
    """Nothing is synced in the background."""


@pytest.mark.parametrize("sizes", [SMALL, None])
async def test_the_journal_is_replayed_by_any_next_node(monkeypatch: pytest.MonkeyPatch, sizes: None) -> None:
    files = await left_by_a_crash(monkeypatch)
    manager = await open_manager(files, sizes)
    assert [stored(manager, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    files.restart()
    files.crash(random.Random(3))
    control_file = ControlFile.open(files, DIRECTORY, KEY, PARTITIONS)
    assert control_file.guarded == (sizes is not None)
    control_file.close()


async def test_what_was_written_after_a_replay_is_not_replayed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    files = await left_by_a_crash(monkeypatch)
    manager = await open_manager(files, None)
    client = Client(manager)
    assert await client.outcome(client.append(0, -1, [record(1, b"later")])) == SUCCESS
    await manager.close()
    manager = await open_manager(files)
    assert stored(manager, 0) == [record(0), record(1, b"later")]
    await manager.close()


async def test_a_directory_of_which_something_is_lost_stays_guarded() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.close()
    mark_lost(files, f"{DIRECTORY}/2", "a group of the journal is damaged")
    manager = await open_manager(files)
    await manager.close()
    control_file = ControlFile.open(files, DIRECTORY, KEY, PARTITIONS)
    fence_file = FenceFile.open(files, DIRECTORY, KEY, PARTITIONS)
    volumes = Volumes.open(files, DIRECTORY, None, KEY)
    directory = StorageDirectory(
        files, DIRECTORY, control_file, fence_file, volumes, segment_size_threshold_bytes=1000, segment_cache_capacity=1
    )
    assert (control_file.guarded, list(directory.lost_partitions())) == (True, [2])
    fence_file.close()
    control_file.close()
