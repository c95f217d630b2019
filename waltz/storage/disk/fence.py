"""The session fence of every partition, kept over restarts.

The highest session that ever spoke to a partition fences off all older ones, as long as the partition has files. The
original keeps it in memory only and forgets it when it restarts before the session's low-water mark was set. Here it is
kept in a small file of its own beside the control file, which the original does not look at; a directory without it has
no fences but the sessions in the control file.

Layout (big-endian): a 128-byte header like the control file's, then two slots of 16 bytes for each partition: session
id (8), sequence number (4), CRC-32 of the 12 bytes before (4). The valid slot with the larger sequence number counts.
An update is synced in one slot, then repeated in the other under a smaller number: damage to one of them loses nothing.
"""

import logging
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.storage.disk.files import File, Files, GroupSync, replace_file, see_the_medium
from waltz.storage.errors import CorruptionError, ReadOnlyError, StorageError

logger = logging.getLogger(__name__)

FILE_NAME = "waltz-storage.fence"
NO_SESSION = -1

_HEADER_SIZE_BYTES = 128
_HEADER = struct.Struct(">iq16si")
_FIELDS = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_SLOT_SIZE_BYTES = _FIELDS.size + _CRC.size
_LAST_SEQUENCE_NUMBER = (1 << 31) - 1

_DAMAGE = (
    "the session fence is damaged, so an older session could not be kept from the partition's files; "
    "begin the partition anew (waltz storage remove-partition -d, then add-partition)"
)


