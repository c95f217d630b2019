"""The first records of a log are taken away, with a crash at any operation."""

import contextlib
import errno
import random

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import DIRECTORY, KEY, PARTITION, append, open_log, read_all, record, records
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.log.trim_point import FILE_NAME, read_trim_point
from waltz.storage.disk.salvage import Salvage, Staged
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, data_file_name, index_path
from waltz.storage.errors import CorruptionError, StorageError

COUNT = 30
THRESHOLD = 250
SEEDS = range(3)


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


def filled(files: CrashFiles, count: int = COUNT) -> PartitionLog:
    """A log of several segments, with times."""
    log = open_log(files, threshold=THRESHOLD)
    append(log, records(0, count))
    for transaction_id in range(count):
        log.times.add(transaction_id, 1000 + transaction_id)
    log.write_times()
    return log


def segment_begins(files: CrashFiles) -> list[int]:
    return sorted(int(name[:-4]) for name in files.list_directory(DIRECTORY) if name.endswith(".seg"))


def trim(log: PartitionLog, transaction_id: int) -> int:
    """Everything that can be removed, one segment at a time, as a server asks for it."""
    first = -1
    while first != log.first_transaction_id:
        first = log.first_transaction_id
        log.trim(transaction_id)
    return first


def check_files(files: CrashFiles, log: PartitionLog) -> None:
    """No file of a removed segment is left."""
    for name in files.list_directory(DIRECTORY):
        stem = name.split(".")[0]
        if stem.isdecimal():
            assert int(stem) >= log.first_transaction_id, name


def test_each_call_removes_at_most_one_whole_segment(files: CrashFiles) -> None:
    log = filled(files)
    begins = segment_begins(files)
    assert len(begins) > 4
    for expected in begins[1:4]:
        assert log.trim(begins[3] + 1) == expected
        assert read_all(log) == records(expected, COUNT - expected)
    assert log.trim(begins[3] + 1) == begins[3], "the segment has later records"
    assert (log.trim_point, log.first_transaction_id) == (begins[3] + 1, begins[3])
    assert log.read(0, 10) == []
    assert log.times.covering(0) == (begins[3], 1000 + begins[3])
    check_files(files, log)
    assert log.trim(5) == begins[3], "the point never falls"
    assert log.trim_point == begins[3] + 1
    append(log, [record(COUNT)])
    log.close()
    log = open_log(files, threshold=THRESHOLD)
    assert (log.trim_point, log.max_transaction_id) == (begins[3] + 1, COUNT)
    assert read_all(log) == records(begins[3], COUNT + 1 - begins[3])


def test_the_newest_segments_with_a_size_are_found(files: CrashFiles) -> None:
    """Against the sizes of the files, at every border."""
    log = filled(files)
    log.flush()
    begins = segment_begins(files)
    sizes = [len(files.contents(f"{DIRECTORY}/{data_file_name(begin)}")) - HEADER_SIZE_BYTES for begin in begins]
    assert min(sizes) > 0
    assert log.first_within(1) == begins[-1]
    for place in range(len(begins)):
        kept = sum(sizes[place:])
        assert log.first_within(kept) == begins[place]
        assert log.first_within(kept + 1) == begins[max(place - 1, 0)]
    assert log.first_within(1 << 62) == 0
    trim(log, begins[3])
    assert log.first_within(1 << 62) == begins[3]


def test_the_segment_that_grows_stays(files: CrashFiles) -> None:
    log = filled(files)
    last = segment_begins(files)[-1]
    assert trim(log, COUNT) == last
    assert log.max_transaction_id == COUNT - 1
    append(log, [record(COUNT)])
    assert read_all(log) == records(last, COUNT + 1 - last)


def test_nothing_behind_the_end_is_trimmed(files: CrashFiles) -> None:
    log = filled(files)
    with pytest.raises(StorageError, match=f"ends with transaction {COUNT - 1}, before {COUNT + 1}"):
        log.trim(COUNT + 1)
    assert (log.trim_point, log.first_transaction_id, log.read_only_reason) == (0, 0, None)


@pytest.mark.parametrize("count", [0, 1, COUNT])
def test_a_log_that_lags_begins_anew(files: CrashFiles, count: int) -> None:
    log = filled(files, count)
    log.begin(100)
    log.begin(100)
    assert (log.first_transaction_id, log.max_transaction_id, log.trim_point) == (100, 99, 100)
    assert segment_begins(files) == [100]
    assert log.read(0, 1000) == []
    check_files(files, log)
    append(log, records(100, 7))
    log.close()
    log = open_log(files, threshold=THRESHOLD, low_water_mark=99)
    assert read_all(log) == records(100, 7)
    assert log.truncate(50) == 99, "a log has no end before its begin"
    assert log.max_transaction_id == 99
    append(log, records(100, 3))
    log.flush()
    assert read_all(open_log(files, threshold=THRESHOLD, low_water_mark=102)) == records(100, 3)


def test_a_log_may_begin_anew_at_its_end(files: CrashFiles) -> None:
    """Its records may be those of another log."""
    log = filled(files)
    log.begin(COUNT)
    assert (log.first_transaction_id, log.max_transaction_id) == (COUNT, COUNT - 1)
    assert log.read(0, 100) == []
    check_files(files, log)


