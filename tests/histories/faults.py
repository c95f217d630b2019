"""What happens to processes and lines during a campaign: a schedule that depends on nothing but its seed.

Faults are dealt like cards: the deck has each kind of fault for each role of process, is dealt to its end, and is
shuffled anew. So a campaign that lasts for one deck has met everything.
"""

import enum
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

ZOOKEEPER = "zookeeper"


class Kind(enum.Enum):
    """What can happen."""

    KILL = "killed"
    """SIGKILL; started again later."""
    STRIKE = "struck"
    """The same, of a consumer in the middle of its database transaction."""
    PAUSE = "paused"
    """SIGSTOP, later SIGCONT."""
    CUT = "cut"
    """Nothing comes through between two processes; what was sent comes later."""
    MOVE = "moved"
    """``waltz storage move`` of the replica of a partition to another storage."""
    DRAIN = "drained"
    """``waltz server drain``: all partitions of a server go to others, one by one."""


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
LONG_PAUSE_S = 5.0
"""Every second pause of ZooKeeper is longer than this, and so than a session time-out."""
RESTART_S = 2.0
"""A process is left alone for so long after it is well again."""

DECK: Sequence[tuple[Kind, tuple[str, ...]]] = (
    *[(Kind.KILL, (role,)) for role in ("server", "server", "storage", "storage", ZOOKEEPER, "client", "view")],
    (Kind.STRIKE, ("client",)),
    *[(Kind.PAUSE, (role,)) for role in ("server", "storage", ZOOKEEPER, "client", "view")],
    *[
        (Kind.CUT, roles)
        for roles in (
            ("server", "storage"),
            ("server", "storage"),
            ("server", ZOOKEEPER),
            ("storage", ZOOKEEPER),
            ("client", "server"),
            ("client", ZOOKEEPER),
            ("client", "view"),
            ("view", "server"),
            ("view", ZOOKEEPER),
        )
    ],
    (Kind.MOVE, ()),
    (Kind.DRAIN, ("server",)),
)
"""Each kind of fault, with the roles of its targets."""


def schedule(seed: int, names: Mapping[str, Sequence[str]], mean_pause_s: float = MEAN_PAUSE_S) -> Iterator[Fault]:
    """Faults for ever; ``names`` has the processes of each role but ZooKeeper's."""
    draw = random.Random(seed)
    names = {**names, ZOOKEEPER: [ZOOKEEPER]}
    free_at_s: dict[tuple[str, ...], float] = {}
    now_s = CALM_S
    pauses_of_zookeeper = 0
    while True:
        for kind, roles in draw.sample(DECK, len(DECK)):
            now_s += draw.expovariate(1 / mean_pause_s)
            targets = tuple(draw.choice(names[role]) for role in roles)
            lasting_s = min(draw.expovariate(1 / MEAN_LASTING_S), LONGEST_S)
            if kind is Kind.PAUSE and targets == (ZOOKEEPER,):
                pauses_of_zookeeper += 1
                if pauses_of_zookeeper % 2:
                    lasting_s = draw.uniform(LONG_PAUSE_S, LONGEST_S)
            now_s = max(now_s, free_at_s.get(targets, 0.0))
            free_at_s[targets] = now_s + lasting_s + RESTART_S
            yield Fault(now_s, kind, targets, lasting_s)
