"""What is measured: a scenario is a load and the cluster that it meets. Pure."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

CALLBACKS, AWAIT = "callbacks", "await"
FEED, FEED_BATCHES = "feed", "feed_batches"
READING_FACES = (FEED, FEED_BATCHES)

CAUGHT_UP = 100_000
"""How long a log is when it is read from its beginning."""

TIP_RATE = 2000
"""Transactions per second under readers and beside what is idle: a load that leaves room, so that what they cost shows
in the latency and not in the rate."""

LOG_LENGTH = 500_000
LOG_POINTS = 5


class Shape(NamedTuple):
    """What scenarios must have in common to be measured on the same cluster, one after the other."""

    tls: bool
    partitions: int
    journal: bool = False
    """Whether storages of Waltz keep a journal."""


class Scenario(NamedTuple):
    """One measurement. Transactions go to ``partitions`` partitions in turn.

    A face for reading (``feed``, ``feed_batches``) makes it a measurement of how fast one client reads the first
    partition from its beginning; all others append.
    """

    face: str = CALLBACKS
    """How the client is used: contexts with callbacks, tasks that ``await append``, or one of the ways to read."""
    in_flight: int = 256
    """Transactions under way in the closed loop: one is submitted when one is applied. 0: open loop."""
    rate: int = 0
    """Transactions per second in the open loop, whatever becomes of those before. 0: closed loop."""
    size_bytes: int = 128
    """Data of a transaction."""
    partitions: int = 1
    write_locks: int = 1
    read_locks: int = 0
    tls: bool = False
    readers: int = 0
    """Clients in another process that follow the first partition at its tip; the first of them measures."""
    behind: int = 0
    """Clients in another process that read the first partition from its beginning, again and again."""
    idle_partitions: int = 0
    """Partitions that nobody uses, beside the others."""
    idle_clients: int = 0
    """Clients that take part in the first of the idle partitions."""
    log_length: int = 0
    """Transactions that the log has at least when the measurement begins."""
    journal: bool = False
    """Whether storages of Waltz keep a journal; the lean pipeline has one for several partitions in any case."""

    @property
    def shape(self) -> Shape:
        """The cluster that it needs."""
        return Shape(self.tls, self.partitions + self.idle_partitions, self.journal)

    @property
    def reads(self) -> bool:
        """Whether reading is measured, not appending."""
        return self.face in READING_FACES

    @property
    def fits_lean(self) -> bool:
        """Whether the lean pipeline can do the same, so that there is a share of it."""
        beyond = (self.readers, self.behind, self.idle_partitions, self.idle_clients, self.log_length)
        return not self.reads and not any(beyond)

    @property
    def label(self) -> str:
        """All of it in words, short; no two scenarios have the same."""
        words = ["TLS" if self.tls else "plain", self.face]
        if not self.reads:
            words.append(f"{self.rate:,}/s" if self.rate else f"{self.in_flight:,} in flight")
        words.append(f"{self.size_bytes:,} B")
        if (self.write_locks, self.read_locks) != (1, 0) and not self.reads:
            words.append(f"{self.write_locks} write + {self.read_locks} read locks")
        counts = (
            (self.partitions - 1 and self.partitions, "partitions"),
            (self.readers, "readers"),
            (self.behind, "behind"),
            (self.idle_partitions, "idle partitions"),
            (self.idle_clients, "idle clients"),
        )
        words += [f"{count:,} {what}" for count, what in counts if count]
        if self.log_length:
            words.append(f"log of {self.log_length:,}")
        if self.journal:
            words.append("journal")
        return ", ".join(words)


def product(
    *,
    in_flight: Iterable[int] = (),
    rates: Iterable[int] = (),
    sizes_bytes: Sequence[int] = (128,),
    partitions: Sequence[int] = (1,),
    locks: Sequence[tuple[int, int]] = ((1, 0),),
    transports: Sequence[bool] = (False,),
    faces: Sequence[str] = (CALLBACKS,),
    journals: Sequence[bool] = (False,),
) -> list[Scenario]:
    """Every combination: closed loops for ``in_flight``, open loops for ``rates``. ``transports``: whether with TLS;
    ``journals``: whether storages keep a journal."""
    loops = [(number, 0) for number in in_flight] + [(0, rate) for rate in rates]
    return [
        Scenario(face, number, rate, size, count, write_locks, read_locks, tls, journal=journal)
        for tls, count, journal, size, (write_locks, read_locks), face, (number, rate) in itertools.product(
            transports, partitions, journals, sizes_bytes, locks, faces, loops
        )
    ]


IN_FLIGHT = (1, 16, 64, 256, 2000)
BOTH = (False, True)
THREE_LOCKS = (2, 1)


def quick() -> list[Scenario]:
    """A few minutes: every number of transactions in flight, and of everything else one."""
    return [
        *product(in_flight=IN_FLIGHT, transports=BOTH),
        *product(in_flight=[256], sizes_bytes=[4096], transports=BOTH),
        *product(in_flight=[256], locks=[THREE_LOCKS]),
        *product(in_flight=[256], faces=[AWAIT]),
        *product(in_flight=[256], partitions=[64], journals=BOTH),
        *product(in_flight=[2000], partitions=[1000], journals=BOTH),
        *product(rates=[5000]),
        Scenario(in_flight=0, rate=TIP_RATE, readers=1),
        Scenario(face=FEED_BATCHES, log_length=CAUGHT_UP),
    ]


def full() -> list[Scenario]:
    """Every combination of the closed loop, and the open loop at several rates."""
    return [
        *product(
            in_flight=IN_FLIGHT,
            sizes_bytes=[128, 4096],
            partitions=[1, 64],
            locks=[(1, 0), THREE_LOCKS],
            transports=BOTH,
            faces=[CALLBACKS, AWAIT],
        ),
        *product(rates=[1000, 5000, 15_000], sizes_bytes=[128, 4096], transports=BOTH, faces=[CALLBACKS, AWAIT]),
    ]


def consumers() -> list[Scenario]:
    """Reading: from the beginning by one client, from the beginning by four beside appends, and at the tip."""
    return [
        scenario
        for tls in BOTH
        for scenario in (
            *(Scenario(face=face, tls=tls, log_length=CAUGHT_UP) for face in READING_FACES),
            *(Scenario(tls=tls, behind=behind, log_length=CAUGHT_UP) for behind in (0, 4)),
            *(Scenario(tls=tls, in_flight=0, rate=TIP_RATE, readers=readers) for readers in (1, 10)),
            *(Scenario(tls=tls, readers=readers) for readers in (1, 10)),
        )
    ]


def log_lengths(longest: int) -> list[Scenario]:
    """The same load on a log that has grown, up to ``longest`` transactions."""
    return [Scenario(log_length=longest * point // LOG_POINTS or 1) for point in range(LOG_POINTS + 1)]


def idle_partitions() -> list[Scenario]:
    """The same load beside partitions that nobody uses."""
    return [Scenario(in_flight=0, rate=TIP_RATE, idle_partitions=count) for count in (0, 10, 100, 300, 1000)]


def idle_clients() -> list[Scenario]:
    """The same load beside clients of another partition, in which nothing happens."""
    beside = Scenario(in_flight=0, rate=TIP_RATE, idle_partitions=1)
    return [beside._replace(idle_clients=count) for count in (0, 10, 100, 300, 1000)]


def readers() -> list[Scenario]:
    """The same load with clients at the tip."""
    return [Scenario(in_flight=0, rate=TIP_RATE, readers=count) for count in (1, 10, 50, 100, 200)]


def sets(longest: int = LOG_LENGTH) -> Mapping[str, Callable[[], list[Scenario]]]:
    """All sets by name; ``longest`` is where the curve over the length of the log ends."""
    return {
        "quick": quick,
        "full": full,
        "consumers": consumers,
        "log-length": lambda: log_lengths(longest),
        "idle-partitions": idle_partitions,
        "idle-clients": idle_clients,
        "readers": readers,
    }


def by_shape(scenarios: Iterable[Scenario]) -> dict[Shape, list[Scenario]]:
    """Each scenario once, in order, together with others that can share its cluster.

    Within a shape those that need a long log come last, in ascending order: a log does not become shorter again.
    """
    groups: dict[Shape, list[Scenario]] = {}
    for scenario in sorted(dict.fromkeys(scenarios), key=lambda each: each.log_length):
        groups.setdefault(scenario.shape, []).append(scenario)
    return groups
