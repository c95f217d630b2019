"""Opens the control file of a storage directory without the node: offline tools do not know the key of the cluster.

The key in the control file may be inverted, wholly or, after a failed write, in some bytes only. The fence file and the
journal have the plain key. A node creates both before it inverts the key for the first time.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import fence_key
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.reading import journal_keys
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)


def open_control_file(files: Files, directory: str) -> ControlFile:
    """Lock and load the control file of a directory whose node is not running. No file is changed. Blocking.

    Raises:
        StorageError: The directory is missing or in use, the file is damaged, or the key of the cluster is not certain.
        OSError: The file is missing or cannot be read.
    """
    return ControlFile.open(files, directory, known_keys=_known_keys(files, directory))


def _known_keys(files: Files, directory: str) -> Iterator[UUID]:
    """The key of the cluster in the fence file, then in the files of the journal.

    A file that cannot be read has no key: a tool may still read the other files of the directory.
    """
    try:
        key = fence_key(files, directory)
        if key is not None:
            yield key
    except (StorageError, OSError) as error:
        logger.warning("the fence file in %s does not tell the cluster key: %s", directory, error)
    try:
        yield from journal_keys(files, str(Path(directory) / DIRECTORY_NAME))
    except (StorageError, OSError) as error:
        logger.warning("the journal in %s does not tell the cluster key: %s", directory, error)
