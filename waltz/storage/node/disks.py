"""The disks of a storage node: how the changes of the partitions on each of them become durable.

Each directory of the node is a disk of its own. A disk that fails or hangs takes only its own partitions out of
service: it has a journal, threads and limits of its own. The first disk is an exception, since control file and fence
file are there.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial

from waltz.common.metrics.registry import Registry
from waltz.common.storage_health import JOURNAL_PROBLEM
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import READ_THREADS, Files
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal_set import JournalSet, OneOf
from waltz.storage.disk.volumes import VolumeId
from waltz.storage.errors import StorageError
from waltz.storage.node.durability import Durability, SyncEach
from waltz.storage.node.findings import STALLED_S
from waltz.storage.node.journal_start import JournalSizes, begin_journal, open_journals
from waltz.storage.node.journal_state import JournalState
from waltz.storage.node.journaled import Journaled
from waltz.storage.node.partition_metrics import GROUP

logger = logging.getLogger(__name__)


class Disk:
    """One disk."""

    def __init__(self, files: Files, *, alone: bool) -> None:
        """A disk without a journal; see :meth:`Disks.open`. ``alone``: the node has no other disk."""
        self.files = files
        """The file system, with threads for this disk."""
        self.busy: set[int] = set()
        """The partitions of the disk with requests to carry out."""
        self.reading = asyncio.Semaphore(READ_THREADS)
        """Limits the concurrent reads."""
        self.synced = SyncEach(files, self.busy, alone=alone)
        """The durability without a journal."""
        self.journaled: Journaled | None = None
        """The durability with a journal."""


class Disks:
    """The disks of a storage directory. All methods belong to the event loop's thread."""

    def __init__(self, files: Files, directory: StorageDirectory, registry: Registry) -> None:
        """The disks of an open directory. Nothing is read before :meth:`open`."""
        self._files = files
        self._directory = directory
        self._registry = registry
        self._journals: JournalSet | None = None
        there = directory.volumes.there()
        self._alone = len(there) == 1
        self._disks = {
            volume_id: Disk(files if volume_id is None else files.of_disk(path), alone=self._alone)
            for volume_id, path in there.items()
        }
        self.first = self._disks[None]
        """The disk with control file and fence file."""

    async def open(self, sizes: JournalSizes | None) -> None:
        """Put what the journals of an earlier process hold where it belongs, then begin journals, if there are sizes.

        Called before any partition is opened. Raises as :func:`open_journals` does.
        """
        directory = self._directory
        self._journals = journals = await self._files.run(partial(JournalSet, directory))
        opened = await self._files.run(partial(open_journals, self._files, directory, journals, sizes))
        for volume_id in self._disks.keys() - directory.volumes.there().keys():  # given up
            del self._disks[volume_id]
        if sizes is None:
            return
        for volume_id, journal in opened.items():  # the first one first
            self._use(volume_id, journal, journals, sizes)
        self._registry.gauge(
            GROUP, f"{GROUP}-journal-free-bytes", lambda: min(each.journal.free_bytes for _, each in self._states())
        )

    def _use(self, volume_id: VolumeId, journal: Journal, journals: JournalSet, sizes: JournalSizes) -> None:
        directory, disk = self._directory, self._disks[volume_id]
        disk.journaled = Journaled(
            disk.files,
            disk.busy,
            directory.path,
            journal,
            directory.control_file,
            directory.fence_file,
            OneOf(journals, volume_id),
            partial(begin_journal, disk.files, journals, sizes, volume_id),
            self.first.journaled,
            alone=self._alone,
        )

    def of(self, partition_id: int) -> Disk:
        """The disk of a partition; the first disk for a partition without a place, or with one that is missing."""
        return self._disks.get(self._directory.volumes.volume_of(partition_id), self.first)

    def files_of(self, volume_id: VolumeId) -> Files:
        """The file system, with threads for the disk of a volume that is there."""
        return self._disks[volume_id].files

    def durability(self, partition_id: int) -> Durability:
        """The way in which the changes of a partition become durable."""
        disk = self.of(partition_id)
        return disk.journaled or disk.synced

    @property
    def syncing_s(self) -> Mapping[int, float]:
        """The partitions whose segment a checkpoint is syncing, and the duration of the wait for the disk."""
        return {
            partition_id: seconds for _, state in self._states() for partition_id, seconds in state.syncing_s.items()
        }

    def problem(self) -> str | None:
        """The problem of a journal, in words; ``None``: there is none."""
        for volume_id, state in self._states():
            text = _problem_of(state)
            if text is not None:
                where = f" ({self._directory.volumes.there()[volume_id]})" if not self._alone else ""
                return f"{JOURNAL_PROBLEM}{text}{where}"
        return None

    async def close(self) -> None:
        """Make all changes durable in their own files, if possible. All partitions are closed."""
        journaled = [disk.journaled for disk in self._disks.values() if disk.journaled is not None]
        await asyncio.gather(*(each.close_all() for each in journaled))
        if self._journals is not None and journaled:
            try:
                await self._files.run(self._journals.finish)
            except (OSError, StorageError) as error:
                logger.warning("the control file stays guarded until the next stop in order: %s", error)

    def _states(self) -> Iterator[tuple[VolumeId, JournalState]]:
        for volume_id, disk in self._disks.items():
            if disk.journaled is not None:
                yield volume_id, disk.journaled.state


def _problem_of(state: JournalState) -> str | None:
    if state.failure is not None:
        return f"not used, because it has failed: {state.failure}"
    if state.waiting_for_disk_s > STALLED_S:
        return f"stalled: a write or sync has not ended for {state.waiting_for_disk_s:.0f} s"
    if state.full:
        return "full: the disk is too slow, or a partition's segment could not be synced"
    return None
