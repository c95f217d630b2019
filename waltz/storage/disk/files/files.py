"""The narrow interface to files that all code of the storage node uses, and the operating system behind it.

All methods except ``run``, ``run_read`` and ``run_brief`` block, and are called in a function that is given to one of
these three. A simulator implements the same two interfaces with memory and virtual time.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from waltz.storage.disk.files.disk_pace import DiskPace
from waltz.storage.disk.files.disk_threads import DiskThreads

T = TypeVar("T")

READ_THREADS = 4
"""The largest number of concurrent reads."""

_SIDE_BY_SIDE = 16
"""The number of concurrent syncs of different files in :meth:`Files.for_each`: the file system does a part of their
work once."""

_JOIN_LIMIT_BYTES = 256 * 1024
_MAX_CHUNKS_PER_CALL = 1024  # IOV_MAX of Linux


class File(Protocol):
    """One open file. Positions and sizes are in bytes; every method may raise ``OSError``."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end of the file."""

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        """Write the chunks one behind the other from ``offset`` on. After an ``OSError`` some bytes may be written."""

    def size(self) -> int:
        """Current size."""

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to ``size``."""

    def sync(self) -> None:
        """Return when contents and all metadata are durable (fsync). After an error durability is unknown for ever."""

    def datasync(self) -> None:
        """Return when contents and size are durable (fdatasync)."""

    def discard_cache(self) -> None:
        """Forget clean pages of the cache, so that the next read gets the bytes of the medium.

        After a failed sync, the operating system may keep pages as clean that never reached the medium.
        """

    def try_lock(self, size: int) -> bool:
        """Lock the first ``size`` bytes against other processes and nodes; ``False`` when another holds them.

        The lock ends with :meth:`close`.
        """

    def close(self) -> None:
        """Close without syncing. Closing again does nothing."""


class Files(Protocol):
    """A file system. Paths are strings; every method may raise ``OSError``."""

    def open(self, path: str, *, create: bool) -> File:
        """Open for reading and writing, creating an empty file if asked to.

        ``FileNotFoundError`` when it does not exist and ``create`` is false; ``BlockingIOError`` when this process
        holds the lock of the file (a second descriptor would drop a POSIX lock when closed).
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""

    def list_directory(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create one directory; ``FileExistsError`` when the name is taken."""

    def remove(self, path: str) -> None:
        """Remove a file; durable after :meth:`sync_directory`."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing ``target``; durable after :meth:`sync_directory`."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, durable after :meth:`sync_directory`; ``FileExistsError`` when it is taken."""
        raise OSError(errno.ENOTSUP, "this file system has no links", target)

    def link_directory(self, target: str, path: str) -> None:
        """Make a symbolic link to a directory, in place of a link of that name; durable after :meth:`sync_directory`.

        ``IsADirectoryError`` when the name is that of a directory.
        """
        raise OSError(errno.ENOTSUP, "this file system has no links", path)

    def linked_directory(self, path: str) -> str | None:
        """The target of a symbolic link; ``None`` when there is no link of that name."""
        return None

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, or a link; durable after :meth:`sync_directory`."""
        raise OSError(errno.ENOTSUP, "this file system keeps its directories", path)

    def sync_directory(self, path: str) -> None:
        """Return when creations, removals and renames in the directory are durable."""

    def for_each(self, function: Callable[[T], None], items: Iterable[T]) -> None:
        """Call a blocking function for each item, in any order and perhaps side by side; ends when all calls have.

        Raises what one of them has raised.
        """
        for item in items:
            function(item)

    def free_bytes(self, path: str) -> int | None:
        """The free bytes of the file system of ``path``; ``None`` when unknown."""
        return None

    def of_disk(self, path: str) -> "Files":
        """The same files, with threads of their own for calls that wait for the disk of ``path``: a disk that hangs
        does not hold up the calls for others. They end with the threads of these files."""
        return self

    def time_ms(self) -> int:
        """Milliseconds since the epoch: the time of creation in new files, never used for a decision."""

    async def run(self, function: Callable[[], T]) -> T:
        """Call a blocking function without blocking the event loop.

        Returns only after the function has ended, even when cancelled: its changes of files are complete then.
        """

    async def run_read(self, function: Callable[[], T]) -> T:
        """Like :meth:`run`, for functions that only read: reads never use up the threads of writes and syncs."""
        return await self.run(function)

    async def run_brief(self, function: Callable[[], T]) -> T:
        """Like :meth:`run`, for a small write and its sync while nothing else needs the event loop: the event loop may
        be blocked.

        On a fast disk the way to a thread and back costs as much processor time as the call.
        """
        return await self.run(function)


def see_the_medium(file: File) -> None:
    """Make the writes of earlier processes durable, and read durable bytes only from now on.

    After a failed write-back, pages may be in memory and not on the medium. Such pages must not count as durable.
    """
    file.sync()
    file.discard_cache()


class GroupSync:
    """Group commit for one file: one datasync at a time, for all writes that ended before its begin.

    Two threads must not sync one descriptor at the same time: the operating system reports a failed write-back to only
    one of them. After a failure every later call fails: the durability of the earlier writes is unknown, and a
    successful retry would prove nothing.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._counter_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._written = 0
        self._synced = 0
        self.failure: str | None = None

    def write_and_sync(self, offset: int, chunks: Sequence[bytes]) -> None:
        """Write and return when durable. ``OSError`` when this or any earlier write or sync failed."""
        if self.failure is not None:
            raise OSError(errno.EROFS, self.failure)
        try:
            self._file.write(offset, chunks)
        except OSError as error:
            self.failure = f"read-only since a write failed: {error}"
            raise
        with self._counter_lock:
            self._written += 1
            ticket = self._written
        self._sync_to(ticket)

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        """Write bytes that need not be durable before the next sync. A failure is raised by the next
        :meth:`write_and_sync`."""
        if self.failure is None:
            try:
                self._file.write(offset, chunks)
            except OSError as error:
                self.failure = f"read-only since a write failed: {error}"

    def _sync_to(self, ticket: int) -> None:
        with self._sync_lock:
            if self.failure is not None:
                raise OSError(errno.EROFS, self.failure)
            if self._synced >= ticket:
                return
            covered = self._written
            try:
                self._file.datasync()
            except OSError as error:
                self.failure = f"read-only since a sync failed: {error}"
                raise
            self._synced = covered


def replace_file(files: Files, path: str, chunks: Sequence[bytes], *, lock_size: int | None = None) -> File:
    """Replace ``path`` by a new file with durable contents, atomically. Returns the new file, open, and locked on
    request.

    The replacement is durable after ``sync_directory`` only. After an ``OSError`` nothing was replaced.
    """
    new_path = path + ".new"
    if files.exists(new_path):
        files.remove(new_path)
    file = files.open(new_path, create=True)
    try:
        if lock_size is not None and not file.try_lock(lock_size):
            raise BlockingIOError(errno.EAGAIN, "locked by another process", new_path)
        file.write(0, chunks)
        file.sync()
        files.rename(new_path, path)
    except BaseException:
        file.close()
        raise
    return file


class _LockRegistry:
    """Files locked by this process: POSIX locks do not exclude two nodes inside one process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: set[tuple[int, int]] = set()

    def claim(self, identity: tuple[int, int]) -> bool:
        with self._mutex:
            if identity in self._held:
                return False
            self._held.add(identity)
            return True

    def release(self, identity: tuple[int, int]) -> None:
        with self._mutex:
            self._held.discard(identity)

    def holds(self, identity: tuple[int, int]) -> bool:
        with self._mutex:
            return identity in self._held


_locks = _LockRegistry()


class OsFile(File):
    """A file of the operating system, addressed by position only, so several threads may read it at once."""

    __slots__ = ("_descriptor", "_lock_identity", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._lock_identity: tuple[int, int] | None = None

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._descriptor, missing, offset + size - missing)
            if not data:
                break
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        # To join small chunks is cheaper than to pass each of them to the system; large chunks are not copied.
        if sum(map(len, chunks)) <= _JOIN_LIMIT_BYTES:
            self._write_rest(b"".join(chunks), offset)
            return
        for start in range(0, len(chunks), _MAX_CHUNKS_PER_CALL):
            some = chunks[start : start + _MAX_CHUNKS_PER_CALL]
            size = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, offset)
            if written < size:  # the rest again as one piece
                self._write_rest(memoryview(b"".join(some))[written:], offset + written)
            offset += size

    def _write_rest(self, data: bytes | memoryview, offset: int) -> None:
        """Write one piece completely. Raises ``OSError``."""
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            count = os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "nothing was written", self._path)
            written += count

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def datasync(self) -> None:
        os.fdatasync(self._descriptor)

    def discard_cache(self) -> None:
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def try_lock(self, size: int) -> bool:
        status = os.fstat(self._descriptor)
        identity = (status.st_dev, status.st_ino)
        if not _locks.claim(identity):
            return False
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, size, 0, os.SEEK_SET)
        except (BlockingIOError, PermissionError):
            _locks.release(identity)
            return False
        except OSError:
            _locks.release(identity)
            raise
        self._lock_identity = identity
        return True

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        os.close(descriptor)
        if self._lock_identity is not None:
            _locks.release(self._lock_identity)


