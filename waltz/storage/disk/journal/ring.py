"""The files of the journal: filled with zeros once, then overwritten in place at each further use.

A file is named ``<sequence, 10 digits>.jnl``; before its first use it is named ``<number>.spare``. Each use of a file
is a *life* with a sequence larger than that of all lives before. The first block of a file is the header: magic,
version, cluster key, volume id, sequence, number of the first group, oldest number that a replay needs, CRC-32 of these
fields; a second copy is in the middle of the block. A life begins in this order: the header is durable, the new name is
durable, groups follow.
"""

import struct
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.storage.disk.files.files import File, Files
from waltz.storage.disk.journal.groups import BLOCK_BYTES, SECTOR_BYTES
from waltz.storage.errors import StorageError

SUFFIX = ".jnl"
SPARE_SUFFIX = ".spare"
UNUSED_NAME = "unused"
"""The file of a journal that holds nothing though the control file is guarded."""
VERSION = 1

_MAGIC = b"WJNL"
_HEADER = struct.Struct(">4sI16s16sIqq")
_CRC = struct.Struct(">I")
_COPIES_AT = (0, BLOCK_BYTES // 2)
_FILL_BYTES = 1 << 20


class JournalFullError(StorageError):
    """No file of the journal is free. Nothing was written."""


class FileHeader(NamedTuple):
    """The fields of the first block of a file."""

    cluster_key: UUID
    volume_id: bytes
    sequence: int
    first_number: int
    """The number of the first group. All groups before that were synced when the life began."""
    base: int
    """The number of the oldest group that a replay needed when the life began."""

    def encode(self) -> bytes:
        """The header as the bytes of the whole block."""
        key, *rest = self
        fields = _HEADER.pack(_MAGIC, VERSION, key.bytes, *rest)
        copy = (fields + _CRC.pack(crc32(fields))).ljust(BLOCK_BYTES // 2, b"\0")
        return copy + copy


def decode_header(block: bytes) -> FileHeader | None:
    """The header in the first block of a file: the newer of the two copies; ``None`` when no copy is whole.

    Args:
        block: The first 4 KiB of the file.

    Raises:
        StorageError: A later version has written the header.
    """
    found = []
    for at in _COPIES_AT:
        copy = block[at : at + SECTOR_BYTES]
        if len(copy) < SECTOR_BYTES:
            continue
        magic, version, key, *rest = _HEADER.unpack_from(copy)
        if magic != _MAGIC or _CRC.unpack_from(copy, _HEADER.size)[0] != crc32(copy[: _HEADER.size]):
            continue
        if version != VERSION:
            raise StorageError(f"the journal has version {version}, this program knows {VERSION} only; use a newer one")
        found.append(FileHeader(UUID(bytes=key), *rest))
    return max(found, key=lambda header: header.sequence, default=None)


def is_missing(files: Files, directory: str) -> bool:
    """Whether neither a file of a journal nor the note of :func:`leave_unused` is there. Raises ``OSError``.

    A life begins before a control file is guarded, and the file of the newest life is never removed. So the journal of
    a guarded control file is missing when its directory is missing or empty, like the mount point of a missing disk.
    """
    if not files.exists(directory):
        return True
    return not any(name == UNUSED_NAME or name.endswith(SUFFIX) for name in files.list_directory(directory))


def leave_unused(files: Files, directory: str) -> None:
    """Remove the files of a journal that does not count, and note durably that it holds nothing. Raises ``OSError``.

    For a control file that is guarded for another reason: old groups must not be replayed, and the journal must not
    look as if it were missing.
    """
    if not files.exists(directory):
        files.make_directory(directory)
        files.sync_directory(str(Path(directory).parent))
    for name in files.list_directory(directory):
        if name.endswith((SUFFIX, SPARE_SUFFIX)):
            files.remove(str(Path(directory) / name))
    file = files.open(str(Path(directory) / UNUSED_NAME), create=True)
    try:
        file.sync()
    finally:
        file.close()
    files.sync_directory(directory)


class _Used(NamedTuple):
    """A file in use."""

    path: str
    first_number: int


class Ring:
    """The files of a journal. One thread begins lives; at the same time another may make spare files."""

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        cluster_key: UUID,
        volume_id: bytes,
        next_sequence: int,
        file_size_bytes: int,
        max_files: int,
    ) -> None:
        """Take over a directory in which no group is needed any more.

        Args:
            files: The file system.
            directory: The directory of the journal; made when it is missing.
            cluster_key: The key of the cluster to which the storage directory belongs.
            volume_id: The id of the volume, 16 bytes.
            next_sequence: The sequence of the next life, larger than that of any life before.
            file_size_bytes: The size of each file, a multiple of the block size.
            max_files: The largest number of files.

        Raises:
            OSError: The directory cannot be read or made.
        """
        self.volume_id = volume_id
        self.file_size_bytes = file_size_bytes
        self._files = files
        self._directory = directory
        self._cluster_key = cluster_key
        self.next_sequence = next_sequence
        """The sequence of the next life."""
        self._max_files = max_files
        self._lock = threading.Lock()
        self._used: deque[_Used] = deque()
        self._free: deque[str] = deque()
        self._unfit: list[str] = []
        if not files.exists(directory):
            files.make_directory(directory)
            files.sync_directory(str(Path(directory).parent))
        self._spares = 0
        for name in files.list_directory(directory):
            path = str(Path(directory) / name)
            if name.endswith((SUFFIX, SPARE_SUFFIX)):
                (self._free if self._size(path) == file_size_bytes else self._unfit).append(path)
            if name == UNUSED_NAME:
                self._unfit.append(path)
            stem = Path(name).stem
            if name.endswith(SPARE_SUFFIX) and stem.isdecimal():
                self._spares = max(self._spares, int(stem))
            if name.endswith(SUFFIX) and stem.isdecimal():  # perhaps of a life whose begin has failed
                self.next_sequence = max(self.next_sequence, int(stem) + 1)
        while len(self._free) > max_files:
            self._unfit.append(self._free.pop())

    @property
    def group_limit_bytes(self) -> int:
        """The size of the groups that fit into one file."""
        return self.file_size_bytes - BLOCK_BYTES

    @property
    def unused_bytes(self) -> int:
        """The size of the groups that fit into the files that are free or may still be made."""
        return (self._max_files - len(self._used)) * self.group_limit_bytes

    @property
    def used_before_bytes(self) -> int:
        """The size of the groups that fit into the files in use before the present file."""
        return (len(self._used) - 1) * self.group_limit_bytes

    def used_from(self, number: int) -> list[str]:
        """Paths of the files with the groups from ``number`` on. These groups are still needed. From any thread."""
        with self._lock:
            used = list(self._used)
        before = sum(each.first_number <= number for each in used[1:])
        return [each.path for each in used[before:]]

    def distrust(self) -> None:
        """Never write to the present files again."""
        self._unfit += self._free
        self._free.clear()

    def reclaim(self, base: int) -> None:
        """Free the files before the file with group ``base``, the oldest that is needed. From any thread.

        The next lives of the freed files have to begin with this base or a larger one.
        """
        with self._lock:
            while len(self._used) > 1 and self._used[1].first_number <= base:
                self._free.append(self._used.popleft().path)

    def begin(self, number: int, base: int) -> tuple[File, int]:
        """Begin the life of a free file, durably. Blocking.

        Args:
            number: The number of the first group of the file.
            base: The number of the oldest group that a replay needs.

        Returns:
            The open file, and the sequence of the life.

        Raises:
            JournalFullError: No file is free, and no further file may or can be made.
            OSError: A write, sync or rename has failed; the journal must not be used any more.
        """
        with self._lock:
            path = self._free.popleft() if self._free else None
            if path is None and len(self._used) >= self._max_files:
                raise JournalFullError(
                    f"over capacity: all {self._max_files} files of the journal in {self._directory} hold what is not "
                    "durable elsewhere yet"
                )
        if path is None:
            try:
                path = self._make()
            except OSError as error:
                text = f"over capacity: no further file of the journal in {self._directory} can be created: {error}"
                raise JournalFullError(text) from error
        sequence = self.next_sequence
        self.next_sequence += 1
        file = self._files.open(path, create=False)
        try:
            header = FileHeader(self._cluster_key, self.volume_id, sequence, number, base)
            file.write(0, [header.encode()])
            file.datasync()
            new_path = str(Path(self._directory) / f"{sequence:010d}{SUFFIX}")
            self._files.rename(path, new_path)
            self._files.sync_directory(self._directory)
        except BaseException:
            file.close()
            raise
        with self._lock:
            self._used.append(_Used(new_path, number))
        return file, sequence

    def remove_unfit(self) -> None:
        """Remove files of another size, and the note that the journal is unused, once a life has begun.

        None of the groups in the removed files is needed. Raises ``OSError``.
        """
        if not self._unfit:
            return
        for path in self._unfit:
            self._files.remove(path)
        self._unfit.clear()
        self._files.sync_directory(self._directory)

    def extend(self) -> bool:
        """Make a file in advance, unless a file is free or no further file is allowed. Blocking; raises ``OSError``.

        Returns whether a file was made. May run in a thread of its own.
        """
        with self._lock:
            if self._free or len(self._used) >= self._max_files:
                return False
        path = self._make()
        with self._lock:
            self._free.append(path)
        return True

    def _make(self) -> str:
        with self._lock:
            self._spares += 1
        path = str(Path(self._directory) / f"{self._spares}{SPARE_SUFFIX}")
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            for offset in range(0, self.file_size_bytes, _FILL_BYTES):
                file.write(offset, [bytes(min(_FILL_BYTES, self.file_size_bytes - offset))])
            file.sync()
        except OSError:
            self._files.remove(path)  # a full disk needs the room for other files
            raise
        finally:
            file.close()
        return path

    def _size(self, path: str) -> int:
        file = self._files.open(path, create=False)
        try:
            return file.size()
        finally:
            file.close()
