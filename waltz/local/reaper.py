"""Kills processes that must not outlive the process that has started them.

Started as a script, ``python -I -S reaper.py``, by :mod:`waltz.local.processes`. Standard input is a pipe from the
owner, which writes a line ``add ID`` or ``forget ID`` for the process group of each child. After any end of the owner,
the reaper kills the remaining groups. The reaper is a process of its own, because the kernel's "die with the parent"
concerns the *thread* that has forked. It imports the standard library only, so that it starts quickly.
"""

import os
import select
import signal
import sys

_POLL_INTERVAL_S = 1.0
"""Interval of the checks of the parent, in case another process has inherited the pipe and keeps it open."""


def main() -> int:
    """Listen until the owner has ended, then kill."""
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
