"""What happens to processes and lines during a campaign: a schedule that depends on nothing but its seed."""

import enum
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

ZOOKEEPER = "zookeeper"


class Kind(enum.Enum):
    """What can happen."""

    KILL = "killed"
    """SIGKILL; started again later."""
    PAUSE = "paused"
    """SIGSTOP, later SIGCONT."""
    CUT = "cut"
    """Nothing comes through between two processes; what was sent comes later."""
    MOVE = "moved"
    """``waltz storage move`` of all replicas of one storage to another."""


class Fault(NamedTuple):
    """One event."""

    at_s: float
    """Since the beginning."""
    kind: Kind
    targets: tuple[str, ...]
    """One process; of a cut, who connects and who is connected to; of a move, nobody."""
    lasting_s: float

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.kind.value:<7} {' - '.join(self.targets):<24} for {self.lasting_s:4.1f} s"


CALM_S = 3.0
"""Without faults at the beginning."""
MEAN_PAUSE_S = 2.5
"""Between two faults."""
MEAN_LASTING_S = 2.0
LONGEST_S = 10.0
"""Longer than two ZooKeeper session time-outs of a local cluster."""
RESTART_S = 2.0
"""A process is left alone for so long after it is well again."""

_WEIGHTS = {Kind.KILL: 4, Kind.PAUSE: 3, Kind.CUT: 5, Kind.MOVE: 1}


def schedule(seed: int, servers: Sequence[str], storages: Sequence[str], clients: Sequence[str]) -> Iterator[Fault]:
    """Faults for ever."""
    draw = random.Random(seed)
    nodes = [*servers, *storages]
    pairs = [
        *((server, storage) for server in servers for storage in storages),
        *((client, server) for client in clients for server in servers),
        *((each, ZOOKEEPER) for each in (*servers, *clients)),
    ]
    free_at_s: dict[tuple[str, ...], float] = {}
    now_s = CALM_S
    while True:
        now_s += draw.expovariate(1 / MEAN_PAUSE_S)
        kind = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        targets: tuple[str, ...] = ()
        if kind is Kind.CUT:
            targets = draw.choice(pairs)
        elif kind is not Kind.MOVE:
            targets = (draw.choice((*nodes, *nodes, *clients, ZOOKEEPER, ZOOKEEPER)),)
        lasting_s = min(draw.expovariate(1 / MEAN_LASTING_S), LONGEST_S)
        if free_at_s.get(targets, 0.0) <= now_s:
            free_at_s[targets] = now_s + lasting_s + RESTART_S
            yield Fault(now_s, kind, targets, lasting_s)
