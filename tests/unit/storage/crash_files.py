"""Files in memory that lose at a crash what was not synced, tear the write in flight, and fail when told to."""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from waltz.storage.disk.files.files import File, Files

T = TypeVar("T")

SECTOR_BYTES = 512

Change = tuple[int, bytes | None]
"""A write at an offset, or (``None``) a truncation to a size."""


class CrashNow(BaseException):
    """The process dies here."""


def _apply(content: bytearray, change: Change) -> None:
    offset, data = change
    if data is None:
        if offset < len(content):
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _tear(content: bytearray, offset: int, data: bytes, choices: random.Random) -> None:
    """Let a write reach the medium in part: up to some byte, or some of its sectors in no order.

    A file may end at any byte; a sector of what was there before is overwritten as a whole or not at all.
    """
    if choices.random() < 0.5:
        end = offset + choices.randint(0, len(data))
        if end < len(content):
            end -= end % SECTOR_BYTES
        _apply(content, (offset, data[: max(end - offset, 0)]))
        return
    start, end = offset, offset + len(data)
    while start < end:
        sector_end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, end)
        if choices.random() < 0.5:
            _apply(content, (start, data[start - offset : sector_end - offset]))
        start = sector_end


@dataclass(eq=False)
class Node:
    """A file: what a reader sees, what the medium holds, and the changes between."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    locked: bool = False

    def change(self, change: Change) -> None:
        _apply(self.content, change)
        self.pending.append(change)

    def settle(self, count: int) -> None:
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]

    def tear(self, choices: random.Random) -> None:
        """Each sector keeps one of the versions that it has had since the last sync; so does the size of the file."""
        if not self.pending:
            return
        versions = [bytes(self.durable)]
        for change in self.pending:
            changed = bytearray(versions[-1])
            _apply(changed, change)
            versions.append(bytes(changed))
        size = len(choices.choice(versions))
        torn = bytearray()
        for start in range(0, size, SECTOR_BYTES):
            sector = choices.choice(versions)[start : start + SECTOR_BYTES]
            torn += sector.ljust(SECTOR_BYTES, b"\0")
        self.durable = torn[:size]
        self.content = bytearray(self.durable)
        self.pending.clear()


class Link(NamedTuple):
    """A symbolic link to a directory, by its whole path."""

    target: str


@dataclass(eq=False)
class Directory:
    """Names now, names on the medium, and the changes between (``None``: removed)."""

    names: dict[str, "Node | Directory | Link"] = field(default_factory=dict)
    durable: dict[str, "Node | Directory | Link"] = field(default_factory=dict)
    pending: list[dict[str, "Node | Directory | Link | None"]] = field(default_factory=list)

    def change(self, change: dict[str, "Node | Directory | Link | None"]) -> None:
        self._apply(self.names, change)
        self.pending.append(change)

    def settle(self, count: int) -> None:
        for change in self.pending[:count]:
            self._apply(self.durable, change)
        del self.pending[:count]

    @staticmethod
    def _apply(
        names: dict[str, "Node | Directory | Link"], change: dict[str, "Node | Directory | Link | None"]
    ) -> None:
        for name, node in change.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class CrashFiles(Files):
    """A file system in memory; directory ``/`` exists and is durable."""

    def __init__(self) -> None:
        self.root = Directory()
        self.generation = 0
        self.open_files = 0
        self.operations: list[str] = []
        self.on_operation: Callable[[str], None] | None = None
        self._fault: tuple[str | None, int, BaseException, int | None] | None = None

    # Faults

    def fail(
        self, error: BaseException, *, operation: str | None = None, after: int = 0, short: int | None = None
    ) -> None:
        """Let the ``after + 1``-th operation of that name (of any name) fail; a write has written ``short`` bytes."""
        self._fault = operation, after, error, short

    def clear_fault(self) -> bool:
        """Forget a fault; whether it had not happened yet."""
        unused, self._fault = self._fault is not None, None
        return unused

    def crash(self, choices: random.Random) -> None:
        """Power off and on: of what was not synced some prefix remains, per file and directory, the last write torn."""
        self.restart()
        self._crash_directory(self.root, choices)

    def tear(self, choices: random.Random) -> None:
        """Power off and on: each sector of a file is as after one of the writes since the last sync, or as before."""
        self.restart()
        self._tear_directory(self.root, choices)

    def restart(self) -> None:
        """Only the process dies: everything written stays in the cache."""
        self.generation += 1
        self.open_files = 0
        self._fault = None
        self._unlock(self.root)

    def _unlock(self, directory: Directory) -> None:
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._unlock(node)
            elif isinstance(node, Node):
                node.locked = False

    def _crash_directory(self, directory: Directory, choices: random.Random) -> None:
        directory.settle(choices.randint(0, len(directory.pending)))
        directory.pending.clear()
        directory.names = dict(directory.durable)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._crash_directory(node, choices)
            if not isinstance(node, Node):
                continue
            node.settle(choices.randint(0, len(node.pending)))
            if node.pending:
                offset, data = node.pending[0]
                if data is not None:
                    _tear(node.durable, offset, data, choices)
            node.pending.clear()
            node.content = bytearray(node.durable)

    def _tear_directory(self, directory: Directory, choices: random.Random) -> None:
        directory.settle(choices.randint(0, len(directory.pending)))
        directory.pending.clear()
        directory.names = dict(directory.durable)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._tear_directory(node, choices)
            elif isinstance(node, Node):
                node.tear(choices)

    def step(self, operation: str) -> int | None:
        """Count an operation; raises its fault, or returns how much of a write still happens before it is raised."""
        self.operations.append(operation)
        if self.on_operation is not None:
            self.on_operation(operation)
        if self._fault is None:
            return None
        wanted, after, error, short = self._fault
        if wanted not in (None, operation):
            return None
        if after:
            self._fault = wanted, after - 1, error, short
            return None
        if operation == "write" and short is not None:
            return short
        self._fault = None
        raise error

    def raise_fault(self) -> None:
        """Raise the fault of a short write."""
        assert self._fault is not None
        error, self._fault = self._fault[2], None
        raise error

    # The interface

    def open(self, path: str, *, create: bool) -> "CrashFile":
        self.step("open")
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = Node()
            directory.change({name: node})
        assert isinstance(node, Node)
        return CrashFile(self, node)

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        self.step("make_directory")
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        directory.change({name: Directory()})

    def remove(self, path: str) -> None:
        self.step("remove")
        directory, name = self._parent(path)
        self._find(path)
        directory.change({name: None})

    def rename(self, source: str, target: str) -> None:
        self.step("rename")
        directory, name = self._parent(source)
        other, target_name = self._parent(target)
        assert directory is other
        assert not isinstance(directory.names.get(target_name), Directory | Link)
        directory.change({target_name: directory.names[name], name: None})

    def link(self, source: str, target: str) -> None:
        self.step("link")
        directory, name = self._parent(target)
        assert name not in directory.names
        directory.change({name: self._find(source)})

    def link_directory(self, target: str, path: str) -> None:
        self.step("link_directory")
        directory, name = self._parent(path)
        if isinstance(directory.names.get(name), Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        directory.change({name: Link(target)})

    def linked_directory(self, path: str) -> str | None:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        return node.target if isinstance(node, Link) else None

    def remove_directory(self, path: str) -> None:
        self.step("remove_directory")
        directory, name = self._parent(path)
        node = directory.names[name]
        assert isinstance(node, Link) or (isinstance(node, Directory) and not node.names)
        directory.change({name: None})

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.step("sync_directory")
        directory.settle(len(directory.pending))

    def time_ms(self) -> int:
        return 1_577_836_800_000

    async def run(self, function: Callable[[], T]) -> T:
        return function()

    # For tests

    def node(self, path: str) -> Node:
        """The file itself, to look into or to damage."""
        node = self._find(path)
        assert isinstance(node, Node)
        return node

    def contents(self, path: str) -> bytes:
        """What a reader of the file sees."""
        return bytes(self.node(path).content)

    def overwrite(self, path: str, content: bytes) -> None:
        """Replace what the file holds, on the medium too."""
        node = self.node(path)
        node.content, node.durable, node.pending = bytearray(content), bytearray(content), []

    def _find(self, path: str) -> Node | Directory:
        node: Node | Directory = self.root
        for part in path.split("/")[1:] if path != "/" else ():
            if not isinstance(node, Directory) or part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            found = node.names[part]
            node = self._find(found.target) if isinstance(found, Link) else found
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        assert isinstance(node, Directory)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent or "/"), name


class CrashFile(File):
    """An open file in memory."""

    def __init__(self, files: CrashFiles, node: Node) -> None:
        self._files = files
        self._node = node
        self._generation = files.generation
        self._open = True
        self._holds_lock = False
        files.open_files += 1

    def _step(self, operation: str) -> int | None:
        assert self._generation == self._files.generation, "a descriptor does not survive a crash"
        if not self._open:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return self._files.step(operation)

    def read(self, offset: int, size: int) -> bytes:
        self._step("read")
        assert offset >= 0
        assert size >= 0
        return bytes(self._node.content[offset : offset + size])

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        data = b"".join(chunks)
        short = self._step("write")
        if short is None:
            self._node.change((offset, data))
        else:
            self._node.change((offset, data[:short]))
            self._files.raise_fault()

    def size(self) -> int:
        return len(self._node.content)

    def truncate(self, size: int) -> None:
        self._step("truncate")
        self._node.change((size, None))

    def sync(self) -> None:
        self._sync("sync")

    def datasync(self) -> None:
        self._sync("datasync")

    def _sync(self, operation: str) -> None:
        try:
            self._step(operation)
        except OSError:
            # As Linux does it: the pages are lost, yet called clean; no later sync writes them.
            self._node.pending.clear()
            raise
        self._node.settle(len(self._node.pending))

    def discard_cache(self) -> None:
        self._node.content = bytearray(self._node.durable)
        for change in self._node.pending:
            _apply(self._node.content, change)

    def try_lock(self, size: int) -> bool:
        assert size > 0
        if self._node.locked:
            return False
        self._node.locked = self._holds_lock = True
        return True

    def close(self) -> None:
        if self._open and self._generation == self._files.generation:
            self._files.open_files -= 1
            if self._holds_lock:
                self._node.locked = False
        self._open = False
