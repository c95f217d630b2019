"""The control file, byte for byte."""

import errno
import random
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.control_file import (
    ASSIGNED,
    AVAILABLE,
    ControlFile,
    PartitionInfo,
    decode_info,
    encode_info,
)
from waltz.storage.disk.files.files import GroupSync, OsFiles
from waltz.storage.errors import ConcurrentUpdateError, CorruptionError, ReadOnlyError, StorageError

PATH = "/waltz-storage.ctl"
OTHER_KEY = KEY.__class__(int=1)


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


def open_file(files: CrashFiles, count: int = 2) -> ControlFile:
    return ControlFile.open(files, "/", KEY, count)


def info(session: int, low: int, local: int, flags: int, sequence: int) -> PartitionInfo:
    return PartitionInfo(session, low, local, flags, sequence)


@pytest.mark.parametrize(
    ("fields", "crc"),
    [
        ((-1, -1, -1, 1, -1), "58d1a22d"),
        ((-1, -1, -1, 1, 0), "866a82ce"),
        ((-1, -1, -1, 5, 1), "04ed1498"),
        ((1, -1, -1, 5, 2), "a115f768"),
    ],
)
def test_golden_structs(fields: tuple[int, int, int, int, int], crc: str) -> None:
    encoded = encode_info(PartitionInfo(*fields))
    assert encoded[32:].hex() == crc
    assert decode_info(encoded) == fields
    assert decode_info(encoded[:-1]) is None
    assert decode_info(bytes([encoded[0] ^ 1]) + encoded[1:]) is None


def test_golden_file(files: CrashFiles) -> None:
    """Fresh, then partition 0 assigned, then a low-water mark of session 1."""
    control = open_file(files)
    fresh_pair = encode_info(info(-1, -1, -1, 1, -1)) + encode_info(info(-1, -1, -1, 1, 0))
    header = bytes(4) + files.time_ms().to_bytes(8, "big") + KEY.bytes + (2).to_bytes(4, "big") + bytes(96)
    fresh = header + bytes(4) + fresh_pair + (1).to_bytes(4, "big") + fresh_pair
    assert len(fresh) == 280
    assert files.node(PATH).durable == fresh
    assert [control.partition(p) for p in (0, 1)] == [info(-1, -1, -1, AVAILABLE, 0)] * 2
    control.set_assigned(0, True)
    assigned = fresh[:132] + encode_info(info(-1, -1, -1, 5, 1)) + fresh[168:]
    assert files.contents(PATH) == assigned
    control.set_low_water_mark(0, 1, -1, -1)
    assert files.contents(PATH) == assigned[:168] + encode_info(info(1, -1, -1, 5, 2)) + assigned[204:]
    assert files.node(PATH).durable == files.node(PATH).content


def test_updates_survive_and_alternate(files: CrashFiles) -> None:
    control = open_file(files)
    control.set_low_water_mark(1, 5, 10, 8)
    assert control.partition(1) == info(5, 10, 8, AVAILABLE, 1)
    control.set_low_water_mark(1, 5, 11, 8)
    control.set_low_water_mark(1, 6, 11, 9)
    control.close()
    control = open_file(files)
    assert control.partition(1) == info(6, 11, 9, AVAILABLE, 3)
    assert control.partition(0) == info(-1, -1, -1, AVAILABLE, 0)
    # The current struct is damaged: the one before counts.
    control.close()
    content = bytearray(files.contents(PATH))
    content[128 + 76 + 4] ^= 1
    files.overwrite(PATH, bytes(content))
    assert open_file(files).partition(1) == info(5, 11, 8, AVAILABLE, 2)


