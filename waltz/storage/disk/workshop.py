"""Where the partitions of a storage directory are repaired, one step after the other as the admin port asks for it.

All methods block; the manager calls one at a time.
"""

from collections.abc import Collection
from pathlib import Path

from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.files import Files
from waltz.storage.disk.salvage import Salvage, Staged, Survey


class Workshop:
    """Surveys and rebuilds partitions that are closed, and holds what was brought for them."""

    def __init__(self, files: Files, directory: str, control_file: ControlFile) -> None:
        """``directory`` is the storage directory."""
        self._files = files
        self._directory = directory
        self._control_file = control_file
        self._staged: dict[int, Staged] = {}

    def survey(self, partition_id: int, last_id: int = NO_TRANSACTION, damaged: Collection[str] = ()) -> Survey:
        """What is intact. ``last_id`` should be there, ``damaged`` are paths of segments known to be damaged.

        Raises ``StorageError``, ``OSError``.
        """
        low_water_mark = self._control_file.partition(partition_id).local_low_water_mark
        return self._salvage(partition_id).survey(low_water_mark, last_id, damaged)

    def stage(self, partition_id: int, records: list[Record]) -> None:
        """Take records with ascending ids. Raises ``StorageError``, ``OSError``."""
        if partition_id not in self._staged:
            self._staged[partition_id] = Staged(self._files, self._path(partition_id))
        self._staged[partition_id].add(records)

    def rebuild(self, partition_id: int, last_id: int, damaged: Collection[str], certain_up_to: int) -> None:
        """Make the partition whole with what was staged; see :meth:`Salvage.rebuild`."""
        found = self.survey(partition_id, last_id, damaged)
        self._salvage(partition_id).rebuild(found, self._staged.get(partition_id), certain_up_to)

    def forget(self, partition_id: int) -> None:
        """Drop what was staged. Raises ``OSError``."""
        staged = self._staged.pop(partition_id, None)
        if staged is not None:
            staged.close()

    def close(self) -> None:
        """Drop everything that was staged. Raises ``OSError``."""
        for partition_id in list(self._staged):
            self.forget(partition_id)

    def _salvage(self, partition_id: int) -> Salvage:
        return Salvage(self._files, self._path(partition_id), self._control_file.cluster_key, partition_id)

    def _path(self, partition_id: int) -> str:
        return str(Path(self._directory) / str(partition_id))
