"""A disk of several that fails, or cannot be read, takes only its own partitions out of service."""

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from tests.unit.storage.crash_files import CrashFile, CrashFiles
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    PARTITIONS,
    SMALL,
    Client,
    break_journal,
    lose_segment,
    new_files,
    open_manager,
    stored,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node.test_volumes import FURTHER, append, is_guarded
from tests.unit.storage.node_support import record
from waltz.common.wire import storage as wire
from waltz.storage.node import checkpoints
from waltz.storage.node.disks import Disk
from waltz.storage.node.findings import STALLED_S
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.journaled import MAX_JOURNALED_BYTES
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.scrubber import Scrubber

pytestmark = pytest.mark.virtual_time

T = TypeVar("T")

FIRST_AND_ONE = [DIRECTORY, *FURTHER]


@pytest.fixture(autouse=True)
def _no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 3600.0)
    monkeypatch.setattr(Scrubber, "start", lambda self: None)


async def two_disks(sizes: JournalSizes | None = SMALL) -> tuple[CrashFiles, StorageManager]:
    """A node with two partitions on each of two disks, and a record in each partition."""
    files = new_files()
    for path in FURTHER:
        files.make_directory(path)
    files.sync_directory("/")
    manager = await open_manager(files, sizes, further=FURTHER)
    await manager.assign(range(PARTITIONS))
    assert await append(manager, range(PARTITIONS), 0) == [SUCCESS] * PARTITIONS
    return files, manager


def disk_of(manager: StorageManager, path: str) -> Disk:
    volume_id = next(each for each, where in manager._directory.volumes.there().items() if where == path)
    return manager._disks._disks[volume_id]


def partitions_on(files: CrashFiles, path: str) -> list[int]:
    target = None if path == DIRECTORY else path
    return [
        each
        for each in range(PARTITIONS)
        if (files.linked_directory(f"{DIRECTORY}/{each}") or "").rpartition("/")[0] == (target or "")
    ]


def others(partition_ids: Sequence[int]) -> list[int]:
    return [each for each in range(PARTITIONS) if each not in partition_ids]


@pytest.mark.parametrize("path", FIRST_AND_ONE)
async def test_each_disk_has_a_journal_for_its_own_segments(path: str) -> None:
    files, manager = await two_disks()
    disk, other = (disk_of(manager, each) for each in (path, *(each for each in FIRST_AND_ONE if each != path)))
    assert disk.journaled is not None
    assert other.journaled is not None
    before = other.journaled.state.completed
    assert await append(manager, partitions_on(files, path), 1) == [SUCCESS] * 2
    assert sorted(disk.journaled.state.segments.by_age()) == partitions_on(files, path)
    assert other.journaled.state.completed == before
    assert is_guarded_now(manager)
    await manager.close()
    assert not is_guarded(files)
    assert b"journals" not in files.contents(f"{DIRECTORY}/volumes.json")


def is_guarded_now(manager: StorageManager) -> bool:
    return manager._control_file.guarded


@pytest.mark.parametrize("path", FIRST_AND_ONE)
async def test_a_failed_journal_is_that_of_one_disk(path: str) -> None:
    files, manager = await two_disks()
    break_journal(manager, disk_of(manager, path))
    assert await append(manager, range(PARTITIONS), 1) == [SUCCESS] * PARTITIONS
    assert await append(manager, range(PARTITIONS), 2) == [SUCCESS] * PARTITIONS
    failures = [disk_of(manager, each).journaled.state.failure for each in FIRST_AND_ONE]  # type: ignore[union-attr]
    assert [each is not None for each in failures] == [each == path for each in FIRST_AND_ONE]
    assert f"the journal is not used, because it has failed: planted ({path})" in str(manager.health().disk).replace(
        "[Errno 5] ", ""
    )
    assert is_guarded_now(manager)
    files.restart()
    files.crash(random.Random(1))
    again = await open_manager(files, SMALL, further=FURTHER)
    assert [stored(again, each) for each in range(PARTITIONS)] == [[record(0), record(1), record(2)]] * PARTITIONS
    assert again.health().problems() == {}
    await again.close()
    assert not is_guarded(files)


@pytest.mark.parametrize("path", FIRST_AND_ONE)
async def test_a_disk_that_dies_takes_its_own_partitions_only(path: str) -> None:
    """Journal and segments of a disk fail, one after the other."""
    files, manager = await two_disks()
    gone = partitions_on(files, path)
    break_journal(manager, disk_of(manager, path))
    lose_segment(manager, files, gone[0])
    refused = await append(manager, gone, 1)
    assert all(each != SUCCESS for each in refused)
    assert await append(manager, others(gone), 1) == [SUCCESS] * 2
    assert await append(manager, others(gone), 2) == [SUCCESS] * 2
    await manager.close()
    assert is_guarded(files)
    files.restart()
    again = await open_manager(files, SMALL, further=FURTHER)
    for partition_id in others(gone):
        assert stored(again, partition_id) == [record(0), record(1), record(2)]
    for partition_id in gone:
        assert stored(again, partition_id)[:1] == [record(0)]
    assert again.health().problems() == {}
    await again.close()
    assert not is_guarded(files)


def unreadable(files: CrashFiles, is_bad: Callable[[str], bool], path: str, *, create: bool) -> CrashFile:
    if is_bad(path):
        raise OSError(errno.EIO, "planted")
    return CrashFiles.open(files, path, create=create)


