"""The log of a partition."""

import errno
import random
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.log_testing import (
    DIRECTORY,
    KEY,
    PARTITION,
    append,
    open_log,
    open_segment_count,
    read_all,
    record,
    records,
    scan,
    segment_count,
)
from waltz.common.records import RecordHeader
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.salvage import Salvage, Staged
from waltz.storage.disk.segment.segment_format import STORED_OVERHEAD_BYTES, SegmentHeader
from waltz.storage.errors import CorruptionError, ReadOnlyError, StorageError


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


def names(files: CrashFiles) -> list[str]:
    return files.list_directory(DIRECTORY)


def segment_path(first: int, suffix: str = ".seg") -> str:
    return f"{DIRECTORY}/{first:019d}{suffix}"


def three_segments(files: CrashFiles, capacity: int = 5) -> PartitionLog:
    """Threshold 400, 21 records of 41 and 42 bytes: segments of 7 records."""
    log = open_log(files, threshold=400, capacity=capacity)
    append(log, [record(i, b"x" * (1 + i % 2)) for i in range(21)])
    assert segment_count(log) == 3
    return log


def test_index_entries_that_wait_in_memory_are_read_and_scanned(files: CrashFiles) -> None:
    log = open_log(files)
    append(log, records(0, 3))
    durable = files.contents(segment_path(0, ".idx"))
    for first in (3, 5):
        prepared = log.prepare([records(first, 2)])
        assert log.write(prepared)
        log.index_written(prepared)
        log.publish(prepared)
    assert files.contents(segment_path(0, ".idx")) == durable
    assert read_all(log) == records(0, 7)
    assert log.read(4, 2) == records(4, 2)
    scan(log)
    assert log.damage.mended_index_entries == 0
    log.flush()
    assert len(files.contents(segment_path(0, ".idx"))) == len(durable) + 4 * 8
    log.close()
    assert read_all(open_log(files)) == records(0, 7)


def test_new_log_is_empty_and_durable(files: CrashFiles) -> None:
    log = open_log(files)
    assert (log.max_transaction_id, log.first_transaction_id) == (-1, 0)
    assert log.read(0, 10) == []
    assert names(files) == ["0000000000000000000.idx", "0000000000000000000.seg"]
    files.crash(random.Random(0))
    assert names(files) == ["0000000000000000000.idx", "0000000000000000000.seg"]
    assert len(files.contents(segment_path(0))) == 128


def test_nothing_is_visible_before_it_is_published(files: CrashFiles) -> None:
    log = open_log(files)
    append(log, records(0, 3))
    prepared = log.prepare([records(3, 2), [], records(5, 1)])
    assert prepared.errors == [None, None, None]
    assert (prepared.first_transaction_id, prepared.record_count) == (3, 3)
    log.write_and_sync(prepared)
    assert (log.max_transaction_id, read_all(log)) == (2, records(0, 3))
    log.publish(prepared)
    assert (log.max_transaction_id, read_all(log)) == (5, records(0, 6))


def test_only_what_is_durable_may_be_published(files: CrashFiles) -> None:
    log = open_log(files)
    with pytest.raises(AssertionError):
        log.publish(log.prepare([records(0, 1)]))


def test_groups_may_be_prepared_ahead(files: CrashFiles) -> None:
    log = open_log(files, threshold=200)
    first = log.prepare([records(0, 10)])
    second = log.prepare([records(10, 10)], after=first)
    assert second.errors == [None]
    with pytest.raises(StorageError, match="transaction out of order"):
        log.write_and_sync(second)
    for prepared in (first, second):
        log.write_and_sync(prepared)
        log.publish(prepared)
    assert read_all(log) == records(0, 20)
    with pytest.raises(StorageError, match="transaction out of order"):
        log.write_and_sync(first)
    assert log.read_only_reason is None


def test_refused_batches_leave_the_others(files: CrashFiles) -> None:
    log = open_log(files)
    prepared = append(log, records(0, 2), records(1, 2), [record(2), record(4)], records(3, 2))
    assert [None if e is None else str(e) for e in prepared.errors] == [
        None,
        "transaction out of order",
        "transaction out of order",
        None,
    ]
    assert read_all(log) == records(0, 5)


def test_empty_group_does_no_io(files: CrashFiles) -> None:
    log = open_log(files)
    files.operations.clear()
    append(log, [], [])
    append(log, records(9, 1))
    assert files.operations == []


