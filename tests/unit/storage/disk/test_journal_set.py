"""Which journals count: durably, whatever fails, and never without the guard against the original."""

import contextlib
import random
from collections.abc import Callable, Sequence

import pytest

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.disk.test_volumes import FIRST, OTHER_KEY, OTHERS, new_files, open_volumes, placed, volume_of
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.entries import Fenced
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal.replay import lost_reason, mark_lost
from waltz.storage.disk.journal_set import JournalSet, OneOf, check_movable, counting_journals
from waltz.storage.disk.volumes import VolumeId
from waltz.storage.errors import StorageError

PARTITIONS = 6


class Node:
    """The open directories of a node that is not serving."""

    def __init__(self, files: CrashFiles, further: Sequence[str] = OTHERS) -> None:
        self.files = files
        self.control = ControlFile.open(files, FIRST, KEY, PARTITIONS)
        self.volumes = open_volumes(files, list(further))
        self.directory = StorageDirectory(
            files,
            FIRST,
            self.control,
            FenceFile.open(files, FIRST, KEY, PARTITIONS),
            self.volumes,
            segment_size_threshold_bytes=1000,
            segment_cache_capacity=1,
        )
        self.journals = JournalSet(self.directory)

    @property
    def counting(self) -> frozenset[VolumeId]:
        return counting_journals(self.control, self.volumes)

    def one(self) -> VolumeId:
        return volume_of(self.volumes, "/one")

    def two(self) -> VolumeId:
        return volume_of(self.volumes, "/two")


def begun(node: Node) -> None:
    node.journals.begin(list(node.volumes.there()))


Step = tuple[str, Callable[[Node], None], Callable[[Node], frozenset[VolumeId]]]

STEPS: list[Step] = [
    ("begin", begun, lambda node: frozenset(node.volumes.there())),
    ("fail", lambda node: OneOf(node.journals, node.one()).withdraw(), lambda node: frozenset([None, node.two()])),
    ("renew", lambda node: OneOf(node.journals, node.one()).begin(), lambda node: frozenset(node.volumes.there())),
    ("end one", lambda node: OneOf(node.journals, node.one()).end(), lambda node: frozenset([None, node.two()])),
    ("finish too early", lambda node: node.journals.finish(), lambda node: frozenset([None, node.two()])),
    ("end two", lambda node: OneOf(node.journals, node.two()).end(), lambda node: frozenset([None])),
    ("end first", lambda node: OneOf(node.journals, None).end(), lambda node: frozenset()),
    ("finish", lambda node: node.journals.finish(), lambda node: frozenset()),
]


def test_a_journal_counts_or_not_whatever_fails() -> None:
    """After a crash at any call of a file the journals are those before the step, or those after it."""
    for number, (name, step, expected) in enumerate(STEPS):
        for after in range(40):
            node = Node(new_files())
            for _, done, counting in STEPS[:number]:
                done(node)
                assert node.counting == counting(node) == node.journals.counting
            before = node.counting
            node.files.fail(CrashNow(), after=after)
            with contextlib.suppress(CrashNow):
                step(node)
            whole = node.files.clear_fault()
            node.files.crash(random.Random(after))
            found = Node(node.files)
            possible = [expected(found)] if whole else [before, expected(found)]
            assert found.counting in possible, (name, after)
            assert found.control.guarded or not found.counting
            if whole:
                break
        else:
            raise AssertionError(f"{name} takes more than 40 file calls")
    assert not found.control.guarded
    assert b"journals" not in found.files.contents(f"{FIRST}/volumes.json")  # an earlier version can read it


def test_a_step_that_has_failed_may_be_repeated() -> None:
    """A journal is not used before the list with it is durable, also when an attempt to write the list has failed."""
    for after in range(4):
        node = Node(new_files())
        node.files.fail(OSError("planted"), after=after)
        with pytest.raises(OSError, match="planted"):
            begun(node)
        assert node.journals.counting == frozenset()
        begun(node)
        node.files.crash(random.Random(after))
        found = Node(node.files)
        assert found.counting == frozenset(found.volumes.there())


def test_a_list_without_a_guard_means_nothing() -> None:
    node = Node(new_files())
    node.volumes.note_journals([None, node.one()])
    node.files.restart()
    found = Node(node.files)
    assert found.counting == frozenset()
    found.volumes.guard(found.control)  # something is lost: old groups do not count, though there is a guard now
    assert found.counting == frozenset([None])
    assert found.journals.read(found.files, None).places == ()


