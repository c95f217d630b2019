"""The open journal: what is appended is read again, what is released makes room, a failure ends it."""

import errno
import random
from uuid import UUID

import pytest

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.entries import Closed, Entry, Fenced, Records
from waltz.storage.disk.journal.groups import BLOCK_BYTES, entries_of
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import Contents, read_bodies, read_journal
from waltz.storage.disk.journal.ring import JournalFullError

KEY = UUID(int=7)
DIRECTORY = "/journal"


def contents(files: Files) -> Contents:
    return read_journal(files, DIRECTORY, KEY)


def open_journal(files: Files, found: Contents | None = None, *, blocks: int = 4, max_files: int = 3) -> Journal:
    return Journal.open(
        files,
        DIRECTORY,
        cluster_key=KEY,
        contents=contents(files) if found is None else found,
        file_size_bytes=blocks * BLOCK_BYTES,
        max_files=max_files,
    )


def entries_in(files: Files) -> list[Entry]:
    return [entry for head, body in read_bodies(files, contents(files).places) for entry in entries_of(head, body)]


def test_what_is_appended_is_read_again() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    numbers = [journal.append([Fenced(1, session), Fenced(2, session)]) for session in range(7)]
    assert numbers == list(range(1, 8))
    assert entries_in(files) == [Fenced(partition, session) for session in range(7) for partition in (1, 2)]
    assert contents(files).next_number == journal.next_number == 8


def test_a_group_is_one_write_and_one_sync() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    before = len(files.operations)
    journal.append([Records(1, 2, 0, 128, 0, 3, [b"one", b"two", b"three"]), Fenced(2, 3)])
    assert files.operations[before:] == ["write", "datasync"]


def test_a_full_journal_refuses_until_something_is_released() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    free_bytes = journal.free_bytes
    assert free_bytes == journal.size_bytes == 9 * BLOCK_BYTES
    for session in range(9):
        journal.append([Fenced(1, session)])
        assert journal.free_bytes == free_bytes - (session + 1) * BLOCK_BYTES
        assert journal.size_bytes == 9 * BLOCK_BYTES
    for _ in range(2):
        with pytest.raises(JournalFullError, match="over capacity"):
            journal.append([Fenced(1, 9)])
    assert entries_in(files) == [Fenced(1, session) for session in range(9)]
    journal.release(4)
    assert journal.oldest_number == 1
    assert journal.free_bytes == 3 * BLOCK_BYTES
    assert journal.size_bytes == free_bytes
    assert journal.append([Fenced(1, 9)]) == 10
    assert journal.oldest_number == 4
    assert entries_in(files) == [Fenced(1, session) for session in range(3, 10)]


def test_what_is_released_is_not_read_after_the_next_group() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    for session in range(4):
        journal.append([Fenced(1, session)])
    journal.release(3)
    assert len(entries_in(files)) == 4
    assert journal.oldest_number == 1
    journal.append([Fenced(1, 4)])
    assert journal.oldest_number == 3
    assert entries_in(files) == [Fenced(1, session) for session in range(2, 5)]
    journal.release(100)
    assert journal.append([Fenced(1, 5)]) == 6
    assert journal.oldest_number == 6
    journal.release(2)
    journal.append([Fenced(1, 6)])
    assert journal.oldest_number == 6


def test_the_largest_group_fills_a_file() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    journal.append([Fenced(1, 1)])
    with pytest.raises(ValueError, match="a group of 16384 bytes; the largest has 12288"):
        journal.append([Records(1, 1, 0, 128, 0, 1, [bytes(12_000)])])
    largest = Records(1, 1, 0, 128, 0, 1, (bytes(11_900),))
    assert journal.append([largest]) == 2
    assert entries_in(files) == [Fenced(1, 1), largest]


def test_a_journal_that_is_closed_in_order_holds_nothing() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    journal.append([Fenced(1, 1)])
    journal.release(journal.next_number)
    assert journal.close()
    assert entries_in(files) == [Closed()]
    assert files.open_files == 0
    with pytest.raises(OSError, match="the journal is closed"):
        journal.append([Fenced(1, 2)])
    assert not journal.close()


