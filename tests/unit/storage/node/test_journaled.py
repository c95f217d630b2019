"""A node with a journal: whatever happens, what it has acknowledged is there at the next start."""

import asyncio
import errno
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.node.test_partition import SUCCESS, Asker
from tests.unit.storage.node_support import record
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.files.files import File
from waltz.storage.disk.journal.entries import Closed, Entry
from waltz.storage.disk.log.log import Prepared
from waltz.storage.errors import StorageError
from waltz.storage.node import journaled as journaled_module
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.partition import Sleeper
from waltz.storage.node.request_queue import DEFAULT_LIMITS, PartitionRequest
from waltz.storage.node.scrubber import Scrubber
from waltz.storage.node.session_rule import StorageRequest

T = TypeVar("T")
Result = TypeVar("Result")

KEY = UUID(int=7)
PARTITIONS = 4
DIRECTORY = "/store"
SMALL = JournalSizes(file_size_bytes=16 << 12, max_files=3)

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 0.001)
    monkeypatch.setattr(journaled_module, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(journaled_module, "ALONE_TURNS", 2)


async def open_manager(
    files: CrashFiles, sizes: JournalSizes | None = SMALL, threshold: int = 1_000_000
) -> StorageManager:
    return await StorageManager.open(
        files,
        DIRECTORY,
        KEY,
        PARTITIONS,
        Registry(),
        segment_size_threshold_bytes=threshold,
        segment_cache_capacity=2,
        journal=sizes,
    )


def new_files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


class Client:
    """Speaks to the partitions of a node."""

    def __init__(self, manager: StorageManager) -> None:
        self.manager = manager
        self.asker = Asker()
        self._seq_num = 0

    def send(self, partition_id: int, kind: type, session_id: int, *rest: object, size_bytes: int = 100) -> int:
        self._seq_num += 1
        message: StorageRequest = kind(session_id, self._seq_num, partition_id, *rest)
        request = PartitionRequest(message, 0, size_bytes, self.asker)
        self.manager.partitions[partition_id].receive(request)
        return self._seq_num

    def append(self, partition_id: int, session_id: int, batch: list[Record]) -> int:
        size_bytes = sum(40 + len(each.data) for each in batch)
        return self.send(partition_id, wire.AppendRequest, session_id, batch, False, size_bytes=size_bytes)

    async def outcome(self, seq_num: int) -> object:
        answer = await self.asker.until_answered(seq_num)
        if isinstance(answer, wire.FailureResponse):
            return answer.error.message
        return SUCCESS if isinstance(answer, wire.SuccessResponse) else answer[3]


class FailingSync:
    """A file of which no sync succeeds."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.write, self.close = file.write, file.close

    def datasync(self) -> None:
        raise OSError(errno.EIO, "planted")


def break_journal(manager: StorageManager) -> None:
    """The next group is written, and its sync fails."""
    journaled = manager._journaled
    assert journaled is not None
    file = journaled._journal._file
    if file is not None and not isinstance(file, FailingSync):
        journaled._journal._file = FailingSync(file)  # type: ignore[assignment]


def stored(manager: StorageManager, partition_id: int) -> list[Record]:
    return manager.partitions[partition_id].log.read(0, 100_000)


def syncs(files: CrashFiles) -> int:
    return Counter(files.operations)["datasync"] + Counter(files.operations)["sync"]


async def test_appends_of_several_partitions_are_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
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
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
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
    journaled = manager._journaled
    assert journaled is not None
    monkeypatch.setattr(journaled._journal, "extend", lambda: False)
    await journaled._checkpoint()
    assert syncs(files) == 4, "one of the fence file, one of the control file"
    files.restart()
    files.crash(random.Random(1))
    again = await open_manager(files)
    assert again.last_session_info(2).session_id == 5
    await again.close()


async def test_truncations_of_several_partitions_are_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    batch = [record(each) for each in range(5)]
    sent = [client.append(each, -1, batch) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._journaled
    assert journaled is not None
    await journaled._checkpoint()
    files.operations.clear()
    sent = [client.send(each, wire.TruncateRequest, -1, each, False) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == list(range(PARTITIONS))
    assert syncs(files) == 1
    again_written = record(2, b"another")
    assert await client.outcome(client.append(1, -1, [again_written])) == SUCCESS
    expected = [batch[:1], [*batch[:2], again_written], batch[:3], batch[:4]]
    assert [stored(manager, each) for each in range(PARTITIONS)] == expected
    assert sorted(journaled.owing) == list(range(PARTITIONS))
    files.crash(random.Random(1))
    again = await open_manager(files)
    assert [stored(again, each) for each in range(PARTITIONS)] == expected
    await again.close()


async def test_a_truncation_on_its_way_when_the_journal_fails_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
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


async def test_a_damaged_entry_keeps_no_other_partition_from_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    for each in [client.send(each, wire.LastSessionInfoRequest, 5, False) for each in range(PARTITIONS)]:
        await client.outcome(each)
    journaled = manager._journaled
    assert journaled is not None
    entry = journaled._fence_file._slots.entry(1)
    entry.damage = StorageError("planted")
    await journaled._checkpoint()
    assert journaled._notes.by_age() == [1]
    assert [journaled._fence_file.get(each) for each in (0, 2, 3)] == [5, 5, 5]
    entry.damage = None
    await manager.close()


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


async def test_a_failed_journal_costs_no_partition_its_service() -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    journaled = manager._journaled
    assert journaled is not None
    journaled._journal._file.close()  # type: ignore[union-attr]  # the next write of the journal fails
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


async def test_a_new_journal_takes_the_place_of_one_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    first_pause_s, second_pause_s, _ = journaled_module.RENEWALS_S
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
    monkeypatch.setattr(journaled_module.Journaled, "_checkpoint", lambda self: asyncio.sleep(0))
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
    pause_s = journaled_module.RENEWALS_S[0]
    monkeypatch.setattr(journaled_module, "RENEWALS_S", (pause_s,))
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


class SlowFiles(CrashFiles):
    """Files of which no call ends before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None

    async def run(self, function: Callable[[], T]) -> T:
        if self.gate is not None:
            await self.gate.wait()
        return function()


async def test_a_disk_that_hangs_makes_the_journal_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    files = SlowFiles()
    files.make_directory(DIRECTORY)
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._journaled
    assert journaled is not None
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    files.gate = asyncio.Event()
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    while "turn" not in journaled._calls_begun_s:
        await asyncio.sleep(0)
    assert manager.health().problems() == {}
    await asyncio.sleep(25)
    assert manager.health().disk == "the journal is stalled: a write or sync has not ended for 25 s"
    files.gate.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert manager.health().problems() == {}
    files.gate = asyncio.Event()
    checkpoint = asyncio.create_task(journaled._checkpoint())
    while not journaled.syncing_s:
        await asyncio.sleep(0)
    await asyncio.sleep(25)
    (syncing,) = journaled.syncing_s
    assert manager.findings.stalled() == {syncing: "a read or write has not ended for 25 s"}
    files.gate.set()
    await checkpoint
    assert manager.health().problems() == {}
    await manager.close()


async def test_a_full_journal_refuses_and_takes_appends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "FULL_S", 0.01)
    monkeypatch.setattr(journaled_module.Journaled, "_checkpoint", lambda self: asyncio.sleep(0))
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
    journaled = manager._journaled
    assert journaled is not None
    await journaled._checkpoint()
    sent = [client.append(each, 9, [record(len(stored(manager, each)), data)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert mark >= acknowledged
    await manager.close()


def lose_segment(manager: StorageManager, files: CrashFiles, partition_id: int) -> None:
    """The next sync of the partition's segment fails, and what was written since the last one is only in the cache."""
    log = manager.partitions[partition_id].log

    def fail() -> None:
        for end in ("seg", "idx"):
            files.node(f"{DIRECTORY}/{partition_id}/{0:019}.{end}").pending.clear()
        log.read_only_reason = "flush failed: planted"
        raise OSError(errno.EIO, "planted")

    log.flush = fail  # type: ignore[method-assign]


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


async def test_a_partition_that_owes_is_opened_anew_with_what_the_journal_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._journaled
    assert journaled is not None

    async def append(partition_ids: Sequence[int], first: int) -> None:
        sent = [client.append(each, -1, [record(first, bytes(2000))]) for each in partition_ids]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * len(partition_ids)

    for first in range(4):
        await append(range(PARTITIONS), first)
    lose_segment(manager, files, 1)
    await journaled._checkpoint()
    assert (list(manager.out_of_service()), journaled.owing) == ([1], [1])
    for first in range(4, 8):
        await append([0, 2, 3], first)
    files.fail(OSError(errno.EIO, "still broken"), operation="sync")
    with pytest.raises(StorageError, match=r"still broken\); check the disk, then run waltz storage sync-partitions"):
        await manager.assign([1])
    assert (list(manager.out_of_service()), journaled.owing[0]) == ([1], 1)
    await manager.assign([1])
    assert (manager.out_of_service(), 1 in journaled.owing, journaled._is_unsettled(1)) == ({}, False, False)
    assert stored(manager, 1) == [record(each, bytes(2000)) for each in range(4)]
    medium = files.node(f"{DIRECTORY}/1/{0:019}.seg")
    assert medium.durable == medium.content
    await manager.close()
    files.crash(random.Random(2))
    again = await open_manager(files, None)
    assert [len(stored(again, partition_id)) for partition_id in range(PARTITIONS)] == [8, 4, 8, 8]
    await again.close()


async def test_what_was_opened_anew_is_not_written_over_by_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._journaled
    assert journaled is not None
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    lose_segment(manager, files, 1)
    await journaled._checkpoint()
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
    journaled = manager._journaled
    assert journaled is not None
    append = journaled._journal.append

    def full(entries: Sequence[Entry]) -> int:
        if isinstance(entries[0], Closed):
            raise OSError(errno.ENOSPC, "No space left on device")
        return append(entries)

    journaled._journal.append = full  # type: ignore[method-assign]
    await manager.close()
    files.restart()
    again = await open_manager(files)
    assert [stored(again, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await again.close()


async def test_a_defect_in_a_turn_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)

    def defect(self: object, job: object, number: int) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(journaled_module.Journaled, "_note", defect)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    async with asyncio.timeout(10):
        answers = [await client.outcome(each) for each in sent]
    assert all("have been disabled" in str(answer) for answer in answers)
    assert "planted" in manager.out_of_service()[PARTITIONS - 1]
    await manager.close()
    monkeypatch.undo()
    files.restart()
    again = await open_manager(files)  # durable, although nobody was told
    assert [stored(again, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await again.close()


class Model:
    """One partition as a server knows it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.after: list[Record] | None = None
        """The records, should the request in flight have been carried out."""
        self.session_id = 1
        self.mark = -1
        self.acknowledged_mark = -1
        self.acknowledged_session_id = -1
        self.seq_num: int | None = None
        self.kind = ""

    def check(self, found: list[Record], info: object, seed: int) -> None:
        whole = self.records if self.after is None else self.after
        shorter, longer = sorted((self.records, whole), key=len)
        told = (seed, self.kind, len(found), len(self.records), len(whole))
        assert found[: len(shorter)] == shorter, told
        assert found == longer[: len(found)], told  # neither an append nor a truncation is one step of the disk
        self.records, self.after, self.seq_num = found, None, None


class Life:
    """Requests to a node that dies again and again."""

    def __init__(self, seed: int, *, journal_fails: bool = False) -> None:
        self.seed = seed
        self.journal_fails = journal_fails
        self.choices = random.Random(seed)
        self.files = new_files()
        self.models = [Model() for _ in range(PARTITIONS)]
        self.dead = False
        self.left = 0
        self.written = 0

    def on_operation(self, operation: str) -> None:
        self.left -= 1
        if self.left <= 0:
            self.dead = True
            raise CrashNow

    async def live(self) -> None:
        files, choices = self.files, self.choices
        threshold = choices.choice([3000, 1_000_000])
        for _ in range(4):
            self.dead, self.left = False, choices.randint(1, 900)
            sizes = SMALL if choices.random() < 0.8 else None
            files.on_operation = self.on_operation
            try:
                await self.until_death(sizes, threshold)
            except CrashNow:
                pass
            except BaseExceptionGroup:
                assert self.dead
            files.on_operation = None
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            files.crash(choices)
            await self.check(SMALL if choices.random() < 0.8 else None, threshold)

    async def check(self, sizes: JournalSizes | None, threshold: int) -> None:
        manager = await open_manager(self.files, sizes, threshold)
        await manager.assign(range(PARTITIONS))
        assert manager.out_of_service() == {}, self.seed
        for partition_id, model in enumerate(self.models):
            info = manager.last_session_info(partition_id)
            assert info.low_water_mark >= model.acknowledged_mark, self.seed
            assert manager.partitions[partition_id]._session_id >= model.acknowledged_session_id, self.seed
            model.mark = model.acknowledged_mark = info.low_water_mark
            model.session_id = max(model.session_id, manager.partitions[partition_id]._session_id)
            model.check(stored(manager, partition_id), info, self.seed)
        await manager.close()
        control_file = ControlFile.open(self.files, DIRECTORY, KEY, PARTITIONS)
        assert not control_file.guarded, self.seed
        control_file.close()

    async def until_death(self, sizes: JournalSizes | None, threshold: int) -> None:
        manager = await open_manager(self.files, sizes, threshold)
        await manager.assign(range(PARTITIONS))
        client = Client(manager)
        for _ in range(3000):
            if self.dead:
                return
            for partition_id, model in enumerate(self.models):
                if model.seq_num is not None and model.seq_num in client.asker.answers:
                    self.answered(model, client.asker.answers[model.seq_num])
                if model.seq_num is None and self.choices.random() < 0.3:
                    self.begin(client, partition_id, model)
            if self.journal_fails and sizes is not None and self.choices.random() < 0.03:
                break_journal(manager)
            await asyncio.sleep(0 if self.choices.random() < 0.9 else 0.002)
        while not self.dead and any(model.seq_num is not None for model in self.models):
            for model in self.models:
                if model.seq_num is not None and model.seq_num in client.asker.answers:
                    self.answered(model, client.asker.answers[model.seq_num])
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(manager.close())
        while not (self.dead or closing.done()):  # who dies in a task leaves waiting who waits for it
            await asyncio.sleep(0)
        if closing.done():
            closing.result()

    def answered(self, model: Model, answer: wire.Message) -> None:
        model.seq_num = None
        if isinstance(answer, wire.FailureResponse):
            assert self.dead, (self.seed, answer)
            return
        if model.kind == "mark":
            model.acknowledged_mark = model.mark
        model.acknowledged_session_id = model.session_id
        model.records = model.records if model.after is None else model.after
        model.after = None

    def begin(self, client: Client, partition_id: int, model: Model) -> None:
        choice = self.choices.random()
        if choice < 0.1:
            model.session_id += 1
        if choice < 0.8:
            model.kind = "append"
            count = self.choices.choice([1, 1, 2, 5])
            batch = []
            for at in range(count):
                self.written += 1
                data = self.written.to_bytes(4, "big") * self.choices.choice([1, 30, 200])
                batch.append(record(len(model.records) + at, data))
            model.after = [*model.records, *batch]
            model.seq_num = client.append(partition_id, model.session_id, batch)
        elif choice < 0.9:
            model.kind = "mark"
            model.mark = len(model.records) - 1
            mark = (model.mark, False)
            model.seq_num = client.send(partition_id, wire.SetLowWaterMarkRequest, model.session_id, *mark)
        else:
            model.kind = "truncate"
            last = self.choices.randint(min(max(model.mark, -1), len(model.records) - 1), len(model.records) - 1)
            model.after = model.records[: last + 1]
            model.seq_num = client.send(partition_id, wire.TruncateRequest, model.session_id, last, False)


@pytest.mark.parametrize("seed", range(30))
async def test_nothing_acknowledged_is_lost_by_any_crash(seed: int) -> None:
    await Life(seed).live()


@pytest.mark.parametrize("seed", range(10))
async def test_nothing_acknowledged_is_lost_when_journals_fail(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(journaled_module, "RENEWALS_S", (0.0,) * 1000)
    await Life(1000 + seed, journal_fails=True).live()


# Turns that partitions have together


class HeldFiles(CrashFiles):
    """Calls wait as long as they are held."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()
        self.waiting = 0

    async def run(self, function: Callable[[], Result]) -> Result:
        self.waiting += 1
        await self.free.wait()
        self.waiting -= 1
        return await super().run(function)

    async def until_waiting(self) -> None:
        async with asyncio.timeout(10):
            while not self.waiting:
                await asyncio.sleep(0)

    async def stay_waiting(self) -> None:
        """Give everybody else a chance to do what has to wait."""
        for _ in range(10):
            await asyncio.sleep(0)


class Held(NamedTuple):
    """A node of which the calls of files can be held; nothing happens in the background."""

    files: HeldFiles
    manager: StorageManager
    client: Client


@pytest.fixture
async def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    """All partitions are assigned. The parameter of an indirect one is the threshold of segments."""
    monkeypatch.setattr(journaled_module, "IDLE_S", 60.0)
    monkeypatch.setattr(Scrubber, "start", lambda self: None)
    files = HeldFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    manager = await open_manager(files, threshold=getattr(request, "param", 1_000_000))
    await manager.assign(range(PARTITIONS))
    yield Held(files, manager, Client(manager))
    await manager.close()


async def test_appends_of_a_turn_wake_no_tasks_of_partitions(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = held
    await client.outcome(client.append(0, -1, [record(0)]))
    slept: list[Sleeper] = []
    sleep = Sleeper.sleep

    def noting(sleeper: Sleeper) -> Awaitable[None]:
        slept.append(sleeper)
        return sleep(sleeper)

    monkeypatch.setattr(Sleeper, "sleep", noting)
    sent = [client.append(each, -1, [record(each == 0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert len(slept) == 1, "the first one does not know that others follow"


async def test_what_comes_during_a_turn_keeps_its_place(held: Held) -> None:
    files, manager, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    sent += [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    sent += [client.append(1, -1, [record(2)]), client.send(1, wire.TruncateRequest, -1, 1, False)]
    sent += [client.append(1, -1, [record(2, b"after the truncation")])]
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * (2 * PARTITIONS + 1) + [1, SUCCESS]
    assert list(client.asker.answers)[:PARTITIONS] == [2, 3, 4, 1], "all of a turn together"
    assert stored(manager, 1) == [record(0), record(1), record(2, b"after the truncation")]


async def test_what_is_no_append_waits_for_the_turn(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(number)]) for number in range(2) for each in range(PARTITIONS)]
    await files.until_waiting()
    sent.append(client.send(1, wire.MaxTransactionIdRequest, -1, False))
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * 2 * PARTITIONS + [1]


async def test_a_partition_that_fails_in_a_turn_costs_the_others_nothing(held: Held) -> None:
    _, manager, client = held

    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "planted")

    manager.partitions[1].log._write = fail  # type: ignore[assignment, method-assign]
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]
    assert list(manager.out_of_service()) == [1]


async def test_a_newer_session_fences_what_is_in_a_turn(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    client.send(2, wire.LastSessionInfoRequest, 7, False)
    files.free.set()
    answers = [await client.outcome(each) for each in sent]
    assert [answer == SUCCESS for answer in answers] == [True, True, False, True]
    assert "ConcurrentUpdateException" in str(answers[2])


async def test_a_partition_closes_after_the_turn_and_answers_what_waits(held: Held) -> None:
    files, manager, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    late = client.append(1, -1, [record(1)])
    closing = asyncio.create_task(manager.partitions[1].close())
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    await closing
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert "is not assigned" in str(await client.outcome(late))


async def test_a_partition_that_closes_before_the_turn_begins_is_left_out(held: Held) -> None:
    _, manager, client = held
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await manager.partitions[1].close()
    answers = [await client.outcome(each) for each in sent]
    assert [answer == SUCCESS for answer in answers] == [True, False, True, True]
    assert "is not assigned" in str(answers[1])


async def test_during_a_turn_no_more_than_the_queue_has_room_for_is_taken(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    room = DEFAULT_LIMITS.max_requests
    more = [client.append(1, -1, [record(transaction_id)]) for transaction_id in range(1, room + 2)]
    assert list(client.asker.answers) == more[-1:]
    assert "too many requests" in str(await client.outcome(more[-1]))
    files.free.set()
    assert [await client.outcome(each) for each in [*sent, *more[:-1]]] == [SUCCESS] * (PARTITIONS + room)


@pytest.mark.parametrize("held", [300], indirect=True)
async def test_appends_that_begin_another_segment_leave_the_turn(held: Held) -> None:
    files, manager, client = held
    for first in range(0, 30, 6):
        files.free.clear()
        sent = [client.append(each, -1, [record(first + number)]) for number in range(3) for each in range(PARTITIONS)]
        await files.until_waiting()
        sent += [client.append(each, -1, [record(first + 3 + number)]) for number in range(3) for each in range(2)]
        files.free.set()
        sent += [client.append(each, -1, [record(first + 3 + number)]) for number in range(3) for each in range(2, 4)]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * 6 * PARTITIONS
    for each in range(PARTITIONS):
        assert stored(manager, each) == [record(transaction_id) for transaction_id in range(30)]


async def test_a_defect_of_one_partition_in_a_turn_is_its_own(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, client = held
    monkeypatch.setattr(manager.partitions[1].log, "publish", _defect)
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(sent[each]) for each in (0, 2, 3)] == [SUCCESS] * 3
    assert list(manager.out_of_service()) == [1]
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]


def _defect(_prepared: Prepared) -> None:
    raise RuntimeError("planted")
