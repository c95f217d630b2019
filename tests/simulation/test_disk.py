"""The disk: what survives which end, and what faults do."""

import asyncio
import contextvars
import errno
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.disk import SECTOR_BYTES, ProcessEndedError, SimulatedDisk, SimulatedFile, SimulatedFiles, Trouble
from tests.simulation.loop import Process
from tests.simulation.worlds import SmallWorld, run

RUNS = 40


def disk_and_files(seed: int = 0) -> tuple[SimulatedDisk, SimulatedFiles]:
    disk = SimulatedDisk(random.Random(seed), "/d")
    return disk, SimulatedFiles(disk, None)


def durable_file(files: SimulatedFiles, data: bytes) -> SimulatedFile:
    file = files.open("/d/f", create=True)
    file.write(0, [data])
    file.datasync()
    files.sync_directory("/d")
    return file


def content(files: SimulatedFiles, path: str) -> bytes | None:
    if not files.exists(path):
        return None
    file = files.open(path, create=False)
    return file.read(0, file.size())


def test_what_is_synced_survives_and_the_rest_may_not() -> None:
    fates = set()
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        file = durable_file(files, b"durable")
        file.write(7, [b" and not"])
        assert content(files, "/d/f") == b"durable and not"
        disk.lose_power()
        left = content(files, "/d/f")
        assert left is not None
        assert left.startswith(b"durable")
        fates.add(left)
    assert {b"durable", b"durable and not"} <= fates


def test_sectors_of_one_write_are_lost_independently() -> None:
    torn = 0
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        file = files.open("/d/f", create=True)
        files.sync_directory("/d")
        file.write(0, [b"x" * (8 * SECTOR_BYTES)])
        disk.lose_power()
        left = content(files, "/d/f") or b""
        sectors = {
            left[start : start + SECTOR_BYTES].strip(b"\0") == b"" for start in range(0, len(left), SECTOR_BYTES)
        }
        torn += sectors == {True, False}
    assert torn > 0


def _naive_states(changes: Sequence[tuple[int, bytes | None]], before: bytes) -> list[bytes]:
    """The file before and after each change."""
    states = [before]
    for offset, data in changes:
        state = states[-1]
        if data is None:
            states.append(state[:offset].ljust(offset, b"\0"))
        else:
            states.append(state[:offset].ljust(offset, b"\0") + data + state[offset + len(data) :])
    return states


_CHANGES = st.lists(
    st.tuples(st.integers(0, 5 * SECTOR_BYTES), st.none() | st.integers(1, 3 * SECTOR_BYTES)), min_size=1, max_size=8
)


@settings(max_examples=300, deadline=None)
@given(_CHANGES, st.integers(0, 8), st.integers(0, 1 << 16))
def test_every_sector_is_as_it_was_at_some_time_since_the_last_sync(
    drawn: list[tuple[int, int | None]], synced: int, seed: int
) -> None:
    changes = [
        (offset, None if size is None else bytes([number + 1]) * size) for number, (offset, size) in enumerate(drawn)
    ]
    disk, files = disk_and_files(seed)
    file = files.open("/d/f", create=True)
    files.sync_directory("/d")
    for number, (offset, data) in enumerate(changes):
        if data is None:
            file.truncate(offset)
        else:
            file.write(offset, [data])
        if number + 1 == synced:
            file.datasync()
    states = _naive_states(changes, b"")
    assert content(files, "/d/f") == states[-1]
    states = states[synced if synced <= len(changes) else 0 :]
    disk.lose_power()
    left = content(files, "/d/f")
    assert left is not None
    assert len(left) <= max(map(len, states))
    assert len(left) >= min(map(len, states))
    for start in range(0, len(left), SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, len(left))
        assert left[start:end] in {state[start:end].ljust(end - start, b"\0") for state in states}


def test_two_writes_to_one_sector_survive_in_order() -> None:
    fates = set()
    for seed in range(RUNS * 4):
        disk, files = disk_and_files(seed)
        file = durable_file(files, b"....")
        file.write(0, [b"a"])
        file.write(1, [b"b"])
        disk.lose_power()
        fates.add(content(files, "/d/f"))
    assert fates == {b"....", b"a...", b"ab.."}


def test_a_write_during_which_power_is_lost_may_be_torn_and_nothing_comes_after_it() -> None:
    fates: set[bytes | None] = set()
    for seed in range(RUNS * 4):
        disk, files = disk_and_files(seed)
        file = durable_file(files, bytes(4 * SECTOR_BYTES))
        disk.crash = disk.lose_power
        disk.operations_until_crash = 1
        with pytest.raises(ProcessEndedError):
            file.write(0, [b"x" * (4 * SECTOR_BYTES)])
        left = content(files, "/d/f") or b""
        disk.lose_power()
        assert content(files, "/d/f") == left, "all that is left is durable"
        fates.add(bytes(left[start] for start in range(0, len(left), SECTOR_BYTES)))
    assert {b"\0\0\0\0", b"xxxx"} < fates


