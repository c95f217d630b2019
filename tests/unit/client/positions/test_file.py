"""Positions in a file."""

import asyncio
import fcntl
import json
import os
import random
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from waltz.client.errors import PositionConflictError, PositionsError
from waltz.client.positions import file
from waltz.client.positions.file import FilePositions
from waltz.client.positions.interface import Move


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mails.positions"


async def filled(path: Path) -> None:
    positions = FilePositions(path)
    assert await positions.load("key", [0, 1]) == {}
    await positions.save("key", {0: Move(None, -1), 10: Move(None, 12)})
    await positions.save("key", {0: Move(-1, 7)})
    await positions.close()


async def test_what_was_saved_is_loaded(path: Path) -> None:
    await filled(path)
    positions = FilePositions(path)
    assert await positions.load("key", [0, 1, 10]) == {0: 7, 10: 12}
    assert await positions.load("key", [1]) == {}
    with pytest.raises(PositionConflictError, match=r"mails\.positions of partition 0 were moved") as conflict:
        await positions.save("key", {0: Move(6, 8), 10: Move(12, 13)})
    assert conflict.value.partition_ids == [0]
    await positions.save("key", {0: Move(6, 7), 10: Move(12, 13)})
    assert await positions.load("key", [0, 10]) == {0: 7, 10: 13}


async def test_damage_is_told_whatever_it_is(path: Path) -> None:
    await filled(path)
    good = path.read_bytes()
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(good)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged) - 2) :]
        else:
            damaged[chance.randrange(len(damaged) - 1)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        if b"".join(damaged.split()) != b"".join(good.split()):
            with pytest.raises(PositionsError, match="are damaged; put a copy of the file back"):
                await FilePositions(path).load("key", [0, 10])
    wrong = json.dumps({"body": [], "crc32": 0}).encode()
    for nonsense in (b"", b"[]", b"{}", b'"body"', b"\xff", b"[" * 100_000, wrong):
        path.write_bytes(nonsense)
        with pytest.raises(PositionsError, match="are damaged"):
            await FilePositions(path).load("key", [0])


async def test_positions_of_another_cluster_are_refused(path: Path) -> None:
    await filled(path)
    with pytest.raises(PositionsError, match="those of cluster key, and this is cluster other: another one, or made"):
        await FilePositions(path).load("other", [0])


class Msvcrt:
    """Locks as Windows has them, one byte of a file at a time, made of those of this system."""

    LK_NBLCK = 2

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture(params=["linux", "win32"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "win32":
        monkeypatch.setattr(file, "sys", SimpleNamespace(platform="win32"))
        monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())


@pytest.mark.usefixtures("platform")
async def test_one_process_at_a_time(path: Path) -> None:
    one, other = FilePositions(path), FilePositions(path)
    await one.load("key", [])
    with pytest.raises(PositionsError, match="are in use by another consumer; give each consumer a file of its own"):
        await other.load("key", [])
    await one.close()
    assert await other.load("key", []) == {}
    await other.close()
    await other.close()


async def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(path)
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        steps.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    positions = FilePositions(path)
    await positions.load("key", [0])
    await positions.save("key", {0: Move(7, 8)})
    assert steps == ["file", "replace", "directory"]
    await positions.close()


async def test_what_cannot_be_written_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(path)
    positions = FilePositions(path)
    await positions.load("key", [0])

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(os, "fsync", full)
        await positions.save("key", {0: Move(7, 8)})
    assert await positions.load("key", [0]) == {0: 7}
    await positions.save("key", {0: Move(7, 9)})
    await positions.close()
    assert await asyncio.wait_for(FilePositions(path).load("key", [0]), 10) == {0: 9}


async def test_loading_that_is_given_up_leaves_nothing_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(path)
    started, go_on = threading.Event(), threading.Event()
    lock = file._lock

    def slow(*paths: Path) -> int:
        started.set()
        go_on.wait(60)
        return lock(*paths)

    with monkeypatch.context() as patched:
        patched.setattr(file, "_lock", slow)
        loading = asyncio.create_task(FilePositions(path).load("key", [0]))
        await asyncio.to_thread(started.wait, 60)
        loading.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await loading
    positions = FilePositions(path)
    assert await positions.load("key", [0]) == {0: 7}
    await positions.close()
