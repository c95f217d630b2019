"""The report of a run of :mod:`tests.simulation.scale`, as tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.meter import Phase

KINDS = ("server", "storage", "client")
CONNECTION_KINDS = ("client-server", "server-storage")
OPERATIONS_SHOWN = 8


class Size(NamedTuple):
    """Size of a cluster."""

    partitions: int
    servers: int
    storages: int
    clients: int

    def __str__(self) -> str:
        return f"{self.partitions} partitions, {self.servers} servers, {self.storages} storages, {self.clients} clients"


@dataclass(slots=True)
class Report:
    """The figures of a run."""

    size: Size
    phases: dict[str, Phase] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    """Open in the idle cluster, by kind."""
    watches: Mapping[str, int] = field(default_factory=dict)
    """Set at ZooKeeper in the idle cluster, by kind of host."""
    node_bytes: Mapping[str, int] = field(default_factory=dict)
    """The largest nodes of ZooKeeper."""
    converged_s: dict[str, float] = field(default_factory=dict)
    """Simulated time until something had come about."""
    failures: list[str] = field(default_factory=list)
    digest: int = 0

    def __str__(self) -> str:
        lines = [f"{self.size}; digest {self.digest:08x}", *(f"FAILED: {failure}" for failure in self.failures), ""]
        lines += _table(["simulated s", "until"], [[f"{s:.2f}", what] for what, s in self.converged_s.items()])
        for name, counts in (("connections", self.connections), ("watches", self.watches), ("bytes", self.node_bytes)):
            lines.append(f"{name}: " + ", ".join(f"{key} {count:,}" for key, count in counts.items()))
        lines.append("")
        phases = list(self.phases.values())
        lines += _table(["", *(phase.name for phase in phases)], [_row(name, phases) for name in _COLUMNS])
        for phase in phases:
            for (kind, name, path), count in phase.operations.most_common(OPERATIONS_SHOWN):
                lines.append(f"{phase.name}: {count:,} {name} of {path} by {kind}s")
        return "\n".join(lines)


_COLUMNS: dict[str, Callable[[Phase], float]] = {
    "simulated s": lambda phase: phase.simulated_s,
    "ZooKeeper operations": lambda phase: phase.operations.total(),
    "kB read of ZooKeeper": lambda phase: phase.read_bytes.total() / 1000,
    **{
        f"deliveries, {kind}": lambda phase, kind=kind: phase.deliveries[kind]  # type: ignore[misc]  # bound early
        for kind in CONNECTION_KINDS
    },
    **{
        f"callbacks, {kind}s": lambda phase, kind=kind: phase.callbacks[kind]  # type: ignore[misc]
        for kind in KINDS
    },
    **{
        f"processor s, {kind}s": lambda phase, kind=kind: phase.cpu_s[kind]  # type: ignore[misc]
        for kind in KINDS
    },
    "memory grown by, MB": lambda phase: phase.memory_bytes / 1e6,
}


def _row(name: str, phases: Sequence[Phase]) -> list[str]:
    values = [_COLUMNS[name](phase) for phase in phases]
    return [name, *(f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" for value in values)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]