class OsFiles(Files):
    """The operating system's files. The creator closes it, after everything that uses it."""

    def __init__(self, *, max_threads: int = 16, max_read_threads: int = READ_THREADS) -> None:
        """``max_threads``: the largest number of concurrent blocking calls, and so of partitions that sync at the same
        time."""
        self._max_threads = max_threads
        self._max_read_threads = max_read_threads
        self._threads = DiskThreads(max_threads, "waltz-disk")
        self._readers = DiskThreads(max_read_threads, "waltz-read")
        self._pace = DiskPace()
        self._other_disks: list[OsFiles] = []

    def open(self, path: str, *, create: bool) -> OsFile:
        try:
            status = os.stat(path)  # noqa: PTH116 - strings are the paths of this interface
        except FileNotFoundError:
            pass
        else:
            if _locks.holds((status.st_dev, status.st_ino)):
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o666))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def list_directory(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir())

    def make_directory(self, path: str) -> None:
        Path(path).mkdir()

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def link(self, source: str, target: str) -> None:
        Path(target).hardlink_to(source)

    def link_directory(self, target: str, path: str) -> None:
        new_path = Path(f"{path}.link")
        new_path.unlink(missing_ok=True)
        new_path.symlink_to(target)
        new_path.replace(path)

    def linked_directory(self, path: str) -> str | None:
        return str(Path(path).readlink()) if Path(path).is_symlink() else None

    def remove_directory(self, path: str) -> None:
        if Path(path).is_symlink():
            Path(path).unlink()
        else:
            Path(path).rmdir()

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def for_each(self, function: Callable[[T], None], items: Iterable[T]) -> None:
        with ThreadPoolExecutor(_SIDE_BY_SIDE, "waltz-files") as threads:
            for _ in threads.map(function, items):
                pass

    def of_disk(self, path: str) -> "OsFiles":
        files = OsFiles(max_threads=self._max_threads, max_read_threads=self._max_read_threads)
        self._other_disks.append(files)
        return files

    def free_bytes(self, path: str) -> int | None:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def run(self, function: Callable[[], T]) -> T:
        return await self._threads.run(function)

    async def run_read(self, function: Callable[[], T]) -> T:
        return await self._readers.run(function)

    async def run_brief(self, function: Callable[[], T]) -> T:
        if self._threads.running or self._readers.running or not self._pace.brief(time.perf_counter()):
            return await self._threads.run(partial(self._timed, function))
        return self._timed(function)

    def _timed(self, function: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        try:
            return function()
        finally:
            ended_s = time.perf_counter()
            self._pace.took(ended_s - began_s, ended_s)

    def close(self) -> None:
        """Wait for running calls and end the threads."""
        for files in self._other_disks:
            files.close()
        self._threads.close()
        self._readers.close()