def test_flags_keep_marks_and_unknown_bits(files: CrashFiles) -> None:
    control = open_file(files)
    control.set_low_water_mark(0, 1, 2, 2)
    control.set_assigned(0, True)
    control.set_available(0, False)
    assert control.partition(0) == info(1, 2, 2, ASSIGNED, 3)
    assert control.partition(0).assigned
    assert not control.partition(0).available
    control.close()
    content = bytearray(files.contents(PATH))
    content[132:168] = encode_info(info(1, 2, 2, ASSIGNED | 2 | 64, 9))
    files.overwrite(PATH, bytes(content))
    control = open_file(files)
    control.set_available(0, True)
    control.set_assigned(0, False)
    assert control.partition(0) == info(1, 2, 2, AVAILABLE | 2 | 64, 11)


def test_marks_never_go_back(files: CrashFiles) -> None:
    control = open_file(files)
    control.set_low_water_mark(0, 5, 10, 8)
    control.set_low_water_mark(0, 5, 10, 8)
    before = files.contents(PATH)
    with pytest.raises(ConcurrentUpdateError) as concurrent:
        control.set_low_water_mark(0, 4, 10, 8)
    assert str(concurrent.value) == ("session id has changed to 5, but low watermark request contains session id 4")
    with pytest.raises(StorageError) as low:
        control.set_low_water_mark(0, 5, 9, 8)
    assert str(low.value) == ("unable to set low watermark to value 9 because it's less than current low watermark 10")
    with pytest.raises(StorageError) as local:
        control.set_low_water_mark(0, 5, 10, 7)
    assert str(local.value) == (
        "unable to set local low watermark to value 7 because it's less than current local low watermark 8"
    )
    assert control.partition(0) == info(5, 10, 8, AVAILABLE, 2)
    assert files.contents(PATH) == before


@pytest.mark.parametrize("updates", [1, 2])
def test_reset(files: CrashFiles, updates: int) -> None:
    """The slot that was current gets sequence -1, the other 0; the next update goes into the other."""
    control = open_file(files)
    for session in range(updates):
        control.set_low_water_mark(0, session, 3, 3)
    control.reset(0)
    fresh, older = encode_info(info(-1, -1, -1, 1, 0)), encode_info(info(-1, -1, -1, 1, -1))
    assert files.contents(PATH)[132:204] == (older + fresh if updates == 1 else fresh + older)
    assert control.partition(0) == info(-1, -1, -1, AVAILABLE, -1)
    control.set_assigned(0, True)
    assigned = encode_info(info(-1, -1, -1, 5, 1))
    assert files.contents(PATH)[132:204] == (older + assigned if updates == 1 else assigned + older)
    control.close()
    assert open_file(files).partition(0) == info(-1, -1, -1, 5, 1)


@pytest.mark.parametrize("seed", range(10))
def test_crash_inside_an_update_or_reset_leaves_the_state_before_or_after(files: CrashFiles, seed: int) -> None:
    for after in range(6):
        for reset in (False, True):
            files = CrashFiles()
            control = open_file(files)
            control.set_low_water_mark(0, 1, 3, 3)
            control.set_low_water_mark(0, 2, 4, 4)
            files.fail(CrashNow(), after=after)
            done = False
            try:
                if reset:
                    control.reset(0)
                else:
                    control.set_low_water_mark(0, 3, 5, 5)
                done = True
            except CrashNow:
                pass
            files.crash(random.Random(seed))
            found = open_file(files).partition(0)
            old, new = (2, 4, 4), (-1, -1, -1) if reset else (3, 5, 5)
            assert found[:3] in ((new,) if done else (old, new))


@pytest.mark.parametrize("seed", range(20))
def test_interrupted_creation_starts_again(seed: int) -> None:
    for after in range(8):
        files = CrashFiles()
        files.fail(CrashNow(), after=after)
        try:
            open_file(files, 100)
        except CrashNow:
            files.crash(random.Random(seed))
        else:
            files.restart()
        control = open_file(files, 100)
        assert [control.partition(p)[:4] for p in range(100)] == [(-1, -1, -1, AVAILABLE)] * 100


