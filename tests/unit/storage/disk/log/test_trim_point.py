"""The file with the trim point of a partition."""

import errno
import random

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from waltz.storage.disk.log.trim_point import FILE_NAME, forget_trim_point, read_trim_point, write_trim_point
from waltz.storage.errors import CorruptionError

DIRECTORY = "/3"
PATH = f"{DIRECTORY}/{FILE_NAME}"


@pytest.fixture
def files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def test_it_is_read_as_it_was_written(files: CrashFiles) -> None:
    assert read_trim_point(files, DIRECTORY, 3) == 0
    for point in (1, 7, 1 << 62):
        write_trim_point(files, DIRECTORY, point)
        assert read_trim_point(files, DIRECTORY, 3) == point
    assert files.contents(PATH)[:16] == b"WaltzTrm" + (1 << 62).to_bytes(8, "big")
    assert files.open_files == 0
    forget_trim_point(files, DIRECTORY)
    forget_trim_point(files, DIRECTORY)
    assert read_trim_point(files, DIRECTORY, 3) == 0
    assert files.list_directory(DIRECTORY) == []


@pytest.mark.parametrize("length", range(25))
def test_every_damage_is_noticed(files: CrashFiles, length: int) -> None:
    write_trim_point(files, DIRECTORY, 1000)
    whole = files.contents(PATH)
    damaged = (whole + bytes(5))[:length]
    if damaged == whole:
        damaged = whole[:9] + b"\1" + whole[10:]
    file = files.open(PATH, create=False)
    file.truncate(0)
    file.write(0, [damaged])
    file.close()
    with pytest.raises(CorruptionError, match="the trim point is damaged"):
        read_trim_point(files, DIRECTORY, 3)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("after", range(8))
def test_a_crash_leaves_the_old_one_or_the_new_one(files: CrashFiles, after: int, seed: int) -> None:
    write_trim_point(files, DIRECTORY, 5)
    files.fail(CrashNow(), after=after)
    ended = False
    try:
        write_trim_point(files, DIRECTORY, 9)
        ended = True
    except CrashNow:
        pass
    files.crash(random.Random(seed))
    assert read_trim_point(files, DIRECTORY, 3) in ((9,) if ended else (5, 9))
    write_trim_point(files, DIRECTORY, 11)
    assert read_trim_point(files, DIRECTORY, 3) == 11


def test_a_failure_is_raised(files: CrashFiles) -> None:
    files.fail(OSError(errno.ENOSPC, "full"), operation="write")
    with pytest.raises(OSError, match="full"):
        write_trim_point(files, DIRECTORY, 5)