def test_a_journal_that_is_closed_too_early_keeps_what_it_holds() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    journal.append([Fenced(1, 1)])
    assert not journal.close()
    assert entries_in(files) == [Fenced(1, 1)]


def test_a_journal_that_is_opened_again_goes_on_with_nothing() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    for session in range(5):
        journal.append([Fenced(1, session)])
    journal.close()
    again = open_journal(files)
    assert again.oldest_number == again.next_number == 6
    assert entries_in(files) == []
    assert again.append([Fenced(2, 1)]) == 6
    assert entries_in(files) == [Fenced(2, 1)]
    assert len(files.list_directory(DIRECTORY)) == 2


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_a_failure_ends_a_journal_and_another_goes_on(operation: str) -> None:
    files = CrashFiles()
    journal = open_journal(files)
    journal.append([Fenced(1, 1)])
    files.fail(OSError(errno.EIO, "injected"), operation=operation)
    with pytest.raises(OSError, match="injected"):
        journal.append([Fenced(1, 2)])
    assert journal.failure is not None
    before = len(files.operations)
    with pytest.raises(OSError, match="read-only since a write or sync failed"):
        journal.append([Fenced(1, 3)])
    assert not journal.extend()
    assert not journal.close()
    assert len(files.operations) == before
    old_names = files.list_directory(DIRECTORY)
    again = open_journal(files, journal.remains())
    assert not set(old_names) & set(files.list_directory(DIRECTORY))
    assert again.append([Fenced(1, 4)]) == 3
    assert entries_in(files) == [Fenced(1, 4)]


def test_another_journal_that_could_not_be_opened_is_not_in_the_way_of_the_next() -> None:
    files = CrashFiles()
    journal = open_journal(files)
    files.fail(OSError(errno.EIO, "injected"), operation="write")
    with pytest.raises(OSError, match="injected"):
        journal.append([Fenced(1, 2)])
    files.fail(OSError(errno.EIO, "again"), operation="remove")
    with pytest.raises(OSError, match="again"):
        open_journal(files, journal.remains())
    third = open_journal(files, journal.remains())
    third.append([Fenced(1, 4)])
    files.crash(random.Random(1))
    assert entries_in(files) == [Fenced(1, 4)]


@pytest.mark.parametrize("operation", ["datasync", "rename", "sync_directory"])
def test_a_file_that_cannot_be_begun_ends_a_journal(operation: str) -> None:
    files = CrashFiles()
    journal = open_journal(files, blocks=2)
    journal.append([Fenced(1, 1)])
    journal.extend()
    files.fail(OSError(errno.EIO, "injected"), operation=operation)
    with pytest.raises(OSError, match="injected"):
        journal.append([Fenced(1, 2)])
    assert journal.failure == "read-only since a file could not be begun: [Errno 5] injected"


def test_a_full_disk_makes_a_journal_smaller() -> None:
    files = CrashFiles()
    journal = open_journal(files, blocks=2)
    journal.append([Fenced(1, 1)])
    journal.append([Fenced(1, 2)])
    names = files.list_directory(DIRECTORY)
    files.fail(OSError(errno.ENOSPC, "injected"), operation="write")
    with pytest.raises(JournalFullError, match="no further file of the journal in /journal can be created"):
        journal.append([Fenced(1, 3)])
    assert files.list_directory(DIRECTORY) == names
    assert journal.failure is None
    journal.release(2)
    assert journal.append([Fenced(1, 3)]) == 3
    assert entries_in(files) == [Fenced(1, 2), Fenced(1, 3)]


def test_a_file_is_made_in_advance() -> None:
    files = CrashFiles()
    journal = open_journal(files, blocks=2)
    free_bytes = journal.free_bytes
    assert journal.extend()
    assert journal.free_bytes == free_bytes
    journal.append([Fenced(1, 1)])
    before = len(files.operations)
    journal.append([Fenced(1, 2)])
    assert "truncate" not in files.operations[before:]


@pytest.mark.parametrize(("blocks", "max_files"), [(1, 3), (4, 1)])
def test_sizes_that_are_none_are_refused(blocks: int, max_files: int) -> None:
    with pytest.raises(ValueError, match="no journal of"):
        open_journal(CrashFiles(), blocks=blocks, max_files=max_files)
