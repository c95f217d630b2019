"""A start after a loss of power that leaves each sector that was not synced either new or old.

Groups of appends to several partitions are written to segments, which nobody syncs, and to the journal. A start finds
the appends of the first groups: those of all that were acknowledged, and all or none of the one under way. Of a
partition that the journal does not hold any more, it may find the first records of the group under way.
"""

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import KEY, open_log, read_all
from tests.unit.storage.node_support import record
from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.entries import Records
from waltz.storage.disk.journal.groups import BLOCK_BYTES, entries_of
from waltz.storage.disk.journal.journal import DIRECTORY_NAME, Journal
from waltz.storage.disk.journal.reading import read_bodies, read_journal
from waltz.storage.disk.journal_set import JournalSet
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.volumes import Volumes
from waltz.storage.node.journal_jobs import Append
from waltz.storage.node.journal_start import JournalSizes, open_journals

PARTITIONS = 3
SIZES = JournalSizes(file_size_bytes=24 * BLOCK_BYTES, max_files=2)

GROUP = st.dictionaries(
    st.integers(0, PARTITIONS - 1),
    st.lists(st.sampled_from([0, 1, 100, 430, 2000, 7000]), min_size=1, max_size=3),
    min_size=1,
)
"""The sizes of the records of a group, by partition."""


class Start:
    """A start of a node, without its ports and tasks."""

    def __init__(self, files: CrashFiles) -> None:
        self.control = ControlFile.open(files, "/", KEY, PARTITIONS)
        self.fences = FenceFile.open(files, "/", KEY, PARTITIONS)
        directory = StorageDirectory(
            files,
            "/",
            self.control,
            self.fences,
            Volumes.open(files, "/", None, KEY),
            segment_size_threshold_bytes=1 << 20,
            segment_cache_capacity=2,
        )
        self.journal: Journal = open_journals(files, directory, JournalSet(directory), SIZES)[None]
        assert not directory.lost_partitions()

    def logs(self, files: CrashFiles) -> list[PartitionLog]:
        for partition_id in range(PARTITIONS):
            self.control.set_assigned(partition_id, True)
        return [open_log(files, f"/{each}", partition_id=each) for each in range(PARTITIONS)]


class Writer:
    """Appends to all partitions, and what each group has made of their logs."""

    def __init__(self, start: Start, files: CrashFiles, choices: random.Random) -> None:
        self.journal = start.journal
        self.logs = start.logs(files)
        self.choices = choices
        self.after_groups = [[read_all(log) for log in self.logs]]
        """The records of all partitions before the first group, and after each."""
        self.acknowledged = 0

    def append(self, group: dict[int, list[int]]) -> None:
        expected = [list(records) for records in self.after_groups[-1]]
        jobs = []
        for partition_id, sizes in group.items():
            first = len(expected[partition_id])
            batch = [record(first + at, self.choices.randbytes(size)) for at, size in enumerate(sizes)]
            expected[partition_id] += batch
            jobs.append((self.logs[partition_id], Append(self.logs[partition_id], [batch])))
        self.after_groups.append(expected)
        self.journal.append([entry for _, job in jobs for entry in job.begin()])
        self.acknowledged = len(self.after_groups) - 1
        for log, job in jobs:
            prepared = job.end()
            assert prepared is not None
            log.publish(prepared)

    def checkpoint(self) -> None:
        for log in self.logs:
            log.flush()
        self.journal.release(self.journal.next_number)


@given(
    st.lists(st.tuples(st.lists(GROUP, min_size=1, max_size=6), st.integers(0, 12)), min_size=1, max_size=3),
    st.integers(0, 1 << 32),
)
@settings(max_examples=100, deadline=None)
def test_a_start_finds_the_first_groups_and_all_that_were_acknowledged(
    lives: list[tuple[list[dict[int, list[int]]], int]], seed: int
) -> None:
    choices = random.Random(seed)
    files = CrashFiles()
    for groups, dies_after in lives:
        writer = Writer(Start(files), files, choices)
        for group in groups[:-1]:
            writer.append(group)
            if writer.journal.free_bytes < SIZES.file_size_bytes or choices.random() < 0.2:
                writer.checkpoint()
        number = writer.journal.next_number
        files.fail(CrashNow(), after=dies_after)
        with contextlib.suppress(CrashNow):
            writer.append(groups[-1])
        files.tear(choices)
        contents = read_journal(files, f"/{DIRECTORY_NAME}", KEY)
        assert not contents.lost
        replayed = {
            entry.partition_id
            for head, body in read_bodies(files, contents.places)
            for entry in entries_of(head, body)
            if isinstance(entry, Records)
        }
        under_way_is_whole = bool(contents.places) and contents.places[-1].head.number == number
        before, after = writer.after_groups[writer.acknowledged], writer.after_groups[-1]
        for partition_id, found in enumerate(found_by_a_start(files)):
            if partition_id in replayed:
                assert found == (after if under_way_is_whole else before)[partition_id]
            else:  # nothing of the partition was acknowledged since the last checkpoint
                assert len(found) >= len(before[partition_id])
                assert found == after[partition_id][: len(found)]


def found_by_a_start(files: CrashFiles) -> list[list[Record]]:
    logs = Start(files).logs(files)
    found = [read_all(log) for log in logs]
    assert all(log.read_only_reason is None and not log.damage.ranges for log in logs)
    files.restart()
    return found