def test_short_file_is_initialised_again(files: CrashFiles) -> None:
    files.open(PATH, create=True).write(0, [b"x" * 127])
    assert open_file(files).partition(1).sequence_number == 0
    assert len(files.contents(PATH)) == 280


def test_zeroed_header_over_real_state_is_refused(files: CrashFiles) -> None:
    control = open_file(files)
    control.set_low_water_mark(0, 1, 3, 3)
    control.close()
    files.overwrite(PATH, bytes(128) + files.contents(PATH)[128:])
    with pytest.raises(StorageError, match="the cluster key does not match"):
        open_file(files)


def test_other_clusters_file_is_refused(files: CrashFiles) -> None:
    open_file(files).close()
    with pytest.raises(StorageError, match="^the cluster key does not match$"):
        ControlFile.open(files, "/", OTHER_KEY, 2)
    with pytest.raises(StorageError, match="^the number of partitions does not match$"):
        ControlFile.open(files, "/", KEY, 3)
    assert files.open_files == 0


def test_tools_take_what_the_file_says(files: CrashFiles) -> None:
    with pytest.raises(FileNotFoundError):
        ControlFile.open(files, "/")
    open_file(files, 7).close()
    control = ControlFile.open(files, "/")
    assert control.cluster_key == KEY
    assert control.partition_count == 7
    control.close()
    files.overwrite(PATH, b"short")
    with pytest.raises(StorageError, match="not a control file"):
        ControlFile.open(files, "/")


def test_one_damaged_entry_leaves_the_others_alone(files: CrashFiles) -> None:
    control = open_file(files)
    control.set_low_water_mark(1, 5, 5, 5)
    control.close()
    content = bytearray(files.contents(PATH))
    content[132] ^= 1
    content[168] ^= 1
    files.overwrite(PATH, bytes(content))
    control = open_file(files)
    assert control.partition(1).session_id == 5
    for attempt in (control.partition, lambda p: control.set_assigned(p, True)):
        with pytest.raises(CorruptionError, match="partition info corrupted"):
            attempt(0)
    control.reset(0)
    assert control.partition(0) == info(-1, -1, -1, AVAILABLE, -1)
    control.close()
    assert open_file(files).partition(0) == info(-1, -1, -1, AVAILABLE, 0)


def test_equal_sequence_numbers_are_damage(files: CrashFiles) -> None:
    open_file(files).close()
    content = bytearray(files.contents(PATH))
    content[132:168] = content[168:204]
    files.overwrite(PATH, bytes(content))
    with pytest.raises(StorageError, match="^Cannot determine max PartitionInfoStruct: same sequence number found$"):
        open_file(files).partition(0)


