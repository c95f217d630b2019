"""All files of one storage directory: control file, session fences, the note of the last stop, and the logs.

All methods block. A method for a partition needs the log of the partition closed; no two of them overlap for one
partition.
"""

import contextlib
import logging
from collections.abc import Collection
from pathlib import Path

from waltz.common.ids import NO_TRANSACTION, UNKNOWN_END
from waltz.common.records import Record
from waltz.storage.disk.clean_stop import CleanPartition, take_clean_stop, write_clean_stop
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.replay import forget_lost, lost_reason
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.log.trim_point import forget_trim_point
from waltz.storage.disk.salvage import Reported, Salvage, Staged, Survey
from waltz.storage.disk.times.time_format import TIME_INDEX_SUFFIX
from waltz.storage.disk.volumes import Volumes
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)


class StorageDirectory:
    """An open directory. The lock of the control file keeps others out."""

    def __init__(
        self,
        files: Files,
        path: str,
        control_file: ControlFile,
        fence_file: FenceFile,
        volumes: Volumes,
        *,
        segment_size_threshold_bytes: int,
        segment_cache_capacity: int,
    ) -> None:
        """Take over the open files; they are closed with the directory."""
        self.path = path
        self.control_file = control_file
        self.fence_file = fence_file
        self.volumes = volumes
        self._files = files
        self._segment_size_threshold_bytes = segment_size_threshold_bytes
        self._segment_cache_capacity = segment_cache_capacity
        self._clean: dict[int, CleanPartition] = {}
        self._staged: dict[int, Staged] = {}

    def take_clean_stop(self) -> None:
        """Read and remove the note of the last stop. Raises ``OSError``."""
        found = take_clean_stop(self._files, self.path, self.control_file.cluster_key)
        if found is None:
            logger.info("%s was not left by an orderly stop, or is new; recovering as after a crash", self.path)
            return
        for partition_id, clean in found.items():
            if partition_id < self.control_file.partition_count:
                self.control_file.restore(partition_id, clean.info)
        self._clean = found

    def close(self, left: dict[int, CleanPartition]) -> None:
        """Write the note about partitions whose logs are closed and durable, then close all files. Raises
        ``OSError``."""
        try:
            write_clean_stop(self._files, self.path, self.control_file.cluster_key, left)
        except OSError as error:
            logger.warning("the next start of %s will recover as after a crash: %s", self.path, error)
        self.close_files()

    def close_files(self) -> None:
        """Close all files without a note. Raises ``OSError``."""
        try:
            self.volumes.close()
            self.fence_file.close()
        finally:
            self.control_file.close()

    # Logs

    def open_log(self, partition_id: int) -> PartitionLog:
        """Open and recover the log of a partition; a partition without files gets its place.

        Raises ``StorageError`` when the volume of the partition is missing, ``CorruptionError`` when control
        information or records are damaged, ``OSError``.
        """
        info = self.control_file.partition(partition_id)
        directory = self._directory_of(partition_id)
        self.volumes.place(partition_id)
        lost = lost_reason(self._files, directory)
        if lost is not None:
            raise CorruptionError(partition_id, None, directory, lost)
        clean = self._clean.pop(partition_id, None)
        return PartitionLog.open(
            self._files,
            directory,
            self.control_file.cluster_key,
            partition_id,
            local_low_water_mark=info.local_low_water_mark,
            segment_size_threshold_bytes=self._segment_size_threshold_bytes,
            segment_cache_capacity=self._segment_cache_capacity,
            clean_end=clean.end if clean is not None and clean.info == info else None,
        )

    def expect(self, partition_id: int, clean: CleanPartition) -> None:
        """Have the next :meth:`open_log` find the end that a log had when it was closed in order."""
        self._clean[partition_id] = clean

    def lost_partitions(self) -> list[int]:
        """Partitions out of service because a part of the journal was lost. Raises ``OSError``.

        While there are such partitions, the control file stays guarded: a node of the original would serve them.
        """
        present = set(range(self.control_file.partition_count)) - self.volumes.absent()
        marked = [each for each in present if lost_reason(self._files, self._directory_of(each)) is not None]
        return sorted([*marked, *self.volumes.lost()])

    def check_fence(self, partition_id: int) -> None:
        """Forget the fence of a partition without files, after the partition was unassigned here or by the original
        (rule S9). Raises ``StorageError`` if there are files and the fence is damaged; ``OSError``."""
        if not self._segment_files(partition_id):
            self.fence_file.reset(partition_id)
            return
        try:
            self.fence_file.get(partition_id)
        except CorruptionError as error:
            directory = self._directory_of(partition_id)
            raise StorageError(f"{error}; delete the segments in {directory}, or move them away, and repeat") from error

    def forget(self, partition_id: int, delete_files: bool) -> None:
        """Reset the record of a partition, then delete its segments on request.

        Raises ``StorageError`` when they are on a volume that is missing, and are to be deleted or have a journal there
        that counts; ``OSError``.
        """
        directory = self._directory_of(partition_id) if delete_files else self.path
        if not delete_files:
            self._check_journal(partition_id)
            self._keep_fence(partition_id)
        self.control_file.reset(partition_id)
        if not delete_files:
            return
        found = [*self._files_of(partition_id, TIME_INDEX_SUFFIX), *self._segment_files(partition_id)]
        for path in found:
            self._files.remove(path)
        if found:
            self._files.sync_directory(directory)
        forget_trim_point(self._files, directory)
        forget_lost(self._files, directory)

    def _check_journal(self, partition_id: int) -> None:
        """Raise ``StorageError`` for a partition with acknowledged records in the journal of a volume that is missing:
        a replay leaves out partitions that are not assigned."""
        absence, journals = self.volumes.absence(partition_id), self.volumes.journals
        if (
            absence is not None
            and self.control_file.guarded
            and self.volumes.volume_of(partition_id) in (journals or ())
        ):
            raise StorageError(f"{absence}; its journal may have records of partition {partition_id}")

    def _keep_fence(self, partition_id: int) -> None:
        """Copy the session of the control file into the fence file: the original updates the control file only."""
        with contextlib.suppress(CorruptionError):  # a damaged entry has no session, or is left unchanged
            self.fence_file.raise_to(partition_id, self.control_file.partition(partition_id).session_id)

    def _segment_files(self, partition_id: int) -> list[str]:
        """Paths of the data and index files of a partition."""
        return self._files_of(partition_id, ".seg", ".idx")

    def _files_of(self, partition_id: int, *suffixes: str) -> list[str]:
        directory = self._directory_of(partition_id)
        names = self._files.list_directory(directory) if self._files.exists(directory) else []
        return [str(Path(directory) / name) for name in names if name.endswith(suffixes)]

    def _directory_of(self, partition_id: int) -> str:
        """Raises ``StorageError`` for a partition of a volume that is missing: the partition is not empty."""
        absence = self.volumes.absence(partition_id)
        if absence is not None:
            raise StorageError(absence)
        return str(Path(self.path) / str(partition_id))

    # Repair

    def survey(self, partition_id: int, last_id: int = NO_TRANSACTION, damaged: Collection[str] = ()) -> Survey:
        """Survey a log. ``last_id`` is the expected last record, ``damaged`` are paths of segments known to be damaged.

        Raises ``StorageError``, ``OSError``.
        """
        low_water_mark = self.control_file.partition(partition_id).local_low_water_mark
        return self._salvage(partition_id).survey(low_water_mark, last_id, damaged)

    def report(self, partition_id: int, damaged: Collection[str]) -> Reported:
        """What a repair is told of a log. Of a log that was lost, in part or as a whole, nobody knows where it ended.

        Raises ``StorageError``, ``OSError``.
        """
        reported = self.survey(partition_id, damaged=damaged).reported
        if lost_reason(self._files, self._directory_of(partition_id)) is None:
            return reported
        behind = reported.last_transaction_id + 1, UNKNOWN_END
        return Reported((*reported.missing, behind), UNKNOWN_END)

    def stage(self, partition_id: int, records: list[Record]) -> None:
        """Take records with ascending ids for a repair. Raises ``StorageError``, ``OSError``."""
        if partition_id not in self._staged:
            self._staged[partition_id] = Staged(self._files, self._directory_of(partition_id))
        self._staged[partition_id].add(records)

    def rebuild(
        self,
        partition_id: int,
        last_id: int,
        damaged: Collection[str],
        certain_up_to: int,
        reported: Reported | None,
    ) -> None:
        """Make a log whole with staged records; see :meth:`Salvage.rebuild`. Records below its local low-water mark are
        certain, too; of a log that was lost, all up to ``certain_up_to`` have to be there."""
        if lost_reason(self._files, self._directory_of(partition_id)) is not None:
            last_id = max(last_id, certain_up_to)
        found = self.survey(partition_id, last_id, damaged)
        certain = max(certain_up_to, self.control_file.partition(partition_id).local_low_water_mark)
        self._salvage(partition_id).rebuild(found, self._staged.get(partition_id), certain, reported)
        forget_lost(self._files, self._directory_of(partition_id))

    def drop_staged(self, partition_id: int) -> None:
        """Drop the staged records of a partition. Raises ``OSError``."""
        staged = self._staged.pop(partition_id, None)
        if staged is not None:
            staged.close()

    def drop_all_staged(self) -> None:
        """Drop all staged records. Raises ``OSError``."""
        for partition_id in list(self._staged):
            self.drop_staged(partition_id)

    def _salvage(self, partition_id: int) -> Salvage:
        return Salvage(self._files, self._directory_of(partition_id), self.control_file.cluster_key, partition_id)
