"""How long a server takes to take over many partitions from one that was killed.

    python -m benchmarks.take_over [--partitions 500] [--servers 2] [--runs 3] [--directory DIR]

A cluster of real processes: ZooKeeper with sessions of 4 s, three storages, and servers of which one is killed. One
client waits for an append to each partition of it. Printed are the seconds from the kill until the assignment names
other owners, which is mostly the session time-out, and from then on until the first of the partitions, half of them
and all of them take appends.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from waltz import Client, ClientConfig, connect
from waltz.common.config.schemas import load
from waltz.common.zk.store_admin import read_partition_assignment, read_server_descriptors
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

POLL_INTERVAL_S = 0.01
TIMEOUT_S = 300.0
COLUMNS = ("assigned", "first", "half", "all")

Times = tuple[float, ...]
"""As in :data:`COLUMNS`, in seconds: from the kill, and from the assignment on."""


async def owned(cluster: LocalCluster, port: int) -> frozenset[int]:
    """The partitions of the server at a port; none when it is gone."""
    zookeeper = await cluster.zookeeper()
    try:
        ids = [each.server_id for each in await read_server_descriptors(zookeeper, ROOT) if each.endpoint.port == port]
        servers = (await read_partition_assignment(zookeeper, ROOT)).servers
        return frozenset(each.partition_id for server_id in ids for each in servers.get(server_id, ()))
    finally:
        await zookeeper.close()


async def reassigned(cluster: LocalCluster, partition_ids: frozenset[int], generation_of: dict[int, int]) -> None:
    """Return when all these partitions have an owner of a later generation."""
    zookeeper = await cluster.zookeeper()
    try:
        while True:
            servers = (await read_partition_assignment(zookeeper, ROOT)).servers
            now = {each.partition_id: each.generation for found in servers.values() for each in found}
            if all(now.get(each, -1) > generation_of[each] for each in partition_ids):
                return
            await asyncio.sleep(POLL_INTERVAL_S)
    finally:
        await zookeeper.close()


async def generations(cluster: LocalCluster) -> dict[int, int]:
    """The generation of each partition."""
    zookeeper = await cluster.zookeeper()
    try:
        servers = (await read_partition_assignment(zookeeper, ROOT)).servers
        return {each.partition_id: each.generation for found in servers.values() for each in found}
    finally:
        await zookeeper.close()


async def take_over(client: Client, cluster: LocalCluster, partitions: int) -> Times:
    """Kill the first server, and wait for its partitions."""
    await asyncio.gather(*(client.append(each, b"before", timeout_s=TIMEOUT_S) for each in range(partitions)))
    victim = cluster.layout.servers[0]
    lost, before = await owned(cluster, victim.port), await generations(cluster)
    began_s = time.monotonic()
    await asyncio.to_thread(cluster.kill, victim)

    async def append(partition_id: int) -> float:
        await client.append(partition_id, b"after", timeout_s=TIMEOUT_S)
        return time.monotonic()

    appends = [asyncio.ensure_future(append(each)) for each in lost]
    await reassigned(cluster, lost, before)
    assigned_s = time.monotonic()
    served_s = sorted([await each for each in appends])
    points = (served_s[0], served_s[len(served_s) // 2], served_s[-1])
    return (assigned_s - began_s, *(point - assigned_s for point in points))


async def run(options: argparse.Namespace) -> Times:
    """One cluster."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        shape = {"servers": options.servers, "partitions": options.partitions}
        async with LocalCluster(Path(directory), plaintext=True, **shape) as cluster:
            config = load(cluster.layout.client_config_path, ClientConfig)
            async with connect(config) as client:
                return await take_over(client, cluster, options.partitions)


def main() -> None:
    """All runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--partitions", type=int, default=500, help="of the cluster")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where nodes write (default: a temporary directory)")
    options = parser.parse_args()
    print("| | assigned after s | first s later | half | all |\n|---|---:|---:|---:|---:|", flush=True)
    found: list[Times] = []
    for number in range(1, options.runs + 1):
        found.append(uvloop.run(run(options)))
        print(row(str(number), found[-1]), flush=True)
    print(row("median", tuple(map(statistics.median, zip(*found, strict=True)))), flush=True)


def row(name: str, times: Times) -> str:
    """A line of the table."""
    return f"| {name} | {' | '.join(f'{each:.2f}' for each in times)} |"


if __name__ == "__main__":
    main()
