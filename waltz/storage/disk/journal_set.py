"""The journals of a storage directory, one in each of its directories, and which of them count.

A journal describes the files of its own disk: the segments of the partitions there. The fences and marks of all
partitions are in the journal of the first directory, beside control file and fence file.

A journal counts while it may hold what the files of its disk lack. While any journal counts, the control file is
guarded, so that the original refuses to start. With one directory the guard alone tells whether the journal counts.
With several directories ``volumes.json`` lists the journals that count: one journal may fail, or be on a disk that is
missing, while the others are in use. The list means nothing while the control file is not guarded. So the order is:
list, then guard; and at the end: empty list, no guard, no list.

An earlier version has guarded a directory without a list. Then the journal of the first directory counts, and has the
records of all partitions.
"""

import logging
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.reading import Contents, read_journal
from waltz.storage.disk.journal.replay import Progress, Report, replay
from waltz.storage.disk.volumes import VolumeId, Volumes
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)


def counting_journals(control_file: ControlFile, volumes: Volumes) -> frozenset[VolumeId]:
    """The volumes with a journal that may hold what other files lack."""
    if not control_file.guarded:
        return frozenset()
    listed = volumes.journals
    return frozenset([None]) if listed is None else listed


def check_movable(control_file: ControlFile, volumes: Volumes, partition_id: int) -> None:
    """Raise ``StorageError`` if a journal may have records of a partition that are to be moved without it."""
    counting = counting_journals(control_file, volumes)
    if volumes.volume_of(partition_id) in counting or (counting and volumes.journals is None):
        raise StorageError(
            f"partition {partition_id} cannot be moved, since a journal may have records of it: the node was not "
            "stopped in order; run waltz disk drain first"
        )


class JournalSet:
    """Which journals of an open directory count. All methods block, and may be called from any thread."""

    def __init__(self, directory: StorageDirectory) -> None:
        """Take over what an earlier process has left."""
        self._directory = directory
        self._control_file = directory.control_file
        self._volumes = directory.volumes
        self._lock = threading.Lock()
        self._counting = counting_journals(self._control_file, self._volumes)

    @property
    def counting(self) -> frozenset[VolumeId]:
        """The volumes with a journal that counts; a volume may be missing."""
        return self._counting

    def path(self, volume_id: VolumeId) -> str:
        """The directory of the journal of a volume that is there."""
        return str(Path(self._volumes.there()[volume_id]) / DIRECTORY_NAME)

    def partitions(self, volume_id: VolumeId) -> Collection[int]:
        """The partitions that a damaged group of the journal of a volume may have concerned."""
        everybody = range(self._control_file.partition_count)
        if volume_id is None:  # it has the fences and marks of all partitions
            return everybody
        return [each for each in everybody if self._volumes.volume_of(each) == volume_id]

    @property
    def cluster_key(self) -> UUID:
        """The key of the cluster."""
        return self._control_file.cluster_key

    def read(self, files: Files, volume_id: VolumeId) -> Contents:
        """Read the journal of a volume that is there.

        Raises ``OSError``; ``StorageError`` if it is the journal of another cluster, of another volume, or of a later
        version.
        """
        path = self.path(volume_id)
        contents = read_journal(files, path, self.cluster_key)
        if volume_id is None:
            return contents
        if contents.volume_id not in (None, volume_id.bytes):
            raise StorageError(f"the journal in {path} is that of another volume")
        return replace(contents, volume_id=volume_id.bytes)

    def replay(self, files: Files, volume_id: VolumeId, contents: Contents, progress: Progress | None = None) -> Report:
        """Replay the journal of a volume that is there, see :func:`replay`; note what absent partitions lack."""
        directory = self._directory
        report = replay(
            files,
            directory.path,
            self._control_file,
            directory.fence_file,
            contents,
            progress,
            self._volumes.absent(),
            journal_directory=self.path(volume_id),
            concerned=self.partitions(volume_id),
        )
        self._volumes.note_lost(report.left_out)
        return report

    def begin(self, volume_ids: Collection[VolumeId]) -> None:
        """Let journals count from now on: new ones, or ones in which no old group is needed.

        Raises ``OSError``, ``ReadOnlyError``.
        """
        with self._lock:
            counting = self._counting.union(volume_ids)
            if self._volumes.are_many:
                self._volumes.note_journals(counting)
            if not self._control_file.guarded:
                self._control_file.guard()
            self._counting = counting

    def withdraw(self, volume_id: VolumeId) -> None:
        """Let a journal that has failed not count any more: what it holds is durable in the files of its disk.

        Raises ``OSError``, ``ReadOnlyError``; ``StorageError`` if there is but one directory, and partitions lack
        acknowledged changes: the guard is needed for them.
        """
        with self._lock:
            if self._volumes.are_many:
                self._volumes.note_journals(self._counting - {volume_id})
            else:
                if self._directory.lost_partitions():
                    raise StorageError("some partitions lack acknowledged changes")
                self._control_file.unguard()
            self._counting -= {volume_id}

    def end(self, volume_id: VolumeId) -> None:
        """Let a journal not count any more, since a stop in order has left nothing in it. Raises ``OSError``.

        With one directory :meth:`finish` makes that durable.
        """
        with self._lock:
            if self._volumes.are_many:
                self._volumes.note_journals(self._counting - {volume_id})
            self._counting -= {volume_id}

    def finish(self) -> None:
        """Take the guard away if no journal counts, and no partition lacks acknowledged changes.

        In doubt, because a disk cannot be read, the guard stays. Raises ``OSError``, ``ReadOnlyError``.
        """
        with self._lock:
            if self._counting or (self._control_file.guarded and self._may_lack_something()):
                return
            if self._control_file.guarded:
                self._control_file.unguard()
            self._volumes.note_journals(None)

    def _may_lack_something(self) -> bool:
        try:
            return bool(self._directory.lost_partitions())
        except OSError as error:
            logger.warning("%s stays guarded, because a disk cannot be read: %s", self._directory.path, error)
            return True


class OneOf(NamedTuple):
    """One journal of a set."""

    journals: JournalSet
    volume_id: VolumeId

    def begin(self) -> None:
        """As :meth:`JournalSet.begin`."""
        self.journals.begin([self.volume_id])

    def withdraw(self) -> None:
        """As :meth:`JournalSet.withdraw`."""
        self.journals.withdraw(self.volume_id)

    def end(self) -> None:
        """As :meth:`JournalSet.end`."""
        self.journals.end(self.volume_id)
