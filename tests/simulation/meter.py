"""What a simulated cluster uses: callbacks and processor time of its programs, ZooKeeper, connections, memory."""

import contextlib
import gc
import os
import re
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.simulation import loop as simulated_loop
from tests.simulation.cluster import ROOT, SERVER_PORT, STORAGE_PORT, World
from tests.simulation.loop import Process
from tests.simulation.network import Network
from tests.simulation.trace import Trace

_NUMBER = re.compile(r"\d+")
_PAGE_BYTES = resource.getpagesize()
_CONNECTION_KINDS = {SERVER_PORT: "client-server", STORAGE_PORT: "server-storage"}


def kind_of(host: str) -> str:
    """``server`` of ``server-7``."""
    return host.partition("-")[0]


class CountingTrace(Trace):
    """Counts what arrives on each connection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.deliveries: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def count(self, number: int, data: bytes) -> None:
        super().count(number, data)
        self.deliveries[number] += 1
        self.bytes[number] += len(data)


@dataclass(slots=True)
class Phase:
    """Usage between two moments. Keys of counters: kinds of hosts (``server``), or of connections."""

    name: str
    simulated_s: float = 0.0
    operations: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Of ZooKeeper: by kind of host, operation, and path below the root of the cluster with ``#`` for numbers."""
    read_bytes: Counter[str] = field(default_factory=Counter)
    """Values of nodes of ZooKeeper that were read."""
    deliveries: Counter[str] = field(default_factory=Counter)
    """Times that bytes arrived."""
    delivered_bytes: Counter[str] = field(default_factory=Counter)
    callbacks: Counter[str] = field(default_factory=Counter)
    """Run by the event loop."""
    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Processor time of these callbacks."""
    memory_bytes: int = 0
    """By which the memory of the simulator has grown."""

    def operations_of(self, kind: str) -> int:
        """Operations of ZooKeeper by all hosts of a kind."""
        return sum(count for (host, _, _), count in self.operations.items() if host == kind)


class Meter:
    """Divides a run into phases."""

    def __init__(self, world: World, trace: CountingTrace, *, measured: bool) -> None:
        """``measured``: processor time and memory, too, which costs more than everything that is counted."""
        self._world = world
        self._trace = trace
        self._callbacks: Counter[str] = Counter()
        self._cpu_ns: Counter[str] = Counter()
        self._clock_ns: Callable[[], int] = time.thread_time_ns if measured else lambda: 0
        self._read_memory: Callable[[], int] = memory_bytes if measured else lambda: 0
        self._memory_bytes = self._read_memory()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the callbacks of the loop while this lasts."""
        callbacks, cpu_ns, clock_ns = self._callbacks, self._cpu_ns, self._clock_ns
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(self._world.loop, "observed", True))
            for handle_type in (simulated_loop._Handle, simulated_loop._TimerHandle):
                run = handle_type._run

                def counted(
                    handle: simulated_loop._Handle, run: Callable[[simulated_loop._Handle], None] = run
                ) -> None:
                    process: Process | None = handle.process
                    kind = "simulator" if process is None else kind_of(process.host)
                    began_ns = clock_ns()
                    run(handle)
                    cpu_ns[kind] += clock_ns() - began_ns
                    callbacks[kind] += 1

                stack.enter_context(mock.patch.object(handle_type, "_run", counted))
            yield

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """What is used while this lasts; the phase is filled in when it ends."""
        world, trace, phase = self._world, self._trace, Phase(name)
        world.ensemble.operations.clear()
        world.ensemble.read_bytes.clear()
        trace.deliveries.clear()
        trace.bytes.clear()
        self._callbacks.clear()
        self._cpu_ns.clear()
        began_s = world.loop.now_s
        yield phase
        phase.simulated_s = world.loop.now_s - began_s
        for operation, count in world.ensemble.operations.items():
            path = _NUMBER.sub("#", operation.path.removeprefix(ROOT).strip("/")) or "."
            phase.operations[kind_of(operation.host), operation.name, path] += count
        for host, size_bytes in world.ensemble.read_bytes.items():
            phase.read_bytes[kind_of(host)] += size_bytes
        kinds = _connection_kinds(world.network)
        for number, count in trace.deliveries.items():
            phase.deliveries[kinds.get(number, "other")] += count
            phase.delivered_bytes[kinds.get(number, "other")] += trace.bytes[number]
        phase.callbacks.update(self._callbacks)
        for kind, cpu_ns in self._cpu_ns.items():
            phase.cpu_s[kind] = cpu_ns / 1e9
        before_bytes, self._memory_bytes = self._memory_bytes, self._read_memory()
        phase.memory_bytes = self._memory_bytes - before_bytes


def connections(network: Network) -> Counter[str]:
    """Open connections by kind."""
    return Counter(_connection_kinds(network).values())


def watches(world: World) -> Counter[str]:
    """Watches that are set at ZooKeeper, by the kind of host that set them."""
    found: Counter[str] = Counter()
    for follower in world.ensemble.server.followers:
        for watched in (follower._data_watches, follower._child_watches):
            for clients in watched._by_path.values():
                for client, callables in clients.items():
                    found[kind_of(getattr(client, "host", "-"))] += len(callables)
    return found


def memory_bytes() -> int:
    """Memory of this process, without garbage."""
    gc.collect()
    return int(Path(f"/proc/{os.getpid()}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def _connection_kinds(network: Network) -> dict[int, str]:
    """Kind of each open connection by its number."""
    return {
        transport.number: _CONNECTION_KINDS.get(transport.addresses[1][1], "other")
        for transport in network.transports
        if transport.addresses[1][1] in _CONNECTION_KINDS
    }
