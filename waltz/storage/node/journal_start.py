"""How a node begins with the journal of its storage directory: it is replayed, then begun anew or put away."""

import logging
from pathlib import Path
from typing import NamedTuple

from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.journal import DEFAULT_FILE_SIZE_BYTES, DEFAULT_MAX_FILES, DIRECTORY_NAME, Journal
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal.replay import replay

logger = logging.getLogger(__name__)


class JournalSizes(NamedTuple):
    """How large a journal may become."""

    file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES
    max_files: int = DEFAULT_MAX_FILES


def open_journal(files: Files, directory: StorageDirectory, sizes: JournalSizes | None) -> Journal | None:
    """Put what the journal holds where it belongs; no log is open. Then open it, if it has sizes. Blocking.

    Without sizes it is for a control file that is guarded.

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
        report = replay(files, directory.path, control_file, directory.fence_file, contents, _tell)
        logger.info("the journal is replayed: files of %d partitions were changed", len(report.partitions))
    kept = sizes or JournalSizes()
    journal = Journal.open(
        files,
        path,
        cluster_key=control_file.cluster_key,
        contents=contents,
        file_size_bytes=kept.file_size_bytes,
        max_files=kept.max_files,
    )
    if sizes is not None:
        if not control_file.guarded:
            control_file.guard()
        return journal
    if journal.close() and not directory.lost_partitions():
        control_file.unguard()
    return None


def _tell(done_bytes: int, total_bytes: int) -> None:
    logger.info("replaying the journal: %d of %d MiB", done_bytes >> 20, total_bytes >> 20)
