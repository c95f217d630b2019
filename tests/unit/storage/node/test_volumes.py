"""A storage node with its partitions on several disks, of which one goes missing."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.unit.storage.crash_files import CrashFiles, Directory
from tests.unit.storage.crash_files import Node as File
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
from waltz.common.ids import UNKNOWN_END
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.metrics.registry import Registry
from waltz.common.storage_health import find_ailments
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.draining import drain
from waltz.storage.disk.volumes import Volumes
from waltz.storage.errors import StorageError
from waltz.storage.node.checkpoints import Checkpoints
from waltz.storage.node.disks import Disks
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.scrubber import Scrubber

FURTHER = ["/one"]
WITH_AND_WITHOUT_JOURNAL = pytest.mark.parametrize("sizes", [SMALL, None], ids=["journal", "no journal"])


class Node(NamedTuple):
    """The files of a node, and the partitions that are in ``/one``."""

    files: CrashFiles
    of_one: Sequence[int]

    def unmount_one(self) -> Directory:
        disk = self.files.root.names["one"]
        assert isinstance(disk, Directory)
        self.mount_one(Directory())
        return disk

    def mount_one(self, disk: Directory) -> None:
        self.files.root.names["one"] = self.files.root.durable["one"] = disk

    @property
    def others(self) -> list[int]:
        return [each for each in range(PARTITIONS) if each not in self.of_one]


async def _no_checkpoint(self: Checkpoints) -> None:
    """Nothing is synced in the background."""


@pytest.fixture
async def node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node was killed after it had acknowledged a record of each partition, in the journals only if there are any."""
    return await killed_node(monkeypatch, request.node.callspec.params["sizes"])


def is_guarded(files: CrashFiles) -> bool:
    control_file = ControlFile.open(files, DIRECTORY, KEY, PARTITIONS)
    control_file.close()
    return control_file.guarded


async def killed_node(monkeypatch: pytest.MonkeyPatch, sizes: JournalSizes | None) -> Node:
    monkeypatch.setattr(Checkpoints, "checkpoint", _no_checkpoint)
    monkeypatch.setattr(Scrubber, "start", lambda self: None)
    files = new_files()
    for path in FURTHER:
        files.make_directory(path)
    files.sync_directory("/")
    manager = await open_manager(files, sizes, further=FURTHER)
    await manager.assign(range(PARTITIONS))
    assert await append(manager, range(PARTITIONS), 0) == [SUCCESS] * PARTITIONS
    of_one = [each for each in range(PARTITIONS) if files.linked_directory(f"{DIRECTORY}/{each}") == f"/one/{each}"]
    assert 0 < len(of_one) < PARTITIONS
    files.restart()
    lose_unsynced(files.root)
    return Node(files, of_one)


def lose_unsynced(directory: Directory) -> None:
    """Power fails, and nothing that was not synced is there."""
    directory.names, directory.pending = dict(directory.durable), []
    for each in directory.names.values():
        if isinstance(each, Directory):
            lose_unsynced(each)
        elif isinstance(each, File):
            each.content, each.pending = bytearray(each.durable), []


async def append(manager: StorageManager, partition_ids: Sequence[int], transaction_id: int) -> list[object]:
    client = Client(manager)
    sent = [client.append(each, -1, [record(transaction_id)]) for each in partition_ids]
    return [await client.outcome(each) for each in sent]