def test_one_datasync_for_a_group(files: CrashFiles) -> None:
    log = open_log(files)
    files.operations.clear()
    append(log, *[records(10 * i, 10) for i in range(20)])
    assert files.operations == ["write", "datasync", "write"]


def test_checkpoint_syncs_the_index(files: CrashFiles) -> None:
    log = open_log(files)
    append(log, records(0, 999))
    assert files.node(segment_path(0, ".idx")).pending != []
    append(log, records(999, 1))
    assert files.node(segment_path(0, ".idx")).pending == []
    append(log, records(1000, 1))
    assert files.node(segment_path(0, ".idx")).pending != []
    log.flush()
    assert files.node(segment_path(0, ".idx")).pending == []


def test_rolling(files: CrashFiles) -> None:
    log = three_segments(files)
    assert names(files) == [f"{first:019d}.{kind}" for first in (0, 7, 14) for kind in ("idx", "seg")]
    assert [len(files.contents(segment_path(first))) for first in (0, 7, 14)] == [418, 419, 418]
    assert len(read_all(log)) == 21
    assert [r.transaction_id for r in log.read(5, 11)] == list(range(5, 16))
    append(log, [record(21)])
    assert segment_count(log) == 4
    log.close()
    reopened = open_log(files, threshold=400)
    assert (segment_count(reopened), reopened.max_transaction_id) == (4, 21)


def test_full_segment_is_durable_before_the_next_exists(files: CrashFiles) -> None:
    log = open_log(files, threshold=200)
    files.operations.clear()
    append(log, records(0, 10))
    create = files.operations.index("open")
    assert files.operations[:create] == ["write", "datasync", "write", "sync", "sync"]


def test_reading_ranges(files: CrashFiles) -> None:
    log = three_segments(files)
    everything = read_all(log)
    for first in range(-2, 24):
        for count in (-1, 0, 1, 2, 8, 100):
            expected = everything[first : first + count] if first >= 0 and count > 0 else []
            assert log.read(first, count) == expected
            headers, read_bytes = log.read_headers(first, count)
            assert headers == [RecordHeader(*r[:3]) for r in expected]
            assert read_bytes == sum(STORED_OVERHEAD_BYTES + len(r.data) for r in expected)


def test_read_limit_spans_segments(files: CrashFiles) -> None:
    log = three_segments(files)
    assert len(log.read(0, 100, 41 + 42)) == 2
    assert len(log.read(5, 100, 0)) == 1
    assert len(log.read(5, 100, 42 + 41 + 42)) == 3
    assert len(log.read(5, 100, 42 + 41 + 41)) == 2
    assert len(log.read(6, 100, 41)) == 1
    for first, max_bytes, count in ((0, 41 + 42, 2), (5, 0, 1), (5, 42 + 41 + 42, 3), (5, 42 + 41 + 41, 2)):
        headers, read_bytes = log.read_headers(first, 100, max_bytes)
        assert (len(headers), read_bytes) == (count, sum(40 + len(r.data) for r in log.read(first, count)))


def test_headers_keep_no_more_than_a_block_of_payloads_in_memory(files: CrashFiles) -> None:
    log = open_log(files, threshold=1 << 30)
    for first in range(0, 40, 10):
        append(log, [record(first + number, bytes(1 << 20)) for number in range(10)])
    tracemalloc.start()
    try:
        headers, read_bytes = log.read_headers(0, 100)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(headers), read_bytes) == (40, 40 * ((1 << 20) + STORED_OVERHEAD_BYTES))
    assert peak_bytes < 10 << 20


@pytest.mark.parametrize("target", range(-1, 21))
def test_truncate(files: CrashFiles, target: int) -> None:
    log = three_segments(files, capacity=1)
    everything = read_all(log)
    assert log.truncate(target) == target
    assert log.max_transaction_id == target
    assert read_all(log) == everything[: target + 1]
    # An id right behind a segment keeps the segment that it begins, emptied.
    kept = 3 if target >= 13 else 2 if target >= 6 else 1
    assert segment_count(log) == kept
    assert len(names(files)) == 2 * kept
    files.crash(random.Random(target))
    log = open_log(files, threshold=400)
    assert (segment_count(log), read_all(log)) == (kept, everything[: target + 1])
    again = records(target + 1, 30)
    append(log, again)
    assert read_all(log) == everything[: target + 1] + again


