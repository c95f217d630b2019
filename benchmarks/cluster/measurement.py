"""How something is measured, whatever it is: under load, between two edges, with the end looked at afterwards."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from benchmarks.cluster.load import Load
from benchmarks.cluster.processes import SystemCalls, usage
from benchmarks.cluster.scenarios import Scenario, Shape
from benchmarks.cluster.summary import Metrics, latency_metrics
from benchmarks.cluster.window import Edge, Progress, batch_costs, call_costs, costs

RAMP_S = 0.25
"""How long a load runs before the window begins."""

WARM_UP_S = 1.0
IN_STEP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.01


class Target(ABC):
    """A cluster with a client that can be measured. ``open`` is for one shape, ``prepare`` for one scenario of it."""

    @abstractmethod
    async def open(self, shape: Shape) -> None:
        """Start the nodes."""

    @abstractmethod
    async def prepare(self, scenario: Scenario) -> None:
        """Connect the clients, and bring the log to the length that is asked for."""

    @property
    @abstractmethod
    def load(self) -> Load | None:
        """What :meth:`prepare` has made; ``None`` when reading is to be measured."""

    @abstractmethod
    async def read(self) -> int:
        """Read the log from its beginning; how many transactions."""

    @abstractmethod
    def processes(self) -> Mapping[str, int]:
        """Ids of the processes that count, by name; several of a kind are ``kind-1``, ``kind-2``."""

    @abstractmethod
    async def progress(self) -> Progress:
        """Ask the nodes how far they are."""

    @abstractmethod
    async def audience_seen(self) -> Metrics:
        """What other clients have seen since the last call."""

    @abstractmethod
    async def finish(self) -> None:
        """Disconnect the clients."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the nodes."""


async def warm_up(target: Target) -> None:
    """A load that nobody measures, or nothing where reading is measured."""
    if target.load is not None:
        target.load.start()
        await asyncio.sleep(WARM_UP_S)
        await target.load.stop()


async def measure(target: Target, scenario: Scenario, seconds: float) -> Metrics:
    """One round."""
    load = target.load
    return await (_reading(target) if load is None else _appending(target, load, scenario, seconds))


async def _reading(target: Target) -> Metrics:
    before = edge(target)
    count = await target.read()
    return costs(before, edge(target), count)


async def _appending(target: Target, load: Load, scenario: Scenario, seconds: float) -> Metrics:
    load.start()
    await asyncio.sleep(RAMP_S)
    progress = await target.progress()
    load.take_latencies()
    load.conflicts = 0
    await target.audience_seen()
    before = edge(target)
    await asyncio.sleep(seconds)
    after = edge(target)
    latencies_s, conflicts = load.take_latencies(), load.conflicts
    metrics = costs(before, after, len(latencies_s)) | latency_metrics(latencies_s)
    metrics |= await target.audience_seen()
    metrics |= batch_costs(progress, await target.progress(), metrics)
    metrics["conflicts"] = conflicts
    if scenario.rate:
        metrics["offered_per_s"] = scenario.rate
    await load.stop()
    return metrics | await in_step(target)


async def in_step(target: Target) -> Metrics:
    """By how much the slowest storage is behind when the last transaction is applied, and for how long.

    Raises ``TimeoutError`` when it does not catch up: then its writes were not part of what was measured.
    """
    began_s = time.perf_counter()
    positions = (await target.progress()).positions
    lag = max(positions) - min(positions)
    async with asyncio.timeout(IN_STEP_TIMEOUT_S):
        while max(positions) != min(positions):
            await asyncio.sleep(POLL_INTERVAL_S)
            positions = (await target.progress()).positions
    return {"lag": lag, "in_step_ms": (time.perf_counter() - began_s) * 1e3 if lag else 0.0}


async def trace(target: Target, seconds: float) -> Metrics:
    """System calls per batch. It slows everything down, so it is a round for itself, of which nothing else counts."""
    load = target.load
    if load is None:
        return {}
    before = await target.progress()
    calls = SystemCalls(target.processes())
    await asyncio.to_thread(calls.__enter__)
    load.start()
    await asyncio.sleep(seconds)
    await load.stop()
    await asyncio.to_thread(calls.__exit__)
    return call_costs(before, await target.progress(), calls.counts)


def edge(target: Target) -> Edge:
    """Look at all processes at once."""
    return Edge(time.perf_counter(), {name: usage(process_id) for name, process_id in target.processes().items()})