@pytest.mark.parametrize(
    ("bad", "text"),
    [("/one/volume.json", "is missing; it was in /one"), ("/one/journal", "in /one cannot be used: [Errno 5] planted")],
)
@pytest.mark.parametrize("sizes", [SMALL, None], ids=["journal", "no journal"])
async def test_a_disk_that_cannot_be_read_takes_its_own_partitions_only(
    monkeypatch: pytest.MonkeyPatch, bad: str, text: str, sizes: JournalSizes | None
) -> None:
    files, manager = await two_disks()
    gone = partitions_on(files, "/one")
    assert await append(manager, gone, 1) == [SUCCESS] * 2
    files.restart()
    files.crash(random.Random(2))
    with monkeypatch.context() as patched:
        patched.setattr(files, "open", partial(unreadable, files, lambda path: path.startswith(bad)))
        manager = await open_manager(files, sizes, further=FURTHER)
        reasons = manager.health().out_of_service
        assert sorted(reasons) == gone
        assert all(text in reason for reason in reasons.values())
        assert await append(manager, others(gone), 1) == [SUCCESS] * 2
        await manager.close()
    assert is_guarded(files)
    manager = await open_manager(files, sizes, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0), record(1)]] * PARTITIONS
    await manager.close()
    assert not is_guarded(files)


async def test_a_volume_whose_journal_cannot_be_begun_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    files, manager = await two_disks()
    await manager.close()
    with monkeypatch.context() as patched:
        patched.setattr(files, "open", partial(unreadable, files, lambda path: path.startswith("/one/journal")))
        manager = await open_manager(files, SMALL, further=FURTHER)
        assert sorted(manager.health().out_of_service) == partitions_on(files, "/one")
        assert manager._directory.volumes.paths() == [DIRECTORY]
        await manager.close()
    assert not is_guarded(files)  # nothing was in the journal of /one


async def test_directories_of_which_one_is_taken_away_need_no_journal_there() -> None:
    """A volume without partitions is forgotten, with its journal."""
    files = new_files()
    files.make_directory("/one")
    files.sync_directory("/")
    manager = await open_manager(files, SMALL, further=FURTHER)
    await manager.close()
    manager = await open_manager(files, SMALL)
    await manager.assign(range(PARTITIONS))
    assert await append(manager, range(PARTITIONS), 0) == [SUCCESS] * PARTITIONS
    await manager.close()
    assert not is_guarded(files)
    manager = await open_manager(files, SMALL, further=FURTHER)
    assert await append(manager, range(PARTITIONS), 1) == [SUCCESS] * PARTITIONS
    await manager.close()


class _OneDisk(CrashFiles):
    """The same files, of which the calls for one disk do not return while the disk hangs."""

    def __init__(self, files: CrashFiles) -> None:
        self.__dict__ = files.__dict__
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def run(self, function: Callable[[], T]) -> T:
        await self.goes_on.wait()
        return function()


async def test_a_disk_that_hangs_holds_up_its_own_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging: list[_OneDisk] = []

    def of_disk(self: CrashFiles, path: str) -> CrashFiles:
        assert path == "/one"
        hanging.append(_OneDisk(self))
        return hanging[-1]

    monkeypatch.setattr(CrashFiles, "of_disk", of_disk)
    files, manager = await two_disks()
    held = partitions_on(files, "/one")
    hanging[-1].goes_on.clear()
    client = Client(manager)
    sent = {each: client.append(each, -1, [record(1)]) for each in range(PARTITIONS)}
    direct = client.append(held[0], -1, [record(2, bytes(MAX_JOURNALED_BYTES))])
    assert [await client.outcome(sent[each]) for each in others(held)] == [SUCCESS] * 2
    assert await append(manager, others(held), 2) == [SUCCESS] * 2
    fence = client.send(others(held)[0], wire.LastSessionInfoRequest, 7, False)
    await client.outcome(fence)
    assert not {sent[each] for each in held} & client.asker.answers.keys()
    await asyncio.sleep(STALLED_S + 1)
    assert manager.health().disk == "the journal is stalled: a write or sync has not ended for 11 s (/one)"
    hanging[-1].goes_on.set()
    assert [await client.outcome(sent[each]) for each in held] == [SUCCESS] * 2
    assert await client.outcome(direct) == SUCCESS
    assert manager.health().problems() == {}
    await manager.close()


@pytest.mark.parametrize("path", FIRST_AND_ONE)
async def test_a_removed_partition_leaves_nothing_in_either_journal(path: str) -> None:
    """Its records are in the journal of its disk, its fence and marks in that of the first one."""
    files, manager = await two_disks()
    client = Client(manager)
    both = partitions_on(files, path)
    removed = both[0]
    await client.outcome(client.send(removed, wire.LastSessionInfoRequest, 5, False))
    assert await client.outcome(client.send(removed, wire.SetLowWaterMarkRequest, 5, 0, False)) == SUCCESS
    sent = [client.append(each, 5, [record(1)]) for each in both]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * 2
    await manager.unassign([removed], delete_files=True)
    await manager.assign([removed])
    sent = [client.append(removed, 1, [record(0, b"new")]), client.append(both[1], 5, [record(2)])]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * 2
    files.restart()
    files.crash(random.Random(5))
    manager = await open_manager(files, SMALL, further=FURTHER)
    assert stored(manager, removed) == [record(0, b"new")]
    assert stored(manager, both[1]) == [record(0), record(1), record(2)]
    assert manager.last_session_info(removed).low_water_mark == -1
    assert manager.partitions[removed]._session_id == 1
    assert [stored(manager, each) for each in others(both)] == [[record(0)]] * 2
    await manager.close()
    assert not is_guarded(files)