def test_truncate_everything_leaves_one_empty_segment(files: CrashFiles) -> None:
    log = three_segments(files)
    assert log.truncate(-1) == -1
    assert names(files) == ["0000000000000000000.idx", "0000000000000000000.seg"]
    assert len(files.contents(segment_path(0))) == len(files.contents(segment_path(0, ".idx"))) == 128
    log.close()
    assert files.open_files == 0


def test_truncate_beyond_the_end_changes_nothing(files: CrashFiles) -> None:
    log = three_segments(files)
    files.operations.clear()
    assert log.truncate(20) == 20
    assert log.truncate(1 << 60) == 20
    assert files.operations == []


@pytest.mark.parametrize("empty", [False, True])
def test_truncate_below_the_beginning(files: CrashFiles, empty: bool) -> None:
    log = open_log(files) if empty else three_segments(files)
    before = read_all(log)
    with pytest.raises(StorageError, match=f"^transaction id out of range: file={segment_path(0)}$"):
        log.truncate(-2)
    assert read_all(log) == before
    append(log, [record(len(before))])


def test_cache_of_descriptors(files: CrashFiles) -> None:
    """Capacity 1 and three segments: one segment is closed, the current and one other stay open."""
    log = three_segments(files, capacity=1)
    assert (open_segment_count(log), files.open_files) == (2, 4)
    for transaction_id in (0, 8, 20, 0, 8, 1):
        assert log.read(transaction_id, 1)[0].transaction_id == transaction_id
        assert (open_segment_count(log), files.open_files) == (2, 4)
    log.close()
    assert files.open_files == 0
    log = open_log(files, threshold=400, capacity=0)
    assert (open_segment_count(log), files.open_files) == (1, 2)
    assert log.read(0, 1)[0].transaction_id == 0
    assert files.open_files == 2


def test_eviction_and_reading_sync_nothing(files: CrashFiles) -> None:
    log = three_segments(files, capacity=1)
    files.operations.clear()
    read_all(log)
    assert set(files.operations) == {"open", "read"}


def test_orphan_index_does_not_stop_rolling(files: CrashFiles) -> None:
    log = three_segments(files)
    log.close()
    files.open(segment_path(21, ".idx"), create=True).write(0, [b"left over by a crash"])
    log = open_log(files, threshold=400)
    append(log, [record(21)])
    log.close()
    assert open_log(files, threshold=400).max_transaction_id == 21


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(128)])
def test_interrupted_creation_of_the_last_segment_is_discarded(files: CrashFiles, content: bytes) -> None:
    three_segments(files).close()
    before = names(files)
    for suffix in (".idx", ".seg"):
        files.open(segment_path(21, suffix), create=True).write(0, [content])
    log = open_log(files, threshold=400, low_water_mark=20)
    assert log.max_transaction_id == 20
    assert names(files) == before


def test_missing_header_elsewhere_is_corruption(files: CrashFiles) -> None:
    three_segments(files).close()
    files.overwrite(segment_path(7), bytes(128))
    with pytest.raises(CorruptionError, match="header of the segment is missing"):
        open_log(files)
    files.overwrite(segment_path(14), bytes(128))
    files.remove(segment_path(7))
    with pytest.raises(CorruptionError, match="header of the segment is missing"):
        open_log(files, low_water_mark=14)
    assert files.open_files == 0


@pytest.mark.parametrize("lost", [0, 7])
def test_gap_between_segments_is_corruption(files: CrashFiles, lost: int) -> None:
    three_segments(files).close()
    files.remove(segment_path(lost))
    if lost == 7:
        with pytest.raises(CorruptionError, match="the next segment begins with 14"):
            open_log(files)
    else:
        with pytest.raises(CorruptionError) as told:
            open_log(files)
        assert (told.value.partition_id, told.value.transaction_id) == (PARTITION, 0)
        assert told.value.path == segment_path(0)
        assert told.value.reason == (
            f"the segment with this transaction is missing from {DIRECTORY}: the log begins with transaction 7, but "
            "nothing was trimmed; fill it from another replica (waltz storage repair)"
        )
    assert files.open_files == 0


def test_a_missing_first_segment_is_repaired(files: CrashFiles) -> None:
    log = three_segments(files)
    expected = read_all(log)
    log.close()
    for suffix in (".seg", ".idx"):
        files.remove(segment_path(0, suffix))
    salvage = Salvage(files, DIRECTORY, KEY, PARTITION)
    survey = salvage.survey(-1, -1)
    assert survey.missing == ((0, 6),)
    staged = Staged(files, DIRECTORY)
    staged.add(expected[:7])
    salvage.rebuild(survey, staged, 21, None)
    staged.close()
    assert read_all(open_log(files)) == expected


