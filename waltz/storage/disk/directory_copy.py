"""The files of a partition's directory, copied to another directory, durably. Blocking."""

from pathlib import Path

from waltz.storage.disk.files.files import Files

COPIED_AT_ONCE_BYTES = 1 << 20
"""The size of the pieces in which files are copied."""


def copy_rest(files: Files, source: str, target: str, copied_bytes: int = 0) -> None:
    """Copy the file ``source`` from a place on, and make ``target`` durable with exactly the size of ``source``.

    ``copied_bytes``: the bytes at the begin of ``target`` that are copied already. Raises ``OSError``.
    """
    read = files.open(source, create=False)
    try:
        written = files.open(target, create=True)
        try:
            size_bytes = read.size()
            for offset in range(copied_bytes, size_bytes, COPIED_AT_ONCE_BYTES):
                written.write(offset, [read.read(offset, COPIED_AT_ONCE_BYTES)])
            if written.size() != size_bytes:
                written.truncate(size_bytes)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()


def copy_piece(files: Files, source: str, target: str, offset: int, size_bytes: int) -> None:
    """Copy a piece of a file to the same place of another file, which is made if it is missing, durably. Raises
    ``OSError``."""
    read = files.open(source, create=False)
    try:
        written = files.open(target, create=True)
        try:
            written.write(offset, [read.read(offset, size_bytes)])
            written.datasync()
        finally:
            written.close()
    finally:
        read.close()


def make_empty(files: Files, directory: str) -> None:
    """Make an empty directory, in place of what an interrupted copy has left there. Raises ``OSError``."""
    if files.exists(directory):
        remove_directory(files, directory)
    files.make_directory(directory)


def remove_directory(files: Files, directory: str) -> None:
    """Remove a directory with its files, durably. Raises ``OSError``."""
    for name in files.list_directory(directory):
        files.remove(str(Path(directory) / name))
    files.remove_directory(directory)
    files.sync_directory(str(Path(directory).parent))
