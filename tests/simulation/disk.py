"""A simulated disk, and the files interface of the storage node on top of it.

What a process writes is seen by every reader at once and is durable only after a sync, file by file; the same holds for
directory entries. A loss of power keeps, of everything unsynced, an arbitrary part: sectors of a write independently of
each other, directory changes in order. A process that is merely killed loses nothing.
"""

import asyncio
import errno
import functools
import os
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeVar

from tests.simulation.loop import Process
from waltz.storage.files import File, Files

T = TypeVar("T")

SECTOR_BYTES = 512
"""What a disk writes as a whole or not at all."""

DELAY_MAX_S = 30.0
"""The longest that one call takes, however slow the disk is: what began during a fault must end some time after it."""


class ProcessEndedError(BaseException):
    """The process died within a blocking call; whatever it still tries has no effect. No code catches this."""


class _Change(NamedTuple):
    """A write (``data``) or a change of size (``data`` is None)."""

    offset: int
    data: bytes | None


class _Node:
    """A file: what readers see, and what survives."""

    __slots__ = ("durable", "locked_by", "seen", "unsynced")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.unsynced: list[_Change] = []
        self.locked_by: Process | None = None

    def change(self, change: _Change) -> None:
        _apply(self.seen, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def lose_power(self, random_source: random.Random) -> None:
        self.keep_some(random_source)
        self.seen = bytearray(self.durable)
        self.locked_by = None

    def keep_some(self, random_source: random.Random) -> None:
        """Of what is unsynced an arbitrary part becomes durable, the rest never will."""
        fate = random_source.random()
        for change in self.unsynced:
            if fate < 0.35 or (fate > 0.7 and random_source.random() < 0.5):
                continue
            if change.data is None or fate < 0.7:
                _apply(self.durable, change)
                continue
            for start, end in _sectors(change.offset, change.offset + len(change.data)):
                if random_source.random() < 0.5:
                    piece = change.data[start - change.offset : end - change.offset]
                    _apply(self.durable, _Change(start, piece))
        self.unsynced.clear()


def _apply(content: bytearray, change: _Change) -> None:
    offset, data = change
    end = offset if data is None else offset + len(data)
    if data is None:
        del content[offset:]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[offset:end] = data


def _sectors(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        limit = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, limit
        start = limit


class SimulatedDisk:
    """The disk of one host. It outlives the processes; :meth:`lose_power` is called when the host goes down hard."""

    def __init__(self, random_source: random.Random, directory: str, *, delay_factor: float = 1.0) -> None:
        """``directory`` exists from the beginning and is empty. ``delay_factor``: how slow it is in ordinary times."""
        self.delay_factor = delay_factor
        self.slowness = 1.0
        """How much slower than in ordinary times it is."""
        self.write_error: int | None = None
        """``errno`` that every write fails with (``ENOSPC``, ``EIO``)."""
        self.write_errors_to_come = 0
        """So many of the next writes fail with ``EIO``, after having been done in part."""
        self.sync_errors_to_come = 0
        """So many of the next syncs fail with ``EIO``; what they should have made durable never will be."""
        self.operations_until_crash: int | None = None
        """After so many writes and syncs :attr:`crash` is called, in the middle of whatever is going on."""
        self.crash: Callable[[], None] = _nothing
        self._random = random_source
        self._directories = {directory}
        self._seen: dict[str, _Node] = {}
        self._durable: dict[str, _Node] = {}
        self._unsynced: list[tuple[str, str, _Node | None]] = []
        """Changes of directories in order: directory, path, the file it is from now on."""

    # What faults and checkers call

    def lose_power(self) -> None:
        """Forget what is not durable, except for an arbitrary part."""
        journal = self._random.randint(0, len(self._unsynced))
        for _, path, node in self._unsynced[:journal]:
            _enter(self._durable, path, node)
        self._unsynced.clear()
        self._seen = dict(self._durable)
        for node in self._seen.values():
            node.lose_power(self._random)

    def flip_bit(self, choose: Callable[[str], bool]) -> str | None:
        """Damage one bit of a file that ``choose`` accepts, as if the medium had; says where, None without a file."""
        paths = sorted(path for path, node in self._seen.items() if node.durable and choose(path))
        if not paths:
            return None
        path = self._random.choice(paths)
        node = self._seen[path]
        offset = self._random.randrange(len(node.durable))
        mask = 1 << self._random.randrange(8)
        node.durable[offset] ^= mask
        if offset < len(node.seen):
            node.seen[offset] ^= mask
        return f"{path} byte {offset}"

    def durable_copy(self) -> "SimulatedDisk":
        """A disk that holds what would be left after a loss of power without any luck."""
        copy = SimulatedDisk(random.Random(0), "/")
        copy._directories = set(self._directories)
        for path, node in self._durable.items():
            twin = _Node()
            twin.durable, twin.seen = bytearray(node.durable), bytearray(node.durable)
            copy._seen[path] = copy._durable[path] = twin
        return copy

    # What files ask

    def node(self, path: str) -> _Node | None:
        """The file of that name."""
        return self._seen.get(path)

    def enter(self, path: str, node: _Node | None) -> None:
        """Change a directory."""
        directory = posixpath.dirname(path)
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        _enter(self._seen, path, node)
        self._unsynced.append((directory, path, node))

    def directories(self) -> set[str]:
        """All directories. They are durable at once: the node syncs the parent, and nothing depends on less."""
        return self._directories

    def names(self, directory: str) -> list[str]:
        """What a directory holds."""
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        paths = [*self._seen, *self._directories]
        return sorted({posixpath.basename(path) for path in paths if posixpath.dirname(path) == directory} - {""})

    def sync_directory(self, directory: str) -> None:
        """Make the changes of one directory durable."""
        self.count_operation()
        for where, path, node in self._unsynced:
            if where == directory:
                _enter(self._durable, path, node)
        self._unsynced = [change for change in self._unsynced if change[0] != directory]

    def count_operation(self) -> None:
        """One more write or sync; perhaps the one in which the host goes down."""
        if self.operations_until_crash is None:
            return
        self.operations_until_crash -= 1
        if self.operations_until_crash <= 0:
            self.operations_until_crash = None
            self.crash()

    def write(self, node: _Node, path: str, offset: int, data: bytes) -> None:
        """Write, or fail as the faults demand."""
        self.count_operation()
        failure = self.write_error
        if failure is None and self.write_errors_to_come:
            self.write_errors_to_come -= 1
            failure = errno.EIO
        if failure is not None:
            done = self._random.randint(0, len(data) - 1) if data else 0
            if done:
                node.change(_Change(offset, data[:done]))
            raise OSError(failure, os.strerror(failure), path)
        node.change(_Change(offset, data))

    def sync(self, node: _Node, path: str) -> None:
        """Sync, or fail as the faults demand."""
        self.count_operation()
        if self.sync_errors_to_come:
            self.sync_errors_to_come -= 1
            node.keep_some(self._random)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        node.sync()

    def delay_s(self) -> float:
        """How long one blocking call takes."""
        draw = self._random.random()
        delay_s = 0.0002 + 0.002 * draw * draw
        if draw > 0.998:
            delay_s += 0.1 * self._random.random()
        return min(delay_s * self.delay_factor * self.slowness, DELAY_MAX_S)


def _enter(directory: dict[str, _Node], path: str, node: _Node | None) -> None:
    if node is None:
        directory.pop(path, None)
    else:
        directory[path] = node


def _nothing() -> None:
    pass


class SimulatedFile(File):
    """An open file of a process. After the end of the process nothing has any effect."""

    def __init__(self, disk: SimulatedDisk, process: Process | None, path: str, node: _Node) -> None:
        self._disk = disk
        self._process = process
        self._path = path
        self._node = node
        self._open = True

    def read(self, offset: int, size: int) -> bytes:
        self._check()
        return bytes(self._node.seen[offset : offset + size])

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        self._check()
        self._disk.write(self._node, self._path, offset, b"".join(chunks))
        self._check()

    def size(self) -> int:
        self._check()
        return len(self._node.seen)

    def truncate(self, size: int) -> None:
        self._check()
        if self._disk.write_error is not None and size > len(self._node.seen):
            raise OSError(self._disk.write_error, os.strerror(self._disk.write_error), self._path)
        self._node.change(_Change(size, None))

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._node, self._path)
        self._check()

    def datasync(self) -> None:
        self.sync()

    def discard_cache(self) -> None:
        self._check()
        self._node.seen = bytearray(self._node.durable)
        for change in self._node.unsynced:
            _apply(self._node.seen, change)

    def try_lock(self, size: int) -> bool:
        self._check()
        holder = self._node.locked_by
        if holder is not None and holder.alive:
            return False
        self._node.locked_by = self._process
        return True

    def close(self) -> None:
        if self._open and self._node.locked_by is self._process:
            self._node.locked_by = None
        self._open = False

    def _check(self) -> None:
        if self._process is not None and not self._process.alive:
            raise ProcessEndedError
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class SimulatedFiles(Files):
    """The files of one process on the disk of its host; without a process, those of a tool that looks at the disk."""

    def __init__(self, disk: SimulatedDisk, process: Process | None, *, clock_error_s: float = 0.0) -> None:
        """``clock_error_s``: how wrong the clock of the host is."""
        self._disk = disk
        self._process = process
        self._clock_error_s = clock_error_s

    def open(self, path: str, *, create: bool) -> SimulatedFile:
        self._check()
        node = self._disk.node(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if self._disk.write_error is not None:
                raise OSError(self._disk.write_error, os.strerror(self._disk.write_error), path)
            node = _Node()
            self._disk.enter(path, node)
        elif node.locked_by is not None and node.locked_by is self._process:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        return SimulatedFile(self._disk, self._process, path, node)

    def exists(self, path: str) -> bool:
        self._check()
        return self._disk.node(path) is not None or path in self._disk.directories()

    def list_directory(self, path: str) -> list[str]:
        self._check()
        return self._disk.names(path)

    def make_directory(self, path: str) -> None:
        self._check()
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._disk.directories().add(path)

    def remove(self, path: str) -> None:
        self._check()
        self._existing(path)
        self._disk.enter(path, None)

    def rename(self, source: str, target: str) -> None:
        self._check()
        node = self._existing(source)
        self._disk.enter(target, node)
        self._disk.enter(source, None)

    def sync_directory(self, path: str) -> None:
        self._check()
        self._disk.sync_directory(path)
        self._check()

    def time_ms(self) -> int:
        seconds = 0.0 if self._process is None else self._process.loop.time()
        return 1_700_000_000_000 + int((seconds + self._clock_error_s) * 1000)

    async def run(self, function: Callable[[], T]) -> T:
        process = self._process
        assert process is not None
        future: asyncio.Future[T] = process.loop.create_future()
        process.call_later(self._disk.delay_s(), self._call, function, future)
        cancelled = False
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                cancelled = True
            except Exception:
                break
        if cancelled:
            future.exception()  # what went wrong concerns nobody any more
            raise asyncio.CancelledError
        return future.result()

    def _call(self, function: Callable[[], T], future: asyncio.Future[T]) -> None:
        process = self._process
        assert process is not None
        settle: Callable[[], None]
        try:
            settle = functools.partial(future.set_result, function())
        except ProcessEndedError:
            return
        except Exception as error:
            settle = functools.partial(future.set_exception, error)
        process.call_later(self._disk.delay_s() / 2, settle)

    def _existing(self, path: str) -> _Node:
        node = self._disk.node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _check(self) -> None:
        if self._process is not None and not self._process.alive:
            _end()


def _end() -> NoReturn:
    raise ProcessEndedError