def test_records_lost_with_all_segments_are_corruption(files: CrashFiles) -> None:
    with pytest.raises(CorruptionError, match="no segment, but the local low-water mark is 5"):
        open_log(files, low_water_mark=5)


def test_log_truncated_below_its_mark_opens_and_tells(files: CrashFiles, caplog: pytest.LogCaptureFixture) -> None:
    log = three_segments(files)
    log.truncate(3)
    log.close()
    assert open_log(files, low_water_mark=20).max_transaction_id == 3
    assert "below its local low-water mark 20" in caplog.text


def test_two_segments_with_one_first_id_are_corruption(files: CrashFiles) -> None:
    three_segments(files).close()
    copy = files.open(f"{DIRECTORY}/copy.seg", create=True)
    copy.write(0, [files.contents(segment_path(7))])
    with pytest.raises(CorruptionError, match="two segments begin with this id"):
        open_log(files)


def test_header_not_name_tells_the_first_id(files: CrashFiles) -> None:
    log = three_segments(files)
    expected = read_all(log)
    log.close()
    for suffix in (".seg", ".idx"):
        files.rename(segment_path(0, suffix), f"{DIRECTORY}/zzz{suffix}")
    assert read_all(open_log(files)) == expected


def test_other_partitions_files_are_refused(files: CrashFiles) -> None:
    three_segments(files).close()
    with pytest.raises(StorageError, match="failed to open segment file"):
        open_log(files, partition_id=4)
    with pytest.raises(StorageError, match="failed to open segment file"):
        open_log(files, key=KEY.__class__(int=1))
    assert files.open_files == 0


def test_damage_is_named_and_the_rest_stays_readable(files: CrashFiles) -> None:
    log = three_segments(files)
    expected = read_all(log)
    log.close()
    content = bytearray(files.contents(segment_path(7)))
    content[128 + 42 + 36] ^= 1
    files.overwrite(segment_path(7), bytes(content))
    log = open_log(files, threshold=400)
    scan(log)
    assert list(log.damage.ranges) == [(8, 8)]
    assert log.read(0, 8) == expected[:8]
    assert log.read(9, 100) == expected[9:]
    for attempt in (log.read, log.read_headers):
        with pytest.raises(CorruptionError) as info:
            attempt(6, 100)
        assert (info.value.partition_id, info.value.transaction_id, info.value.path) == (3, 8, segment_path(7))
    # A truncation that takes the damage away ends it.
    assert log.truncate(7) == 7
    assert list(log.damage.ranges) == []
    assert read_all(log) == expected[:8]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    ("operation", "after"),
    [("write", 0), ("write", 1), ("datasync", 0), ("sync", 0), ("open", 0), ("sync_directory", 0)],
)
def test_failing_disk_makes_the_log_read_only(files: CrashFiles, code: int, operation: str, after: int) -> None:
    log = open_log(files, threshold=400)
    append(log, records(0, 5))
    prepared = log.prepare([records(5, 20)])
    files.fail(OSError(code, "injected"), operation=operation, after=after, short=70 if operation == "write" else None)
    with pytest.raises(OSError, match="injected") as info:
        log.write_and_sync(prepared)
    assert info.value.errno == code
    assert log.read_only_reason is not None
    assert read_all(log) == records(0, 5)
    files.operations.clear()
    for attempt in (log.flush, lambda: log.truncate(2), lambda: log.write_and_sync(prepared)):
        with pytest.raises(ReadOnlyError, match="segment not writable: partition 3 is read-only"):
            attempt()
    refused = log.prepare([records(5, 1), []])
    assert isinstance(refused.errors[0], ReadOnlyError)
    assert refused.errors[1] is None
    assert refused.record_count == 0
    log.close()
    assert {"write", "sync", "datasync", "truncate"}.isdisjoint(files.operations)
    assert files.open_files == 0


@pytest.mark.parametrize("operation", ["truncate", "sync", "remove", "sync_directory"])
def test_failing_truncation_makes_the_log_read_only(files: CrashFiles, operation: str) -> None:
    log = three_segments(files)
    expected = read_all(log)
    files.fail(OSError(errno.EIO, "injected"), operation=operation)
    with pytest.raises(OSError, match="injected"):
        log.truncate(8)
    with pytest.raises(ReadOnlyError):
        log.truncate(8)
    assert read_all(log) == expected[:9]
    log.close()
    files.crash(random.Random(3))
    found = read_all(open_log(files))
    assert 9 <= len(found) <= 21
    assert found == expected[: len(found)]


