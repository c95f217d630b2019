"""A directory that is drained is, byte for byte, what the same appends leave without a journal."""

import contextlib
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import KEY, append, read_all, record, records
from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.draining import drain
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files, OsFiles
from waltz.storage.disk.inspection import inspect_control_file
from waltz.storage.disk.journal.entries import Entry, Fenced, Marked, NewSegment, Records, Truncated
from waltz.storage.disk.journal.groups import BLOCK_BYTES
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.volumes import Volumes
from waltz.storage.errors import CorruptionError, StorageError

GOLDEN = Path(__file__).parents[3] / "data" / "storage-dir.tar.gz"
PARTITIONS = 2
THRESHOLD = 500
SEEDS = st.integers(0, 1 << 32)


def open_directory(files: Files, path: str = "/") -> StorageDirectory:
    control_file = ControlFile.open(files, path, *(() if path != "/" else (KEY, PARTITIONS)))
    fences = FenceFile.open(files, path, control_file.cluster_key, control_file.partition_count)
    volumes = Volumes.open(files, path, None, control_file.cluster_key)
    return StorageDirectory(
        files, path, control_file, fences, volumes, segment_size_threshold_bytes=THRESHOLD, segment_cache_capacity=5
    )


def new_directory() -> tuple[CrashFiles, StorageDirectory]:
    """Two partitions with four records each, all of it durable."""
    files = CrashFiles()
    directory = open_directory(files)
    for partition_id in range(PARTITIONS):
        directory.control_file.set_assigned(partition_id, True)
        log = directory.open_log(partition_id)
        append(log, records(0, 4))
        log.close()
    return files, directory


def entries_of(log: PartitionLog, batch: list[Record], time_ms: int) -> list[Entry]:
    """What a node journals for a batch."""
    prepared = log.prepare([batch])
    segment = prepared.start.segment_first_id
    entries: list[Entry] = []
    for write in prepared.writes:
        if write.starts_segment:
            segment = write.first_transaction_id
            entries.append(NewSegment(log.partition_id, segment, time_ms))
        count = len(write.record_offsets)
        first = write.first_transaction_id
        entries.append(Records(log.partition_id, 1, segment, write.offset, first, count, write.chunks))
    return entries


def open_journal(files: Files, path: str, directory: StorageDirectory) -> Journal:
    key = directory.control_file.cluster_key
    journal = Journal.open(
        files,
        f"{path.rstrip('/')}/journal",
        cluster_key=key,
        contents=read_journal(files, f"{path.rstrip('/')}/journal", key),
        file_size_bytes=16 * BLOCK_BYTES,
        max_files=2,
    )
    directory.control_file.guard()
    return journal


def journaled() -> CrashFiles:
    """A node that has crashed before anything of its journal was anywhere else."""
    files, directory = new_directory()
    journal = open_journal(files, "/", directory)
    for partition_id in range(PARTITIONS):
        log = directory.open_log(partition_id)
        journal.append([Fenced(partition_id, 4), Marked(partition_id, 4, 2, 3)])
        journal.append([Fenced(partition_id, 5), Marked(partition_id, 5, 3, 3)])
        journal.append(entries_of(log, records(4, 20), files.time_ms()))
        log.close()
    end = 128 + sum(40 + len(record(each).data) for each in range(4))
    journal.append([Truncated(1, 5, 3, 0, end)])
    files.crash(random.Random(1))
    return files


def synced() -> CrashFiles:
    """The same without a journal, and an orderly stop."""
    files, directory = new_directory()
    for partition_id in range(PARTITIONS):
        directory.fence_file.raise_to(partition_id, 5)
        directory.control_file.set_low_water_mark(partition_id, 4, 2, 3)
        directory.control_file.set_low_water_mark(partition_id, 5, 3, 3)
        log = directory.open_log(partition_id)
        append(log, records(4, 20))
        if partition_id == 1:
            log.truncate(3)
        log.close()
    directory.close({})
    return files


def contents(files: CrashFiles) -> dict[str, bytes]:
    """Everything that the original knows."""
    found = {"waltz-storage.ctl": files.contents("/waltz-storage.ctl")}
    for partition_id in range(PARTITIONS):
        for name in files.list_directory(f"/{partition_id}"):
            found[f"{partition_id}/{name}"] = files.contents(f"/{partition_id}/{name}")
    return found


def test_a_drained_directory_is_that_of_a_node_without_a_journal() -> None:
    files = journaled()
    told: list[tuple[int, int]] = []
    drained = drain(files, "/", lambda done, total: told.append((done, total)))
    assert drained is not None
    assert (drained.groups, drained.partitions, drained.damaged) == (7, (0, 1), {})
    assert contents(files) == contents(synced())
    assert files.contents("/waltz-storage.fence") == synced().contents("/waltz-storage.fence")
    assert files.open_files == 0


