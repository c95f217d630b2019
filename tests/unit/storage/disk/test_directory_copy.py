"""The copies of files are whole and durable, whatever was there before."""

import random

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.directory_copy import COPIED_AT_ONCE_BYTES, copy_piece, copy_rest, make_empty

CONTENT = random.Random(1).randbytes(COPIED_AT_ONCE_BYTES + 17)


def files_with(content: bytes) -> CrashFiles:
    files = CrashFiles()
    make_empty(files, "/a")
    make_empty(files, "/b")
    file = files.open("/a/file", create=True)
    file.write(0, [content])
    file.close()
    return files


def test_a_file_is_copied_in_pieces_and_the_rest() -> None:
    files = files_with(CONTENT)
    copy_piece(files, "/a/file", "/b/file", 0, 100)
    copy_piece(files, "/a/file", "/b/file", 100, 50)
    copy_rest(files, "/a/file", "/b/file", 150)
    assert bytes(files.node("/b/file").durable) == CONTENT


def test_what_was_longer_is_cut() -> None:
    files = files_with(CONTENT)
    copy_rest(files, "/a/file", "/b/file")
    files.overwrite("/a/file", CONTENT[:50])
    copy_rest(files, "/a/file", "/b/file")
    assert bytes(files.node("/b/file").durable) == CONTENT[:50]


def test_an_empty_directory_has_nothing_of_the_last_copy() -> None:
    files = files_with(CONTENT)
    make_empty(files, "/a")
    assert files.list_directory("/a") == []
