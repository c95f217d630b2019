"""What a mirror shows of its work: descriptions and values of its metrics."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from waltz.common.metrics.registry import Description, Readings, Registry
from waltz.mirror.lag import Lag

_LAG_TRANSACTIONS = Description(
    "waltz_mirror_lag_transactions", "gauge", ("partition",), "Committed transactions that the target lacks."
)
_LAG_SECONDS = Description(
    "waltz_mirror_lag_seconds",
    "gauge",
    ("partition",),
    "Time since the commit of the first transaction that the target lacks; grows on while the source is away.",
)
_WORKING = Description(
    "waltz_mirror_working", "gauge", ("partition",), "1 if this process appends to the partition, else 0."
)
_STOPPED = Description(
    "waltz_mirror_stopped",
    "gauge",
    ("partition",),
    "1 if this process has given the partition up, because the logs differ or it is the mirror of another cluster.",
)
_PROMOTED = Description(
    "waltz_mirror_promoted", "gauge", ("partition",), "1 if the partition was promoted: it is a mirror no more."
)
_TRANSACTIONS = Description(
    "waltz_mirror_transactions_total", "counter", (), "Transactions of this process that the target has committed."
)
_BYTES = Description(
    "waltz_mirror_bytes_total", "counter", (), "Bytes of the data of transactions that the target has committed."
)
_IN_FLIGHT = Description("waltz_mirror_in_flight_bytes", "gauge", (), "Data that was sent and is not committed.")
_SESSIONS = Description(
    "waltz_mirror_sessions_total", "counter", (), "Exclusive write sessions that this process has begun."
)
_SOURCE_AVAILABLE = Description(
    "waltz_mirror_source_available", "gauge", (), "1 if the source has answered the last questions, else 0."
)
_TARGET_AVAILABLE = Description(
    "waltz_mirror_target_available", "gauge", (), "1 if no partition waits for the target, else 0."
)

DESCRIPTIONS = (
    _LAG_TRANSACTIONS,
    _LAG_SECONDS,
    _WORKING,
    _STOPPED,
    _PROMOTED,
    _TRANSACTIONS,
    _BYTES,
    _IN_FLIGHT,
    _SESSIONS,
    _SOURCE_AVAILABLE,
    _TARGET_AVAILABLE,
)


class Stage(Enum):
    """What a process does for one partition. The values are texts for people."""

    WAITING = "waits for the target"
    WAITING_FOR_SOURCE = "waits for the source"
    STANDING_BY = "another process mirrors it"
    WORKING = "is mirrored"
    STOPPED = "is given up"
    PROMOTED = "was promoted"


@dataclass(slots=True)
class PartitionState:
    """The state of one partition, which its mirror sets."""

    stage: Stage = Stage.WAITING
    reason: str = ""
    """Why it is not mirrored at present."""
    mirrored_id: int | None = None
    """The last transaction that is known to be in the target; ``None``: nothing is known."""
    in_flight_bytes: int = 0
    sessions: int = 0
    """Exclusive write sessions that this process has begun."""
    lag: Lag | None = None
    """How far the target is behind, whoever mirrors it; ``None``: not known, or of no meaning any more."""


@dataclass(slots=True)
class MirrorState:
    """The state of a process."""

    partitions: dict[int, PartitionState] = field(default_factory=dict)
    is_source_available: bool = True
    trouble: str = ""
    """Why nothing is mirrored at all."""
    transactions: int = 0
    size_bytes: int = 0

    @property
    def is_target_available(self) -> bool:
        """Whether no partition waits for the target."""
        return not self.trouble and all(each.stage is not Stage.WAITING for each in self.partitions.values())


def show_metrics(registry: Registry, state: MirrorState, now_ms: Callable[[], int]) -> None:
    """Register the metrics of a process."""

    def single(value: Callable[[], float]) -> Callable[[], Readings]:
        return lambda: [((), value())]

    def each(value: Callable[[PartitionState], float]) -> Callable[[], Readings]:
        return lambda: [((str(key),), value(found)) for key, found in sorted(state.partitions.items())]

    def lags(value: Callable[[Lag], float]) -> Callable[[], Readings]:
        return lambda: [
            ((str(key),), value(found.lag)) for key, found in sorted(state.partitions.items()) if found.lag is not None
        ]

    registry.reading(_LAG_TRANSACTIONS, lags(lambda lag: lag.transactions))
    registry.reading(_LAG_SECONDS, lags(lambda lag: lag.age_ms(now_ms()) / 1000))
    registry.reading(_WORKING, each(lambda found: int(found.stage is Stage.WORKING)))
    registry.reading(_STOPPED, each(lambda found: int(found.stage is Stage.STOPPED)))
    registry.reading(_PROMOTED, each(lambda found: int(found.stage is Stage.PROMOTED)))
    registry.reading(_TRANSACTIONS, single(lambda: state.transactions))
    registry.reading(_BYTES, single(lambda: state.size_bytes))
    registry.reading(_IN_FLIGHT, single(lambda: sum(found.in_flight_bytes for found in state.partitions.values())))
    registry.reading(_SESSIONS, single(lambda: sum(found.sessions for found in state.partitions.values())))
    registry.reading(_SOURCE_AVAILABLE, single(lambda: int(state.is_source_available)))
    registry.reading(_TARGET_AVAILABLE, single(lambda: int(state.is_target_available)))
