"""The replay of a journal: any crash of a node that writes lazily leaves what a naive model knows.

What was acknowledged is there, with the same bytes; what is there besides is a prefix of what was being written; and no
recovery that follows calls anything damaged.
"""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import KEY, open_log, read_all, record
from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.entries import (
    Dropped,
    Entry,
    Fenced,
    Marked,
    NewSegment,
    Records,
    Settled,
    Truncated,
)
from waltz.storage.disk.journal.groups import BLOCK_BYTES
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal.replay import Report, forget_lost, lost_reason, replay
from waltz.storage.disk.journal.ring import UNUSED_NAME, JournalFullError, is_missing, leave_unused
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    SegmentHeader,
    data_file_name,
    encode_index,
    encode_record,
    index_offset,
    index_path,
)

PARTITIONS = 3
THRESHOLD = 500
TIME_MS = 1_577_836_800_000
SEEDS = st.integers(0, 1 << 32)
WHICH = st.integers(0, PARTITIONS - 1)


def path_of(partition_id: int, segment: int) -> str:
    return f"/{partition_id}/{data_file_name(segment)}"


@dataclass
class Partition:
    """One partition of the node: what it knows, what was acknowledged, and what may be there besides."""

    number: int
    acknowledged: list[Record] = field(default_factory=list)
    possible: list[Record] | None = None
    """The longest log that may be found after a crash."""
    shortest: int | None = None
    """The least number of records that must be found, when a truncation is under way."""
    records: list[Record] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    end: int = HEADER_SIZE_BYTES
    lazy: set[str] = field(default_factory=set)
    """Files that were written and not synced."""
    oldest: int | None = None
    """The oldest group that no sync covers."""
    last_group: int = 0
    fence: int = -1
    mark: int = -1
    dropping: bool = False
    """It was dropped; in the control file it may be still there."""

    @property
    def next_id(self) -> int:
        return len(self.records)


