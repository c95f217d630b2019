"""A partition moves to another disk while it is served: one valid copy at each moment, and the owner sees a pause."""

import asyncio
import copy
import errno
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.unit.storage.crash_files import CrashFile, CrashFiles
from tests.unit.storage.crash_files import Node as FileNode
from tests.unit.storage.node import test_disks
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    PARTITIONS,
    SMALL,
    Client,
    open_manager,
    stored,
)
from tests.unit.storage.node.test_disks import partitions_on, two_disks
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node.test_volumes import FURTHER, append
from tests.unit.storage.node_support import record
from waltz.common.wire import storage as wire
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.errors import OverCapacityError, PartitionNotAssignedError, StorageError
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.moving import PartitionCopy

pytestmark = pytest.mark.virtual_time

WITH_AND_WITHOUT_JOURNAL = pytest.mark.parametrize("sizes", [SMALL, None], ids=["journal", "no journal"])
WAYS = pytest.mark.parametrize(("since", "to"), [(DIRECTORY, "/one"), ("/one", DIRECTORY), ("/one", "/two")])
RATE = 1 << 30
MAX_CALLS = 400

_no_background = test_disks._no_background


async def three_disks(sizes: JournalSizes | None, since: str) -> tuple[CrashFiles, StorageManager, int]:
    """A node, and a partition of one of its disks with records in the journal and in its segment."""
    files, manager = await two_disks(sizes)
    await manager.close()
    files.make_directory("/two")
    files.sync_directory("/")
    manager = await open_manager(files, sizes, threshold=400, further=[*FURTHER, "/two"])
    partition_id = partitions_on(files, since)[0]
    for transaction_id in range(1, 6):
        assert await append(manager, range(PARTITIONS), transaction_id) == [SUCCESS] * PARTITIONS
    return files, manager, partition_id


def where(files: CrashFiles, partition_id: int) -> str:
    return (files.linked_directory(f"{DIRECTORY}/{partition_id}") or f"{DIRECTORY}/0").rpartition("/")[0]


def records(count: int) -> list[object]:
    return [record(transaction_id) for transaction_id in range(count)]


async def reopened(files: CrashFiles, sizes: JournalSizes | None) -> StorageManager:
    return await open_manager(files, sizes, threshold=400, further=[*FURTHER, "/two"])


