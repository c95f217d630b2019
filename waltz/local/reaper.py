"""Kill processes that must not outlive the one that started them.

Used as a script, ``python -I -S reaper.py``, by :mod:`waltz.local.processes`, with standard input a pipe from the
owner, which writes a line ``add ID`` or ``forget ID`` for each of its children's process groups. When the owner is
gone, however it ended, the reaper kills the remaining groups. It is a process of its own because the kernel's "die with
the parent" means the *thread* that forked, and needs only the standard library, so that it starts quickly.
"""

import os
import select
import signal
import sys

_POLL_INTERVAL_S = 1.0
"""Interval of checks of the parent, in case another process inherited the pipe and keeps it open."""


def main() -> int:
    """Listen until the owner is gone, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = os.getppid()
    groups: set[int] = set()
    rest = b""
    while os.getppid() == owner:
        if not select.select([0], [], [], _POLL_INTERVAL_S)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            break
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            word, group = line.split()
            (groups.add if word == b"add" else groups.discard)(int(group))
    for left in groups:
        try:
            os.killpg(left, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
