"""etcd: three members, every append a new key, written through the leader."""

import importlib
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.peers.peer import LOOPBACK, Module, Peer, Program, Running, program
from benchmarks.peers.processes import until
from waltz.local.ports import free_ports
from waltz.local.processes import Children

MEMBERS = 3
PROMISE = "synced on two of three members; in one order for all clients"
MAX_DATABASE_BYTES = 8 << 30
NEEDS = (
    Program("etcd", "apt install etcd-server, or a release from https://github.com/etcd-io/etcd"),
    Module("aetcd", ".venv/bin/pip install aetcd"),
)


class Member(Protocol):
    """Of a client's answers: the member that leads."""

    @property
    def name(self) -> str:
        """Its name."""


class Status(Protocol):
    """What a member says of itself."""

    @property
    def leader(self) -> Member | None:
        """Who leads, if it knows."""


class Etcd(Protocol):
    """What is used of the client."""

    async def connect(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def put(self, key: bytes, value: bytes) -> object:
        """Returns when a majority has synced it."""

    async def status(self) -> Status:
        """How the member is."""


@asynccontextmanager
async def start(directory: Path, _max_in_flight: int) -> AsyncIterator[Running]:
    """Three members, and a client of the one that leads."""
    ports = free_ports(2 * MEMBERS)
    client_ports, peer_ports = ports[:MEMBERS], ports[MEMBERS:]
    names = [f"member{number}" for number in range(MEMBERS)]
    cluster = ",".join(f"{name}=http://{LOOPBACK}:{port}" for name, port in zip(names, peer_ports, strict=True))
    with Children() as children:
        members = [
            children.start(
                name,
                [
                    *(program("etcd", NEEDS), f"--name={name}", f"--data-dir={directory / name}"),
                    *(f"--{word}-client-urls=http://{LOOPBACK}:{client_port}" for word in ("listen", "advertise")),
                    *(f"--{word}-peer-urls=http://{LOOPBACK}:{peer_port}" for word in ("listen", "initial-advertise")),
                    *(f"--initial-cluster={cluster}", "--initial-cluster-state=new"),
                    f"--quota-backend-bytes={MAX_DATABASE_BYTES}",
                ],
                directory / f"{name}.log",
            )
            for name, client_port, peer_port in zip(names, client_ports, peer_ports, strict=True)
        ]
        async with AsyncExitStack() as stack:
            clients = dict(zip(names, [await _connected(port, stack) for port in client_ports], strict=True))
            leader = ""

            async def has_leader() -> bool:
                nonlocal leader
                found = (await clients[names[0]].status()).leader
                leader = "" if found is None else found.name
                return leader in clients

            await until(has_leader, members, "etcd has no leader", importlib.import_module("aetcd").ClientError)
            numbers = itertools.count()
            put = clients[leader].put
            yield Running(
                lambda payload: put(b"log/%020d" % next(numbers), payload),
                [member.process_id for member in members],
                PROMISE,
            )


async def _connected(port: int, stack: AsyncExitStack) -> Etcd:
    client: Etcd = importlib.import_module("aetcd").Client(LOOPBACK, port)
    await client.connect()
    stack.push_async_callback(client.close)
    return client


ETCD = Peer("etcd", NEEDS, start)
