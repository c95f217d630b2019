"""Metrics of the process and of its event loop's lag, under the usual names of Prometheus.

Unknown values are left out: memory, descriptors and the start time are known on Linux only.
"""

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from waltz.common.metrics.registry import DURATION_BOUNDS_S, Description, Readings, Registry

LAG_INTERVAL_S = 0.5
"""Interval of the measurements of the event loop's lag."""

_SELF = Path("/proc/self")
_START_FIELD = 19
"""Index of the start time among the fields of ``stat`` behind the name of the command."""


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    return int((_SELF / "statm").read_text().split()[1]) * resource.getpagesize()


def _virtual_bytes() -> float:
    return int((_SELF / "statm").read_text().split()[0]) * resource.getpagesize()


def _open_files() -> float:
    names = os.listdir(_SELF / "fd")  # noqa: PTH208 - there may be many thousands
    return len(names) - 1  # without the descriptor of this read


def _max_files() -> float:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _start_s() -> float:
    since_boot_s = int((_SELF / "stat").read_text().rpartition(")")[2].split()[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return int(boot.split()[1]) + since_boot_s


_READ: dict[Description, Callable[[], float]] = {
    Description("process_cpu_seconds_total", "counter", (), "Processor time used, the kernel's included."): _cpu_s,
    Description(
        "process_resident_memory_bytes", "gauge", (), "Memory that is in use, unless swapped."
    ): _resident_bytes,
    Description("process_virtual_memory_bytes", "gauge", (), "Size of the virtual address space."): _virtual_bytes,
    Description("process_open_fds", "gauge", (), "Open files and connections."): _open_files,
    Description("process_max_fds", "gauge", (), "How many files and connections may be open."): _max_files,
    Description("process_start_time_seconds", "gauge", (), "When the process began, since the epoch."): _start_s,
}

_LOOP_LAG = Description(
    "waltz_event_loop_lag_seconds",
    "histogram",
    (),
    f"How late the event loop is, measured every {LAG_INTERVAL_S:g} s.",
)

DESCRIPTIONS = (*_READ, _LOOP_LAG)


def _reading(read: Callable[[], float]) -> Callable[[], Readings]:
    def values() -> Iterator[tuple[tuple[str, ...], float]]:
        with contextlib.suppress(OSError):
            yield (), read()

    return values


@contextlib.contextmanager
def watched_process(registry: Registry, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Show this process's metrics, and measure the lag of the running loop, within the context."""
    for description, read in _READ.items():
        registry.reading(description, _reading(read))
    loop = asyncio.get_running_loop()
    lag = registry.histogram(_LOOP_LAG, DURATION_BOUNDS_S).of()
    timer: asyncio.TimerHandle
    due_s = 0.0

    def set_timer() -> None:
        nonlocal timer, due_s
        due_s = clock() + LAG_INTERVAL_S
        timer = loop.call_later(LAG_INTERVAL_S, look)

    def look() -> None:
        lag.observe(max(clock() - due_s, 0.0))
        set_timer()

    set_timer()
    try:
        yield
    finally:
        timer.cancel()
