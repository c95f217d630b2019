"""A storage directory is drained: what its journal holds is put where it belongs, and the journal counts no more.

Then the directory is what an orderly stop leaves, and a node of the original starts on it as well.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.storage.disk.clean_stop import CleanPartition
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal.replay import Progress, replay
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)

_DESCRIPTORS = 1
_NO_LIMIT_BYTES = 1 << 62


class Drained(NamedTuple):
    """What a drain has done."""

    groups: int
    size_bytes: int
    """What was replayed of the journal."""
    partitions: tuple[int, ...]
    """Of which files were changed."""
    damaged: dict[int, str]
    """Partitions whose segments are damaged, with the reason: it was so before."""


def drain(files: Files, path: str, progress: Progress | None = None) -> Drained | None:
    """Drain the directory of a node that is not running; ``None`` when there was nothing to do. Blocks.

    Args:
        files: The file system.
        path: The storage directory.
        progress: Told how many bytes of how many are replayed.

    Raises:
        StorageError: The node is running, or a part of the journal is lost; the directory is as it is then.
        OSError: A file cannot be read, written or synced; it may be tried again.
    """
    control_file = ControlFile.open(files, path)
    try:
        if not control_file.guarded:
            control_file.close()
            return None
        fence_file = FenceFile.open(files, path, control_file.cluster_key, control_file.partition_count)
    except BaseException:
        control_file.close()
        raise
    directory = StorageDirectory(
        files,
        path,
        control_file,
        fence_file,
        segment_size_threshold_bytes=_NO_LIMIT_BYTES,
        segment_cache_capacity=_DESCRIPTORS,
    )
    left: dict[int, CleanPartition] | None = None
    try:
        contents = read_journal(files, str(Path(path) / DIRECTORY_NAME), control_file.cluster_key)
        report = replay(files, path, control_file, fence_file, contents, progress)
        lost = directory.lost_partitions()
        if lost:
            raise StorageError(
                f"groups of the journal in {path} are damaged: start the node again, and repair partitions "
                f"{', '.join(map(str, lost))} from the other replicas (waltz storage repair)"
            )
        left, damaged = _recover(directory)
        control_file.unguard()
    finally:
        if left is None:
            fence_file.close()
            control_file.close()
        else:
            directory.close(left)
    return Drained(report.groups, report.size_bytes, tuple(sorted(report.partitions)), damaged)


def _recover(directory: StorageDirectory) -> tuple[dict[int, CleanPartition], dict[int, str]]:
    """Open each log as a start does, so that indexes are whole; how they are left, and those that are damaged."""
    left: dict[int, CleanPartition] = {}
    damaged: dict[int, str] = {}
    control_file = directory.control_file
    for partition_id in range(control_file.partition_count):
        try:
            info = control_file.partition(partition_id)
            if not info.assigned:
                continue
            log = directory.open_log(partition_id)
        except WaltzError as error:
            logger.error("partition %d: %s", partition_id, error)
            damaged[partition_id] = str(error)
            continue
        log.close()
        left[partition_id] = CleanPartition(info, log.end)
    return left, damaged
