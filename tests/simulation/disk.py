"""A simulated disk, and the files interface of the storage node on top of it.

What a process writes is seen by every reader at once and is durable only after a sync, file by file; the same holds for
directory entries. A loss of power keeps, of everything unsynced, an arbitrary part: sectors of a write independently of
each other, directory changes in order. A process that is merely killed loses nothing.
"""

import asyncio
import contextvars
import errno
import functools
import os
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, NoReturn, TypeVar

from tests.simulation.loop import Process, ProcessState
from waltz.storage.disk.files.disk_pace import DiskPace
from waltz.storage.disk.files.files import File, Files

T = TypeVar("T")

SECTOR_BYTES = 512
"""Size of the unit that a disk writes as a whole or not at all."""

PLENTY_BYTES = 1 << 40
"""Room on a disk."""

DELAY_MAX_S = 30.0
"""The longest that one call takes, however slow the disk is: what began during a fault must end some time after it."""


class ProcessEndedError(BaseException):
    """The process died within a blocking call; whatever it still tries has no effect. No code catches this."""


class HungError(BaseException):
    """The call never returns. Leaves the function that made it, without a trace; no code catches this."""


CALLS = (
    *("read", "write", "grow", "shrink", "sync", "open", "create", "rename", "remove"),
    *("make-directory", "sync-directory", "list", "stat"),
)
"""Kinds of calls that can fail."""


def _nothing() -> None:
    pass


def _everything(path: str) -> bool:
    return True


class _Change(NamedTuple):
    """A write (``data``) or a change of size (``data`` is None)."""

    offset: int
    data: bytes | None

    @property
    def end(self) -> int:
        """Where it ends; the new size, for a change of size."""
        return self.offset if self.data is None else self.offset + len(self.data)


class _Node:
    """A file: what readers see, and what survives."""

    __slots__ = ("bad_sectors", "durable", "locked_by", "seen", "unsynced")

    def __init__(self, durable: bytes = b"") -> None:
        self.seen = bytearray(durable)
        self.durable = bytearray(durable)
        self.unsynced: list[_Change] = []
        self.locked_by: Process | None = None
        self.bad_sectors: set[int] = set()
        """Numbers of sectors that the medium does not give back, until they are written again."""

    def change(self, change: _Change) -> None:
        _apply(self.seen, change)
        self.unsynced.append(change)
        if self.bad_sectors:
            end = len(self.seen) if change.data is None else change.end
            written = range(change.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))
            self.bad_sectors = {
                number
                for number in self.bad_sectors
                if number not in written and number * SECTOR_BYTES < len(self.seen)
            }

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def lose_power(self, random_source: random.Random) -> None:
        self.keep_some(random_source)
        self.seen = bytearray(self.durable)
        self.locked_by = None

    def keep_some(self, random_source: random.Random) -> None:
        """Make an arbitrary part of the unsynced changes durable, and drop the rest."""
        if self.unsynced:
            self.durable = surviving(self.durable, self.unsynced, random_source)
        self.unsynced.clear()


def surviving(durable: bytearray, changes: Sequence[_Change], random_source: random.Random) -> bytearray:
    """What a loss of power may leave of unsynced changes over a durable state.

    Of the writes to one sector the first few have happened, of each sector as many as chance wants. Changes of size are
    metadata: the first few have happened, and what was written behind such a place comes after it. The size may be
    ahead of the data; then zeros fill the gap.
    """
    fate = random_source.random()
    if fate < 0.3:
        return durable
    left = bytearray(durable)
    if fate < 0.7:
        count = len(changes) if fate < 0.6 else random_source.randint(0, len(changes))
        for change in changes[:count]:
            _apply(left, change)
        return left
    resized = [at for at, change in enumerate(changes) if change.data is None]
    done = random_source.randint(0, len(resized))
    for at in resized[:done]:
        _apply(left, changes[at])
    size = len(left)
    begin = resized[done - 1] + 1 if done else 0
    for number, writes in _writes_by_sector(changes).items():
        start, end = number * SECTOR_BYTES, (number + 1) * SECTOR_BYTES
        before = [at for at in resized[:done] if changes[at].offset < end]
        after = [at for at in resized[done:] if changes[at].offset < end]
        least = before[-1] + 1 if before else 0
        most = after[0] if after else len(changes)
        count = random_source.choice([least, *(at + 1 for at in writes if least <= at < most)])
        happened = [at for at in sorted((*before, *writes)) if at < count]
        left.extend(bytes(max(end - len(left), 0)))
        left[start:end] = _sector_after(durable, start, [changes[at] for at in happened])
        size = max([size, *(min(changes[at].end, end) for at in happened if at >= begin)])
    if fate > 0.9:
        size = max([size, *(change.end for change in changes[begin : resized[done] if done < len(resized) else None])])
    del left[size:]
    return left.ljust(size, b"\0")


