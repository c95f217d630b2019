"""What a fault is, and what faults are done to."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.application import ApplicationHost
from tests.simulation.checker import Checker
from tests.simulation.cluster import Host, ServerHost, SimulatedCluster, StorageHost, World

Pair = tuple[str, str]
"""Names of two machines: the way from one to the other."""


class Fault(NamedTuple):
    """One fault. ``victim`` and ``other`` are numbers that choose among what there is."""

    at_s: float
    kind: str
    victim: int
    other: int
    duration_s: float

    def __str__(self) -> str:
        return f"{self.at_s:.2f} s {self.kind} ({self.victim}, {self.other}) for {self.duration_s:.2f} s"


class Target(NamedTuple):
    """What faults are done to."""

    world: World
    cluster: SimulatedCluster
    clients: Sequence[ApplicationHost]
    others: Sequence[Host] = ()
    """Machines of other clients."""

    @property
    def checker(self) -> Checker:
        """What everything is compared with."""
        return self.clients[0].checker

    @property
    def hosts(self) -> list[Host]:
        """All machines."""
        return [*self.cluster.storages, *self.cluster.servers, *self.clients, *self.others]

    def storage(self, fault: Fault) -> StorageHost:
        """The storage that the fault means."""
        return self.cluster.storages[fault.victim % len(self.cluster.storages)]

    def server(self, fault: Fault) -> ServerHost:
        """The server that the fault means."""
        return self.cluster.servers[fault.victim % len(self.cluster.servers)]

    def client(self, fault: Fault) -> ApplicationHost:
        """The application that the fault means."""
        return self.clients[fault.victim % len(self.clients)]

    def any_host(self, fault: Fault) -> Host:
        """The machine that the fault means."""
        return self.hosts[fault.victim % len(self.hosts)]

    def pair(self, fault: Fault) -> Pair:
        """Two machines that talk to each other; one of them is a server."""
        server = self.server(fault)
        others = [*self.cluster.storages, *self.clients, *self.others]
        return server.name, others[fault.other % len(others)].name

    def say(self, fault: Fault, who: str, what: str) -> None:
        """One line of the trace."""
        self.world.trace.line("FAULT", f"{who} {what} ({fault.duration_s:.2f} s)")

    def cut_off(self, pairs: Sequence[Pair]) -> None:
        """Nothing gets through on these ways until :meth:`reconnect`."""
        for source, destination in pairs:
            self.world.network.set_cut(source, destination, True)

    def reconnect(self, pairs: Sequence[Pair]) -> None:
        """Undo :meth:`cut_off`."""
        for source, destination in pairs:
            self.world.network.set_cut(source, destination, False)
