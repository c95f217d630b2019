"""A file with an entry of two slots for each partition: the base of the control file and the fence file.

Layout (big-endian): a 128-byte header (format version, time of creation, cluster key, number of partitions), then the
entries: a head of fixed bytes and two slots. The slot with the larger sequence number counts. An update is written into
the other slot and synced, so that a torn write never damages the state before the update.

After a failed write or sync the bytes on the medium are unknown, and the write is not tried again. The next update
replaces the file by a new one with everything that is known to be durable.
"""

import logging
import struct
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from waltz.storage.disk.files.files import File, Files, GroupSync, replace_file
from waltz.storage.errors import ReadOnlyError, StorageError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

HEADER_SIZE_BYTES = 128

_HEADER = struct.Struct(">iq16si")
_FORMAT_VERSION = 0


@dataclass(slots=True)
class Entry(Generic[Value]):
    """One entry in memory."""

    head: bytes
    written: list[bytes]
    """The bytes of both slots: durable, or as found at opening."""
    value: Value
    current: int
    """The slot (0 or 1) that counts, from which ``value`` was read."""
    sequence_number: int
    """The last sequence number that was used."""
    damage: StorageError | None = None
    """The reason, if there is no value."""
    half_damaged: bool = False
    """Whether one slot was damaged at opening and has not been written since."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during an update of the entry."""

    def take_over(self, value: Value, slot: int, sequence_number: int) -> None:
        """Let a value count that was written into a slot."""
        self.value, self.current, self.sequence_number = value, slot, sequence_number
        self.damage, self.half_damaged = None, False


class SlotUpdate(NamedTuple):
    """A slot to be written."""

    partition_id: int
    slot: int
    data: bytes
    other: bytes | None = None
    """Bytes for the other slot, written after ``data``; they need not be durable before the next sync."""


