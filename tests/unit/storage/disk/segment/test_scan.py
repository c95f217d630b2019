"""Scans of whole segments: what they find, what they mend, and that they disturb nobody."""

import asyncio
import errno
import logging
import random
from pathlib import Path
from typing import cast

import pytest

from tests.unit.server.store.virtual_time import run
from tests.unit.storage.crash_files import CrashFile, CrashFiles
from tests.unit.storage.log_testing import DIRECTORY, append, open_log, read_all, record, records, scan, segment_count
from tests.unit.storage.node_support import TIMEOUT_S, running_node
from tests.unit.storage.node_support import records as node_records
from waltz.common import tasks
from waltz.storage.disk.files.files import Files, OsFiles
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.scan import STEP_BYTES, TolerantReader
from waltz.storage.errors import CorruptionError, StorageError
from waltz.storage.node.partition import StoragePartition
from waltz.storage.node.scrubber import INTERVAL_S, Scrubber
from waltz.storage.remote.errors import RemoteStorageError

ITEMS = [record(i, bytes([i]) * 60) for i in range(21)]


def seg(first: int, suffix: str = ".seg") -> str:
    return f"{DIRECTORY}/{first:019d}{suffix}"


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


@pytest.fixture
def log(files: CrashFiles) -> PartitionLog:
    """Three segments of seven records of 100 bytes."""
    log = open_log(files, threshold=800)
    append(log, ITEMS)
    assert segment_count(log) == 3
    return log


def flip(files: CrashFiles, path: str, offset: int, mask: int = 4) -> None:
    content = bytearray(files.contents(path))
    content[offset] ^= mask
    files.overwrite(path, bytes(content))


def test_whole_segments_stay_as_they_are(files: CrashFiles, log: PartitionLog) -> None:
    files.operations.clear()
    scan(log)
    assert set(files.operations) <= {"read", "open"}
    assert log.damage.ranges == ()
    assert log.damage.mended_index_entries == 0


@pytest.mark.parametrize("position", range(0, 700, 13))
def test_every_damaged_byte_of_records_is_found(files: CrashFiles, log: PartitionLog, position: int) -> None:
    flip(files, seg(7), 128 + position)
    scan(log)
    damaged = 7 + position // 100
    assert log.damage.ranges == ((damaged, damaged),)
    assert log.read(damaged + 1, 30) == ITEMS[damaged + 1 :]


def test_records_are_found_again_without_the_index(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(7), 128 + 210)
    files.overwrite(seg(7, ".idx"), files.contents(seg(7, ".idx"))[:128] + bytes(56))
    scan(log)
    assert log.damage.ranges == ((9, 9),)
    assert log.damage.mended_index_entries == 7
    assert log.read(10, 30) == ITEMS[10:]
    assert log.read(7, 2) == ITEMS[7:9]