def test_a_new_file_survives_only_with_its_directory() -> None:
    fates = set()
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        file = files.open("/d/f", create=True)
        file.write(0, [b"x"])
        file.sync()
        disk.lose_power()
        fates.add(content(files, "/d/f"))
    assert fates == {None, b"x"}


def test_a_rename_happens_as_a_whole_or_not_at_all() -> None:
    fates = set()
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        for name in ("a", "b"):
            file = files.open(f"/d/{name}", create=True)
            file.write(0, [name.encode()])
            file.sync()
        files.sync_directory("/d")
        files.rename("/d/a", "/d/b")
        disk.lose_power()
        fates.add((content(files, "/d/a"), content(files, "/d/b")))
    assert fates == {(b"a", b"b"), (None, b"a")}


def test_a_new_directory_takes_with_it_what_is_in_it() -> None:
    fates = set()
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        files.make_directory("/d/0")
        file = files.open("/d/0/f", create=True)
        file.write(0, [b"x"])
        file.sync()
        files.sync_directory("/d/0")
        disk.lose_power()
        fates.add((files.exists("/d/0"), content(files, "/d/0/f")))
        if files.exists("/d/0"):
            disk.lose_power()
            assert content(files, "/d/0/f") == b"x"
    assert fates == {(False, None), (True, b"x")}


def test_a_killed_process_loses_nothing() -> None:
    async def main(world: SmallWorld) -> None:
        disk = SimulatedDisk(random.Random(0), "/d")
        process = world.process("a")
        file = SimulatedFiles(disk, process).open("/d/f", create=True)
        file.write(0, [b"written"])
        process.kill(power_loss=False)
        assert content(SimulatedFiles(disk, None), "/d/f") == b"written"

    run(0, main)


def test_a_failed_sync_leaves_in_memory_what_never_becomes_durable() -> None:
    lost = 0
    for seed in range(RUNS):
        disk, files = disk_and_files(seed)
        file = files.open("/d/f", create=True)
        file.write(0, [b"gone"])
        disk.troubles.append(Trouble(frozenset(("sync",)), errno.EIO, times=1))
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        assert file.read(0, 10) == b"gone"
        file.datasync()
        file.discard_cache()
        lost += file.read(0, 10) != b"gone"
    assert lost > 0


