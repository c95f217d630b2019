"""The time index of a partition: against a model, through crashes, and beside files that are not its own."""

import random
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.log_testing import DIRECTORY, KEY, PARTITION
from waltz.storage.disk.times import time_index
from waltz.storage.disk.times.time_format import TimeEntry
from waltz.storage.disk.times.time_index import TimeIndex

FIRST = f"{DIRECTORY}/{0:019d}.tdx"


def new_files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def open_index(files: CrashFiles, segments: tuple[int, ...] = (0,), maximum: int = 1000, key: UUID = KEY) -> TimeIndex:
    index = TimeIndex(files, DIRECTORY, key, PARTITION, lambda: segments)
    index.open(maximum)
    return index


def size_of(files: CrashFiles, path: str) -> int:
    file = files.open(path, create=False)
    size_bytes = file.size()
    file.close()
    return size_bytes


class TimeIndexMachine(RuleBasedStateMachine):
    """Appends, writes, truncations, orderly stops and crashes; clocks jump."""

    def __init__(self) -> None:
        super().__init__()
        self.files = new_files()
        self.segments = [0]
        self.model: list[TimeEntry] = []
        self.written = 0
        self.lossless = True
        self.index = self.reopened()

    def reopened(self) -> TimeIndex:
        index = TimeIndex(self.files, DIRECTORY, KEY, PARTITION, lambda: self.segments)
        index.open(self.model[-1].transaction_id if self.model else -1)
        return index

    @rule(step=st.integers(0, 5), time_ms=st.integers(0, 60))
    def add(self, step: int, time_ms: int) -> None:
        last = self.model[-1] if self.model else TimeEntry(-1, 0)
        self.index.add(last.transaction_id + step, time_ms)
        if step:
            self.model.append(TimeEntry(last.transaction_id + step, max(time_ms, last.time_ms)))

    @rule(entries=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
    def enter(self, entries: list[tuple[int, int]]) -> None:
        """What another storage knows: each new entry is true, and none is out of order."""
        last = self.model[-1] if self.model else TimeEntry(-1, 0)
        for transaction_id, time_ms in sorted(dict(entries).items()):
            if transaction_id > last.transaction_id:
                last = TimeEntry(transaction_id, max(time_ms, last.time_ms))
                self.model.append(last)
        known = {entry.transaction_id for entry in self.model}
        new = {each: TimeEntry(each, time_ms) for each, time_ms in dict(entries).items() if each not in known}
        merged = sorted([*self.model, *new.values()])
        for place in reversed(range(len(merged) - 1)):
            if merged[place].transaction_id in new:
                earlier_ms = min(merged[place].time_ms, merged[place + 1].time_ms)
                merged[place] = merged[place]._replace(time_ms=earlier_ms)
        for place in range(1, len(merged)):
            if merged[place].transaction_id in new:
                later_ms = max(merged[place].time_ms, merged[place - 1].time_ms)
                merged[place] = merged[place]._replace(time_ms=later_ms)
        self.model = merged
        found = self.index.enter(entries)
        assert found == (merged[-1] if merged else None)
        assert not self.index.has_unwritten

    @rule()
    def begin_segment(self) -> None:
        following = (self.model[-1].transaction_id if self.model else -1) + 1
        if following > self.segments[-1]:
            self.segments.append(following)

    @rule()
    def write(self) -> None:
        self.index.write()
        assert not self.index.has_unwritten

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        last = max(-1, (self.model[-1].transaction_id if self.model else -1) - back)
        self.index.cut(last)
        self.model = [entry for entry in self.model if entry.transaction_id <= last]
        self.segments = [each for each in self.segments if each <= last + 1] or [0]

    @rule()
    def stop_in_order(self) -> None:
        self.index.write()
        self.files.restart()
        self.index = self.reopened()

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        self.files.sync_directory(DIRECTORY)  # names are not what is examined here
        self.files.crash(random.Random(seed))
        self.index = self.reopened()
        kept = [entry for entry in self.model if self.index.covering(entry.transaction_id) == entry]
        self.model = kept

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        for time_ms in range(-1, 62, 7):
            expected = max((entry for entry in self.model if entry.time_ms <= time_ms), default=None)
            assert self.index.at(time_ms) == expected
        for transaction_id in range(-1, (self.model[-1].transaction_id if self.model else 0) + 3):
            following = [entry for entry in self.model if entry.transaction_id >= transaction_id]
            assert self.index.covering(transaction_id) == min(following, default=None)
            assert self.index.entries(transaction_id, 3) == following[:3]
        assert self.model == sorted(self.model)
        assert [entry.time_ms for entry in self.model] == sorted(entry.time_ms for entry in self.model)

    def teardown(self) -> None:
        assert self.files.open_files == 0


TestTimeIndex = TimeIndexMachine.TestCase
TestTimeIndex.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_nothing_is_written_or_created_before_there_is_an_entry() -> None:
    files = new_files()
    index = open_index(files)
    index.write()
    assert files.list_directory(DIRECTORY) == []
    assert index.at(1 << 40) is None
    assert index.covering(0) is None


@pytest.mark.parametrize("cut_bytes", range(1, 61))
def test_a_torn_tail_is_cut_and_written_over(cut_bytes: int) -> None:
    files = new_files()
    index = open_index(files)
    for number in range(3):
        index.add(number, number * 10)
    index.write()
    file = files.open(FIRST, create=False)
    file.truncate(100 - cut_bytes)
    file.close()
    index = open_index(files)
    left = max(0, 60 - cut_bytes) // 20
    assert index.at(100) == (TimeEntry(left - 1, left * 10 - 10) if left else None)
    assert size_of(files, FIRST) in ({40 + left * 20} if left else {40, 100 - cut_bytes})
    index.add(7, 70)
    index.write()
    assert open_index(files).at(100) == TimeEntry(7, 70)


def test_entries_beyond_the_log_are_cut_at_start() -> None:
    files = new_files()
    index = open_index(files, (0, 10))
    for number in range(20):
        index.add(number, number)
    index.write()
    index = open_index(files, (0, 10), maximum=13)
    assert index.at(100) == TimeEntry(13, 13)
    assert size_of(files, f"{DIRECTORY}/{10:019d}.tdx") == 40 + 4 * 20
    index = open_index(files, (0,), maximum=5)
    assert files.list_directory(DIRECTORY) == [f"{0:019d}.tdx"], "deleted with its segment"
    assert index.at(100) == TimeEntry(5, 5)


def test_the_file_of_another_cluster_is_empty_and_replaced() -> None:
    files = new_files()
    index = open_index(files, key=UUID(int=9))
    index.add(5, 50)
    index.write()
    index = open_index(files)
    assert index.at(100) is None
    index.add(6, 60)
    index.write()
    index = open_index(files)
    assert (index.at(59), index.at(60)) == (None, TimeEntry(6, 60))


def test_files_of_other_names_are_left_alone() -> None:
    files = new_files()
    for name in ("notes.tdx", f"{0:019d}.seg"):
        files.open(f"{DIRECTORY}/{name}", create=True).close()
    files.open(f"{DIRECTORY}/7.tdx", create=True).close()
    open_index(files)
    assert files.list_directory(DIRECTORY) == [f"{0:019d}.seg", "notes.tdx"]


def test_a_disk_that_takes_nothing_costs_the_oldest_entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_index, "MAX_UNWRITTEN", 3)
    files = new_files()
    index = open_index(files)
    for number in range(5):
        index.add(number, number)
        files.fail(OSError("full"), operation="write")
        with pytest.raises(OSError, match="full"):
            index.write()
    index.write()
    assert open_index(files).covering(0) == TimeEntry(2, 2)
    assert index.at(100) == TimeEntry(4, 4)


