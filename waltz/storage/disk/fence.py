"""The session fence of every partition, kept over restarts.

The highest session that ever sent a request to a partition fences off all older sessions, as long as the partition has
files. The original keeps this session in memory only, and loses it by a restart before the low-water mark of the
session was set. Here the session is in a small file beside the control file; the original ignores that file. In a
directory without the file, the sessions in the control file are the fences.

A file of two slots of 16 bytes for each partition (:mod:`waltz.storage.disk.files.slot_file`): session id (8), sequence
number (4), CRC-32 of the 12 bytes before (4). An update is synced in one slot, then repeated in the other slot under a
smaller number: damage to one slot loses nothing.
"""

import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.storage.disk.files.files import File, Files, see_the_medium
from waltz.storage.disk.files.slot_file import Entry, SlotFile, SlotUpdate, encode_header, read_entry, read_header
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)

FILE_NAME = "waltz-storage.fence"
NO_SESSION = -1

_NAME = "fence file"
_FIELDS = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_SLOT_SIZE_BYTES = _FIELDS.size + _CRC.size
_LAST_SEQUENCE_NUMBER = (1 << 31) - 1

_DAMAGE = (
    "the session fence is damaged, so an older session could not be kept from the partition's files; "
    "begin the partition anew (waltz storage remove-partition -d, then add-partition)"
)


class FenceFile:
    """The open fence file. Only the holder of the control file's lock uses it."""

    def __init__(self, slots: SlotFile[int]) -> None:
        """Use :meth:`open`."""
        self._slots = slots

    @classmethod
    def open(cls, files: Files, directory: str, cluster_key: UUID, partition_count: int) -> "FenceFile":
        """Load the fences of a directory, creating the file when there is none.

        Raises ``StorageError`` when the file belongs to another cluster; ``OSError``.
        """
        path = str(Path(directory) / FILE_NAME)
        if not files.exists(path):
            _create(files, path, cluster_key, partition_count)
        file = files.open(path, create=False)
        try:
            see_the_medium(file)
            header, found_key, found_count = read_header(_NAME, path, file)
            if found_key != cluster_key:
                raise StorageError(f"the cluster key does not match: {path}")
            if found_count != partition_count:
                raise StorageError(f"the number of partitions does not match: {path}")
            files.sync_directory(directory)
            entries = [_load_entry(path, file, partition_id) for partition_id in range(partition_count)]
            return cls(SlotFile(files, path, file, name=_NAME, header=header, entries=entries))
        except BaseException:
            file.close()
            raise

    @property
    def failure(self) -> str | None:
        """The failed write or sync, while the file could not be replaced after the failure; ``None`` otherwise."""
        return self._slots.failure

    @property
    def half_damaged(self) -> list[int]:
        """Partitions with one slot that was damaged at opening and has not been written since."""
        return self._slots.half_damaged

    def get(self, partition_id: int) -> int:
        """The highest admitted session, -1 for none.

        Raises ``CorruptionError`` when the entry is damaged (:meth:`reset` makes it usable again).
        """
        return self._slots.get(partition_id)

    def raise_to(self, partition_id: int, session_id: int) -> None:
        """Return when the fence is durable at ``session_id`` or higher. Blocking; raises ``ReadOnlyError``,
        ``OSError``."""
        self.raise_all({partition_id: session_id})

    def raise_all(self, session_ids: Mapping[int, int]) -> None:
        """As :meth:`raise_to` for several partitions, with one sync. After a failure nothing has changed."""
        with self._slots.locked(session_ids):
            self._write({each: session_id for each, session_id in session_ids.items() if self.get(each) < session_id})

    def reset(self, partition_id: int) -> None:
        """Forget the fence of a partition without files. Blocking."""
        entry = self._slots.entry(partition_id)
        with entry.lock:
            if entry.damage is not None or entry.value != NO_SESSION:
                self._write({partition_id: NO_SESSION})

    def close(self) -> None:
        """Sync the repeated slots (unless a sync failed before) and close. A second call has no effect."""
        self._slots.close()

    def _write(self, session_ids: Mapping[int, int]) -> None:
        updates = []
        for partition_id, session_id in session_ids.items():
            entry = self._slots.entry(partition_id)
            number = entry.sequence_number + 1
            data, repeated = _encode(session_id, number), _encode(session_id, number - 1)
            updates.append(SlotUpdate(partition_id, 1 - entry.current, data, repeated))
        self._slots.write_all(updates)
        for partition_id, slot, _, _ in updates:
            entry = self._slots.entry(partition_id)
            entry.take_over(session_ids[partition_id], slot, entry.sequence_number + 1)


def _encode(session_id: int, sequence_number: int) -> bytes:
    fields = _FIELDS.pack(session_id, sequence_number)
    return fields + _CRC.pack(crc32(fields))


def fence_key(files: Files, directory: str) -> UUID | None:
    """The cluster key in the fence file of a directory; ``None`` without the file. Blocking.

    Raises:
        StorageError: The file is too short.
        OSError: The file cannot be read.
    """
    path = str(Path(directory) / FILE_NAME)
    if not files.exists(path):
        return None
    file = files.open(path, create=False)
    try:
        _header, key, _count = read_header(_NAME, path, file)
    finally:
        file.close()
    return key


def _create(files: Files, path: str, cluster_key: UUID, partition_count: int) -> None:
    """Create the file, complete under another name first: a file of the right name always has all entries."""
    new_path = path + ".new"
    file = files.open(new_path, create=True)
    try:
        header = encode_header(files.time_ms(), cluster_key, partition_count)
        slots = (_encode(NO_SESSION, 0) + _encode(NO_SESSION, -1)) * partition_count
        file.truncate(0)
        file.write(0, [header, slots])
        file.sync()
    finally:
        file.close()
    files.rename(new_path, path)


def _load_entry(path: str, file: File, partition_id: int) -> Entry[int]:
    head, written = read_entry(file, partition_id, 0, _SLOT_SIZE_BYTES)
    valid: list[tuple[int, int, int]] = []
    for slot, data in enumerate(written):
        fields = data[: _FIELDS.size]
        if _CRC.unpack_from(data, _FIELDS.size)[0] == crc32(fields):
            session_id, sequence_number = _FIELDS.unpack(fields)
            if abs(sequence_number) < _LAST_SEQUENCE_NUMBER:  # this program never writes other numbers
                valid.append((sequence_number, session_id, slot))
    if not valid:
        damage = CorruptionError(partition_id, None, path, _DAMAGE)
        logger.error("fence file %s, partition %d is unusable: %s", path, partition_id, damage)
        return Entry(head, written, NO_SESSION, 0, 0, damage)
    sequence_number, session_id, current = max(valid)
    if len(valid) == 1:
        logger.error("fence file %s, partition %d: one of two slots is damaged; the other counts", path, partition_id)
    return Entry(head, written, session_id, current, sequence_number, half_damaged=len(valid) == 1)