@pytest.mark.parametrize("first", [0, 7, 14])
def test_wrong_index_entries_are_mended(
    files: CrashFiles, log: PartitionLog, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = files.contents(seg(first, ".idx"))
    for entry in range(7):
        flip(files, seg(first, ".idx"), 128 + 8 * entry + 6)
        scan(log)
        assert files.contents(seg(first, ".idx")) == whole
        assert files.node(seg(first, ".idx")).pending == []
    assert log.damage.mended_index_entries == 7
    assert log.damage.ranges == ()
    assert "1 index entries from transaction" in caplog.text
    assert read_all(log) == ITEMS


@pytest.mark.parametrize("offset", [0, 3, 12, 27, 31, 39])
def test_a_damaged_header_of_the_index_is_mended(files: CrashFiles, log: PartitionLog, offset: int) -> None:
    whole = files.contents(seg(7, ".idx"))
    flip(files, seg(7, ".idx"), offset)
    scan(log)
    assert files.contents(seg(7, ".idx")) == whole
    assert log.damage.paths == []


@pytest.mark.parametrize("offset", [0, 3, 12, 27, 31, 39])
def test_a_damaged_header_of_the_data_is_reported(files: CrashFiles, log: PartitionLog, offset: int) -> None:
    flip(files, seg(7), offset)
    scan(log)
    assert log.damage.headers == [seg(7)]
    assert read_all(log) == ITEMS


def test_damage_at_the_end_of_a_segment(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(7), 128 + 699)
    flip(files, seg(14), 128 + 699)
    scan(log)
    assert log.damage.ranges == ((13, 13), (20, 20))


def test_what_is_appended_during_a_scan_is_no_concern_of_it(log: PartitionLog) -> None:
    scanning = log.damage.begin_scan(log.damage.segments_to_scan(suspicious=False)[-1])
    append(log, records(21, 3))
    while not log.damage.scan_step(scanning):
        pass
    assert log.damage.finish_scan(scanning)
    assert log.damage.ranges == ()


def test_a_truncation_ends_a_scan(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(14), 128 + 250)
    flip(files, seg(14, ".idx"), 128 + 8 * 6 + 6)
    scanning = log.damage.begin_scan(log.damage.segments_to_scan(suspicious=False)[-1])
    while not log.damage.scan_step(scanning):
        pass
    assert scanning.wrong_entries == [(20, 128 + 600)]
    assert log.truncate(15) == 15
    assert log.damage.scan_step(scanning)
    assert not log.damage.finish_scan(scanning)
    assert len(files.contents(seg(14, ".idx"))) == 128 + 16
    assert log.damage.ranges == ()
    scan(log)
    assert read_all(log) == ITEMS[:16]


def test_a_read_that_meets_damage_tells_where_to_scan(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(7), 128 + 110)
    flip(files, seg(7), 128 + 510)
    suspicious = [log.damage.has_suspects]
    with pytest.raises(CorruptionError):
        log.read(5, 9)
    suspicious.append(log.damage.has_suspects)
    assert list(log.damage.ranges) == [(8, 8)]
    (suspect,) = log.damage.segments_to_scan(suspicious=True)
    assert suspect.first_transaction_id == 7
    scan(log)
    suspicious.append(log.damage.has_suspects)
    assert suspicious == [False, True, False]
    assert list(log.damage.ranges) == [(8, 8), (12, 12)]


def test_a_read_that_meets_a_wrong_index_entry_leads_to_its_mending(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(7, ".idx"), 128 + 8 * 3 + 7)
    with pytest.raises(CorruptionError):
        log.read(9, 3)
    scan(log)
    assert log.damage.ranges == ()
    assert read_all(log) == ITEMS


def test_an_unreadable_medium_is_damage(files: CrashFiles, log: PartitionLog) -> None:
    files.fail(OSError(errno.EIO, "injected"), operation="read", after=1)
    with pytest.raises(OSError, match="injected"):
        log.read(8, 3)
    suspicious = [log.damage.has_suspects]
    scan(log)
    suspicious.append(log.damage.has_suspects)
    assert suspicious == [True, False]
    assert log.damage.ranges == ()


class _BadSector(CrashFile):
    """A file of which some bytes cannot be read."""

    def __init__(self, files: CrashFiles, path: str, start: int, end: int) -> None:
        super().__init__(files, files.node(path))
        self._start, self._end = start, end

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._end and offset + size > self._start:
            raise OSError(errno.EIO, "injected")
        return super().read(offset, size)


def test_what_cannot_be_read_is_told_apart_from_the_rest(files: CrashFiles) -> None:
    content = random.Random(1).randbytes(20_000)
    file = files.open("/file", create=True)
    file.write(0, [content])
    reader = TolerantReader(_BadSector(files, "/file", 8192, 8193))
    assert reader.read(100, 19_000) == content[100:8192] + bytes(4096) + content[12288:19_100]
    assert reader.read(19_000, 5000) == content[19_000:]
    assert reader.read(8000, 200) == content[8000:8192] + bytes(8)
    assert reader.unreadable


def test_records_larger_than_a_step(files: CrashFiles) -> None:
    items = [record(i, bytes([i]) * (STEP_BYTES * 2 if i % 3 == 1 else 50)) for i in range(7)]
    log = open_log(files)
    append(log, items)
    scan(log)
    assert list(log.damage.ranges) == []
    flip(files, seg(0), 128 + 90 + 40 + STEP_BYTES)
    scan(log)
    assert list(log.damage.ranges) == [(1, 1)]


def test_a_failing_disk_while_mending_makes_the_log_read_only(files: CrashFiles, log: PartitionLog) -> None:
    flip(files, seg(7, ".idx"), 128 + 8 * 3 + 7)
    files.fail(OSError(errno.EIO, "injected"), operation="datasync")
    with pytest.raises(OSError, match="injected"):
        scan(log)
    assert log.read_only_reason == "mending of the index failed: [Errno 5] injected"
    with pytest.raises(StorageError):
        log.truncate(3)


def _damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def test_the_node_scans_in_the_background_what_it_has_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = node_records(0, 40)
    async with running_node(tmp_path, segment_size_threshold_bytes=400) as node:
        await (await node.client()).append(1, 0, items, timeout_s=TIMEOUT_S)
    _damage(tmp_path / "0" / f"{0:019d}.seg", 128 + 50)
    _damage(tmp_path / "0" / f"{7:019d}.idx", 128 + 23)
    with caplog.at_level(logging.INFO):
        async with running_node(tmp_path) as node:
            partition = node.node.manager.partitions[0]
            scrubber = node.node.manager.scrubber
            await scrubber.scan(partition)
            assert partition.damaged_ranges == ((1, 1),)
            assert partition.log.damage.mended_index_entries == 1
            healthy, body = node.node.health()
            assert not healthy
            assert "transactions 1 to 1" in str(body)
            assert "indexMended" in str(body)
            client = await node.client()
            with pytest.raises(RemoteStorageError, match="^corrupted: partition 0, transaction 1"):
                await client.records(1, 0, 0, 10, timeout_s=TIMEOUT_S)
            assert await client.records(1, 0, 2, 40, timeout_s=TIMEOUT_S) == items[2:]
            assert scrubber.scanned_bytes > 0


async def test_a_read_that_meets_damage_wakes_the_scan(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client = await node.client()
        await client.append(1, 0, node_records(0, 40), timeout_s=TIMEOUT_S)
        requested: list[int] = []
        partition = node.node.manager.partitions[0]
        await node.node.manager.scrubber.scan(partition)
        partition._on_suspicion = lambda: requested.append(0)
        _damage(tmp_path / "0" / f"{0:019d}.seg", 128 + 50)
        with pytest.raises(RemoteStorageError, match="corrupted"):
            await client.records(1, 0, 1, 1, timeout_s=TIMEOUT_S)
        assert requested == [0]
        assert not node.node.health()[0]
        with pytest.raises(RemoteStorageError, match="corrupted"):
            await (await node.admin()).records(0, 0, 5)
        assert requested == [0, 0]


def test_files_that_others_implement_have_defaults(tmp_path: Path) -> None:
    files: Files = CrashFiles()
    assert files.free_bytes("/") is None
    os_files = OsFiles()
    assert (os_files.free_bytes(str(tmp_path)) or 0) > 0
    (tmp_path / "a").write_bytes(b"content")
    os_files.link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == b"content"
    with pytest.raises(FileExistsError):
        os_files.link(str(tmp_path / "a"), str(tmp_path / "b"))
    os_files.close()


def test_the_index_tells_where_damage_begins_and_no_more_of_it(files: CrashFiles, log: PartitionLog) -> None:
    whole = files.contents(seg(7, ".idx"))
    for damaged in (10, 11):
        flip(files, seg(7), 128 + 100 * (damaged - 7) + 10)
        flip(files, seg(7, ".idx"), 128 + 8 * (damaged - 7) + 6)
    scan(log)
    assert log.damage.ranges == ((10, 11),)
    found = files.contents(seg(7, ".idx"))
    assert found[: 128 + 8 * 4] == whole[: 128 + 8 * 4]
    assert found[128 + 8 * 4 : 128 + 8 * 5] != whole[128 + 8 * 4 : 128 + 8 * 5]
    assert found[128 + 8 * 5 :] == whole[128 + 8 * 5 :]


class Recorded(Scrubber):
    """Instead of scanning it writes down when it would: time, partition, whether only what is suspicious."""

    def __init__(self) -> None:
        self.scans: list[tuple[float, int, bool]] = []
        super().__init__(cast("dict[int, StoragePartition]", {0: 0, 1: 1}))

    async def scan(self, partition: StoragePartition, *, suspicious: bool = False) -> None:
        self.scans.append((asyncio.get_running_loop().time(), cast("int", partition), suspicious))


@pytest.mark.parametrize("suspicious", [True, False])
def test_what_happens_to_one_partition_does_not_put_off_the_weekly_scan_of_another(suspicious: bool) -> None:
    """It is read where it is damaged, or opened again, every six days."""
    six_days_s = INTERVAL_S * 6 / 7

    async def course() -> list[tuple[float, int, bool]]:
        scrubber = Recorded()
        scrubber.start()
        scrubber.request(0)
        scrubber.request(1)
        for _ in range(6):
            await asyncio.sleep(six_days_s)
            scrubber.request(0, suspicious=suspicious)
        await scrubber.close()
        return scrubber.scans

    scans = run(course())
    weeks = [week * INTERVAL_S for week in range(6)]
    assert [time_s for time_s, partition_id, _ in scans if partition_id == 1] == weeks
    whole = [time_s for time_s, partition_id, suspicious in scans if partition_id == 0 and not suspicious]
    assert whole == (weeks if suspicious else [number * six_days_s for number in range(6)])


async def test_a_defect_of_the_scrubber_does_not_end_scanning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    scanned: list[object] = []

    class Planted(Scrubber):
        async def scan(self, partition: StoragePartition, *, suspicious: bool = False) -> None:
            scanned.append(partition)
            if len(scanned) == 1:
                raise ArithmeticError("planted")

    partition = object()
    scrubber = Planted(cast("dict[int, StoragePartition]", {0: partition, 1: partition}))
    scrubber.start()
    scrubber.request(0)
    scrubber.request(1)
    async with asyncio.timeout(60):
        while len(scanned) < 2:
            await asyncio.sleep(0)
    assert "planted" in caplog.text
    await scrubber.close()