def test_writes_fail_when_the_disk_is_full() -> None:
    disk, files = disk_and_files()
    file = files.open("/d/f", create=True)
    disk.troubles.append(Trouble(frozenset(("write", "create")), errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        file.write(0, [b"x" * 100])
    assert file.size() < 100
    with pytest.raises(OSError, match="No space"):
        files.open("/d/g", create=True)


def test_a_flipped_bit_is_one_bit() -> None:
    disk, files = disk_and_files()
    file = files.open("/d/f", create=True)
    file.write(0, [bytes(1000)])
    assert disk.flip_bit(lambda path: True) is None
    file.sync()
    assert disk.flip_bit(lambda path: path.endswith("f")) is not None
    assert sum(byte.bit_count() for byte in file.read(0, 1000)) == 1


def test_a_lock_lasts_as_long_as_its_process() -> None:
    async def main(world: SmallWorld) -> None:
        disk = SimulatedDisk(random.Random(0), "/d")
        first, second = world.process("a"), world.process("a")
        assert SimulatedFiles(disk, first).open("/d/f", create=True).try_lock(1)
        file = SimulatedFiles(disk, second).open("/d/f", create=False)
        assert not file.try_lock(1)
        with pytest.raises(BlockingIOError):
            SimulatedFiles(disk, first).open("/d/f", create=False)
        first.kill(power_loss=False)
        assert file.try_lock(1)

    run(0, main)


def test_blocking_calls_take_time_and_end_also_when_cancelled() -> None:
    async def main(world: SmallWorld) -> None:
        done: list[float] = []
        process = world.process("a")
        files = SimulatedFiles(SimulatedDisk(random.Random(0), "/d"), process)
        task = process.run(files.run(lambda: done.append(world.loop.time())))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(done) == 1
        assert 0 < done[0] < world.loop.time()

    run(0, main)


async def _brisk(files: SimulatedFiles) -> None:
    """Make it trust its disk."""
    for _ in range(50):
        await files.run_brief(lambda: None)


def test_a_brief_call_blocks_the_process_and_is_gone_on_with_first() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        process = world.process("a")
        files = SimulatedFiles(SimulatedDisk(random.Random(0), "/d"), process)

        async def program() -> None:
            await _brisk(files)
            process.call_later(0.0, said.append, "another callback")
            await files.run_brief(lambda: said.append("the call"))
            said.append("behind the call")

        await process.run(program())
        await asyncio.sleep(1)
        return said

    assert run(0, main) == ["the call", "behind the call", "another callback"]


def test_a_brief_call_that_never_returns_hangs_the_process() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        disk = SimulatedDisk(random.Random(0), "/d")
        process = world.process("a")
        files = SimulatedFiles(disk, process)

        async def program() -> None:
            file = files.open("/d/f", create=True)
            await _brisk(files)
            disk.troubles.append(Trouble(frozenset(("sync",)), None))
            process.call_later(0.1, said.append, "another callback")
            await files.run_brief(file.sync)
            said.append("behind the call")

        process.run(program())
        await asyncio.sleep(100)
        assert disk.hung is process
        process.kill(power_loss=False)
        return said

    assert run(0, main) == []


def test_a_process_that_is_stopped_in_a_brief_call_goes_on_when_it_may() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        process = world.process("a")
        files = SimulatedFiles(SimulatedDisk(random.Random(0), "/d"), process)

        async def program() -> None:
            await _brisk(files)
            world.loop.call_later(0.0, process.pause, context=contextvars.Context())
            await files.run_brief(lambda: said.append("the call"))
            said.append("behind the call")

        process.run(program())
        await asyncio.sleep(10)
        assert said == ["the call"]
        process.resume()
        await asyncio.sleep(1)
        return said

    assert run(0, main) == ["the call", "behind the call"]


def test_power_is_lost_in_the_middle_of_a_blocking_call() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        disk = SimulatedDisk(random.Random(0), "/d")
        process: Process = world.process("a")
        files = SimulatedFiles(disk, process)

        def crash() -> None:
            process.kill(power_loss=True)
            disk.lose_power()

        def work() -> None:
            file = files.open("/d/f", create=True)
            file.write(0, [b"x"])
            said.append("written")
            file.sync()
            said.append("synced")

        async def program() -> None:
            await files.run(work)
            said.append("done")

        disk.crash = crash
        disk.operations_until_crash = 3
        process.run(program())
        await asyncio.sleep(1)
        return said

    assert run(0, main) == ["written"]


def test_a_call_that_never_returns_leaves_no_trace() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        disk = SimulatedDisk(random.Random(0), "/d")
        process: Process = world.process("a")
        files = SimulatedFiles(disk, process)

        def work() -> None:
            file = files.open("/d/f", create=True)
            try:
                file.sync()
            finally:
                files.remove("/d/f")
            said.append("synced")

        async def program() -> None:
            await files.run(work)
            said.append("done")

        disk.troubles.append(Trouble(frozenset(("sync",)), None))
        process.run(program())
        await asyncio.sleep(1)
        assert disk.hung is process
        disk.heal()
        await asyncio.sleep(100)
        assert files.exists("/d/f")
        return said

    assert run(0, main) == []


def test_a_lost_sector_cannot_be_read_until_it_is_written() -> None:
    disk, files = disk_and_files()
    file = files.open("/d/f", create=True)
    file.write(0, [bytes(SECTOR_BYTES)])
    file.sync()
    assert disk.lose_sector(lambda path: True) == "/d/f sector 0"
    with pytest.raises(OSError, match="Input/output"):
        file.read(10, 1)
    assert file.read(SECTOR_BYTES, 1) == b""
    file.write(0, [bytes(SECTOR_BYTES)])
    assert file.read(10, 1) == b"\0"


def test_what_is_not_durable_is_known() -> None:
    disk, files = disk_and_files()
    assert disk.not_durable("/d/f") == "/d/f is not there"
    file = files.open("/d/f", create=True)
    file.write(0, [b"abc"])
    assert disk.not_durable("/d/f") == "the name /d/f is not durable"
    files.sync_directory("/d")
    assert disk.not_durable("/d/f") == "/d/f is not synced"
    assert disk.not_durable("/d/f", content=False) is None
    assert not disk.holds_for_certain("/d/f", b"bc")
    file.sync()
    assert disk.not_durable("/d/f") is None
    assert disk.holds_for_certain("/d/f", b"bc")
    assert disk.durable_size("/d/f") == 3


def test_the_power_fails_behind_a_call_of_a_kind_and_before_the_next_one() -> None:
    disk, files = disk_and_files()
    crashes: list[bool] = []
    disk.crash = lambda: crashes.append(True)
    disk.crash_behind = lambda kind, path: kind == "sync" and path.endswith(".x")
    file, other = files.open("/d/f.x", create=True), files.open("/d/f", create=True)
    file.write(0, [b"abc"])
    other.sync()
    file.sync()
    assert not crashes
    assert disk.durable_size("/d/f.x") == 0, "its name is not synced"
    with pytest.raises(ProcessEndedError):
        files.sync_directory("/d")
    assert crashes
    files.sync_directory("/d")
    assert disk.durable_size("/d/f.x") == 3