def hold(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Do something while the partition is suspended."""
    rest = PartitionCopy.rest

    async def held(self: PartitionCopy) -> None:
        meanwhile()
        await rest(self)

    monkeypatch.setattr(PartitionCopy, "rest", held)


@WITH_AND_WITHOUT_JOURNAL
@WAYS
async def test_requests_wait_while_a_partition_moves(
    monkeypatch: pytest.MonkeyPatch, sizes: JournalSizes | None, since: str, to: str
) -> None:
    files, manager, partition_id = await three_disks(sizes, since)
    client, sent = Client(manager), []

    def meanwhile() -> None:
        sent.append(client.append(partition_id, 3, [record(6)]))
        sent.append(client.send(partition_id, wire.MaxTransactionIdRequest, 3, False))
        sent.append(client.append(partition_id, 2, [record(7)]))
        sent.append(client.append(partition_id, 3, [record(7)]))
        manager.partitions[partition_id].note_committed(3, 5, 1234)

    hold(monkeypatch, meanwhile)
    assert await manager.move_to_disk(partition_id, to, RATE) == since
    outcomes = [await client.outcome(each) for each in sent]
    assert outcomes[:2] == [SUCCESS, 6]
    assert "session" in str(outcomes[2])
    assert outcomes[3] == SUCCESS
    assert stored(manager, partition_id) == records(8)
    assert manager.partitions[partition_id].log.times.last_time_ms == 1234
    assert where(files, partition_id) == to
    assert not files.exists(f"{since}/{partition_id}") or since == DIRECTORY
    assert await manager.move_to_disk(partition_id, to, RATE) is None
    files.crash(random.Random(1))
    manager = await reopened(files, sizes)
    assert stored(manager, partition_id) == records(8)
    await manager.close()


@WITH_AND_WITHOUT_JOURNAL
@WAYS
async def test_a_node_that_dies_during_a_move_has_one_valid_copy(
    sizes: JournalSizes | None, since: str, to: str
) -> None:
    """Power fails before each call of a file in turn."""
    files, manager, partition_id = await three_disks(sizes, since)
    states: list[CrashFiles] = []

    def keep_state(_operation: str) -> None:
        state = CrashFiles()
        state.root = copy.deepcopy(files.root)
        states.append(state)

    files.on_operation = keep_state
    await manager.move_to_disk(partition_id, to, RATE)
    files.on_operation = None
    await manager.close()
    assert len(states) > 20
    seen = set()
    for seed, state in enumerate(states):
        state.crash(random.Random(seed))
        found = await reopened(state, sizes)
        assert [stored(found, each) for each in range(PARTITIONS)] == [records(6)] * PARTITIONS
        assert await append(found, range(PARTITIONS), 6) == [SUCCESS] * PARTITIONS
        place = where(state, partition_id)
        seen.add(place)
        copies = [
            path
            for path in (DIRECTORY, *FURTHER, "/two")
            for name in state.list_directory(path)
            if name.split(".")[0] == str(partition_id) and state.linked_directory(f"{path}/{name}") is None
        ]
        assert copies == [place]
        await found.close()
    assert seen == {since, to}


class BadDisk:
    """From a call on, all calls for a directory fail, or only one of them."""

    def __init__(self, files: CrashFiles, path: str, after: int, *, once: bool) -> None:
        self._files, self._path, self._left, self._once = files, path, after, once
        self.met = False

    def check(self, path: str) -> None:
        if path != self._path and not path.startswith(self._path + "/"):
            return
        self._left -= 1
        if self._left < 0 and not (self._once and self.met):
            self.met = True
            raise OSError(errno.ENOSPC, "planted")

    def nodes(self) -> Iterator[FileNode]:
        for name in self._files.list_directory(self._path):
            if name[0].isdecimal():
                path = f"{self._path}/{name}"
                for each in self._files.list_directory(path):
                    yield self._files.node(f"{path}/{each}")

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("open", "make_directory", "rename", "sync_directory"):
            monkeypatch.setattr(self._files, name, self._checked(getattr(self._files, name)))
        write = CrashFile.write

        def checked_write(file: CrashFile, offset: int, chunks: Sequence[bytes]) -> None:
            if file._node in list(self.nodes()):
                self.check(self._path)
            write(file, offset, chunks)

        monkeypatch.setattr(CrashFile, "write", checked_write)

    def _checked(self, function: Callable[..., object]) -> Callable[..., object]:
        def checked(path: str, *rest: object, **named: object) -> object:
            self.check(path)
            return function(path, *rest, **named)

        return checked


@WITH_AND_WITHOUT_JOURNAL
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
async def test_a_partition_stays_where_it_was_when_the_destination_fails(
    sizes: JournalSizes | None, once: bool
) -> None:
    for after in range(MAX_CALLS):
        files, manager, partition_id = await three_disks(sizes, DIRECTORY)
        bad = BadDisk(files, "/two", after, once=once)
        with pytest.MonkeyPatch.context() as patch:
            bad.install(patch)
            try:
                await manager.move_to_disk(partition_id, "/two", RATE)
            except OSError:
                moved = False
            else:
                moved = True
            assert (where(files, partition_id) == "/two") == moved
        if once or not moved:
            assert partition_id in manager.partitions
            assert await append(manager, range(PARTITIONS), 6) == [SUCCESS] * PARTITIONS
            assert [stored(manager, each) for each in range(PARTITIONS)] == [records(7)] * PARTITIONS
        await manager.close()
        manager = await reopened(files, sizes)
        assert stored(manager, partition_id)[:6] == records(6)
        await manager.close()
        if not bad.met:
            return
    raise AssertionError("a move takes more calls than are tried")


async def test_a_removal_of_records_during_the_copy_begins_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, partition_id = await three_disks(None, DIRECTORY)
    client = Client(manager)
    ahead, seen = PartitionCopy.ahead, []

    async def then_truncate(self: PartitionCopy, log: object, check: Callable[[], None]) -> None:
        await ahead(self, log, check)  # type: ignore[arg-type]
        seen.append(1)
        if len(seen) == 1:
            sent = [client.send(partition_id, wire.TruncateRequest, 1, 2, False)]
            sent += [client.append(partition_id, 1, [record(3, b"other")]), client.append(partition_id, 1, [record(4)])]
            for each in sent:
                await client.outcome(each)

    monkeypatch.setattr(PartitionCopy, "ahead", then_truncate)
    await manager.move_to_disk(partition_id, "/two", RATE)
    assert len(seen) == 2
    assert stored(manager, partition_id) == [*records(3), record(3, b"other"), record(4)]
    await manager.close()


async def test_what_cannot_be_moved_is_refused() -> None:
    _, manager, partition_id = await three_disks(None, DIRECTORY)
    with pytest.raises(StorageError, match="none of the directories"):
        await manager.move_to_disk(partition_id, "/three", RATE)
    await manager.unassign([partition_id], delete_files=False)
    with pytest.raises(PartitionNotAssignedError):
        await manager.move_to_disk(partition_id, "/two", RATE)
    await manager.close()


async def test_a_partition_that_is_removed_during_the_copy_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    files, manager, partition_id = await three_disks(None, DIRECTORY)
    ahead = PartitionCopy.ahead

    async def then_remove(self: PartitionCopy, log: object, check: Callable[[], None]) -> None:
        await ahead(self, log, check)  # type: ignore[arg-type]
        await manager.unassign([partition_id], delete_files=True)

    monkeypatch.setattr(PartitionCopy, "ahead", then_remove)
    with pytest.raises(StorageError, match="closed or has failed meanwhile"):
        await manager.move_to_disk(partition_id, "/two", RATE)
    assert not files.exists(f"/two/{partition_id}.moving")
    await manager.close()


@WITH_AND_WITHOUT_JOURNAL
@pytest.mark.parametrize("fails_for_good", [False, True])
async def test_a_partition_that_cannot_be_suspended_is_not_moved(
    monkeypatch: pytest.MonkeyPatch, sizes: JournalSizes | None, fails_for_good: bool
) -> None:
    """The journal is full for a moment, or the last sync of the segment fails."""
    files, manager, partition_id = await three_disks(sizes, DIRECTORY)
    partition = manager.partitions[partition_id]
    client, close, sent = Client(manager), partition._durability.close, []

    async def failing(log: PartitionLog) -> None:
        sent.append(client.append(partition_id, -1, [record(6)]))
        await close(log)
        if fails_for_good:
            log.read_only_reason = "flush failed: planted"
        raise OverCapacityError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(partition._durability, "close", failing)
        with pytest.raises(OverCapacityError, match="planted"):
            await manager.move_to_disk(partition_id, "/two", RATE)
    assert where(files, partition_id) == DIRECTORY
    assert not files.exists(f"/two/{partition_id}.moving")
    assert (partition_id in manager.out_of_service()) == fails_for_good
    if fails_for_good:
        assert "not assigned" in str(await client.outcome(sent[0]))
    else:
        assert await client.outcome(sent[0]) == SUCCESS
        assert stored(manager, partition_id) == records(7)
    await manager.close()


async def test_a_read_by_a_tool_waits_for_the_other_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, partition_id = await three_disks(None, DIRECTORY)
    reads: list[asyncio.Task[int]] = []

    def meanwhile() -> None:
        reads.append(asyncio.ensure_future(manager.read_log(partition_id, lambda log: log.max_transaction_id)))

    hold(monkeypatch, meanwhile)
    await manager.move_to_disk(partition_id, "/two", RATE)
    assert await reads[0] == 5
    await manager.close()
