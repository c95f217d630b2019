"""Cuts the lines between two processes, while each of them still reaches all others.

All who connect to a node come through the same relay. It asks the kernel whose the other end of a connection is.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

TABLE = Path("/proc/net/tcp")


class Pairs:
    """The lines between processes. ``processes`` tells the names and process ids of those that run."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._lines: dict[tuple[str, str], asyncio.Event] = {}

    def line(self, source: str, target: str) -> asyncio.Event:
        """Set while bytes come through between a process and a node that it connects to."""
        if (source, target) not in self._lines:
            self._lines[source, target] = asyncio.Event()
            self._lines[source, target].set()
        return self._lines[source, target]

    def of(self, target: str) -> Callable[[int], asyncio.Event]:
        """For the relay of a node: the line of a connection from that port."""
        return lambda port: self.line(owner_of(port, self._processes()), target)


def owner_of(port: int, processes: Mapping[str, int], table: Path = TABLE) -> str:
    """The process with the end of a connection at that port of the loopback interface; empty if it is none of them."""
    links = {f"socket:[{inode}]" for inode in _inodes(port, table)}
    if links:
        for name, process_id in processes.items():
            if _holds(process_id, links):
                return name
    return ""


def _inodes(port: int, table: Path) -> Iterator[str]:
    """Of all sockets at that port: others of the machine may have the same one, with another peer."""
    wanted = f":{port:04X}"
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted) and fields[9] != "0":
            yield fields[9]


def _holds(process_id: int, links: Set[str]) -> bool:
    directory = f"/proc/{process_id}/fd"
    try:
        names = os.listdir(directory)
    except OSError:  # it has ended
        return False
    for name in names:
        try:
            if os.readlink(f"{directory}/{name}") in links:
                return True
        except OSError:  # it was closed meanwhile
            continue
    return False