class Node(RuleBasedStateMachine):
    """Writes segments lazily, as the journal allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CrashFiles()
        self.versions = 0
        self.session = 0
        self.partitions = [Partition(number) for number in range(PARTITIONS)]
        self.open_files()
        for partition in self.partitions:
            self.control.set_assigned(partition.number, True)
        self.recover()

    # Start

    def open_files(self) -> None:
        self.control = ControlFile.open(self.files, "/", KEY, PARTITIONS)
        self.fences = FenceFile.open(self.files, "/", KEY, PARTITIONS)

    def replay(self) -> Report:
        contents = read_journal(self.files, "/journal", KEY)
        assert contents.lost == []
        return replay(self.files, "/", self.control, self.fences, contents)

    def recover(self, loses_power_again: int | None = None) -> None:
        contents = read_journal(self.files, "/journal", KEY)
        report = replay(self.files, "/", self.control, self.fences, contents)
        assert report.damaged == {}
        self.journal = Journal.open(
            self.files,
            "/journal",
            cluster_key=KEY,
            contents=contents,
            file_size_bytes=6 * BLOCK_BYTES,
            max_files=2,
        )
        if not self.control.guarded:
            self.control.guard()
        if loses_power_again is not None:
            self.files.crash(random.Random(loses_power_again))
            self.open_files()
            self.recover()
            return
        for partition in self.partitions:
            self.recover_partition(partition)

    def recover_partition(self, partition: Partition) -> None:
        number = partition.number
        info = self.control.partition(number)
        if not info.assigned:
            assert partition.dropping
            self.delete(partition)
            return
        log = open_log(
            self.files,
            f"/{number}",
            low_water_mark=info.local_low_water_mark,
            threshold=THRESHOLD,
            partition_id=number,
        )
        found = read_all(log)
        longest = partition.acknowledged if partition.possible is None else partition.possible
        shortest = len(partition.acknowledged) if partition.shortest is None else partition.shortest
        if partition.dropping and not found:
            longest, shortest = [], 0
        assert len(found) >= shortest
        assert found == longest[: len(found)]
        assert log.damage.ranges == ()
        assert info.local_low_water_mark >= partition.mark
        assert self.fences.get(number) >= partition.fence
        partition.acknowledged, partition.records = list(found), list(found)
        partition.possible = partition.shortest = partition.oldest = None
        partition.dropping = False
        partition.segments = [segment.first_transaction_id for segment in log._view.segments]
        partition.end = log.end.offset
        partition.offsets = []
        for segment in log._view.segments:
            offset = HEADER_SIZE_BYTES
            for each in found[segment.first_transaction_id : segment.next_transaction_id]:
                partition.offsets.append(offset)
                offset += len(encode_record(each))
        partition.lazy.clear()
        partition.last_group = 0
        partition.fence, partition.mark = self.fences.get(number), info.local_low_water_mark
        log.close()

    # What is written

    def write(self, path: str, offset: int, data: bytes, partition: Partition) -> None:
        file = self.files.open(path, create=True)
        file.write(offset, [data])
        file.close()
        partition.lazy.add(path)

    def sync(self, partition: Partition) -> None:
        """Make durable whatever was written lazily: segments, then the directory, then the index."""
        self.files.sync_directory(f"/{partition.number}")
        for path in sorted(partition.lazy, reverse=True):  # data before index
            if self.files.exists(path):
                file = self.files.open(path, create=False)
                file.sync()
                file.close()
        partition.lazy.clear()

    def fresh(self, partition: Partition, count: int) -> list[Record]:
        """Never the same payload twice for an id, so that a stale one is noticed."""
        self.versions += 1
        choices = random.Random(self.versions)
        first = partition.next_id
        return [record(first + at, choices.randbytes(choices.randint(0, 90))) for at in range(count)]

    def add(self, partition: Partition, records: list[Record]) -> tuple[list[Entry], list[Callable[[], None]]]:
        """Entries for records, and what is done to files only when these are durable."""
        entries: list[Entry] = []
        later: list[Callable[[], None]] = []
        number, lazily = partition.number, True
        for each in records:
            if partition.end > THRESHOLD:
                entries.append(NewSegment(number, each.transaction_id, TIME_MS))
                header = SegmentHeader(0, TIME_MS, KEY, number, each.transaction_id).encode()
                path = path_of(number, each.transaction_id)
                later.append(partial(self.write, index_path(path), 0, header, partition))
                later.append(partial(self.write, path, 0, header, partition))
                partition.segments.append(each.transaction_id)
                partition.end = HEADER_SIZE_BYTES
                lazily = False
            data, segment, offset = encode_record(each), partition.segments[-1], partition.end
            entries.append(Records(number, self.session, segment, offset, each.transaction_id, 1, [data]))
            path = path_of(number, segment)
            if lazily:
                self.write(path, offset, data, partition)
            else:
                later.append(partial(self.write, path, offset, data, partition))
            at = index_offset(segment, each.transaction_id)
            later.append(partial(self.write, index_path(path), at, encode_index([offset]), partition))
            partition.records.append(each)
            partition.offsets.append(offset)
            partition.end += len(data)
        return entries, later

    def append(self, entries: list[Entry]) -> int:
        try:
            number = self.journal.append(entries)
        except JournalFullError:
            self.checkpoint_all()
            number = self.journal.append(entries)
        for partition in self.partitions:
            if any(entry.partition_id == partition.number for entry in entries):  # type: ignore[union-attr]
                partition.last_group = number
                if partition.oldest is None:
                    partition.oldest = number
        return number

    def checkpoint(self, partition: Partition) -> None:
        self.sync(partition)
        self.fences.raise_to(partition.number, partition.fence)
        info = self.control.partition(partition.number)
        if partition.mark > info.local_low_water_mark:
            self.control.set_low_water_mark(partition.number, self.session, partition.mark, partition.mark)
        partition.oldest = None

    def checkpoint_all(self) -> None:
        for partition in self.partitions:
            self.checkpoint(partition)
        self.journal.release(self.journal.next_number)

    # What happens

    def turn(self, counts: list[int]) -> None:
        entries: list[Entry] = []
        later: list[Callable[[], None]] = []
        for partition, count in zip(self.partitions, counts, strict=True):
            partition.possible = partition.acknowledged + (fresh := self.fresh(partition, count))
            added, afterwards = self.add(partition, fresh)
            entries += added
            later += afterwards
        if not entries:
            return
        self.append(entries)
        for partition in self.partitions:
            partition.acknowledged = list(partition.records)
        for each in later:
            each()

    def direct(self, which: int, count: int) -> None:
        partition = self.partitions[which]
        partition.possible = partition.acknowledged + (fresh := self.fresh(partition, count))
        if partition.end > THRESHOLD or not fresh:
            partition.possible = None
            return
        for each in fresh:
            data, segment = encode_record(each), partition.segments[-1]
            path = path_of(which, segment)
            self.write(path, partition.end, data, partition)
            at = index_offset(segment, each.transaction_id)
            self.write(index_path(path), at, encode_index([partition.end]), partition)
            partition.records.append(each)
            partition.offsets.append(partition.end)
            partition.end += len(data)
        self.sync(partition)
        if partition.last_group >= self.journal.oldest_number:
            self.append([Settled(which, partition.next_id, partition.segments[-1], partition.end)])
        partition.acknowledged = list(partition.records)

    def truncate(self, which: int, fraction: float) -> None:
        partition = self.partitions[which]
        last = partition.next_id - 1
        target = round(partition.mark + fraction * (last - partition.mark))
        if target >= last:
            return
        kept = [s for s in partition.segments if s <= target + 1 or s == 0]
        offset = partition.offsets[target + 1] if kept[-1] <= target else HEADER_SIZE_BYTES
        partition.possible, partition.shortest = list(partition.acknowledged), target + 1
        self.append([Truncated(which, self.session, target, kept[-1], offset)])
        del partition.acknowledged[target + 1 :]
        partition.possible = partition.shortest = None
        for segment in reversed(partition.segments[len(kept) :]):
            self.files.remove(path_of(which, segment))
            self.files.remove(index_path(path_of(which, segment)))
        path = path_of(which, kept[-1])
        for each, size in ((index_path(path), index_offset(kept[-1], target + 1)), (path, offset)):
            file = self.files.open(each, create=False)
            file.truncate(size)
            file.close()
            partition.lazy.add(each)
        partition.segments, partition.end = kept, offset
        del partition.records[target + 1 :], partition.offsets[target + 1 :]

    def set_mark(self, which: int) -> None:
        partition = self.partitions[which]
        self.session += 1
        mark = partition.next_id - 1
        self.append([Fenced(which, self.session), Marked(which, self.session, mark, mark)])
        partition.fence, partition.mark = self.session, mark

    def drop(self, which: int) -> None:
        partition = self.partitions[which]
        self.checkpoint(partition)
        self.append([Dropped(which)])
        partition.fence = partition.mark = -1
        partition.dropping = True
        self.control.reset(which)
        self.delete(partition)

    def delete(self, partition: Partition) -> None:
        number = partition.number
        for name in self.files.list_directory(f"/{number}"):
            self.files.remove(f"/{number}/{name}")
        self.files.sync_directory(f"/{number}")
        self.fences.reset(number)
        self.control.set_assigned(number, True)
        partition.__init__(number)  # type: ignore[misc]  # as it was in the beginning
        self.recover_partition(partition)

    # Rules

    @rule(counts=st.lists(st.integers(0, 6), min_size=PARTITIONS, max_size=PARTITIONS))
    def journaled(self, counts: list[int]) -> None:
        self.turn(counts)
        self.calm()

    @rule(which=WHICH, count=st.integers(1, 5))
    def synced_directly(self, which: int, count: int) -> None:
        self.direct(which, count)
        self.calm()

    @rule(which=WHICH, fraction=st.floats(0, 1))
    def truncated(self, which: int, fraction: float) -> None:
        self.truncate(which, fraction)
        self.calm()

    @rule(which=WHICH)
    def marked(self, which: int) -> None:
        self.set_mark(which)

    @rule(which=WHICH)
    def checkpointed(self, which: int) -> None:
        self.checkpoint(self.partitions[which])
        oldest = [each.oldest for each in self.partitions if each.oldest is not None]
        self.journal.release(min(oldest, default=self.journal.next_number))

    @rule(which=WHICH)
    def dropped(self, which: int) -> None:
        self.drop(which)
        self.calm()

    @rule(
        what=st.sampled_from(["turn", "direct", "truncate", "mark", "drop", "checkpoint"]),
        which=WHICH,
        counts=st.lists(st.integers(0, 6), min_size=PARTITIONS, max_size=PARTITIONS),
        fraction=st.floats(0, 1),
        after=st.integers(0, 40),
        seed=SEEDS,
        again=st.none() | st.integers(0, 60),
        power=st.booleans(),
    )
    def crash(
        self,
        what: str,
        which: int,
        counts: list[int],
        fraction: float,
        after: int,
        seed: int,
        again: int | None,
        power: bool,
    ) -> None:
        changes = {
            "turn": lambda: self.turn(counts),
            "direct": lambda: self.direct(which, counts[0] + 1),
            "truncate": lambda: self.truncate(which, fraction),
            "mark": lambda: self.set_mark(which),
            "drop": lambda: self.drop(which),
            "checkpoint": self.checkpoint_all,
        }
        self.files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow):
            changes[what]()
        self.stop(seed, power)
        if again is not None:
            self.files.fail(CrashNow(), after=again)
            with contextlib.suppress(CrashNow):
                self.open_files()
                self.replay()
            self.stop(seed + 1, power)
        self.open_files()
        self.recover(seed if power else None)

    def stop(self, seed: int, power: bool) -> None:
        if power:
            self.files.crash(random.Random(seed))
        else:
            self.files.restart()

    def calm(self) -> None:
        for partition in self.partitions:
            assert partition.acknowledged == partition.records
            partition.possible = partition.shortest = None


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


# Single cases


class Crashed:
    """A directory with a partition that has records 0 to 3 in its segment, durably, and a journal."""

    def __init__(self, journal_blocks: int = 8) -> None:
        self.files = CrashFiles()
        self.control = ControlFile.open(self.files, "/", KEY, 2)
        self.fences = FenceFile.open(self.files, "/", KEY, 2)
        self.control.set_assigned(0, True)
        self.control.guard()
        log = open_log(self.files, "/0", partition_id=0)
        prepared = log.prepare([[record(number) for number in range(4)]])
        log.write_and_sync(prepared)
        self.end = prepared.end.offset
        log.close()
        contents = read_journal(self.files, "/journal", KEY)
        self.journal = Journal.open(
            self.files,
            "/journal",
            cluster_key=KEY,
            contents=contents,
            file_size_bytes=journal_blocks * BLOCK_BYTES,
            max_files=2,
        )

    def replay(self, progress: Callable[[int, int], None] | None = None) -> Report:
        contents = read_journal(self.files, "/journal", KEY)
        return replay(self.files, "/", self.control, self.fences, contents, progress)

    def found(self) -> list[Record]:
        return read_all(open_log(self.files, "/0", partition_id=0))


def records_entry(first: int, count: int, offset: int, partition_id: int = 0) -> Records:
    data = [encode_record(record(number)) for number in range(first, first + count)]
    return Records(partition_id, 1, 0, offset, first, count, data)


def test_records_get_their_index_entries() -> None:
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 3, crashed.end)])
    assert crashed.replay().partitions == {0}
    assert len(crashed.files.contents(index_path(path_of(0, 0)))) == index_offset(0, 7)
    assert crashed.found() == [record(number) for number in range(7)]


@pytest.mark.parametrize("synced", range(5), ids=lambda synced: f"{synced} of 4 entries synced")
def test_index_entries_of_directly_synced_records_are_completed(synced: int) -> None:
    """Records 0 to 3 were synced without the journal, their index entries were not. Those of later records come from
    the journal, beyond a checkpoint of the index, from which on the opening of a segment trusts earlier entries."""
    crashed = Crashed(journal_blocks=64)
    path = index_path(path_of(0, 0))
    index = crashed.files.contents(path)
    missing_from = index_offset(0, synced)
    crashed.files.overwrite(path, index[:missing_from].ljust(len(index), b"\0"))
    crashed.journal.append([records_entry(4, 1010, crashed.end), Marked(0, 5, 1005, 1005)])
    crashed.replay()
    assert crashed.files.contents(path)[: len(index)] == index
    assert crashed.found() == [record(number) for number in range(1014)]


def test_a_damaged_record_leaves_the_index_as_it_was() -> None:
    crashed = Crashed()
    path, data_path = index_path(path_of(0, 0)), path_of(0, 0)
    index, data = crashed.files.contents(path), crashed.files.contents(data_path)
    left = index[: index_offset(0, 1)].ljust(len(index), b"\0")
    crashed.files.overwrite(path, left)
    crashed.files.overwrite(data_path, data[: crashed.end - 1] + bytes([data[crashed.end - 1] ^ 1]))
    crashed.journal.append([records_entry(4, 3, crashed.end)])
    crashed.replay()
    assert crashed.files.contents(path)[: len(index)] == left


@pytest.mark.parametrize("seed", range(10))
def test_what_was_replayed_is_durable(seed: int) -> None:
    """The journal may begin anew before any log is opened."""
    crashed = Crashed()
    crashed.control.set_assigned(1, True)
    crashed.journal.append([records_entry(4, 3, crashed.end), Fenced(0, 5), Marked(0, 5, 6, 6)])
    crashed.journal.append([NewSegment(1, 0, TIME_MS), records_entry(0, 2, HEADER_SIZE_BYTES, 1)])
    crashed.replay()
    contents = read_journal(crashed.files, "/journal", KEY)
    Journal.open(
        crashed.files, "/journal", cluster_key=KEY, contents=contents, file_size_bytes=8 * BLOCK_BYTES, max_files=2
    )
    crashed.files.crash(random.Random(seed))
    assert read_journal(crashed.files, "/journal", KEY).places == []
    assert crashed.found() == [record(number) for number in range(7)]
    assert len(read_all(open_log(crashed.files, "/1", partition_id=1))) == 2
    assert FenceFile.open(crashed.files, "/", KEY, 2).get(0) == 5
    assert ControlFile.open(crashed.files, "/", KEY).partition(0).session_id == 5


def test_what_lies_behind_the_last_entry_is_cut() -> None:
    """Bytes that no recovery could explain: nobody was told of them, because they are not in the journal."""
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 1, crashed.end)])
    path = path_of(0, 0)
    crashed.files.overwrite(path, crashed.files.contents(path) + b"\xff" * 3000)
    crashed.files.open("/0/0000000000000000009.seg", create=True).write(0, [b"\xff" * 300])
    crashed.replay()
    assert crashed.found() == [record(number) for number in range(5)]


def test_what_was_synced_directly_behind_a_settled_entry_stays() -> None:
    crashed = Crashed()
    crashed.journal.append([Truncated(0, 1, 0, 0, HEADER_SIZE_BYTES + 40)])
    crashed.journal.append([Settled(0, 3, 0, 1)])
    assert crashed.replay().partitions == set()
    assert crashed.found() == [record(number) for number in range(4)]


def test_nothing_is_replayed_while_the_control_file_is_not_guarded() -> None:
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 3, crashed.end), Fenced(0, 5), Marked(0, 5, 3, 3)])
    crashed.control.unguard()
    assert crashed.replay() == Report()
    assert len(crashed.found()) == 4
    assert crashed.fences.get(0) == crashed.control.partition(0).session_id == -1


def test_partitions_that_are_not_assigned_are_left_out() -> None:
    crashed = Crashed()
    others = [records_entry(0, 1, HEADER_SIZE_BYTES, other) for other in (1, 2, -1)]
    crashed.journal.append([*others, Fenced(1, 5), Fenced(7, 5), Marked(1, 5, 3, 3)])
    report = crashed.replay()
    assert (report.partitions, report.damaged) == (set(), {})
    assert not crashed.files.exists("/1")
    assert crashed.fences.get(1) == -1


def test_bytes_that_are_missing_before_an_entry_keep_the_partition_out() -> None:
    crashed = Crashed()
    crashed.journal.append([records_entry(5, 1, crashed.end + 50)])
    report = crashed.replay()
    path = path_of(0, 0)
    assert report.damaged == {
        0: f"bytes of {path} are missing from offset {crashed.end} on, and the journal has later bytes only"
    }
    assert lost_reason(crashed.files, "/0") == report.damaged[0]
    forget_lost(crashed.files, "/0")
    assert lost_reason(crashed.files, "/0") is None


@pytest.mark.parametrize("mount_point", [False, True])
def test_a_journal_that_is_missing_keeps_all_partitions_out(mount_point: bool) -> None:
    """The guard tells that there was one: it may have held what was acknowledged."""
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 1, crashed.end)])
    crashed.files.root.names.pop("journal")
    if mount_point:
        crashed.files.make_directory("/journal")
    assert crashed.replay().damaged == {
        0: "the journal is missing, and may have held records of the partition that were acknowledged; bring them from "
        "the other replicas (waltz storage repair)"
    }
    assert lost_reason(crashed.files, "/0") is not None


def test_a_journal_that_is_unused_is_not_missing_and_old_groups_do_not_count() -> None:
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 1, crashed.end)])
    crashed.journal.abandon()
    leave_unused(crashed.files, "/journal")
    assert crashed.files.list_directory("/journal") == [UNUSED_NAME]
    assert not is_missing(crashed.files, "/journal")
    report = crashed.replay()
    assert (report.groups, report.damaged) == (0, {})
    contents = read_journal(crashed.files, "/journal", KEY)
    Journal.open(
        crashed.files, "/journal", cluster_key=KEY, contents=contents, file_size_bytes=8 * BLOCK_BYTES, max_files=2
    ).abandon()
    assert not is_missing(crashed.files, "/journal")
    assert UNUSED_NAME not in crashed.files.list_directory("/journal")


def test_a_directory_that_is_missing_keeps_the_partition_out() -> None:
    crashed = Crashed()
    crashed.journal.append([records_entry(4, 1, crashed.end)])
    crashed.files.root.names.pop("0")
    assert list(crashed.replay().damaged) == [0]
    assert lost_reason(crashed.files, "/0") is not None


def test_a_new_segment_is_made_with_its_directory() -> None:
    crashed = Crashed()
    crashed.control.set_assigned(1, True)
    crashed.journal.append([NewSegment(1, 0, TIME_MS), records_entry(0, 2, HEADER_SIZE_BYTES, 1)])
    assert crashed.replay().damaged == {}
    assert read_all(open_log(crashed.files, "/1", partition_id=1)) == [record(0), record(1)]


def test_older_marks_and_fences_change_nothing() -> None:
    crashed = Crashed()
    crashed.journal.append([Fenced(0, 5), Marked(0, 5, 2, 2)])
    crashed.fences.raise_to(0, 6)
    crashed.control.set_low_water_mark(0, 6, 3, 3)
    before = crashed.files.contents("/waltz-storage.ctl")
    crashed.replay()
    assert crashed.files.contents("/waltz-storage.ctl") == before
    assert crashed.fences.get(0) == 6


def test_what_lost_groups_held_keeps_only_their_partitions_out() -> None:
    crashed = Crashed()
    crashed.control.set_assigned(1, True)
    crashed.journal.append([records_entry(4, 1, crashed.end)])
    crashed.journal.append([NewSegment(1, 0, TIME_MS)])
    content = bytearray(crashed.files.contents("/journal/0000000001.jnl"))
    content[BLOCK_BYTES + 100] ^= 1
    crashed.files.overwrite("/journal/0000000001.jnl", bytes(content))
    report = crashed.replay()
    assert list(report.damaged) == [0]
    assert len(crashed.found()) == 4
    content[2 * BLOCK_BYTES] ^= 1  # of the last group not even the head is whole
    crashed.files.overwrite("/journal/0000000001.jnl", bytes(content))
    assert sorted(crashed.replay().damaged) == [0, 1]


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.storage.disk.journal.replay._PROGRESS_BYTES", 2 * BLOCK_BYTES)
    crashed = Crashed()
    for number in range(5):
        crashed.journal.append([Fenced(0, number)])
    told: list[tuple[int, int]] = []
    report = crashed.replay(lambda done, total: told.append((done // BLOCK_BYTES, total // BLOCK_BYTES)))
    assert told == [(2, 5), (4, 5)]
    assert (report.groups, report.size_bytes) == (5, 5 * BLOCK_BYTES)
