"""The known problems of the files and the disk of a storage node, for health and metrics."""

from collections.abc import Callable, Mapping

from waltz.common.metrics.registry import Description, Readings, Registry
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.files.files import Files
from waltz.storage.node.partition import StoragePartition
from waltz.storage.node.partition_metrics import GROUP

MIN_FREE_BYTES = 64 << 20
"""A disk with fewer free bytes counts as full."""

STALLED_S = 10.0
"""A read or write that takes longer than this is called stalled. Servers have given up by then."""

MAX_LISTED = 10
"""The largest number of damaged ranges of a partition that are listed."""

MISSING_VOLUMES = Description(
    "waltz_storage_num_missing_volumes", "gauge", (), "Volumes that are missing; their partitions are not served."
)
MOVED_PARTITIONS = Description(
    "waltz_storage_moved_partitions_total", "counter", (), "Partitions that were moved to another disk of the node."
)
VOLUME_FREE = Description(
    "waltz_storage_volume_free_bytes", "gauge", ("directory",), "Free space on the disk of each directory."
)


class Findings:
    """Examines partitions, directory and disk at each call."""

    def __init__(
        self,
        partitions: Mapping[int, StoragePartition],
        directory: StorageDirectory,
        files: Files,
        registry: Registry,
        syncing_s: Callable[[], Mapping[int, float]],
    ) -> None:
        """``partitions`` is updated by the owner, and always has the open partitions. ``syncing_s`` returns the
        partitions whose segment a checkpoint is syncing, and the duration so far."""
        self._partitions = partitions
        self._control_file = directory.control_file
        self._fence_file = directory.fence_file
        self._files = files
        self._path = directory.path
        self._volumes = directory.volumes
        self._syncing_s = syncing_s
        registry.gauge(GROUP, f"{GROUP}-damaged-partition-ids", lambda: sorted(self.damaged()))
        registry.gauge(GROUP, f"{GROUP}-num-damaged-partitions", lambda: len(self.damaged()))
        registry.gauge(GROUP, f"{GROUP}-stalled-partition-ids", lambda: sorted(self.stalled()))
        registry.gauge(GROUP, f"{GROUP}-num-stalled-partitions", lambda: len(self.stalled()))
        registry.gauge(GROUP, f"{GROUP}-free-bytes", self.free_bytes)
        registry.reading(MISSING_VOLUMES, lambda: [((), float(self.missing_volumes()))])
        registry.reading(VOLUME_FREE, self._read_free_bytes)

    def _read_free_bytes(self) -> Readings:
        try:
            return [((path,), float(size)) for path, size in self.free_bytes_by_directory().items()]
        except OSError:
            return []  # the problem of the disk is told by the health

    def damaged(self) -> dict[int, str]:
        """A text for each partition in service with damaged records or a damaged file header."""
        found = {}
        for partition_id, partition in self._partitions.items():
            texts = [f"transactions {first} to {last}" for first, last in partition.damaged_ranges]
            texts += [f"header of {path}" for path in partition.log.damage.headers]
            if texts:
                more = f" and {len(texts) - MAX_LISTED} more ranges" if len(texts) > MAX_LISTED else ""
                found[partition_id] = ", ".join(texts[:MAX_LISTED]) + more
        return found

    def stalled(self) -> dict[int, str]:
        """A text for each partition that has waited for the disk longer than a working disk would take."""
        waiting_s = {partition_id: each.waiting_for_disk_s for partition_id, each in self._partitions.items()}
        for partition_id, seconds in self._syncing_s().items():
            waiting_s[partition_id] = max(seconds, waiting_s.get(partition_id, 0.0))
        return {
            partition_id: f"a read or write has not ended for {seconds:.0f} s"
            for partition_id, seconds in waiting_s.items()
            if seconds > STALLED_S
        }

    def free_bytes(self) -> int | None:
        """The free bytes of the file system of the storage directory; ``None`` when unknown."""
        return self._files.free_bytes(self._path)

    def free_bytes_by_directory(self) -> dict[str, int]:
        """The free bytes of the file systems of all directories that are there; without those that are unknown."""
        free = {path: self._files.free_bytes(path) for path in self._volumes.paths()}
        return {path: size_bytes for path, size_bytes in free.items() if size_bytes is not None}

    def missing_volumes(self) -> int:
        """The number of volumes that are missing."""
        return sum(not each.present for each in self._volumes.states())

    def disk_problem(self) -> str | None:
        """The problem of the whole disk: the disk is full, or files that all partitions share cannot be written."""
        for name, failure in (("control file", self._control_file.failure), ("fence file", self._fence_file.failure)):
            if failure is not None:
                return f"the {name} is {failure}"
        try:
            free = self.free_bytes_by_directory()
        except OSError as error:
            return f"the storage directory cannot be examined: {error}"
        for path, free_bytes in free.items():
            if free_bytes < MIN_FREE_BYTES:
                disk = "the disk" if len(free) == 1 else f"the disk of {path}"
                return f"{disk} is almost full: {free_bytes >> 20} MiB are free, less than {MIN_FREE_BYTES >> 20} MiB"
        return None

    def notes(self) -> dict[str, list[int]]:
        """Harmless findings, each with the affected partitions."""
        logs = {partition_id: partition.log for partition_id, partition in self._partitions.items()}
        found = {
            "tornWriteCut": [partition_id for partition_id, log in logs.items() if log.damage.cut_bytes],
            "indexMended": [partition_id for partition_id, log in logs.items() if log.damage.mended_index_entries],
            "controlFileHalfDamaged": self._control_file.half_damaged,
            "fenceHalfDamaged": self._fence_file.half_damaged,
        }
        return {finding: partition_ids for finding, partition_ids in found.items() if partition_ids}