def test_unreadable_disk_is_an_error_and_nothing_more(files: CrashFiles) -> None:
    log = open_log(files)
    append(log, records(0, 5))
    files.fail(OSError(errno.EIO, "injected"), operation="read")
    with pytest.raises(OSError, match="injected"):
        read_all(log)
    assert log.read_only_reason is None
    assert read_all(log) == records(0, 5)


def test_closed_log(files: CrashFiles) -> None:
    log = open_log(files)
    append(log, records(0, 5))
    prepared = log.prepare([records(5, 1)])
    log.close()
    log.close()
    for attempt in (log.flush, lambda: log.truncate(2), lambda: log.write_and_sync(prepared), lambda: log.read(0, 1)):
        with pytest.raises(StorageError, match="^segment closed$"):
            attempt()


def test_delete_files(files: CrashFiles) -> None:
    log = three_segments(files)
    files.open(f"{DIRECTORY}/stray", create=True)
    files.open_files -= 1
    log.delete_files()
    assert names(files) == ["stray"]
    assert files.open_files == 0
    log = open_log(files)
    assert log.max_transaction_id == -1


def test_delete_files_after_close(files: CrashFiles) -> None:
    log = three_segments(files)
    log.close()
    log.delete_files()
    assert names(files) == []


def test_clean_reopening_changes_no_byte(files: CrashFiles) -> None:
    three_segments(files).close()
    before = {name: files.contents(f"{DIRECTORY}/{name}") for name in names(files)}
    for mark in (-1, 3, 20):
        files.operations.clear()
        open_log(files, low_water_mark=mark).close()
        assert {"write", "truncate"}.isdisjoint(files.operations)
    assert {name: files.contents(f"{DIRECTORY}/{name}") for name in names(files)} == before


def test_headers_tell_the_truth(files: CrashFiles) -> None:
    three_segments(files).close()
    for first in (0, 7, 14):
        for suffix in (".seg", ".idx"):
            header = SegmentHeader.decode(files.contents(segment_path(first, suffix)))
            assert header == (0, files.time_ms(), KEY, 3, first)


@pytest.mark.parametrize("after", range(4))
def test_what_is_read_across_a_truncation_is_read_again(files: CrashFiles, after: int) -> None:
    """Other records take the place of those being read; the reader must see the log before or after, no mixture."""
    log = three_segments(files, capacity=0)
    replaced = [record(i, b"y" * (1 + i % 2)) for i in range(3, 21)]
    steps = 0

    def interfere(name: str) -> None:
        nonlocal steps
        if name == "read":
            steps += 1
        if steps == after + 1:
            files.on_operation = None
            log.truncate(2)
            written = log.prepare([replaced])
            log.write_and_sync(written)

    files.on_operation = interfere
    assert log.read(2, 30) == [record(2, b"x")]
    assert files.on_operation is None


@pytest.fixture
def os_files() -> Iterator[OsFiles]:
    files = OsFiles(max_threads=1)
    yield files
    files.close()


def test_reads_beside_appends_and_truncations(os_files: OsFiles, tmp_path: Path) -> None:
    """Readers in other threads see consecutive, intact records, whatever the writer does meanwhile."""
    log = open_log(os_files, str(tmp_path / "3"), threshold=3000, capacity=1)
    stop = threading.Event()
    failures: list[BaseException] = []
    reads = 0

    def reader(seed: int) -> None:
        nonlocal reads
        choices = random.Random(seed)
        try:
            while not stop.is_set():
                first = choices.randint(0, max(log.max_transaction_id, 0))
                found = log.read(first, choices.randint(1, 200))
                assert [r.transaction_id for r in found] == list(range(first, first + len(found)))
                assert all(r.data[:8] == r.transaction_id.to_bytes(8, "big") for r in found)
                reads += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    choices = random.Random(9)
    try:
        while not failures and (reads < 300 or segment_count(log) < 5):
            first = log.max_transaction_id + 1
            size = choices.randint(0, 40)
            append(
                log,
                [record(i, i.to_bytes(8, "big") + bytes(choices.randint(0, 60))) for i in range(first, first + size)],
            )
            if choices.random() < 0.2:
                log.truncate(choices.randint(first // 2, first + size) - 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    log.close()