@pytest.mark.parametrize("begin", [0, 5, COUNT - 1])
def test_a_log_with_the_transaction_does_not_begin_anew(files: CrashFiles, begin: int) -> None:
    log = filled(files)
    with pytest.raises(StorageError, match="does not begin at"):
        log.begin(begin)
    assert read_all(log) == records(0, COUNT)
    assert not files.exists(f"{DIRECTORY}/{FILE_NAME}")


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_a_crash_at_any_operation_loses_nothing_that_is_kept(power: bool, begins: bool) -> None:
    """The process dies at the n-th operation on files, for every n, and again at every operation of the next start."""
    point = COUNT + 70 if begins else 22
    for seed in SEEDS:
        after, ended = 0, False
        while not ended:
            files = CrashFiles()
            log = filled(files)
            log.flush()
            choices = random.Random(seed * 1000 + after)
            files.fail(CrashNow(), after=after)
            try:
                if begins:
                    log.begin(point)
                else:
                    trim(log, point)
                ended = True
            except CrashNow:
                pass
            _stop(files, choices, power=power)
            files.fail(CrashNow(), after=choices.randrange(30))
            with contextlib.suppress(CrashNow):
                open_log(files, threshold=THRESHOLD)
            _stop(files, choices, power=power)
            log = open_log(files, threshold=THRESHOLD)
            assert log.first_transaction_id <= max(log.trim_point, 0)
            assert log.trim_point in (0, point)
            if ended:
                assert log.trim_point == point
            if not begins:
                assert read_all(log) == records(log.first_transaction_id, COUNT - log.first_transaction_id)
                assert log.trim_point == 0 or log.first_transaction_id > 0, "a start completes the removal"
            elif log.first_transaction_id == point:
                assert log.max_transaction_id == point - 1
            else:
                assert not ended
                assert read_all(log) == records(log.first_transaction_id, COUNT - log.first_transaction_id)
            check_files(files, log)
            append(log, [record(log.max_transaction_id + 1)])
            after += 1
        assert after > 10


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("operation", ["write", "sync", "sync_directory", "open", "rename", "remove"])
def test_a_failing_disk_makes_the_log_read_only(operation: str, begins: bool) -> None:
    files = CrashFiles()
    log = filled(files)
    log.flush()
    files.fail(OSError(errno.EIO, "injected"), operation=operation)
    with pytest.raises(OSError, match="injected"):
        log.begin(100) if begins else log.trim(22)
    assert log.read_only_reason is not None
    files.restart()
    log = open_log(files, threshold=THRESHOLD)
    if log.first_transaction_id < 100:
        assert read_all(log) == records(log.first_transaction_id, COUNT - log.first_transaction_id)


def _stop(files: CrashFiles, choices: random.Random, *, power: bool) -> None:
    if power:
        files.crash(choices)
    else:
        files.restart()


def test_a_hole_above_the_trim_point_is_damage_that_a_repair_mends(files: CrashFiles) -> None:
    log = filled(files)
    begins = segment_begins(files)
    trim(log, begins[2])
    log.close()
    path = f"{DIRECTORY}/{data_file_name(begins[2])}"
    files.remove(path)
    files.remove(index_path(path))
    with pytest.raises(
        CorruptionError, match=f"begins with transaction {begins[3]}, but only those before {begins[2]}"
    ):
        open_log(files, threshold=THRESHOLD)
    survey = Salvage(files, DIRECTORY, KEY, PARTITION).survey(-1, -1)
    assert survey.missing == ((begins[2], begins[3] - 1),)
    staged = Staged(files, DIRECTORY)
    staged.add(records(begins[2], begins[3] - begins[2]))
    Salvage(files, DIRECTORY, KEY, PARTITION).rebuild(survey, staged, COUNT, None)
    staged.close()
    log = open_log(files, threshold=THRESHOLD)
    assert read_all(log) == records(begins[2], COUNT - begins[2])


@pytest.mark.parametrize("last_id", [21, 22, 25])
def test_the_survey_of_a_lost_log_does_not_miss_what_is_trimmed(files: CrashFiles, last_id: int) -> None:
    log = filled(files)
    trim(log, 22)
    log.close()
    for name in files.list_directory(DIRECTORY):
        if name != FILE_NAME:
            files.remove(f"{DIRECTORY}/{name}")
    survey = Salvage(files, DIRECTORY, KEY, PARTITION).survey(last_id, -1)
    assert survey.missing == (((22, last_id),) if last_id >= 22 else ())


@pytest.mark.parametrize("damage", [b"", b"W", b"\0" * 20, b"WaltzTrm" + bytes(7) + b"\5" + bytes(4)])
def test_a_damaged_trim_point_is_noticed(files: CrashFiles, damage: bytes) -> None:
    filled(files).close()
    file = files.open(f"{DIRECTORY}/{FILE_NAME}", create=True)
    file.write(0, [damage])
    file.close()
    with pytest.raises(CorruptionError, match="the trim point is damaged"):
        open_log(files)


def test_the_trim_point_goes_with_the_files(files: CrashFiles) -> None:
    log = filled(files)
    log.trim(10)
    assert read_trim_point(files, DIRECTORY, PARTITION) == 10
    log.delete_files()
    assert files.list_directory(DIRECTORY) == []
