"""Latencies of storages, for operators. One object for all partitions of a server."""

from collections.abc import Iterable

from waltz.common.metrics.registry import Description, Registry

_QUORUM = Description(
    "waltz_server_quorum_seconds",
    "histogram",
    (),
    "Time from handing a batch to the storages to its commit by a quorum. One observation a commit.",
)
_ACKNOWLEDGEMENT = Description(
    "waltz_server_replica_acknowledgement_seconds",
    "histogram",
    ("storage",),
    "Time from handing a batch to the storages to the acknowledgement of this storage. One observation a batch.",
)
DESCRIPTIONS = (_QUORUM, _ACKNOWLEDGEMENT)


class StoreTimings:
    """Observed once a batch, never once a transaction."""

    def __init__(self, registry: Registry | None = None) -> None:
        registry = Registry() if registry is None else registry
        self.clock = registry.clock
        self.quorum = registry.histogram(_QUORUM).of()
        self.acknowledgements = registry.histogram(_ACKNOWLEDGEMENT)

    def set_storages(self, storages: Iterable[str]) -> None:
        """Keep only the observations of these storages, which are those with replicas."""
        self.acknowledgements.keep((storage,) for storage in storages)
