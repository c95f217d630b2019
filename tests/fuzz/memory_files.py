"""A directory in memory behind the storage's file interface: no system calls, no crashes, nothing durable."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from waltz.storage.disk.files.files import File, Files

T = TypeVar("T")

DIRECTORY = "/d"


class MemoryFiles(Files):
    """Files by path; the only directory is :data:`DIRECTORY`."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        """``contents`` are the files of the directory by name."""
        self.contents = {f"{DIRECTORY}/{name}": bytearray(content) for name, content in contents.items()}

    def open(self, path: str, *, create: bool) -> "MemoryFile":
        if path not in self.contents:
            if not create:
                raise FileNotFoundError(2, "No such file or directory", path)
            self.contents[path] = bytearray()
        return MemoryFile(self.contents[path])

    def exists(self, path: str) -> bool:
        return path == DIRECTORY or path in self.contents

    def list_directory(self, path: str) -> list[str]:
        return sorted(PurePosixPath(name).name for name in self.contents)

    def make_directory(self, path: str) -> None:
        raise FileExistsError(17, "File exists", path)

    def remove(self, path: str) -> None:
        del self.contents[path]

    def rename(self, source: str, target: str) -> None:
        self.contents[target] = self.contents.pop(source)

    def sync_directory(self, path: str) -> None:
        pass

    def time_ms(self) -> int:
        return 0

    async def run(self, function: Callable[[], T]) -> T:
        return function()


class MemoryFile(File):
    """One open file."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0:
            raise OSError(22, "Invalid argument")
        return bytes(self._content[offset : offset + size])

    def write(self, offset: int, chunks: Sequence[bytes]) -> None:
        if offset < 0:
            raise OSError(22, "Invalid argument")
        data = b"".join(chunks)
        if offset > len(self._content):
            if offset > 1 << 26:
                raise OSError(27, "File too large")
            self._content.extend(bytes(offset - len(self._content)))
        self._content[offset : offset + len(data)] = data

    def size(self) -> int:
        return len(self._content)

    def truncate(self, size: int) -> None:
        if not 0 <= size <= 1 << 26:
            raise OSError(22, "Invalid argument")
        if size < len(self._content):
            del self._content[size:]
        else:
            self._content.extend(bytes(size - len(self._content)))

    def sync(self) -> None:
        pass

    def datasync(self) -> None:
        pass

    def discard_cache(self) -> None:
        pass

    def try_lock(self, size: int) -> bool:
        return True

    def close(self) -> None:
        pass