def test_an_index_that_cannot_be_opened_is_empty_and_takes_nothing() -> None:
    files = new_files()
    index = open_index(files)
    index.add(5, 50)
    index.write()
    index = TimeIndex(files, DIRECTORY, KEY, PARTITION, lambda: (0,))
    files.fail(OSError("unreadable"), operation="read")
    with pytest.raises(OSError, match="unreadable"):
        index.open(1000)
    index.add(6, 60)
    index.write()
    assert not index.has_unwritten
    assert index.at(100) is index.covering(0) is None
    assert open_index(files).at(100) == TimeEntry(5, 50)


def test_a_replacement_that_was_not_finished_is_removed() -> None:
    files = new_files()
    index = open_index(files)
    index.add(5, 50)
    index.write()
    files.fail(OSError("no rename"), operation="rename")
    with pytest.raises(OSError, match="no rename"):
        index.enter([(3, 30)])
    assert index.entries(0, 9) == [TimeEntry(5, 50)]
    index = open_index(files)
    assert files.list_directory(DIRECTORY) == [f"{0:019d}.tdx"]
    assert index.enter([(3, 30), (4, 70)]) == TimeEntry(5, 50)
    assert open_index(files).entries(0, 9) == [TimeEntry(3, 30), TimeEntry(4, 50), TimeEntry(5, 50)]


def test_many_entries_are_entered_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_index, "MAX_UNWRITTEN", 8)
    monkeypatch.setattr(time_index, "_READ_ENTRIES", 7)
    files = new_files()
    index = open_index(files, (0, 40))
    entries = [TimeEntry(number, number) for number in range(100)]
    assert index.enter(entries[50:]) == entries[-1]
    assert index.enter(entries[:60]) == entries[-1]
    assert index.entries(0, 1000) == open_index(files, (0, 40)).entries(0, 1000) == entries
    assert index.entries(30, 20) == entries[30:50]


def test_an_index_that_cannot_be_opened_takes_nothing_from_others() -> None:
    files = new_files()
    index = TimeIndex(files, DIRECTORY, KEY, PARTITION, lambda: (0,))
    assert index.enter([(3, 30)]) is None
    assert files.list_directory(DIRECTORY) == []
