"""How long appends wait while nodes fail: clusters of real processes under load from three clients with locks.

    python -m benchmarks.availability [--runs 3] [--rate 600] [--only NAME ...] [--outage 60]

Every run has a fresh cluster (TLS, ZooKeeper sessions of 4 s) and ends with the checker of the smoke test. Prints
a table: for each fault what is promised and what was measured, as the median of the runs and the worst of them.
"""

import argparse
import asyncio
import contextlib
import re
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.smoke.replicas import Replicas
from tests.smoke.trial import Trial, owner
from tests.smoke.workload import Load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import NODE_HOST, Node

PARTITIONS = 2
CLIENTS = 3
WARM_UP_S = 3.0
AFTERWARDS_S = 3.0
MIB = 1 << 20


class Options(NamedTuple):
    """The command line, parsed."""

    runs: int
    rate: float
    outage_s: float
    """How long a paused storage, and ZooKeeper, are away."""
    directory: Path | None


Measured = dict[str, float]
"""What a run measured; the unit ends the name: s, or MiB."""

Scenario = Callable[[Options], Coroutine[None, None, Measured]]


@contextlib.asynccontextmanager
async def under_load(options: Options, *, servers: int = 2) -> AsyncIterator[Trial]:
    """A cluster with clients that have been at work for a while; checked at the end."""
    load = Load(in_flight=64, rate=options.rate / CLIENTS)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with (
            LocalCluster(Path(directory), servers=servers, partitions=PARTITIONS) as cluster,
            Trial.running(cluster, clients=CLIENTS, load=load) as trial,
        ):
            await trial.progress(50)
            await asyncio.sleep(WARM_UP_S)
            yield trial
            await trial.progress(20)
            await asyncio.sleep(AFTERWARDS_S)
            await trial.finish()


def served_again_s(trial: Trial, since_s: float, partitions: Iterable[int]) -> float:
    """Seconds until an append that was submitted after ``since_s`` was applied, in the last of the partitions."""
    return max(
        min(s.applied_at_s for s in trial.samples if s.partition_id == each and s.submitted_at_s >= since_s) - since_s
        for each in partitions
    )


def waits(trial: Trial, since_s: float, until_s: float) -> Measured:
    """Latencies of the appends under way between two moments: from the submission to the application."""
    latencies = sorted(
        sample.applied_at_s - sample.submitted_at_s
        for sample in trial.samples
        if sample.applied_at_s >= since_s and sample.submitted_at_s <= until_s
    )
    return {"p99 s": latencies[int(len(latencies) * 0.99)], "longest wait s": latencies[-1]}


async def owned_by(cluster: LocalCluster, server: Node) -> list[int]:
    """The partitions of a server."""
    return [each for each in range(PARTITIONS) if await owner(cluster, each) == server]


async def server_killed(options: Options) -> Measured:
    """SIGKILL of a server."""
    async with under_load(options) as trial:
        victim = await owner(trial.cluster, 0)
        partitions = await owned_by(trial.cluster, victim)
        at_s = time.monotonic()
        await asyncio.to_thread(trial.cluster.kill, victim)
    return {"served again after s": served_again_s(trial, at_s, partitions)}


async def server_stopped(options: Options) -> Measured:
    """SIGTERM to a server."""
    async with under_load(options) as trial:
        victim = await owner(trial.cluster, 0)
        at_s = time.monotonic()
        await asyncio.to_thread(trial.cluster.terminate, victim)
        await trial.progress(20)
        until_s = time.monotonic()
    return waits(trial, at_s, until_s)


async def storage_killed(options: Options) -> Measured:
    """SIGKILL of one of three storages."""
    async with under_load(options) as trial:
        at_s = time.monotonic()
        await asyncio.to_thread(trial.cluster.kill, trial.cluster.layout.storages[0])
        await asyncio.sleep(5)
        until_s = time.monotonic()
        trial.cluster.start_storage(trial.cluster.layout.storages[0])
    return waits(trial, at_s, until_s)


async def storage_paused(options: Options) -> Measured:
    """SIGSTOP of one of three storages, and SIGCONT."""
    async with under_load(options, servers=1) as trial:
        cluster, victim = trial.cluster, trial.cluster.layout.storages[0]
        at_s, memory = time.monotonic(), resident_bytes(cluster, cluster.layout.servers[0])
        cluster.child(victim).signal(signal.SIGSTOP)
        await asyncio.sleep(options.outage_s)
        until_s, grown = time.monotonic(), resident_bytes(cluster, cluster.layout.servers[0]) - memory
        cluster.child(victim).signal(signal.SIGCONT)
        marks = [trial.applied(each) for each in range(PARTITIONS)]
        async with Replicas(cluster) as replicas:
            for partition_id, mark in enumerate(marks):
                while not await replicas.holds(victim.name, partition_id, mark):
                    await asyncio.sleep(0.02)
        caught_up_s = time.monotonic()
    return {
        **waits(trial, at_s, until_s),
        "memory of the server MiB": grown / MIB,
        "caught up after s": caught_up_s - until_s,
    }