@WITH_AND_WITHOUT_JOURNAL
async def test_all_partitions_are_there_after_a_crash(node: Node, sizes: JournalSizes | None) -> None:
    manager = await open_manager(node.files, sizes, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await manager.close()


@WITH_AND_WITHOUT_JOURNAL
async def test_the_other_partitions_are_served_without_a_volume(node: Node, sizes: JournalSizes | None) -> None:
    node.unmount_one()
    registry = Registry()
    manager = await open_manager(node.files, sizes, further=FURTHER, registry=registry)
    assert sorted(manager.partitions) == node.others
    assert await append(manager, node.others, 1) == [SUCCESS] * len(node.others)
    health = manager.health()
    assert sorted(health.out_of_service) == list(node.of_one)
    ailment = find_ailments(health, "HOST:1")[0]
    assert "is missing; it was in /one" in ailment.text
    assert ailment.remedy == ("mount the volume, then restart the storage node", "missing-volume")
    text = prometheus_text(registry)
    assert "waltz_storage_num_missing_volumes 1" in text
    await manager.close()


@pytest.mark.parametrize("sizes", [None])
async def test_what_would_destroy_absent_partitions_is_refused(node: Node, sizes: None) -> None:
    disk = node.unmount_one()
    manager = await open_manager(node.files, sizes, further=FURTHER)
    absent = node.of_one[0]
    with pytest.raises(StorageError, match="is missing"):
        await manager.unassign([absent], delete_files=True)
    with pytest.raises(StorageError, match="is missing"):
        await manager.assign([absent])
    with pytest.raises(StorageError, match="is missing"):
        await manager.survey(absent)
    await manager.unassign([absent], delete_files=False)
    with pytest.raises(StorageError, match="is missing"):
        await manager.assign([absent])  # the fence of its files must not be forgotten
    await manager.close()
    node.mount_one(disk)
    manager = await open_manager(node.files, sizes, further=FURTHER)
    await manager.assign([absent])
    assert stored(manager, absent) == [record(0)]
    await manager.close()


def as_by_one_journal(files: CrashFiles) -> None:
    """What an earlier version leaves: the records of all partitions in the journal of the first directory.

    The records were written there by :func:`all_into_the_first`.
    """
    for path in FURTHER:
        for name in files.list_directory(f"{path}/journal"):
            files.remove(f"{path}/journal/{name}")
        files.remove_directory(f"{path}/journal")
    document = json.loads(files.contents(f"{DIRECTORY}/volumes.json"))
    del document["journals"]
    files.overwrite(f"{DIRECTORY}/volumes.json", json.dumps(document).encode())


def all_into_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the changes of all partitions to the journal of the first directory, as an earlier version does."""
    monkeypatch.setattr(Disks, "of", lambda self, _: self.first)


@pytest.fixture
async def node_of_one_journal(monkeypatch: pytest.MonkeyPatch) -> Node:
    """As ``node``, left by an earlier version."""
    with monkeypatch.context() as patched:
        all_into_the_first(patched)
        node: Node = await killed_node(patched, SMALL)
    as_by_one_journal(node.files)
    return node


@pytest.mark.parametrize("sizes", [SMALL, None])
async def test_the_journal_of_an_earlier_version_has_the_records_of_all_disks(
    node_of_one_journal: Node, sizes: JournalSizes | None
) -> None:
    files = node_of_one_journal.files
    manager = await open_manager(files, sizes, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    assert await append(manager, range(PARTITIONS), 1) == [SUCCESS] * PARTITIONS
    files.restart()
    lose_unsynced(files.root)
    manager = await open_manager(files, sizes, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0), record(1)]] * PARTITIONS
    await manager.close()


@pytest.mark.parametrize("sizes", [SMALL])
async def test_a_volume_that_comes_back_lacks_what_the_journal_of_an_earlier_version_had(
    node_of_one_journal: Node, sizes: JournalSizes
) -> None:
    node = node_of_one_journal
    disk = node.unmount_one()
    manager = await open_manager(node.files, sizes, further=FURTHER)
    await manager.close()
    assert is_guarded(node.files)  # the original would serve the partition without the records
    node.mount_one(disk)
    manager = await open_manager(node.files, sizes, further=FURTHER)
    assert sorted(manager.partitions) == node.others
    for reason in manager.health().out_of_service.values():
        assert "the journal had records of the partition while its volume was missing" in reason
    assert await manager.survey(node.of_one[0]) == (((0, UNKNOWN_END),), UNKNOWN_END, False)
    with pytest.raises(StorageError, match="transaction 0 is missing, and no other replica has delivered a copy"):
        await manager.repair(node.of_one[0], 0)
    await manager.stage(node.of_one[0], [record(0)])
    await manager.repair(node.of_one[0], 0)
    assert stored(manager, node.of_one[0]) == [record(0)]
    await manager.close()


@pytest.mark.parametrize("sizes", [SMALL])
async def test_a_volume_that_was_there_when_the_journal_was_replayed_lacks_nothing(
    node: Node, sizes: JournalSizes
) -> None:
    manager = await open_manager(node.files, sizes, further=FURTHER)
    await manager.close()
    disk = node.unmount_one()
    manager = await open_manager(node.files, sizes, further=FURTHER)
    await manager.close()
    node.mount_one(disk)
    manager = await open_manager(node.files, sizes, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await manager.close()


@pytest.mark.parametrize("sizes", [SMALL])
async def test_a_drain_needs_all_volumes(node: Node, sizes: JournalSizes) -> None:
    disk = node.unmount_one()
    with pytest.raises(StorageError, match="volumes of /store are missing .* mount them, then repeat"):
        drain(node.files, DIRECTORY)
    node.mount_one(disk)
    drained = drain(node.files, DIRECTORY)
    assert drained is not None
    assert drained.partitions == tuple(range(PARTITIONS))
    manager = await open_manager(node.files, None, further=FURTHER)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await manager.close()


@WITH_AND_WITHOUT_JOURNAL
async def test_partitions_of_a_lost_volume_are_brought_back_by_a_repair(node: Node, sizes: JournalSizes | None) -> None:
    node.unmount_one()
    manager = await open_manager(node.files, sizes, further=FURTHER)
    await manager.close()
    control_file = ControlFile.open(node.files, DIRECTORY, KEY, PARTITIONS)
    volumes = Volumes.open(node.files, DIRECTORY, None, KEY)
    volumes.guard(control_file)
    gone = next(each.volume_id for each in volumes.states() if not each.present)
    assert gone is not None
    assert volumes.forget(gone) == tuple(node.of_one)
    volumes.close()
    control_file.close()
    manager = await open_manager(node.files, sizes, further=FURTHER)
    reasons = manager.health().out_of_service
    assert sorted(reasons) == sorted(node.of_one)
    assert all("is lost, and all records of the partition with it" in reason for reason in reasons.values())
    for partition_id in node.of_one:
        await manager.stage(partition_id, [record(0)])
        await manager.repair(partition_id, 0)
    assert [stored(manager, each) for each in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await manager.close()