def test_one_directory_needs_no_list() -> None:
    node = Node(new_files(), [])
    one = OneOf(node.journals, None)
    one.begin()
    assert node.counting == frozenset([None])
    assert not node.files.exists(f"{FIRST}/volumes.json")
    one.withdraw()
    assert not node.control.guarded
    one.begin()
    mark_lost(node.files, f"{FIRST}/1", "for a test")
    with pytest.raises(StorageError, match="lack acknowledged changes"):
        one.withdraw()
    one.end()
    node.journals.finish()
    assert node.control.guarded


def test_the_guard_stays_while_a_partition_lacks_something() -> None:
    node = Node(new_files())
    begun(node)
    mark_lost(node.files, f"{FIRST}/1", "for a test")
    for volume_id in node.volumes.there():
        node.journals.end(volume_id)
    node.journals.finish()
    assert node.control.guarded
    assert node.counting == frozenset()


def test_the_guard_stays_while_a_disk_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(new_files())
    begun(node)
    for volume_id in node.volumes.there():
        node.journals.end(volume_id)

    def fail(_: str) -> bool:
        raise OSError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(node.files, "exists", fail)
        node.journals.finish()
    assert node.control.guarded
    node.journals.finish()
    assert not node.control.guarded


def test_the_journal_of_a_missing_volume_counts_until_the_volume_is_forgotten() -> None:
    node = Node(new_files())
    partition_id = next(each for each in range(PARTITIONS) if placed(node.volumes, node.files, each) == "/one")
    begun(node)
    node.files.restart()
    one = node.one()
    found = Node(node.files, ["/two"])
    for volume_id in found.volumes.there():
        found.journals.end(volume_id)
    found.journals.finish()
    assert found.counting == frozenset([one])
    found.control.set_assigned(partition_id, True)
    with pytest.raises(StorageError, match="is missing.* its journal may have records of partition"):
        found.directory.forget(partition_id, delete_files=False)
    assert found.control.partition(partition_id).assigned
    assert isinstance(one, type(KEY))
    found.volumes.forget(one)
    assert found.counting == frozenset()
    assert lost_reason(found.files, f"{FIRST}/{partition_id}") is not None


def test_a_partition_is_moved_without_a_journal_only() -> None:
    node = Node(new_files())
    where = {each: placed(node.volumes, node.files, each) for each in range(PARTITIONS)}
    begun(node)
    OneOf(node.journals, node.one()).withdraw()
    for partition_id, path in where.items():
        refused = contextlib.nullcontext() if path == "/one" else pytest.raises(StorageError, match="waltz disk drain")
        with refused:
            check_movable(node.control, node.volumes, partition_id)
    node.volumes.note_journals(None)  # an earlier version: the first journal has the records of all partitions
    for partition_id in where:
        with pytest.raises(StorageError, match="waltz disk drain"):
            check_movable(node.control, node.volumes, partition_id)
    node.control.unguard()
    for partition_id in where:
        check_movable(node.control, node.volumes, partition_id)


def test_damage_of_a_journal_concerns_the_partitions_of_its_disk() -> None:
    node = Node(new_files())
    where = {each: placed(node.volumes, node.files, each) for each in range(PARTITIONS)}
    for partition_id in where:
        node.control.set_assigned(partition_id, True)
    begun(node)
    one = node.one()
    assert list(node.journals.partitions(one)) == [each for each, path in where.items() if path == "/one"]
    contents = node.journals.read(node.files, one)
    report = node.journals.replay(node.files, one, contents)  # its files are missing
    assert sorted(report.damaged) == list(node.journals.partitions(one))
    assert all("the journal is missing" in text for text in report.damaged.values())
    report = node.journals.replay(node.files, None, node.journals.read(node.files, None))
    assert sorted(report.damaged) == list(where)  # it had the fences of all


@pytest.mark.parametrize(
    ("key", "volume", "text"), [(KEY, bytes(16), "another volume"), (OTHER_KEY, b"", "cluster key")]
)
def test_the_journal_of_another_volume_is_refused(key: object, volume: bytes, text: str) -> None:
    node = Node(new_files())
    one = node.one()
    path = node.journals.path(one)
    assert path == "/one/journal"
    contents = node.journals.read(node.files, one)
    if volume:
        contents = read_journal(node.files, path, KEY)  # without the id of the volume
    journal = Journal.open(
        node.files,
        path,
        cluster_key=KEY if key == KEY else OTHER_KEY,
        contents=contents,
        file_size_bytes=16 << 12,
        max_files=2,
    )
    journal.append([Fenced(1, 1)])
    journal.abandon()
    with pytest.raises(StorageError, match=text):
        node.journals.read(node.files, one)
