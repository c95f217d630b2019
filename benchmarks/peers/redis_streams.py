"""Redis streams: a primary and two replicas, an append-only file that is always synced, and WAIT for one replica."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, Self

from benchmarks.peers.peer import LOOPBACK, Module, Peer, Program, Running, program
from benchmarks.peers.processes import until
from waltz.local.ports import free_ports
from waltz.local.processes import Children

REPLICAS = 2
STREAM = "log"
PROMISE = "synced on the primary and received by one of two replicas; whoever is made primary next may lack it"
NEEDS = (
    Program("redis-server", "apt install redis-server"),
    Module("redis", ".venv/bin/pip install 'redis[hiredis]'"),
)


class Pipeline(Protocol):
    """Commands that are sent together."""

    def xadd(self, name: str, fields: dict[str, bytes]) -> Self:
        """Append."""

    def wait(self, num_replicas: int, timeout: int) -> Self:
        """Wait until so many replicas have everything up to here."""

    async def execute(self) -> tuple[object, int]:
        """The answers to both."""


class Redis(Protocol):
    """What is used of the client."""

    def pipeline(self, *, transaction: bool) -> Pipeline:
        """Collect commands."""

    async def info(self, section: str) -> dict[str, object]:
        """How the server is."""

    async def aclose(self) -> None:
        """Disconnect."""


@asynccontextmanager
async def start(directory: Path, max_in_flight: int) -> AsyncIterator[Running]:
    """Three servers, and a client with a connection for every append in flight: WAIT holds up its connection."""
    redis = importlib.import_module("redis.asyncio")
    ports = free_ports(1 + REPLICAS)
    with Children() as children:
        servers = []
        for number, port in enumerate(ports):
            place = directory / f"server{number}"
            place.mkdir()
            command = [
                *(program("redis-server", NEEDS), f"--port {port}", f"--bind {LOOPBACK}", f"--dir {place}"),
                *("--appendonly yes", "--appendfsync always", '--save ""'),
                *([f"--replicaof {LOOPBACK} {ports[0]}"] if number else []),
            ]
            words = [word for option in command for word in option.split(" ")]
            servers.append(children.start(place.name, words, directory / f"{place.name}.log"))
        client: Redis = redis.Redis(host=LOOPBACK, port=ports[0], max_connections=max_in_flight + 1)

        async def complete() -> bool:
            found = await client.info("replication")
            return all(_is_online(found.get(f"slave{number}")) for number in range(REPLICAS))

        async def append(payload: bytes) -> None:
            _, count = await client.pipeline(transaction=False).xadd(STREAM, {"data": payload}).wait(1, 0).execute()
            assert count, "WAIT ended without a replica"

        try:
            await until(complete, servers, "the replicas", redis.RedisError)
            yield Running(append, [server.process_id for server in servers], PROMISE)
        finally:
            await client.aclose()


def _is_online(replica: object) -> bool:
    return isinstance(replica, dict) and replica.get("state") == "online"


REDIS = Peer("Redis streams", NEEDS, start)
