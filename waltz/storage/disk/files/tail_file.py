"""A file whose last bytes may wait in memory until the file is synced."""

import threading
from collections.abc import Sequence

from waltz.storage.disk.files.files import File

TAIL_LIMIT_BYTES = 4096
"""The largest number of bytes in memory; more are written to the file."""


class TailFile(File):
    """A file to which small pieces are appended. A piece need not be in the file before the next sync.

    Only :meth:`write_later` leaves bytes in memory. All other methods act as if the bytes were in the file: reads find
    the bytes, and each change or sync of the file writes the bytes first. Several threads may use the file at the same
    time.
    """

    __slots__ = ("_file", "_lock", "_tail", "_tail_offset")

    def __init__(self, file: File) -> None:
        """Take over an open file."""
        self._file = file
        self._lock = threading.Lock()
        self._tail = b""
        self._tail_offset = 0

    def write_later(self, offset: int, data: bytes) -> None:
        """Write at or behind the end, at the next sync at the latest. Raises ``OSError``, maybe for earlier bytes."""
        with self._lock:
            if self._tail and offset != self._tail_offset + len(self._tail):
                self._write_tail()
            if not self._tail:
                self._tail_offset = offset
            self._tail += data
            if len(self._tail) > TAIL_LIMIT_BYTES:
                self._write_tail()

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            tail, tail_offset = self._tail, self._tail_offset
        if not tail:
            return self._file.read(offset, size)
        if offset >= tail_offset:
            return tail[offset - tail_offset : offset - tail_offset + size]
        before_size = min(size, tail_offset - offset)
        return self._file.read(offset, before_size).ljust(before_size, b"\0") + tail[: size - before_size]

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        with self._lock:
            self._write_tail()
        self._file.write(offset, chunks)

    def size(self) -> int:
        with self._lock:
            tail, tail_offset = self._tail, self._tail_offset
        size = self._file.size()
        return max(size, tail_offset + len(tail)) if tail else size

    def truncate(self, size: int) -> None:
        with self._lock:
            self._write_tail()
        self._file.truncate(size)

    def sync(self) -> None:
        with self._lock:
            self._write_tail()
        self._file.sync()

    def datasync(self) -> None:
        with self._lock:
            self._write_tail()
        self._file.datasync()

    def discard_cache(self) -> None:
        with self._lock:
            self._write_tail()
        self._file.discard_cache()

    def try_lock(self, size: int) -> bool:
        return self._file.try_lock(size)

    def close(self) -> None:
        """Close without syncing. Bytes in memory are lost, as unsynced bytes of a file may be. Closing again does
        nothing."""
        self._file.close()

    def _write_tail(self) -> None:
        if self._tail:
            self._file.write(self._tail_offset, [self._tail])
            self._tail = b""