async def one_of_two_wakes_up(options: Options) -> Measured:
    """Two of three storages are paused, one goes on."""
    async with under_load(options) as trial:
        first, second, _ = [trial.cluster.child(node) for node in trial.cluster.layout.storages]
        first.signal(signal.SIGSTOP)
        second.signal(signal.SIGSTOP)
        await asyncio.sleep(10)
        at_s = time.monotonic()
        second.signal(signal.SIGCONT)
        await trial.progress(20)
        first.signal(signal.SIGCONT)
    return {"goes on after s": next_commit_s(trial, at_s)}


async def one_of_two_starts_again(options: Options) -> Measured:
    """Two of three storages are killed, one is started again: counted from when it listens."""
    async with under_load(options) as trial:
        first, second, _ = trial.cluster.layout.storages
        await asyncio.to_thread(trial.cluster.kill, first)
        await asyncio.to_thread(trial.cluster.kill, second)
        await asyncio.sleep(10)
        trial.cluster.start_storage(second)
        await listens(second)
        at_s = time.monotonic()
        await trial.progress(20)
        trial.cluster.start_storage(first)
    return {"goes on after s": next_commit_s(trial, at_s)}


async def zookeeper_restarted(options: Options) -> Measured:
    """SIGKILL of ZooKeeper, which is started again at once."""
    async with under_load(options) as trial:
        at_s = time.monotonic()
        await asyncio.to_thread(trial.cluster.kill, "zookeeper")
        await asyncio.to_thread(trial.cluster.start_zookeeper)
        await asyncio.sleep(10)
        until_s = time.monotonic()
    return waits(trial, at_s, until_s)


async def zookeeper_away(options: Options) -> Measured:
    """SIGKILL of ZooKeeper, which is started again later."""
    async with under_load(options) as trial:
        at_s = time.monotonic()
        await asyncio.to_thread(trial.cluster.kill, "zookeeper")
        await asyncio.sleep(options.outage_s)
        await asyncio.to_thread(trial.cluster.start_zookeeper)
        await asyncio.sleep(10)
        until_s = time.monotonic()
    return waits(trial, at_s, until_s)


def next_commit_s(trial: Trial, since_s: float) -> float:
    """Seconds until something was committed in every partition, whenever it was submitted."""
    return max(
        min(s.applied_at_s for s in trial.samples if s.partition_id == each and s.applied_at_s >= since_s) - since_s
        for each in range(PARTITIONS)
    )


async def listens(node: Node) -> None:
    """Return when connections to the node are accepted."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(NODE_HOST, node.port)
            writer.close()
            return
        await asyncio.sleep(0.005)


def resident_bytes(cluster: LocalCluster, node: Node) -> int:
    """Physical memory that a process uses."""
    status = Path(f"/proc/{cluster.child(node).process_id}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


class Promise(NamedTuple):
    """A line of the table."""

    scenario: Scenario
    promised: str


PROMISES = {
    "server killed": Promise(server_killed, "served again within 5 s (ZooKeeper session 4 s + 1 s)"),
    "server stopped (SIGTERM)": Promise(server_stopped, "within 1 s"),
    "1 of 3 storages killed": Promise(storage_killed, "p99 at most 1 s"),
    "1 of 3 storages paused": Promise(storage_paused, "p99 at most 1 s, memory bounded, catches up"),
    "2 of 3 storages paused, 1 goes on": Promise(one_of_two_wakes_up, "within 2 s"),
    "2 of 3 storages killed, 1 started": Promise(one_of_two_starts_again, "within 2 s"),
    "ZooKeeper restarted": Promise(zookeeper_restarted, "appends go on"),
    "ZooKeeper away": Promise(zookeeper_away, "appends go on"),
}


def row(name: str, promised: str, runs: list[Measured]) -> str:
    """A line of the table: of each quantity the median, and the worst."""
    cells = []
    for quantity in runs[0]:
        words, _, unit = quantity.rpartition(" ")
        values = [run[quantity] for run in runs]
        digits = 0 if unit == "MiB" else 2
        cells.append(f"{words} {statistics.median(values):.{digits}f} {unit} (worst {max(values):.{digits}f})")
    return f"| {name} | {promised} | {'; '.join(cells)} |"


def main() -> None:
    """Run all scenarios, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=600, help="transactions begun per second")
    parser.add_argument("--outage", type=float, default=60, help="seconds that a paused node or ZooKeeper is away")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults whose name contains one of these")
    parser.add_argument("--directory", type=Path, help="where the storages write (default: a temporary directory)")
    arguments = parser.parse_args()
    options = Options(arguments.runs, arguments.rate, arguments.outage, arguments.directory)
    print("| Fault | Promised | Measured |\n|---|---|---|", flush=True)
    for name, (scenario, promised) in PROMISES.items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        runs = [uvloop.run(scenario(options)) for _ in range(options.runs)]
        print(row(name, promised, runs), flush=True)


if __name__ == "__main__":
    main()
