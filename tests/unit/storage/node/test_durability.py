"""How groups of appends become durable, and that a partition leaves this to the object it was given."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.unit.storage.log_testing import open_log, read_all, records, segment_count
from tests.unit.storage.node.test_partition import PARTITION, SUCCESS, WRITTEN_AHEAD, Bench
from tests.unit.storage.node_support import ObservedFiles
from tests.unit.storage.node_support import records as partition_records
from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.node.durability import MAX_BRIEF_BYTES, SyncEach

Result = TypeVar("Result")


class Recording(SyncEach):
    """Notes what it is asked for, and stops before groups become durable while ``gate`` is closed."""

    def __init__(self, files: ObservedFiles, busy: set[int]) -> None:
        super().__init__(files, busy)
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(
        self,
        log: PartitionLog,
        batches: Sequence[Sequence[Record]],
        size_bytes: int,
        *,
        ahead: bool,
        after: Prepared | None = None,
    ) -> Prepared:
        self.calls.append(f"write {len(batches)}")
        prepared = await super().write(log, batches, size_bytes, ahead=ahead, after=after)
        if not ahead:
            await self.gate.wait()
        return prepared

    async def sync(self, log: PartitionLog, prepared: Prepared) -> None:
        self.calls.append("sync")
        await self.gate.wait()
        await super().sync(log, prepared)

    async def raise_fence(self, fence_file: FenceFile, partition_id: int, session_id: int) -> None:
        self.calls.append(f"fence {session_id}")
        await super().raise_fence(fence_file, partition_id, session_id)

    async def set_low_water_mark(
        self,
        control_file: ControlFile,
        log: PartitionLog,
        session_id: int,
        low_water_mark: int,
        directly: Callable[[], None],
    ) -> None:
        self.calls.append(f"mark {low_water_mark}")
        await super().set_low_water_mark(control_file, log, session_id, low_water_mark, directly)

    async def truncate(self, log: PartitionLog, transaction_id: int) -> int:
        self.calls.append(f"truncate {transaction_id}")
        return await super().truncate(log, transaction_id)

    async def close(self, log: PartitionLog) -> None:
        self.calls.append("close")
        await super().close(log)

    async def change(self, partition_id: int, function: Callable[[], Result]) -> Result:
        self.calls.append(f"change {partition_id}")
        return await super().change(partition_id, function)


@pytest.fixture
def files(tmp_path: Path) -> ObservedFiles:
    return ObservedFiles()


def log_in(files: ObservedFiles, tmp_path: Path, threshold: int = 1_000_000) -> PartitionLog:
    return open_log(files, str(tmp_path / "log"), threshold=threshold)


async def test_a_group_is_durable_when_it_was_written(files: ObservedFiles, tmp_path: Path) -> None:
    log = log_in(files, tmp_path)
    for size_bytes in (MAX_BRIEF_BYTES, MAX_BRIEF_BYTES + 1):
        files.data_syncs.clear()
        first = log.max_transaction_id + 1
        prepared = await SyncEach(files, {1}).write(log, [records(first, 2)], size_bytes, ahead=False)
        assert files.data_sync_count(".seg") == 1
        assert log.max_transaction_id == first - 1
        log.publish(prepared)
    assert read_all(log) == records(0, 4)
    log.close()


async def test_groups_written_ahead_are_synced_one_by_one(files: ObservedFiles, tmp_path: Path) -> None:
    log = log_in(files, tmp_path)
    durability = SyncEach(files, {1})
    files.data_syncs.clear()
    first = await durability.write(log, [records(0, 2)], 100, ahead=True)
    second = await durability.write(log, [records(2, 2)], 100, ahead=True, after=first)
    assert files.data_sync_count(".seg") == 0
    for count, prepared in enumerate((first, second), 1):
        await durability.sync(log, prepared)
        assert files.data_sync_count(".seg") == count
        log.publish(prepared)
    assert read_all(log) == records(0, 4)
    log.close()


async def test_a_group_that_begins_a_segment_is_written_when_it_is_synced(files: ObservedFiles, tmp_path: Path) -> None:
    log = log_in(files, tmp_path, threshold=0)
    durability = SyncEach(files, {1})
    log.publish(await durability.write(log, [records(0, 1)], 100, ahead=False))
    prepared = await durability.write(log, [records(1, 2)], 100, ahead=True)
    assert prepared.view is None
    await durability.sync(log, prepared)
    log.publish(prepared)
    assert (read_all(log), segment_count(log)) == (records(0, 3), 3)
    log.close()


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_partition_shows_and_acknowledges_nothing_before_it_is_durable(tmp_path: Path, ahead: bool) -> None:
    bench, durability = bench_with(tmp_path, ahead)
    durability.gate.clear()
    append = bench.append(-1, partition_records(0, 3))
    wanted = ["write 1", "sync"] if ahead else ["write 1"]
    async with asyncio.timeout(10):
        while durability.calls != wanted:
            await asyncio.sleep(0)
    read = bench.read(-1, 0, 3)
    assert bench.partition.max_transaction_id == -1
    assert bench.asker.answers == {}
    durability.gate.set()
    assert await bench.outcome(append) == SUCCESS
    assert await bench.outcome(read) == partition_records(0, 3)
    await bench.close()


@pytest.mark.parametrize("ahead", [False, True])
async def test_all_that_changes_files_goes_through_it(tmp_path: Path, ahead: bool) -> None:
    bench, durability = bench_with(tmp_path, ahead)
    assert await bench.outcome(bench.append(1, partition_records(0, 3))) == SUCCESS
    writes = ["write 1", "sync"] if ahead else ["write 1"]
    assert durability.calls == ["fence 1", *writes], "the fence comes first"
    durability.calls.clear()
    assert await bench.outcome(bench.truncate(1, 1)) == 1
    assert await bench.outcome(bench.set_low_water_mark(1, 1)) == SUCCESS
    await bench.partition.set_available(False)
    await bench.partition.set_assigned()
    await bench.close()
    flags = [f"change {PARTITION}"] * 2
    assert durability.calls == ["truncate 1", "mark 1", *flags, "close"]


def bench_with(tmp_path: Path, ahead: bool) -> tuple[Bench, Recording]:
    made: list[Recording] = []

    def durability(files: ObservedFiles, busy: set[int]) -> Recording:
        made.append(Recording(files, busy))
        return made[-1]

    bench = Bench(tmp_path, WRITTEN_AHEAD, durability) if ahead else Bench(tmp_path, durability=durability)
    return bench, made[-1]
