"""What a peer is: what it needs, how it is started, how it is appended to, and what that promises."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

SYSTEM_DIRECTORIES = ("/usr/sbin", "/usr/local/sbin", str(Path(sys.executable).parent))
"""Where distributions put servers, and where packages of this environment put programs; not on everybody's path."""

LOOPBACK = "127.0.0.1"


class Program(NamedTuple):
    """A program that a peer consists of."""

    name: str
    how: str
    """How it is obtained."""
    directories: tuple[str, ...] = ()
    """Further places to look in, as patterns below the root; the last one that matches counts."""

    def find(self) -> str | None:
        """Where it is; ``None`` if it is not installed."""
        elsewhere = [*SYSTEM_DIRECTORIES, *(str(found) for pattern in self.directories for found in matching(pattern))]
        return shutil.which(self.name) or shutil.which(self.name, path=os.pathsep.join(reversed(elsewhere)))


class Module(NamedTuple):
    """A Python module that a peer's client is."""

    name: str
    how: str

    def find(self) -> str | None:
        """Where it is; ``None`` if it is not installed."""
        found = importlib.util.find_spec(self.name)
        return None if found is None else found.origin or self.name


class Running(NamedTuple):
    """A peer that takes appends."""

    append: Callable[[bytes], Awaitable[object]]
    """Returns when the append is acknowledged."""
    process_ids: Collection[int]
    """The processes that the peer consists of, not with their children."""
    promise: str
    """What is true of an append when it is acknowledged."""


class Peer(NamedTuple):
    """Something that stores what it is given in several places before it acknowledges it."""

    name: str
    needs: tuple[Program | Module, ...]
    start: Callable[[Path, int], AbstractAsyncContextManager[Running]]
    """Starts it in a directory, for so many appends in flight at most."""


def matching(pattern: str) -> list[Path]:
    """The directories that a pattern like ``/usr/lib/postgresql/*/bin`` stands for, the newest version last."""
    root = Path("/")
    return sorted(root.glob(pattern.lstrip("/")), key=_numbers)


def _numbers(path: Path) -> list[tuple[int, str]]:
    """Sorts versions as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in path.parts]


def program(name: str, needs: Iterable[Program | Module]) -> str:
    """The path of one of the programs that are needed, which was found before."""
    (path,) = (need.find() for need in needs if isinstance(need, Program) and need.name == name)
    assert path is not None, f"{name} is missing"
    return path


def missing(peer: Peer) -> list[str]:
    """What has to be installed before a peer can run, in words."""
    return [
        f"{'program' if isinstance(need, Program) else 'Python module'} {need.name}: {need.how}"
        for need in peer.needs
        if need.find() is None
    ]
