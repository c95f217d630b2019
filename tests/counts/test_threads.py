"""What a write and sync costs on the operating system's own files and threads, which no simulation has."""

import asyncio
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from waltz.storage.disk.files.disk_pace import DiskPace
from waltz.storage.disk.files.files import GroupSync, OsFiles

WRITES = 20
SYSTEM_CALLS = {
    **dict.fromkeys(("pwrite", "pwritev", "write", "writev"), "write"),
    **dict.fromkeys(("eventfd_write", "send", "sendmsg", "sendto"), "send"),
    **dict.fromkeys(("eventfd_read", "pread", "read", "recv", "recv_into"), "receive"),
    **dict.fromkeys(("fdatasync", "fsync"), "sync"),
    **dict.fromkeys(("poll", "select"), "poll"),
}
"""Functions in C that are system calls, and of which kind."""


class _Selector(selectors.EpollSelector):
    """Says when the loop waits, so that a thread can return at a moment that does not depend on chance."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:
            self.waiting.set()
        ready = super().select(timeout)
        self.waiting.clear()
        return ready


Write = Callable[[OsFiles, Callable[[], None]], Awaitable[None]]


def cost(write: Write, path: Path, *, in_thread: bool) -> Counter[str]:
    """System calls of writes one after the other, by kind."""
    return system_calls(write, path, WRITES, in_thread) - system_calls(write, path, 0, in_thread)


def system_calls(write: Write, path: Path, writes: int, in_thread: bool) -> Counter[str]:
    """The same, with those of a loop that begins and ends. A thread does its work when the loop waits for it."""
    selector = _Selector()
    counts: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in SYSTEM_CALLS:
            counts[SYSTEM_CALLS[argument.__name__]] += 1

    async def main() -> None:
        files = OsFiles()
        file = files.open(str(path), create=True)
        group = GroupSync(file)

        def write_and_sync() -> None:
            if in_thread:
                assert selector.waiting.wait(60.0)
            group.write_and_sync(0, [b"record"])

        for _ in range(writes):
            await write(files, write_and_sync)
        file.close()
        files.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.get_loop()
        before = sys.getprofile()
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            runner.run(main())
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
    return counts


def test_a_thread_that_writes_wakes_the_loop_up_once(tmp_path: Path) -> None:
    counts = cost(OsFiles.run, tmp_path / "file", in_thread=True)
    assert counts == {
        "write": WRITES,
        "sync": WRITES,
        "send": WRITES,  # to the loop's own socket
        "receive": 2 * WRITES,  # from it, until it is empty
        "poll": 2 * WRITES,  # for it, and before what waited goes on
    }


def test_a_brief_write_of_a_fast_disk_is_two_system_calls(tmp_path: Path) -> None:
    with mock.patch.object(DiskPace, "brief", return_value=True):
        counts = cost(OsFiles.run_brief, tmp_path / "file", in_thread=False)
    assert counts == {"write": WRITES, "sync": WRITES}


def test_a_thread_more_is_noticed(tmp_path: Path) -> None:
    async def run_twice(files: OsFiles, function: Callable[[], None]) -> None:
        await files.run(lambda: None)
        await files.run(function)

    once, twice = (cost(write, tmp_path / "file", in_thread=True) for write in (OsFiles.run, run_twice))
    assert twice["send"] == 2 * once["send"]
