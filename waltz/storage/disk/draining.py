"""Drains a storage directory: replays its journals into the segments, and makes the journals not count.

The result is that of an orderly stop, and a node of the original starts on it, too.
"""

import logging
from functools import partial
from typing import NamedTuple
from uuid import UUID

from waltz.common.errors import WaltzError
from waltz.storage.disk.clean_stop import CleanPartition
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.replay import Progress, Report
from waltz.storage.disk.journal_set import JournalSet
from waltz.storage.disk.offline import open_control_file
from waltz.storage.disk.volumes import Volumes
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)

_DESCRIPTORS = 1
_NO_LIMIT_BYTES = 1 << 62


class Drained(NamedTuple):
    """The result of a drain."""

    groups: int
    size_bytes: int
    """Number of replayed bytes of all journals."""
    partitions: tuple[int, ...]
    """Partitions with changed files."""
    damaged: dict[int, str]
    """Partitions whose segments were damaged before, with the reason."""


def drain(files: Files, path: str, progress: Progress | None = None) -> Drained | None:
    """Drain the directories of a node that is not running; ``None`` if no journal counted. Blocking.

    Args:
        files: The file system.
        path: The storage directory, the first one of several.
        progress: Is called with the number of replayed bytes and the number of all bytes.

    Raises:
        StorageError: The node is running, a volume is missing, a part of the journal is lost, or the key of the cluster
            is not certain (see :mod:`waltz.storage.disk.offline`); the directory is unchanged.
        OSError: A file cannot be read, written or synced; the call may be repeated.
    """
    control_file = open_control_file(files, path)
    try:
        if not control_file.guarded:
            control_file.close()
            return None
        volumes = _open_volumes(files, path, control_file.cluster_key)
        try:
            fence_file = FenceFile.open(files, path, control_file.cluster_key, control_file.partition_count)
        except BaseException:
            volumes.close()
            raise
    except BaseException:
        control_file.close()
        raise
    directory = StorageDirectory(
        files,
        path,
        control_file,
        fence_file,
        volumes,
        segment_size_threshold_bytes=_NO_LIMIT_BYTES,
        segment_cache_capacity=_DESCRIPTORS,
    )
    left: dict[int, CleanPartition] | None = None
    try:
        journals = JournalSet(directory)
        reports = _replay_all(files, journals, progress)
        lost = directory.lost_partitions()
        if lost:
            raise StorageError(
                f"groups of the journal in {path} are damaged: start the node again, and repair partitions "
                f"{', '.join(map(str, lost))} from the other replicas (waltz storage repair)"
            )
        left, damaged = _recover(directory)
        for volume_id in journals.counting:
            journals.end(volume_id)
        journals.finish()
    finally:
        if left is None:
            directory.close_files()
        else:
            directory.close(left)
    partitions = {partition_id for report in reports for partition_id in report.partitions}
    groups, size_bytes = sum(each.groups for each in reports), sum(each.size_bytes for each in reports)
    return Drained(groups, size_bytes, tuple(sorted(partitions)), damaged)


def _replay_all(files: Files, journals: JournalSet, progress: Progress | None) -> list[Report]:
    """Replay all journals that count."""
    left = {volume_id: journals.read(files, volume_id) for volume_id in sorted(journals.counting, key=str)}
    total, done = sum(contents.size_bytes for contents in left.values()), 0

    def advance(before: int, done_bytes: int, _total_bytes: int) -> None:
        if progress is not None:
            progress(before + done_bytes, total)

    reports = []
    for volume_id, contents in left.items():
        reports.append(journals.replay(files, volume_id, contents, partial(advance, done)))
        done += contents.size_bytes
    return reports


def _open_volumes(files: Files, path: str, cluster_key: UUID) -> Volumes:
    """The volumes, where they were seen last. Raises ``StorageError`` when one of them is missing."""
    volumes = Volumes.open(files, path, None, cluster_key)
    missing = [each for each in volumes.states() if not each.present]
    if missing:
        volumes.close()
        texts = ", ".join(f"{each.volume_id} in {each.path}" for each in missing)
        raise StorageError(f"volumes of {path} are missing ({texts}): mount them, then repeat")
    return volumes


def _recover(directory: StorageDirectory) -> tuple[dict[int, CleanPartition], dict[int, str]]:
    """Open each log as at a start, to complete the indexes. Returns the ends of the logs and the damaged partitions."""
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
