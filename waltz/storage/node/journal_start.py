"""The start of a node: the journal of the storage directory is replayed, then begun anew or ended."""

import logging
from pathlib import Path
from typing import NamedTuple

from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.journal import DEFAULT_FILE_SIZE_BYTES, DEFAULT_MAX_FILES, DIRECTORY_NAME, Journal
from waltz.storage.disk.journal.reading import Contents, read_journal
from waltz.storage.disk.journal.replay import replay

logger = logging.getLogger(__name__)


class JournalSizes(NamedTuple):
    """The largest size of a journal."""

    file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES
    max_files: int = DEFAULT_MAX_FILES


def open_journal(files: Files, directory: StorageDirectory, sizes: JournalSizes | None) -> Journal | None:
    """Replay the journal of a directory of which no log is open; then begin a journal, if there are sizes. Blocking.

    Without sizes the control file has to be guarded, because only then an earlier process has left a journal.

    Returns:
        The journal, with the control file guarded; ``None`` without sizes.

    Raises:
        OSError: A file cannot be read or written.
        StorageError: The journal is of another cluster or version, or a control or fence file cannot be written.
    """
    control_file = directory.control_file
    path = str(Path(directory.path) / DIRECTORY_NAME)
    contents = read_journal(files, path, control_file.cluster_key)
    if control_file.guarded:
        logger.info("replaying the journal: %d groups, %d bytes", len(contents.places), contents.size_bytes)
        absent = directory.volumes.absent()
        report = replay(files, directory.path, control_file, directory.fence_file, contents, _tell, absent)
        directory.volumes.note_lost(report.left_out)
        logger.info("the journal is replayed: files of %d partitions were changed", len(report.partitions))
    if sizes is not None:
        return begin_journal(files, directory, sizes, contents)
    if _open(files, directory, JournalSizes(), contents).close() and not directory.lost_partitions():
        control_file.unguard()
    return None


def begin_journal(files: Files, directory: StorageDirectory, sizes: JournalSizes, contents: Contents) -> Journal:
    """Begin a journal after groups that no replay needs any more, and guard the control file. Blocking.

    Args:
        files: The file system.
        directory: The storage directory.
        sizes: The largest size of the journal.
        contents: The contents of the journal before, or what remains of a journal that has failed.

    Raises:
        OSError: A file cannot be written.
        StorageError: There is no room for a file, or the control file cannot be written.
    """
    journal = _open(files, directory, sizes, contents)
    try:
        if not directory.control_file.guarded:
            directory.control_file.guard()
    except BaseException:
        journal.abandon()
        raise
    return journal


def _open(files: Files, directory: StorageDirectory, sizes: JournalSizes, contents: Contents) -> Journal:
    return Journal.open(
        files,
        str(Path(directory.path) / DIRECTORY_NAME),
        cluster_key=directory.control_file.cluster_key,
        contents=contents,
        file_size_bytes=sizes.file_size_bytes,
        max_files=sizes.max_files,
    )


def _tell(done_bytes: int, total_bytes: int) -> None:
    logger.info("replaying the journal: %d of %d MiB", done_bytes >> 20, total_bytes >> 20)
