"""Waltz, measured like its peers: one server, three storages with synced writes, ZooKeeper."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import waltz
from benchmarks.peers.peer import Peer, Running
from waltz.local.cluster import LocalCluster

PROMISE = "synced on two of three storages; in one order for all clients, with a checksum of its own"


@asynccontextmanager
async def start(directory: Path, max_in_flight: int) -> AsyncIterator[Running]:
    """A cluster, and one client of it."""
    async with (
        LocalCluster(directory, servers=1, plaintext=True) as cluster,
        waltz.connect(cluster.layout.client_config_path, max_in_flight=max_in_flight) as client,
    ):
        yield Running(lambda payload: client.append(0, payload), cluster.processes().values(), PROMISE)


WALTZ = Peer("Waltz", (), start)