class SlotFile(Generic[Value]):
    """The open file. Methods that write block until the update is durable; different entries may be written at once."""

    def __init__(
        self,
        files: Files,
        path: str,
        file: File,
        *,
        name: str,
        header: bytes,
        entries: list[Entry[Value]],
        lock_size: int | None = None,
        given_up: Sequence[File] = (),
    ) -> None:
        """Take over an open file, whose first ``lock_size`` bytes are locked.

        ``name`` names the file in messages. ``given_up`` are replaced files, which stay open as long as this file.
        """
        self.path = path
        self.entries = entries
        self._files = files
        self._file = file
        self._name = name
        self._header = header
        self._lock_size = lock_size
        self._sync = GroupSync(file)
        self._renewal = threading.Lock()
        self._given_up = list(given_up)
        self._closed = False

    @property
    def failure(self) -> str | None:
        """The failed write or sync, while the file could not be replaced after the failure; ``None`` otherwise."""
        return self._sync.failure

    @property
    def half_damaged(self) -> list[int]:
        """Partitions with one slot that was damaged at opening, by an interrupted update or later.

        The other slot counts; the next update writes the damaged slot anew.
        """
        return [number for number, entry in enumerate(self.entries) if entry.half_damaged]

    def entry(self, partition_id: int) -> Entry[Value]:
        """The entry of a partition. Raises ``StorageError`` when there is none, or the file is closed."""
        if self._closed:
            raise StorageError(f"{self._name.capitalize()} is already closed.")
        if not 0 <= partition_id < len(self.entries):
            raise StorageError(f"no such partition: {partition_id} is not in 0..{len(self.entries) - 1}")
        return self.entries[partition_id]

    def get(self, partition_id: int) -> Value:
        """The value that counts. Raises ``StorageError`` as :meth:`entry` does, and when the entry is damaged."""
        if self._closed or not 0 <= partition_id < len(self.entries):
            self.entry(partition_id)  # raises the error with the reason
        entry = self.entries[partition_id]
        if entry.damage is not None:
            raise entry.damage
        return entry.value

    def locked(self, partition_ids: Iterable[int]) -> ExitStack:
        """Hold the locks of entries, for ``with``. Raises ``StorageError`` as :meth:`entry` does."""
        with ExitStack() as locks:
            for partition_id in sorted(partition_ids):  # in order: two threads never wait for each other
                locks.enter_context(self.entry(partition_id).lock)
            return locks.pop_all()

    def write(self, partition_id: int, slot: int, data: bytes, *, other: bytes | None = None) -> None:
        """Write one slot; see :meth:`write_all`."""
        self.write_all([SlotUpdate(partition_id, slot, data, other)])

    def write_all(self, updates: Sequence["SlotUpdate"]) -> None:
        """Write slots durably, with one sync. After a failure of the file, replace the file first.

        The caller holds the locks of the entries. The slots count only after :meth:`Entry.take_over`, which the caller
        calls. Raises ``OSError``, and ``ReadOnlyError`` when a failed file cannot be replaced; the entries are as
        before then.
        """
        if not updates:
            return
        pieces = [(self._offset(each.partition_id) + each.slot * len(each.data), each.data) for each in updates]
        others = [
            (self._offset(each.partition_id) + (1 - each.slot) * len(each.data), each.other)
            for each in updates
            if each.other is not None
        ]
        while True:
            sync = self._write_durably(pieces)
            for offset, other in others:
                sync.write(offset, [other])
            with self._renewal:
                if sync is self._sync:
                    # From here on a replacement of the file has the update, too.
                    for partition_id, slot, data, repeated in updates:
                        written = self.entries[partition_id].written
                        written[slot] = data
                        if repeated is not None:
                            written[1 - slot] = repeated
                    return

    @property
    def header(self) -> bytes:
        """The header as it is durable."""
        return self._header

    def write_header(self, header: bytes) -> None:
        """Write the header durably. After a failure of the file, replace the file first. Only one thread at a time
        calls this.

        Raises ``OSError``, and ``ReadOnlyError`` when a failed file cannot be replaced.
        """
        while True:
            sync = self._write_durably([(0, header)])
            with self._renewal:
                if sync is self._sync:
                    self._header = header
                    return

    def _write_durably(self, pieces: Sequence[tuple[int, bytes]]) -> GroupSync:
        """Write and sync. Returns the :class:`GroupSync` that was used: the write counts only if that one is still in
        use."""
        with self._renewal:
            if self._sync.failure is not None:
                self._renew()
            sync = self._sync
        try:
            for offset, data in pieces[:-1]:
                sync.write(offset, [data])
            offset, data = pieces[-1]
            sync.write_and_sync(offset, [data])
        except OSError as error:
            logger.critical("%s %s could not be written: %s", self._name, self.path, error)
            raise
        return sync

    def close(self) -> None:
        """Sync (unless a sync failed before), unlock and close. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._sync.failure is None:
                self._file.sync()
        finally:
            for file in (self._file, *self._given_up):
                file.close()

    def _offset(self, partition_id: int) -> int:
        """The offset of the first slot of a partition."""
        entry = self.entries[partition_id]
        size_bytes = len(entry.head) + sum(map(len, entry.written))
        return HEADER_SIZE_BYTES + partition_id * size_bytes + len(entry.head)

    def _renew(self) -> None:
        """Replace a failed file by a new one with everything that is known to be durable.

        After a failed sync the other entries are unknown, too, so the bytes of the old file are not used. The old file
        stays open: its lock keeps away processes that had opened it before, and another thread may still be using it.
        """
        failure = self._sync.failure
        content = [self._header]
        for entry in self.entries:
            content += (entry.head, *entry.written)
        try:
            file = replace_file(self._files, self.path, content, lock_size=self._lock_size)
            self._given_up.append(self._file)
            self._file, self._sync = file, GroupSync(file)
            self._sync.failure = failure
            self._files.sync_directory(str(Path(self.path).parent))
        except OSError as error:
            raise ReadOnlyError(
                f"{self._name} {self.path} is {failure}, and cannot be replaced ({error}); check the disk, then restart"
            ) from error
        self._sync.failure = None
        logger.warning("%s %s was replaced by a new one, because it was %s", self._name, self.path, failure)


def encode_header(time_ms: int, cluster_key: UUID, partition_count: int) -> bytes:
    """The header of a new file."""
    fields = _HEADER.pack(_FORMAT_VERSION, time_ms, cluster_key.bytes, partition_count)
    return fields.ljust(HEADER_SIZE_BYTES, b"\0")


def with_key(header: bytes, cluster_key: UUID) -> bytes:
    """The header with another cluster key."""
    version, creation_time_ms, _, partition_count = _HEADER.unpack_from(header)
    return _HEADER.pack(version, creation_time_ms, cluster_key.bytes, partition_count) + header[_HEADER.size :]


def read_header(name: str, path: str, file: File) -> tuple[bytes, UUID, int]:
    """The header, and the cluster key and number of partitions in it. Raises ``StorageError``, ``OSError``."""
    header = file.read(0, HEADER_SIZE_BYTES)
    if len(header) < HEADER_SIZE_BYTES:
        raise StorageError(f"not a {name}: {path}")
    version, _creation_time_ms, key_bytes, partition_count = _HEADER.unpack_from(header)
    if version != _FORMAT_VERSION:
        logger.error("%s %s has a format version other than 0; going on as with version 0", name, path)
    return header, UUID(bytes=key_bytes), partition_count


def read_entry(file: File, partition_id: int, head_size_bytes: int, slot_size_bytes: int) -> tuple[bytes, list[bytes]]:
    """The bytes of the head and the slots of an entry; missing bytes are zeros. Raises ``OSError``."""
    size_bytes = head_size_bytes + 2 * slot_size_bytes
    data = file.read(HEADER_SIZE_BYTES + partition_id * size_bytes, size_bytes).ljust(size_bytes, b"\0")
    middle = head_size_bytes + slot_size_bytes
    return data[:head_size_bytes], [data[head_size_bytes:middle], data[middle:]]
