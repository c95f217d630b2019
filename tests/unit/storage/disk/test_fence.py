"""Session fences that outlive restarts."""

import errno
import random

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.fence import FenceFile
from waltz.storage.errors import CorruptionError, ReadOnlyError, StorageError

PATH = "/waltz-storage.fence"


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


def open_fences(files: CrashFiles, count: int = 3) -> FenceFile:
    return FenceFile.open(files, "/", KEY, count)


def test_fences_rise_and_stay(files: CrashFiles) -> None:
    fences = open_fences(files)
    assert [fences.get(p) for p in range(3)] == [-1, -1, -1]
    fences.raise_to(1, 7)
    fences.raise_to(1, 5)
    fences.raise_to(2, 0)
    assert [fences.get(p) for p in range(3)] == [-1, 7, 0]
    files.crash(random.Random(1))
    fences = open_fences(files)
    assert [fences.get(p) for p in range(3)] == [-1, 7, 0]
    fences.raise_to(1, 8)
    fences.reset(1)
    fences.reset(0)
    fences.close()
    fences = open_fences(files)
    assert [fences.get(p) for p in range(3)] == [-1, -1, 0]
    fences.raise_to(1, 2)
    assert fences.get(1) == 2
    fences.close()
    assert files.open_files == 0


def test_raising_to_what_is_there_writes_nothing(files: CrashFiles) -> None:
    fences = open_fences(files)
    fences.raise_to(0, 3)
    files.operations.clear()
    fences.raise_to(0, 3)
    assert files.operations == []


@pytest.mark.parametrize("seed", range(10))
def test_crash_while_raising(seed: int) -> None:
    for after in range(4):
        files = CrashFiles()
        fences = open_fences(files)
        fences.raise_to(1, 7)
        files.fail(CrashNow(), after=after)
        possible = (7, 9)
        try:
            fences.raise_to(1, 9)
            possible = (9, 9)
        except CrashNow:
            pass
        files.crash(random.Random(seed))
        assert open_fences(files).get(1) in possible


@pytest.mark.parametrize("seed", range(10))
def test_crash_while_creating(seed: int) -> None:
    for after in range(10):
        files = CrashFiles()
        files.fail(CrashNow(), after=after)
        try:
            open_fences(files)
        except CrashNow:
            files.crash(random.Random(seed))
        else:
            files.restart()
        assert open_fences(files).get(2) == -1


def test_damaged_fence_is_reported_not_forgotten(files: CrashFiles) -> None:
    fences = open_fences(files)
    fences.raise_to(1, 7)
    fences.raise_to(2, 8)
    fences.close()
    content = bytearray(files.contents(PATH))
    content[128 + 32] ^= 1
    content[128 + 48] ^= 1
    files.overwrite(PATH, bytes(content))
    fences = open_fences(files)
    assert fences.get(2) == 8
    with pytest.raises(CorruptionError, match="the session fence is damaged"):
        fences.get(1)
    with pytest.raises(CorruptionError):
        fences.raise_to(1, 9)
    fences.reset(1)
    assert fences.get(1) == -1
    fences.close()
    assert open_fences(files).get(1) == -1


def test_other_clusters_file_is_refused(files: CrashFiles) -> None:
    open_fences(files).close()
    with pytest.raises(StorageError, match="cluster key"):
        FenceFile.open(files, "/", KEY.__class__(int=1), 3)
    with pytest.raises(StorageError, match="number of partitions"):
        open_fences(files, 4)
    files.overwrite(PATH, b"short")
    with pytest.raises(StorageError, match="not a fence file"):
        open_fences(files)
    assert files.open_files == 0


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_failed_write_is_never_tried_again(files: CrashFiles, operation: str) -> None:
    fences = open_fences(files)
    fences.raise_to(1, 4)
    files.fail(OSError(errno.EIO, "broken"), operation=operation)
    with pytest.raises(OSError, match="broken"):
        fences.raise_to(0, 3)
    assert fences.get(0) == -1
    failures = [fences.failure]
    files.fail(OSError(errno.EIO, "broken"), operation="rename")
    with pytest.raises(ReadOnlyError, match="cannot be replaced"):
        fences.raise_to(2, 5)
    failed = files.node(PATH)
    fences.raise_to(2, 5)
    assert files.node(PATH) is not failed
    failures.append(fences.failure)
    assert [failure is None for failure in failures] == [False, True]
    files.crash(random.Random(2))
    assert [open_fences(files).get(partition_id) for partition_id in range(3)] == [-1, 4, 5]


@pytest.mark.parametrize("slot", [0, 1])
def test_damage_to_one_slot_loses_nothing(files: CrashFiles, slot: int) -> None:
    fences = open_fences(files)
    for session_id in (3, 7, 9):
        fences.raise_to(1, session_id)
        fences.close()
        whole = files.contents(PATH)
        content = bytearray(whole)
        content[128 + 32 + 16 * slot + 3] ^= 4
        files.overwrite(PATH, bytes(content))
        fences = open_fences(files)
        assert fences.half_damaged == [1]
        assert fences.get(1) == session_id
        fences.close()
        files.overwrite(PATH, whole)
        fences = open_fences(files)
        assert fences.half_damaged == []


def test_what_is_found_at_open_is_durable(files: CrashFiles) -> None:
    fences = open_fences(files)
    files.fail(CrashNow(), operation="datasync")
    with pytest.raises(CrashNow):
        fences.raise_to(0, 3)
    files.restart()
    assert open_fences(files).get(0) == 3
    assert files.node(PATH).pending == []


def test_closed_and_out_of_range(files: CrashFiles) -> None:
    fences = open_fences(files)
    for partition_id in (-1, 3):
        with pytest.raises(StorageError, match="no such partition"):
            fences.get(partition_id)
    fences.close()
    with pytest.raises(StorageError, match="already closed"):
        fences.raise_to(0, 1)
