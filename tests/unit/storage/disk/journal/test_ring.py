"""The files of the journal: begun, used again when nothing in them is needed, never more than allowed."""

from uuid import UUID

import pytest

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.journal.groups import BLOCK_BYTES
from waltz.storage.disk.journal.ring import FileHeader, JournalFullError, Ring, decode_header
from waltz.storage.errors import StorageError

KEY = UUID(int=7)
VOLUME = bytes(range(16))
HEADER = FileHeader(KEY, VOLUME, 5, 100, 90)


def new_ring(files: CrashFiles, *, next_sequence: int = 1, size: int = 4 * BLOCK_BYTES, max_files: int = 3) -> Ring:
    return Ring(
        files,
        "/j",
        cluster_key=KEY,
        volume_id=VOLUME,
        next_sequence=next_sequence,
        file_size_bytes=size,
        max_files=max_files,
    )


def test_a_header_comes_back_and_the_newer_copy_counts() -> None:
    block = HEADER.encode()
    assert len(block) == BLOCK_BYTES
    assert decode_header(block) == HEADER
    newer = HEADER._replace(sequence=6).encode()
    assert decode_header(newer[:512] + block[512:]) == HEADER._replace(sequence=6)


def test_a_header_survives_one_flipped_bit() -> None:
    block = HEADER.encode()
    for at in range(100):
        assert decode_header(block[:at] + bytes([block[at] ^ 4]) + block[at + 1 :]) == HEADER


@pytest.mark.parametrize("block", [b"", bytes(100), bytes(BLOCK_BYTES), b"WJNL" * 1024])
def test_other_bytes_are_no_header(block: bytes) -> None:
    assert decode_header(block) is None


def test_the_header_of_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.storage.disk.journal.ring.VERSION", 2)
    block = HEADER.encode()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="the journal has version 2, this program knows 1 only; use a newer one"):
        decode_header(block)


def test_files_are_used_again_when_nothing_in_them_is_needed() -> None:
    files = CrashFiles()
    ring = new_ring(files)
    for number in (1, 10, 20):
        ring.begin(number, 1)[0].close()
    assert files.list_directory("/j") == ["0000000001.jnl", "0000000002.jnl", "0000000003.jnl"]
    ring.reclaim(9)
    with pytest.raises(JournalFullError, match="all 3 files of the journal in /j hold"):
        ring.begin(30, 9)
    assert ring.unused_bytes == 0
    ring.reclaim(10)
    assert ring.unused_bytes == ring.group_limit_bytes
    file, sequence = ring.begin(30, 10)
    assert sequence == 4
    assert decode_header(file.read(0, BLOCK_BYTES)) == FileHeader(KEY, VOLUME, 4, 30, 10)
    assert files.list_directory("/j") == ["0000000002.jnl", "0000000003.jnl", "0000000004.jnl"]


def test_a_header_is_durable_before_its_file_has_the_name() -> None:
    files = CrashFiles()
    ring = new_ring(files)
    operations = files.operations
    ring.begin(1, 1)[0].close()
    assert operations[operations.index("datasync") :] == ["datasync", "rename", "sync_directory"]


def test_a_file_is_made_in_advance_once() -> None:
    files = CrashFiles()
    ring = new_ring(files, max_files=2)
    ring.begin(1, 1)[0].close()
    assert ring.extend()
    assert not ring.extend()
    assert files.list_directory("/j") == ["0000000001.jnl", "2.spare"]
    ring.begin(2, 1)[0].close()
    assert not ring.extend()
    assert files.list_directory("/j") == ["0000000001.jnl", "0000000002.jnl"]


def test_files_that_are_there_are_taken_over_and_others_removed_when_a_life_has_begun() -> None:
    files = CrashFiles()
    new_ring(files).begin(1, 1)[0].close()
    small = new_ring(files, next_sequence=2, size=2 * BLOCK_BYTES)
    small.begin(2, 2)[0].close()
    assert files.list_directory("/j") == ["0000000001.jnl", "0000000002.jnl"]
    small.remove_unfit()
    assert files.list_directory("/j") == ["0000000002.jnl"]
    again = new_ring(files, next_sequence=3, size=2 * BLOCK_BYTES)
    again.begin(3, 3)[0].close()
    assert files.list_directory("/j") == ["0000000003.jnl"]


def test_files_that_are_not_trusted_are_not_written_to() -> None:
    files = CrashFiles()
    new_ring(files).begin(1, 1)[0].close()
    before = files.contents("/j/0000000001.jnl")
    ring = new_ring(files, next_sequence=2)
    ring.distrust()
    ring.begin(2, 2)[0].close()
    assert files.contents("/j/0000000001.jnl") == before
    ring.remove_unfit()
    assert files.list_directory("/j") == ["0000000002.jnl"]