def test_a_drained_directory_is_one_that_was_left_in_order() -> None:
    files = journaled()
    drain(files, "/")
    files.crash(random.Random(2))
    assert drain(files, "/") is None
    directory = open_directory(files)
    assert not directory.control_file.guarded
    directory.take_clean_stop()
    assert len(directory._clean) == PARTITIONS
    assert read_all(directory.open_log(0)) == records(0, 24)
    assert read_all(directory.open_log(1)) == records(0, 4)


@given(st.integers(0, 120), SEEDS, st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_drain_that_is_interrupted_is_done_again(after: int, seed: int, power: bool) -> None:
    files = journaled()
    files.fail(CrashNow(), after=after)
    with contextlib.suppress(CrashNow):
        drain(files, "/")
    if power:
        files.crash(random.Random(seed))
    else:
        files.restart()
    drain(files, "/")
    assert contents(files) == contents(synced())
    fences = open_directory(files).fence_file
    assert [fences.get(partition_id) for partition_id in range(PARTITIONS)] == [5, 5]


def test_files_of_a_directory_that_is_not_drained_are_not_looked_at() -> None:
    files = journaled()
    advice = "its other files may lack changes that are in its journal; run waltz disk drain /, then repeat"
    with pytest.raises(StorageError, match=advice), inspect_control_file(files, Path("/waltz-storage.ctl")):
        pass
    assert files.open_files == 0
    drain(files, "/")
    with inspect_control_file(files, Path("/waltz-storage.ctl")) as control_file:
        assert control_file.partition(0).local_low_water_mark == 3


def damage(files: CrashFiles) -> None:
    """Flip a bit of the payload in the group that holds records of partition 0."""
    content = bytearray(files.contents("/journal/0000000001.jnl"))
    content[3 * BLOCK_BYTES + 300] ^= 1
    files.overwrite("/journal/0000000001.jnl", bytes(content))


def test_what_the_journal_has_lost_keeps_a_partition_out_and_the_directory_guarded() -> None:
    files = journaled()
    damage(files)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"groups of the journal in / are damaged: .* partitions 0 from the"):
            drain(files, "/")
    assert files.open_files == 0
    directory = open_directory(files)
    assert directory.control_file.guarded
    assert directory.lost_partitions() == [0]
    with pytest.raises(CorruptionError, match="group 3 of the journal is damaged, and may have held records"):
        directory.open_log(0)
    assert read_all(directory.open_log(1)) == records(0, 4)


def test_a_partition_that_was_repaired_is_served_again() -> None:
    files = journaled()
    damage(files)
    with pytest.raises(StorageError, match="are damaged"):
        drain(files, "/")
    directory = open_directory(files)
    directory.stage(0, records(4, 20))
    directory.rebuild(0, 23, (), 23, None)
    directory.drop_staged(0)
    assert directory.lost_partitions() == []
    assert read_all(directory.open_log(0)) == records(0, 24)


def test_a_partition_of_which_the_files_were_deleted_begins_anew() -> None:
    files = journaled()
    damage(files)
    with pytest.raises(StorageError, match="are damaged"):
        drain(files, "/")
    directory = open_directory(files)
    directory.forget(0, delete_files=False)
    assert directory.lost_partitions() == [0]
    directory.forget(0, delete_files=True)
    assert directory.lost_partitions() == []


def test_a_directory_of_the_original_is_drained_to_the_same_bytes(tmp_path: Path) -> None:
    files = OsFiles(max_threads=1)
    found = []
    for name in ("journaled", "synced"):
        with tarfile.open(GOLDEN) as archive:
            archive.extractall(tmp_path / name, filter="data")
        path = str(tmp_path / name)
        directory = open_directory(files, path)
        journal = open_journal(files, path, directory) if name == "journaled" else None
        assigned = 0
        for partition_id in range(directory.control_file.partition_count):
            if not directory.control_file.partition(partition_id).assigned:
                continue
            log = directory.open_log(partition_id)
            batch = records(log.max_transaction_id + 1, 1)
            if journal is None or log.end.offset > THRESHOLD:  # a new segment has the time of its creation
                append(log, batch)
            else:
                journal.append(entries_of(log, batch, 0))
            log.close()
            assigned += 1
        assert assigned
        directory.control_file.close()
        directory.fence_file.close()
        if journal is not None:
            journal.abandon()
            assert drain(files, path) is not None
        found.append(
            {
                str(each.relative_to(path)): each.read_bytes()
                for each in Path(path).rglob("*")
                if each.is_file() and (each.suffix in (".seg", ".idx", ".ctl"))
            }
        )
    for mapping in found:
        for name in mapping:
            if name.endswith((".seg", ".idx")):
                mapping[name] = mapping[name][:4] + bytes(8) + mapping[name][12:]
    assert found[0] == found[1]
    files.close()
