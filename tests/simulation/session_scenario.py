"""The part of a simulation that is about write sessions: who uses them beside the applications, and what is checked."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Iterator

from tests.simulation.checker import Checker
from tests.simulation.cluster import SimulatedCluster, World
from tests.simulation.loop import Process
from tests.simulation.session_observers import write_sessions_are_checked
from tests.simulation.wire_client import WireClientHost, fence

_CALM_INTERVAL_S = 5.0


class SessionScenario:
    """Clients that keep no rules, an operator who cleans up behind them, and the checks."""

    def __init__(self, world: World, checker: Checker, cluster: SimulatedCluster) -> None:
        self.checks = world.session_checks
        self.hosts = [
            WireClientHost(world, number, checker, self.checks, cluster) for number in range(world.options.wire_clients)
        ]
        self._world = world
        self._cluster = cluster
        checker.on_landed = self.checks.landed

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """While this lasts, everything is checked."""
        with write_sessions_are_checked(self.checks):
            yield

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    async def calm_down(self) -> None:
        """An operator ends the exclusive sessions that are left, again and again: requests may be on their way."""
        for attempt in itertools.count():
            await self._cluster.as_operator(functools.partial(self._fence_all, attempt))
            await asyncio.sleep(_CALM_INTERVAL_S)

    async def _fence_all(self, attempt: int, _process: Process) -> None:
        for partition_id in range(self._world.options.partitions):
            await fence(self._cluster, self.checks, partition_id, attempt)