def _writes_by_sector(changes: Sequence[_Change]) -> dict[int, list[int]]:
    """Which of the changes write to each sector, in order."""
    touched: dict[int, list[int]] = {}
    for at, change in enumerate(changes):
        if change.data:
            for number in range(change.offset // SECTOR_BYTES, -(-change.end // SECTOR_BYTES)):
                touched.setdefault(number, []).append(at)
    return touched


def _sector_after(durable: bytearray, start: int, changes: Sequence[_Change]) -> bytes:
    """The sector that begins at ``start``, after these changes; what the file has not got are zeros."""
    sector = durable[start : start + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
    for offset, data in changes:
        place = max(offset - start, 0)
        if data is None:
            sector[place:] = bytes(SECTOR_BYTES - place)
        else:
            piece = data[max(start - offset, 0) : start + SECTOR_BYTES - offset]
            sector[place : place + len(piece)] = piece
    return bytes(sector)


def _apply(content: bytearray, change: _Change) -> None:
    offset, data = change
    if data is None:
        del content[offset:]
    missing = offset - len(content)
    if missing > 0:
        content.extend(bytes(missing))
    if data is not None:
        content[offset : offset + len(data)] = data


_dirname = functools.cache(posixpath.dirname)

_DIRECTORY = _Node()
"""Stands for every directory among the entries of a disk."""


class _DirectoryChange(NamedTuple):
    """What happens to entries of one directory, as a whole or not at all: their paths, and what they are then."""

    directory: str
    entries: tuple[tuple[str, _Node | None], ...]


@dataclass(slots=True)
class Trouble:
    """Calls of some kinds, on some files, that fail."""

    kinds: frozenset[str]
    """The calls that fail, of :data:`CALLS`."""
    error: int | None
    """``errno``; ``None``: the calls never return."""
    concerns: Callable[[str], bool] = _everything
    times: int | None = None
    """Number of calls that fail; ``None``: all, until the trouble is over."""

    def meets(self, kind: str, path: str) -> bool:
        """Whether a call fails; counts it if it does."""
        if kind not in self.kinds or self.times == 0 or not self.concerns(path):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class SimulatedDisk:
    """The disk of one host. It outlives the processes; :meth:`lose_power` is called when the host goes down hard."""

    def __init__(self, random_source: random.Random, directory: str, *, delay_factor: float = 1.0) -> None:
        """``directory`` exists from the beginning and is empty. ``delay_factor``: how slow it is in ordinary times."""
        self.delay_factor = delay_factor
        self.slowness = 1.0
        """How much slower than in ordinary times it is."""
        self.troubles: list[Trouble] = []
        """The present troubles of the disk."""
        self.operations_until_crash: int | None = None
        """After so many writes, syncs and changes of directories :attr:`crash` is called, in the middle of the last."""
        self.crash_behind: Callable[[str, str], bool] | None = None
        """Behind the next call whose kind and path it accepts :attr:`crash` is called, before any other call."""
        self._crash_is_due = False
        self.crash: Callable[[], None] = _nothing
        self.hung: Process | None = None
        """The last process of which a call has not returned and never will."""
        self.unwinding = False
        """Whether a call that never returns is just being left: what is done on the way out is not done."""
        self._random = random_source
        self._seen: dict[str, _Node] = {directory: _DIRECTORY}
        self._durable: dict[str, _Node] = {directory: _DIRECTORY}
        self._unsynced: list[_DirectoryChange] = []

    # What faults and checkers call

    def lose_power(self) -> None:
        """Forget what is not durable, except for an arbitrary part."""
        journal = self._random.randint(0, len(self._unsynced))
        for change in self._unsynced[:journal]:
            _enter(self._durable, change)
        self._unsynced.clear()
        for path in sorted(self._durable):
            if path.count("/") > 1 and _dirname(path) not in self._durable:
                del self._durable[path]
        self._seen = dict(self._durable)
        for node in self._seen.values():
            node.lose_power(self._random)

    def heal(self) -> None:
        """End all troubles; what the medium has lost stays lost."""
        self.slowness, self.operations_until_crash = 1.0, None
        self.crash_behind, self._crash_is_due = None, False
        self.troubles.clear()

    def flip_bit(
        self,
        choose: Callable[[str], bool],
        *,
        within: bytes | None = None,
        after: int = 0,
        draw: random.Random | None = None,
    ) -> str | None:
        """Damage one durable bit of a file that ``choose`` accepts, as if the medium had; says where.

        ``within``: somewhere in these bytes of it; ``after``: not before this offset. None without such a place.
        """
        draw = self._random if draw is None else draw
        places: list[tuple[str, int, int]] = []
        for path, node in sorted(self._seen.items()):
            if choose(path):
                start = after if within is None else node.durable.find(within)
                end = len(node.durable) if within is None else start + len(within)
                if 0 <= start < end:
                    places.append((path, start, end))
        if not places:
            return None
        path, start, end = draw.choice(places)
        node, offset, mask = self._seen[path], draw.randrange(start, end), 1 << draw.randrange(8)
        node.durable[offset] ^= mask
        if offset < len(node.seen):
            node.seen[offset] ^= mask
        return f"{path} byte {offset}"

    def lose_sector(self, choose: Callable[[str], bool]) -> str | None:
        """Make a sector unreadable until it is written again; says where, None without a file."""
        paths = sorted(path for path, node in self._seen.items() if node.durable and choose(path))
        if not paths:
            return None
        path = self._random.choice(paths)
        number = self._random.randrange(-(-len(self._seen[path].durable) // SECTOR_BYTES))
        self._seen[path].bad_sectors.add(number)
        return f"{path} sector {number}"

    def not_durable(self, path: str, *, content: bool = True) -> str | None:
        """What of a file a loss of power may take away, if anything: its name, or a part of its content."""
        node, directory = self._seen.get(path), _dirname(path)
        if node is None:
            return f"{path} is not there"
        if self._durable.get(path) is not node or directory not in self._durable:
            return f"the name {path} is not durable"
        if content and node.unsynced:
            return f"{path} is not synced"
        return None

    def holds_for_certain(self, path: str, piece: bytes) -> bool:
        """Whether a file holds these bytes after any loss of power."""
        node = self._durable.get(path)
        return node is not None and node.durable.rfind(piece) >= 0

    def durable_size(self, path: str) -> int:
        """Size of a file after a loss of power without any luck."""
        node = self._durable.get(path)
        return 0 if node is None else len(node.durable)

    @property
    def file_count(self) -> int:
        """Number of files and directories that any loss of power would leave."""
        return len(self._durable)

    def durable_content(self, path: str, start: int, end: int) -> bytes:
        """A part of what a file holds after any loss of power."""
        node = self._durable.get(path)
        return b"" if node is None else bytes(node.durable[start:end])

    def durable_copy(self) -> "SimulatedDisk":
        """A disk that holds what would be left after a loss of power without any luck."""
        copy = SimulatedDisk(random.Random(0), "/")
        for path, node in self._durable.items():
            twin = _DIRECTORY if node is _DIRECTORY else _Node(bytes(node.durable))
            twin.bad_sectors |= node.bad_sectors
            copy._seen[path] = copy._durable[path] = twin
        return copy

    def clear(self) -> None:
        """Forget all files, because objects with cycles keep the disk in memory for as long as nothing is collected."""
        self._seen.clear()
        self._durable.clear()

    def replace(self, image: "SimulatedDisk") -> None:
        """Put in a medium with what is durable on another; the machine is off."""
        copy = image.durable_copy()
        self._seen, self._durable = copy._seen, copy._durable
        self._unsynced.clear()

    def exchange(self, other: "SimulatedDisk") -> None:
        """Put the medium of one into the other, and the other way round; the machines are off."""
        assert not self._unsynced
        assert not other._unsynced
        self._seen, other._seen = other._seen, self._seen
        self._durable, other._durable = other._durable, self._durable

    # What files ask

    def check(self, kind: str, path: str) -> None:
        """Fail as the troubles demand, if a call of this kind is about to."""
        if self.unwinding:
            raise HungError
        if self._crash_is_due:
            self._crash_is_due = False
            self.crash()
            raise ProcessEndedError
        if self.crash_behind is not None and self.crash_behind(kind, path):
            self.crash_behind, self._crash_is_due = None, True
        if not self.troubles:
            return
        for trouble in self.troubles:
            if trouble.meets(kind, path):
                if trouble.error is None:
                    self.unwinding = True
                    raise HungError
                raise OSError(trouble.error, os.strerror(trouble.error), path)

    def node(self, path: str) -> _Node | None:
        """The file of that name."""
        return self._seen.get(path)

    def enter(self, kind: str, *entries: tuple[str, _Node | None]) -> None:
        """Change entries of one directory."""
        path = entries[0][0]
        self.check(kind, path)
        directory = _dirname(path)
        if directory not in self._seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        change = _DirectoryChange(directory, entries)
        _enter(self._seen, change)
        self._unsynced.append(change)
        self.count_operation()

    def make_directory(self, path: str) -> None:
        """Add a directory."""
        self.enter("make-directory", (path, _DIRECTORY))

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        if directory not in self._seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        return sorted({posixpath.basename(path) for path in self._seen if _dirname(path) == directory} - {""})

    def sync_directory(self, directory: str) -> None:
        """Make the changes of one directory durable."""
        self.check("sync-directory", directory)
        self.count_operation()
        for change in self._unsynced:
            if change.directory == directory:
                _enter(self._durable, change)
        self._unsynced = [change for change in self._unsynced if change.directory != directory]

    def count_operation(self) -> None:
        """One more write, sync or change of a directory; perhaps the one in which the host goes down."""
        if self.operations_until_crash is None:
            return
        self.operations_until_crash -= 1
        if self.operations_until_crash <= 0:
            self.operations_until_crash = None
            self.crash()
            raise ProcessEndedError

    def write(self, node: _Node, path: str, offset: int, data: bytes) -> None:
        """Write, or fail as the troubles demand; then a part may have been written."""
        try:
            self.check("write", path)
        except OSError:
            done = self._random.randint(0, len(data) - 1) if data else 0
            if done:
                node.change(_Change(offset, data[:done]))
            raise
        node.change(_Change(offset, data))
        self.count_operation()

    def resize(self, node: _Node, path: str, size: int) -> None:
        """Cut a file, or let it grow."""
        self.check("shrink" if size <= len(node.seen) else "grow", path)
        node.change(_Change(size, None))
        self.count_operation()

    def sync(self, node: _Node, path: str) -> None:
        """Sync, or fail as the troubles demand."""
        try:
            self.check("sync", path)
        except OSError:
            node.keep_some(self._random)
            raise
        self.count_operation()
        node.sync()

    def delay_s(self) -> float:
        """How long one blocking call takes."""
        draw = self._random.random()
        delay_s = 0.0002 + 0.002 * draw * draw
        if draw > 0.998:
            delay_s += 0.1 * self._random.random()
        return min(delay_s * self.delay_factor * self.slowness, DELAY_MAX_S)


def _enter(entries: dict[str, _Node], change: _DirectoryChange) -> None:
    for path, node in change.entries:
        if node is None:
            entries.pop(path, None)
        else:
            entries[path] = node


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
        self._disk.check("read", self._path)
        bad = self._node.bad_sectors
        if bad and any(number in bad for number in range(offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES))):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        return bytes(self._node.seen[offset : offset + size])

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        self._check()
        self._disk.write(self._node, self._path, offset, b"".join(chunks))

    def size(self) -> int:
        self._check()
        self._disk.check("stat", self._path)
        return len(self._node.seen)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.resize(self._node, self._path, size)

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._node, self._path)

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
        if self._process is not None and self._process.state is ProcessState.DEAD:
            raise ProcessEndedError
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class _Call(Generic[T]):
    """A call that another thread makes. Whoever waits for it may be cancelled and wait again: the call goes on."""

    __slots__ = ("_error", "_process", "_result", "_waiter", "returned")
    _result: T

    def __init__(self, process: Process) -> None:
        self.returned = False
        self._process = process
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set_result(self, result: T) -> None:
        self._result = result
        self._return()

    def set_exception(self, error: Exception) -> None:
        self._error = error
        self._return()

    def _return(self) -> None:
        self.returned = True
        if self._waiter is not None:
            self._process.call_soon(self._wake, self._waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Until it has returned, which the loop of the process is told by the thread."""
        self._waiter = self._process.loop.create_future()
        await self._waiter

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result


class SimulatedFiles(Files):
    """The files of one process on the disk of its host; without a process, those of a tool that looks at the disk."""

    def __init__(
        self, disk: SimulatedDisk, process: Process | None, *, clock_error_s: Callable[[], float] = float
    ) -> None:
        """``clock_error_s``: how wrong the clock of the host is at present."""
        self._disk = disk
        self._process = process
        self._clock_error_s = clock_error_s
        self._running = 0
        self._pace = DiskPace()

    def open(self, path: str, *, create: bool) -> SimulatedFile:
        self._check()
        node = self._disk.node(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = _Node()
            self._disk.enter("create", (path, node))
            return SimulatedFile(self._disk, self._process, path, node)
        self._disk.check("open", path)
        if node.locked_by is not None and node.locked_by is self._process:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        return SimulatedFile(self._disk, self._process, path, node)

    def exists(self, path: str) -> bool:
        self._check()
        self._disk.check("stat", path)
        return self._disk.node(path) is not None

    def list_directory(self, path: str) -> list[str]:
        self._check()
        self._disk.check("list", path)
        return self._disk.names(path)

    def make_directory(self, path: str) -> None:
        self._check()
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._disk.make_directory(path)

    def remove(self, path: str) -> None:
        self._check()
        self._existing(path)
        self._disk.enter("remove", (path, None))

    def rename(self, source: str, target: str) -> None:
        self._check()
        node = self._existing(source)
        self._disk.enter("rename", (target, node), (source, None))

    def link(self, source: str, target: str) -> None:
        self._check()
        if self._disk.node(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._disk.enter("create", (target, self._existing(source)))

    def sync_directory(self, path: str) -> None:
        self._check()
        self._disk.sync_directory(path)

    def free_bytes(self, path: str) -> int:
        self._check()
        self._disk.check("stat", path)
        return PLENTY_BYTES

    def time_ms(self) -> int:
        seconds = 0.0 if self._process is None else self._process.loop.now_s
        return 1_700_000_000_000 + int((seconds + self._clock_error_s()) * 1000)

    async def run(self, function: Callable[[], T]) -> T:
        process = self._process
        assert process is not None
        call: _Call[T] = _Call(process)
        process.call_later(self._disk.delay_s(), self._execute, function, call, process.call_later)
        cancelled = False
        self._running += 1
        while not call.returned:
            try:
                await call.wait()
            except asyncio.CancelledError:
                cancelled = True
        self._running -= 1
        if cancelled:
            raise asyncio.CancelledError  # what became of the call concerns nobody any more
        return call.result()

    async def run_brief(self, function: Callable[[], T]) -> T:
        process = self._process
        assert process is not None
        began_s = process.loop.now_s
        try:
            if self._running or not self._pace.brief(began_s):
                return await self.run(function)
            return await self._run_and_block(process, function)
        finally:
            ended_s = process.loop.now_s
            self._pace.took(ended_s - began_s, ended_s)

    async def _run_and_block(self, process: Process, function: Callable[[], T]) -> T:
        """Nothing of the process runs before the call has returned, and then first of all what called it."""
        future: asyncio.Future[T] = process.loop.create_future()
        outside = contextvars.Context()

        def execute() -> None:
            if process.alive:
                process.context.copy().run(self._execute, function, future, return_later)

        def return_later(delay_s: float, settle: Callable[[], None]) -> None:
            process.loop.call_later(delay_s, return_now, settle, context=outside)

        def return_now(settle: Callable[[], None]) -> None:
            if process.alive:
                settle()
                process.unblock()

        process.block()
        process.loop.call_later(self._disk.delay_s(), execute, context=outside)
        return await future

    def _execute(
        self,
        function: Callable[[], T],
        future: "asyncio.Future[T] | _Call[T]",
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        process = self._process
        assert process is not None
        settle: Callable[[], None]
        try:
            settle = functools.partial(future.set_result, function())
        except ProcessEndedError:
            return
        except HungError:
            self._disk.unwinding, self._disk.hung = False, process
            return
        except Exception as error:
            settle = functools.partial(future.set_exception, error)
        call_later(self._disk.delay_s() / 2, settle)

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