@dataclass(slots=True)
class _Fence:
    session_id: int
    sequence_number: int
    current: int
    damage: CorruptionError | None
    half_damaged: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class FenceFile:
    """The open fence file. The holder of the control file's lock is the only one to use it."""

    def __init__(self, files: Files, path: str, file: File, header: bytes, fences: list[_Fence]) -> None:
        """Use :meth:`open`."""
        self.path = path
        self._files = files
        self._file = file
        self._header = header
        self._fences = fences
        self._sync = GroupSync(file)
        self._renewal = threading.Lock()
        self._given_up: list[File] = []
        self._closed = False

    @classmethod
    def open(cls, files: Files, directory: str, cluster_key: UUID, partition_count: int) -> "FenceFile":
        """Load the fences of a directory, creating the file when there is none.

        Raises ``StorageError`` when the file belongs to another cluster; ``OSError``.
        """
        path = str(Path(directory) / FILE_NAME)
        if not files.exists(path):
            _create(files, directory, path, cluster_key, partition_count)
        file = files.open(path, create=False)
        try:
            see_the_medium(file)
            header = file.read(0, _HEADER_SIZE_BYTES)
            if len(header) < _HEADER_SIZE_BYTES:
                raise StorageError(f"not a fence file: {path}")
            _version, _creation_time_ms, key_bytes, found_count = _HEADER.unpack_from(header)
            if key_bytes != cluster_key.bytes:
                raise StorageError(f"the cluster key does not match: {path}")
            if found_count != partition_count:
                raise StorageError(f"the number of partitions does not match: {path}")
            if _version != 0:
                logger.error("fence file %s has a format version other than 0; going on as with version 0", path)
            files.sync_directory(directory)
            fences = [_load(path, file, partition_id) for partition_id in range(partition_count)]
            return cls(files, path, file, header, fences)
        except BaseException:
            file.close()
            raise

    @property
    def failure(self) -> str | None:
        """The failed write or sync after which the file could not be replaced yet."""
        return self._sync.failure

    @property
    def half_damaged(self) -> list[int]:
        """Partitions of which one of the two slots was damaged at open: by an interrupted update, or later."""
        return [number for number, fence in enumerate(self._fences) if fence.half_damaged]

    def get(self, partition_id: int) -> int:
        """The highest session that was let in, -1 when none was.

        Raises ``CorruptionError`` when the entry is damaged (:meth:`reset` makes it usable again).
        """
        fence = self._fence(partition_id)
        if fence.damage is not None:
            raise fence.damage
        return fence.session_id

    def raise_to(self, partition_id: int, session_id: int) -> None:
        """Return when the fence is durable at ``session_id`` or higher. Blocking; ``ReadOnlyError``, ``OSError``."""
        fence = self._fence(partition_id)
        with fence.lock:
            if self.get(partition_id) < session_id:
                self._write(partition_id, fence, session_id)

    def reset(self, partition_id: int) -> None:
        """Forget the fence of a partition that has no files any more. Blocking."""
        fence = self._fence(partition_id)
        with fence.lock:
            if fence.damage is not None or fence.session_id != NO_SESSION:
                self._write(partition_id, fence, NO_SESSION)

    def close(self) -> None:
        """Sync what was repeated (unless a sync failed before) and close. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._sync.failure is None:
                self._file.sync()
        finally:
            for file in (self._file, *self._given_up):
                file.close()

    def _fence(self, partition_id: int) -> _Fence:
        if self._closed:
            raise StorageError("fence file is already closed")
        if not 0 <= partition_id < len(self._fences):
            raise StorageError(f"no such partition: {partition_id} is not in 0..{len(self._fences) - 1}")
        return self._fences[partition_id]

    def _write(self, partition_id: int, fence: _Fence, session_id: int) -> None:
        slot, sequence_number = 1 - fence.current, fence.sequence_number + 1
        while True:
            with self._renewal:
                if self._sync.failure is not None:
                    self._renew()
                sync = self._sync
            try:
                sync.write_and_sync(_slot_offset(partition_id, slot), [_encode(session_id, sequence_number)])
            except OSError as error:
                logger.critical("fence file %s could not be written: %s", self.path, error)
                raise
            sync.write(_slot_offset(partition_id, 1 - slot), [_encode(session_id, sequence_number - 1)])
            with self._renewal:
                if sync is self._sync:
                    # From here on a new file would hold it too.
                    fence.session_id, fence.sequence_number, fence.current = session_id, sequence_number, slot
                    fence.damage, fence.half_damaged = None, False
                    return

    def _renew(self) -> None:
        """Put a new file with all that is known to be durable in the place of one that failed.

        A failed sync says nothing about the other partitions' entries, and is not tried again: nothing of the old file
        is relied on. It stays open, because another thread may just be failing with it.
        """
        failure = self._sync.failure
        try:
            file = replace_file(self._files, self.path, [self._header, *map(_encode_fence, self._fences)])
            self._given_up.append(self._file)
            self._file, self._sync = file, GroupSync(file)
            self._sync.failure = failure
            self._files.sync_directory(str(Path(self.path).parent))
        except OSError as error:
            raise ReadOnlyError(
                f"fence file {self.path} is {failure}, and cannot be replaced ({error}); check the disk, then restart"
            ) from error
        self._sync.failure = None
        logger.warning("fence file %s was replaced by a new one, because it was %s", self.path, failure)


def _slot_offset(partition_id: int, slot: int) -> int:
    return _HEADER_SIZE_BYTES + (2 * partition_id + slot) * _SLOT_SIZE_BYTES


def _encode(session_id: int, sequence_number: int) -> bytes:
    fields = _FIELDS.pack(session_id, sequence_number)
    return fields + _CRC.pack(crc32(fields))


def _encode_fence(fence: _Fence) -> bytes:
    """Both slots for a new file; what cannot be understood stays damaged."""
    if fence.damage is not None:
        return bytes(2 * _SLOT_SIZE_BYTES)
    slots = [_encode(fence.session_id, fence.sequence_number - 1)] * 2
    slots[fence.current] = _encode(fence.session_id, fence.sequence_number)
    return b"".join(slots)


def _create(files: Files, directory: str, path: str, cluster_key: UUID, partition_count: int) -> None:
    """Complete under another name first: a file of the right name always has all its entries."""
    new_path = path + ".new"
    file = files.open(new_path, create=True)
    try:
        header = _HEADER.pack(0, files.time_ms(), cluster_key.bytes, partition_count)
        slots = (_encode(NO_SESSION, 0) + _encode(NO_SESSION, -1)) * partition_count
        file.truncate(0)
        file.write(0, [header.ljust(_HEADER_SIZE_BYTES, b"\0"), slots])
        file.sync()
    finally:
        file.close()
    files.rename(new_path, path)


def _load(path: str, file: File, partition_id: int) -> _Fence:
    slots: list[tuple[int, int, int]] = []
    for slot in (0, 1):
        data = file.read(_slot_offset(partition_id, slot), _SLOT_SIZE_BYTES)
        fields = data[: _FIELDS.size]
        if len(data) == _SLOT_SIZE_BYTES and _CRC.unpack_from(data, _FIELDS.size)[0] == crc32(fields):
            session_id, sequence_number = _FIELDS.unpack(fields)
            if abs(sequence_number) < _LAST_SEQUENCE_NUMBER:  # one without neighbours is none of ours
                slots.append((sequence_number, session_id, slot))
    if not slots:
        damage = CorruptionError(partition_id, None, path, _DAMAGE)
        logger.error("fence file %s, partition %d is unusable: %s", path, partition_id, damage)
        return _Fence(NO_SESSION, 0, 0, damage)
    sequence_number, session_id, current = max(slots)
    if len(slots) == 1:
        logger.error("fence file %s, partition %d: one of two slots is damaged; the other counts", path, partition_id)
    return _Fence(session_id, sequence_number, current, None, half_damaged=len(slots) == 1)
