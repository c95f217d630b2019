"""What the kernel knows of processes: processor time, context switches, memory, system calls."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster.window import Usage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DETACH_TIMEOUT_S = 20.0
_SCHEDULER_CLOCK = 2
"""``CPUCLOCK_SCHED``: what the scheduler counts, in nanoseconds."""


def usage(process_id: int) -> Usage:
    """Read it."""
    return Usage(cpu_seconds(process_id), _switches(process_id), _resident_mib(process_id))


def cpu_seconds(process_id: int) -> float:
    """User and system time of all threads, ended ones included, to the nanosecond (``clock_getcpuclockid``)."""
    return time.clock_gettime(~process_id << 3 | _SCHEDULER_CLOCK)


def _switches(process_id: int) -> int:
    count = 0
    for status in Path(f"/proc/{process_id}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            count += switches_in(status.read_text())
    return count


def switches_in(status: str) -> int:
    """The context switches that ``/proc/.../status`` tells of."""
    return sum(map(int, re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE)))


def _resident_mib(process_id: int) -> float:
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * _PAGE_BYTES / (1 << 20)


class SystemCalls:
    """Counts the system calls of processes with strace, which slows them down by far: not beside a measurement.

    A context manager; the counts are there when it has ended.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._directory = tempfile.TemporaryDirectory()
        self._tracers: list[subprocess.Popen[bytes]] = []
        self.counts: dict[str, dict[str, int]] = {}
        """By process and system call."""

    def __enter__(self) -> "SystemCalls":
        # What a traced process starts is counted as its own: this process comes last.
        for name, process_id in sorted(self._processes.items(), key=lambda each: each[1] == os.getpid()):
            command = ["strace", "-f", "-c", "-o", str(self._output(name)), "-p", str(process_id)]
            tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self._tracers.append(tracer)
            assert tracer.stderr is not None
            tracer.stderr.readline()  # "Process ... attached"
        return self

    def __exit__(self, *_: object) -> None:
        for tracer in self._tracers:
            tracer.send_signal(signal.SIGTERM)
        for tracer in self._tracers:
            try:
                tracer.communicate(timeout=DETACH_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                tracer.kill()
                tracer.communicate()
                raise
        self.counts = {name: calls_in(self._output(name).read_text()) for name in self._processes}
        self._directory.cleanup()

    def _output(self, name: str) -> Path:
        return Path(self._directory.name, name)


def can_count_system_calls() -> bool:
    """Whether strace is installed."""
    return shutil.which("strace") is not None


def calls_in(summary: str) -> dict[str, int]:
    """The counts in what ``strace -c`` writes, without the line of totals."""
    lines = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", summary, re.MULTILINE)
    return {name: int(count) for count, name in lines if name != "total"}
