"""What a storage would find on its disk after a loss of power at this moment: its journal is replayed on a copy."""

import posixpath
from typing import NamedTuple

from tests.simulation.disk import SimulatedDisk, SimulatedFiles
from waltz.common.records import Record
from waltz.storage.disk.control_file import PartitionInfo
from waltz.storage.disk.draining import drain
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.groups import BLOCK_BYTES, gather
from waltz.storage.disk.journal.journal import DIRECTORY_NAME, Journal
from waltz.storage.disk.journal.ring import SUFFIX
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.offline import open_control_file
from waltz.storage.errors import StorageError

_WHOLE_BYTES = 1 << 40
_NEWEST_BYTES = 48 << 10


class Recovered(NamedTuple):
    """A partition after a loss of power."""

    info: PartitionInfo
    """What the control file says."""
    fence: int
    log: PartitionLog
    disk: SimulatedDisk
    """The copy."""

    @classmethod
    def of(cls, disk: SimulatedDisk, partition_directory: str, partition_id: int) -> "Recovered":
        """What is durable on a disk, drained by a copy as ``waltz disk drain`` does it.

        Raises:
            WaltzError: It cannot be opened.
            OSError: The disk does not give it back.
        """
        copy, directory = disk.durable_copy(), posixpath.dirname(partition_directory)
        files = SimulatedFiles(copy, None)
        drain(files, directory)
        control_file = open_control_file(files, directory)
        if control_file.guarded:
            raise StorageError(f"{directory} is drained, and its control file says that the journal counts")
        key, count = control_file.cluster_key, control_file.partition_count
        info = control_file.partition(partition_id)
        log = PartitionLog.open(
            files,
            partition_directory,
            key,
            partition_id,
            local_low_water_mark=info.local_low_water_mark,
            segment_size_threshold_bytes=_WHOLE_BYTES,
            segment_cache_capacity=2,
        )
        return cls(info, FenceFile.open(files, directory, key, count).get(partition_id), log, copy)

    def last(self, first: int) -> list[Record]:
        """All records from ``first`` on."""
        records: list[Record] = []
        while self.log.max_transaction_id >= first + len(records):
            records += self.log.read(first + len(records), self.log.max_transaction_id + 1 - first - len(records))
        return records


def newest_groups(disk: SimulatedDisk, partition_directory: str, journal: Journal) -> bytes:
    """What is durable of the last groups of an open journal, without the marks of lives."""
    path = f"{posixpath.dirname(partition_directory)}/{DIRECTORY_NAME}/{journal._sequence:010d}{SUFFIX}"
    return gather(disk.durable_content(path, max(journal._offset - _NEWEST_BYTES, BLOCK_BYTES), journal._offset))
