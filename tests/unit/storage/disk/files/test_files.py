"""The operating system's files, and syncing in groups."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.files.files import GroupSync, OsFiles

pytestmark = pytest.mark.real_syncs


@pytest.fixture
def files() -> Iterator[OsFiles]:
    os_files = OsFiles(max_threads=2)
    yield os_files
    os_files.close()


def test_reads_and_writes_by_position(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), create=True)
    file.write(3, [b"abc", b"", b"def"])
    assert file.size() == 9
    assert file.read(0, 100) == b"\0\0\0abcdef"
    assert file.read(4, 2) == b"bc"
    assert file.read(9, 1) == b""
    file.truncate(5)
    file.sync()
    file.datasync()
    file.discard_cache()
    assert file.read(0, 100) == b"\0\0\0ab"
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()


@pytest.mark.parametrize("size", [1, 1000])
def test_more_chunks_than_one_call_takes(files: OsFiles, tmp_path: Path, size: int) -> None:
    chunks = [bytes([i % 256]) * size for i in range(2500)]
    file = files.open(str(tmp_path / "a"), create=True)
    file.write(1, chunks)
    assert file.read(1, 10_000_000) == b"".join(chunks)
    file.close()


def test_short_writes_are_completed(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite

    def short_pwritev(descriptor: int, chunks: Sequence[bytes], offset: int) -> int:
        return pwrite(descriptor, b"".join(chunks)[:3], offset)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, bytes(data[:2]), offset))
    file = files.open(str(tmp_path / "a"), create=True)
    file.write(0, [b"0123", b"456789"])
    assert file.read(0, 20) == b"0123456789"
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: 0)
    with pytest.raises(OSError, match="nothing was written"):
        file.write(0, [b"0123"])
    file.close()


def test_short_reads_are_completed(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    file = files.open(str(tmp_path / "a"), create=True)
    file.write(0, [b"0123456789"])
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pread(descriptor, min(size, 3), offset))
    assert file.read(1, 8) == b"12345678"
    assert file.read(4, 100) == b"456789"
    file.close()


def test_directories(files: OsFiles, tmp_path: Path) -> None:
    directory = str(tmp_path / "d")
    assert not files.exists(directory)
    files.make_directory(directory)
    with pytest.raises(FileExistsError):
        files.make_directory(directory)
    with pytest.raises(FileNotFoundError):
        files.open(directory + "/b", create=False)
    files.open(directory + "/b", create=True).close()
    files.open(directory + "/a", create=True).close()
    assert files.list_directory(directory) == ["a", "b"]
    files.rename(directory + "/a", directory + "/b")
    assert files.list_directory(directory) == ["b"]
    files.remove(directory + "/b")
    files.sync_directory(directory)
    assert files.list_directory(directory) == []
    assert files.exists(directory)


def test_lock_excludes_this_process_too(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    other = files.open(path, create=True)
    file = files.open(path, create=False)
    assert file.try_lock(128)
    assert not other.try_lock(128)
    with pytest.raises(BlockingIOError):
        files.open(path, create=False)
    file.close()
    assert other.try_lock(128)
    other.close()


def test_lock_excludes_other_processes(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = files.open(path, create=True)
    program = (
        "import sys; from waltz.storage.disk.files.files import OsFiles; "
        "print(OsFiles().open(sys.argv[1], create=False).try_lock(128))"
    )

    def locked_by_other() -> str:
        return subprocess.run(
            [sys.executable, "-c", program, path], check=True, capture_output=True, text=True
        ).stdout.strip()

    assert file.try_lock(128)
    assert locked_by_other() == "False"
    file.close()
    assert locked_by_other() == "True"


async def test_run_returns_and_raises_what_the_function_does(files: OsFiles) -> None:
    assert await files.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await files.run(lambda: 1 // 0)


async def test_brief_calls_run_on_the_loop_once_the_disk_has_proved_fast(files: OsFiles) -> None:
    here = threading.get_ident()
    places = [await files.run_brief(threading.get_ident) == here for _ in range(40)]
    assert not places[0]
    assert places[-1]
    assert places == sorted(places), "it goes over once"


@pytest.mark.parametrize("occupied", ["run", "run_read"])
async def test_brief_calls_leave_the_loop_to_others_that_need_it(files: OsFiles, occupied: str) -> None:
    for _ in range(40):
        await files.run_brief(lambda: None)
    go_on = threading.Event()
    other = asyncio.create_task(getattr(files, occupied)(lambda: go_on.wait(10)))
    await asyncio.sleep(0)
    assert await files.run_brief(threading.get_ident) != threading.get_ident()
    go_on.set()
    await other
    assert await files.run_brief(threading.get_ident) == threading.get_ident()


async def test_brief_calls_leave_the_loop_when_the_disk_becomes_slow(
    files: OsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        await files.run_brief(lambda: None)
    now_s = [0.0]
    monkeypatch.setattr("waltz.storage.disk.files.files.time.perf_counter", lambda: now_s[0])

    def hang() -> None:
        now_s[0] += 60.0
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        await files.run_brief(hang)
    for _ in range(40):
        assert await files.run_brief(threading.get_ident) != threading.get_ident()


async def test_a_disk_that_hangs_again_does_not_hold_up_the_loop(
    files: OsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("waltz.storage.disk.files.files.time.perf_counter", lambda: now_s[0])
    for _ in range(40):
        await files.run_brief(lambda: None)
    go_on = threading.Event()

    def hang() -> bool:
        now_s[0] += 1.0
        return go_on.wait(10)

    for pause_s in (600.0, 600.0):  # the second one, while the first is remembered, teaches how long
        now_s[0] += pause_s
        go_on.set()
        await files.run_brief(hang)
        go_on.clear()
        for _ in range(40):
            await files.run_brief(lambda: None)
    now_s[0] += 600.0
    hanging = asyncio.create_task(files.run_brief(hang))
    await asyncio.sleep(0)
    go_on.set()  # by the loop, which is not held up
    assert await hanging


@pytest.mark.parametrize("failing", [False, True])
async def test_cancelled_run_ends_with_its_function(
    files: OsFiles, caplog: pytest.LogCaptureFixture, failing: bool
) -> None:
    started, finish, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        finish.wait(10)
        ended.set()
        if failing:
            raise OSError(errno.EIO, "broken")

    task = asyncio.create_task(files.run(work))
    await files.run(lambda: started.wait(10))
    for _ in range(3):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert ("broken" in caplog.text) == failing


def test_group_sync_covers_all_that_was_written_before_it_began() -> None:
    """Three threads write while a sync hangs; one more sync serves them all."""
    crash_files = CrashFiles()
    file = crash_files.open("/a", create=True)
    inside, go_on = threading.Event(), threading.Event()
    syncs = 0
    datasync: Callable[[], None] = file.datasync

    def slow_datasync() -> None:
        nonlocal syncs
        syncs += 1
        inside.set()
        go_on.wait(10)
        datasync()

    file.datasync = slow_datasync  # type: ignore[method-assign]  # one file with a slow sync
    group = GroupSync(file)
    threads = [threading.Thread(target=group.write_and_sync, args=(0, [b"a"]))]
    threads[0].start()
    assert inside.wait(10)
    threads += [threading.Thread(target=group.write_and_sync, args=(i, [b"b"])) for i in range(1, 4)]
    for thread in threads[1:]:
        thread.start()
    while crash_files.operations.count("write") < 4 or group._written - group._synced < 4:
        threading.Event().wait(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    assert syncs == 2
    assert bytes(crash_files.node("/a").durable) == b"abbb"


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_group_sync_never_tries_again_after_a_failure(operation: str) -> None:
    crash_files = CrashFiles()
    group = GroupSync(crash_files.open("/a", create=True))
    group.write_and_sync(0, [b"a"])
    crash_files.fail(OSError(errno.EIO, "broken"), operation=operation)
    with pytest.raises(OSError, match="broken"):
        group.write_and_sync(0, [b"b"])
    assert group.failure is not None
    with pytest.raises(OSError, match="read-only since a"):
        group.write_and_sync(0, [b"c"])
    assert bytes(crash_files.node("/a").durable) == b"a"


def test_calls_for_each_item_have_ended_when_one_has_failed(files: OsFiles) -> None:
    called: list[int] = []

    def call(item: int) -> None:
        called.append(item)
        if item == 3:
            raise OSError(errno.EIO, "injected")

    files.for_each(call, range(3))
    assert sorted(called) == [0, 1, 2]
    with pytest.raises(OSError, match="injected"):
        files.for_each(call, range(40))
    assert 3 in called


async def test_a_disk_that_hangs_does_not_hold_up_calls_for_other_disks(files: OsFiles) -> None:
    hanging, other = files.of_disk("/one"), files.of_disk("/two")
    answer = threading.Event()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(run(answer.wait)) for _ in range(20) for run in (hanging.run, hanging.run_read)]
        await asyncio.sleep(0)
        for each in (files, other):
            assert await each.run(lambda: "done") == await each.run_read(lambda: "done") == "done"
        assert not any(call.done() for call in calls)
        answer.set()
