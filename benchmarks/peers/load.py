"""Keeps a number of appends in flight, and says what they cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.peers.peer import Running
from benchmarks.peers.processes import cpu_seconds

WARM_UP_SHARE = 0.2
"""Of the time of a measurement; what is appended before counts for nothing."""


class Cost(NamedTuple):
    """Of one measurement."""

    appends: int
    seconds: float
    p50_s: float
    p99_s: float
    client_cpu_s: float
    """Of this process, which loads the peer."""
    peer_cpu_s: float
    """Of all processes of the peer together."""

    @property
    def rate(self) -> float:
        """Appends per second."""
        return self.appends / self.seconds


async def measure(running: Running, payload: bytes, in_flight: int, seconds: float) -> Cost:
    """Append for so long; a warm-up comes first."""
    await append_for(running.append, payload, in_flight, seconds * WARM_UP_SHARE)
    peer_before, client_before, started = cpu_seconds(running.process_ids), time.process_time(), time.perf_counter()
    latencies = sorted(await append_for(running.append, payload, in_flight, seconds))
    elapsed_s = time.perf_counter() - started
    client_cpu_s, peer_cpu_s = time.process_time() - client_before, cpu_seconds(running.process_ids) - peer_before
    return Cost(len(latencies), elapsed_s, share(latencies, 0.5), share(latencies, 0.99), client_cpu_s, peer_cpu_s)


async def append_for(
    append: Callable[[bytes], Awaitable[object]], payload: bytes, in_flight: int, seconds: float
) -> list[float]:
    """Start appends for so long, ``in_flight`` at a time; how long each took. At least one of each."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        started = time.perf_counter()
        while True:
            await append(payload)
            finished = time.perf_counter()
            latencies.append(finished - started)
            if finished >= end:
                return
            started = finished

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_the_other())
    return latencies


def share(ordered: list[float], part: float) -> float:
    """The value below which this part of the ordered values lies."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