def test_short_body_counts_as_damage(files: CrashFiles) -> None:
    open_file(files).close()
    files.overwrite(PATH, files.contents(PATH)[:206])
    control = open_file(files)
    assert control.partition(0).sequence_number == 0
    with pytest.raises(CorruptionError):
        control.partition(1)


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_failed_update_changes_nothing_and_is_never_tried_again(
    files: CrashFiles, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next update goes into a new file, which takes the place of the one whose contents are uncertain."""
    control = open_file(files)
    control.set_low_water_mark(0, 1, 3, 3)
    files.fail(OSError(errno.EIO, "broken"), operation=operation)
    with pytest.raises(OSError, match="broken"):
        control.set_low_water_mark(0, 2, 4, 4)
    assert control.partition(0) == info(1, 3, 3, AVAILABLE, 1)
    failures = [control.failure]
    failed = files.node(PATH)
    operations = len(files.operations)
    control.set_available(1, False)
    failures.append(control.failure)
    assert [failure is None for failure in failures] == [False, True]
    assert "was replaced by a new one" in caplog.text
    assert files.node(PATH) is not failed
    assert failed.locked
    assert files.operations[operations:] == ["open", "write", "sync", "rename", "sync_directory", "write", "datasync"]
    with pytest.raises(StorageError, match="failed to acquire the lock"):
        open_file(files)
    files.crash(random.Random(1))
    reopened = open_file(files)
    assert reopened.partition(0) == info(1, 3, 3, AVAILABLE, 1)
    assert reopened.partition(1).available is False
    assert reopened.half_damaged == []


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_directory"])
def test_a_file_that_cannot_be_replaced_takes_no_updates(files: CrashFiles, operation: str) -> None:
    control = open_file(files)
    control.set_low_water_mark(0, 1, 3, 3)
    files.fail(OSError(errno.EIO, "broken"), operation="datasync")
    with pytest.raises(OSError, match="broken"):
        control.set_low_water_mark(0, 2, 4, 4)
    files.fail(OSError(errno.ENOSPC, "full"), operation=operation)
    with pytest.raises(ReadOnlyError, match="cannot be replaced"):
        control.set_available(1, False)
    assert control.failure is not None
    with pytest.raises(StorageError, match="failed to acquire the lock"):
        open_file(files)
    control.set_available(1, False)
    control.close()
    assert files.open_files == 0
    assert open_file(files).partition(1).available is False


def test_an_update_beside_the_replacement_is_not_lost(files: CrashFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was durable in the old file when the new one was written without it."""
    control = open_file(files)
    write_and_sync = GroupSync.write_and_sync
    replaced = False

    def replace_behind_it(sync: GroupSync, offset: int, chunks: Sequence[bytes]) -> None:
        nonlocal replaced
        write_and_sync(sync, offset, chunks)
        if not replaced:
            replaced = True
            files.fail(OSError(errno.EIO, "broken"), operation="datasync")
            with pytest.raises(OSError, match="broken"):
                control.set_available(1, False)
            control.set_available(1, False)

    monkeypatch.setattr(GroupSync, "write_and_sync", replace_behind_it)
    control.set_low_water_mark(0, 5, 6, 6)
    assert replaced
    files.crash(random.Random(1))
    assert open_file(files).partition(0) == info(5, 6, 6, AVAILABLE, 1)


def test_a_half_damaged_entry_is_told_and_restored_from_the_last_stop(
    files: CrashFiles, caplog: pytest.LogCaptureFixture
) -> None:
    control = open_file(files)
    control.set_low_water_mark(0, 1, 3, 3)
    control.set_low_water_mark(0, 2, 5, 5)
    noted = control.partition(0)
    control.close()
    content = bytearray(files.contents(PATH))
    content[128 + 4 + 36] ^= 1
    files.overwrite(PATH, bytes(content))
    control = open_file(files)
    assert control.half_damaged == [0]
    assert control.partition(0) == info(1, 3, 3, AVAILABLE, 1)
    assert "one of two structs is damaged" in caplog.text
    control.restore(0, noted)
    control.restore(1, noted)
    assert control.partition(0) == noted
    assert control.partition(1).session_id == -1
    assert control.half_damaged == []
    control.close()
    assert open_file(files).partition(0) == noted


def test_what_is_found_at_open_is_durable(files: CrashFiles) -> None:
    """An update whose sync the process did not live to see counts once it was seen."""
    control = open_file(files)
    files.fail(CrashNow(), operation="datasync")
    with pytest.raises(CrashNow):
        control.set_low_water_mark(0, 1, 3, 3)
    files.restart()
    assert open_file(files).partition(0).session_id == 1
    assert files.node(PATH).pending == []


def test_closed_and_out_of_range(files: CrashFiles) -> None:
    control = open_file(files)
    for partition_id in (-1, 2):
        with pytest.raises(StorageError, match="no such partition"):
            control.partition(partition_id)
        with pytest.raises(StorageError, match="no such partition"):
            control.reset(partition_id)
    control.close()
    control.close()
    with pytest.raises(StorageError, match="^Control file is already closed.$"):
        control.partition(0)


def test_missing_directory(files: CrashFiles) -> None:
    with pytest.raises(StorageError, match="storage directory /nowhere does not exist"):
        ControlFile.open(files, "/nowhere", KEY, 2)


def test_one_user_at_a_time(tmp_path: Path) -> None:
    files = OsFiles(max_threads=1)
    control = ControlFile.open(files, str(tmp_path), KEY, 2)
    with pytest.raises(StorageError, match="^failed to acquire the lock"):
        ControlFile.open(files, str(tmp_path), KEY, 2)
    control.close()
    ControlFile.open(files, str(tmp_path), KEY, 2).close()
    files.close()


def test_lock_held_elsewhere(files: CrashFiles) -> None:
    control = open_file(files)
    with pytest.raises(StorageError, match="^failed to acquire the lock"):
        open_file(files)
    control.close()
    open_file(files).close()


# The guard of the journal


def is_guarded(control: ControlFile) -> bool:
    return control.guarded


def test_a_guarded_file_has_the_inverted_key_and_comes_back_byte_for_byte(files: CrashFiles) -> None:
    control = open_file(files)
    before = files.contents("/waltz-storage.ctl")
    assert not is_guarded(control)
    control.guard()
    assert is_guarded(control)
    guarded = files.contents("/waltz-storage.ctl")
    assert guarded[12:28] == bytes(byte ^ 0xFF for byte in KEY.bytes)
    assert guarded[:12] + KEY.bytes + guarded[28:32] + bytes(16) + guarded[48:] == before
    control.unguard()
    assert not is_guarded(control)
    assert files.contents("/waltz-storage.ctl") == before


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("guarded", [True, False])
def test_the_guard_is_durable_and_both_forms_are_known(files: CrashFiles, key: UUID | None, guarded: bool) -> None:
    control = open_file(files)
    control.guard()
    if not guarded:
        control.unguard()
    files.crash(random.Random(1))
    again = ControlFile.open(files, "/", key, None if key is None else 2, known_keys=[OTHER_KEY, KEY])
    assert again.guarded is guarded
    assert again.cluster_key == KEY
    again.set_assigned(0, True)
    assert again.guarded is guarded


def test_another_clusters_file_is_refused_when_it_is_guarded(files: CrashFiles) -> None:
    control = open_file(files)
    control.guard()
    control.close()
    with pytest.raises(StorageError, match="the cluster key does not match"):
        ControlFile.open(files, "/", UUID(int=5), 2)


@pytest.mark.parametrize("size_bytes", range(12, 48))
@pytest.mark.parametrize("guarded", [True, False])
def test_a_key_of_which_a_failed_write_has_inverted_a_part_is_guarded(
    files: CrashFiles, size_bytes: int, guarded: bool
) -> None:
    """Also by a write that takes the guard away: what the journal holds may still be nowhere else."""
    control = open_file(files)
    plain = files.contents(PATH)
    control.guard()
    marked = files.contents(PATH)
    control.close()
    new, old = (plain, marked) if guarded else (marked, plain)
    file = files.open(PATH, create=False)
    file.write(0, [new[:size_bytes] + old[size_bytes:]])
    file.close()
    control = open_file(files)
    assert is_guarded(control) == (size_bytes < 28 if guarded else size_bytes > 12)
    if 12 < size_bytes < 28:
        assert files.contents(PATH) == marked, "no tool would know the key"
    control.unguard()
    assert files.contents(PATH) == plain
    control.guard()
    assert files.contents(PATH) == marked
    control.close()
    with pytest.raises(StorageError, match="the cluster key does not match"):
        ControlFile.open(files, "/", OTHER_KEY, 2)


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_a_guard_that_fails_is_not_there_and_the_file_is_replaced_next_time(files: CrashFiles, operation: str) -> None:
    control = open_file(files)
    files.fail(OSError(errno.EIO, "injected"), operation=operation)
    with pytest.raises(OSError, match="injected"):
        control.guard()
    assert not is_guarded(control)
    control.guard()
    files.crash(random.Random(1))
    assert open_file(files).guarded
