"""Small worlds for the tests of the simulator itself."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.trace import Trace

_T = TypeVar("_T")


@dataclass(slots=True)
class SmallWorld:
    """A loop and a network."""

    loop: SimulatedLoop
    network: Network
    trace: Trace
    failures: list[dict[str, Any]]

    def process(self, host: str) -> Process:
        """A process on a host."""
        return Process(self.loop, host)


def run(seed: int, main: Callable[[SmallWorld], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in a small world; nothing may fail unhandled."""
    failures: list[dict[str, Any]] = []
    loop = SimulatedLoop(failures.append)
    trace = Trace(loop.time)
    world = SmallWorld(loop, Network(loop, random.Random(seed), trace), trace, failures)
    loop.network = world.network
    try:
        result = loop.run_until_complete(main(world))
    finally:
        loop.close()
    assert not failures, failures
    return result
