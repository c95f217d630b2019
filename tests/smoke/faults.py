"""What happens to the nodes, and when: a schedule that depends on nothing but its seed."""

import enum
import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.smoke.line import Shape

ZOOKEEPER = "zookeeper"


class Kind(enum.Enum):
    """What can happen to a node; it is well again after a while."""

    KILL = "killed"
    """SIGKILL; started again later."""
    TERMINATE = "stopped"
    """SIGTERM; started again later."""
    PAUSE = "paused"
    """SIGSTOP, later SIGCONT."""
    CUT = "cut off"
    """Nothing comes through to its port or from there; its connections stay open, and what was sent comes later."""
    RESET = "disconnected"
    """All connections to its port are reset; new ones can be made at once."""
    SLOW = "slow"
    """The line to it is slow and long; what moves on it is late, and all of it comes."""
    BLACKHOLE = "not heard"
    """Nothing comes through its connections any more, for good, and nobody is told; new ones can be made at once."""


class Fault(NamedTuple):
    """One event."""

    at_s: float
    """Since the beginning of the load."""
    node: str
    kind: Kind
    lasting_s: float
    """Until it is started again, woken up or reachable again."""
    shape: Shape = Shape()
    """Of a line that is slow."""

    def overlaps(self, begin_s: float, end_s: float) -> bool:
        """Whether the node was unwell at some time between these, since the beginning of the load."""
        return self.at_s <= end_s and self.at_s + self.lasting_s >= begin_s

    def __str__(self) -> str:
        text = f"{self.at_s:6.1f} s  {self.node:<10} {self.kind.value:<12} for {self.lasting_s:4.1f} s"
        return f"{text}  {self.shape}" if self.kind is Kind.SLOW else text


MEAN_PAUSE_S = 2.0
"""Between the beginnings of two faults, so several overlap now and then."""
MEAN_LASTING_S = 2.5
LONGEST_S = 12.0
"""Three ZooKeeper session time-outs of a local cluster."""
RESTART_S = 3.0
"""A node is left alone for so long after it is well again."""
CALM_S = 5.0
"""Without faults at the beginning."""

_WEIGHTS = {
    Kind.KILL: 4,
    Kind.TERMINATE: 2,
    Kind.PAUSE: 3,
    Kind.CUT: 2,
    Kind.RESET: 1,
    Kind.SLOW: 3,
    Kind.BLACKHOLE: 1,
}
_ZOOKEEPER_WEIGHTS = {Kind.KILL: 2, Kind.PAUSE: 2, Kind.BLACKHOLE: 1}
_MOMENTARY = (Kind.RESET, Kind.BLACKHOLE)
_MEGABITS = (10, 20, 50, 100)
_ROUND_TRIPS_S = (0.05, 0.1, 0.3, 0.5)


def plan(seed: int, duration_s: float, nodes: Sequence[str]) -> list[Fault]:
    """Faults over ``duration_s``; servers and storages are meant three times as often as ZooKeeper."""
    draw = random.Random(seed)
    candidates = [*nodes, *nodes, *nodes, ZOOKEEPER]
    well_at_s: dict[str, float] = {}
    faults: list[Fault] = []
    now_s = CALM_S
    while True:
        now_s += draw.expovariate(1 / MEAN_PAUSE_S)
        node = draw.choice(candidates)
        weights = _ZOOKEEPER_WEIGHTS if node == ZOOKEEPER else _WEIGHTS
        kind = draw.choices(list(weights), list(weights.values()))[0]
        lasting_s = 0.0 if kind in _MOMENTARY else min(draw.expovariate(1 / MEAN_LASTING_S), LONGEST_S)
        shape = Shape.of(draw.choice(_MEGABITS), draw.choice(_ROUND_TRIPS_S)) if kind is Kind.SLOW else Shape()
        if now_s > duration_s:
            return faults
        if well_at_s.get(node, 0.0) <= now_s:
            faults.append(Fault(now_s, node, kind, lasting_s, shape))
            well_at_s[node] = now_s + lasting_s + RESTART_S
