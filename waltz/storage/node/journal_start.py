"""The start of a node: the journals of the storage directory are replayed, then begun anew or ended."""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.entries import EntryError
from waltz.storage.disk.journal.journal import DEFAULT_FILE_SIZE_BYTES, DEFAULT_MAX_FILES, Journal
from waltz.storage.disk.journal.reading import Contents
from waltz.storage.disk.journal_set import JournalSet
from waltz.storage.disk.volumes import VolumeId
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class JournalSizes(NamedTuple):
    """The largest size of a journal."""

    file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES
    max_files: int = DEFAULT_MAX_FILES


def open_journals(
    files: Files, directory: StorageDirectory, journals: JournalSet, sizes: JournalSizes | None
) -> dict[VolumeId, Journal]:
    """Replay the journals of a directory of which no log is open; then begin journals, if there are sizes. Blocking.

    A volume whose journal cannot be read, replayed or begun is given up: its partitions are absent.

    Returns:
        The journal of each directory that is there. All of them count. Without sizes there are none.

    Raises:
        OSError: A file of the first directory cannot be read or written.
        StorageError: The journal of the first directory is of another cluster or version, or a control or fence file
            cannot be written.
    """
    there = directory.volumes.there()
    left: dict[VolumeId, Contents] = {}
    for volume_id in there if sizes is not None else [each for each in there if each in journals.counting]:
        contents = _unless_broken(directory, volume_id, partial(_replay, files, journals, volume_id))
        if contents is not None:
            left[volume_id] = contents
    if sizes is None:
        for volume_id, contents in left.items():
            if not directory.volumes.are_many:
                _open(files, journals, JournalSizes(), volume_id, contents).close()
            journals.end(volume_id)
        journals.finish()
        return {}
    opened: dict[VolumeId, Journal] = {}
    try:
        for volume_id, contents in left.items():
            begun = partial(_open, files, journals, sizes, volume_id, contents)
            journal = _unless_broken(directory, volume_id, begun)
            if journal is not None:
                opened[volume_id] = journal
        journals.begin(opened)
    except BaseException:
        for journal in opened.values():
            journal.abandon()
        raise
    return opened


def begin_journal(
    files: Files, journals: JournalSet, sizes: JournalSizes, volume_id: VolumeId, contents: Contents
) -> Journal:
    """Begin a journal after groups that no replay needs any more, and let the journal count. Blocking.

    Args:
        files: The file system.
        journals: All journals of the storage directory.
        sizes: The largest size of the journal.
        volume_id: The volume of the journal.
        contents: The contents of the journal before, or what remains of a journal that has failed.

    Raises:
        OSError: A file cannot be written.
        StorageError: There is no room for a file, or the control file cannot be written.
    """
    journal = _open(files, journals, sizes, volume_id, contents)
    try:
        journals.begin([volume_id])
    except BaseException:
        journal.abandon()
        raise
    return journal


def _replay(files: Files, journals: JournalSet, volume_id: VolumeId) -> Contents:
    contents = journals.read(files, volume_id)
    if volume_id in journals.counting:
        path, groups, size_bytes = journals.path(volume_id), len(contents.places), contents.size_bytes
        logger.info("replaying the journal in %s: %d groups, %d bytes", path, groups, size_bytes)
        report = journals.replay(files, volume_id, contents, partial(_tell, path))
        logger.info("the journal in %s is replayed: files of %d partitions were changed", path, len(report.partitions))
    return contents


def _unless_broken(directory: StorageDirectory, volume_id: VolumeId, function: Callable[[], Result]) -> Result | None:
    """The result of a function; ``None`` after a failure that concerns a volume, which is given up."""
    try:
        return function()
    except (OSError, StorageError, EntryError) as error:
        if volume_id is None:
            raise
        directory.volumes.give_up(volume_id, str(error))
        return None


def _open(files: Files, journals: JournalSet, sizes: JournalSizes, volume_id: VolumeId, contents: Contents) -> Journal:
    return Journal.open(
        files,
        journals.path(volume_id),
        cluster_key=journals.cluster_key,
        contents=contents,
        file_size_bytes=sizes.file_size_bytes,
        max_files=sizes.max_files,
    )


def _tell(path: str, done_bytes: int, total_bytes: int) -> None:
    logger.info("replaying the journal in %s: %d of %d MiB", path, done_bytes >> 20, total_bytes >> 20)
